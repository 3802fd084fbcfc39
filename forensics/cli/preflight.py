"""`forensics preflight`: a launch command, checked before it is started."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

FORMATS = ("terminal", "text", "json", "markdown", "sarif")


def preflight(
    launch: Annotated[
        list[str],
        typer.Argument(
            help="Launch files (shell script, compose file, systemd unit, Kubernetes manifest, "
            "inspect JSON), docker:NAME, or - for standard input.",
            metavar="LAUNCH...",
        ),
    ],
    format_: Annotated[
        str, typer.Option("--format", "-f", help="terminal, text, json, markdown or sarif.")
    ] = "terminal",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write to this file.")
    ] = None,
    apply_to: Annotated[
        Path | None,
        typer.Option("--apply-to", help="Write the corrected launch to this new file."),
    ] = None,
    engine_version: Annotated[
        str | None,
        typer.Option("--engine-version", help="The server's version, if the image does not tell."),
    ] = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Do not ask this machine or its engine anything.")
    ] = False,
    gpu: Annotated[str | None, typer.Option("--gpu", help="The GPU's name, e.g. GB10.")] = None,
    compute_capability: Annotated[
        str | None, typer.Option("--compute-capability", help="E.g. 12.1.")
    ] = None,
    arch: Annotated[str | None, typer.Option("--arch", help="x86_64 or aarch64.")] = None,
    model_config: Annotated[
        Path | None,
        typer.Option("--model-config", help="The model's config.json, or its folder."),
    ] = None,
    skip_unrelated: Annotated[
        bool,
        typer.Option("--skip-unrelated", help="Pass over files that start nothing (for hooks)."),
    ] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Also say which rules could not be told.")
    ] = False,
    rules: Annotated[
        list[Path] | None, typer.Option("--rules", help="A folder with more rules (repeatable).")
    ] = None,
    no_color: Annotated[bool, typer.Option("--no-color", help="No colours.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the exit code.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show what is folded.")] = False,
) -> int:
    """Check launch commands before they are started, and hand back corrected ones."""
    from forensics.analysis import load_rules, prepare
    from forensics.cli import output as out
    from forensics.cli.launches import write_new
    from forensics.errors import UsageError
    from forensics.launch.model import NothingStarted
    from forensics.model import Hardware
    from forensics.reporters import View

    if format_ not in FORMATS:
        raise UsageError(f"--format {format_} is not known", f"one of {', '.join(FORMATS)}")
    out.refuse_overwrite(output, launch)
    stated = Hardware(gpu, compute_capability, arch)
    engine = prepare(load_rules(rules or []))
    checked = []
    for name in launch:
        try:
            checked += _check(name, engine, stated, engine_version, model_config, offline=offline)
        except NothingStarted:
            if not skip_unrelated:
                raise
    if apply_to is not None and len(checked) != 1:
        raise UsageError("--apply-to takes one launch", f"these are {len(checked)}")
    view = View(
        width=out.width(),
        color=format_ == "terminal"
        and out.use_color(no_color=no_color, to_file=output is not None),
        several=len(checked) > 1,
        verbose=verbose,
    )
    text = _text(checked, format_, view, explain=explain)
    if output is not None or not quiet:
        out.write(text, output)
    if apply_to is not None:
        write_new(checked[0].correction, apply_to, Path(launch[0]))
    return int(any(one.diagnosis.verdict == "diagnosed" for one in checked))


def _check(
    name: str,
    engine: Any,  # noqa: ANN401 - forensics.analysis.Engine, imported late
    stated: Any,  # noqa: ANN401 - forensics.model.Hardware
    version: str | None,
    model_config: Path | None,
    *,
    offline: bool,
) -> list[Any]:
    """Check every launch of one source."""
    from forensics import surroundings
    from forensics.cli.launches import read
    from forensics.model import Hardware
    from forensics.preflight import Known, check

    forms, beside = read(name)
    mine = Hardware() if offline else surroundings.hardware()
    machine = Hardware(stated.gpu or mine.gpu, stated.compute_capability, stated.arch or mine.arch)
    found = []
    for form in forms:
        launch = form.launch
        config = None
        if model_config is not None or not offline:
            config = surroundings.model_config(launch, model_config)
        known = Known(
            versions={launch.program: version} if version and launch.program else {},
            hardware=machine,
            model_config=config,
            host=None if offline or name.startswith("docker:") else surroundings.host_facts(launch),
        )
        found.append(check(form, engine, known, beside))
    return found


def _text(checked: list[Any], format_: str, view: Any, *, explain: bool) -> str:  # noqa: ANN401
    from msgspec.structs import replace

    from forensics.reporters import REPORTERS, preflight, sarif

    if format_ == "sarif":
        return sarif.dump([one.diagnosis for one in checked])
    render = preflight.render if format_ in {"terminal", "text"} else REPORTERS[format_]
    texts = []
    for one in checked:
        own = replace(view, considered=one.triage.considered if explain else None)
        text = render(one.diagnosis, own)
        if view.several and format_ in {"terminal", "text"}:
            text = f"== {one.diagnosis.source.name}\n{text}"
        texts.append(text)
    return "".join(texts)
