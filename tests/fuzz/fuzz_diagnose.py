"""Fuzzes the way from raw bytes to a diagnosis with atheris; any exception is a defect.

Needs `pip install atheris`, which the project itself does not depend on:

    python tests/fuzz/fuzz_diagnose.py -max_total_time=600

Inputs begin from the samples' own lines, wrapped in every envelope.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import atheris  # noqa: E402 - after the path

with atheris.instrument_imports(include=["forensics"]):
    from forensics.analysis import examine_runs, prepare
    from forensics.errors import ForensicsError
    from forensics.model import Context, Source
    from forensics.scanning import Memory
    from forensics.sources import opened_stream

from tests import wraps  # noqa: E402

ENGINE = prepare()


def one(data: bytes) -> None:
    """Read one input as a stream and as bytes in memory."""
    try:
        opened = opened_stream("stdin", "-", io.BytesIO(data))
        pieces = b"".join(opened.runs())
    except ForensicsError:
        pieces = data
    examine_runs(Memory(pieces, Source("text", "fuzz")), ENGINE, Context())


def seeds(folder: Path) -> None:
    """Write the first inputs: the head of each sample, plain and in each envelope."""
    folder.mkdir(parents=True, exist_ok=True)
    heads = [p.read_bytes()[:1500] for p in sorted((ROOT / "samples").rglob("log.txt"))[:40]]
    ways = list(wraps.ENVELOPES.values())
    for number, head in enumerate(heads):
        (folder / f"plain-{number}").write_bytes(head)
        (folder / f"wrapped-{number}").write_bytes(ways[number % len(ways)](head)[0])
        pack = list(wraps.PACKED.values())[number % len(wraps.PACKED)]
        (folder / f"packed-{number}").write_bytes(pack(head))


if __name__ == "__main__":
    corpus = Path(".fuzz-corpus")
    seeds(corpus)
    atheris.Setup([*sys.argv, str(corpus)], one)
    atheris.Fuzz()
