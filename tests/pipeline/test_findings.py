"""Findings that runs make: of real logs, of damage, and as of a moment."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from muster.pipeline.finder import READ, _files, remembered_damage
from muster.pipeline.model import PartitionReport
from muster.tables.findings.kinds import KINDS, LOOKED_BACK
from muster.tables.findings.of_logs import DAMAGE_KEPT_MS
from muster.tables.findings.of_offsets import STUCK_MS
from muster.tables.reading import open_tables
from muster.tables.schemas import TABLES
from muster.tables.storage.changes import begin_run
from muster.tables.storage.store import TableStore
from muster.tables.times import inner
from tests.pipeline.world import rows_of, run_here, unpacked

Row = dict[str, Any]


class World(NamedTuple):
    tables: Path
    logs: Path


@pytest.fixture(scope="module", params=["k43-all", "damaged-flip"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp(request.param)
    logs = unpacked(request.param, folder)
    run_here(folder / "tables", logs, analytics=True)
    return World(folder / "tables", logs)


def test_findings_of_real_logs_say_what_the_tables_say(world: World) -> None:
    tables = rows_of(world.tables, "findings", "status", "lag", "rates", "expiry")
    judged = {_place(row): row for row in tables["status"]}
    rewinds = {_place(row) for row in tables["rates"] if row["rewinds"]}
    due = {row["group_id"] for row in tables["expiry"] if row["expires_at_ms"] is not None}
    seen = set()
    for finding in tables["findings"]:
        seen.add(finding["kind"])
        evidence, status = json.loads(finding["evidence"]), judged.get(_place(finding))
        assert finding["severity"] in KINDS[finding["kind"]].severities
        assert finding["since_ms"] is None or finding["since_ms"] <= finding["at_ms"]
        match finding["kind"]:
            case "stuck-partition":
                assert status is not None
                assert (evidence["verdict"], evidence["lag"]) == (status["verdict"], status["lag"])
                assert status["lag"] > 0
            case "rewound-partition":
                assert _place(finding) in rewinds
            case "about-to-expire":
                assert finding["group_id"] in due
            case "damage":
                assert "CRC" in evidence["example"]
                assert finding["partition"] in (0, 1)
            case other:
                pytest.fail(f"{other} in a log without: {finding['sentence']}")
    is_damaged = "damaged" in str(world.tables)
    assert seen == {"stuck-partition", "rewound-partition", "about-to-expire", *(["damage"] if is_damaged else [])}
    stuck = {_place(row) for row in tables["findings"] if row["kind"] == "stuck-partition"}
    silent = [row for row in tables["status"] if row["at_ms"] - row["last_commit_ms"] >= STUCK_MS.value]
    assert {_place(row) for row in silent if row["verdict"] == "STOPPED"} <= stuck
    assert {judged[place]["verdict"] for place in stuck} <= {"STALLED", "STOPPED"}


def test_groups_that_have_read_everything_are_well(world: World) -> None:
    tables = rows_of(world.tables, "findings", "lag")
    behind = {row["group_id"] for row in tables["lag"] if row["lag"] != 0}
    well = {row["group_id"] for row in tables["lag"]} - behind
    assert len(well) > 3
    assert [row for row in tables["findings"] if row["group_id"] in well and row["severity"] == "error"] == []


def test_a_run_without_news_leaves_findings_as_they_are(world: World) -> None:
    before = rows_of(world.tables, "findings")
    summary = run_here(world.tables, world.logs, analytics=True)
    assert rows_of(world.tables, "findings") == before
    assert summary.rows["findings"] == len(before["findings"])


def test_as_of_a_moment(world: World) -> None:
    """What state tells is the same, and the last interval was not over yet. Damage was found by the run, not before."""
    found = rows_of(world.tables, "findings")["findings"]
    at_ms = found[0]["at_ms"]
    with open_tables(world.tables) as tables:
        then = inner(tables.read("findings", at_ms).table(), TABLES["findings"]).to_pylist()
        before = tables.asked(f"SELECT DISTINCT kind FROM {tables.relation('findings', at_ms - 1)} f")
    assert _told(then) == [row for row in _told(found) if row["kind"] != "rewound-partition"]
    assert ("damage",) not in before


def test_history_is_read_by_its_bounds(world: World) -> None:
    with begin_run(TableStore(world.tables)) as run:
        files = {table: _files(run, table, 1 << 42) for table in READ if run.has(table)}
        everything = {table: run.files(table) for table in files}
    assert {table for table, some in files.items() if not some and everything[table]} == {*LOOKED_BACK} & {*files}


def test_damage_is_handed_on_for_a_week() -> None:
    at_ms = 10 * DAMAGE_KEPT_MS.value
    reports = [_report(3, ("3.log at byte 7: CRC",), 4), _report(4, ())]
    (found,) = remembered_damage([], reports, at_ms)
    assert found == {"offsets_partition": 3, "found_at_ms": at_ms, "places": 5, "example": "3.log at byte 7: CRC"}
    assert remembered_damage([found], [], at_ms + 1) == [found]
    assert remembered_damage([found], [], at_ms + DAMAGE_KEPT_MS.value) == []
    assert remembered_damage([found] * 1000, reports, at_ms)[-1] == found
    assert len(remembered_damage([found] * 1000, reports, at_ms)) == 200


def _place(row: Row) -> tuple[Any, ...]:
    return row["group_id"], row["topic"], row["partition"]


def _told(found: list[Row]) -> list[Row]:
    """Without evidence: as of a moment nobody knows the times of data (`lag_ms`)."""
    return [{name: value for name, value in row.items() if name != "evidence"} for row in found]


def _report(number: int, damage: tuple[str, ...], more: int = 0) -> PartitionReport:
    return PartitionReport(number, 0, 9, 0, 9, 0, 0, None, None, 0, damage, 100, untold_damage=more)
