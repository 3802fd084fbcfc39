"""Versions and image references compare as people mean them."""

from __future__ import annotations

import pytest

from forensics.versions import capability_in, is_moving, parse, satisfies, split_image

DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("version", "ranges", "inside"),
    [
        ("0.20.0", ">=0.18,<0.21", True),
        ("0.21.0", ">=0.18,<0.21", False),
        ("0.8.5.post1", "==0.8.5", True),
        ("0.19.2rc1.dev134+gfe9c3d6c5", ">=0.19.2", True),
        ("0.19.2rc1.dev134+gfe9c3d6c5", "<0.19.2", False),
        ("v0.10.2", ">=0.10", True),
        ("0.10.0", ">=0.9", True),
        ("2.11.0+cu130", ">=2.11", True),
        ("0.9.2+custom build", ">=0.9,<0.10", True),
        ("nightly", ">=0.1", None),
        ("", ">=0.1", None),
        ("0.9.0", "newer than 0.8", None),
    ],
)
def test_version_lies_in_a_range(version: str, ranges: str, inside: bool | None) -> None:
    """Development builds of X count as X; what cannot be read is unknown, not false."""
    assert satisfies(version, ranges) is inside


def test_text_without_a_version_is_none() -> None:
    assert parse("latest") is None


@pytest.mark.parametrize(
    ("value", "wanted", "inside"),
    [
        ("12.1", "12.1", True),
        ("12.0", "12.1", False),
        ("12.1", ">=12.0,<13", True),
        ("9.0", ">=12.0,<13", False),
        ("12.1", "12.*", True),
        ("10.0", "12.*", False),
        ("1.2", "12.*", False),
    ],
)
def test_compute_capability(value: str, wanted: str, inside: bool) -> None:
    assert capability_in(value, wanted) is inside


@pytest.mark.parametrize(
    ("reference", "parts"),
    [
        ("vllm/vllm-openai", ("vllm/vllm-openai", None, None)),
        ("vllm/vllm-openai:v0.20.0", ("vllm/vllm-openai", "v0.20.0", None)),
        ("localhost:5000/vllm", ("localhost:5000/vllm", None, None)),
        ("localhost:5000/vllm:a", ("localhost:5000/vllm", "a", None)),
        (f"nvcr.io/nvidia/vllm@{DIGEST}", ("nvcr.io/nvidia/vllm", None, DIGEST)),
        (f"a/b:c@{DIGEST}", ("a/b", "c", DIGEST)),
        ("", ("", None, None)),
    ],
)
def test_image_reference_is_taken_apart(
    reference: str, parts: tuple[str, str | None, str | None]
) -> None:
    assert split_image(reference) == parts


@pytest.mark.parametrize(
    ("reference", "moving"),
    [
        ("vllm/vllm-openai", True),
        ("vllm/vllm-openai:latest", True),
        ("vllm/vllm-openai:nightly", True),
        ("vllm/vllm-openai:cu130-nightly", True),
        ("vllm/vllm-openai:latest-aarch64", True),
        ("lmsysorg/sglang:dev", True),
        ("vllm/vllm-openai:v0.20.0", False),
        ("vllm/vllm-openai:nightly-0123456789abcdef0123456789abcdef01234567", False),
        ("lmsysorg/sglang:nightly-20261130", False),
        ("nvcr.io/nvidia/vllm:26.01-py3", False),
        (f"vllm/vllm-openai:latest@{DIGEST}", False),
        ("a/b:development", False),
    ],
)
def test_moving_tag_may_be_another_image_tomorrow(reference: str, moving: bool) -> None:
    assert is_moving(reference) is moving
