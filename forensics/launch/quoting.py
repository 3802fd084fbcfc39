"""Words in and out of the quoting of shells, systemd and YAML.

Each function is the inverse of what the reading program does: any value survives being written
and read again (tests prove it with arbitrary text). None of them can write a NUL.
"""

from __future__ import annotations

import re
from collections.abc import Callable

Encode = Callable[[str], str]

_SAFE = re.compile(r"[A-Za-z0-9_@%+=:,./-]+\Z")
_SYSTEMD_SAFE = re.compile(r"[A-Za-z0-9_@+=:,./-]+\Z")
#: Plain YAML scalars that mean text in every version of YAML.
_YAML_PLAIN = re.compile(r"[A-Za-z_/.][A-Za-z0-9_/.@+=-]*(?::[A-Za-z0-9_/.@+=-]+)*\Z")
_YAML_OPTION = re.compile(r"--[A-Za-z][A-Za-z0-9_.-]*(?:=[A-Za-z0-9_/.:@+-]*[A-Za-z0-9_/.@+-])?\Z")
_YAML_WORDS = {"true", "false", "yes", "no", "on", "off", "null", "none", "y", "n", ".inf", ".nan"}
_YAML_NUMBER = re.compile(r"[-+.0-9][0-9_.:eExXa-fA-F+-]*\Z")
_BYTE, _PLANE = 0x100, 0x10000
_CONTROL = re.compile("[\x00-\x1f\x7f\x85\u2028\u2029]")
_REFERENCE = re.compile(r"\$[A-Za-z_]\w*\Z")


def shell(value: str) -> str:
    """Write one word for a POSIX shell, plain where that is safe."""
    if _SAFE.match(value):
        return value
    return "'" + value.replace("'", "'\\''") + "'"


def within_double(text: str) -> str:
    """Write text inside double quotes of a shell."""
    return re.sub(r'([\\"$`])', r"\\\1", text)


def within_single(text: str) -> str:
    """Write text inside single quotes of a shell."""
    return text.replace("'", "'\\''")


def systemd(value: str) -> str:
    """Write one word of an `ExecStart=` line: C escapes in double quotes, `%` and `$` doubled."""
    if _SYSTEMD_SAFE.match(value):
        return value
    text = value.replace("%", "%%").replace("$", "$$")
    if "'" not in text and "\\" not in text and not _control(text):
        return f"'{text}'"
    return '"' + "".join(_c_escape(char) for char in text) + '"'


def _control(text: str) -> bool:
    return _CONTROL.search(text) is not None


def _c_escape(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    if not _CONTROL.match(char):
        return char
    return f"\\x{ord(char):02x}" if char.isascii() else f"\\u{ord(char):04x}"


def yaml_scalar(value: str, style: str | None = None) -> str:
    """Write one YAML scalar that is text in every reader.

    Args:
        value: The text.
        style: `'` or `"` as its neighbours are quoted; None: plain where that is safe.
    """
    if style is None and _plain_yaml(value):
        return value
    single = not _control(value) and value.isprintable()
    if style != '"' and single:
        return "'" + value.replace("'", "''") + "'"
    if style == '"' and single and "\\" not in value and '"' not in value:
        return f'"{value}"'
    if single:
        return "'" + value.replace("'", "''") + "'"
    return '"' + "".join(_yaml_escape(char) for char in value) + '"'


def _yaml_escape(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    if char.isprintable():
        return char
    code = ord(char)
    return (
        f"\\x{code:02x}"
        if code < _BYTE
        else f"\\u{code:04x}"
        if code < _PLANE
        else f"\\U{code:08x}"
    )


def _plain_yaml(value: str) -> bool:
    if value.lower() in _YAML_WORDS or _YAML_NUMBER.match(value):
        return False
    return bool(_YAML_PLAIN.match(value) or _YAML_OPTION.match(value))


def compose_text(value: str) -> str:
    """Write text of a compose file: a dollar sign would begin a variable."""
    return value.replace("$", "$$")


def is_reference(value: str) -> bool:
    """Say whether a value is nothing but a shell variable (`$HF_TOKEN`)."""
    return _REFERENCE.match(value) is not None
