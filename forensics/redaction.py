"""Secrets out of everything that is shown or written.

Values keep their length class no longer than needed to recognise that something stood there:
a secret becomes `***`. Known token shapes are masked anywhere, and the values of arguments,
variables and headers whose names say that they are secret.
"""

from __future__ import annotations

import re
from typing import Any

MASK = "***"
_TOKENS = re.compile(
    r"\b(?:"
    r"hf_[A-Za-z0-9]{20,}|sk-(?:[A-Za-z]+-)?[A-Za-z0-9_-]{20,}|nvapi-[A-Za-z0-9_-]{20,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,}"
    r"|glpat-[A-Za-z0-9_-]{20,}|xox[abprs]-[A-Za-z0-9-]{10,}|AIza[A-Za-z0-9_-]{35}"
    r"|eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{5,}"
    r")"
)
_NAME = (
    r"(?:[\w.-]{0,40}?(?:api[_-]?key|secret|passw(?:or)?d|credential|private[_-]?key|access[_-]?key"
    r"|auth[_-]?token|(?<![a-z])token(?!iz|s\b|_id|_len|s_)|hf_token)[\w.-]{0,10})"
)
_PAIR = re.compile(
    rf"(?P<name>(?<![\w-])(?:--)?{_NAME})(?P<sep>['\"]?\s*(?:=|:\s?|\s(?=[^\s-]))\s*)"
    r"(?P<quote>['\"]?)(?P<value>[^\s'\",)}\]]{6,})(?P=quote)",
    re.IGNORECASE,
)
_BEARER = re.compile(r"(?P<head>\b(?:Bearer|Basic)\s+)[A-Za-z0-9._~+/=-]{12,}")
_URL = re.compile(r"(?P<head>\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@]{1,80}:)[^\s/@]{1,200}(?=@)")
_SIGNED = re.compile(
    r"(?P<head>[?&](?:sig|signature|x-amz-(?:signature|credential|security-token)|access_token"
    r"|api[_-]?key|x-goog-signature)=)[^&\s'\"]{6,}",
    re.IGNORECASE,
)
_KEY = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)", re.DOTALL
)
_SECRET_NAME = re.compile(rf"^(?:--)?{_NAME}$", re.IGNORECASE)
_HINTS = re.compile(
    r"hf_|sk-|nvapi|AKIA|ASIA|gh[pousr]_|github_pat|glpat|xox|AIza|eyJ|key|secret|passw|credential"
    r"|token|bearer|basic|://|BEGIN|sig",
    re.IGNORECASE,
)


def text(value: str) -> str:
    """Return a text without the secrets it may hold."""
    if not _HINTS.search(value):
        return value
    value = _KEY.sub(MASK, value)
    value = _TOKENS.sub(MASK, value)
    value = _BEARER.sub(rf"\g<head>{MASK}", value)
    value = _URL.sub(rf"\g<head>{MASK}", value)
    value = _SIGNED.sub(rf"\g<head>{MASK}", value)
    return _PAIR.sub(_pair, value)


def _pair(found: re.Match[str]) -> str:
    value = found["value"]
    # Numbers, booleans and words of prose are no secrets (`max_tokens: 512`, `token: invalid`).
    harmless = value.lower() in {"none", "null", "true", "false", "invalid", "missing"}
    if harmless or value.replace(".", "").isdecimal() or value.startswith(("{", "[", "<", MASK)):
        return found[0]
    if ":" in found["sep"] and "'" not in found[0] and '"' not in found[0] and value.isalpha():
        return found[0]
    if found["sep"].isspace() and not found["name"].startswith("--"):
        return found[0]
    return f"{found['name']}{found['sep']}{found['quote']}{MASK}{found['quote']}"


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
