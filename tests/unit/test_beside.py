"""Files beside a log: what they are is seen from their content, and each form tells when and whom."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forensics.beside import Beside, events, gpus, kernel, read
from forensics.errors import SourceError
from forensics.model import Source
from forensics.scanning import Memory
from tests.support import shipped

ID = "8f1e0b7d2a94c1f8e5d6b3a7f902e1d34c5b6a798897a6b5c4d3e2f101928374"
KILLED = (
    "Memory cgroup out of memory: Killed process 4711 (VLLM::EngineCor) total-vm:91534336kB, "
    "anon-rss:66920448kB, file-rss:58368kB, shmem-rss:0kB, UID:0 pgtables:180000kB oom_score_adj:0"
)
XID = "NVRM: Xid (PCI:0000:41:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
OOM = (
    f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,mems_allowed=0,oom_memcg="
    f"/system.slice/docker-{ID}.scope,task_memcg=/system.slice/docker-{ID}.scope,"
    "task=VLLM::EngineCor,pid=4711,uid=0"
)


def beside(content: str | bytes, name: str = "x") -> Beside:
    data = content if isinstance(content, bytes) else content.encode()
    engine = shipped()
    reader = Memory(data, Source("file", name))
    return read(reader, name, engine.finder.candidates, engine.wants.patterns, engine.wants.rules)


# ------------------------------------------------------------------------------------- kernel logs

#: How one message stands in each form, and the time that the form tells.
FORMS = {
    "dmesg": ("[81234.102331] {}", None),
    "dmesg -T": ("[Tue Dec  1 02:03:00 2026] {}", "2026-12-01T02:03:00"),
    "dmesg -x": ("kern  :err   : [81234.102331] {}", None),
    "dmesg -r": ("<3>[81234.102331] {}", None),
    "dmesg iso": ("2026-12-01T02:03:00,123456+00:00 {}", "2026-12-01T02:03:00.123456+00:00"),
    "short": ("Dec 01 02:03:00 spark kernel: {}", None),
    "syslog with uptime": ("Dec  1 02:03:00 spark kernel: [81234.102331] {}", None),
    "short-precise": ("Dec 01 02:03:00.123456 spark kernel: {}", None),
    "short-iso": ("2026-12-01T02:03:00+0100 spark kernel: {}", "2026-12-01T02:03:00+01:00"),
    "short-iso-precise": (
        "2026-12-01T02:03:00.123456+01:00 spark kernel: {}",
        "2026-12-01T02:03:00.123456+01:00",
    ),
    "rsyslog": (
        "2026-12-01T02:03:00.123456+00:00 spark kernel: [81234.102331] {}",
        "2026-12-01T02:03:00.123456+00:00",
    ),
    "short-monotonic": ("[81234.102331] spark kernel: {}", None),
    "short-unix": ("1796090580.000000 spark kernel: {}", "2026-12-01T02:03:00+00:00"),
    "short-full": ("Tue 2026-12-01 02:03:00 UTC spark kernel: {}", "2026-12-01T02:03:00+00:00"),
}


@pytest.mark.parametrize(("form", "at"), FORMS.values(), ids=list(FORMS))
@pytest.mark.parametrize("message", [KILLED, XID], ids=["oom", "xid"])
def test_each_form_of_a_kernel_log_is_read(form: str, at: str | None, message: str) -> None:
    other = "docker0: port 1(veth4f1c2ab) entered blocking state"

    found = beside("".join(form.format(m) + "\n" for m in (other, other, message)))

    assert found.kind == "kernel"
    assert [(t.line, t.message, t.at) for t in found.told] == [(3, message, at)]
    assert found.told[0].process == ("VLLM::EngineCor" if message == KILLED else None)


@pytest.mark.parametrize("form", ["short", "short-precise", "syslog with uptime"])
def test_a_clock_without_a_year_is_kept_to_reckon_with(form: str) -> None:
    (told,) = beside(FORMS[form][0].format(XID) + "\n").told

    assert told.moment is not None
    assert not told.moment.dated
    assert not told.moment.zoned


def test_dmesg_h_counts_from_line_to_line() -> None:
    found = beside(
        "[Dec 1 02:03] docker0: port 1(veth) entered blocking state\n"
        "[  +1.500000] docker0: port 1(veth) entered disabled state\n"
        f"[  +2.250000] {XID}\n"
        f"[Dec 1 02:05] {XID}\n"
    )

    first, second = (told.moment for told in found.told)
    assert first is not None
    assert second is not None
    assert second.seconds - first.seconds == pytest.approx(120 - 3.75)


def test_the_clock_set_at_boot_gives_times_to_uptimes() -> None:
    found = beside(
        "[    1.000000] rtc_cmos 00:02: setting system clock to 2026-12-01T02:00:00 UTC (1796090400)\n"
        f"[   61.000000] {XID}\n"
    )

    assert [told.at for told in found.told] == ["2026-12-01T02:01:00+00:00"]


@pytest.mark.parametrize(
    "context",
    [
        OOM,
        OOM.replace(f"/system.slice/docker-{ID}.scope", f"/docker/{ID}"),
        OOM.replace(f"/system.slice/docker-{ID}.scope", f"/kubepods/burstable/pod12-34/{ID}"),
        OOM.replace("docker-", "libpod-"),
        f"Task in /docker/{ID} killed as a result of limit of /docker/{ID}",
    ],
)
def test_the_container_of_a_killed_process_stands_in_an_earlier_line(context: str) -> None:
    found = beside(f"[10.000001] {context}\n[10.000002] Call Trace:\n[10.000003] {KILLED}\n")

    assert (found.told[-1].line, found.told[-1].container) == (3, ID)
    assert found.told[-1].pid == 4711


def test_the_line_of_another_process_lends_no_container() -> None:
    other = KILLED.replace("4711", "99")

    found = beside(f"[10.000001] {OOM}\n[10.000003] {other}\n")

    assert found.told[-1].container is None


def journal(form: str, message: str) -> str:
    fields = {
        "__REALTIME_TIMESTAMP": "1796090580000000",
        "_TRANSPORT": "kernel",
        "SYSLOG_IDENTIFIER": "kernel",
        "MESSAGE": message,
    }
    if form == "json":
        return json.dumps(fields) + "\n"
    return "".join(f"{k}={v}\n" for k, v in fields.items()) + "\n"


@pytest.mark.parametrize("form", ["json", "export"])
def test_a_journal_in_its_own_forms_is_read(form: str) -> None:
    found = beside(
        journal(form, "docker0: port 1(veth) entered blocking state") + journal(form, XID)
    )

    assert found.kind == "kernel"
    (told,) = found.told
    assert told.message == XID
    assert told.moment is not None
    assert told.moment.seconds == 1796090580


def test_a_flood_is_kept_in_part_and_said() -> None:
    found = beside("".join(f"[{n}.000001] {XID}\n" for n in range(5000)))

    assert found.dropped == 1000
    assert (found.told[0].line, found.told[-1].line) == (1, 5000)


@given(st.text(max_size=300))
def test_any_line_has_a_stamp(text: str) -> None:
    stamp = kernel.stamped(text)

    assert text.endswith(stamp.message)


@given(st.binary(max_size=2000))
def test_any_file_is_read_or_refused_in_one_line(data: bytes) -> None:
    said = ""
    try:
        beside(data)
    except SourceError as error:
        said = str(error)

    assert "\n" not in said


@given(st.lists(st.sampled_from([XID, KILLED, OOM, "", "[", "{}", "[ +", "-- Boot 1 --"]), max_size=20),
       st.sampled_from([form for form, _ in FORMS.values()]))  # fmt: skip
def test_lines_keep_their_numbers(messages: list[str], form: str) -> None:
    lines = [form.format("first"), *(form.format(m) if m else "" for m in messages)]

    told = beside("\n".join(lines) + "\n").told

    assert all(one.text == lines[one.line - 1] for one in told)


# ------------------------------------------------------------------------------------------ events


def event(action: str, second: int, **attributes: str) -> dict[str, object]:
    """An event as `docker events --format '{{json .}}'` prints it."""
    return {
        "status": action, "id": ID, "from": "vllm/vllm-openai:v0.32.0", "Type": "container", "Action": action,
        "Actor": {"ID": ID, "Attributes": {"name": "vllm", "image": "vllm/vllm-openai:v0.32.0", **attributes}},
        "scope": "local", "time": 1796090400 + second, "timeNano": (1796090400 + second) * 10**9,
    }  # fmt: skip


def test_both_forms_of_events_say_the_same() -> None:
    plain = (
        f"2026-12-01T02:00:07.000000000Z container die {ID} "
        "(execDuration=7, exitCode=137, image=vllm/vllm-openai:v0.32.0, name=vllm)\n"
    )
    as_json = json.dumps(event("die", 7, exitCode="137", execDuration="7")) + "\n"

    one, other = beside(plain), beside(as_json)

    assert one.kind == other.kind == "events"
    assert one.told[0].message == other.told[0].message
    assert one.told[0].moment == other.told[0].moment
    assert one.told[0].details == other.told[0].details
    assert (one.told[0].container, one.told[0].action) == (ID, "die")


def test_events_of_podman_are_read() -> None:
    line = {"ContainerExitCode": 137, "ID": ID, "Image": "i", "Name": "vllm", "Status": "died",
            "Time": "2026-12-01T02:00:07.5+00:00", "Type": "container", "Attributes": None}  # fmt: skip

    (told,) = beside(json.dumps(line) + "\n").told

    assert (told.action, told.details["exitCode"], told.details["name"]) == ("die", "137", "vllm")


def test_labels_with_commas_and_brackets_do_not_confuse() -> None:
    line = (
        f"2026-12-01T02:00:07Z container kill {ID} (com.x=a, b (c), image=i, name=vllm, "
        "note=signal 15, signal=9)"
    )

    told = events.parse(line, "x", 1)

    assert told is not None
    assert told.details == {"image": "i", "name": "vllm", "signal": "9"}


@pytest.mark.parametrize(
    "line",
    [
        "2026-12-01T02:00:07Z network disconnect abc (container=1, name=bridge, type=bridge)",
        json.dumps({"Type": "image", "Action": "pull", "Actor": {"ID": "x"}}),
        "2026-12-01T02:00:07Z container",
        '{"Type": "container"',
    ],
)
def test_what_is_no_event_of_a_container_is_left_out(line: str) -> None:
    assert events.parse(line, "x", 1) is None


@pytest.mark.parametrize("time", [None, True, "soon", 1e30, -5, float("nan"), [1]])
def test_an_event_with_a_strange_time_has_none_or_any(time: object) -> None:
    told = events.parse(json.dumps({**event("die", 1), "timeNano": 0, "time": time}), "x", 1)

    assert told is not None


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=9),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
                        st.sampled_from(["Type", "Action", "Actor", "ID", "Attributes", "time", "Status"]), inner,
                        max_size=5)))  # fmt: skip
def test_any_json_is_no_trouble(data: object) -> None:
    line = json.dumps(data)

    assert events.is_event(line) in {True, False}
    events.parse(line, "x", 1)


# --------------------------------------------------------------------------------------- nvidia-smi

REPORT = """
==============NVSMI LOG==============

Timestamp                                 : Tue Dec  1 02:10:00 2026
Driver Version                            : 580.95.05
CUDA Version                              : 13.0

Attached GPUs                             : 1
GPU 00000000:41:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    Remapped Rows
        Pending                           : Yes
"""
XML = """<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
	<timestamp>Tue Dec  1 02:10:00 2026</timestamp>
	<driver_version>580.95.05</driver_version>
	<cuda_version>13.0</cuda_version>
	<gpu id="00000000:41:00.0">
		<product_name>NVIDIA H100 80GB HBM3</product_name>
	</gpu>
</nvidia_smi_log>
"""
TABLE = """Tue Dec  1 02:10:00 2026
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 580.95.05              Driver Version: 580.95.05      CUDA Version: 13.0     |
+-----------------------------------------+------------------------+----------------------+
"""


@pytest.mark.parametrize("text", [REPORT, XML, TABLE], ids=["-q", "-q -x", "table"])
def test_gpus_say_driver_and_kind(text: str) -> None:
    found = beside(text)

    assert found.kind == "gpus"
    assert found.context is not None
    assert found.context.versions == {"driver": "580.95.05", "cuda": "13.0"}
    assert found.context.hardware.gpu == (None if text == TABLE else "NVIDIA H100 80GB HBM3")


def test_a_value_is_told_with_its_gpu_and_time() -> None:
    told = gpus.parse(REPORT.split("\n"), "x").told[-1]

    assert (told.message, told.at) == ("GPU 00000000:41:00.0 Pending: Yes", "2026-12-01T02:10:00")
    assert REPORT.split("\n")[told.line - 1] == told.text


# --------------------------------------------------------------------------------------- what it is


def test_inspect_data_is_read() -> None:
    data = [{"Id": ID, "Name": "/vllm", "State": {"ExitCode": 137, "OOMKilled": True, "Pid": 0}}]

    for content in (data, data[0]):
        found = beside(json.dumps(content, indent=4))
        assert (found.kind, found.told) == ("inspect", ())
        assert found.context is not None
        assert (found.context.container_id, found.context.exit_code) == (ID, 137)
        assert found.context.pid is None


@pytest.mark.parametrize(
    "content",
    [
        "INFO 12-01 02:00:00 [core.py:10] Loading weights took 0.08 seconds\n",
        "just words\nand more of them\n",
        "{}",
        "[{}]",
        '{"log":"hello\\n","stream":"stdout","time":"2026-03-04T05:06:07.123456789Z"}\n',
        "2026-12-01T02:03:00Z hello\n2026-12-01T02:03:01Z there\n",
        "Dec  1 02:03:00 spark vllm[12]: hello\n",
        json.dumps([{"Id": ID, "State": {}}, {"Id": "0" * 64, "State": {}}]),
    ],
)
def test_what_is_not_known_is_refused_in_one_line(content: str) -> None:
    with pytest.raises(SourceError) as caught:
        beside(content, "some.file")

    assert str(caught.value).startswith("some.file ")
    assert "\n" not in str(caught.value)
