"""The command tree, and the one place where errors become a line and an exit code."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from forensics.cli import diagnose, guard, preflight, query, rules, runs, stats, watch, why
from forensics.cli.output import say

app = typer.Typer(
    name="forensics",
    help="Log and crash forensics for containers that serve large language models.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(name="diagnose")(diagnose.diagnose)
app.command(name="guard", context_settings={"allow_interspersed_args": False})(guard.guard)
app.command(name="why")(why.why)
app.command(name="stats")(stats.stats)
app.command(name="preflight")(preflight.preflight)
app.command(name="query")(query.query)
app.add_typer(runs.app, name="runs")
app.command(name="watch")(watch.watch)
app.command(name="collect")(watch.collect)
app.add_typer(rules.app, name="rules")


def _version(value: bool) -> None:
    if value:
        from forensics import __version__

        typer.echo(f"forensics {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Log and crash forensics for containers that serve large language models."""


def run() -> int:
    """Run the command line; return the exit code."""
    from forensics.errors import ForensicsError

    try:
        result = app(standalone_mode=False)
    except ForensicsError as error:
        say(str(error))
        return 2
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    except BrokenPipeError:
        # The reader left (`| head`): nothing to say, and nothing more can be written.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        say(f"{error.filename or 'output'}: {error.strerror or error}")
        return 2
    except Exception as error:  # noqa: BLE001 - typer's errors share no public base; _usage sorts them
        return _usage(error)
    return int(result or 0)


def _usage(error: Exception) -> int:
    """Translate typer's own errors; anything else is a defect and keeps its traceback."""
    if not hasattr(error, "exit_code"):
        raise error
    message = getattr(error, "format_message", lambda: "")()
    if type(error).__name__ == "Abort":
        say("interrupted")
        return 130
    if type(error).__name__ == "NoArgsIsHelpError":
        # Called without a word: the help itself is the answer.
        sys.stdout.write(f"{message.rstrip()}\n")
        return 0
    if message:
        say(f"{message.strip()} Try 'forensics --help'.")
    return int(error.exit_code)
