"""The catalogue follows the runs, and SQL sees its tables and nothing else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import polars as pl
import pytest

from forensics.archive import catalog
from forensics.archive.catalog import BASE, DELTA, Catalog, load
from forensics.archive.querying import query
from forensics.archive.store import Archive
from forensics.errors import UsageError
from forensics.reporters.rows import render
from tests.archive.test_runs import FAILED, SERVED, add, run


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    found = Archive.open(tmp_path / "archive", create=True)
    add(found, SERVED, 1)
    add(found, FAILED, 2)
    return found


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the runs that are read from now on."""
    read: list[str] = []
    original = catalog.row_of

    def row_of(archive: Archive, run: str, stamp: int = 0) -> dict[str, object]:
        read.append(run)
        return original(archive, run, stamp)

    monkeypatch.setattr(catalog, "row_of", row_of)
    return read


def ids(found: Catalog) -> list[str]:
    return found.columns("id")["id"].to_list()


def test_only_what_changed_is_read_again(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    load(archive)
    read = counted(monkeypatch)
    assert ids(load(archive)) == archive.ids()
    assert read == []

    new = add(archive, SERVED, 3)
    assert ids(load(archive)) == archive.ids()
    assert read == [new]
    assert (archive.folder / DELTA).exists()

    read.clear()
    old = archive.ids()[0]
    (archive.path(old) / "samples.parquet").unlink()
    found = load(archive)
    assert read == [old]
    assert found.columns("id", "windows")["windows"].to_list()[0] is None

    read.clear()
    shutil.rmtree(archive.path(old))
    assert ids(load(archive)) == archive.ids()
    assert read == []
    assert ids(load(archive)) == archive.ids()


@pytest.mark.parametrize("bad", [b"", b"PAR1", b"x" * 100])
def test_a_damaged_catalogue_is_built_anew(archive: Archive, bad: bytes) -> None:
    right = load(archive).runs
    (archive.folder / BASE).write_bytes(bad)
    assert load(archive).runs.equals(right)
    right.select("id").write_parquet(archive.folder / BASE)
    assert load(archive).runs.equals(right)


def test_an_archive_that_cannot_be_written_is_read_all_the_same(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise UsageError("it cannot be written")

    monkeypatch.setattr(Archive, "write_table", refuse)
    assert ids(load(archive)) == archive.ids()
    assert not (archive.folder / BASE).exists()


def test_rows_say_what_the_runs_came_to(archive: Archive) -> None:
    (archive.runs / "20261205T000000.000000000Z-0123456789ab").mkdir()
    found = load(archive)
    good, bad, damaged = found.runs.to_dicts()

    assert (good["verdict"], good["method"], good["k"]) == ("healthy", "ngram", 4)
    assert good["windows"] > 50
    assert good["generation_p10"] <= good["generation_median"] <= good["generation_p90"]
    assert 0 < good["acceptance_rate"] <= 1
    assert good["mean_acceptance_length"] == pytest.approx(
        1 + good["accepted_tokens"] / good["drafts"], rel=0.01
    )
    assert (bad["verdict"], bad["outcome"], bad["exit_code"]) == ("diagnosed", "crashed", 0)
    assert bad["rule"] in found.findings.filter(run=bad["id"])["rule"].to_list()
    assert damaged["state"] == "damaged"
    assert "there is no run" in damaged["problem"]
    names = found.launch_arguments.filter(run=good["id"])
    assert json.loads(names.filter(name="enforce_eager")["value"][0]) is True


def test_sql_sees_four_tables(archive: Archive) -> None:
    assert query(archive, "SELECT count(*) AS n FROM runs")["n"].to_list() == [2]
    rules = query(archive, "select rule from findings where role = 'root_cause'")
    assert rules["rule"].to_list() == ["vllm.mamba-align-needs-triton"]
    speed = query(
        archive,
        "-- by run\nSELECT run, median(generation_tokens_per_s) g FROM samples GROUP BY run",
    )
    assert speed.height == 1
    told = query(archive, "SELECT value FROM launch_arguments WHERE name = 'port' LIMIT 1")
    assert told["value"].to_list() == ["8601"]


@pytest.mark.parametrize(
    "sql",
    [
        "DROP TABLE runs",
        "TRUNCATE TABLE runs",
        "DELETE FROM runs",
        "CREATE TABLE x AS SELECT * FROM runs",
        "INSERT INTO runs VALUES (1)",
        "SELECT * FROM read_csv('{file}')",
        "SELECT * FROM READ_CSV ('{file}')",
        "SELECT * FROM \"read_csv\"('{file}')",
        "SELECT * FROM read_parquet('{file}')",
        "SELECT * FROM read_json('{file}')",
        "SELECT * FROM read_ipc('{file}')",
        "WITH x AS (SELECT * FROM read_csv('{file}')) SELECT * FROM x",
        "SELECT * FROM runs WHERE id IN (SELECT a FROM read_csv('{file}'))",
        "SELECT * FROM '{file}'",
        'SELECT * FROM "{file}"',
        "SELECT 1; DROP TABLE runs",
        "COPY runs TO '{file}'",
        "",
        "-- SELECT 1",
        "SELECT * FROM nowhere",
        "SELECT nothing FROM runs",
        "SELECT (",
    ],
)
def test_sql_can_do_nothing_else(archive: Archive, tmp_path: Path, sql: str) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("a,b\nTOPSECRET,2\n")
    before = sorted(p.name for p in tmp_path.rglob("*"))

    with pytest.raises(UsageError) as found:
        query(archive, sql.format(file=secret))

    assert "TOPSECRET" not in str(found.value)
    assert "\n" not in str(found.value)
    made = {BASE, DELTA}
    assert sorted(p.name for p in tmp_path.rglob("*") if p.name not in made) == before


def test_answers_in_every_format(archive: Archive, capsys: pytest.CaptureFixture[str]) -> None:
    sql = "SELECT container, started_at, guessed, lines FROM runs"
    words = ["query", sql, "--archive", str(archive.folder)]
    code, out, _ = run(capsys, *words)
    assert code == 0
    assert "\x1b" not in out
    assert out.splitlines()[-1] == "2 rows"
    _, out, _ = run(capsys, *words, "-f", "json")
    assert json.loads(out)[0]["started_at"] == "2026-12-01T02:00:00.000000+00:00"
    _, out, _ = run(capsys, *words, "-f", "csv")
    assert out.splitlines()[0] == "container,started_at,guessed,lines"
    assert "\x1b" not in out
    code, out, err = run(capsys, *words, "-f", "xml")
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_many_columns_are_written_below_each_other(
    archive: Archive, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = run(capsys, "query", "SELECT * FROM runs", "--archive", str(archive.folder))
    assert "verdict                 diagnosed\n" in out
    assert max(map(len, out.splitlines())) <= 100


def test_a_spreadsheet_takes_no_cell_for_a_formula() -> None:
    frame = pl.DataFrame({"=cmd": ["=1+1", "+1", "-1", "@x", "plain", None]})
    lines = render(frame, "csv").decode().splitlines()
    assert lines[1:] == ["'=1+1", "'+1", "'-1", "'@x", "plain", ""]
