"""Envelopes of one JSON object a line: Docker json-file, journald, Loki, Vector, Fluent Bit.

Only the fields named here are read. A line that is no such object passes as it is.
Formats: moby `jsonfilelog`, `journald` and `fluentd` drivers, systemd's JSON output, logcli's
`-o jsonl`, Vector's `docker_logs` source, Fluent Bit's `tail` input.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from operator import methodcaller
from typing import Any

import msgspec
from msgspec import Struct

from forensics.envelopes.batch import Batch, Envelope, Layer, Lines
from forensics.envelopes.parts import Joiner
from forensics.envelopes.prefixes import head_lines

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BYTE = 256
#: Characters of a time up to its seconds, of the longest count of ticks, and of the shortest
#: count of nanoseconds.
_SECONDS, _DIGITS, _NANOSECONDS = 19, 20, 16
#: A head of this size was cut from a longer log: its last line may be half of one.
_LONG_HEAD = 32_768
_ENDS = methodcaller("endswith", "\n")


class _Docker(Struct):
    log: str
    time: str = ""
    stream: str = ""


class _Times:
    """Times of records, read only where somebody asks."""

    def __init__(self, records: list[_Docker]) -> None:
        self._records = records

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 - one or a slice, as sequences do
        if isinstance(index, slice):
            return _Times(self._records[index])
        return self._records[index].time or None


class DockerJsonLayer:
    """`*-json.log`: a record whose text does not end in a newline is a part of a line."""

    def __init__(self) -> None:
        self._decoder = msgspec.json.Decoder(_Docker)
        self._joiner = Joiner()
        #: Whether a line has begun and not ended.
        self.waiting = False

    def feed(self, batch: Batch) -> Batch:
        """Take lines and return the text of their records."""
        if not self.waiting:
            whole = self._whole(batch)
            if whole is not None:
                return whole
        return self._one_by_one(batch)

    def _whole(self, batch: Batch) -> Batch | None:
        """Decode all at once; None where a record is damaged or holds not just one line."""
        try:
            records = self._decoder.decode_lines(batch.text)
        except (msgspec.MsgspecError, UnicodeError):
            return None
        logs = [record.log for record in records]
        text = "".join(logs)
        count = len(records)
        if count != len(batch.numbers) or text.count("\n") != count:
            return None
        if not all(map(_ENDS, logs)):
            return None
        return Batch(text.encode("utf-8", "replace"), batch.numbers, _Times(records))  # type: ignore[arg-type]

    def _one_by_one(self, batch: Batch) -> Batch:
        out = Lines()
        held = False
        for line, number in zip(batch.lines(), batch.numbers, strict=False):
            record = _docker(self._decoder, line)
            if record is None:
                if line.strip(b"\0\r \t"):
                    out.add(line, number)
                continue
            held = not record.log.endswith("\n")
            text = record.log.removesuffix("\n").encode("utf-8", "replace")
            at = record.time or None
            self._joiner.add(out, record.stream, text, number, at, last=not held)
        self.waiting = self._joiner.waiting
        return out.batch()

    def finish(self) -> Batch:
        """Return a line that the program had not finished when it ended."""
        out = Lines()
        self._joiner.rest(out)
        return out.batch(ended=False)


def _docker(decoder: msgspec.json.Decoder[_Docker], line: bytes) -> _Docker | None:
    try:
        return decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeError):
        found = loose(line)
        if found is None or not isinstance(found.get("log"), str):
            return None
        return _Docker(found["log"], _text(found.get("time")), _text(found.get("stream")))


def loose(line: bytes) -> dict[str, Any] | None:
    """Read an object that a strict reader refuses (bytes that are no UTF-8, lone surrogates)."""
    try:
        found = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


class JournalJsonLayer:
    """`journalctl -o json`: MESSAGE is text, or bytes as an array of numbers, or both in a list."""

    def __init__(self) -> None:
        self._joiner = Joiner()

    def feed(self, batch: Batch) -> Batch:
        """Take lines and return the messages of their entries."""
        out = Lines()
        for line, number in zip(batch.lines(), batch.numbers, strict=False):
            entry = _object(line)
            if entry is None:
                if line.strip():
                    out.add(line, number)
                continue
            self._entry(out, entry, number)
        return out.batch()

    def _entry(self, out: Lines, entry: dict[str, Any], number: int) -> None:
        at = journal_time(
            _text(entry.get("SYSLOG_TIMESTAMP")), _text(entry.get("__REALTIME_TIMESTAMP"))
        )
        service = _text(entry.get("CONTAINER_NAME")) or None
        key = _text(entry.get("CONTAINER_PARTIAL_ID")) or (service, _text(entry.get("PRIORITY")))
        # The last part has the id and no mark that it is a part.
        last = _text(entry.get("CONTAINER_PARTIAL_MESSAGE")).lower() != "true"
        last = last or _text(entry.get("CONTAINER_PARTIAL_LAST")).lower() == "true"
        messages = message_bytes(entry.get("MESSAGE"))
        if not messages:
            return
        for message in messages:
            self._joiner.add(out, key, message, number, at, service, last=last)

    def finish(self) -> Batch:
        """Return a line whose last part never came."""
        out = Lines()
        self._joiner.rest(out)
        return out.batch(ended=False)


def message_bytes(value: object) -> list[bytes]:
    """Return the messages in a MESSAGE field: text, a list of byte numbers, or several of both."""
    if isinstance(value, str):
        return [value.encode("utf-8", "surrogatepass")]
    if not isinstance(value, list) or not value:
        return []
    if all(isinstance(one, int) and 0 <= one < _BYTE for one in value):
        return [bytes(value)]
    return [message for one in value if not isinstance(one, int) for message in message_bytes(one)]


def journal_time(stamp: str, microseconds: str) -> str | None:
    """Return the time of a journal entry: that of the container's runtime where there is one."""
    if len(stamp) > _SECONDS and stamp[4] == "-" and stamp[10] == "T":
        return stamp
    return epoch_time(microseconds, 1_000_000)


def epoch_time(value: object, per_second: int) -> str | None:
    """Return a time as RFC 3339 in UTC.

    Args:
        value: Ticks since 1970, a number or decimal text.
        per_second: How many of them are a second.
    """
    if isinstance(value, str):
        if not value.isdecimal() or len(value) > _DIGITS:
            return None
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        moment = _EPOCH + timedelta(microseconds=value * (1_000_000 / per_second))
    except (OverflowError, ValueError):
        return None
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


class ShipperLayer:
    """Loki, Vector, Fluent Bit and fluentd: the line under one of a few names, with labels."""

    def __init__(self) -> None:
        self._joiner = Joiner()

    def feed(self, batch: Batch) -> Batch:
        """Take lines and return the texts of their records."""
        out = Lines()
        for line, number in zip(batch.lines(), batch.numbers, strict=False):
            record = _object(line)
            found = _lines_of(record) if record is not None else None
            if record is None or not found:
                if line.strip():
                    out.add(line, number)
                continue
            service = _service(record)
            key = (record.get("partial_id"), record.get("stream"), record.get("source"), service)
            last = not _is_part(record)
            for text, at in found:
                piece = text.removesuffix("\n").encode("utf-8", "surrogatepass")
                self._joiner.add(out, str(key), piece, number, at, service, last=last)
        return out.batch()

    def finish(self) -> Batch:
        """Return a line whose last part never came."""
        out = Lines()
        self._joiner.rest(out)
        return out.batch(ended=False)


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        found = msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return loose(line)
    return found if isinstance(found, dict) else None


def _lines_of(record: dict[str, Any]) -> list[tuple[str, str | None]]:
    """Return the lines of a record with their times."""
    values = record.get("values")
    if isinstance(values, list):
        return [
            (pair[1], _time(pair[0]))
            for pair in values
            if isinstance(pair, list) and len(pair) > 1 and isinstance(pair[1], str)
        ]
    at = next(
        (t for k in ("timestamp", "time", "@timestamp", "date") if (t := _time(record.get(k)))),
        None,
    )
    text = next(
        (record[k] for k in ("line", "log", "message") if isinstance(record.get(k), str)), None
    )
    return [] if text is None else [(text, at)]


def _time(value: object) -> str | None:
    if isinstance(value, str):
        if len(value) >= _SECONDS and value[4:5] == "-" and value[10:11] in {"T", " "}:
            return value.replace(" ", "T", 1)
        return (
            epoch_time(value, 1_000_000_000) if len(value) >= _NANOSECONDS else epoch_time(value, 1)
        )
    return epoch_time(value, 1)


def _service(record: dict[str, Any]) -> str | None:
    """Return the container that a record is from."""
    for place in (record, record.get("labels"), record.get("stream"), record.get("kubernetes")):
        if not isinstance(place, dict):
            continue
        pod = place.get("pod_name") or place.get("pod")
        name = place.get("container_name") or place.get("container")
        words = [w.lstrip("/") for w in (pod, name) if isinstance(w, str) and w]
        if words:
            return "/".join(words)
    return None


def _is_part(record: dict[str, Any]) -> bool:
    if str(record.get("partial_last", "")).lower() == "true":
        return False
    if str(record.get("partial_message", "")).lower() == "true" or record.get("_partial") is True:
        return True
    return record.get("logtag") == "P"


# --- recognising them ----------------------------------------------------------------------------


def _objects(head: bytes) -> list[dict[str, Any]]:
    """Return the objects in the first lines, none where they are something else."""
    lines = head_lines(head)
    if not head.endswith(b"\n") and len(lines) > 1 and len(head) >= _LONG_HEAD:
        lines = lines[:-1]
    found = [_object(line) for line in lines if line.lstrip().startswith(b"{")]
    objects = [one for one in found if one is not None]
    return objects if objects and len(objects) * 10 >= len(lines) * 9 else []


def _is_docker(head: bytes) -> bool:
    objects = _objects(head)
    if not objects or not all(
        isinstance(o.get("log"), str) and isinstance(o.get("time"), str) for o in objects
    ):
        return False
    if any(not o.keys() <= {"log", "time", "stream", "attrs"} for o in objects):
        return False
    # Shippers that write the same names leave the newline out of every line.
    return any(o["log"].endswith("\n") for o in objects) or len(objects) == 1


def _is_journal(head: bytes) -> bool:
    objects = _objects(head)
    return bool(objects) and all("MESSAGE" in o or "__REALTIME_TIMESTAMP" in o for o in objects)


def _is_shipper(head: bytes) -> bool:
    objects = _objects(head)
    return bool(objects) and all(
        "levelname" not in o
        and _lines_of(o)
        and (
            "values" in o
            or any(k in o for k in ("timestamp", "time", "@timestamp", "date", "container_id"))
        )
        for o in objects
    )


def _docker_layer(_: bytes) -> Layer:
    return DockerJsonLayer()


JSON_LINES: tuple[Envelope, ...] = (
    Envelope("docker-json", _is_docker, _docker_layer),
    Envelope("journal-json", _is_journal, lambda _: JournalJsonLayer()),
    Envelope("json-lines", _is_shipper, lambda _: ShipperLayer()),
)
