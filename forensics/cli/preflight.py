"""`forensics preflight`: a launch command, checked before it is started."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from forensics.cli.options import (
    REPORTS,
    ApplyTo,
    NoColor,
    Output,
    Quiet,
    Report,
    Rules,
    Verbose,
    check_format,
)


def preflight(
    launch: Annotated[
        list[str],
        typer.Argument(
            help="Launch files (shell script, compose file, systemd unit, Kubernetes manifest, "
            "inspect JSON), docker:NAME, or - for standard input.",
            metavar="LAUNCH...",
        ),
    ],
    format_: Report = "terminal",
    output: Output = None,
    apply_to: ApplyTo = None,
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
    rules: Rules = None,
    no_color: NoColor = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> int:
    """Check launch commands before they are started, and hand back corrected ones."""
    from forensics.analysis import load_rules, prepare
    from forensics.cli import output as out
    from forensics.cli.launches import write_new
    from forensics.errors import UsageError
    from forensics.launch.model import NothingStarted
    from forensics.model import Hardware

    check_format(format_, REPORTS)
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
    view = out.view(format_, output, no_color=no_color, verbose=verbose, several=len(checked) > 1)
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
    from forensics.reporters.view import visible

    if format_ == "sarif":
        return sarif.dump([one.diagnosis for one in checked])
    render = preflight.render if format_ in {"terminal", "text"} else REPORTERS[format_]
    texts = []
    for one in checked:
        own = replace(view, considered=one.triage.considered if explain else None)
        text = render(one.diagnosis, own)
        if view.several and format_ in {"terminal", "text"}:
            text = f"== {visible(one.diagnosis.source.name)}\n{text}"
        texts.append(text)
    return "".join(texts)
