"""The cache only saves time: an entry that is damaged or foreign is made anew, silently."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import msgspec
import pytest

from forensics import analysis, cache
from forensics.hyperscan_finder import HyperscanFinder
from tests.support import rule_text

pytest.importorskip("hyperscan")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("FORENSICS_CACHE", str(folder))
    return folder


def test_what_is_written_is_read_again(home: Path) -> None:
    cache.write("kind-1", b"body")

    assert cache.read("kind-1") == b"body"
    assert [p.name for p in home.iterdir()] == ["kind-1"]
    assert home.stat().st_mode & 0o777 == 0o700


def test_missing_entry_is_none() -> None:
    assert cache.read("kind-1") is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data[:31],
        lambda _: b"",
        lambda data: data[:40] + b"X" + data[41:],
        lambda data: b"\0" * len(data),
        lambda data: data + b"more",
    ],
    ids=["cut", "short", "empty", "altered", "zeros", "longer"],
)
def test_damaged_entry_is_none(home: Path, damage: object) -> None:
    cache.write("kind-1", b"body" * 10)
    path = home / "kind-1"
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]

    assert cache.read("kind-1") is None


@pytest.mark.skipif(
    not hasattr(os, "getuid") or os.getuid() != 0, reason="only root gives files away"
)
def test_entry_of_another_user_is_none(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a shared folder somebody else could put anything; root could anyway."""
    cache.write("kind-1", b"body")
    mine = (home / "kind-1").stat()
    monkeypatch.setattr("os.fstat", lambda _: os.stat_result((*mine[:4], 12_345, *mine[5:])))

    assert cache.read("kind-1") is None


def test_only_a_few_entries_of_a_kind_stay(home: Path) -> None:
    for i in range(12):
        cache.write(f"kind-{i}", b"x")
        os.utime(home / f"kind-{i}", (time.time() - 60 + i,) * 2)
    cache.write("other-1", b"x")

    kept = sorted(p.name for p in home.iterdir())

    assert len([n for n in kept if n.startswith("kind-")]) <= 8
    assert "kind-11" in kept
    assert "other-1" in kept


def test_cache_that_cannot_be_written_costs_only_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("FORENSICS_CACHE", str(tmp_path / "file" / "cache"))

    cache.write("kind-1", b"body")

    assert cache.read("kind-1") is None


def test_database_comes_from_the_cache_the_second_time(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = HyperscanFinder(("needle in the hay", r"x\d+y"))
    monkeypatch.setattr(
        "forensics.hyperscan_finder.compile_database", lambda *_: pytest.fail("compiled again")
    )

    second = HyperscanFinder(("needle in the hay", r"x\d+y"))

    assert (
        second.candidates(b"needle in the hay\n") == first.candidates(b"needle in the hay\n") != []
    )
    assert list(home.iterdir())


@pytest.mark.parametrize("body", [b"", b"not a database", b"\0" * 10_000])
def test_database_of_another_make_is_built_anew(home: Path, body: bytes) -> None:
    """The checksum may be right and the content foreign all the same."""
    HyperscanFinder(("needle in the hay",))
    for path in home.iterdir():
        path.write_bytes(hashlib.sha256(body).digest() + body)

    assert HyperscanFinder(("needle in the hay",)).candidates(b"needle in the hay\n")


@pytest.mark.parametrize(
    "body", [b"", b"\xc1", b"not msgpack", msgspec.msgpack.encode({"rules": 3})]
)
def test_rules_of_another_make_are_read_anew(
    home: Path, body: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "rules"
    (folder / "a").mkdir(parents=True)
    (folder / "a" / "one.yaml").write_text(rule_text("a.one", {"line": "x"}))
    monkeypatch.setattr("forensics.ruleset.builtin_folder", lambda: folder)
    first = analysis.load_rules()
    (entry,) = home.iterdir()
    entry.write_bytes(hashlib.sha256(body).digest() + body)

    assert analysis.load_rules() == first
    assert [r.id for r in first.rules] == ["a.one"]


def test_changed_rule_is_not_taken_from_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "rules"
    (folder / "a").mkdir(parents=True)
    monkeypatch.setattr("forensics.ruleset.builtin_folder", lambda: folder)
    titles = []
    for title in ("old", "new", "old"):
        (folder / "a" / "one.yaml").write_text(rule_text("a.one", {"line": "x"}, title=title))
        titles.append(analysis.load_rules().rules[0].title)

    assert titles == ["old", "new", "old"]
