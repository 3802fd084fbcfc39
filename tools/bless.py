"""Write what comes out into `expect.yaml`, for a person to review in the diff.

    python tools/bless.py                    rewrite every sample's expectations
    python tools/bless.py samples/vllm/x …   only these

Provenance (`source`, `made`, `note`, `exit_code`, `log`) is kept; everything else is what the
tool says today. Never bless a result that is wrong: the sample is the specification.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import yaml

from forensics import samples
from forensics.analysis import examine, prepare
from forensics.model import Context


def bless(case: Path) -> bool:
    """Rewrite one sample's expectations; return whether they changed."""
    want = samples.expected(case)
    context = Context(exit_code=want.exit_code) if want.exit_code is not None else None
    diagnosis = examine(str(case / want.log), ENGINE, context)[0]
    got = samples.observed(diagnosis, want)
    if got == want:
        return False
    write(case, got)
    return True


def write(case: Path, expected: samples.Expected) -> None:
    """Write `expect.yaml`, leaving out what is empty."""
    data = msgspec.to_builtins(expected)
    kept = {"last_milestone", "line", "rule"}
    data = {
        key: value
        for key, value in data.items()
        if key in kept or (value not in (None, {}, []) and (key, value) != ("log", "log.txt"))
    }
    text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=100)
    (case / "expect.yaml").write_text(text)


if __name__ == "__main__":
    ENGINE = prepare()
    chosen = [Path(name) for name in sys.argv[1:]] or samples.find(Path("samples"))
    changed = [str(case) for case in chosen if bless(case)]
    sys.stdout.write("".join(f"{name}\n" for name in changed) + f"{len(changed)} changed\n")
