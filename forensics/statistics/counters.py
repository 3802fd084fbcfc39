"""What a metrics endpoint counted: the Prometheus text of vLLM and SGLang, from an address or file.

These counts are exact, where a log is rounded. Names of all versions are known: vLLM's V0 and V1
share `spec_decode_num_accepted_tokens`, `kv_cache_usage_perc` was `gpu_cache_usage_perc`.
"""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator
from urllib.error import URLError
from urllib.request import Request, urlopen

from forensics import redaction
from forensics.errors import SourceError
from forensics.statistics.model import Counters

_SAMPLE = re.compile(
    r'(?P<name>(?:vllm|sglang):\w+)(?:\{(?P<labels>(?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?\s+(?P<value>\S+)'
)
_LABEL = re.compile(r'(?P<key>\w+)="(?P<value>(?:[^"\\]|\\.)*)"')
_LIMIT = 64 * 1024 * 1024
_TIMEOUT_S = 10


def is_address(name: str) -> bool:
    """Say whether a source is an address to fetch."""
    return name.startswith(("http://", "https://"))


def looks_like_metrics(head: bytes) -> bool:
    """Say whether bytes are the text of a metrics endpoint rather than a log."""
    lines = [line for line in head[:65_536].decode("utf-8", "replace").splitlines() if line.strip()]
    marked = sum(
        line.startswith(("# HELP ", "# TYPE ")) or bool(_SAMPLE.match(line)) for line in lines
    )
    return bool(lines) and marked * 3 >= len(lines) * 2 and (b"vllm:" in head or b"sglang:" in head)


def fetch(address: str) -> bytes:
    """Return the text of an endpoint.

    Raises:
        SourceError: It cannot be reached or does not answer with metrics.
    """
    shown = redaction.text(address.partition("?")[0])
    request = Request(address, headers={"Accept": "text/plain"})  # noqa: S310 - http(s) only, see above
    try:
        with urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310
            data: bytes = answer.read(_LIMIT)
    except URLError as error:
        raise SourceError(f"{shown} cannot be reached", str(error.reason)) from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise SourceError(f"{shown} cannot be read", str(error)) from None
    if not looks_like_metrics(data):
        raise SourceError(
            f"{shown} holds no metrics of vLLM or SGLang", "its path is usually /metrics"
        )
    return data


class _Samples:
    """All samples by name; engines of one server are added up."""

    def __init__(self, text: str) -> None:
        self.rows: dict[str, list[tuple[dict[str, str], float]]] = {}
        for name, labels, value in _samples(text):
            self.rows.setdefault(name, []).append((labels, value))

    def total(self, *names: str) -> float | None:
        """Return the sum of the first name that exists (with or without `_total`)."""
        for name in names:
            for full in (name, f"{name}_total"):
                if full in self.rows:
                    return sum(value for _, value in self.rows[full])
        return None

    def count(self, *names: str) -> int | None:
        """Return such a sum as a whole number."""
        found = self.total(*names)
        return None if found is None else round(found)

    def mean(self, *names: str) -> float | None:
        """Return the mean over engines of the first name that exists."""
        for name in names:
            if name in self.rows:
                values = [value for _, value in self.rows[name]]
                return sum(values) / len(values)
        return None

    def histogram(self, *names: str) -> tuple[float, int] | None:
        """Return sum and count of a histogram."""
        for name in names:
            if f"{name}_sum" in self.rows:
                return self.total(f"{name}_sum") or 0.0, self.count(f"{name}_count") or 0
        return None

    def positions(self, name: str) -> tuple[int, ...]:
        """Return accepted tokens by position."""
        found: dict[int, float] = {}
        for labels, value in self.rows.get(f"{name}_total", []):
            place = labels.get("position", "")
            if place.isdecimal():
                found[int(place)] = found.get(int(place), 0.0) + value
        return tuple(round(found[i]) for i in sorted(found))


def _samples(text: str) -> Iterator[tuple[str, dict[str, str], float]]:
    for line in text.splitlines():
        match = _SAMPLE.match(line)
        if match is None:
            continue
        try:
            value = float(match["value"])
        except ValueError:
            continue
        if value == value and abs(value) != float("inf"):  # noqa: PLR0124 - no NaN
            labels = {m["key"]: m["value"] for m in _LABEL.finditer(match["labels"] or "")}
            yield match["name"], labels, value


def read(data: bytes, name: str) -> Counters:
    """Return the counters in the text of an endpoint.

    Args:
        data: The text.
        name: Where it came from, for errors.

    Raises:
        SourceError: There is no counter of a known server in it.
    """
    samples = _Samples(data.decode("utf-8", "replace"))
    if any(key.startswith("vllm:") for key in samples.rows):
        return _vllm(samples)
    if any(key.startswith("sglang:") for key in samples.rows):
        return _sglang(samples)
    raise SourceError(f"{name} holds no metrics of vLLM or SGLang", "save what /metrics answers")


def _model(samples: _Samples) -> str | None:
    for rows in samples.rows.values():
        for labels, _ in rows:
            if labels.get("model_name"):
                return labels["model_name"]
    return None


def _vllm(samples: _Samples) -> Counters:
    created = samples.rows.get("vllm:generation_tokens_created")
    return Counters(
        engine="vllm",
        model=_model(samples),
        drafts=samples.count("vllm:spec_decode_num_drafts"),
        draft_tokens=samples.count("vllm:spec_decode_num_draft_tokens"),
        accepted_tokens=samples.count("vllm:spec_decode_num_accepted_tokens"),
        per_position=samples.positions("vllm:spec_decode_num_accepted_tokens_per_pos"),
        emitted_tokens=samples.count("vllm:spec_decode_num_emitted_tokens"),
        prompt_tokens=samples.count("vllm:prompt_tokens"),
        generation_tokens=samples.count("vllm:generation_tokens"),
        running=samples.total("vllm:num_requests_running"),
        waiting=samples.total("vllm:num_requests_waiting"),
        kv_cache_usage=samples.mean("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
        prefix_hits=samples.count("vllm:prefix_cache_hits", "vllm:gpu_prefix_cache_hits"),
        prefix_queries=samples.count("vllm:prefix_cache_queries", "vllm:gpu_prefix_cache_queries"),
        preemptions=samples.count("vllm:num_preemptions"),
        ttft=samples.histogram("vllm:time_to_first_token_seconds"),
        inter_token=samples.histogram(
            "vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"
        ),
        started_at=min((value for _, value in created), default=None) if created else None,
    )


def _sglang(samples: _Samples) -> Counters:
    return Counters(
        engine="sglang",
        model=_model(samples),
        prompt_tokens=samples.count("sglang:prompt_tokens"),
        generation_tokens=samples.count("sglang:generation_tokens"),
        running=samples.total("sglang:num_running_reqs"),
        waiting=samples.total("sglang:num_queue_reqs"),
        kv_cache_usage=samples.mean("sglang:token_usage"),
        ttft=samples.histogram("sglang:time_to_first_token_seconds"),
        inter_token=samples.histogram(
            "sglang:inter_token_latency_seconds", "sglang:time_per_output_token_seconds"
        ),
        acceptance_length=samples.mean("sglang:spec_accept_length"),
        generation_tokens_per_s=samples.total("sglang:gen_throughput"),
    )
