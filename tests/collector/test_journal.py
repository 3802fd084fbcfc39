"""The journald driver, with a real journald and engine in a name space of mounts of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forensics.archive.store import Archive
from forensics.collector.journal import message_of
from tests.collector.test_api import text_of

JOURNALD = "/lib/systemd/systemd-journald"

#: Runs in the name space: journald, an engine, a watcher; then containers; then the end of all.
_SCRIPT = r"""
mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/journal /run/log/journal
setsid JOURNALD >"$D/journald" 2>&1 </dev/null & J=$!
export DOCKER_HOST=unix://$D/s DOCKER_CONFIG=$D
setsid dockerd --data-root "$D/data" --exec-root "$D/exec" -H "$DOCKER_HOST" --pidfile "$D/pid" \
    --bridge none --iptables=false --ip6tables=false >"$D/log" 2>&1 </dev/null & E=$!
until_true() { for i in $(seq 600); do "$@" >/dev/null 2>&1 && return 0; sleep 0.2; done; return 1; }
until_true timeout 10 docker version
tar -C "$D/rootfs" -c . | docker import - box:1 >/dev/null
"$PYTHON" -m forensics watch --all --archive "$D/a" >"$D/out" 2>"$D/err" </dev/null & W=$!
until_true grep -q watching "$D/err"
run() { docker run --rm --network none --log-driver journald "$@"; }
run box:1 sh -c 'seq 1 3000; echo err >&2; printf "\\377bad\\n"' >/dev/null 2>&1
run box:1 sh -c 'head -c 40000 /dev/zero | tr "\\0" x; echo; printf end' >/dev/null 2>&1
two() { test "$(cat "$D"/a/runs/*/run.json | grep -c '"state": "final"')" = 2; }
until_true two
kill $W; wait $W; kill $E; wait $E; kill $J; wait $J
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    found = Path(tempfile.mkdtemp(prefix="jrn-", dir="/tmp"))
    yield found
    for path in sorted(found.rglob("*"), key=lambda p: -len(str(p))):
        if path.is_mount():
            subprocess.run(["umount", "-l", str(path)], check=False)
    shutil.rmtree(found, ignore_errors=True)


@pytest.mark.docker
@pytest.mark.slow
def test_removed_containers_are_read_out_of_the_journal(folder: Path) -> None:
    if os.geteuid() != 0 or not Path(JOURNALD).exists() or shutil.which("dockerd") is None:
        pytest.skip("needs root, dockerd and journald")
    root = folder / "rootfs/bin"
    root.mkdir(parents=True)
    shutil.copy(shutil.which("busybox") or "/bin/busybox", root / "busybox")
    for name in ("sh", "seq", "echo", "printf", "head", "tr"):
        (root / name).symlink_to("busybox")
    done = subprocess.run(
        ["unshare", "-m", "bash", "-c", _SCRIPT.replace("JOURNALD", JOURNALD)],
        env=os.environ | {"D": str(folder), "PYTHON": sys.executable},
        capture_output=True, timeout=280, check=False,
    )  # fmt: skip
    said = done.stderr.decode() + (folder / "err").read_text(errors="replace")

    archive = Archive.open(folder / "a")
    found = [archive.record(run) for run in archive.ids()]
    assert [one.tier for one in found] == ["journal", "journal"], said
    assert [one.completeness for one in found] == ["complete", "complete"], said
    first, second = (archive.path(run) for run in archive.ids())
    lines = b"".join(b"%d\n" % n for n in range(1, 3001))
    assert text_of(first, "stdout") == lines + b"\xffbad\n"
    assert text_of(first, "stderr") == b"err\n"
    assert text_of(second).rstrip(b"\n") == b"x" * 40000 + b"\nend"


@given(st.binary(max_size=40))
def test_a_message_is_text_or_numbers(data: bytes) -> None:
    assert message_of({"MESSAGE": list(data)}) == data
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return
    assert message_of({"MESSAGE": text}) == data


@pytest.mark.parametrize("entry", [{}, {"MESSAGE": None}, {"MESSAGE": [256]}, {"MESSAGE": ["x"]}])
def test_what_is_no_message_is_empty(entry: dict[str, object]) -> None:
    assert message_of(entry) == b""
