"""Comparison of versions and image references.

Versions are PEP 440 as far as they are; development builds such as `0.19.2rc1.dev134+gfe9c3d6c5`
compare as what they come before. Image references are Docker's: `[registry/]name[:tag][@digest]`.
"""

from __future__ import annotations

import functools
import re
from typing import Any

_LOOSE = re.compile(r"v?(?P<core>\d+(?:\.\d+){0,3})(?P<rest>.*)$")


@functools.cache
def parse(text: str) -> Any:  # noqa: ANN401 - packaging.version.Version, imported late
    """Return the version a text holds, None where it holds none."""
    from packaging.version import InvalidVersion, Version

    try:
        return Version(text)
    except InvalidVersion:
        loose = _LOOSE.match(text)
        return Version(loose["core"]) if loose else None


def satisfies(version: str, ranges: str) -> bool | None:
    """Say whether a version lies in a PEP 440 range; None where either cannot be read.

    A development build or release candidate of X counts as X: people ask about features, and a
    build of the branch that became X has them more often than not.
    """
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    parsed = parse(version)
    if parsed is None:
        return None
    try:
        return SpecifierSet(ranges).contains(parsed.base_version, prereleases=True)
    except InvalidSpecifier:
        return None


def capability_in(value: str, wanted: str) -> bool | None:
    """Say whether a compute capability (`12.1`) equals or lies in what is wanted."""
    if wanted[:1] in "<>=!~":
        return satisfies(value, wanted)
    if wanted.endswith(".*"):
        return value.split(".", maxsplit=1)[0] == wanted[:-2]
    return value == wanted


def split_image(reference: str) -> tuple[str, str | None, str | None]:
    """Return name, tag and digest of an image reference."""
    name, _, digest = reference.partition("@")
    head, slash, last = name.rpartition("/")
    last, colon, tag = last.partition(":")
    return f"{head}{slash}{last}", tag if colon else None, digest or None


#: Tags that are built again under the same name.
_MOVING = re.compile(
    r"(?:^|[-_.])(?:latest|nightly|main|master|dev|edge|stable|rolling)(?:$|[-_.])"
)
_PINNED_NIGHTLY = re.compile(r"nightly[-_.](?:[0-9a-f]{12,40}|\d{8})")


def is_moving(reference: str) -> bool:
    """Say whether an image reference can name another image tomorrow by its maker's habit."""
    _, tag, digest = split_image(reference)
    if digest:
        return False
    if tag is None:
        return True
    return _MOVING.search(tag) is not None and _PINNED_NIGHTLY.search(tag) is None
