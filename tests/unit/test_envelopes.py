"""What wraps a line: recognised by the first lines, taken off each, its time kept."""

from __future__ import annotations

import pytest

from forensics.envelopes import detect
from forensics.envelopes.batch import plain
from forensics.envelopes.prefixes import DOCKER_TS, PrefixLayer
from tests.support import diagnose, evidence, failed_start, started, text

AT = "2026-12-01T02:00:00.123456789Z"
PART = 16_384


def names(head: str) -> list[str | None]:
    return [envelope.name for envelope in detect(head.encode())]


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (f"{AT} one\n{AT} two\n", "docker-timestamps"),
        (f"{AT}\n{AT} two\n", "docker-timestamps"),
        ("2026-12-01T02:00:00.123456789+01:00 one\n", "docker-timestamps"),
        (f"\x1b[1m{AT} one\n", "docker-timestamps"),
        ("2026-12-01T02:00:00.1234567Z one\n", "github-actions"),
        ("INFO 12-01 02:00:00 [core.py:1] one\n", None),
        (f"{AT} one\ntwo\nthree\n", None),
        ("2026-12-01T02:00:00Z one\n", None),
        ("2026-12-01T02:00:00.123Z one\n", None),
        ("", None),
        ("\n\n", None),
    ],
)
def test_envelope_is_known_by_its_first_lines(head: str, name: str | None) -> None:
    assert names(head) == ([name] if name else [])


def test_a_tenth_of_the_lines_may_lack_the_time() -> None:
    """Docker's own notices stand between wrapped lines."""
    lines = [f"{AT} line"] * 18 + ["no time"] * 2

    assert names("\n".join(lines)) == ["docker-timestamps"]


def taken_off(line: str) -> tuple[str | None, str]:
    batch = PrefixLayer(DOCKER_TS, again=True).feed(plain(f"{line}\n".encode(), 1))
    assert batch.times is not None
    return batch.times[0], batch.text.decode().removesuffix("\n")


@pytest.mark.parametrize(
    ("line", "at", "body"),
    [
        (f"{AT} hello", AT, "hello"),
        (f"{AT}   indented", AT, "  indented"),
        (f"{AT} ", AT, ""),
        (AT, AT, ""),
        ("no time", None, "no time"),
        (f"x {AT} y", None, f"x {AT} y"),
    ],
)
def test_time_is_taken_off_a_line(line: str, at: str | None, body: str) -> None:
    assert taken_off(line) == (at, body)


@pytest.mark.parametrize("size", [PART - 1, PART, PART + 1, 2 * PART, 2 * PART + 7, 5 * PART])
def test_split_line_is_joined_where_docker_split_it(size: int) -> None:
    """A line of over 16,384 bytes carries the time again before each further part."""
    body = "".join(chr(97 + i % 26) for i in range(size))
    wrapped = f"{AT} " + f"{AT} ".join(body[i : i + PART] for i in range(0, size, PART))

    assert taken_off(wrapped) == (AT, body)


def test_time_that_a_program_printed_itself_is_kept() -> None:
    """Only where a part of exactly 16,384 bytes ends is a repeated time Docker's."""
    body = "x" * 5_000 + f"{AT} " + "y" * 20_000

    assert taken_off(f"{AT} {body}") == (AT, body)


def test_wrapped_log_gives_the_same_root_and_the_times() -> None:
    log = text(failed_start())
    wrapped = text(
        f"2026-12-01T02:00:{i:02}.000000000Z {line}" for i, line in enumerate(log.splitlines())
    )

    plain, found = diagnose(log), diagnose(wrapped)

    assert plain.root_cause is not None
    assert found.root_cause is not None
    assert found.root_cause.line == plain.root_cause.line
    assert found.root_cause.fingerprint == plain.root_cause.fingerprint
    assert found.source.envelope == "docker-timestamps"
    assert [m.at for m in found.timeline] == [
        f"2026-12-01T02:00:{m.line - 1:02}.000000000Z" for m in found.timeline
    ]
    assert found.timeline[-1].seconds == found.timeline[-1].line - found.timeline[0].line


def test_banner_that_docker_split_is_read_whole() -> None:
    """The engine's banner often exceeds 16 KiB; what stands in its second part counts."""
    *before, banner = started()
    banner = banner.replace("speculative_config=None", "x" * 17_000)
    banner += ", speculative_config=SpeculativeConfig(method='mtp', num_spec_tokens=3)"
    lines = [f"{AT} {line}" for line in before]
    lines.append(f"{AT} {banner[:PART]}{AT} {banner[PART:]}")

    found = evidence(text(lines))

    assert found.arguments is not None
    assert found.arguments["speculative_config"] == {"method": "mtp", "num_speculative_tokens": 3}
