"""Tables turn captures into words: what is known, since when, and what was probably meant."""

from __future__ import annotations

from typing import Any

import pytest

from forensics.knowledge import between, history, image, lookup

VERSIONS = ["0.8.0", "0.20.0", "0.33.0"]
FLAGS: dict[str, Any] = {
    "versions": VERSIONS,
    "flags": {
        "--swap-space": {"since": None, "until": "0.20.0", "successors": ["--kv-offloading-size"]},
        "--attention-backend": {"since": "0.13.0"},
        "--max-model-len": {"since": None, "until": None},
        "--enable-prefix-caching": {"since": None, "until": None},
        "--tensor-parallel-size": {"short": ["-tp"]},
        "--gone-by": {"until": {"after": "0.18.0", "by": "0.20.0"}},
        "--came-by": {"since": {"after": "0.18.0", "by": "0.20.0"}},
    },
}
DIGEST = "sha256:" + "a" * 64
OTHER = "sha256:" + "b" * 64
IMAGES: dict[str, Any] = {
    "images": [
        {"id": "good", "repository": "vllm/vllm-openai", "tags": ["v0.20.0"], "ref": "vllm/vllm-openai:v0.20.0",
         "digest": DIGEST, "other_digests": [{"digest": OTHER}], "summary": "It works."},
        {"id": "moving", "repository": "vllm/vllm-openai", "tags": ["nightly"], "moving": True, "ref": "vllm/vllm-openai@x",
         "summary": "It moves."},
    ]
}  # fmt: skip


def flags(key: str, version: str | None = None) -> dict[str, str]:
    return lookup({"flags": FLAGS}, "flags", key, version)


# ------------------------------------------------------------------------------------ since and until


@pytest.mark.parametrize(
    ("entry", "version", "there"),
    [
        ({}, "0.20.0", True),
        ({}, None, None),
        ({}, "nightly", None),
        ({"since": "0.13.0"}, "0.13.0", True),
        ({"since": "0.13.0"}, "0.12.9", False),
        ({"until": "0.20.0"}, "0.20.0", True),
        ({"until": "0.20.0"}, "0.20.1", False),
        ({"since": "0.9.0", "until": "0.20.0"}, "0.10.0", True),
        ({"since": {"after": "0.18.0", "by": "0.20.0"}}, "0.18.0", False),
        ({"since": {"after": "0.18.0", "by": "0.20.0"}}, "0.19.0", None),
        ({"since": {"after": "0.18.0", "by": "0.20.0"}}, "0.20.0", True),
        ({"until": {"after": "0.18.0", "by": "0.20.0"}}, "0.18.0", True),
        ({"until": {"after": "0.18.0", "by": "0.20.0"}}, "0.19.0", None),
        ({"until": {"after": "0.18.0", "by": "0.20.0"}}, "0.20.0", False),
        ({"since": "0.19.2"}, "0.19.2rc1.dev134+gfe9c3d6c5", True),
    ],
)
def test_release_has_an_option_or_not_or_nobody_knows(
    entry: dict[str, Any], version: str | None, there: bool | None
) -> None:
    """Between two releases that were looked at, the table cannot tell."""
    assert between(entry, version) is there


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("--attention-backend", "--attention-backend exists since vLLM 0.13.0."),
        ("--swap-space", "--swap-space was last in vLLM 0.20.0. In its place: --kv-offloading-size."),
        ("--max-model-len", "--max-model-len exists in all releases on record (0.8.0 to 0.33.0)."),
        ("--gone-by", "--gone-by was there up to 0.18.0 and is gone by 0.20.0."),
        ("--came-by", "--came-by came after vLLM 0.18.0 and by 0.20.0."),
        ("--nonsense", "None of the vLLM releases 0.8.0 to 0.33.0 that are on record has --nonsense."),
    ],
)  # fmt: skip
def test_history_is_one_sentence(name: str, sentence: str) -> None:
    assert history(name, FLAGS["flags"].get(name), VERSIONS) == sentence


# -------------------------------------------------------------------------------------------- flags


@pytest.mark.parametrize(
    ("printed", "meant"),
    [
        ("--max-model-length 8", "--max-model-len"),
        ("--max_model_lenn", "--max-model-len"),
        ("--enable-prefx-caching", "--enable-prefix-caching"),
        ("--completely-different", None),
    ],
)
def test_did_you_mean(printed: str, meant: str | None) -> None:
    assert flags(printed).get("did_you_mean") == meant


def test_flag_that_this_release_has_not_is_never_suggested() -> None:
    assert "did_you_mean" not in flags("--swap-spaec", "0.33.0")
    assert flags("--swap-spaec", "0.20.0")["did_you_mean"] == "--swap-space"


@pytest.mark.parametrize(
    "printed", ["--max_model_len", "--max-model-len=8", "--no-enable-prefix-caching", "-tp 2"]
)
def test_known_flag_in_any_spelling_needs_no_suggestion(printed: str) -> None:
    found = flags(printed)

    assert "did_you_mean" not in found
    assert not found["flag_history"].startswith("None of")


def test_removed_flag_names_its_successor() -> None:
    found = flags("--swap-space 4")

    assert found["flag"] == "--swap-space"
    assert found["successor"] == "--kv-offloading-size"


@pytest.mark.parametrize("printed", ["", "model", "-", "--", "ünknown"])
def test_text_that_is_no_flag_says_nothing(printed: str) -> None:
    assert flags(printed) == {}


def test_missing_table_says_little() -> None:
    assert "did_you_mean" not in lookup({}, "flags", "--max-model-len", None)
    assert lookup({}, "xids", "31", None) == {}
    assert lookup({}, "images", "x", None) == {}
    assert lookup({}, "baselines", "x", None) == {}


def test_speculative_key_that_was_misspelt() -> None:
    table = {"versions": VERSIONS, "keys": {"num_speculative_tokens": {}, "method": {}}}

    found = lookup({"speculative_keys": table}, "speculative_keys", "'num_spec_tokens'", None)

    assert found["key"] == "num_spec_tokens"
    assert found["did_you_mean"] == "num_speculative_tokens"


def test_xid_is_explained() -> None:
    entry = {"name": "N", "severity": "fatal", "meaning": "M", "action": "A"}

    found = lookup({"xids": {"xids": {"79": entry}}}, "xids", " 79 ", None)

    assert found == {
        "xid_name": "N",
        "xid_severity": "fatal",
        "xid_meaning": "M",
        "xid_action": "A",
    }


@pytest.mark.parametrize(
    ("model", "said"), [("nvidia/Nemotron-H-8B", "40 tokens/s"), ("other", None)]
)
def test_baseline_by_glob(model: str, said: str | None) -> None:
    table = {"baselines": [{"models": ["*nemotron-h*"], "summary": "40 tokens/s"}]}

    assert lookup({"baselines": table}, "baselines", model, None).get("baseline") == said


# ------------------------------------------------------------------------------------------- images


@pytest.mark.parametrize(
    ("reference", "entry"),
    [
        ("good", "good"),
        ("vllm/vllm-openai:v0.20.0", "good"),
        ("docker.io/vllm/vllm-openai:v0.20.0", "good"),
        (f"anything@{DIGEST}", "good"),
        (f"anything@{OTHER}", "good"),
        ("vllm/vllm-openai:nightly", None),
        ("vllm/vllm-openai:v0.19.0", None),
        (f"vllm/vllm-openai:v0.20.0@sha256:{'c' * 64}", None),
        ("evil/vllm-openai:v0.20.0", None),
    ],
)
def test_image_is_known_by_digest_or_by_a_tag_that_stays(reference: str, entry: str | None) -> None:
    """A moving tag proves nothing, and another digest is another image."""
    found = image({"images": IMAGES}, reference)

    assert (found["id"] if found else None) == entry
