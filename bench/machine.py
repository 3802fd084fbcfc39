"""Facts about the machine and the tools: what a figure means depends on them."""

import os
import platform
import re
import subprocess
from pathlib import Path


def facts(versions: dict[str, list[str]]) -> dict[str, str | int | None]:
    """Return processor, cores, memory in bytes, kernel, and the version of each tool.

    Args:
        versions: for each tool the command that prints its version.

    Returns:
        Facts by name; no name of the machine, no path.
    """
    found: dict[str, str | int | None] = {
        "cpu": _cpu(),
        "architecture": platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }
    found["cores"] = found["cores"] or os.cpu_count()
    for name, command in versions.items():
        found[name] = _version(command)
    return found


def kind(found: dict[str, str | int | None]) -> str:
    """Return a short name for the sort of machine, fit for a file name."""
    name = re.sub(r"\((?:r|tm)\)|\bcpu\b|\bprocessor\b|@.*", "", str(found["cpu"]).lower())
    slug = re.sub(r"[^a-z0-9]+", "-", name).strip("-") or str(found["architecture"])
    return f"{slug}-{found['cores']}c"


def _cpu() -> str:
    """Return the name of the processor as the system gives it, else the architecture."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        text = info.read_text(encoding="utf-8")
        found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
        if found:
            return found[1].strip()
    return platform.processor() or platform.machine()


def _version(command: list[str]) -> str | None:
    """Return the first line that a command prints, or None if it does not run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = done.stdout.strip().splitlines()
    return lines[0].strip() if done.returncode == 0 and lines else None
