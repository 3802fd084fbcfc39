"""The logs of one deployment as one: who failed first, and who only saw it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import permutations
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forensics.analysis import examine, examine_together
from forensics.envelopes import pipeline
from forensics.model import Diagnosis, Source
from forensics.scanning import Memory
from forensics.sharing import Shared, shared, skew, skews
from tests.support import (
    ENGINE_FAILED,
    ROOT,
    loaded,
    logged,
    serving,
    shipped,
    started,
    stopped,
    text,
    traceback,
)
from tests.test_cli import run

OUT_OF_MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity "
    "of 79.11 GiB of which 1.21 GiB is free. Process 71 has 77.88 GiB memory in use."
)
PEER_GONE = (
    "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:88, "
    "remote process exited or there was a network error, NCCL version 2.27.5"
)
GLOO_GONE = "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:525] Connection closed by peer [10.0.0.3]:51234"


def shifted(lines: list[str], seconds: int) -> list[str]:
    """The same lines by a clock that is so many seconds ahead (within the hour)."""
    out = []
    for line in lines:
        for minute in range(60):
            for second in range(60):
                stamp = f"12-01 02:{minute:02}:{second:02}"
                if stamp in line:
                    total = 2 * 3600 + minute * 60 + second + seconds
                    new = f"12-01 {total // 3600:02}:{total // 60 % 60:02}:{total % 60:02}"
                    line = line.replace(stamp, new)  # noqa: PLW2901 - once, then on
                    break
            else:
                continue
            break
        out.append(line)
    return out


def joined(rank: int) -> list[str]:
    """The process group is complete: all ranks print this at once."""
    return logged(
        "Worker",
        f"rank {rank} in world size 4 is assigned as DP rank 0, PP rank 0, TP rank {rank}, EP rank {rank}",
        clock="12-01 02:00:09",
    )


def rank_log(rank: int, exception: str | None = None, clock: str = "12-01 02:05:00") -> list[str]:
    """One rank's log up to a failure (or to where it just stops)."""
    lines = [*started(), *joined(rank), *loaded()]
    if exception is not None:
        lines += logged("EngineCore", "EngineCore failed to start.", "ERROR", clock=clock)
        lines += logged("EngineCore", traceback(exception), "ERROR", clock=clock)
    return lines


class Case:
    """A folder with the logs of a deployment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, logs: Mapping[str, list[str]]) -> Diagnosis:
        found = {}
        for name, lines in logs.items():
            path = self.folder / name
            path.write_text(text(lines))
            found[str(path)] = examine(str(path), shipped())
        return examine_together(found)[0][0]


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def where(found: Diagnosis) -> str | None:
    root = found.root_cause
    return Path(root.source).name if root is not None and root.source else None


# ------------------------------------------------------------------------------ initiator, observers

INITIATOR = {"rank3.log": rank_log(3, OUT_OF_MEMORY, "12-01 02:04:58")}
OBSERVERS = {
    "rank0.log": rank_log(0, PEER_GONE, "12-01 02:05:01"),
    "rank1.log": rank_log(1, GLOO_GONE, "12-01 02:05:00"),
}


@pytest.mark.parametrize(
    "order", list(permutations(["rank0.log", "rank1.log", "rank3.log"])), ids="-".join
)
def test_the_cause_is_where_it_began_in_any_order(case: Case, order: tuple[str, ...]) -> None:
    logs = {**INITIATOR, **OBSERVERS}

    found = case({name: logs[name] for name in order})

    assert found.root_cause is not None
    assert where(found) == "rank3.log"
    assert found.root_cause.exception is not None
    assert found.root_cause.exception.type == "torch.OutOfMemoryError"
    assert found.verdict == "diagnosed"
    assert found.source.kind == "together"
    assert all(name in found.source.name for name in order)
    symptoms = [f for f in found.findings if f.role == "symptom"]
    assert "nccl.remote-process-exited" in {f.rule for f in symptoms}
    assert {f.caused_by for f in symptoms} == {found.root_cause.rule}
    assert [f.role for f in found.findings].count("root_cause") == 1
    assert {Path(m.source).name for m in found.timeline if m.source} >= {"rank3.log", "rank0.log"}


def test_cited_lines_stand_in_the_log_that_is_named(case: Case) -> None:
    found = case({**INITIATOR, **OBSERVERS})

    for citation in (c for f in found.findings for c in f.evidence):
        assert citation.source is not None
        assert Path(citation.source).read_text().split("\n")[citation.line - 1] == citation.text


@pytest.mark.parametrize("ahead", [-1800, -40, 0, 25, 1800])
def test_a_clock_that_is_wrong_is_set_by_shared_events(case: Case, ahead: int) -> None:
    logs = {
        "rank0.log": OBSERVERS["rank0.log"],
        "rank3.log": shifted(INITIATOR["rank3.log"], ahead),
    }

    found = case(logs)

    assert where(found) == "rank3.log"
    way = "ahead of" if ahead >= 0 else "behind"
    said = [limit for limit in found.limits if "the clock of" in limit]
    assert len(said) == 1
    assert f"is {abs(ahead)} s {way} that of" in said[0]
    assert "give or take 2 s" in said[0]


def test_without_a_shared_event_the_clocks_decide_and_it_is_said(case: Case) -> None:
    logs = {name: [line for line in lines if "world size" not in line]
            for name, lines in {**INITIATOR, **OBSERVERS}.items()}  # fmt: skip
    sure, unsure = case({**INITIATOR, **OBSERVERS}), case(logs)

    assert where(unsure) == "rank3.log"
    assert any("share no event" in limit for limit in unsure.limits)
    assert unsure.findings[0].confidence < sure.findings[0].confidence


def test_of_two_causes_the_earlier_one_is_the_cause(case: Case) -> None:
    early = rank_log(1, "ValueError: head size 42 is not supported", "12-01 02:04:00")
    late = rank_log(2, OUT_OF_MEMORY, "12-01 02:05:00")

    assert where(case({"late.log": late, "early.log": early})) == "early.log"


def test_a_cause_after_the_others_lost_their_peer_is_not_sure(case: Case) -> None:
    late = rank_log(3, OUT_OF_MEMORY, "12-01 02:30:00")

    found = case({**OBSERVERS, "late.log": late})

    assert any("failed after others" in limit for limit in found.limits)
    assert found.verdict != "diagnosed"


def test_where_all_observe_the_one_that_says_nothing_is_where_it_began(case: Case) -> None:
    silent = rank_log(2)

    found = case({**OBSERVERS, "rank2.log": silent})

    assert where(found) == "rank2.log"
    assert any("says nothing of its end" in limit for limit in found.limits)
    assert "nccl.remote-process-exited" in {f.rule for f in found.findings if f.role == "symptom"}


def test_a_log_that_goes_on_is_not_where_it_began(case: Case) -> None:
    goes_on = [*rank_log(2), *logged("EngineCore", "still here", clock="12-01 02:40:00")]

    assert where(case({**OBSERVERS, "rank2.log": goes_on})) != "rank2.log"


def test_where_all_only_observe_it_is_said_whose_log_is_missing(case: Case) -> None:
    found = case(OBSERVERS)

    assert found.root_cause is not None
    assert any("the log of that one is not among them" in limit for limit in found.limits)
    assert found.verdict != "diagnosed"


def test_a_wrapper_in_the_head_points_to_the_worker(case: Case) -> None:
    head = [*started(), *joined(0), *traceback(ENGINE_FAILED).split("\n")]
    worker = rank_log(1, "ValueError: head size 42 is not supported", "12-01 02:05:00")

    assert where(case({"head.log": head, "worker.log": worker})) == "worker.log"


def test_healthy_logs_are_healthy_together(case: Case) -> None:
    healthy = [*started(), *loaded(), *serving(), *stopped()]

    found = case({"a.log": healthy, "b.log": healthy})

    assert (found.verdict, found.root_cause) == ("healthy", None)


def test_a_healthy_log_beside_a_failed_one_does_not_hide_it(case: Case) -> None:
    healthy = [*started(), *loaded(), *serving(), *stopped()]

    assert where(case({"router.log": healthy, **INITIATOR})) == "rank3.log"


# --------------------------------------------------------------------------------- shared events


def share(lines: list[str]) -> Shared:
    return shared(Memory(text(lines).encode(), Source("text", "x")))


NCCL = "host:1:2 [0] NCCL INFO ncclCommInitRank comm 0x55d0 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 41000 commId 0x8c1b2f - Init COMPLETE"
SHARED = {
    "comm": [*logged("W", "x", clock="12-01 02:00:09"), NCCL],
    "gloo": logged(
        "W",
        "[Gloo] Rank 0 is connected to 1 peer ranks. Expected number of connected peer ranks is : 1",
    ),
    "meeting": logged(
        "W",
        "world_size=2 rank=0 local_rank=0 distributed_init_method=tcp://10.0.0.1:29500 backend=nccl",
    ),
    "request": logged("W", "Added request chatcmpl-0123456789abcdef0123456789abcdef."),
    "group": ["[2026-12-01 02:00:00 TP0] Init torch distributed ends. mem usage=0.00 GB"],
}


@pytest.mark.parametrize("kind", list(SHARED))
def test_each_kind_of_event_is_seen_with_its_time(kind: str) -> None:
    found = share(SHARED[kind])

    assert [key[0] for key in found.events] == [kind]
    assert all(times for times in found.events.values())


def test_a_line_without_a_time_has_that_of_the_line_before() -> None:
    ahead = share(["", *shifted(logged("W", "x", clock="12-01 02:00:09"), 30), NCCL])

    by = skew(ahead, share(SHARED["comm"]))

    assert by is not None
    assert (by.seconds, by.within, by.events) == (30, 1, 1)


def test_times_of_an_envelope_are_those_of_their_lines() -> None:
    lines = ["x", *SHARED["gloo"], "y", NCCL, "z", *SHARED["request"]]
    wrapped = [f"2026-12-01T02:00:{n:02}.000000000Z {line}" for n, line in enumerate(lines)]

    found = share(wrapped)

    assert {key[0]: times[0].seconds % 60 for key, times in found.events.items()} == {
        "gloo": 1, "comm": 3, "request": 5,
    }  # fmt: skip


def test_the_event_that_is_told_most_nearly_at_once_counts() -> None:
    mine = share([*shifted(SHARED["meeting"], 50), *shifted(SHARED["comm"], 3)])

    by = skew(mine, share([*SHARED["meeting"], *SHARED["comm"]]))

    assert by is not None
    assert by.seconds == 3


def test_clocks_are_compared_over_a_log_between() -> None:
    a = share(SHARED["comm"])
    b = share([*shifted(SHARED["comm"], 10), *shifted(SHARED["gloo"], 10)])
    c = share(shifted(SHARED["gloo"], 40))

    found = skews([a, b, c, share(["nothing"])])

    assert [one and one.seconds for one in found] == [0, 10, 40, None]


@given(st.integers(0, 1700), st.integers(0, 1700))
@settings(max_examples=20, deadline=None)
def test_skew_is_antisymmetric(a: int, b: int) -> None:
    one, other = share(shifted(SHARED["comm"], a)), share(shifted(SHARED["comm"], b))

    there, back = skew(one, other), skew(other, one)

    assert there is not None
    assert back is not None
    assert there.seconds == -back.seconds == a - b


@given(st.binary(max_size=3000))
def test_any_bytes_are_no_trouble(data: bytes) -> None:
    assert pipeline(data) is not None
    shared(Memory(data, Source("text", "x")))


@settings(
    max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(
    st.lists(
        st.sampled_from([None, OUT_OF_MEMORY, PEER_GONE, GLOO_GONE, "ValueError: x"]),
        min_size=2,
        max_size=4,
    )
)
def test_any_mix_has_one_root_and_stands_in_its_log(case: Case, mix: list[str | None]) -> None:
    found = case({f"{n}.log": rank_log(n, said) for n, said in enumerate(mix)})

    assert [f.role for f in found.findings].count("root_cause") <= 1
    root = found.root_cause
    assert root is not None or not any(mix)
    if root is not None:
        assert root.source is not None
        assert Path(root.source).read_text().split("\n")[root.line - 1] == root.text
        own = {n for n, said in enumerate(mix) if said in {OUT_OF_MEMORY, "ValueError: x"}}
        assert not own or int(Path(root.source).stem) in own


CASES = sorted((ROOT / "samples").rglob("together.yaml"))


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.parent.name)
def test_samples_of_deployments(path: Path) -> None:
    want = yaml.safe_load(path.read_text())
    names = [str(path.parent / name) for name in want["logs"]]

    found = examine_together({name: examine(name, shipped()) for name in names})[0][0]

    assert want["made"] in {"real", "reconstructed", "synthetic"}
    assert want["redacted"] is True
    root = found.root_cause
    assert root is not None
    assert (found.verdict, found.outcome) == (want["verdict"], want["outcome"])
    assert (root.rule, where(found), root.line) == (want["rule"], want["file"], want["line"])


def test_what_followed_is_said_once(case: Case) -> None:
    found = case({**INITIATOR, **OBSERVERS})

    followed = [limit for limit in found.limits if limit.startswith("followed in")]
    assert len(followed) == 1
    assert "Gloo" in followed[0] or "gloo" in followed[0]
    assert "nccl.remote-process-exited" in {m.milestone for m in found.timeline}


# ----------------------------------------------------------------------------------- the command


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, lines in {**INITIATOR, **OBSERVERS}.items():
        (tmp_path / name).write_text(text(lines))
    return tmp_path


@pytest.mark.parametrize("format_", ["terminal", "markdown", "sarif", "json"])
def test_one_report_names_the_log(folder: Path, format_: str) -> None:
    found = run(
        "diagnose", "--together", "rank0.log", "rank1.log", "rank3.log", "-f", format_, cwd=folder
    )

    assert (found.returncode, found.stderr) == (1, b"")
    assert b"rank3.log" in found.stdout
    if format_ == "json":
        data = json.loads(found.stdout)
        assert data["root_cause"]["source"] == "rank3.log"


def test_a_folder_is_one_deployment(folder: Path) -> None:
    found = run("diagnose", "--together", ".", "-f", "json", cwd=folder)

    assert found.returncode == 1
    assert json.loads(found.stdout)["root_cause"]["source"].endswith("rank3.log")


@pytest.mark.parametrize(
    "arguments",
    [
        ["rank0.log"],
        ["rank0.log", "rank0.log"],
        ["rank0.log", "rank1.log", "--exit-code", "1"],
        ["rank0.log", "rank1.log", "--running"],
        ["rank0.log", "missing.log"],
    ],
)
def test_wrong_use_is_one_line_and_2(folder: Path, arguments: list[str]) -> None:
    found = run("diagnose", "--together", *arguments, cwd=folder)

    assert (found.returncode, found.stdout) == (2, b"")
    assert found.stderr.count(b"\n") == 1
