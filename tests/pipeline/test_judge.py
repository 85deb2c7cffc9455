"""`status`, `verdicts` and `expiry` as a run makes them, run after run, and as of a moment."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

from muster.pipeline.job import Request
from muster.pipeline.plan import Look
from muster.pipeline.sources.offsets_topic import LogDirectories
from muster.tables.reading import open_tables
from muster.tables.storage.store import TableStore
from tests.pipeline.world import GrowingLog, rows_of, run_here, unpacked

KEY = ("group_id", "topic", "partition")
MADE = ("status", "verdicts", "expiry")
DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    """Tables of a log that grew from run to run, and the moments that were judged."""
    folder = tmp_path_factory.mktemp("judged")
    log = GrowingLog(unpacked("k43-full", folder), folder / "log", Random(5))
    moments = []
    for all_of_it in (False, False, True):
        log.grow(all_of_it)
        run_here(folder / "tables", log.target, analytics=True)
        moments.append(rows_of(folder / "tables", "expiry")["expiry"][0]["at_ms"])
    run_here(folder / "once", log.target, analytics=True)
    return folder, moments


def by_key(rows: list[dict[str, object]]) -> dict[tuple[object, ...], dict[str, object]]:
    return {tuple(row[name] for name in KEY): row for row in rows}


def test_windows_go_on_from_run_to_run(grown: tuple[Path, list[int]]) -> None:
    folder, _ = grown
    steps, once = (by_key(rows_of(folder / name, "status")["status"]) for name in ("tables", "once"))
    assert steps.keys() == once.keys() == by_key(rows_of(folder / "tables", "offsets")["offsets"]).keys()
    for key, row in once.items():
        window, expected = ([{**each, "lag": None} for each in one["window"]] for one in (steps[key], row))
        assert window == expected, key
        assert window[-1]["committed_offset"] == row["committed_offset"]
        assert (steps[key]["ends"] or [None])[-1] == (row["ends"] or [None])[-1]
    assert any(row["completeness"] == 1.0 for row in once.values())


def test_what_was_said_is_what_status_says(grown: tuple[Path, list[int]]) -> None:
    """The last row of each key; a row wherever it differs from the one before, and none elsewhere."""
    folder, _ = grown
    said: dict[tuple[object, ...], dict[str, object]] = {}
    for row in sorted(rows_of(folder / "tables", "verdicts")["verdicts"], key=lambda row: row["run_number"]):
        key = tuple(row[name] for name in KEY)
        assert row["verdict"] != row["verdict_before"] == (said[key]["verdict"] if key in said else None)
        said[key] = row
    status = by_key(rows_of(folder / "tables", "status")["status"])
    now = {key: (row["verdict"], row["verdict_since_ms"]) for key, row in status.items() if row["verdict"]}
    assert now == {key: (row["verdict"], row["at_ms"]) for key, row in said.items() if row["verdict"]}
    assert len({row["run_number"] for row in said.values()}) > 1


def test_as_of_a_moment_it_is_what_was_said_then(grown: tuple[Path, list[int]]) -> None:
    folder, moments = grown
    with open_tables(folder / "tables") as tables:
        now = tables.read("status").table()
        then = tables.read("status", as_of_ms=moments[-1]).table()
        assert then.schema == now.schema
    told = ("verdict", "verdict_since_ms", "at_ms", "committed_offset", "log_end_offset", "lag", "last_commit_ms")
    found, expected = (
        {key: tuple(row[name] for name in told) for key, row in by_key(rows).items()}
        for rows in (
            rows_of(folder / "tables", "status", as_of_ms=moments[-1])["status"],
            rows_of(folder / "tables", "status")["status"],
        )
    )
    assert found == expected
    before = by_key(rows_of(folder / "tables", "status", as_of_ms=moments[0])["status"])
    assert 0 < len(before) < len(found)
    said = {row["verdict"] for row in before.values()}
    assert said & {"OK", "STOPPED"}
    assert {row["at_ms"] for row in rows_of(folder / "tables", "verdicts", as_of_ms=moments[0])["verdicts"]} == {
        moments[0]
    }


def test_a_forecast_of_the_past_is_that_of_its_day(grown: tuple[Path, list[int]]) -> None:
    folder, moments = grown
    found = rows_of(folder / "tables", "expiry", as_of_ms=moments[-1])["expiry"]
    assert found == rows_of(folder / "tables", "expiry")["expiry"]
    earlier = rows_of(folder / "tables", "expiry", as_of_ms=moments[0])["expiry"]
    assert 0 < len(earlier) < len(found)
    assert {row["at_ms"] for row in earlier} == {moments[0]}


def test_a_run_without_analytics_does_not_judge(tmp_path: Path) -> None:
    log = unpacked("mini-zstd-43", tmp_path)
    run_here(tmp_path / "tables", log)
    with open_tables(tmp_path / "tables") as tables:
        assert not tables.manifest.tables.keys() & set(MADE)
    run_here(tmp_path / "tables", log, analytics=True)  # nothing is new but the tables
    with open_tables(tmp_path / "tables") as tables:
        assert tables.manifest.tables.keys() >= {"status", "expiry"}
        version = tables.manifest.tables["status"]
    run_here(tmp_path / "tables", log, analytics=True)
    with open_tables(tmp_path / "tables") as tables:
        assert tables.manifest.tables["status"] == version, "nothing is new, and nothing is written"
    assert Request([], "").analytics


def test_what_time_alone_changes_is_told_though_nothing_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a live cluster at rest offsets come to expire; of files the moment stays what it was."""
    log, tables, looked = unpacked("mini-zstd-43", tmp_path), tmp_path / "tables", LogDirectories.look
    run_here(tables, log, analytics=True)
    newest_ms = moment_of(tables)
    run_here(tables, log, analytics=True)
    assert moment_of(tables) == newest_ms

    def said(at_ms: int) -> tuple[int, int]:
        """After a look at such a time: when was judged, and how many offsets were said to expire soon."""

        def look(self: LogDirectories, *known: Any) -> Look:
            found = looked(self, *known)
            return found._replace(log_ends=found.log_ends.slice(0, 0), is_live=True, looked_at_ms=at_ms)

        monkeypatch.setattr(LogDirectories, "look", look)
        run_here(tmp_path / "live", log, analytics=True)
        assert moment_of(tmp_path / "live") == at_ms
        rows = rows_of(tmp_path / "live", "status")["status"]
        (judged_ms,) = {row["at_ms"] for row in rows}
        return judged_ms, sum(row["verdict"] == "EXPIRING" for row in rows)

    def found() -> int:
        rows = rows_of(tmp_path / "live", "findings")["findings"]
        return sum(row["kind"] == "about-to-expire" for row in rows)

    first, late_ms = said(newest_ms + 1), newest_ms + 6 * DAY_MS + DAY_MS // 2
    assert first[0] == newest_ms + 1
    assert said(newest_ms + 60_000) == first
    findings = found()
    judged_ms, expiring = said(late_ms)
    assert judged_ms == late_ms
    assert expiring > first[1]
    assert found() > findings


def moment_of(tables: Path) -> int:
    manifest = TableStore(tables).manifest()
    assert manifest is not None
    return manifest.moment_ms


def test_several_tasks_make_what_one_makes(grown: tuple[Path, list[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    """One task judges and looks for trouble in what it has made; of several, another looks into what they published."""
    folder, _ = grown
    made = (*MADE, "findings")
    monkeypatch.setattr("muster.pipeline.judge.ROWS_A_TASK", 30)
    run_here(folder / "shared", folder / "log", analytics=True)
    one, several = (rows_of(folder / name, *made) for name in ("once", "shared"))
    for table in made:
        assert sorted(map(repr, several[table])) == sorted(map(repr, one[table])), table
        assert one[table], table
