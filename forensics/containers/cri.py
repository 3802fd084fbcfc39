"""What an engine's API tells of a log, to CRI lines: `<time> stdout|stderr F|P <text>`.

Each piece of the API begins with its time (30 characters) and a blank; a piece without a line feed
at its end is continued by the next one of its stream, which has the same time. Lines over 16 KiB
come in several pieces. Of a container with a terminal there is one stream without frames, in which
a long line has its time again at each seam. Formats: Docker Engine API, ContainerLogs; Kubernetes
CRI log format.
"""

from __future__ import annotations

import re
import struct

#: Docker has nine digits always, Podman up to nine, and an offset instead of the letter.
_STAMP = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d) ")
#: So many bytes of text are one piece of the engine's log at most (its own buffer).
_PIECE = 16 * 1024
_HEAD, _STDERR = 8, 2
_SIZE = struct.Struct(">I")
#: A time of nine digits, and the blank behind it.
_STAMPED = 31
_OUT, _ERR = b"stdout F ", b"stderr F "
_NO_TIME = b"1970-01-01T00:00:00.000000000Z"


class Cri:
    """Makes CRI lines of the engine's answer to a question for one log.

    Args:
        tty: Whether the container has a terminal.
    """

    def __init__(self, *, tty: bool) -> None:
        self._tty = tty
        self._rest = b""
        self._last: dict[str, bytes] = {}

    def feed(self, data: bytes) -> bytes:
        """Return the lines that end in bytes of the API's answer.

        Args:
            data: The next ones, cut anywhere: frames (stream, three zeros, size in four bytes,
                piece), of a terminal its text alone.
        """
        if self._tty:
            return self._terminal(data)
        if self._rest:
            data = self._rest + data
        out: list[bytes] = []
        add, size_of, find = out.append, _SIZE.unpack_from, data.find
        place, size = 0, len(data)
        while (begin := place + _HEAD) <= size:
            end = begin + size_of(data, place + 4)[0]
            if end > size:
                break
            # By far most pieces: nine digits, and one line feed, at the end.
            text = begin + _STAMPED
            if data[text - 2 : text] == b"Z " and find(b"\n", text, end) == end - 1:
                add(data[begin:text])
                add(_ERR if data[place] == _STDERR else _OUT)
                add(data[text:end])
            else:
                stream = "stderr" if data[place] == _STDERR else "stdout"
                add(self._line(stream, data[begin:end]))
            place = end
        self._rest = data[place:]
        return b"".join(out)

    def _line(self, stream: str, data: bytes) -> bytes:
        found = _STAMP.match(data)
        if found is None:
            # An engine that gives no time: the piece keeps that of the one before it.
            stamp, text = self._last.get(stream, _NO_TIME), data
        else:
            stamp, text = data[: found.end() - 1], data[found.end() :]
            self._last[stream] = stamp
        return _cri(stamp, stream.encode(), text)

    def _terminal(self, data: bytes) -> bytes:
        whole, mark, rest = (self._rest + data).rpartition(b"\n")
        self._rest = rest
        return (
            b"".join(self._of_terminal(line + b"\n") for line in whole.split(b"\n"))
            if mark
            else b""
        )

    def _of_terminal(self, line: bytes) -> bytes:
        found = _STAMP.match(line)
        stamp = line[: found.end() - 1] if found else self._last.get("stdout", _NO_TIME)
        self._last["stdout"] = stamp
        head = stamp + b" "
        text = line[found.end() :] if found else line
        # At each seam of a long line its time stands again: exactly there, and exactly that.
        pieces = []
        while len(text) > _PIECE and text[_PIECE : _PIECE + len(head)] == head:
            pieces.append(text[:_PIECE])
            text = text[_PIECE + len(head) :]
        return _cri(stamp, b"stdout", b"".join((*pieces, text)))

    def rest(self) -> bytes:
        """Return what of a terminal's last line has come without its end."""
        text, self._rest = self._rest, b""
        return self._of_terminal(text) if text and self._tty else b""


def _cri(stamp: bytes, stream: bytes, text: bytes) -> bytes:
    """Return a piece as CRI lines: all but one without an end are whole."""
    *whole, rest = text.split(b"\n")
    lines = [b" ".join((stamp, stream, b"F", line)) for line in whole]
    if rest:
        lines.append(b" ".join((stamp, stream, b"P", rest)))
    return b"".join(line + b"\n" for line in lines)
