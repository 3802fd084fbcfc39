"""Archived runs for people: the list, and one run in full."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from forensics.model import Diagnosis
from forensics.reporters.page import Page
from forensics.reporters.view import View, cut, visible

_SIGNS = {
    "healthy": ("ok", "green"),
    "no_evidence": ("-", "dim"),
    "diagnosed": ("FAILED", "red"),
    "suspected": ("FAILED", "red"),
    "inconclusive": ("FAILED?", "yellow"),
}


def listed(rows: Sequence[Mapping[str, Any]], view: View) -> str:
    """Return the list of runs, two lines each, the newest last.

    Args:
        rows: One mapping a run (see `forensics.archive.listing.Row`).
        view: Columns, and whether styles may be used.
    """
    page = _List(view)
    for row in rows:
        page.add(row)
    page.end(rows)
    return page.written()


class _List(Page):
    def add(self, row: Mapping[str, Any]) -> None:
        sign, style = _SIGNS.get(row["verdict"] or "", ("?", "dim"))
        if row["state"] == "damaged":
            sign, style = "DAMAGED", "yellow"
        elif row["state"] == "partial":
            sign, style = "running", "cyan"
        what = " ".join(filter(None, (row["container"], row["model"] or row["image"])))
        code = "" if row["exit_code"] is None else f"exit {row['exit_code']}"
        self._line(visible(f"{sign:<8} {row['id']}  {code}".rstrip()), style)
        width = self._view.width - 9
        for text in (what, row["cause"] if sign.startswith("FAILED") else None, row["problem"]):
            if text:
                self._line(" " * 9 + cut(visible(text.strip().replace("\n", " ")), width))
        if row["completeness"] == "possibly_truncated" and row["state"] == "final":
            self._line(" " * 9 + "its log may be truncated", "yellow")

    def end(self, rows: Sequence[Mapping[str, Any]]) -> None:
        failed = sum(_SIGNS.get(r["verdict"] or "", ("",))[0].startswith("FAILED") for r in rows)
        self._line(f"{len(rows)} runs, {failed} of them failed" if rows else "no runs yet")


def shown(record: Mapping[str, Any], diagnosis: Diagnosis | None, view: View) -> str:
    """Return what is known of a run.

    Args:
        record: The run's record as JSON data (see `forensics.archive.model.RunRecord`).
        diagnosis: Its diagnosis, if there is one.
        view: Columns, and whether styles may be used.
    """
    page = _One(view)
    page.write(record, diagnosis)
    return page.written()


class _One(Page):
    def write(self, record: Mapping[str, Any], diagnosis: Diagnosis | None) -> None:
        self._wrap(f"run {record['id']} ({record['state']})", 0, "bold")
        for name, text in _facts(record, diagnosis):
            self._wrap(text, 16, first=f"  {name:<13} ")
        self._list("What is known of its completeness", record["reasons"])
        self._list("What could not be had", (_gap(gap) for gap in record["gaps"]))
        self._list("What the host said", (_probe(probe) for probe in record["host"]))
        self._list("Notes", record["notes"])


def _facts(record: Mapping[str, Any], diagnosis: Diagnosis | None) -> Iterator[tuple[str, str]]:
    container, image, exit_ = record["container"] or {}, record["image"] or {}, record["exit"]
    log, engine = record["log"] or {}, record["engine"]
    known = {
        "container": f"{container.get('name') or ''} {container.get('id', '')[:12]}".strip(),
        "image": image.get("reference"),
        "digest": image.get("digest"),
        "arguments": " ".join(container.get("arguments") or []),
        "engine": " ".join(filter(None, (engine["name"], engine["version"]))),
        "started": record["started_at"],
        "finished": record["finished_at"],
        "exit": _exit(exit_),
        "log": f"{log['lines']:,} lines, {log['bytes']:,} bytes" if log else "none",
        "tier": f"{record['tier']}, {record['completeness'].replace('_', ' ')}",
        "from": record["source"],
        "guessed": ", ".join(record["guessed"]),
    }
    yield from ((name, text) for name, text in known.items() if text)
    if diagnosis is not None:
        root = diagnosis.root_cause
        title = next((f.title for f in diagnosis.findings if root and f.rule == root.rule), None)
        yield "verdict", " ".join(filter(None, (f"{diagnosis.verdict}:", title))).rstrip(":")


def _exit(facts: Mapping[str, Any]) -> str:
    parts = [] if facts["code"] is None else [str(facts["code"])]
    if facts["oom_killed"]:
        parts.append("memory ran out in the container")
    if facts["signals"]:
        parts.append(f"signals sent through the engine: {', '.join(map(str, facts['signals']))}")
    parts += [facts[name] for name in ("reading", "error") if facts[name]]
    return "; ".join(parts)


def _gap(gap: Mapping[str, Any]) -> str:
    when = " to ".join(filter(None, (gap["since"], gap["until"])))
    much = ", ".join(f"{gap[n]:,} {n}" for n in ("lines", "bytes") if gap[n] is not None)
    return " ".join(filter(None, (gap["reason"], f"({much})" if much else "", when)))


def _probe(probe: Mapping[str, Any]) -> str:
    values = ", ".join(f"{k} {v}" for k, v in probe["values"].items())
    told = probe["problem"] or values or (probe["text"] or "").split("\n", 1)[0]
    return f"{probe['name']}: {told}"
