"""One line to one record: the first dialect that knows the prefix understands it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forensics.engines.generic import parse as parse_generic
from forensics.records import understand


def test_engines_prefix_wins_over_the_generic_one() -> None:
    record = understand(b"(EngineCore pid=71) INFO 12-01 02:00:00 [core.py:1] hello", 9)

    assert (record.line, record.process, record.message) == (9, "EngineCore", "hello")


@pytest.mark.parametrize(
    ("line", "message", "level", "kind"),
    [
        ("hello", "hello", None, "raw"),
        ("  indented", "  indented", None, "raw"),
        ("", "", None, "raw"),
        ("[rank0]: ValueError: x", "ValueError: x", None, "raw"),
        ("[default3]: x", "x", None, "raw"),
        ('192.0.2.9:50001 - "GET /health HTTP/1.1" 200', '192.0.2.9:50001 - "GET /health HTTP/1.1" 200', None, "access"),
        ("2026-12-01 02:00:00,123 ERROR: x", "2026-12-01 02:00:00,123 ERROR: x", "ERROR", "raw"),
        ("WARNING: x", "WARNING: x", "WARNING", "raw"),
        ("[ERROR] x", "[ERROR] x", "ERROR", "raw"),
        ("ERRORS happen", "ERRORS happen", None, "raw"),
    ],
)  # fmt: skip
def test_line_of_no_engine_is_still_understood(
    line: str, message: str, level: str | None, kind: str
) -> None:
    record = understand(line.encode(), 1)

    assert (record.message, record.level, record.kind) == (message, level, kind)
    assert record.process is None


@pytest.mark.parametrize(
    ("line", "kind", "message"),
    [
        ("INFO:     Started server process [7]", "log", "Started server process [7]"),
        (
            'INFO:     192.0.2.9:1 - "GET / HTTP/1.1" 200',
            "access",
            '192.0.2.9:1 - "GET / HTTP/1.1" 200',
        ),
        ("[rank1]: INFO:     up", "log", "up"),
    ],
)
def test_web_servers_lines_are_known_without_any_engine(line: str, kind: str, message: str) -> None:
    record = parse_generic(line, 1, None)

    assert (record.kind, record.message, record.level) == (kind, message, "INFO")


def test_bytes_that_are_no_text_are_replaced() -> None:
    assert understand(b"ValueError: \xff\xfe", 1).message == "ValueError: \ufffd\ufffd"


def test_time_of_the_envelope_is_kept() -> None:
    at = "2026-12-01T02:00:00.123456789Z"

    record = understand(b"INFO 12-01 02:00:00 [core.py:1] x", 1, at)

    assert (record.at, record.message, record.text) == (
        at,
        "x",
        "INFO 12-01 02:00:00 [core.py:1] x",
    )


@given(st.binary(max_size=200))
def test_any_bytes_make_a_record(line: bytes) -> None:
    record = understand(line, 3)

    assert record.line == 3
    assert record.text.endswith(record.message) or record.text.startswith("{")
