"""What is known of a run: arguments as printed, the banner, the version, the machine."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forensics.facts import literal, namespace, speculative
from forensics.model import Context, Evidence, Hardware
from tests.support import evidence, logged, started, text

# --------------------------------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("printed", "arguments"),
    [
        ("{'model': '/m', 'max_model_len': 512}", {"model": "/m", "max_model_len": 512}),
        ("{'speculative_config': {'method': 'mtp', 'num_speculative_tokens': 3}}",
         {"speculative_config": {"method": "mtp", "num_speculative_tokens": 3}}),
        ("{'dtype': <DType.BF16: 'bfloat16'>, 'port': 8000}", {"dtype": "<DType.BF16: 'bfloat16'>", "port": 8000}),
        ("{'a': Config(x=1), 'enforce_eager': True}", {"a": "Config(x=1)", "enforce_eager": True}),
        ("{'api_key': ['***'], 'port': 1}", {"api_key": ["***"], "port": 1}),
        ("{'api_key': ***, 'port': 1}", {"api_key": "***", "port": 1}),
        ("{'limit': {'image': 2}, 'odd': <class 'X'>}", {"limit": {"image": 2}, "odd": "<class 'X'>"}),
        ("{}", {}),
        ("[1, 2]", None),
        ("not a dict", None),
        ("{'a': " * 500, None),
        ("", None),
    ],
)  # fmt: skip
def test_non_default_arguments_are_read(printed: str, arguments: dict[str, Any] | None) -> None:
    """Values that are no literals stay text; they cost none of the others."""
    assert literal(printed) == arguments


def test_arguments_too_large_to_be_real_are_not_read() -> None:
    assert literal("{'a': '" + "x" * 70_000 + "'}") is None
    assert namespace("a='" + "x" * 70_000 + "'") is None


@pytest.mark.parametrize(
    ("printed", "arguments"),
    [
        ("model='/m', max_model_len=512, quantization=None, trust_remote_code=False, port=8000",
         {"model": "/m", "max_model_len": 512, "port": 8000}),
        (
            "dispatch_function=<function serve at 0x7f>, model='/m'",
            {"dispatch_function": "<function serve at 0x7f>", "model": "/m"},
        ),
        ("config=Config(a=1), model='/m'", {"config": "Config(a=1)", "model": "/m"}),
        ("served_model_name=['a', 'b'], seed=0", {"served_model_name": ["a", "b"], "seed": 0}),
        ("", {}),
        ("))", None),
        ("x=1) or dict(y=2", None),
    ],
)  # fmt: skip
def test_namespace_of_old_releases_is_read(printed: str, arguments: dict[str, Any] | None) -> None:
    """0.4 to 0.8 print all arguments; what is None or False was not given."""
    assert namespace(printed) == arguments


@given(st.text(max_size=80))
def test_any_text_as_arguments_never_raises(printed: str) -> None:
    """And nothing in it is ever run."""
    for read in (literal, namespace, speculative):
        found = read(printed)
        assert found is None or isinstance(found, dict)


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ("model='x', speculative_config=None, tokenizer='x'", {}),
        ("speculative_config=SpeculativeConfig(method='mtp', model='/m', num_spec_tokens=3), x",
         {"method": "mtp", "model": "/m", "num_speculative_tokens": 3}),
        ("speculative_config=SpeculativeConfig(draft_model='/d', num_spec_tokens=5)",
         {"draft_model": "/d", "num_speculative_tokens": 5}),
        ("speculative_config=SpeculativeConfig(method='ngram', model=None, num_spec_tokens=2)",
         {"method": "ngram", "num_speculative_tokens": 2}),
        ("model='x'", None),
    ],
)  # fmt: skip
def test_speculation_is_read_from_the_banner(config: str, found: dict[str, Any] | None) -> None:
    """Empty means switched off, None means that the banner does not say."""
    assert speculative(config) == found


def read(*parts: list[str], context: Context | None = None) -> Evidence:
    return evidence(text(*parts), context=context)


def test_banner_tells_of_speculation_that_the_arguments_do_not_show() -> None:
    """Arguments from a config file are not in `non-default args` of every release."""
    *before, banner = started()
    mtp = "SpeculativeConfig(method='mtp', num_spec_tokens=1)"

    found = read([*before, banner.replace("speculative_config=None", f"speculative_config={mtp}")])

    assert found.arguments == {
        "model": "/models/tiny",
        "speculative_config": {"method": "mtp", "num_speculative_tokens": 1},
    }


def test_arguments_that_were_never_printed_are_unknown() -> None:
    """Unknown is not the same as none given."""
    assert read(logged("E", "Loading weights took 3 seconds")).arguments is None
    assert read(started(arguments="{}")).arguments == {}


def test_first_process_that_prints_its_arguments_counts() -> None:
    more = logged("APIServer_1", "non-default args: {'port': 2}", pid=8)

    assert read(started(arguments="{'port': 1}"), more).arguments == {"port": 1}


def test_what_is_known_beside_the_log_wins() -> None:
    context = Context(
        arguments={"port": 9}, image="a/b:c", exit_code=1, oom_killed=False,
        hardware=Hardware(gpu="NVIDIA GB10"), versions={"cuda": "13.0"}, launch=("vllm", "serve"),
    )  # fmt: skip

    found = read(started(arguments="{'port': 1, 'seed': 2}"), context=context)

    assert found.arguments == {"port": 9, "seed": 2}
    assert (found.run.image, found.run.exit_code, found.run.oom_killed) == ("a/b:c", 1, False)
    assert found.run.hardware.gpu == "NVIDIA GB10"
    assert found.run.launch == ["vllm", "serve"]
    assert found.versions == {"vllm": "0.32.0", "cuda": "13.0"}


# --------------------------------------------------------------------------------- identity and machine


def test_engine_and_its_version() -> None:
    found = read(started("0.19.2rc1.dev134+gfe9c3d6c5"))

    assert found.run.engine == "vllm"
    assert found.run.engine_version == "0.19.2rc1.dev134+gfe9c3d6c5"


def test_log_of_nobody_has_no_engine() -> None:
    found = read(["hello", "world"])

    assert (found.run.engine, found.run.engine_version) == (None, None)


@pytest.mark.parametrize(
    ("arguments", "model"),
    [
        ("{'model': '/m'}", "/m"),
        ("{'model_tag': '/tag'}", "/tag"),
        ("{'model': ['/m']}", None),
    ],
)
def test_model_is_named_by_the_arguments(arguments: str, model: str | None) -> None:
    assert read(started(arguments=arguments)[:3]).run.model == model


def test_architectures_stand_in_the_order_printed() -> None:
    more = logged("APIServer", "Resolved architecture: NemotronHMTPModel", pid=7)
    again = logged("EngineCore", "Resolved architecture: LlamaForCausalLM")

    assert read(started(), more, again).architecture == ("LlamaForCausalLM", "NemotronHMTPModel")


@pytest.mark.parametrize(
    ("line", "gpu", "capability"),
    [
        ("Found GPU0 NVIDIA GB10 which is of cuda capability 12.1.", "NVIDIA GB10", "12.1"),
        ("GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)", "NVIDIA H100 80GB HBM3", None),
        ("running on NVIDIA RTX 5090, fine", "NVIDIA RTX 5090", None),
        ("device has compute capability 9.0 here", None, "9.0"),
        ("no machine in this line", None, None),
    ],
)
def test_machine_is_read(line: str, gpu: str | None, capability: str | None) -> None:
    hardware = read([line]).run.hardware

    assert (hardware.gpu, hardware.compute_capability) == (gpu, capability)


def test_machine_that_a_prompt_names_is_not_ours() -> None:
    prompt = "Received request a: prompt: 'my NVIDIA H100 is slow'"

    assert read(logged("APIServer", prompt, origin="logger.py:39")).run.hardware.gpu is None
