"""Bug reports: prose around log blocks, as people paste them into trackers and mails.

Fenced, quoted and indented blocks that hold a log come out as the log; the block of a collected
environment is read for facts; prose and code are left out. Physical lines stay those of the
report. Lines that a terminal broke at its width are joined again.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Literal

from forensics.envelopes.batch import Batch, Envelope, Lines
from forensics.envelopes.prefixes import head_lines
from forensics.envelopes.text import strip_escapes

_QUOTE = re.compile(rb"(?: {0,3}> ?)+")
_FENCE = re.compile(rb"(?P<indent>[ \t]{0,12})(?P<mark>`{3,}|~{3,})[ \t]*(?P<info>[\w+-]*)[^`]*$")
#: What a line of a server's log begins with, and how a traceback begins and ends.
_STAMP = rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d"
_LOG = re.compile(
    rb"(?:\([^()\n]{1,80} pid=\d+[^()\n]{0,60}\) )*"
    rb"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)(?: \d\d-\d\d |: {2,5}|:\w)"
    rb"|\([A-Z]\w{2,40}(?: pid=\d+|[^()\n]{0,20} pid=\d+)\) |\[?"
    + _STAMP
    + rb"|Traceback \(most recent call last\):|(?:[\w.-]{1,60} +\| )|\{\"log\":|time="
    + _STAMP
    + rb"|(?:llama_|ggml_|srv |slot |main: |load_tensors:)|(?:vllm|usage)[\w .:-]{0,30}: error: "
    rb"|\[\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d\] \[|\[ *\d+\.\d{6}\] "
    rb"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d "
    rb"|docker: |Error response from daemon|exec /\S+: "
)
_RAISED = re.compile(rb"(?:[A-Za-z_]\w*\.){0,8}[A-Z]\w*(?:Error|Exception|Interrupt|Exit)\b(?::|$)")
_JOINT = re.compile(rb"The above exception was the direct|During handling of the above")
_ENVIRONMENT = re.compile(
    rb"Collecting environment information|PyTorch version *:|Python: 3\.\d+|CUDA available: "
)
_REPORT = re.compile(
    rb"<details>|#{1,4} |\*\*|- \[[ x]\] |>|Your current environment", re.IGNORECASE
)
#: Languages of code that people show beside their logs.
_CODE = {
    b"python",
    b"py",
    b"yaml",
    b"yml",
    b"json",
    b"dockerfile",
    b"diff",
    b"cpp",
    b"toml",
    b"bash",
    b"sh",
}
_INDENT = (b"    ", b"\t")
#: Lines of a block that are held back until it is known whether it is a log.
_HELD_LINES = 400
_MIN_WIDTH, _MAX_WIDTH = 70, 260
_MIN_BROKEN = 3

_FACTS: tuple[tuple[str, re.Pattern[bytes]], ...] = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("torch", rb"(?:PyTorch version|PyTorch) *: *(\d[\w.+-]{2,40})"),
        ("torch", rb"(?:\[(?:pip3|conda)\] )?torch==(\d[\w.+-]{2,40})"),
        ("vllm", rb"v(?:LLM|llm) [Vv]ersion *: *v?(\d[\w.+-]{2,60})"),
        ("sglang", rb"sglang *: *(\d[\w.+-]{2,40})"),
        ("cuda", rb"(?:CUDA used to build PyTorch|CUDA runtime version) *: *(\d[\w.]{1,20})"),
        ("driver", rb"(?:Nvidia driver version|CUDA Driver Version) *: *(\d[\w.]{2,20})"),
        ("gpu", rb"(?:GPU models[\w ]{0,20}: *)?GPU 0[\d,]*: ((?:NVIDIA|AMD) [\w .-]{2,60})"),
        ("capability", rb"GPU 0[\d,]* Compute Capability *: *(\d{1,2}\.\d)"),
        ("arch", rb"Architecture *: *(x86_64|aarch64)"),
        ("flashinfer", rb"(?:\[(?:pip3|conda)\] )?flashinfer[\w-]*(?:==| *: *)(\d[\w.+-]{2,40})"),
        ("triton", rb"(?:\[(?:pip3|conda)\] )?triton==(\d[\w.+-]{2,40})"),
    )
)  # fmt: skip


class PastedLayer:
    """Takes a report apart; see the module's text."""

    def __init__(self) -> None:
        #: What the report states of the machine and the versions.
        self.facts: dict[str, str] = {}
        self._kind: Literal["fence", "quote", "indent"] | None = None
        self._fence = b""
        self._indent = 0
        self._info = b""
        self._held: list[tuple[bytes, int]] | None = None
        self._dropping = False
        self._loose = False
        self._blank = True

    def feed(self, batch: Batch) -> Batch:
        """Take lines of the report and return those of the logs in it."""
        out = Lines()
        for line, number in zip(batch.lines(), batch.numbers, strict=False):
            self._line(out, strip_escapes(line).removesuffix(b"\r"), number)
        return out.batch()

    def finish(self) -> Batch:
        """Return what a block holds that was never closed."""
        out = Lines()
        self._close(out)
        return out.batch()

    def _line(self, out: Lines, line: bytes, number: int) -> None:
        quoted = _QUOTE.match(line)
        if self._kind == "quote" and quoted is None:
            self._close(out)
        if quoted is not None:
            line = line[quoted.end() :]
        fence = _FENCE.match(line)
        if self._kind == "fence":
            if fence and fence["mark"].startswith(self._fence) and not fence["info"]:
                self._close(out)
            else:
                self._inside(out, line, number)
            return
        if self._kind == "indent" and line.strip() and not line.startswith(_INDENT):
            self._close(out)
        if fence is not None and self._kind != "indent":
            self._close(out)
            self._open("fence", len(fence["indent"]))
            self._fence, self._info = fence["mark"], fence["info"].lower()
            return
        if self._kind is None and quoted is not None and line.strip():
            self._open("quote", 0)
        elif self._kind is None and line.startswith(_INDENT) and self._blank and not self._loose:
            self._open("indent", 4)
        if self._kind is not None:
            self._inside(out, line, number)
        else:
            self._outside(out, line, number)

    def _open(self, kind: Literal["fence", "quote", "indent"], indent: int) -> None:
        self._kind, self._indent, self._info = kind, indent, b""
        self._held, self._dropping, self._loose = [], False, False

    # --- blocks ----------------------------------------------------------------------------------

    def _inside(self, out: Lines, line: bytes, number: int) -> None:
        if line.startswith(b"\t") and self._kind == "indent":
            line = line[1:]
        elif self._indent and line[: self._indent].isspace():
            line = line[self._indent :]
        self._fact(line)
        if self._dropping:
            return
        if self._held is None:
            out.add(line, number)
            return
        self._held.append((line, number))
        if len(self._held) >= _HELD_LINES:
            self._decide(out)

    def _close(self, out: Lines) -> None:
        if self._held:
            self._decide(out)
        self._kind, self._held, self._dropping, self._blank = None, None, False, False

    def _decide(self, out: Lines) -> None:
        """Give the held lines of a block if it is a log; else drop all of it."""
        held, self._held = self._held or [], None
        lines = [line for line, _ in held]
        environment = any(_ENVIRONMENT.match(line) for line in lines[:5])
        says = any(_LOG.match(line.lstrip()) or _RAISED.match(line) for line in lines)
        prose = self._kind != "fence" or self._info in _CODE
        if environment or (prose and not says):
            self._dropping = True
            return
        width = _width(lines)
        for line, number in _joined(held, width) if width else held:
            out.add(line, number)

    # --- lines between blocks --------------------------------------------------------------------

    def _outside(self, out: Lines, line: bytes, number: int) -> None:
        self._fact(line)
        if not line.strip():
            self._blank = True
            return
        begins = _LOG.match(line) or _JOINT.match(line)
        if begins or (self._loose and (_RAISED.match(line) or not self._blank)):
            self._loose = True
            out.add(line, number)
        else:
            self._loose = False
        self._blank = False

    def _fact(self, line: bytes) -> None:
        if b":" not in line and b"==" not in line:
            return
        text = line.strip()
        for name, pattern in _FACTS:
            if name not in self.facts and (found := pattern.match(text)):
                self.facts[name] = found[1].decode("utf-8", "replace").strip()


def _width(lines: list[bytes]) -> int | None:
    """Return the column at which a terminal broke the lines of a block, None where none did."""
    lengths = Counter(len(line.decode("utf-8", "replace")) for line in lines)
    widest = max(lengths, default=0)
    if not _MIN_WIDTH <= widest <= _MAX_WIDTH or lengths[widest] < _MIN_BROKEN:
        return None
    full = [
        i for i, line in enumerate(lines[:-1]) if len(line.decode("utf-8", "replace")) == widest
    ]
    goes_on = sum(1 for i in full if not _LOG.match(lines[i + 1]) and lines[i + 1].strip())
    return widest if goes_on * 10 >= len(full) * 8 else None


def _joined(held: list[tuple[bytes, int]], width: int) -> list[tuple[bytes, int]]:
    """Join what was broken at a column; the joined line has the place of its first piece."""
    out: list[tuple[bytes, int]] = []
    full = False
    for line, number in held:
        if full and not _LOG.match(line) and line.strip():
            out[-1] = (out[-1][0] + line, out[-1][1])
        else:
            out.append((line, number))
        full = len(line.decode("utf-8", "replace")) == width
    return out


def _wraps(head: bytes) -> bool:
    """Say whether the first bytes are a report: marks of one, and a log or environment in them."""
    first = next(iter(head_lines(head)), b"")
    if _LOG.match(first):
        return False
    lines = strip_escapes(head).split(b"\n")
    fences = sum(_FENCE.match(_unquoted(line)) is not None for line in lines)
    quotes = sum(line.startswith(b">") for line in lines)
    marks = any(_REPORT.match(line) for line in lines[:40])
    if not (fences or quotes >= _MIN_BROKEN or marks):
        return False
    bodies = [_unquoted(line).strip() for line in lines]
    logs = sum(_LOG.match(body) is not None or _RAISED.match(body) is not None for body in bodies)
    return logs > 0 or any(_ENVIRONMENT.match(body) for body in bodies if not body.startswith(b"="))


def _unquoted(line: bytes) -> bytes:
    quoted = _QUOTE.match(line)
    return line[quoted.end() :] if quoted else line


PASTED = Envelope("report", _wraps, lambda _: PastedLayer())
