"""Writes vLLM logs of any size: the same bytes for the same kind, size and seed, everywhere.

    python -m bench.generate healthy 500MB OUT

Whole phases (start, crash, shutdown) come from templates; between them a server serves. Access
lines are rendered once into a pool and then taken from it in ever different order, which costs
little a byte; lines that carry a time are written anew each time.
"""

import argparse
import datetime as dt
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from bench import shapes

CHUNK: Final = 4_000_000  # bytes joined before they are handed on
POOL: Final = 30_000  # access lines rendered once
SMALL_LINES: Final = 2_000
_FAILED_AT: Final = b"RuntimeError: start (0) + length ("
_CRASHED_AT: Final = b"TypeError: 'function' object is not subscriptable"
_UNITS: Final = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 2**10, "MI": 2**20, "GI": 2**30}
# Share of requests in thousandths, request line, answer.
_REQUESTS: Final = (
    (520, "POST /v1/chat/completions", "200 OK"),
    (330, "POST /v1/completions", "200 OK"),
    (70, "GET /health", "200 OK"),
    (35, "GET /metrics", "200 OK"),
    (20, "GET /v1/models", "200 OK"),
    (12, "POST /v1/chat/completions", "400 Bad Request"),
    (5, "POST /v1/completions", "400 Bad Request"),
    (5, "POST /v1/chat/completions", "404 Not Found"),
    (3, "GET /favicon.ico", "404 Not Found"),
)


class Kind(StrEnum):
    """What happens in the log."""

    HEALTHY = "healthy"  # starts, serves, is shut down in order
    FAILED_END = "failed-end"  # serves in health, then the worker dies and everything after it
    FAILED_START = "failed-start"  # dies while it loads its weights
    STATISTICS = "statistics"  # serves in health; every second kilobyte is a pair of statistics
    SMALL = "small"  # a failed start of 2,000 lines, whatever the size asked for
    DOCKER_JSON = "docker-json"  # the healthy log as Docker's json-file driver keeps it


@dataclass(frozen=True, slots=True)
class Made:
    """One generated log.

    Attributes:
        kind: what happens in it.
        bytes: its size in bytes.
        lines: how many lines it has (line feeds).
        root_line: 1-based line of the root cause; None for a healthy log.
        root_text: the text that stands in that line; None for a healthy log.
    """

    kind: Kind
    bytes: int
    lines: int
    root_line: int | None
    root_text: str | None


def size_of(text: str) -> int:
    """Read a size such as `500MB` (10**6), `20MiB` (2**20) or `1000` as bytes.

    Raises:
        ValueError: it is not a size.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmg]i?)?b?", text.strip(), re.IGNORECASE)
    if found is None:
        raise ValueError(f"not a size: {text!r} (write for example 500MB)")
    return int(float(found[1]) * _UNITS[(found[2] or "").upper()])


def chunks(kind: Kind, size: int, seed: int = 1) -> Iterator[bytes]:
    """Yield a log piece by piece; each piece ends at a line end.

    Args:
        kind: what happens in it.
        size: bytes wanted, without what wraps the lines; met within one line when it exceeds
            what the fixed phases need (about 50 kB), otherwise the log is as long as they are.
        seed: another seed gives other numbers.
    """
    if kind is Kind.DOCKER_JSON:
        yield from _docker_json(chunks(Kind.HEALTHY, size, seed))
        return
    lcg = shapes.Lcg(seed)
    on_cpu = kind not in {Kind.HEALTHY, Kind.STATISTICS}
    api = lcg.between(8_000, 28_000)
    core = api + lcg.between(20, 400)
    run = shapes.Run(
        api=api,
        core=core,
        worker=core + lcg.between(20, 400),
        device="CPU" if on_cpu else "GPU",
        drafts=1 if on_cpu else 3,
        rendezvous=lcg.hexadecimal(32),
    )
    second = lcg.between(0, 200) * 86_400 + lcg.below(86_400)
    if kind is Kind.SMALL:
        yield from _failed_start(run, second, lcg, size=None)
    elif kind is Kind.FAILED_START:
        yield from _failed_start(run, second, lcg, size=size)
    else:
        yield from _served(kind, run, second, lcg, size)


def generate(kind: Kind, size: int, out: Path, seed: int = 1) -> Made:
    """Write a log to a file and say what is in it (arguments as for `chunks`)."""
    total = lines = 0
    root_line: int | None = None
    root_text: str | None = None
    healthy = dict.fromkeys((Kind.HEALTHY, Kind.STATISTICS, Kind.DOCKER_JSON))
    sought = (healthy | {Kind.FAILED_END: _CRASHED_AT}).get(kind, _FAILED_AT)
    with out.open("wb") as file:
        for chunk in chunks(kind, size, seed):
            if sought is not None and root_line is None and (at := chunk.find(sought)) >= 0:
                root_line = lines + chunk.count(b"\n", 0, at) + 1
                root_text = chunk[at : chunk.index(b"\n", at)].decode().rstrip()
            file.write(chunk)
            total += len(chunk)
            lines += chunk.count(b"\n")
    return Made(kind, total, lines, root_line, root_text)


def _docker_json(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Wrap lines as Docker's json-file driver does, a millisecond apart."""
    number = 0
    for piece in pieces:
        out = []
        for line in piece.decode().splitlines(keepends=True):
            number += 1
            body = json.dumps(line, ensure_ascii=False)
            body = body.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
            at = dt.datetime(2026, 12, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=number)
            stamp = at.strftime("%Y-%m-%dT%H:%M:%S.%f").rstrip("0")
            out.append(f'{{"log":{body},"stream":"stderr","time":"{stamp}Z"}}\n')
        yield "".join(out).encode()


def _served(
    kind: Kind, run: shapes.Run, second: int, lcg: shapes.Lcg, size: int
) -> Iterator[bytes]:
    """Yield start, serving up to the size wanted, and the end."""
    name = "start-cpu" if run.device == "CPU" else "start-gpu"
    head, second = shapes.phase(name, run, second)
    ending = "crash" if kind is Kind.FAILED_END else "stop"
    end_bytes = len(shapes.phase(ending, run, second)[0].encode())
    pool = _pool(lcg)
    pieces = [head.encode()]
    held = len(pieces[0])
    left = size - held - end_bytes
    while left > 0:
        second += 10
        if kind is Kind.STATISTICS:
            window = _sparse_window(run, second, lcg, pool)
        else:
            window = _window(run, second, lcg, pool)
        if len(window) > left:
            # Access lines fill what is left: the first window is the shortest thing that ends.
            window = _fill(pool, left)
            left = 0
        left -= len(window)
        pieces.append(window)
        held += len(window)
        if held >= CHUNK:
            yield b"".join(pieces)
            pieces, held = [], 0
    pieces.append(shapes.phase(ending, run, second + 3)[0].encode())
    yield b"".join(pieces)


def _pool(lcg: shapes.Lcg) -> list[bytes]:
    """Render access lines in random order and shares."""
    wheel = [answer for share, *answer in _REQUESTS for _ in range(share)]
    clients = [f"10.{lcg.below(4)}.{lcg.below(256)}.{lcg.between(2, 254)}" for _ in range(40)]
    clients += ["127.0.0.1"] * 12 + ["172.17.0.1"] * 12
    pool = []
    for _ in range(POOL):
        line, status = wheel[lcg.below(len(wheel))]
        port = lcg.between(32_768, 60_999)
        pool.append(shapes.access(clients[lcg.below(len(clients))], port, line, status).encode())
    return pool


def _window(run: shapes.Run, second: int, lcg: shapes.Lcg, pool: list[bytes]) -> bytes:
    """Write the ten seconds before `second`: requests, now and then a warning, statistics."""
    requests = lcg.between(30, 220)
    pieces: list[bytes] = []
    parts = lcg.between(2, 5)
    for part in range(parts):
        count = requests // parts
        step = lcg.between(1, 9)
        first = lcg.below(POOL - count * step)
        pieces += pool[first : first + count * step : step]
        at = second - 10 + 10 * part // parts
        if run.device == "GPU":
            pieces.append(shapes.request(run, at, lcg, with_parameters=part == 0).encode())
        if lcg.below(40) == 0:
            pieces.append(shapes.warning(run, at, lcg).encode())
    pieces.append(shapes.statistics(run, second, lcg, requests).encode())
    return b"".join(pieces)


def _sparse_window(run: shapes.Run, second: int, lcg: shapes.Lcg, pool: list[bytes]) -> bytes:
    """Write ten seconds of few requests: about 1,000 bytes, half of them statistics."""
    first = lcg.below(POOL - 6)
    statistics = shapes.statistics(run, second, lcg, lcg.between(30, 220))
    return b"".join([*pool[first : first + 6], statistics.encode()])


def _fill(pool: list[bytes], size: int) -> bytes:
    """Take lines from the pool up to a size in bytes, and not over it."""
    taken = 0
    for count, line in enumerate(pool):
        if taken + len(line) > size:
            return b"".join(pool[:count])
        taken += len(line)
    return b"".join(pool)


def _failed_start(
    run: shapes.Run, second: int, lcg: shapes.Lcg, *, size: int | None
) -> Iterator[bytes]:
    """Yield a start that dies while it loads: at a size in bytes, or 2,000 lines where it is None.

    Loading is what is made longer: the states of its progress bar, each a line of its own.
    """
    head, second = shapes.phase("load-cpu", run, second)
    tail = shapes.phase("failed-load", run, second)[0]
    rate = lcg.between(14, 26)
    if size is None:
        left = bars = SMALL_LINES - head.count("\n") - tail.count("\n")
    else:
        left = size - len(head.encode()) - len(tail.encode())
        bars = left // 80  # about the length of a bar: only the number of shards hangs on it
    shards = bars + lcg.between(3, 40)
    pieces = [head]
    held = done = 0
    while left > 0:
        lines = [f"\r{bar}\n" for bar in shapes.shard_bars(done, done + rate - 1, shards, rate)]
        if size is None:
            lines = lines[:left]
            left -= len(lines)
        elif (length := sum(map(len, lines))) > left:
            lines = lines[: left * len(lines) // length]
            left = 0
        else:
            left -= length
        pieces += lines
        held += len(lines)
        done += len(lines)
        if held >= CHUNK // 80:
            yield "".join(pieces).encode()
            pieces, held = [], 0
    (bar,) = shapes.shard_bars(done, done, shards, rate)
    pieces.append(shapes.phase("failed-load", run, second + done // rate + 1, BAR=bar)[0])
    yield "".join(pieces).encode()


def main(arguments: list[str] | None = None) -> int:
    """Write one log and print what is in it as JSON; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.generate", description=__doc__)
    parser.add_argument("kind", type=Kind, choices=list(Kind))
    parser.add_argument("size", type=size_of, help="for example 500MB; `small` takes no notice")
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    print(json.dumps(asdict(generate(given.kind, given.size, given.out, given.seed))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
