"""What a person or a program is told when a run has ended: a line, a message, a command."""

from __future__ import annotations

import os
import shlex
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from forensics.archive.model import RunRecord
from forensics.errors import UsageError
from forensics.model import FAILED, Diagnosis
from forensics.redaction import text as without_secrets
from forensics.reporters.view import visible

_COMMAND_S = 300.0
_LINE = 200


def failed(diagnosis: Diagnosis | None) -> bool:
    """Say whether a run failed."""
    return diagnosis is not None and diagnosis.verdict in FAILED


def cause_of(diagnosis: Diagnosis) -> str:
    """Return the cause in a few words: what a rule says, else the root line."""
    root = diagnosis.root_cause
    if root is None:
        return ""
    title = next((f.title for f in diagnosis.findings if root.rule and f.rule == root.rule), None)
    return title or root.text.strip()


def line_of(record: RunRecord, diagnosis: Diagnosis | None) -> str:
    """Return one line about a run that has ended, safe for a terminal."""
    container = record.container
    name = (container.name or container.id[:12]) if container else "?"
    if diagnosis is None:
        code = record.exit.code
        said = record.exit.error or record.exit.reading or "it printed nothing"
        verdict = f"NO LOG{f' (exit code {code})' if code is not None else ''}  {said}"
    else:
        cause = cause_of(diagnosis)
        verdict = f"{diagnosis.verdict.upper()}  {diagnosis.outcome.replace('_', ' ')}"
        verdict += f": {cause}" if cause else ""
    whole = "" if record.completeness == "complete" else "  [the log may not be whole]"
    line = f"{record.finished_at or record.started_at or ''}  {name}  {verdict}"
    return visible(without_secrets(line.replace("\n", " ")))[:_LINE] + f"{whole}  run:{record.id}"


class Announcer:
    """Tells of runs that have ended.

    Args:
        urls: Where to send messages (Apprise addresses); only failures are sent.
        command: What to run, as one would type it; no shell reads it.
        archive: The archive's folder.
        say: Takes notices for the person at the terminal.

    Raises:
        UsageError: An address or the command cannot be understood.
    """

    def __init__(
        self, urls: list[str], command: str | None, archive: Path, say: Callable[[str], None]
    ) -> None:
        self._archive, self._say = archive, say
        self._command = _words(command)
        self._sender = _sender(urls)
        self._told: dict[str, str] = {}
        self._threads: list[threading.Thread] = []

    def tell(self, record: RunRecord, diagnosis: Diagnosis | None) -> None:
        """Send and run what is wanted for a run; does not wait for it."""
        wanted: list[Callable[[], None]] = []
        if self._sender is not None and self._news(record, diagnosis):
            title, body = _message(record, diagnosis)
            wanted.append(lambda: self._send(title, body))
        if self._command:
            wanted.append(lambda: self._run(record, diagnosis))
        if wanted:
            thread = threading.Thread(
                target=lambda: [do() for do in wanted], name="announce", daemon=True
            )
            thread.start()
            self._threads = [t for t in self._threads if t.is_alive()] + [thread]

    def _news(self, record: RunRecord, diagnosis: Diagnosis | None) -> bool:
        """Say whether a failure is worth a message: of a restart loop only the first is."""
        container = record.container.id if record.container else record.id
        bad = failed(diagnosis) or (diagnosis is None and record.exit.code not in {None, 0})
        if not bad:
            self._told.pop(container, None)
            return False
        root = diagnosis.root_cause if diagnosis is not None else None
        print_ = (root.fingerprint if root is not None else None) or str(record.exit.code)
        news = self._told.get(container) != print_
        self._told[container] = print_
        return news

    def _send(self, title: str, body: str) -> None:
        try:
            if self._sender is not None and not self._sender(title, body):
                self._say("a notification could not be sent")
        except Exception as error:  # noqa: BLE001 - whatever a service does, runs are collected
            self._say(f"a notification could not be sent: {type(error).__name__}")

    def _run(self, record: RunRecord, diagnosis: Diagnosis | None) -> None:
        container = record.container
        known = {
            "FORENSICS_RUN": record.id,
            "FORENSICS_RUN_PATH": str((self._archive / "runs" / record.id).resolve()),
            "FORENSICS_ARCHIVE": str(self._archive.resolve()),
            "FORENSICS_VERDICT": diagnosis.verdict if diagnosis else "",
            "FORENSICS_OUTCOME": diagnosis.outcome if diagnosis else "",
            "FORENSICS_RULE": _rule(diagnosis),
            "FORENSICS_CONTAINER": container.id if container else "",
            "FORENSICS_NAME": (container.name or "") if container else "",
            "FORENSICS_EXIT_CODE": "" if record.exit.code is None else str(record.exit.code),
        }
        known = {name: value.replace("\0", "") for name, value in known.items()}
        try:
            done = subprocess.run(  # noqa: S603 - the user's own command, no shell
                self._command,
                env=os.environ | known,
                stdin=subprocess.DEVNULL,
                timeout=_COMMAND_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            self._say(f"--exec {self._command[0]}: {error}")
        else:
            if done.returncode:
                self._say(f"--exec {self._command[0]} ended with {done.returncode}")

    def close(self) -> None:
        """Wait for what is on its way."""
        for thread in self._threads:
            with suppress(RuntimeError):
                thread.join(30)


def _rule(diagnosis: Diagnosis | None) -> str:
    root = diagnosis.root_cause if diagnosis is not None else None
    return (root.rule or "") if root is not None else ""


def _words(command: str | None) -> list[str]:
    try:
        words = shlex.split(command) if command else []
    except ValueError as error:
        raise UsageError("--exec cannot be understood", str(error)) from None
    if command is not None and not words:
        raise UsageError("--exec is empty")
    return words


def _sender(urls: list[str]) -> Callable[[str, str], bool] | None:
    if not urls:
        return None
    import apprise  # noqa: PLC0415 - slow to import, and rarely needed

    sender = apprise.Apprise()
    for url in urls:
        if not sender.add(url):
            kind = url.partition(":")[0]
            raise UsageError(
                f"--notify {kind}://… is no address that Apprise knows",
                "https://github.com/caronc/apprise lists them",
            )
    return lambda title, body: bool(sender.notify(title=title, body=body))


def _message(record: RunRecord, diagnosis: Diagnosis | None) -> tuple[str, str]:
    container = record.container
    name = visible((container.name or container.id[:12]) if container else "a container")
    title = f"{name}: {diagnosis.outcome.replace('_', ' ') if diagnosis else 'failed'}"
    lines = [line_of(record, diagnosis)]
    if diagnosis is not None:
        fixes = [fix for finding in diagnosis.findings for fix in finding.fixes][:3]
        lines += [f"- {visible(fix.text)}" for fix in fixes]
    lines.append(f"forensics why {record.id}")
    return title, without_secrets("\n".join(lines))
