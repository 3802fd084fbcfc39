r"""Records of Docker's json-file driver that nobody has to read: kept as they are on disk.

Where no pattern can match, unwrapping a record would only cost time. Such lines are handed on
wrapped, and unwrapped where a neighbour turns out to need them.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from forensics.envelopes.batch import plain
from forensics.envelopes.jsonlines import DockerJsonLayer
from forensics.envelopes.text import Block, clean

#: The end of a record that holds the end of a line.
_END = b'\\n","stream":"std'


class Quiet(Struct, frozen=True):
    """Whole records, each with one whole line of the program, as they are on disk.

    Attributes:
        raw: Their bytes.
        first_line: Physical number of the first of them.
        lines: How many they are.
    """

    raw: bytes
    first_line: int
    lines: int

    @property
    def size(self) -> int:
        """Return how many bytes they take on disk."""
        return len(self.raw)

    def block(self) -> Block:
        """Unwrap them."""
        batch = DockerJsonLayer().feed(plain(self.raw, self.first_line))
        numbers = None if isinstance(batch.numbers, range) else batch.numbers
        block = clean(batch.text, self.first_line, numbers, batch.times)
        return replace(block, wrapping=max(0, self.size - len(block.text)))


def even_lines(raw: bytes) -> int | None:
    """Return how many records there are, None where not every one of them ends a line.

    Parts of lines, torn records and foreign lines are told so. One case looks the same and is
    not: a part whose text ends in a backslash and an `n`.
    """
    lines = raw.count(b"\n")
    return lines if raw.endswith(b"\n") and raw.count(_END) == lines else None


#: That case, as a pattern; and terminal codes, which may stand inside of any word.
UNEVEN = r'\\\\n","stream":"std'
CODES = r"\\u001[bB]"
