"""`forensics guard`: run a container so that its evidence survives."""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forensics.cli.options import Archive, NoColor, Quiet, Rules

if TYPE_CHECKING:
    from forensics.archive.store import Archive as Store
    from forensics.collector.client import Client
    from forensics.collector.guard import Guard, Kept
    from forensics.collector.guarding import Guarded


def guard(
    command: Annotated[
        list[str],
        typer.Argument(help="-- docker run … (or podman run, docker compose up)."),
    ],
    archive: Archive = None,
    finish: Annotated[str | None, typer.Option("--finish", hidden=True)] = None,
    rules: Rules = None,
    no_color: NoColor = False,
    quiet: Quiet = False,
) -> int:
    """Run a container so that its evidence survives, also with --rm; then diagnose it."""
    from forensics.analysis import load_rules
    from forensics.archive.reading import diagnose_run
    from forensics.cli import output as out
    from forensics.cli.archived import opened_archive
    from forensics.collector import guard as guards
    from forensics.collector.client import client_of
    from forensics.collector.guarding import LABEL, guarded

    say = (lambda _: None) if quiet else out.say
    store = opened_archive(archive, create=True)
    kept = tuple(load_rules(rules or []).tables.get("servers", {}).get("environment", ()))
    if finish is not None:
        return _finish(store, finish, command, kept)
    token = secrets.token_hex(6)
    first = guarded(command, token)
    client = client_of(first.prefix, first.runtime)
    try:
        made = guarded(command, token, client.driver)
        worker = guards.Guard(client, store, kept, say)
        for one in worker.leftovers():
            say(f"kept what an earlier guard left behind: run {one.run}")
            if one.run is not None:
                diagnose_run(store, one.run)
        for change in made.changes:
            say(change)
        if made.kept is not None:
            say(f"{made.kept}: only its exit can be recorded")
        with guards.claim(store, token):
            events = guards.Recorder(client, f"{LABEL}={token}" if made.kind == "run" else "")
            began = time.time_ns()
            code = guards.run(made.words)
            found = _containers(client, made, token, began)
            if made.detached and found:
                guards.behind(made, token, store, found)
                say("its evidence is kept in the background, when it has ended")
                return code
            results = [_kept(worker, one, events) for one in found]
        _told(store, results, rules, quiet=quiet, no_color=no_color)
        return code
    finally:
        client.close()


def _containers(client: Client, made: Guarded, token: str, began: int) -> list[str]:
    from forensics.collector.guard import of_compose
    from forensics.collector.guarding import LABEL

    if made.kind == "run":
        return client.marked(f"{LABEL}={token}")
    return of_compose(client, os.getcwd(), began)  # noqa: PTH109 - as compose says it


def _kept(worker: Guard, container: str, events: object) -> Kept:
    from forensics.archive.disk import DiskFull
    from forensics.cli import output as out
    from forensics.collector.engine import EngineError
    from forensics.collector.guard import Kept, Recorder

    seen = events.of(container) if isinstance(events, Recorder) else []
    try:
        return worker.keep(container, seen)
    except (DiskFull, EngineError) as error:
        out.say(f"{error}; container {container[:12]} is left as it is, with its log")
        return Kept(None)


def _finish(store: Store, finish: str, command: list[str], kept: tuple[str, ...]) -> int:
    """Keep the evidence of containers that run in the background (called by ourselves only)."""
    from forensics.archive.reading import diagnose_run
    from forensics.cli import output as out
    from forensics.collector import guard as guards
    from forensics.collector.client import client_of
    from forensics.collector.guarding import LABEL

    token, *containers = finish.split(",")
    runtime = next((w for w in command if w.rpartition("/")[2] in {"podman", "nerdctl"}), "docker")
    client = client_of(command, runtime.rpartition("/")[2])
    try:
        worker = guards.Guard(client, store, kept, out.say)
        with guards.claim(store, token):
            events = guards.Recorder(client, f"{LABEL}={token}" if len(containers) == 1 else "")
            for container in containers:
                done = _kept(worker, container, events)
                if done.run is not None:
                    diagnose_run(store, done.run)
    finally:
        client.close()
    return 0


def _told(
    store: Store, results: list[Kept], rules: list[Path] | None, *, quiet: bool, no_color: bool
) -> None:
    """Diagnose what was kept; said on standard error, since the container has standard output."""
    import sys

    from msgspec.structs import replace

    from forensics.analysis import load_rules, prepare
    from forensics.archive import reading
    from forensics.cli import output as out
    from forensics.errors import SourceError
    from forensics.reporters.runs import failed
    from forensics.reporters.terminal import render

    engine = prepare(load_rules(rules or []))
    for result in results:
        if result.run is None:
            continue
        whole = "whole" if result.complete else "perhaps not whole"
        line = f"run {result.run}: {result.lines} lines kept, {whole}"
        try:
            diagnosis = reading.diagnose_run(store, result.run, engine)
            shown = reading.examine_run(store, result.run, engine) if diagnosis else None
        except SourceError:
            shown = None
        if quiet:
            continue
        if shown is None:
            record = store.record(result.run)
            out.say(f"{line}; {record.exit.error or record.exit.reading or 'it printed nothing'}")
            continue
        out.say(f"{line}; {shown[0].verdict}")
        if failed(shown[0]):
            color = out.use_color(no_color=no_color, to_file=False) and sys.stderr.isatty()
            view = out.view("terminal", None, no_color=not color, verbose=False)
            sys.stderr.write(render(shown[0], replace(view, excerpts=shown[2].excerpts)))
