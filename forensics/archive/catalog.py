"""The catalogue: one row a run, derived from the runs and rebuilt where they changed.

`<archive>/catalog.parquet` holds the rows, `catalog.delta.parquet` those that came since it was
written; both can be deleted at any time. A run is read again when its folder changed (every file of
it is replaced by a rename, which changes the folder's time). Columns: see `SCHEMA`.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
from msgspec import Struct

from forensics.archive.model import RunRecord
from forensics.archive.reading import diagnosis_of
from forensics.archive.store import SAMPLES, Archive, ArchiveError, is_run_name
from forensics.errors import ForensicsError
from forensics.inspection import arguments_of
from forensics.model import Diagnosis

BASE, DELTA = "catalog.parquet", "catalog.delta.parquet"
#: Raise it when the columns or their meaning change: older files are then built anew.
VERSION = 1
#: The delta is folded into the base when it has more rows than that, and than a share of the base.
_FOLD_ROWS, _FOLD_SHARE = 1000, 0.1

_TIME = pl.Datetime("us", "UTC")
_MILESTONE = pl.Struct({"milestone": pl.String, "line": pl.Int64, "seconds": pl.Float64})
_FINDING = pl.Struct(
    {
        "rule": pl.String,
        "title": pl.String,
        "severity": pl.String,
        "role": pl.String,
        "confidence": pl.Float64,
        "line": pl.Int64,
        "count": pl.Int64,
    }
)
_ARGUMENT = pl.Struct({"name": pl.String, "value": pl.String})

#: Columns of the catalogue. Times are UTC; `*_s` are seconds; `generation_*` are tokens a second
#: over the windows of statistics in which something ran, without the warm-up; rates are 0 to 1.
SCHEMA: dict[str, Any] = {
    "id": pl.String,
    "stamp": pl.Int64,
    "started_at": _TIME,
    "finished_at": _TIME,
    "container": pl.String,
    "container_id": pl.String,
    "host": pl.String,
    "image": pl.String,
    "digest": pl.String,
    "image_id": pl.String,
    "repo_tags": pl.List(pl.String),
    "engine": pl.String,
    "engine_version": pl.String,
    "model": pl.String,
    "gpu": pl.String,
    "compute_capability": pl.String,
    "arch": pl.String,
    "driver": pl.String,
    "cuda": pl.String,
    "method": pl.String,
    "k": pl.Int64,
    "state": pl.String,
    "tier": pl.String,
    "completeness": pl.String,
    "source": pl.String,
    "guessed": pl.List(pl.String),
    "exit_code": pl.Int64,
    "oom_killed": pl.Boolean,
    "restart_count": pl.Int64,
    "lines": pl.Int64,
    "bytes": pl.Int64,
    "packed": pl.Int64,
    "verdict": pl.String,
    "outcome": pl.String,
    "last_milestone": pl.String,
    "rule": pl.String,
    "cause": pl.String,
    "root_line": pl.Int64,
    "root_text": pl.String,
    "root_exception": pl.String,
    "fingerprint": pl.String,
    "rules_digest": pl.String,
    "ready_s": pl.Float64,
    "milestones": pl.List(_MILESTONE),
    "windows": pl.Int64,
    "generation_median": pl.Float64,
    "generation_p10": pl.Float64,
    "generation_p90": pl.Float64,
    "running_median": pl.Float64,
    "speculative_windows": pl.Int64,
    "drafts": pl.Float64,
    "draft_tokens": pl.Float64,
    "accepted_tokens": pl.Float64,
    "acceptance_rate": pl.Float64,
    "mean_acceptance_length": pl.Float64,
    "environment": pl.List(pl.String),
    "arguments": pl.List(_ARGUMENT),
    "findings": pl.List(_FINDING),
    "problem": pl.String,
}


class Catalog(Struct):
    """The rows of an archive; tables are read when they are asked for.

    Attributes:
        frame: Everything, lazily.
    """

    frame: pl.LazyFrame

    @property
    def runs(self) -> pl.DataFrame:
        """Return one row a run, by time, without what other tables hold (see `SCHEMA`)."""
        return self.columns(*(c for c in SCHEMA if c not in {"stamp", "arguments", "findings"}))

    def columns(self, *names: str) -> pl.DataFrame:
        """Return some columns of `runs` (reading few is quick, however many runs there are)."""
        return (
            self.frame.select(*names).collect().sort("id")
            if "id" in names
            else (self.frame.sort("id").select(*names).collect())
        )

    @property
    def findings(self) -> pl.DataFrame:
        """Return one row a finding: `run`, then the fields of a finding."""
        return self._exploded("findings")

    @property
    def launch_arguments(self) -> pl.DataFrame:
        """Return one row an argument: `run`, `name`, `value` (JSON text)."""
        return self._exploded("arguments")

    def _exploded(self, column: str) -> pl.DataFrame:
        return (
            self.frame.select(pl.col("id").alias("run"), column)
            .explode(column, empty_as_null=False)
            .unnest(column)
            .collect()
            .sort("run", maintain_order=True)
        )


def load(archive: Archive) -> Catalog:
    """Bring the catalogue up to date and return it.

    Only runs whose folder changed are read. Where the archive cannot be written the rows are made
    all the same.

    Args:
        archive: The archive.
    """
    now = _stamps(archive.runs)
    base, delta = _read(archive.folder / BASE), _read(archive.folder / DELTA)
    known = _known(base, delta)
    changed = [run for run, stamp in now.items() if known.get(run) != stamp]
    gone = [run for run in known if run not in now]
    if not changed and not gone:
        return Catalog(_merged(base, delta))
    fresh = _frame([row_of(archive, run, now[run]) for run in sorted(changed)])
    return Catalog(_kept(archive, base, delta, fresh, set(changed) | set(gone)))


def _kept(
    archive: Archive,
    base: pl.LazyFrame | None,
    delta: pl.LazyFrame | None,
    fresh: pl.DataFrame,
    replaced: set[str],
) -> pl.LazyFrame:
    """Write what changed and return everything."""
    outdated = pl.col("id").is_in(sorted(replaced))
    recent = fresh if delta is None else pl.concat([delta.filter(~outdated).collect(), fresh])
    old = 0 if base is None else base.select(pl.len()).collect().item()
    # Rows of the base that are outdated or gone are masked by one in the delta, or by a fold.
    only_new = base is None or base.filter(outdated).select(pl.len()).collect().item() == 0
    if only_new and recent.height <= max(_FOLD_ROWS, _FOLD_SHARE * old) and base is not None:
        _write(archive, DELTA, recent)
        return _merged(base, recent.lazy())
    everything = (
        recent if base is None else pl.concat([base.filter(~outdated).collect(), recent])
    ).sort("id")
    if _write(archive, BASE, everything):
        with suppress(OSError):
            (archive.folder / DELTA).unlink(missing_ok=True)
    return everything.lazy()


def _stamps(folder: Path) -> dict[str, int]:
    with os.scandir(folder) as entries:
        return {e.name: e.stat().st_mtime_ns for e in entries if is_run_name(e.name)}


def _read(path: Path) -> pl.LazyFrame | None:
    """Return the rows of a file; None where it is not there, damaged, or of another version."""
    try:
        found = pl.scan_parquet(path)
        if found.collect_schema() != pl.Schema(SCHEMA):
            return None
        if pl.read_parquet_metadata(path).get("version") != str(VERSION):
            return None
    except (OSError, pl.exceptions.PolarsError):
        return None
    return found


def _known(*frames: pl.LazyFrame | None) -> dict[str, int]:
    found: dict[str, int] = {}
    for frame in frames:
        if frame is not None:
            rows = frame.select("id", "stamp").collect()
            found |= dict(zip(rows["id"], rows["stamp"], strict=True))
    return found


def _merged(base: pl.LazyFrame | None, delta: pl.LazyFrame | None) -> pl.LazyFrame:
    parts = [frame for frame in (base, delta) if frame is not None]
    return pl.concat(parts) if parts else _frame([]).lazy()


def _frame(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def _write(archive: Archive, name: str, frame: pl.DataFrame) -> bool:
    body = io.BytesIO()
    frame.write_parquet(body, compression="zstd", metadata={"version": str(VERSION)})
    try:
        archive.write_table(name, body.getvalue())
    except ForensicsError:
        return False
    return True


# --- one row -------------------------------------------------------------------------------------


def row_of(archive: Archive, run: str, stamp: int = 0) -> dict[str, Any]:
    """Return the row of one run; of a damaged one only its name and `problem`.

    Args:
        archive: Where it is.
        run: Its id.
        stamp: When its folder changed, in nanoseconds.
    """
    row: dict[str, Any] = dict.fromkeys(SCHEMA) | {"id": run, "stamp": stamp}
    try:
        record = archive.record(run)
    except ArchiveError as error:
        return row | {"state": "damaged", "problem": str(error)}
    row |= _of_record(record)
    found = diagnosis_of(archive, run)
    if found is not None:
        row |= _of_diagnosis(found, row)
    return row | _of_samples(archive.path(run) / SAMPLES)


def _of_record(record: RunRecord) -> dict[str, Any]:
    container, image, log = record.container, record.image, record.log
    row: dict[str, Any] = {
        "started_at": _time(record.started_at),
        "finished_at": _time(record.finished_at),
        "host": record.collector.get("host") or record.engine.host,
        "state": record.state,
        "tier": record.tier,
        "completeness": record.completeness,
        "source": record.source,
        "guessed": record.guessed,
        "exit_code": record.exit.code,
        "oom_killed": record.exit.oom_killed,
        "restart_count": record.exit.restart_count,
        "cause": record.exit.error,
        "driver": _probed(record, "driver"),
        "gpu": _probed(record, "gpu"),
    }
    if container is not None:
        row |= {
            "container": container.name,
            "container_id": container.id,
            "environment": sorted(container.environment),
            "cuda": container.environment.get("CUDA_VERSION"),
            "arguments": _options(container.arguments),
        }
    if image is not None:
        row |= {
            "image": image.reference,
            "digest": image.digest,
            "image_id": image.id,
            "repo_tags": image.repo_tags,
            "arch": image.architecture,
        }
    if log is not None:
        row |= {"lines": log.lines, "bytes": log.bytes, "packed": log.packed}
    return row


def _probed(record: RunRecord, name: str) -> str | None:
    found = next((p.values[name] for p in record.host if p.values.get(name)), None)
    return str(found) if found is not None else None


def _time(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)


def _options(words: Iterable[str]) -> list[dict[str, str]]:
    return _listed(arguments_of(list(words)) or {})


def _listed(arguments: Mapping[str, Any]) -> list[dict[str, str]]:
    return [
        {"name": n, "value": json.dumps(v, sort_keys=True)} for n, v in sorted(arguments.items())
    ]


def _of_diagnosis(found: Diagnosis, row: Mapping[str, Any]) -> dict[str, Any]:
    run, root = found.run, found.root_cause
    title = next((f.title for f in found.findings if root and f.rule == root.rule), None)
    config = _speculation(run.arguments)
    seconds = [m.seconds for m in found.timeline if m.seconds is not None]
    served = found.outcome in {"served", "stopped", "crashed"}
    known = {
        "engine": run.engine,
        "engine_version": run.engine_version,
        "model": run.model,
        "gpu": run.hardware.gpu or row["gpu"],
        "compute_capability": run.hardware.compute_capability,
        "arch": run.hardware.arch or row["arch"],
        "container": row["container"] or run.container,
        "image": row["image"] or run.image,
        "digest": row["digest"] or run.digest,
        "exit_code": row["exit_code"] if row["exit_code"] is not None else run.exit_code,
        "arguments": _listed(run.arguments) or row["arguments"],
    }
    return known | {
        "method": config[0],
        "k": config[1],
        "verdict": found.verdict,
        "outcome": found.outcome,
        "last_milestone": found.last_milestone,
        "rule": root.rule if root else None,
        "cause": title or (root.text.strip()[:300] if root else None) or row["cause"],
        "root_line": root.line if root else None,
        "root_text": root.text[:1000] if root else None,
        "root_exception": root.exception.type if root and root.exception else None,
        "fingerprint": root.fingerprint if root else None,
        "rules_digest": found.tool.rules.digest,
        "ready_s": max(seconds) if served and seconds else None,
        "milestones": [
            {"milestone": m.milestone, "line": m.line, "seconds": m.seconds} for m in found.timeline
        ],
        "findings": [
            {
                "rule": f.rule,
                "title": f.title,
                "severity": f.severity,
                "role": f.role,
                "confidence": f.confidence,
                "line": f.evidence[0].line if f.evidence else None,
                "count": f.count,
            }
            for f in found.findings
        ],
    }


def _speculation(arguments: Mapping[str, Any]) -> tuple[str | None, int | None]:
    """Return the method and the number of draft tokens that arguments ask for."""
    config = arguments.get("speculative_config")
    if isinstance(config, str):
        with suppress(ValueError):
            config = json.loads(config)
    named = config if isinstance(config, dict) else arguments
    method = named.get("method") or arguments.get("speculative_algorithm")
    count = named.get("num_speculative_tokens", arguments.get("num_speculative_tokens"))
    if count is None and isinstance(arguments.get("speculative_num_draft_tokens"), int):
        # SGLang counts the token that the target adds among its draft tokens.
        count = arguments["speculative_num_draft_tokens"] - 1
    return (
        str(method) if method else None,
        count if isinstance(count, int) and not isinstance(count, bool) else None,
    )


def _of_samples(path: Path) -> dict[str, Any]:
    """Return the figures of the windows; of each only what later questions need."""
    if not path.is_file():
        return {}
    try:
        frame = pl.read_parquet(path)
        busy = frame.filter(
            pl.col("generation_tokens_per_s").gt(0),
            pl.col("running").is_null() | pl.col("running").ge(1),
            ~pl.col("warmup"),
        )
        drafted = frame.filter(
            pl.col("drafts").is_not_null(), ~pl.col("warmup"), pl.col("problem").is_null()
        )
        speed = busy["generation_tokens_per_s"]
        sums = {c: _sum(drafted[c]) for c in ("drafts", "draft_tokens", "accepted_tokens")}
        lengths = drafted["mean_acceptance_length"]
        return {
            "windows": busy.height,
            "generation_median": speed.median(),
            "generation_p10": speed.quantile(0.1),
            "generation_p90": speed.quantile(0.9),
            "running_median": busy["running"].median(),
            "speculative_windows": drafted.height,
            **sums,
            "acceptance_rate": _ratio(sums["accepted_tokens"], sums["draft_tokens"]),
            "mean_acceptance_length": _ratio(_sum(lengths * drafted["drafts"]), sums["drafts"]),
        }
    except (OSError, pl.exceptions.PolarsError):
        return {}  # derived: `runs verify` makes it anew


def _sum(values: pl.Series) -> float | None:
    return float(values.sum()) if values.len() - values.null_count() else None


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None
