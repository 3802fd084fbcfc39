"""Secrets out of everything that is shown or written.

A secret becomes `***` where text is shown, and as many stars as it had characters where bytes are
kept (`masked`), so that offsets stay true. Known token shapes are masked anywhere, and the values
of arguments, variables and headers whose names say that they are secret; both also inside JSON
strings, where quotes and controls stand escaped, and behind terminal colours.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

MASK = "***"
#: Where a word may begin also after a letter: after an escape of JSON or of a terminal.
_ESCAPED = r"(?<=\\[nrtbf])|(?<=\\u00[0-9a-f]{2})|(?<=[\[;]\dm)|(?<=[\[;]\d\dm)|(?<=\[m)"
_LEFT = rf"(?:(?<![A-Za-z0-9_])|{_ESCAPED})"
_EDGE = rf"(?:(?<![\w-])|{_ESCAPED})"
_TOKENS = re.compile(
    rf"{_LEFT}(?:"
    r"hf_[A-Za-z0-9]{20,}|sk-(?:[A-Za-z]+-)?[A-Za-z0-9_-]{20,}|nvapi-[A-Za-z0-9_-]{20,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,}"
    r"|glpat-[A-Za-z0-9_-]{20,}|xox[abprs]-[A-Za-z0-9-]{10,}|AIza[A-Za-z0-9_-]{35}"
    r"|eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{5,}"
    r")"
)
_NAME = (
    r"(?:[\w.-]{0,40}?(?:api[_-]?key|secret|passw(?:or)?d|credential|private[_-]?key|access[_-]?key"
    rf"|auth[_-]?token|(?:(?<![a-z])|{_ESCAPED})token(?!iz|s\b|_id|_len|s_)|hf_token)[\w.-]{{0,10}})"
)
#: A quote, perhaps escaped as often as JSON inside JSON inside JSON does.
_QUOTE = r"\\{0,7}['\"]"
_PAIR = re.compile(
    rf"(?P<name>{_EDGE}(?:--)?{_NAME})"
    rf"(?P<sep>(?:{_QUOTE})?\s*(?:=|:\s?|(?:{_QUOTE})?,?\s(?=[^\s-]))\s*)"
    rf"(?:(?P<list>\[\s*{_QUOTE}[^\]]{{1,4000}}\])"
    rf"|(?P<quote>(?:{_QUOTE})?)(?P<value>[^\s'\",)}}\]\\]{{6,}}))",
    re.IGNORECASE,
)
_ITEM = re.compile(rf"(?<=['\"])[^'\",\\\s][^'\"\\]{{0,400}}(?={_QUOTE})")
_BEARER = re.compile(r"(?P<head>\b(?:Bearer|Basic)\s+)(?P<secret>[A-Za-z0-9._~+/=-]{12,})")
_URL = re.compile(
    r"(?P<head>[a-zA-Z][a-zA-Z0-9+.-]{1,20}://[^\s/:@]{1,80}:)(?P<secret>[^\s/@]{1,200})(?=@)"
)
_SIGNED = re.compile(
    r"(?P<head>(?:[?&]|\\u0026)(?:sig|signature|x-amz-(?:signature|credential|security-token)"
    r"|access_token|api[_-]?key|x-goog-signature)=)(?P<secret>[^&\s'\"\\]{6,})",
    re.IGNORECASE,
)
_KEY = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)", re.DOTALL
)
_REFERENCE = re.compile(r"\$(?:\{[A-Za-z_]\w{0,80}|[A-Z][A-Z0-9]{0,20}_[A-Z0-9_]{1,60})")
#: What any pair holds: quick to look for.
_CORE = re.compile(
    r"(?:key|secret|passw(?:or)?d|credential|token(?!iz|s\b|_id|_len|s_))[\w.-]{0,10}"
    r"(?:['\"\\]{0,8}\s*[=:]|['\"\\]{0,8},?\s(?=[^\s-]))",
    re.IGNORECASE,
)
#: What of a name stands before that; so much of it at most.
_BEFORE = re.compile(rf"(?s:.*){_EDGE}(?=[\w.-]*\Z)")
_PREFIX = 42
_SECRET_NAME = re.compile(rf"^(?:--)?{_NAME}$", re.IGNORECASE)
_HINTS = re.compile(
    r"hf_|sk-|nvapi|AKIA|ASIA|gh[pousr]_|github_pat|glpat|xox|AIza|eyJ|key|secret|passw|credential"
    r"|token|bearer|basic|://|BEGIN|sig",
    re.IGNORECASE,
)


def text(value: str) -> str:
    """Return a text without the secrets it may hold."""
    return _without(value, lambda _: MASK) if _HINTS.search(value) else value


def masked(line: bytes) -> bytes:
    """Return a line as it is kept: each byte of a secret in it is a star, the rest stays.

    Args:
        line: One line in any envelope, any bytes.

    Returns:
        As many bytes as were given.
    """
    # In Latin-1 each byte is one character, so that nothing is lost and no length changes.
    return _without(line.decode("latin-1"), lambda secret: "*" * len(secret)).encode("latin-1")


def _without(value: str, mask: Callable[[str], str]) -> str:
    value = _KEY.sub(lambda m: mask(m[0]), value)
    value = _TOKENS.sub(lambda m: mask(m[0]), value)
    for pattern in (_BEARER, _URL, _SIGNED):
        value = pattern.sub(lambda m: m["head"] + mask(m["secret"]), value)
    return _pairs(value, mask)


def _pairs(value: str, mask: Callable[[str], str]) -> str:
    """Mask the values of secret names: pairs are looked for only where a name may stand."""
    out, done = [], 0
    for core in _CORE.finditer(value):
        if core.start() < done:
            continue
        before = _BEFORE.search(value, max(done, core.start() - _PREFIX), core.start())
        found = _PAIR.match(value, before.end() if before else core.start())
        if found is not None:
            out += [value[done : found.start()], _pair(found, mask)]
            done = found.end()
    return "".join((*out, value[done:])) if out else value


def _pair(found: re.Match[str], mask: Callable[[str], str]) -> str:
    if found["list"] is not None:
        items = _ITEM.sub(lambda m: mask(m[0]), found["list"])
        return f"{found['name']}{found['sep']}{items}"
    value = found["value"]
    # Numbers, booleans and words of prose are no secrets (`max_tokens: 512`, `token: invalid`).
    harmless = value.lower() in {"none", "null", "true", "false", "invalid", "missing"}
    # `${HF_TOKEN}` says where the value comes from, and nothing of it.
    if _REFERENCE.fullmatch(value) and (value[1] != "{" or found.string[found.end() :][:1] == "}"):
        return found[0]
    if harmless or value.replace(".", "").isdecimal() or value.startswith(("{", "[", "<", MASK)):
        return found[0]
    quoted = "'" in found[0] or '"' in found[0]
    if ":" in found["sep"] and not quoted and value.isalpha():
        return found[0]
    spaced = not ({"=", ":"} & set(found["sep"]))
    if spaced and not found["name"].startswith("--"):
        return found[0]
    return f"{found['name']}{found['sep']}{found['quote']}{mask(value)}"


def is_secret(name: str) -> bool:
    """Say whether a name (of an argument or variable) says that its value is secret."""
    return _SECRET_NAME.match(name) is not None


def value(data: Any, name: str = "") -> Any:  # noqa: ANN401 - JSON data
    """Return JSON data without secrets; keys that name a secret lose their value."""
    if isinstance(data, str):
        return MASK if name and data and is_secret(name) else text(data)
    if isinstance(data, dict):
        return {key: value(item, str(key)) for key, item in data.items()}
    if isinstance(data, list | tuple):
        if name and is_secret(name):
            return [value(item, name) for item in data]
        return (
            _words(list(data))
            if all(isinstance(d, str) for d in data)
            else [value(d) for d in data]
        )
    return data


def _words(words: list[str]) -> list[str]:
    """Redact a command's words: the word after `--api-key` is a secret."""
    found = [text(word) for word in words]
    for i in range(1, len(words)):
        if (
            words[i - 1].startswith("-")
            and is_secret(words[i - 1])
            and not words[i].startswith("-")
        ):
            found[i] = MASK
    return found
