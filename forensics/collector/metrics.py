"""Numbers of a collector for Prometheus, and the address where they are read."""

from __future__ import annotations

from collections.abc import Callable

from forensics.errors import UsageError


class Metrics:
    """Counts; whether anybody reads is another matter (`serve`)."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge  # noqa: PLC0415 - see serve

        self.registry = CollectorRegistry()
        prefix = "forensics_"
        self._containers = Gauge(
            f"{prefix}containers", "Runs being recorded", ["tier"], registry=self.registry
        )
        self._bytes = Counter(
            f"{prefix}log_bytes", "Bytes of logs recorded", ["tier"], registry=self.registry
        )
        self._lines = Counter(
            f"{prefix}log_lines", "Lines of logs recorded", ["tier"], registry=self.registry
        )
        self._lag = Gauge(
            f"{prefix}lag_bytes", "Bytes in log files not recorded yet", registry=self.registry
        )
        self._pinned = Gauge(
            f"{prefix}pinned_bytes",
            "Bytes of removed log files that are kept until they are recorded",
            registry=self.registry,
        )
        self._gaps = Counter(
            f"{prefix}gaps", "Places where something is missing", registry=self.registry
        )
        self._runs = Counter(
            f"{prefix}runs", "Runs that have ended", ["verdict", "complete"], registry=self.registry
        )
        self._failures = Counter(
            f"{prefix}failures", "Runs that failed", ["rule"], registry=self.registry
        )
        self._restarts = Counter(
            f"{prefix}restarts", "Starts of containers that ran before", registry=self.registry
        )
        self._engine = Gauge(f"{prefix}engine_up", "The engine answers", registry=self.registry)
        self._full = Gauge(
            f"{prefix}disk_full", "The archive's disk is full", registry=self.registry
        )

    def followed(self, tiers: dict[str, int], lag: int, pinned: int) -> None:
        """Set what is being recorded now."""
        for tier in ("file", "api", "journal"):
            self._containers.labels(tier).set(tiers.get(tier, 0))
        self._lag.set(lag)
        self._pinned.set(pinned)

    def recorded(self, tier: str, size: int, lines: int) -> None:
        """Count what was recorded."""
        self._bytes.labels(tier).inc(size)
        self._lines.labels(tier).inc(lines)

    def over(self, verdict: str, rule: str, *, complete: bool, bad: bool, gaps: int) -> None:
        """Count a run that has ended."""
        self._runs.labels(verdict, "yes" if complete else "no").inc()
        self._gaps.inc(gaps)
        if bad:
            self._failures.labels(rule or "unknown").inc()

    def restarted(self) -> None:
        """Count a restart."""
        self._restarts.inc()

    def engine(self, *, up: bool) -> None:
        """Say whether the engine answers."""
        self._engine.set(int(up))

    def disk(self, *, full: bool) -> None:
        """Say whether the archive's disk is full."""
        self._full.set(int(full))

    def serve(self, address: str) -> Callable[[], None]:
        """Let them be read at an address.

        Args:
            address: `HOST:PORT`, or `PORT` on this machine.

        Returns:
            Ends it.

        Raises:
            UsageError: The address is none, or is taken.
        """
        from prometheus_client import start_http_server  # noqa: PLC0415 - only who wants it needs it

        host, _, port = address.rpartition(":")
        host = host.strip("[]") or "127.0.0.1"
        if not port.isdecimal() or not 0 <= int(port) < 1 << 16:
            raise UsageError(f"--metrics {address} is no address", "HOST:PORT, 127.0.0.1:9477 say")
        try:
            server, thread = start_http_server(int(port), host, registry=self.registry)
        except OSError as error:
            raise UsageError(f"--metrics {address}", error.strerror or str(error)) from None

        def end() -> None:
            server.shutdown()
            server.server_close()
            thread.join(10)

        return end
