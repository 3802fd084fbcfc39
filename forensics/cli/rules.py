"""`forensics rules`: list, show, lint, test and describe the rule packs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from forensics.cli.options import Output, Rules, check_format

app = typer.Typer(help="The rule packs.", no_args_is_help=True, rich_markup_mode=None)


@app.command(name="list")
def list_(
    family: Annotated[str | None, typer.Argument(help="Only ids that begin with this.")] = None,
    rules: Rules = None,
    format_: Annotated[str, typer.Option("--format", "-f", help="terminal or json.")] = "terminal",
) -> int:
    """List the rules: id, role and title."""
    from forensics.analysis import load_rules
    from forensics.cli import output
    from forensics.errors import UsageError
    from forensics.reporters.rule import placeholders_as_words
    from forensics.reporters.view import as_json, cut, visible

    check_format(format_, ("terminal", "json"))
    found = [r for r in load_rules(rules or []).rules if r.id.startswith(family or "")]
    if not found:
        raise UsageError(f"no rule begins with {family}", "see `forensics rules list`")
    if format_ == "json":
        rows = [
            {
                k: getattr(r, k)
                for k in ("id", "title", "severity", "role", "phase", "engines", "priority")
            }
            for r in found
        ]
        output.write(as_json(rows), None)
        return 0
    wide = max(len(r.id) for r in found)
    room = output.width() if sys.stdout.isatty() else sys.maxsize
    lines = [
        cut(visible(f"{r.id:<{wide}}  {r.role:<12}  {placeholders_as_words(r.title)}"), room)
        for r in found
    ]
    output.write("\n".join([*lines, f"{len(found)} rules", ""]), None)
    return 0


@app.command()
def show(
    rule_id: Annotated[str, typer.Argument(help="Its id.")],
    rules: Rules = None,
) -> int:
    """Show one rule: what it looks for, why, what to do, and its file."""
    from forensics.analysis import load_rules
    from forensics.cli import output
    from forensics.errors import UsageError
    from forensics.reporters.rule import render

    ruleset = load_rules(rules or [])
    rule = ruleset.get(rule_id)
    if rule is None:
        from difflib import get_close_matches

        close = get_close_matches(rule_id, [r.id for r in ruleset.rules], n=3)
        hint = f"did you mean {', '.join(close)}" if close else "see `forensics rules list`"
        raise UsageError(f"no rule {rule_id}", hint)
    output.write(render(rule, ruleset.files[rule.id], output.width()), None)
    return 0


@app.command()
def lint(
    files: Annotated[
        list[Path] | None, typer.Argument(help="Only these rule files, as part of the pack.")
    ] = None,
    rules: Rules = None,
) -> int:
    """Check schema, patterns and habits of all rules; report every problem at once."""
    from forensics import rulelint, ruleset
    from forensics.cli import output
    from forensics.errors import RuleError, UsageError
    from forensics.reporters.view import visible

    loaded, errors = ruleset.load_all(rules or [])
    problems = [] if files else [str(error) for error in errors]
    mine: dict[str, str] = {}
    for path in files or []:
        try:
            rule = ruleset.parse_rule(path.read_text(encoding="utf-8"), str(path))
        except RuleError as error:
            problems.append(str(error))
            continue
        except UnicodeDecodeError:
            raise UsageError(f"{path} is not UTF-8 text") from None
        except OSError as error:
            raise UsageError(f"{path} cannot be read", error.strerror or str(error)) from None
        mine[rule.id] = str(path)
        loaded = ruleset.with_rule(loaded, rule, str(path))
    problems += [
        f"{loaded.files.get(name, name)}: {text}"
        for name, text in rulelint.lint(loaded)
        if not files or name in mine
    ]
    checked = len(files) if files else len(loaded.rules)
    said = f"{checked} rules, {len(problems)} problems"
    output.write("\n".join([*map(visible, problems), said, ""]), None)
    return 2 if problems else 0


@app.command()
def test(
    rule: Annotated[list[str] | None, typer.Argument(help="Ids of rules; all if none.")] = None,
    rules: Rules = None,
    samples: Annotated[
        Path | None, typer.Option("--samples", help="A folder of samples (default: ./samples).")
    ] = None,
) -> int:
    """Run every rule on its own tests, on all samples and on all other rules' near misses."""
    from forensics import ruleset, ruletest
    from forensics.analysis import prepare
    from forensics.cli import output
    from forensics.errors import UsageError
    from forensics.reporters.view import visible

    loaded = ruleset.load(rules or [])
    for name in rule or []:
        if loaded.get(name) is None:
            raise UsageError(f"no rule {name}", "see `forensics rules list`")
    folder = samples if samples is not None else Path("samples")
    if samples is not None and not folder.is_dir():
        raise UsageError(f"{folder} is no folder of samples")
    problems, count = ruletest.run(prepare(loaded), folder if folder.is_dir() else None, rule or [])
    lines = [f"{p.rule or '(no rule)'}, {p.case}: {p.what}" for p in problems]
    lines.append(
        f"{count.rules} rules, {count.positives} positive tests, {count.near_misses} near misses, "
        f"{count.samples} samples, {count.cells} pairs of rule and text: {len(problems)} problems"
    )
    output.write("\n".join([*map(visible, lines), ""]), None)
    return 1 if problems else 0


@app.command()
def schema(
    output_: Output = None,
) -> int:
    """Print the JSON Schema of a rule file, for editors."""
    from forensics import ruleset
    from forensics.cli import output
    from forensics.reporters.view import as_json

    output.write(as_json(ruleset.json_schema()), output_)
    return 0
