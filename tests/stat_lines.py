"""Lines of statistics printed from known counts, as vLLM prints them in each era.

Nothing here asserts. The rounding is Python's own `%.Nf`, which is what the servers use.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Window:
    """What happened between two lines.

    Attributes:
        drafts: Drafts made.
        drafted: Tokens drafted.
        accepted: Accepted tokens by position.
        seconds: Length of the window.
    """

    drafts: int
    drafted: int
    accepted: tuple[int, ...]
    seconds: float = 10.0

    @property
    def total(self) -> int:
        return sum(self.accepted)


def prefix(second: int, file: str = "metrics.py:101") -> str:
    """The prefix of 0.16 and later, so many seconds into the day."""
    clock = f"{second // 3600 % 24:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
    return f"(APIServer pid=1) INFO 05-02 {clock} [{file}] "


def current(window: Window, second: int = 0) -> str:
    """0.10.2 and later."""
    rates = ", ".join(f"{a / window.drafts:.3f}" for a in window.accepted)
    return (
        f"{prefix(second)}SpecDecoding metrics: "
        f"Mean acceptance length: {1 + window.total / window.drafts:.2f}, "
        f"Accepted throughput: {window.total / window.seconds:.2f} tokens/s, "
        f"Drafted throughput: {window.drafted / window.seconds:.2f} tokens/s, "
        f"Accepted: {window.total} tokens, Drafted: {window.drafted} tokens, "
        f"Per-position acceptance rate: {rates}, "
        f"Avg Draft acceptance rate: {100 * window.total / window.drafted:.1f}%"
    )


def early(window: Window, second: int = 0, *, bonus: bool = True, positions: bool = True) -> str:
    """0.9 to 0.10.1; without the bonus token 0.8.5; without positions 0.8.3."""
    rates = ", ".join(f"{a / window.drafts:.3f}" for a in window.accepted)
    length = window.total / window.drafts + (1 if bonus else 0)
    mean = f"Mean acceptance length: {length:.2f}, " if positions else ""
    tail = f", Per-position acceptance rate: {rates}" if positions else ""
    return (
        f"{prefix(second)}SpecDecoding metrics: "
        f"Draft acceptance rate: {100 * window.total / window.drafted:.1f}%, {mean}"
        f"Accepted: {window.total} tokens, Drafted: {window.drafted} tokens{tail}"
    )


def engine(
    generation: float, running: int = 1, second: int = 0, *, prompt: float = 0.0, waiting: int = 0
) -> str:
    """The engine's line of V1."""
    return (
        f"{prefix(second, 'loggers.py:273')}Engine 000: Avg prompt throughput: {prompt:.1f} tokens/s, "
        f"Avg generation throughput: {generation:.1f} tokens/s, Running: {running} reqs, "
        f"Waiting: {waiting} reqs, GPU KV cache usage: 2.0%, Prefix cache hit rate: 0.0%"
    )


def start(k: int, model: str = "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4") -> list[str]:
    """A start in few lines, with speculation of k tokens (none: 0)."""
    config = f"{{'method': 'mtp', 'num_speculative_tokens': {k}}}"
    speculative = f", 'speculative_config': {config}" if k else ""
    arguments = f"{{'model': '{model}', 'max_num_batched_tokens': 16384{speculative}}}"
    return [
        f"{prefix(0, 'api_server.py:1')}vLLM API server version 0.20.0",
        f"{prefix(0, 'utils.py:233')}non-default args: {arguments}",
        f"{prefix(20, 'gpu_worker.py:440')}Available KV cache memory: 31.05 GiB",
        "(APIServer pid=1) INFO:     Application startup complete.",
    ]


def served(
    k: int, rates: Sequence[tuple[float, float]], speeds: dict[int, float], seed: int = 1
) -> Iterator[str]:
    """Windows of a server, each with the engine's line and that of speculation.

    Args:
        k: Tokens of a draft; 0 for none.
        rates: For each position the lowest and highest conditional acceptance.
        speeds: Running requests to the generation throughput of the server.
        seed: Of the noise.
    """
    noise = random.Random(seed)  # noqa: S311 - reproducible, no secret
    second = 20
    for running, speed in speeds.items():
        for _ in range(8):
            second += 10
            yield engine(speed * noise.uniform(0.99, 1.01), running, second)
            if not k:
                continue
            drafts = max(8, round(speed * 10 / (1 + k * 0.8)))
            left, accepted = drafts, []
            for low, high in rates:
                left = round(left * noise.uniform(low, high))
                accepted.append(left)
            yield current(Window(drafts, drafts * k, tuple(accepted)), second)


def log(lines: Sequence[str]) -> bytes:
    """Join lines to a log."""
    return "".join(f"{line}\n" for line in lines).encode()
