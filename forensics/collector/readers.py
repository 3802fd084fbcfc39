"""The readers of logs that have no file: one thread a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from forensics.archive.model import Tier
from forensics.collector.engine import Engine
from forensics.collector.subjects import Open, Subject


class Readers:
    """Reads logs through the engine's API.

    Args:
        engine: The engine.
        told: Takes messages for the watcher.
    """

    def __init__(self, engine: Engine, told: Callable[[tuple[Any, ...]], None]) -> None:
        self._engine, self._told = engine, told

    def tier(self, driver: str | None) -> Tier | None:
        """Return the way in which the logs of a driver come."""
        return None if driver == "none" else "api"

    def start(self, subject: Subject, run: Open) -> None:
        """Read the log of a run."""

    def quiet(self) -> bool:
        """Say whether nothing new comes at present."""
        return True

    def close(self) -> None:
        """End all."""
