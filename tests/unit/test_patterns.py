"""What a pattern means, and that the fast finder never misses a line that it matches."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from forensics import cache
from forensics.hyperscan_finder import HyperscanFinder, searched_for, unsupported
from forensics.patterns import MAX_MESSAGE, PlainFinder, compiled, confirm, relax, required_literal

hyperscan = pytest.importorskip("hyperscan")


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of databases are made here; none is worth keeping."""
    monkeypatch.setattr(cache, "read", lambda _: None)
    monkeypatch.setattr(cache, "write", lambda *_: None)


def reported(patterns: tuple[str, ...], block: bytes) -> set[tuple[int, int]]:
    """(line, pattern) pairs that Hyperscan names."""
    found = HyperscanFinder(patterns).candidates(block)
    return {(block.count(b"\n", 0, offset), index) for offset, index in found}


# ----------------------------------------------------------------------------------------- confirm


@pytest.mark.parametrize(
    ("pattern", "message", "groups"),
    [
        ("error: (?P<what>.+)$", "an error: it broke", {"what": "it broke"}),
        ("^error", "an error", None),
        ("error$", "an error", {}),
        ("(?P<a>x)|(?P<b>y)", "y", {"b": "y"}),
        ("(?i)ERROR", "an error", {}),
        (r"needs (?P<gib>[\d.]+) GiB", "it needs 3.5 GiB", {"gib": "3.5"}),
        ("x", "", None),
    ],
)
def test_pattern_is_searched_in_the_message(
    pattern: str, message: str, groups: dict[str, str] | None
) -> None:
    assert confirm(pattern, message) == groups


@pytest.mark.parametrize(
    ("pattern", "message"),
    [(r"\d", "\u0663"), (r"\w", "\u00e9"), (r"a\sb", "a\u00a0b"), (r"\bx", "\u00e9x")],
)
def test_letters_digits_and_blanks_mean_ascii(pattern: str, message: str) -> None:
    """As they do for the fast finder, which sees bytes."""
    assert (confirm(pattern, message) is not None) == (pattern == r"\bx")


def test_message_is_cut_before_it_is_searched() -> None:
    """A line of megabytes costs no more than one of `MAX_MESSAGE` characters."""
    assert confirm("needle", "x" * (MAX_MESSAGE - 6) + "needle") == {}
    assert confirm("needle", "x" * (MAX_MESSAGE - 5) + "needle") is None


def test_pattern_that_explodes_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules are untrusted: a catastrophic one ends in `TimeoutError`, not in a hang."""
    monkeypatch.setattr("forensics.patterns.MATCH_TIMEOUT_S", 0.05)

    with pytest.raises(TimeoutError):
        confirm(r"(?:a|a|b)*(?:a|aa)*(?:a|aaa)+c$", "a" * 200 + "d")


# ------------------------------------------------------------------------------------------- relax


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        ("^ValueError: x", "(EngineCore pid=7) ValueError: x"),
        (r"^\S{1,3} abcdef", "ab abcdef"),
        (r"é{2,4}xyzabc", "éééxyzabc"),
        (r"[^x]{1,4}abcdef", "ßßabcdef"),
        (r"[^]a]bcdefg", "xbcdefg"),
        (r"[]a^]bcdefg", "^bcdefg"),
        (r"a\{1,2\}bcdefg", "a{1,2}bcdefg"),
        (r"[{1,9}]{4,9}abcdef", "1,9}abcdef"),
        (r"a\^bcdefg", "a^bcdefg"),
        (r"[^-a]bcdefg", "xbcdefg"),
        (r"failed: (?P<why>.+)", "failed: x"),
        (r"failed: (?P<why>.*)", "failed: "),
        (r"failed: (?P<why>\S{2,})", "failed: ab"),
        (r"failed:? ?\d*", "failed"),
        (r"\\d{2,9}", r"\ddddd"),
        (r"(?:(?:abcdef){1,5})$", "abcdefabcdef"),
    ],
)
def test_relaxed_pattern_finds_what_the_pattern_matches(pattern: str, line: str) -> None:
    """One case for each thing that `relax` rewrites."""
    assert compiled(pattern).search(line.removeprefix("(EngineCore pid=7) "))
    assert (1, 0) in reported((pattern,), f"before\n{line}\nafter".encode())


def test_negated_class_does_not_run_over_the_line_end() -> None:
    block = b"abcdef\nuvwxyz"

    assert reported((r"abcdef[^x]{0,9}uvwxyz",), block) == set()


@pytest.mark.parametrize("pattern", [r"(?<=ab)cdefgh", r"(\w)\1cdefgh", r"(?=abc)abcdefgh"])
def test_pattern_that_hyperscan_cannot_take_still_finds_its_lines(pattern: str) -> None:
    line = {"(?<": "abcdefgh", r"(\w": "aacdefgh", "(?=": "abcdefgh"}[pattern[:3]]

    assert (1, 0) in reported((pattern, "other text"), f"x\n{line}\ny".encode())


def test_patterns_that_are_not_linear_time_are_named() -> None:
    assert unsupported([r"(?<=ab)cd", "plain text", r"(\w)\1"]) == [r"(?<=ab)cd", r"(\w)\1"]


ATOMS = st.sampled_from(
    ["a", "b", "c", "é", r"\.", r"\d", r"\S", r"\w", r"\s", ".", "[ab]", "[^a]", "[^]b]", "[a-c1]",
     "[^-b]", r"[\w.-]", "1", " ", ":", r"\{", r"\\", r"\^", "[{]", "-", "'"]
)  # fmt: skip
REPEATS = st.sampled_from(
    ["", "", "", "?", "*", "+", "{2}", "{1,3}", "{0,5}", "{2,70}", "+?", "*?", "{1,}", "{0,4}?"]
)


def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.lists(inner, min_size=1, max_size=4).map("".join),
        st.builds("(?:{}|{})".format, inner, inner),
        st.builds("(?:{}){}".format, inner, st.sampled_from(["?", "", "{1,4}", "{0,9}"])),
        inner.map("({})".format),
    )


BODIES = st.recursive(st.builds("{}{}".format, ATOMS, REPEATS), grown, max_leaves=7)
PATTERNS = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "^", "(?i)"]),
    BODIES,
    st.sampled_from(["", "", r"(?P<last>.+)", r"(?P<last>\S{1,20})", r"(?P<last>[^'b]*)", r"\d+"]),
    st.sampled_from(["", "", "$"]),
)
LINES = st.lists(
    st.text(alphabet="abc1 .:é'-{}\\^\u2588\u0663\u00a0X", max_size=14), min_size=1, max_size=5
)


@settings(max_examples=300, deadline=None)
@given(pattern=PATTERNS, lines=LINES)
@example(pattern="^a{2,70}(?P<last>.+)$", lines=["aaab"])
@example(pattern="(?:a|bcdefgh)(?P<last>.+)", lines=["a1"])
@example(pattern="[^-b]c", lines=["ac"])
def test_fast_finder_names_every_line_that_the_pattern_matches(
    pattern: str, lines: list[str]
) -> None:
    """It may name more: `confirm` decides. It may never name less."""
    try:
        compiled(pattern)
        re.compile(pattern)
    except (re.error, ValueError):
        assume(False)
    block = "\n".join(lines).encode()

    named = reported((pattern,), block)

    matching = {
        (number, 0) for number, line in enumerate(lines) if confirm(pattern, line) is not None
    }
    assert matching <= named, f"{pattern!r} relaxed to {relax(pattern)!r}"


@settings(max_examples=100, deadline=None)
@given(pattern=PATTERNS, lines=LINES, prefix=st.sampled_from(["(EngineCore pid=7) ", "INFO:     "]))
def test_prefix_before_the_message_hides_nothing(
    pattern: str, lines: list[str], prefix: str
) -> None:
    """Patterns see the message, the finder sees the line."""
    try:
        compiled(pattern)
        re.compile(pattern)
    except (re.error, ValueError):
        assume(False)
    block = "\n".join(prefix + line for line in lines).encode()

    named = reported((pattern,), block)

    assert {(n, 0) for n, line in enumerate(lines) if confirm(pattern, line) is not None} <= named


@given(pattern=PATTERNS, line=st.text(alphabet="abc1 .:é'-{}\\^X", max_size=14))
def test_every_match_holds_the_literal_that_is_looked_for(pattern: str, line: str) -> None:
    try:
        found = confirm(pattern, line)
        literal = required_literal(pattern)
    except (re.error, ValueError):
        return
    assume(found is not None)

    assert literal in line


def test_long_literal_is_looked_for_in_place_of_the_pattern() -> None:
    assert searched_for(r"^failed to open (?P<path>\S+)\.$") == re.escape("failed to open ")
    assert searched_for(r"^took \d+ s") == relax(r"^took \d+ s")


# ------------------------------------------------------------------------------------------ finders


def test_plain_finder_offers_every_line_to_every_pattern() -> None:
    assert PlainFinder(("a", "b")).candidates(b"x\ny") == [(1, 0), (1, 1), (3, 0), (3, 1)]


def test_candidates_come_in_the_order_of_the_text() -> None:
    found = HyperscanFinder(("second pattern", "first pattern")).candidates(
        b"first pattern\nsecond pattern\nfirst pattern\n"
    )

    assert [index for _, index in found] == [1, 0, 1]
    assert found == sorted(found)


def test_clone_finds_the_same() -> None:
    finder = HyperscanFinder(("abcdef", r"x\d+y"))
    block = b"abcdef\nx12y\n"

    assert finder.clone().candidates(block) == finder.candidates(block) != []
