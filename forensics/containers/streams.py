"""What an engine tells piece by piece: events, and the logs of containers."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Self

from urllib3.exceptions import HTTPError

#: As much as a socket holds: more would be asked of the memory for each of a thousand reads.
_PIECE = 1 << 16
#: In a flood each line comes by itself. To wait for some more of them costs a third of the work
#: (of the engine, too, which need not wake anybody for each), and is far less than a socket holds.
_FLOOD_S, _NAP_S, _FEW = 0.002, 0.0005, 1 << 14
#: The line end behind the bytes of a chunk.
_CHUNK_END = 2
_HEAD = 8
_SIZE = struct.Struct(">I")
_STREAMS = {0: "stdout", 1: "stdout", 2: "stderr"}


class _Stream:
    """A response that is read piece by piece, and that another thread may close."""

    def __init__(self, response: Any) -> None:  # noqa: ANN401 - a response of requests
        self._response = response
        found = response.raw._fp  # noqa: SLF001 - http.client's, the only one with read1
        # Each line of a log is a chunk of its own: http.client would read them one by one.
        self._chunks = _Chunked() if found.chunked else None
        self._file = found.fp if found.chunked else found
        # The connection itself has let go of its socket where the answer is all that it is for.
        own = getattr(getattr(found.fp, "raw", None), "_sock", None)
        self._socket = own or getattr(getattr(response.raw, "_connection", None), "sock", None)
        self.closed = self._flood = False
        if self._socket is not None:
            self._socket.settimeout(None)  # a container may be silent for days

    def _read(self) -> bytes:
        """Return the next bytes; none at the end, however it came."""
        try:
            while not self.closed and not (self._chunks is not None and self._chunks.ended):
                data = self._came()
                if self._chunks is None or not data:
                    return data
                data = self._chunks.feed(data)
                if data or self._chunks.ended:
                    return data
        except (HTTPError, OSError, ValueError, AttributeError):
            pass  # it was closed, or the engine went away
        except Exception as error:  # http.client's own have no public base but this
            if type(error).__module__ != "http.client":
                raise
        return b""

    def _came(self) -> bytes:
        if self._flood:
            time.sleep(_NAP_S)
        before = time.monotonic()
        data: bytes = self._file.read1(_PIECE)
        self._flood = len(data) < _FEW and time.monotonic() - before < _FLOOD_S
        return data

    def close(self) -> None:
        """End the stream; whoever waits for it goes on at once."""
        self.closed = True
        if isinstance(self._socket, socket.socket):
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        with suppress(HTTPError, OSError, ValueError):
            self._response.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Chunked:
    """Takes the chunks of a body apart (RFC 9112, 7.1: size, line end, bytes, line end)."""

    def __init__(self) -> None:
        self._rest = b""
        self._left = 0
        self.ended = False

    def feed(self, data: bytes) -> bytes:
        """Take what came, cut anywhere; return what it holds of the body.

        Raises:
            ValueError: It is no chunked body.
        """
        data = self._rest + data
        out, place, size, left = [], 0, len(data), self._left
        while place < size:
            if left > _CHUNK_END:  # in the middle of a chunk and the line end behind it
                piece = data[place : place + left - _CHUNK_END]
                out.append(piece)
                place += len(piece)
                left -= len(piece)
                if left > _CHUNK_END:
                    break
            if left:
                skip = min(left, size - place)
                place += skip
                left -= skip
                continue
            end = data.find(b"\r\n", place)
            if end < 0:
                break
            count = int(data[place:end].partition(b";")[0], 16)
            place = end + 2
            if count == 0:
                self.ended = True
                break
            left = count + _CHUNK_END
        self._rest, self._left = data[place:], left
        return b"".join(out)


class Events(_Stream):
    """Events of containers, as the API tells them; ends silently when the engine goes away."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        rest = b""
        with self:
            while data := self._read():
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    with suppress(ValueError, RecursionError):
                        event = json.loads(line)
                        if isinstance(event, dict):
                            yield event


class Chunks(_Stream):
    """Pieces of a log: (stream, bytes). A piece is a whole entry of the log, except of a terminal.

    Args:
        response: The engine's answer.
        tty: Whether the container has a terminal.
    """

    def __init__(self, response: Any, *, tty: bool) -> None:  # noqa: ANN401 - as above
        super().__init__(response)
        self._tty = tty

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        rest = b""
        for data in self.blocks():
            if self._tty:
                yield "stdout", data
            else:
                found, rest = _frames(rest + data)
                yield from found

    def blocks(self) -> Iterator[bytes]:
        """Yield the bytes of the answer, cut anywhere: for whoever follows a flood."""
        with self:
            while data := self._read():
                yield data


def _frames(data: bytes) -> tuple[list[tuple[str, bytes]], bytes]:
    """Cut bytes into frames (stream, three zeros, size in four bytes, text); return the rest."""
    found: list[tuple[str, bytes]] = []
    add, size_of, name_of = found.append, _SIZE.unpack_from, _STREAMS.get
    place, size = 0, len(data)
    while place + _HEAD <= size:
        end = place + _HEAD + size_of(data, place + 4)[0]
        if end > size:
            break
        add((name_of(data[place], "stdout"), data[place + _HEAD : end]))
        place = end
    return found, data[place:]
