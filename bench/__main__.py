"""Measures everything and prints tables: `python -m bench [--quick] [--size 500MB] [--json]`.

Exit code 0 when everything ran, 1 when something did not; targets that are missed do not count.
"""

import argparse
import datetime as dt
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from bench import machine, measure, rows, tables
from bench.generate import Kind, size_of

HERE: Final = Path(__file__).resolve().parent
WORK: Final = HERE / ".bench"
CUT: Final = 20_000_000  # bytes: plain Python would take minutes on the whole log
QUICK: Final = 2_000_000


class PreparationError(Exception):
    """An input could not be made."""


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, keep the figures; return the exit code."""
    given = _options(arguments)
    size = QUICK if given.quick else given.size
    if WORK.exists():
        shutil.rmtree(WORK)
    WORK.mkdir()
    tools = rows.Tools(
        forensics=shlex.split(given.forensics) if given.forensics else [_tool("forensics")],
        python=sys.executable,
        ripgrep=_tool("rg"),
        grep=_tool("grep"),
    )
    try:
        report, failed = _measure_all(tools, size, quick=given.quick)
    except PreparationError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(WORK)
    print(json.dumps(report, indent=1) if given.json else tables.text(report))
    if not given.quick:
        kept = _keep(report)
        print(f"kept in {kept.relative_to(HERE.parent)}", file=sys.stderr)
    return 1 if failed else 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="tiny inputs: does everything run?")
    parser.add_argument("--size", type=size_of, default=size_of("500MB"), help="of a large log")
    parser.add_argument("--json", action="store_true", help="print figures instead of tables")
    parser.add_argument("--forensics", help="the command to measure (default: the one installed)")
    return parser.parse_args(arguments)


def _tool(name: str) -> str:
    """Find a program beside the interpreter (a virtual environment), else on the path."""
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else name


def _prepare(size: int) -> tuple[rows.Inputs, dict[str, Any]]:
    """Make the inputs below `.bench` and read the large ones once.

    This happens in other processes, because on Linux a child's peak memory is never shown as less
    than what its parent held when it started it.

    Returns:
        The inputs, and what is in them: one entry a kind of log, and one for the rules.
    """
    made: dict[str, Any] = {}
    kinds = dict.fromkeys((*rows.KINDS, Kind.STATISTICS))
    logs = {kind: WORK / f"{kind}.log" for kind in kinds}
    for kind, path in logs.items():
        # Twice the size: a gigabyte holds two million lines of statistics.
        wanted_size = 2 * size if kind is Kind.STATISTICS else size
        made[kind] = _helper("bench.generate", kind, str(wanted_size), str(path))
    cut = WORK / "cut.log"
    with logs[Kind.HEALTHY].open("rb") as whole, cut.open("wb") as part:
        wanted = min(CUT, size)
        while wanted > 0 and (piece := whole.read(min(wanted, 1 << 20))):
            part.write(piece)
            wanted -= len(piece)
    literals = WORK / "literals.txt"
    made["rules"] = _helper("bench.literals", str(literals))
    caches = WORK / "caches"
    caches.mkdir()
    for path in (*logs.values(), cut):
        measure.warm(path)
    return rows.Inputs(logs, cut, literals, literals.with_suffix(".patterns"), caches), made


def _helper(module: str, *arguments: str) -> dict[str, Any]:
    """Run one of this package's programs and read the JSON object that it prints."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=HERE.parent)
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        raise PreparationError(f"{module} failed: {said[-1] if said else done.returncode}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _measure_all(tools: rows.Tools, size: int, *, quick: bool) -> tuple[dict[str, Any], bool]:
    """Make the inputs, run every group, and check what was answered.

    Returns:
        The report (plain data, times in seconds, memory in bytes), and whether anything failed.
    """
    os.chdir(HERE.parent)  # `python -m bench.naive` is found from there
    inputs, made = _prepare(size)
    all_groups = rows.groups(tools, inputs, 1 if quick else 3, 2 if quick else 10)
    # Once before anything counts: compiles the database into the warm cache, loads the programs.
    first = next(c for group in all_groups for c in group.commands if c.name == rows.SMALL_WARM)
    measure.measure([first], 1)
    report: dict[str, Any] = {
        "schema": "forensics-bench/1",
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "quick": quick,
        "machine": machine.facts(
            {
                "forensics": [*tools.forensics, "--version"],
                "ripgrep": [tools.ripgrep, "--version"],
                "grep": [tools.grep, "--version"],
            }
        ),
        "inputs": made,
        "floor_bytes": measure.measure([measure.Command("true", ["true"])], 1)[0].runs[0].peak,
        "groups": [],
        "targets": [],
    }
    failed = False
    by_group: dict[str, dict[str, measure.Result]] = {}
    for group in all_groups:
        print(f"bench: {group.title} ...", file=sys.stderr)
        results = measure.measure(group.commands, group.rounds)
        by_group[group.title] = {result.name: result for result in results}
        failed = failed or any(result.problem for result in results)
        share = inputs.cut.stat().st_size / made[Kind.HEALTHY]["bytes"]
        report["groups"].append(_group(group, by_group[group.title], made, share))
    for target in rows.targets():
        value = target.value(by_group[target.group])
        met = None if value is None else value <= target.limit
        row = {"text": target.text, "limit": target.limit, "value": value, "met": met}
        report["targets"].append(row)
    return report, failed


def _group(
    group: rows.Group, results: dict[str, measure.Result], made: dict[str, Any], share: float
) -> dict[str, Any]:
    """Turn the results of one group into plain data; `share` is the cut over the whole log."""
    base = results[group.base]
    size = made[group.kind]["bytes"] if group.kind is not None else None
    entries = []
    for name, result in results.items():
        entry: dict[str, Any] = {"command": name, "problem": result.problem}
        entries.append(entry)
        if not result.runs:
            continue
        factor = 1 / share if name in group.scaled else 1.0
        entry |= {
            "best_s": result.best * factor,
            "median_s": result.median * factor,
            "cpu_s": result.cpu * factor,
            "peak_bytes": result.peak,
            "bytes_per_s": size / (result.median * factor) if size else None,
            "ratio": result.median * factor / base.median if base.runs else None,
            "scaled_by": factor if name in group.scaled else None,
            "walls_s": [run.wall for run in result.runs],
        }
        if group.kind is not None and name == rows.DIAGNOSE:
            entry["answer"] = answer(result.output, made[group.kind])
    return {
        "title": group.title,
        "rounds": group.rounds,
        "base": group.base,
        "entries": entries,
        "input": group.kind,
    }


def answer(output: bytes, truth: dict[str, Any]) -> str:
    """Compare a diagnosis with what the generator put into the log; speed alone proves nothing."""
    try:
        found = json.loads(output)
        cause, verdict = found["root_cause"], found["verdict"]
        line = cause and cause["line"]
    except (ValueError, KeyError, TypeError):
        return "unreadable"
    if line == truth["root_line"] and (verdict == "healthy") == (truth["root_line"] is None):
        return "right"
    return f"wrong: {verdict}, root line {line} instead of {truth['root_line']}"


def _keep(report: dict[str, Any]) -> Path:
    """Write the report to `results/<date>-<kind of machine>.json` and return that path."""
    folder = HERE / "results"
    folder.mkdir(exist_ok=True)
    path = folder / f"{report['date']}-{machine.kind(report['machine'])}.json"
    path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return path


if __name__ == "__main__":
    sys.exit(main())
