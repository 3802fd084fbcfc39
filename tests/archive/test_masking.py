"""No secret is written, and no byte changes its place."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forensics import redaction
from forensics.archive.masking import Masker
from tests.unit.test_redaction import SECRETS

LINES = [text.format(secret) for secret, text in SECRETS]
KEY = "\n".join(
    [
        "-----BEGIN RSA PRIVATE KEY-----",
        *("MIIabc" + "Q" * 58 for _ in range(6)),
        "Zz" * 12 + "==",
        "-----END RSA PRIVATE KEY-----",
    ]
)


def json_line(text: str) -> str:
    said = {"log": text + "\n", "stream": "stdout", "time": "2026-12-01T02:00:00.123456789Z"}
    # As Go writes it: these three are escaped in strings.
    told = json.dumps(said, ensure_ascii=False, separators=(",", ":"))
    return told.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


WRAPS: dict[str, Callable[[str], str]] = {
    "plain": lambda text: text,
    "docker-json": json_line,
    "docker-json of JSON": lambda text: json_line(json.dumps({"message": text})),
    "colour": lambda text: f"\x1b[32m{text}\x1b[0m",
    "docker-json of colour": lambda text: json_line(f"\x1b[1;32m{text}\x1b[0m"),
    "cri": lambda text: f"2026-12-01T02:00:00.123456789Z stdout F {text}",
    "tab": lambda text: json_line(f"x\t{text}"),
}


@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("number", range(len(SECRETS)))
def test_every_secret_is_masked_in_every_envelope(wrap: str, number: int) -> None:
    secret, text = SECRETS[number][0], LINES[number]
    quiet = "INFO 12-01 02:00:00 [loggers.py:1] nothing to see: 12 tokens/s\n" * 3
    data = (quiet + WRAPS[wrap](text) + "\n" + quiet).encode()

    masked = Masker().mask(data)

    assert secret.encode() not in masked
    assert len(masked) == len(data)
    assert masked.startswith(quiet.encode())
    assert masked.endswith(quiet.encode())
    assert masked.count(b"\n") == data.count(b"\n")


#: A private key goes on in the lines below it, which one line alone cannot tell.
ALONE = [line for line in LINES if "PRIVATE KEY" not in line]


@given(st.lists(st.sampled_from(ALONE) | st.text(max_size=60), max_size=12), st.randoms())
def test_the_quick_way_masks_what_the_careful_one_does(
    lines: list[str], chance: random.Random
) -> None:
    chance.shuffle(lines)
    raw = [line.replace("\n", " ").replace("\r", " ").encode() for line in lines]

    masked = Masker().mask(b"\n".join(raw))

    assert masked.split(b"\n") == [redaction.masked(line) for line in raw] or not raw


@pytest.mark.parametrize("cut", range(0, len(KEY), 37))
def test_a_private_key_is_masked_also_where_it_comes_in_two_pieces(cut: int) -> None:
    cut = KEY.rfind("\n", 0, cut) + 1
    masker = Masker()
    data = b"before " + b"a" * 40 + b"\n"

    masked = masker.mask(data + KEY[:cut].encode()) + masker.mask(KEY[cut:].encode() + b"\n" + data)

    assert b"MIIabc" not in masked
    assert b"Zz" not in masked
    assert masked.endswith(data)
    assert len(masked) == len(KEY) + 2 * len(data) + 1


def test_values_that_are_known_to_be_secret_are_masked_anywhere() -> None:
    masked = Masker(["correct horse", "short"]).mask(b"it said: correct horse, short\n")
    assert masked == b"it said: *************, short\n"


def test_a_known_secret_of_several_lines_leaves_their_ends() -> None:
    masked = Masker(["first line\nsecond line"]).mask(b"it said: first line\nsecond line\n")
    assert masked == b"it said: **********\n***********\n"


@given(st.binary(max_size=400))
def test_any_bytes_keep_their_number_and_their_lines(data: bytes) -> None:
    masked = Masker().mask(data)
    assert len(masked) == len(data)
    assert [len(line) for line in masked.split(b"\n")] == [len(line) for line in data.split(b"\n")]
