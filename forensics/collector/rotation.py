"""Whether the engine itself may have thrown away parts of a log (`max-size`, `max-file`)."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30}
_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)\s{0,2}([kmg]?)i?b?", re.IGNORECASE)
#: What the `local` driver does unless it is told otherwise.
_LOCAL_SIZE, _LOCAL_FILES = "20m", "5"


class Rotation(Struct, frozen=True):
    """How a container's log is rotated.

    Attributes:
        size: Bytes of one file, in the driver's own form.
        files: Files that are kept.
    """

    size: int
    files: int

    def reached(self, written: int) -> bool:
        """Say whether so many bytes of CRI lines may have filled a file.

        CRI lines are about as long as those of json-file and up to twice as long as records of
        `local`; the answer errs towards yes.
        """
        return written >= self.size // 2

    def lost(self, written: int) -> bool:
        """Say whether, when so many bytes were read afterwards, older ones may be gone."""
        return self.reached(written) if self.files == 1 else written >= self.size * self.files // 3


def rotation_of(inspect: dict[str, Any]) -> Rotation | None:
    """Return how the log of a container is rotated, None where it is not.

    Args:
        inspect: Its inspect data (`HostConfig.LogConfig`).
    """
    host = inspect.get("HostConfig")
    log = host.get("LogConfig") if isinstance(host, dict) else None
    if not isinstance(log, dict) or log.get("Type") not in {"json-file", "local"}:
        return None
    options = log.get("Config")
    options = options if isinstance(options, dict) else {}
    local = log["Type"] == "local"
    size = str(options.get("max-size") or (_LOCAL_SIZE if local else ""))
    files = str(options.get("max-file") or (_LOCAL_FILES if local else "1"))
    found = _SIZE.fullmatch(size.strip())
    if found is None:
        return None
    count = int(files) if files.isdecimal() and int(files) > 0 else 1
    return Rotation(int(float(found[1]) * _UNITS[found[2].lower()]), count)
