"""Evidence beside the log: what the kernel, the container engine and the GPUs say of a run.

In: files that were read beside a log. Out: their lines that may matter (`Told`), each with its
time, process and container where the line says so, and facts. Whether a line concerns the run is
not judged here (see `forensics.witnesses`).
"""

from __future__ import annotations

from forensics.beside.kinds import Beside, read
from forensics.beside.told import Told

__all__ = ["Beside", "Told", "read"]
