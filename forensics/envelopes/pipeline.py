"""Envelopes taken off one after the other, each service on its own.

In: runs of raw bytes. Out: clean blocks, each with the service that it is from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from forensics.envelopes.batch import Batch, Envelope, Layer, plain
from forensics.envelopes.text import Block, clean

#: Envelopes within envelopes that are followed (json-file in a journal in a paste is three).
MAX_DEPTH = 4


def detect_all(head: bytes, known: Sequence[Envelope]) -> tuple[Envelope, ...]:
    """Return the envelopes of a log, the outermost first.

    Args:
        head: Its first bytes, raw; a last line that is cut is no matter.
        known: All envelopes, in the order in which they are tried.
    """
    found: list[Envelope] = []
    while len(found) < MAX_DEPTH and head:
        one = next((e for e in known if e.wraps(head)), None)
        if one is None:
            break
        layer = one.layer(head)
        inside = layer.feed(plain(_whole_lines(head), 1)).text or layer.finish().text
        found.append(one)
        if inside == head:
            break
        head = inside
    return tuple(found)


def _whole_lines(head: bytes) -> bytes:
    end = head.rfind(b"\n") + 1
    return head[:end] if end else head


class Pipeline:
    """Takes the envelopes of one log off.

    Args:
        envelopes: What `detect_all` found.
        head: The first bytes of the log.
    """

    def __init__(self, envelopes: tuple[Envelope, ...], head: bytes) -> None:
        self._envelopes = envelopes
        self._head = head
        self._layers: dict[tuple[int, str | None], Layer] = {}
        #: Physical lines taken so far, and whether the last one has no end.
        self.lines = 0
        self.unfinished = False

    @property
    def name(self) -> str | None:
        """Return the names of the envelopes, None where there is none."""
        return "+".join(e.name or "" for e in self._envelopes) or None

    @property
    def exits(self) -> dict[str, int]:
        """Return exit codes that an envelope states, by service."""
        found: dict[str, int] = {}
        for layer in self._layers.values():
            found.update(getattr(layer, "exits", {}))
        return found

    @property
    def facts(self) -> dict[str, str]:
        """Return what a report around the log states."""
        found: dict[str, str] = {}
        for layer in self._layers.values():
            found.update(getattr(layer, "facts", {}))
        return found

    def feed(self, run: bytes) -> Iterator[tuple[str | None, Block]]:
        """Take a run of whole lines; give the clean blocks that are complete."""
        first = self.lines + 1
        if not self._envelopes:
            yield None, self.counted(clean(run, first), run)
            return
        self.lines += run.count(b"\n")
        self.unfinished = bool(run) and not run.endswith(b"\n")
        for service, batch in self._through(plain(run, first), 0, None):
            yield service, _block(batch)

    @property
    def waiting(self) -> bool:
        """Return whether a line has begun whose end is still to come."""
        return any(getattr(layer, "waiting", False) for layer in self._layers.values())

    def counted(self, block: Block, run: bytes) -> Block:
        """Give the next block of lines that nothing wraps its place in the source.

        Args:
            block: The clean lines.
            run: The same, raw.
        """
        first = self.lines + 1
        self.lines += block.lines
        self.unfinished = bool(run) and not run.endswith(b"\n")
        return block if block.first_line == first else replace(block, first_line=first)

    def finish(self) -> Iterator[tuple[str | None, Block]]:
        """Give what was held back."""
        for level in range(len(self._envelopes)):
            for (at, service), layer in list(self._layers.items()):
                if at != level:
                    continue
                for name, batch in self._inward(layer.finish(), level, service):
                    yield name, _block(batch)

    def _through(
        self, batch: Batch, level: int, service: str | None
    ) -> Iterator[tuple[str | None, Batch]]:
        if level == len(self._envelopes):
            yield service, batch
            return
        layer = self._layers.get((level, service))
        if layer is None:
            layer = self._envelopes[level].layer(self._head)
            self._layers[level, service] = layer
        yield from self._inward(layer.feed(batch), level, service)

    def _inward(
        self, batch: Batch, level: int, service: str | None
    ) -> Iterator[tuple[str | None, Batch]]:
        for name, part in _by_service(batch):
            inner = name if service is None else f"{service}/{name}" if name else service
            if part.text:
                yield from self._through(part, level + 1, inner)


def _by_service(batch: Batch) -> Iterator[tuple[str | None, Batch]]:
    """Part the lines of different services."""
    services = batch.services
    if not services:
        yield None, batch
        return
    names = dict.fromkeys(services)
    if len(names) == 1:
        yield next(iter(names)), batch
        return
    lines = batch.lines()
    last = lines[-1:] if batch.text and not batch.text.endswith(b"\n") else []
    for name in names:
        mine = [i for i, service in enumerate(services) if service == name]
        text = b"\n".join([lines[i] for i in mine])
        unended = bool(last) and mine[-1] == len(lines) - 1
        yield (
            name,
            Batch(
                text if unended else text + b"\n",
                [batch.numbers[i] for i in mine],
                [batch.times[i] for i in mine] if batch.times else None,
            ),
        )


def _block(batch: Batch) -> Block:
    first = batch.numbers[0] if batch.numbers else 1
    numbers = None if isinstance(batch.numbers, range) else batch.numbers
    return clean(batch.text, first, numbers, batch.times)
