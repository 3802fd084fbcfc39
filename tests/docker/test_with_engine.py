"""What a real engine says of a container's end, read beside the container's log."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from forensics.analysis import examine, examine_all, read_beside
from forensics.model import Diagnosis
from tests.engines import Dockerd, engine_of, wait_for
from tests.support import loaded, shipped, started, text

pytestmark = [pytest.mark.docker, pytest.mark.slow]

LOG = text(started(), loaded()[:2])
#: A server that ends only when it is killed.
STUBBORN = f"trap '' TERM; printf %s {shlex.quote(LOG)}; while true; do sleep 1; done"


@pytest.fixture(scope="module")
def daemon() -> Iterator[Dockerd]:
    with engine_of() as found:
        yield found


class Ended:
    """A container that has ended, with everything that its engine says of it, in files."""

    def __init__(self, daemon: Dockerd, folder: Path, *end: str) -> None:
        name = self.name = "server-" + "-".join(end)
        began = daemon.run("date +%s", "--rm", detach=False).strip()
        self.id = daemon.run(STUBBORN, "--name", name)
        wait_for(lambda: LOG[-40:] in daemon.docker("logs", name).stdout.decode())
        other = daemon.run("exit 7", "--name", f"other-{name}")
        daemon.docker("wait", other)
        daemon.docker(*end, name)
        daemon.docker("wait", name)
        until = str(int(daemon.run("date +%s", "--rm", detach=False).strip()) + 1)
        events = ("events", "--since", began, "--until", until)
        self.log = folder / "log"
        self.files = {
            "plain": daemon.docker(*events).stdout,
            "json": daemon.docker(*events, "--format", "{{json .}}").stdout,
            "inspect": daemon.docker("inspect", name).stdout,
        }
        self.log.write_bytes(daemon.docker("logs", "--timestamps", name).stdout)
        for kind, data in self.files.items():
            (folder / kind).write_bytes(data)

    def diagnosed(self, *kinds: str) -> Diagnosis:
        engine = shipped()
        asides = read_beside([str(self.log.parent / kind) for kind in kinds], engine)
        return examine_all(str(self.log), engine, asides=asides)[-1][0]


@pytest.mark.parametrize("form", ["plain", "json"])
def test_events_tell_a_stop_that_ran_out_from_a_kill(
    daemon: Dockerd, tmp_path_factory: pytest.TempPathFactory, form: str
) -> None:
    for end, rule in (
        (("stop", "-t", "1"), "container.stop-timed-out"),
        (("kill",), "container.killed-by-engine"),
    ):
        ended = Ended(daemon, tmp_path_factory.mktemp("ended"), *end)
        alone = examine(str(ended.log), shipped())[0]

        found = ended.diagnosed("inspect", form)
        without = ended.diagnosed(form)

        assert alone.run.exit_code is None
        assert found.root_cause is not None
        assert found.root_cause.rule == rule
        assert found.root_cause.source is not None
        assert found.root_cause.source.endswith(form)
        assert (found.run.exit_code, found.outcome) == (137, "killed")
        assert found.run.container == ended.name
        entries = [m.milestone for m in found.timeline if m.source is not None]
        assert entries[-1].startswith("container_")
        assert "container_kill" in entries
        # Others ended in the same seconds: whose log this is then only inspect data tell.
        assert without.root_cause == alone.root_cause
        assert any("not which of them" in limit for limit in without.limits)
        daemon.docker("rm", "-f", *daemon.docker("ps", "-aq").stdout.decode().split())
