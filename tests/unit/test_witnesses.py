"""Whom a line beside the log speaks of, how its time lies, and which words are an observer's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forensics.beside import Told
from forensics.engines.generic import observes
from forensics.model import Context
from forensics.times import Moment, gap, moment
from forensics.witnesses import Scene, same_container, under, when_of, whose

ID, OTHER = "8f1e0b7d" * 8, "0d" * 32
NOW = datetime(2026, 12, 1, 2, 0, tzinfo=UTC)


def scene(
    *, container: str | None = ID, cut: bool = True, slow: bool = False, finished: bool = False
) -> Scene:
    return Scene(
        context=Context(container_id=container, pid=812),
        failed=moment(NOW.isoformat()),
        finished=moment(NOW.isoformat()) if finished else None,
        cut=cut,
        slow=slow,
        pids=frozenset({71, 22624}),
        engine="vllm",
    )


def told(
    after_s: float | None = 0,
    *,
    container: str | None = None,
    process: str | None = None,
    pid: int | None = None,
    zoned: bool = True,
) -> Told:
    at = None
    if after_s is not None:
        at = (NOW + timedelta(seconds=after_s)).isoformat()
        at = at if zoned else at.removesuffix("+00:00")
    return Told("dmesg", 1, "x", "x", "kernel", at, moment(at), None, pid, process, container)


@pytest.mark.parametrize(
    ("line", "who"),
    [
        (told(container=ID), "same"),
        (told(container=ID[:12], process="java"), "same"),
        (told(container=OTHER, process="VLLM::EngineCor"), "container"),
        (told(process="VLLM::EngineCor", pid=4711), "server"),
        (told(process="python3", pid=4711), "maybe"),
        (told(process="python3", pid=22624), "same"),
        (told(process="python3", pid=812), "same"),
        # A small number is another process in every container.
        (told(process="python3", pid=71), "maybe"),
        (told(process="java", pid=22624), "program"),
        (told(process="sglang::schedul"), "program"),
        (told(process="Xorg"), "program"),
        (told(), "nobody"),
    ],
)
def test_of_whom_a_line_speaks(line: Told, who: str) -> None:
    assert whose(line, scene()) == who


@pytest.mark.parametrize(
    ("line", "place", "when"),
    [
        (told(0), scene(), "near"),
        (told(-119), scene(), "near"),
        (told(-121), scene(), "far"),
        (told(599), scene(), "near"),
        (told(601), scene(), "far"),
        (told(7200, container=ID), scene(), "idle"),
        (told(7200, container=ID), scene(finished=True), "far"),
        (told(11), scene(finished=True), "far"),
        (told(11), scene(cut=False), "far"),
        (told(-1800), scene(cut=False, slow=True), "late"),
        (told(-1800), scene(cut=False), "far"),
        (told(0, zoned=False), scene(), "unsure"),
        (told(7200, zoned=False, container=ID), scene(finished=True), "unsure"),
        (told(7200, zoned=False), scene(finished=True), "far"),
        (told(None), scene(), "unknown"),
    ],
)
def test_how_a_time_lies(line: Told, place: Scene, when: str) -> None:
    assert when_of(line, place) == when


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (ID, ID, True),
        (ID[:12], ID, True),
        (ID, OTHER, False),
        (None, ID, None),
        ("8f", ID, None),
        ("", "", None),
    ],
)
def test_ids_may_be_short(one: str | None, other: str | None, same: bool | None) -> None:
    assert same_container(one, other) is same


def test_what_is_known_wins_over_what_is_added() -> None:
    found = under(Context(exit_code=1), Context(exit_code=137, oom_killed=True, container_id=ID))

    assert (found.exit_code, found.oom_killed, found.container_id) == (1, True, ID)


@given(st.integers(1_000_000_000, 3_700_000_000), st.integers(-86_400 * 100, 86_400 * 100))
def test_a_clock_without_a_year_lies_as_near_as_it_may(when: int, span: int) -> None:
    then = datetime.fromtimestamp(when + span, UTC)
    dated = Moment(when, zoned=False)
    clock = moment(None, then.strftime("%m-%d %H:%M:%S"))

    assert clock is not None
    assert gap(dated, clock) == span
    assert gap(clock, dated) == -span


def test_two_clocks_without_a_year_go_over_new_year() -> None:
    old, new = moment(None, "12-31 23:59:30"), moment(None, "01-01 00:00:10")

    assert old is not None
    assert new is not None
    assert gap(old, new) == 40


@pytest.mark.parametrize(
    "text",
    [
        "torch.distributed.DistBackendError: NCCL error in: x.cpp:88, remote process exited or there was a network error",
        "RuntimeError: [gloo/transport/tcp/pair.cc:525] Connection closed by peer [10.0.0.3]:51234",
        "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection reset by peer [10.0.0.3]:51234",
        "socketProgress: Connection closed by remote peer spark2<41234>",
        "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE",
        "torch.distributed.DistStoreError: wait timeout after 600000ms, keys: /worker/share_info",
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
        "aiohttp.client_exceptions.ServerDisconnectedError: Server disconnected",
        "httpx.ConnectError: All connection attempts failed",
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
        "ConnectionRefusedError: [Errno 111] Connection refused",
        "BrokenPipeError: [Errno 32] Broken pipe",
    ],
)
def test_words_of_an_observer(text: str) -> None:
    assert observes(text)


@pytest.mark.parametrize(
    "text",
    [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "ValueError: head size 42 is not supported",
        "torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
        "Worker proc VllmWorker-0 died unexpectedly (exit code -9)",
        "RuntimeError: NCCL error in: x.cpp:88, unhandled cuda error",
        "Memory cgroup out of memory: Killed process 4711 (VLLM::EngineCor)",
        "OSError: [Errno 28] No space left on device",
        "AssertionError",
    ],
)
def test_words_of_one_that_failed_by_itself(text: str) -> None:
    assert not observes(text)
