"""What tests of several modules need: log lines as vLLM prints them, evidence and rules from them.

Nothing here asserts. Logs are lists of lines without their ends; `text` joins them.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from forensics.analysis import Engine, examine_bytes, prepare
from forensics.envelopes import pipeline
from forensics.evidence import Builder, wanted
from forensics.hyperscan_finder import finder
from forensics.model import Context, Diagnosis, Evidence, Source
from forensics.patterns import PlainFinder
from forensics.rules_schema import Rule
from forensics.ruleset import RuleSet, parse_rule
from forensics.samples import expected

ROOT = Path(__file__).parents[1]
SAMPLES = sorted(path.parent for path in (ROOT / "samples").rglob("expect.yaml"))
SITE = "/usr/local/lib/python3.12/site-packages"


@cache
def log_of(case: Path) -> bytes:
    """Return the bytes of a sample's log."""
    path = case / expected(case).log
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


# ------------------------------------------------------------------------------------------- lines


def logged(
    process: str | None,
    message: str,
    level: str = "INFO",
    *,
    origin: str = "core.py:10",
    clock: str = "12-01 02:00:00",
    pid: int = 71,
) -> list[str]:
    """One logger record of vLLM 0.8 and later: the prefix stands before each line of it."""
    name = f"({process} pid={pid}) " if process else ""
    return [f"{name}{level} {clock} [{origin}] {line}" for line in message.split("\n")]


def raw(process: str | None, message: str, *, pid: int = 71) -> list[str]:
    """Raw output of a child process up to 0.30: only its name stands before each line."""
    name = f"({process} pid={pid}) " if process else ""
    return [f"{name}{line}" for line in message.split("\n")]


def traceback(
    exception: str, frames: Iterable[tuple[str, str]] = (("vllm/v1/engine/core.py", "run"),)
) -> str:
    """A traceback as CPython prints it; a frame is the file within site-packages and a function."""
    out = ["Traceback (most recent call last):"]
    for number, (file, function) in enumerate(frames, 1):
        out += [f'  File "{SITE}/{file}", line {number}, in {function}', f"    {function}(self)"]
    return "\n".join([*out, exception])


CAUSE = "\n\nThe above exception was the direct cause of the following exception:\n\n"
CONTEXT = "\n\nDuring handling of the above exception, another exception occurred:\n\n"


def text(*parts: Iterable[str]) -> str:
    """Join lists of lines to a log."""
    return "".join(f"{line}\n" for part in parts for line in part)


def started(version: str = "0.32.0", arguments: str = "{'model': '/models/tiny'}") -> list[str]:
    """A healthy start up to the engine's banner."""
    return [
        *logged("APIServer", f"vLLM API server version {version}", pid=7),
        *logged("APIServer", f"non-default args: {arguments}", pid=7),
        *logged("APIServer", "Resolved architecture: LlamaForCausalLM", pid=7),
        *logged(
            "EngineCore",
            f"Initializing a V1 LLM engine (v{version}) with config: "
            "model='/models/tiny', speculative_config=None, tokenizer='/models/tiny'",
        ),
    ]


def loaded() -> list[str]:
    """From the banner to weights in memory and the cache laid out."""
    return [
        *logged("EngineCore", "Starting to load model /models/tiny...", clock="12-01 02:00:10"),
        *logged("EngineCore", "Loading weights took 0.08 seconds", clock="12-01 02:00:20"),
        *logged("EngineCore", "Available KV cache memory: 31.05 GiB", clock="12-01 02:00:30"),
    ]


def serving() -> list[str]:
    """The end of a healthy start."""
    return [
        *logged("APIServer", "Starting vLLM server on http://0.0.0.0:8000", pid=7),
        "INFO:     Started server process [7]",
        "INFO:     Waiting for application startup.",
        "INFO:     Application startup complete.",
    ]


def stopped() -> list[str]:
    """An orderly end, as SIGTERM brings it about."""
    return [
        *logged("APIServer", "[shutdown] API server: shutdown triggered", pid=7),
        "INFO:     Shutting down",
        "INFO:     Waiting for application shutdown.",
        "INFO:     Application shutdown complete.",
        "INFO:     Finished server process [7]",
    ]


ENGINE_DEAD = (
    "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. "
    "See stack trace (above) for the root cause."
)
ENGINE_FAILED = (
    "RuntimeError: Engine core initialization failed. See root cause above. "
    "Failed core proc(s): {'EngineCore': 1}"
)


def failed_start(exception: str = "ValueError: head size 42 is not supported") -> list[str]:
    """A start whose engine raises, with the cascade that follows from it."""
    return [
        *started(),
        *logged("EngineCore", "EngineCore failed to start.", "ERROR", origin="core.py:900"),
        *logged("EngineCore", traceback(exception), "ERROR", origin="core.py:900"),
        "Process EngineCore:",
        *traceback(exception).split("\n"),
        *traceback(ENGINE_FAILED, [("vllm/entrypoints/api_server.py", "run_server")]).split("\n"),
    ]


# ---------------------------------------------------------------------------------------- evidence


def runs(log: bytes, size: int) -> Iterable[bytes]:
    """Cut a log into runs of whole lines of about `size` bytes, as a source gives them."""
    start = 0
    while start < len(log):
        end = log.find(b"\n", start + size - 1) + 1
        end = end if end > 0 else len(log)
        yield log[start:end]
        start = end


def evidence(
    log: str | bytes,
    *,
    patterns: Iterable[str] = (),
    context: Context | None = None,
    size: int = 4 * 1024 * 1024,
    fast: bool = False,
) -> Evidence:
    """Read a log, by the reference path unless it is large (`fast`)."""
    data = log.encode() if isinstance(log, str) else log
    wants = wanted(patterns)
    builder = Builder(wants)
    find = finder(wants.finds) if fast else PlainFinder(wants.finds)
    unwrap = pipeline(data[:65_536])
    blocks = [block for run in runs(data, size) for _, block in unwrap.feed(run)]
    for block in (*blocks, *(block for _, block in unwrap.finish())):
        builder.feed(block, find.candidates(block.text))
    return builder.finish(Source("text", "test", bytes=len(data)), context or Context())


# ------------------------------------------------------------------------------------------- rules


class _Plain(yaml.SafeDumper):
    """Rule files may hold neither anchors nor aliases."""

    def ignore_aliases(self, data: object) -> bool:
        """Write a value anew each time."""
        del data
        return True


def rule_text(rule_id: str, match: object, **fields: object) -> str:
    """The YAML of a rule with everything that a rule needs."""
    body: dict[str, Any] = {
        "id": rule_id,
        "title": "A test",
        "severity": "fatal",
        "role": "root_cause",
        "match": match,
        "cause": "It was broken.",
        "tests": {"match": [{"log": "x"}], "no_match": [{"log": "y"}]},
    }
    return yaml.dump({**body, **fields}, Dumper=_Plain, sort_keys=False)


def rule(rule_id: str, match: object, **fields: object) -> Rule:
    """A rule, read as a file of a pack is."""
    return parse_rule(rule_text(rule_id, match, **fields), f"pack/{rule_id.replace('.', '/')}.yaml")


def ruleset(*rules: Rule, tables: Mapping[str, Any] | None = None) -> RuleSet:
    """A rule set of these rules alone."""
    ordered = tuple(sorted(rules, key=lambda r: r.id))
    return RuleSet(ordered, "0" * 64, {r.id: f"pack/{r.id}" for r in ordered}, dict(tables or {}))


def engine(*rules: Rule, tables: Mapping[str, Any] | None = None) -> Engine:
    """These rules made ready, on the reference path."""
    return prepare(ruleset(*rules, tables=tables), plain=True)


def diagnose(
    log: str | bytes,
    *rules: Rule,
    context: Context | None = None,
    tables: Mapping[str, Any] | None = None,
) -> Diagnosis:
    """Diagnose a log with these rules alone."""
    data = log.encode() if isinstance(log, str) else log
    return examine_bytes(data, engine(*rules, tables=tables), context or Context())[0]


@cache
def shipped(*, plain: bool = False) -> Engine:
    """The shipped rules made ready."""
    return prepare(plain=plain)
