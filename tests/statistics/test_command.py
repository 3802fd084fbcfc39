"""The command: formats, sources, follow, and the contract of its JSON."""

from __future__ import annotations

import http.server
import io
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from forensics.errors import SourceError
from forensics.statistics import counters
from forensics.statistics.follow import FileFollower
from tests.stat_lines import log, served, start
from tests.support import ROOT

SPEC_LONG = ROOT / "samples/vllm/v032-happy-spec-long"
KEYS = {
    "": "schema source speculative throughput startup series findings",
    "speculative": "method num_speculative_tokens windows drafts draft_tokens accepted_tokens "
    "acceptance_rate mean_acceptance_length per_position accepted_throughput drafted_throughput "
    "excluded_warmup first_at last_at",
    "throughput": "generation_tokens_per_s prompt_tokens_per_s running waiting kv_cache_usage "
    "prefix_cache_hit_rate windows",
    "startup": "milestones weights_gib kv_cache_tokens max_concurrency compile_s capture_s total_s",
}


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give all commands of this file one cache that nobody else empties."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FORENSICS_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def forensics(*words: str, given: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "forensics", "stats", *words]
    return subprocess.run(command, input=given, capture_output=True, check=False, timeout=120)


def ran(*words: str, given: bytes | None = None) -> bytes:
    done = forensics(*words, given=given)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(ran(str(SPEC_LONG / "log.txt"), "--format", "json"))
    return data


@pytest.mark.parametrize("part", KEYS)
def test_the_contract_has_exactly_these_keys(document: dict[str, Any], part: str) -> None:
    assert list(document[part] if part else document) == KEYS[part].split()


def test_the_contract_says_what_it_is(document: dict[str, Any]) -> None:
    assert document["schema"] == "forensics/stats/1"
    assert document["source"]["name"] == str(SPEC_LONG / "log.txt")
    assert document["source"]["lines"] == 941
    assert document["source"]["bytes"] == (SPEC_LONG / "log.txt").stat().st_size
    points = document["series"]
    assert {p["scope"] for p in points} == {"window", "total", "load"}
    assert all(list(p)[:4] == ["at", "line", "name", "value"] for p in points)
    for point in points:
        if point["low"] is not None:
            assert point["low"] <= point["value"] <= point["high"]


def test_the_same_bytes_give_the_same_json(document: dict[str, Any]) -> None:
    again = json.loads(ran("-", "--format", "json", given=(SPEC_LONG / "log.txt").read_bytes()))
    assert again["source"].pop("kind") == "stdin"
    assert {k: v for k, v in again.items() if k != "source"} == {
        k: v for k, v in document.items() if k != "source"
    }


def test_a_table_has_one_row_a_window(tmp_path: Path) -> None:
    target = tmp_path / "windows.parquet"
    ran(str(SPEC_LONG / "log.txt"), "--format", "parquet", "--output", str(target))
    frame = pl.read_parquet(target)
    assert frame.height == 158
    assert frame["accepted_tokens"].sum() == 32_438
    assert frame["line"].is_sorted()
    text = ran(str(SPEC_LONG / "log.txt"), "--format", "csv")
    table = pl.read_csv(io.BytesIO(text))
    assert table.height == 158
    assert table["draft_tokens"].sum() == 116_167
    assert table["per_position"].drop_nulls()[0] == "0.768;0.598;0.537;0.366"


def test_the_terminal_needs_no_colour() -> None:
    text = ran(str(SPEC_LONG / "log.txt")).decode()
    assert "\x1b" not in text
    assert "27.9 %" in text
    assert "30,822 drafts (30,575 to 31,202)" in text
    assert "the first after the start left out" in text
    assert all(len(line) <= 80 for line in text.splitlines())


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.outside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        if tag != "meta":
            self.open.append(tag)
        self.outside += [value or "" for name, value in attrs if name in {"src", "href"}]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_stands_alone_and_is_well_formed(tmp_path: Path) -> None:
    hostile = tmp_path / "<script>.log"
    hostile.write_bytes((SPEC_LONG / "log.txt").read_bytes())
    page = _Page()
    page.feed(ran(str(hostile), "--format", "html").decode())
    assert page.open == []
    assert page.outside == []
    assert "script" not in page.seen
    assert page.seen.count("svg") == 6


def test_a_log_and_its_counters_are_compared() -> None:
    text = ran(str(SPEC_LONG / "log.txt"), str(SPEC_LONG / "metrics.prom")).decode()
    assert "Log against counters" in text
    assert "Log and counters agree" in text
    assert "differs" not in text


def test_several_logs_are_json_lines() -> None:
    other = SPEC_LONG.parent / "v032-spec-draft-self" / "log.txt"
    lines = ran(str(SPEC_LONG / "log.txt"), str(other), "-f", "json").splitlines()
    assert [json.loads(line)["schema"] for line in lines] == ["forensics/stats/1"] * 2


def test_a_benchmark_alone(tmp_path: Path) -> None:
    path = tmp_path / "table.md"
    path.write_text("| model | test | t/s |\n|---|---|---|\n| m | pp512 | 1024.00 ± 2.00 |\n")
    text = ran("--bench", str(path)).decode()
    assert "Benchmark: llama-bench table" in text
    assert "0.50" in text


def test_a_log_without_statistics_is_no_error() -> None:
    text = ran(given=b"INFO 05-02 10:00:00 [x.py:1] hello\n").decode()
    assert "There is no line of statistics in this log" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--format", "xml"), "--format xml is not known"),
        (("missing.log",), "missing.log does not exist"),
        (("--follow", "a", "b"), "--follow reads one log"),
        (("http://me:hunter2hunter2@127.0.0.1:9/metrics",), "http://me:***@127.0.0.1:9/metrics"),
        (("http://127.0.0.1:9/metrics",), "cannot be reached"),
    ],
)
def test_what_cannot_be_done_is_one_line(words: tuple[str, ...], said: str) -> None:
    done = forensics(*words, given=b"")
    assert done.returncode == 2
    assert said in done.stderr.decode()
    assert done.stderr.count(b"\n") == 1


@pytest.fixture
def endpoint() -> Iterator[str]:
    body = (SPEC_LONG / "metrics.prom").read_bytes()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = body if self.path == "/metrics" else b"hello"
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_endpoint_is_read_and_compared(endpoint: str) -> None:
    found = json.loads(ran(f"{endpoint}/metrics", "--format", "json"))
    assert found["source"]["kind"] == "metrics"
    assert found["speculative"]["drafts"] == 30_886
    assert found["speculative"]["windows"] == 0
    text = ran(str(SPEC_LONG / "log.txt"), f"{endpoint}/metrics").decode()
    assert "Log and counters agree" in text
    with pytest.raises(SourceError, match="holds no metrics"):
        counters.fetch(f"{endpoint}/elsewhere")


def test_counters_of_sglang_and_of_early_vllm() -> None:
    text = b"""# HELP sglang:num_running_reqs x
sglang:num_running_reqs{model_name="m"} 3.0
sglang:token_usage{model_name="m"} 0.25
sglang:gen_throughput{model_name="m"} 91.5
sglang:spec_accept_length{model_name="m"} 2.7
sglang:prompt_tokens_total{model_name="m"} 1000.0
sglang:generation_tokens_total{model_name="m"} 5000.0
"""
    assert counters.looks_like_metrics(text)
    found = counters.read(text, "m")
    assert (found.engine, found.running, found.acceptance_length) == ("sglang", 3.0, 2.7)
    early = b"""vllm:spec_decode_num_accepted_tokens_total{model_name="m"} 612.0
vllm:spec_decode_num_draft_tokens_total{model_name="m"} 1000.0
vllm:gpu_cache_usage_perc{model_name="m"} 0.5
vllm:prompt_tokens_total{model_name="a\\"}b",engine="0"} 1.0
vllm:prompt_tokens_total{model_name="m",engine="1"} 2.0
vllm:num_preemptions_total NaN
"""
    found = counters.read(early, "m")
    assert (found.accepted_tokens, found.kv_cache_usage, found.prompt_tokens) == (612, 0.5, 3)
    assert found.preemptions is None
    with pytest.raises(SourceError, match="holds no metrics"):
        counters.read(b"go_gc_duration_seconds 1\n", "m")


def test_a_log_is_not_taken_for_metrics() -> None:
    assert not counters.looks_like_metrics((SPEC_LONG / "log.txt").read_bytes())


def test_follow_takes_whole_lines_and_starts_anew_with_a_new_file(tmp_path: Path) -> None:
    path = tmp_path / "growing.log"
    lines = [*start(1), *served(1, [(0.9, 0.95)], {1: 20.0})]
    whole = log(lines)
    cut = len(whole) - 200  # in the middle of a line
    path.write_bytes(whole[:cut])
    follower = FileFollower(path)
    assert follower.look()
    assert not follower.look()
    first = follower.report({}).stats.speculative
    assert first is not None
    assert first.windows == 7
    with path.open("ab") as file:
        file.write(whole[cut:])
    assert follower.look()
    second = follower.report({}).stats
    assert second.speculative is not None
    assert second.speculative.windows == 8
    assert second.source.bytes == len(whole)
    path.write_bytes(log(lines[:6]))
    assert follower.look()
    third = follower.report({}).stats
    assert third.source.lines == 6


def test_follow_reads_a_pipe_to_its_end() -> None:
    lines = [*start(1), *served(1, [(0.9, 0.95)], {1: 20.0})]
    text = ran("--follow", "--interval", "0.2", "-", given=log(lines)).decode()
    assert "Speculation: mtp, 1 token a draft, 8 windows" in text


def test_follow_shows_the_file_anew_when_it_grows(tmp_path: Path) -> None:
    path = tmp_path / "growing.log"
    lines = [*start(1), *served(1, [(0.9, 0.95)], {1: 20.0})]
    path.write_bytes(log(lines[:10]))
    command = [
        sys.executable,
        "-m",
        "forensics",
        "stats",
        "--follow",
        "--interval",
        "0.1",
        str(path),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        seen = b""
        while b"What could not be known" not in seen:
            seen += process.stdout.readline()
        with path.open("ab") as file:
            file.write(log(lines[10:]))
        seen = b""
        while b"8 windows" not in seen:
            line = process.stdout.readline()
            assert line, "the command ended"
            seen += line
        process.terminate()
        process.communicate(timeout=30)
