"""Secrets out of the bytes of a log before they are written, at the speed of a scan.

One pass of the finder names the few lines in which a secret may stand; only those are looked at
closely (`redaction.masked`). No byte changes its place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from forensics import redaction
from forensics.hyperscan_finder import HyperscanFinder, finder
from forensics.patterns import PlainFinder

#: Relaxed twins of what `redaction` looks for: each line that it would change matches one of them.
#: Counts are exact, not open: every further match would cost a call.
_SIGNS = (
    "hf_[A-Za-z0-9]{20}",
    "sk-[A-Za-z0-9_-]{20}",
    "nvapi-[A-Za-z0-9_-]{20}",
    "A[KS]IA[A-Z0-9]{16}",
    "gh[pousr]_[A-Za-z0-9]{30}",
    "github_pat_[A-Za-z0-9_]{30}",
    "glpat-[A-Za-z0-9_-]{20}",
    "xox[abprs]-[A-Za-z0-9-]{10}",
    "AIza[A-Za-z0-9_-]{35}",
    "eyJ[A-Za-z0-9_-]{10}",
    "PRIVATE KEY-----",
    "(?i)(?:bearer|basic)[ \\t]{1,8}[A-Za-z0-9._~+/=-]{12}",
    "://[^\\s/:@]{1,80}:[^\\s/@]{1,200}@",
    "(?i)(?:[?&]|u0026)(?:sig|signature|x-amz-[a-z-]{9,14}|access_token|api[_-]?key|x-goog-signature)=",
    (
        r"(?i)(?:api[_-]?key|secret|passwd|password|credential|private[_-]?key|access[_-]?key"
        r"|auth[_-]?token|hf_token)[a-z0-9_.-]{0,10}[\\\x22\x27]{0,8}[ \t]{0,4}[=:]"
    ),
    (
        r"(?i)token(?:[a-hj-rt-z0-9_.-][a-z0-9_.-]{0,9})?[\\\x22\x27]{0,8}[ \t]{0,4}[=:]"
        r"[ \t]{0,4}[^\s]{6}"
    ),
    (
        r"(?i)--[a-z0-9_.-]{0,40}(?:key|secret|passwd|password|credential|token)[a-z0-9_.-]{0,10}"
        r"[\\\x22\x27]{0,8},?[ \t]"
    ),
)
_KEY_BEGINS = re.compile(rb"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----")
_KEY_ENDS = re.compile(rb"-----END [A-Z ]{0,40}PRIVATE KEY-----")
#: A line of a private key: in an envelope too only its Base64 is so long without a break.
_BASE64 = re.compile(rb"[A-Za-z0-9+/=]{16,}")
#: Line ends stay: what is cut into lines elsewhere stays so.
_STAR = re.compile(rb"[^\n]")
_KEY_SIGN = b"PRIVATE KEY-----"
_MAX_KEY_LINES = 200
#: A value this short would be found in innocent places.
_SHORTEST = 8


@cache
def _finder() -> HyperscanFinder | PlainFinder:
    return finder(_SIGNS)


class Masker:
    """Masks one log as it comes; a private key may begin in one piece and end in another.

    Args:
        known: Values that are secret in this log, whatever they look like (those of secret
            variables, say); very short ones are left out.
    """

    def __init__(self, known: Iterable[str] = ()) -> None:
        found = _finder()
        self._finder = found.clone() if isinstance(found, HyperscanFinder) else found
        self._known = sorted(
            {v.encode() for v in known if len(v) >= _SHORTEST}, key=len, reverse=True
        )
        self._key_lines = 0

    def mask(self, data: bytes) -> bytes:
        """Return the same number of bytes without the secrets in them.

        Args:
            data: Whole lines, as far as there are any; a secret that is cut in two is not found.
        """
        for secret in self._known:
            if secret in data:
                data = data.replace(secret, _STAR.sub(b"*", secret))
        begin = 0 if self._key_lines else data.find(_KEY_SIGN)
        if begin >= 0:
            data = self._key(data, data.rfind(b"\n", 0, begin) + 1)
        out: bytearray | None = None
        done = 0
        for end, _ in self._finder.candidates(data):
            if end <= done:
                continue
            out = out if out is not None else bytearray(data)
            start = data.rfind(b"\n", 0, end - 1) + 1
            stop = data.find(b"\n", end - 1)
            done = len(data) if stop < 0 else stop
            out[start:done] = redaction.masked(data[start:done])
        return data if out is None else bytes(out)

    def _key(self, data: bytes, start: int) -> bytes:
        """Mask the lines of a private key from a place on, until it ends."""
        out = bytearray(data)
        place = start
        while place < len(data):
            end = data.find(b"\n", place) + 1 or len(data)
            line = data[place:end]
            if _KEY_BEGINS.search(line):
                self._key_lines = _MAX_KEY_LINES
            elif self._key_lines:
                self._key_lines -= 1
                out[place:end] = _BASE64.sub(lambda m: b"*" * len(m[0]), line)
            if _KEY_ENDS.search(line):
                self._key_lines = 0
            place = end
        return bytes(out)
