"""What `nvidia-smi` prints (`-q`, `-q -x`, the table, an error): facts and lines that may matter.

Formats: nvidia-smi(1), the text and XML of `-q`, and the table of releases 450 to 580.
"""

from __future__ import annotations

import re

from msgspec import Struct

from forensics.beside.told import Told
from forensics.times import moment

_HEAD = re.compile(
    r"=+NVSMI LOG=+|<nvidia_smi_log|\| NVIDIA-SMI \d|^NVIDIA-SMI has failed|"
    r"^Failed to initialize NVML|^Unable to determine the device handle for|^No devices were found",
    re.MULTILINE,
)
_GPU = re.compile(
    r"^(?:GPU (?P<text>[0-9A-Fa-f:.]{7,20})$|\s*<gpu id=\"(?P<xml>[0-9A-Fa-f:.]{7,20})\">)"
)
_XML = re.compile(r"\s*<(?P<key>\w{1,60})>(?P<value>[^<]{0,300})</")
_TEXT = re.compile(r"\s*(?P<key>[A-Za-z][\w /().-]{0,60}?)\s*: (?P<value>.{1,300}?)\s*$")
_TABLE = re.compile(
    r"\bDriver Version: (?P<driver>[\d.]{3,20})\s+(?:CUDA Version: (?P<cuda>[\d.]{1,10}))?"
)
_NAMES = {
    "Driver Version": "driver", "driver_version": "driver",
    "CUDA Version": "cuda", "cuda_version": "cuda",
    "Product Name": "gpu", "product_name": "gpu",
}  # fmt: skip
_TIME = re.compile(r"(?:Timestamp\s+: |<timestamp>)(?P<at>[^<]{10,40})")
_MONTHS = "JanFebMarAprMayJunJulAugSepOctNovDec"


class Gpus(Struct, frozen=True):
    """What one output says.

    Attributes:
        facts: `driver`, `cuda`, `gpu`, where they stand there.
        told: Its lines that name a value, as `GPU … key: value`, and errors.
    """

    facts: dict[str, str]
    told: tuple[Told, ...]


def is_gpus(head: str) -> bool:
    """Say whether a text is output of nvidia-smi."""
    return _HEAD.search(head) is not None


def parse(lines: list[str], source: str) -> Gpus:
    """Read the output.

    Args:
        lines: Its lines.
        source: Name of the file.
    """
    facts: dict[str, str] = {}
    told: list[Told] = []
    gpu, at = "", None
    for number, text in enumerate(lines, 1):
        head = _GPU.match(text)
        if head is not None:
            gpu = f"GPU {head['text'] or head['xml']} "
            continue
        time = _TIME.search(text)
        if time is not None:
            at = _when(time["at"].strip())
        table = _TABLE.search(text)
        if table is not None:
            facts.update({k: v for k, v in table.groupdict().items() if v})
        pair = _XML.match(text) or _TEXT.match(text)
        if pair is not None and pair["key"] in _NAMES:
            facts.setdefault(_NAMES[pair["key"]], pair["value"].strip())
        said = f"{gpu}{pair['key']}: {pair['value'].strip()}" if pair and gpu else text.strip()
        if said:
            told.append(Told(source, number, text, said, "gpus", at, moment(at)))
    return Gpus({k: v for k, v in facts.items() if v not in {"N/A", "[N/A]"}}, tuple(told))


def _when(text: str) -> str | None:
    """Read `Mon Dec  1 02:03:04 2026`, the form of nvidia-smi and of date(1)."""
    found = re.match(r"\w{3} (\w{3}) {1,2}(\d{1,2}) (\d\d:\d\d:\d\d) (\d{4})$", text)
    if found is None or found[1] not in _MONTHS:
        return None
    return f"{found[4]}-{_MONTHS.index(found[1]) // 3 + 1:02}-{int(found[2]):02}T{found[3]}"
