"""Secrets become `***`; what only looks like one stays, because a diagnosis lives on it.

The secrets here are made up. They are put together at run time, so that no scanner of this
repository takes them for real ones.
"""

from __future__ import annotations

import random
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forensics import redaction
from forensics.redaction import MASK, is_secret, text, value
from tests.support import diagnose, failed_start, logged
from tests.support import text as lines

_LETTERS = random.Random(7)  # noqa: S311 - reproducible


def made(length: int, alphabet: str = string.ascii_letters + string.digits) -> str:
    """Random text that holds letters and digits."""
    return "a1Z9"[: min(4, length)] + "".join(_LETTERS.choices(alphabet, k=length - 4))


UPPER = string.ascii_uppercase + string.digits
HF, NVAPI, GITHUB = "hf_" + made(34), "nvapi-" + made(64), "ghp_" + made(36)
OPENAI, PROJECT, ANTHROPIC = "sk-" + made(48), "sk-proj-" + made(64), "sk-ant-" + made(95)
AWS, STS = "AKIA" + made(16, UPPER).upper(), "ASIA" + made(16, UPPER).upper()
GOOGLE, SLACK, GITLAB = "AIza" + made(35), "xoxb-" + made(24), "glpat-" + made(20)
PAT, JWT = "github_pat_" + made(40), f"eyJ{made(20)}.eyJ{made(40)}.{made(43)}"
PASSWORD, HEX, BASE64 = made(16), made(40, "0123456789abcdef").lower(), made(40) + "+/Z8=="

#: The secret, and the line it stands in.
SECRETS: list[tuple[str, str]] = [
    # Shapes that give themselves away anywhere.
    (HF, "Token {} is invalid"),
    (HF, "https://huggingface.co/api/x?token={}"),
    (HF, "non-default args: {{'hf_token': '{}', 'port': 8000}}"),
    (HF, "HF_TOKEN={}"),
    (HF, "export HUGGING_FACE_HUB_TOKEN={}"),
    (HF, "docker run -e HF_TOKEN={} vllm/vllm-openai"),
    (HF, "[{}]"),
    (NVAPI, "NGC_API_KEY={}"),
    (NVAPI, "using {} to log in"),
    (OPENAI, "openai key {} was refused"),
    (OPENAI, "Incorrect API key provided: {}."),
    (PROJECT, "OPENAI_API_KEY='{}'"),
    (ANTHROPIC, "x-api-key: {}"),
    (AWS, "aws_access_key_id = {}"),
    (AWS, "Credential={}/20261201/eu-west-1/s3/aws4_request"),
    (STS, "assumed {}"),
    (GITHUB, "git clone https://{}@github.com/x/y"),
    ("gho_" + made(36), "oauth {} expired"),
    ("ghs_" + made(36), "installation {}"),
    (PAT, "pip install git+https://{}@github.com/x/y"),
    (GITLAB, "PRIVATE-TOKEN: {}"),
    (SLACK, "notify with {}"),
    (GOOGLE, "key={}"),
    (GOOGLE, "https://maps.example/api?key={}&v=1"),
    (JWT, "cookie session={}"),
    (JWT, "Authorization: Bearer {}"),
    # Values whose name gives them away.
    (PASSWORD, "--api-key {}"),
    (PASSWORD, "--api-key={}"),
    (PASSWORD, "vllm serve /m --api-key {} --port 8000"),
    (PASSWORD, "--api_key '{}'"),
    (PASSWORD, "api_key='{}'"),
    (PASSWORD, "'api_key': '{}'"),
    (PASSWORD, '"api_key": "{}"'),
    (PASSWORD, "Namespace(host=None, api_key='{}', port=8000)"),
    (PASSWORD, "VLLM_API_KEY={}"),
    (PASSWORD, "apikey: '{}'"),
    (PASSWORD, "password={}"),
    (PASSWORD, "passwd='{}'"),
    (PASSWORD, "POSTGRES_PASSWORD={}"),
    (PASSWORD, "db_password: '{}'"),
    (PASSWORD, "client_secret={}"),
    (PASSWORD, '{{"client_secret": "{}"}}'),
    (PASSWORD, "SECRET_KEY={}"),
    (PASSWORD, "secret='{}'"),
    (PASSWORD, "ssl_private_key='{}'"),
    (PASSWORD, "private-key={}"),
    (PASSWORD, "aws_secret_access_key={}"),
    (BASE64, "AWS_SECRET_ACCESS_KEY={}"),
    (PASSWORD, "auth_token={}"),
    (PASSWORD, "auth-token: '{}'"),
    (PASSWORD, "access_token={}"),
    (PASSWORD, "refresh_token='{}'"),
    (PASSWORD, "token='{}'"),
    (PASSWORD, '"token": "{}"'),
    (PASSWORD, "--hf-token {}"),
    (PASSWORD, "--hf-token={}"),
    (HEX, "WANDB_API_KEY={}"),
    (HEX, "wandb login --api-key {}"),
    (HEX, "access_key: '{}'"),
    (PASSWORD, "credentials='{}'"),
    # Headers and addresses.
    (PASSWORD, "Authorization: Bearer {}"),
    (BASE64, "Authorization: Basic {}"),
    (PASSWORD, "curl -H 'Authorization: Bearer {}' http://localhost:8000"),
    (PASSWORD, "redis://user:{}@cache:6379/0"),
    (PASSWORD, "postgresql://svc:{}@db/prod"),
    (PASSWORD, "https_proxy=http://me:{}@proxy.example:3128"),
    (PASSWORD, "amqp://guest:{}@mq"),
    (f"-----BEGIN RSA PRIVATE KEY----- {made(60)} -----END RSA PRIVATE KEY-----", "{}"),
    (f"-----BEGIN PRIVATE KEY-----\n{made(60)}\n", "{}"),
]


@pytest.mark.parametrize(
    ("secret", "line"), SECRETS, ids=[f"{i}: {line[:40]}" for i, (_, line) in enumerate(SECRETS)]
)
def test_secret_is_masked(secret: str, line: str) -> None:
    shown = text(line.format(secret))

    assert secret not in shown
    assert MASK in shown
    body = secret.removeprefix("sk-").removeprefix("hf_")
    assert not any(body[i : i + 8] in shown for i in range(4, len(body) - 8))


def test_there_are_many_cases() -> None:
    assert len(SECRETS) >= 60
    assert len(INNOCENT) >= 60


DIGEST = made(64, "0123456789abcdef").lower()
COMMIT = made(40, "0123456789abcdef").lower()
UUID = "0f3c9a52-7d1e-4b8a-9c3d-2e5f6a7b8c9d"

INNOCENT = [
    f"vllm/vllm-openai@sha256:{DIGEST}",
    f"sha256:{DIGEST}",
    f"Digest: sha256:{DIGEST}",
    f"commit {COMMIT}",
    f"0.19.2rc1.dev134+g{COMMIT[:9]}",
    f"revision='{COMMIT}'",
    f"snapshots/{COMMIT}/config.json",
    f"Received request cmpl-{COMMIT[:32]}: prompt: 'x'",
    f"chatcmpl-{UUID}",
    f"Added request chatcmpl-{COMMIT[:32]}.",
    f"engine id {UUID}",
    f"GPU-{UUID}",
    f"run id: {UUID}",
    "/root/.cache/vllm/torch_compile_cache/3dbe092ec5/rank_0_0/backbone",
    "max_tokens=512",
    "max_tokens: 512",
    "'max_tokens': 512",
    "max_new_tokens=1024",
    "--max-num-batched-tokens 8192",
    "max_num_batched_tokens=8192",
    "num_speculative_tokens=3",
    "'num_speculative_tokens': 3",
    "num_spec_tokens=3",
    "prompt_tokens=1200, completion_tokens=300",
    "Accepted: 110 tokens, Drafted: 200 tokens",
    "Avg prompt throughput: 16.6 tokens/s, Avg generation throughput: 223.1 tokens/s",
    "GPU KV cache size: 1,234,560 tokens",
    "Maximum concurrency for 131,072 tokens per request: 9.42x",
    "stop_token_ids=[151643, 151645]",
    "eos_token_id=151645",
    "pad_token_id: 151643",
    "bos_token='<s>'",
    "tokenizer='/models/tiny'",
    "tokenizer_mode=auto",
    "tokenizer_revision=None",
    "skip_tokenizer_init=False",
    "--tokenizer /models/tiny-tokenizer",
    "--tokenizer-mode mistral",
    "tokenization took 0.5 seconds",
    "prompt_token_ids: [1, 2, 3, 4, 5, 6]",
    "token_ids=[15496, 11, 995]",
    "token: invalid",
    "api_key=None",
    "'api_key': None",
    "api_key: null",
    "hf_token=None",
    "hf_token: True",
    "password: missing",
    "The api_key argument is deprecated",
    "KeyError: 'model.layers.0.mlp.gate_up_proj.weight'",
    "KeyError: 'attn_backend'",
    "key_cache shape torch.Size([1, 2, 3])",
    "kv_cache_dtype=auto, key=value",
    "num_key_value_heads=8",
    "The secret of speed is batching",
    "Basic usage: vllm serve MODEL",
    "Bearer of bad news",
    "see https://docs.vllm.ai/en/latest/usage/troubleshooting.html",
    "https://huggingface.co/nvidia/Nemotron-H-8B-Base-8K",
    "tcp://127.0.0.1:29500",
    "store=/tmp/vllm_dist_c8902875dca348eeaf06525a79489fbb",
    "zmq address ipc:///tmp/0f3c9a52-7d1e-4b8a-9c3d-2e5f6a7b8c9d",
    "0x7f2b8d264c08 of type triton._C.libtriton.ir.attribute",
    "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4",
    "flashinfer-python==0.5.2, torch==2.11.0+cu130",
    "sk-learn is not installed",
    "task-1234567890 finished",
    "disk-usage-of-the-model-cache-folder is 90%",
    "risk-assessment-of-the-whole-model is done",
    "HF_TOKEN: ${HF_TOKEN}",
    'HF_TOKEN: "${HF_TOKEN}"',
    "-e HF_TOKEN=$HF_TOKEN",
    "--api-key $OPENAI_API_KEY --port 8000",
]


@pytest.mark.parametrize(
    "line",
    [
        "password=$ecretWord99",
        "HF_TOKEN: ${HF_TOKEN:-abcdefghij0123456789}",
        "HF_TOKEN=${HF_TOKEN_abcdefghij",
        "HF_TOKEN=$HF_TOKEN-abcdefghij0123",
    ],
)
def test_what_only_looks_like_a_variable_is_masked(line: str) -> None:
    assert MASK in text(line)


@pytest.mark.parametrize("line", INNOCENT)
def test_look_alike_stays_as_it_is(line: str) -> None:
    assert text(line) == line


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("api_key", True), ("--api-key", True), ("HF_TOKEN", True), ("VLLM_API_KEY", True),
        ("AWS_SECRET_ACCESS_KEY", True), ("password", True), ("client_secret", True), ("token", True),
        ("ssl_keyfile", False), ("max_tokens", False), ("tokenizer", False), ("eos_token_id", False),
        ("num_speculative_tokens", False), ("model", False), ("key", False), ("", False),
    ],
)  # fmt: skip
def test_name_says_whether_its_value_is_secret(name: str, secret: bool) -> None:
    assert is_secret(name) is secret


def test_structured_data_loses_values_by_their_names() -> None:
    data = {
        "arguments": {"api_key": PASSWORD, "max_tokens": 512, "nested": {"hf_token": "short"}},
        "launch": ["vllm", "serve", "--api-key", PASSWORD, "--port", "8000"],
        "environment": {"HF_TOKEN": HF, "PATH": "/bin"},
        "findings": [{"text": f"Token {HF} is invalid", "line": 3}],
        "nothing": None,
    }

    assert value(data) == {
        "arguments": {"api_key": MASK, "max_tokens": 512, "nested": {"hf_token": MASK}},
        "launch": ["vllm", "serve", "--api-key", MASK, "--port", "8000"],
        "environment": {"HF_TOKEN": MASK, "PATH": "/bin"},
        "findings": [{"text": f"Token {MASK} is invalid", "line": 3}],
        "nothing": None,
    }


def test_secret_list_of_an_argument_is_masked() -> None:
    """`--api-key` takes several keys since 0.11."""
    assert PASSWORD not in str(value({"api_key": [PASSWORD, "second-" + PASSWORD]}))


def test_diagnosis_shows_no_secret() -> None:
    """Wherever it stood: argument, root line, message, neighbouring process."""
    arguments = logged(
        "APIServer", f"non-default args: {{'model': 'm', 'api_key': '{PASSWORD}'}}", pid=7
    )
    log = lines(arguments, failed_start(f"OSError: 401 for url https://x/?token={HF} with {NVAPI}"))

    shown = str(diagnose(log))

    assert "OSError" in shown
    for secret in (PASSWORD, HF, NVAPI):
        assert secret not in shown


@given(st.text(max_size=120))
def test_masking_twice_changes_nothing_more(line: str) -> None:
    once = text(line)

    assert text(once) == once


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=8,
    )
)  # fmt: skip
def test_shape_of_data_is_kept(data: object) -> None:
    def shape(item: object) -> object:
        if isinstance(item, dict):
            return {key: shape(child) for key, child in item.items()}
        return [shape(child) for child in item] if isinstance(item, list) else type(item)

    assert shape(redaction.value(data)) == shape(data)
