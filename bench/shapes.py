"""How the lines of a vLLM server look: templates of whole phases, and single lines while it serves.

The templates under `templates/` were made from logs of real runs; only numbers, names and times
became placeholders. Times are seconds in, text out; vLLM prints neither year nor fraction.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TEMPLATES: Final = Path(__file__).resolve().parent / "templates"

# Days before each month of a year without a leap day: log times carry no year.
_MONTHS: Final = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_TIME: Final = re.compile(r"@\+(\d+)@")


class Lcg:
    """A 64-bit linear congruential generator: the same numbers on every machine and version."""

    __slots__ = ("state",)

    def __init__(self, seed: int) -> None:
        self.state = seed & 0xFFFFFFFFFFFFFFFF
        for _ in range(4):
            self.below(2)

    def below(self, limit: int) -> int:
        """Return a number from 0 to limit - 1 (limit at most 2**31)."""
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) & 0xFFFFFFFFFFFFFFFF
        return (self.state >> 33) % limit

    def between(self, low: int, high: int) -> int:
        """Return a number from low to high, both included."""
        return low + self.below(high - low + 1)

    def hexadecimal(self, digits: int) -> str:
        """Return lower-case hexadecimal digits, as in request ids and addresses."""
        return "".join(f"{self.below(16):x}" for _ in range(digits))


@dataclass(frozen=True, slots=True)
class Run:
    """What stays the same through one log: process ids, device word, draft length.

    Attributes:
        api: process id of the API server.
        core: process id of the engine core.
        worker: process id of the worker.
        device: the word before "KV cache usage" in statistics lines.
        drafts: speculative tokens a draft.
        rendezvous: name of the file where processes of one group meet.
    """

    api: int
    core: int
    worker: int
    device: str
    drafts: int
    rendezvous: str


def clock(second: int) -> str:
    """Write a second (0 = 1 January, 00:00:00) as vLLM does: `MM-DD HH:MM:SS`."""
    day, rest = divmod(second, 86_400)
    day %= 365
    month = 0
    while day >= _MONTHS[month]:
        day -= _MONTHS[month]
        month += 1
    hour, rest = divmod(rest, 3_600)
    minute, rest = divmod(rest, 60)
    return f"{month + 1:02d}-{day + 1:02d} {hour:02d}:{minute:02d}:{rest:02d}"


def phase(name: str, run: Run, second: int, **more: str) -> tuple[str, int]:
    """Fill one template.

    Args:
        name: the template's file name without its ending.
        run: process ids.
        second: the time of offset 0.
        more: further placeholders, for example `BAR`.

    Returns:
        The text with a line feed at its end, and the second of its last timed line.
    """
    text = (TEMPLATES / f"{name}.txt").read_text(encoding="utf-8")
    values = {"API": str(run.api), "CORE": str(run.core), "WORKER": str(run.worker), **more}
    values["RENDEZVOUS"] = f"file:{'/' * 3}tmp/vllm_dist_{run.rendezvous}"
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    last = max((int(found) for found in _TIME.findall(text)), default=0)
    text = text.replace("@+C@", clock(second)[6:])
    text = _TIME.sub(lambda match: clock(second + int(match[1])), text)
    # Files in a repository get their line ends changed; the sign stands for a carriage return.
    return text.replace("␍", "\r"), second + last


def access(client: str, port: int, request: str, status: str) -> str:
    """Write one access line of uvicorn (it prints no time)."""
    return f'INFO:     {client}:{port} - "{request} HTTP/1.1" {status}\n'


def statistics(run: Run, second: int, lcg: Lcg, requests: int) -> str:
    """Write the statistics line of ten seconds and the speculative line that follows it.

    The numbers agree with each other as the server's do: accepted = sum over positions, mean
    length = 1 + accepted / drafts, generated tokens = accepted + one a draft.
    """
    drafts = lcg.between(400, 4_000)
    positions = []
    accepted_here = drafts
    for position in range(run.drafts):
        share = lcg.between(700 - 60 * position, 930 - 60 * position)
        accepted_here = accepted_here * share // 1_000
        positions.append(accepted_here)
    accepted = sum(positions)
    drafted = drafts * run.drafts
    rates = ", ".join(f"{accepted_here / drafts:.3f}" for accepted_here in positions)
    prefix = f"(APIServer pid={run.api}) INFO {clock(second)} "
    return (
        f"{prefix}[loggers.py:335] Engine 000: Avg prompt throughput: "
        f"{requests * lcg.between(200, 9_000) / 100:.1f} tokens/s, Avg generation throughput: "
        f"{(accepted + drafts) / 10:.1f} tokens/s, Running: {lcg.between(1, 48)} reqs, "
        f"Waiting: {max(0, lcg.between(-12, 5))} reqs, {run.device} KV cache usage: "
        f"{lcg.between(4, 870) / 10:.1f}%, "
        f"Prefix cache hit rate: {lcg.between(112, 640) / 10:.1f}%\n"
        f"{prefix}[metrics.py:120] SpecDecoding metrics: "
        f"Mean acceptance length: {1 + accepted / drafts:.2f}, "
        f"Accepted throughput: {accepted / 10:.2f} tokens/s, "
        f"Drafted throughput: {drafted / 10:.2f} tokens/s, "
        f"Accepted: {accepted} tokens, Drafted: {drafted} tokens, "
        f"Per-position acceptance rate: {rates}, "
        f"Avg Draft acceptance rate: {100 * accepted / drafted:.1f}%\n"
    )


def request(run: Run, second: int, lcg: Lcg, *, with_parameters: bool) -> str:
    """Write what `--enable-log-requests` prints of one request; its parameters make a long line."""
    kind = ("cmpl", "chatcmpl")[lcg.below(2)]
    name = f"{kind}-{lcg.hexadecimal(16)}" + ("-0" if kind == "cmpl" else "")
    prefix = f"(APIServer pid={run.api}) INFO {clock(second)} "
    text = ""
    if with_parameters:
        text = (
            f"{prefix}[request_logger.py:65] Received request {name}: params: SamplingParams(n=1, "
            "presence_penalty=0.0, frequency_penalty=0.0, repetition_penalty=1.0, "
            f"temperature=0.{lcg.below(10)}, watermarking=None, top_p=0.{lcg.between(80, 99)}, "
            f"top_k={lcg.below(64)}, min_p=0.0, seed=None, stop=[], stop_token_ids=[], "
            "bad_words=[], thinking_token_budget=None, include_stop_str_in_output=False, "
            f"ignore_eos=False, max_tokens={lcg.between(16, 8_192)}, min_tokens=0, logprobs=None, "
            "prompt_logprobs=None, skip_special_tokens=True, spaces_between_special_tokens=True, "
            "structured_outputs=None, extra_args=None), lora_request: None.\n"
        )
    return f"{text}{prefix}[async_llm.py:578] Added request {name}-{lcg.hexadecimal(8)}.\n"


def warning(run: Run, second: int, lcg: Lcg) -> str:
    """Write a warning of a healthy server: a request with a temperature near zero."""
    return (
        f"(APIServer pid={run.api}) WARNING {clock(second)} [sampling_params.py:558] temperature "
        f"0.00{lcg.between(1, 9)} is less than 0.01, which may cause numerical errors nan or inf "
        "in tensors. We have maxed it out to 0.01.\n"
    )


def shard_bars(first: int, last: int, shards: int, rate: int) -> list[str]:
    """Write the states of the progress bar of loading that fall into one second.

    Args:
        first: shards loaded at the first of them.
        last: shards loaded at the last of them, itself included.
        shards: how many there are.
        rate: shards loaded a second.

    Returns:
        Lines without line ends.
    """
    passed = first // rate
    left = (shards - first) // rate
    tail = f"/{shards} [{passed // 60:02d}:{passed % 60:02d}<"
    tail += f"{left // 60:02d}:{left % 60:02d}, {rate:.2f}it/s]" if first else "?, ?it/s]"
    what = "Loading safetensors checkpoint shards:"
    return [
        f"{what} {100 * done // shards:3d}% Completed | {done}{tail}"
        for done in range(first, last + 1)
    ]
