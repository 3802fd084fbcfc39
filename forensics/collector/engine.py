"""The engine as the collector knows it: with what a run's record says of it."""

from __future__ import annotations

from typing import Any

from forensics.archive.model import EngineFacts
from forensics.containers import engine
from forensics.containers.reach import EngineError, Gone, LogsUnreadable
from forensics.containers.streams import Chunks, Events

__all__ = ["Chunks", "Engine", "EngineError", "Events", "Gone", "LogsUnreadable"]


class Engine(engine.Engine):
    """A connection to an engine; may be used by several threads."""

    @property
    def facts(self) -> EngineFacts:
        """Return what a run's record says of the engine."""

        def said(name: str) -> str | None:
            value: Any = self.info.get(name)
            return value if isinstance(value, str) and value else None

        return EngineFacts(
            name=self.kind,
            version=self.version or None,
            api_version=self.api_version,
            host=said("Name") or self.host,
            operating_system=said("OperatingSystem"),
            kernel=said("KernelVersion"),
            arch=said("Architecture"),
            storage=said("Driver"),
        )
