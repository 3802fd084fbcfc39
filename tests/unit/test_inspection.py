"""`docker inspect` output: only the fields that are needed, each checked for its type."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forensics.errors import SourceError
from forensics.inspection import arguments_of, read
from forensics.model import Context

STATE = {"Status": "exited", "Running": False, "OOMKilled": True, "ExitCode": 137,
         "StartedAt": "2026-12-01T02:00:00Z", "FinishedAt": "2026-12-01T03:00:00Z"}  # fmt: skip
CONFIG = {
    "Image": "vllm/vllm-openai:nightly@sha256:" + "a" * 64,
    "Entrypoint": ["vllm", "serve"],
    "Cmd": ["/m", "--max-model-len", "512", "--enforce-eager", '--speculative-config={"n": 3}'],
    "Env": ["A=1", "B=x=y", "NO_EQUALS"],
}
CONTAINER = {
    "Name": "/brave_bell",
    "State": STATE,
    "Config": CONFIG,
    "HostConfig": {"AutoRemove": True},
}


def inspect(**changes: object) -> Context:
    return read(json.dumps([{**CONTAINER, **changes}]).encode(), "inspect.json")


def test_everything_that_a_diagnosis_needs_is_read() -> None:
    found = inspect()

    assert (found.exit_code, found.oom_killed, found.running) == (137, True, False)
    assert (found.container, found.digest) == ("brave_bell", "sha256:" + "a" * 64)
    assert found.arguments == {
        "max_model_len": 512,
        "enforce_eager": True,
        "speculative_config": {"n": 3},
    }
    assert found.environment == {"A": "1", "B": "x=y"}
    assert found.auto_remove is True
    assert found.launch == ("vllm", "serve", *CONFIG["Cmd"])
    assert (found.started_at, found.finished_at) == (STATE["StartedAt"], STATE["FinishedAt"])


def test_one_object_is_as_good_as_a_list() -> None:
    assert read(json.dumps(CONTAINER).encode(), "x") == inspect()


@pytest.mark.parametrize(
    "state",
    [{"Running": True, "ExitCode": 0}, {"Status": "running", "ExitCode": 0}, {"Status": "paused", "ExitCode": 0}],
)  # fmt: skip
def test_exit_code_of_a_running_container_means_nothing(state: dict[str, Any]) -> None:
    """The engine says 0 until there is one."""
    found = inspect(State=state)

    assert (found.running, found.exit_code) == (True, None)


def test_container_that_never_started_has_no_times() -> None:
    never = "0001-01-01T00:00:00Z"
    found = inspect(State={**STATE, "StartedAt": never, "FinishedAt": never})

    assert (found.started_at, found.finished_at) == (None, None)


@pytest.mark.parametrize(
    "raw",
    [b"", b"not json", b"[]", b"{}", b"null", b"3", b'[{"State": null}]', b'[{"Id": "x"}]', b"[" * 100_000, b"\xff"],
    ids=["empty", "text", "empty list", "empty object", "null", "number", "no state", "image", "deep", "binary"],
)  # fmt: skip
def test_other_data_is_refused_with_advice(raw: bytes) -> None:
    with pytest.raises(SourceError, match=r"inspect\.json is not .*docker inspect"):
        read(raw, "inspect.json")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 300) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip


@given(
    st.fixed_dictionaries(
        {"State": st.fixed_dictionaries({}, optional=dict.fromkeys(STATE, JSON))},
        optional={
            "Name": JSON,
            "HostConfig": JSON | st.fixed_dictionaries({"AutoRemove": JSON}),
            "Config": JSON | st.fixed_dictionaries({}, optional=dict.fromkeys(CONFIG, JSON)),
        },
    )
)
def test_odd_types_are_unknown_and_never_raise(data: dict[str, Any]) -> None:
    found = read(json.dumps(data).encode(), "x")

    assert found.exit_code is None or isinstance(found.exit_code, int)
    assert found.image is None or isinstance(found.image, str)
    assert found.oom_killed in {None, True, False}


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        (["vllm", "serve", "/m"], None),
        (["--port", "8000"], {"port": 8000}),
        (["--port=8000"], {"port": 8000}),
        (["--enforce-eager"], {"enforce_eager": True}),
        (["--enforce-eager", "--port", "1"], {"enforce_eager": True, "port": 1}),
        (["--max_model_len", "512"], {"max_model_len": 512}),
        (["--model", "a=b"], {"model": "a=b"}),
        (['--config={"a": [1]}'], {"config": {"a": [1]}}),
        (["--name", "true"], {"name": True}),
        (["--"], None),
        ([], None),
    ],
)  # fmt: skip
def test_arguments_of_a_command_line(words: list[str], arguments: dict[str, Any] | None) -> None:
    assert arguments_of(words) == arguments


def test_exit_code_that_is_no_number_is_unknown() -> None:
    assert inspect(State={**STATE, "ExitCode": "137"}).exit_code is None
    assert inspect(State={**STATE, "ExitCode": True}).exit_code is None
