"""`forensics watch` and `forensics collect`: what containers print, kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from forensics.cli.options import Archive, Quiet, archive_folder

if TYPE_CHECKING:
    from pathlib import Path

    from forensics.collector.session import Plan

Host = Annotated[
    str | None,
    typer.Option("--host", "-H", help="The engine's address, as in DOCKER_HOST."),
]
Context = Annotated[str | None, typer.Option("--context", help="A Docker context.")]
Notify = Annotated[
    list[str] | None,
    typer.Option(
        "--notify", help="Send failures to this Apprise address (repeatable); once a restart loop."
    ),
]
Command = Annotated[
    str | None,
    typer.Option(
        "--exec",
        help="Run this when a run has ended; no shell. The run is named by FORENSICS_RUN, "
        "FORENSICS_RUN_PATH, FORENSICS_VERDICT and others in the environment.",
    ),
]


def watch(
    once: Annotated[
        bool, typer.Option("--once", help="Catch up with what is there, then end.")
    ] = False,
    all_: Annotated[
        bool, typer.Option("--all", help="Take every container, not only model servers.")
    ] = False,
    image: Annotated[
        list[str] | None,
        typer.Option("--image", help="Take containers of images like this (repeatable)."),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option("--name", help="Take containers with names like this (repeatable)."),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", help="Take containers with KEY or KEY=VALUE (repeatable)."),
    ] = None,
    notify: Notify = None,
    exec_: Command = None,
    metrics: Annotated[
        str | None,
        typer.Option("--metrics", help="Serve Prometheus metrics at HOST:PORT."),
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Only say which way logs would come from here, and why."),
    ] = False,
    host: Host = None,
    context: Context = None,
    archive: Archive = None,
    quiet: Quiet = False,
) -> int:
    """Follow an engine: keep the log of every model server, and diagnose it when it ends."""
    from forensics.collector.session import Plan

    if check:
        return _checked(host, context, archive)
    plan = Plan(
        host=host,
        context=context,
        everything=all_,
        images=tuple(image or ()),
        names=tuple(name or ()),
        labels=tuple(label or ()),
        once=once,
        notify=tuple(notify or ()),
        command=exec_,
        metrics=metrics,
    )
    return _started(plan, archive, quiet=quiet)


def collect(
    name: Annotated[list[str], typer.Argument(help="Names or ids of containers.")],
    notify: Notify = None,
    exec_: Command = None,
    host: Host = None,
    context: Context = None,
    archive: Archive = None,
    quiet: Quiet = False,
) -> int:
    """Keep the logs of containers that exist now, running or ended, and diagnose them."""
    from forensics.collector.session import Plan

    plan = Plan(
        host=host,
        context=context,
        containers=tuple(name),
        once=True,
        notify=tuple(notify or ()),
        command=exec_,
    )
    return _started(plan, archive, quiet=quiet)


def _checked(host: str | None, context: str | None, archive: Path | None) -> int:
    """Say which tier there is; 1 where logs can be lost."""
    from forensics.cli.output import write
    from forensics.collector.check import check
    from forensics.collector.engine import Engine
    from forensics.reporters.view import visible

    engine = Engine.connect(host, context)
    try:
        found = check(engine, archive_folder(archive))
    finally:
        engine.close()
    lines = [f"tier: {found.tier}"]
    lines += [f"  {'ok  ' if a.good else 'NOTE'} {a.name}: {a.text}" for a in found.answers]
    write("".join(f"{visible(line)}\n" for line in lines), None)
    return int(not all(answer.good for answer in found.answers))


def _started(plan: Plan, archive: Path | None, *, quiet: bool) -> int:
    from forensics.analysis import load_rules
    from forensics.cli.output import say, write
    from forensics.collector.session import start

    table = load_rules().tables["servers"]

    def told(line: str) -> None:
        if not quiet:
            write(f"{line}\n", None)

    return start(plan, archive_folder(archive), table, say, told)
