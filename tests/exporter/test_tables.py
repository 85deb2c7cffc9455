"""An exporter with tables: it begins where the last run ended, and shows what that run says."""

from pathlib import Path
from typing import Any

import pytest

from muster.exporter.beginnings import read_beginnings
from muster.exporter.from_tables import FromTables
from muster.exporter.limits import Wanted
from muster.tables.reading import open_tables
from muster.tables.storage.changes import begin_run
from muster.tables.storage.manifest import PartitionProgress
from muster.tables.storage.store import TableStore
from muster.verdicts import Commit
from tests.exporter.pages import read, value
from tests.exporter.test_muster import Here, asking, commit, in_this_process
from tests.pipeline.world import run_here
from tests.server.raw import ApiKey, Raw, create_topic
from tests.server.transactions.talking import Producer
from tests.tables.history import PUBLISHED_AT_MS, published
from tests.tables.made import made


def run(server: Here, tables: Path) -> None:
    run_here(tables, "kafka://{}:{}".format(*server.address))


def test_an_exporter_begins_where_the_tables_end(tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    with in_this_process() as server, Raw(server.address) as raw:
        create_topic(server.address, "orders", 2)
        for offset in range(20):
            commit(server.address, "shop", "orders", {0: offset})
        producer = Producer(raw, "worker", 2).begin()
        assert producer.commit_offset("till", "orders", 1, 5) == 0
        run(server, tables)
        with asking(server.address, tables) as asked:
            page = asked.round()
            assert value(page, "muster_exporter_records_total") == 0
            assert value(page, "kafka_consumergroup_group_offset", group="shop", partition="0") == 19
            assert value(page, "kafka_consumergroup_group_offset", group="till") is None
            assert value(page, "muster_group_offset_commits_total", group="shop") == 0
            assert producer.end(commit=True) == 0
            commit(server.address, "shop", "orders", {0: 30})
            page = asked.round()
            assert value(page, "kafka_consumergroup_group_offset", group="till", partition="1") == 5
            assert value(page, "kafka_consumergroup_group_offset", group="shop", partition="0") == 30
            assert value(page, "muster_group_offset_commits_total", group="shop") == 1
            assert value(page, "muster_exporter_records_total") == 2  # a commit and a marker
            assert asked.told == []
            raw.ask(ApiKey.DELETE_GROUPS, 2, groupsNames=["shop"])
            assert value(asked.round(), "muster_group_members", group="shop") is None


def test_tables_of_another_cluster_are_left_alone(tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    with in_this_process() as other:
        create_topic(other.address, "orders", 1)
        commit(other.address, "theirs", "orders", {0: 1})
        run(other, tables)
    with in_this_process() as server:
        create_topic(server.address, "orders", 1)
        commit(server.address, "shop", "orders", {0: 4})
        with asking(server.address, tables) as asked:
            assert asked.tables is not None
            asked.tables.look()
            page = asked.round()
        assert value(page, "kafka_consumergroup_group_offset", group="shop") == 4
        assert value(page, "muster_group_members", group="theirs") is None
        assert "muster_tables_age_seconds" not in read(page)
        (line,) = asked.told
        assert "are of cluster" in line
        assert line.endswith("So __consumer_offsets is read from its start.")


def test_no_tables_yet_and_then_a_run(tmp_path: Path) -> None:
    with in_this_process() as server:
        create_topic(server.address, "orders", 1)
        commit(server.address, "shop", "orders", {0: 4})
        with asking(server.address, tmp_path / "tables") as asked:
            assert asked.tables is not None
            asked.tables.look()
            assert value(asked.round(), "kafka_consumergroup_group_offset", group="shop") == 4
            assert asked.told == [
                f"there are no tables at {tmp_path}/tables. So __consumer_offsets is read from its start."
            ]
            run(server, tmp_path / "tables")
            asked.tables.look()
            age_s = value(asked.round(), "muster_tables_age_seconds")
            assert age_s is not None
            assert 0 <= age_s < 60
            assert len(asked.told) == 1


T = PUBLISHED_AT_MS
FINDINGS: tuple[dict[str, Any], ...] = (
    {"kind": "stuck-partition", "severity": "error", "group_id": "shop"},
    {"kind": "stuck-partition", "severity": "error", "group_id": "other"},
    {"kind": "damage", "severity": "error"},
)
EXPIRY: tuple[dict[str, Any], ...] = (
    {"group_id": "shop", "topic": "orders", "partition": 0, "expires_at_ms": T + 5_000},
    {"group_id": "shop", "expires_at_ms": T + 9_000},
    {"group_id": "kept", "topic": "orders", "partition": 0},
    {"group_id": "other", "expires_at_ms": T + 9_000},
)


def looked_at(path: Path, *patterns: str) -> FromTables:
    found = FromTables(TableStore(path), Wanted(patterns), pytest.fail)
    found.belong_to("abc", {})
    found.look()
    return found


def test_what_a_run_says(tmp_path: Path) -> None:
    rows = {"findings": made("findings", *FINDINGS), "expiry": made("expiry", *EXPIRY)}
    published(tmp_path, rows | {"offsets": made("offsets"), "lag": made("lag")})
    told = looked_at(tmp_path, "shop", "kept").run
    assert told is not None
    assert told.observed_at_ms == T
    assert told.expires_ms == {"shop": T + 5_000}
    assert told.findings is not None
    assert told.findings["error", "stuck-partition"] == 1
    assert told.findings["error", "damage"] == 1
    assert told.findings["error", "beyond-end"] == 0  # it was looked for
    assert "flapping-group" not in {kind for _, kind in told.findings}  # it takes tables that are not there


def test_what_a_run_does_not_say(tmp_path: Path) -> None:
    published(tmp_path, {"offsets": made("offsets")})
    told = looked_at(tmp_path).run
    assert told is not None
    assert told.findings is None
    assert told.expires_ms is None


def test_a_run_is_read_when_it_is_published(tmp_path: Path) -> None:
    store = published(tmp_path, {"findings": made("findings", *FINDINGS)})
    found = looked_at(tmp_path)
    before = found.run
    found.look()
    assert found.run is before
    with begin_run(store, run_id="b-run", now_ms=T + 1) as begun:
        begun.replace("findings", made("findings", FINDINGS[0]))
        begun.publish({}, {"cluster_id": "abc", "observed_at_ms": T + 1}, now_ms=T + 1)
    found.look()
    assert found.run is not None
    assert found.run.observed_at_ms == T + 1
    assert (found.run.findings or {})["error", "stuck-partition"] == 1


def test_windows(tmp_path: Path) -> None:
    """Those of `status`, unless a later commit is in force; then that one alone."""
    where = {"group_id": "shop", "topic": "orders", "offsets_partition": 3}
    window = [
        {"committed_offset": 7, "commit_ms": None, "lag": None, "log_offset": 10},
        {"committed_offset": 9, "commit_ms": 200, "lag": 4, "log_offset": 11},
    ]
    progress = {3: PartitionProgress(20, 1, 0, 0, None, None)}
    committed = {"committed_offset": 9, "commit_timestamp_ms": 200}
    names = ("open_commits", "members", "group_state", "latest_rebalances")
    rows = {name: made(name) for name in names} | {
        "groups": made("groups", where | {"type": "simple"}),
        "offsets": made(
            "offsets",
            where | committed | {"partition": 0, "log_offset": 11},
            where | committed | {"partition": 1, "log_offset": 12},
        ),
        "status": made(
            "status",
            *({"group_id": "shop", "topic": "orders", "partition": each, "window": window} for each in (0, 1)),
        ),
    }
    published(tmp_path, rows, progress)
    with open_tables(tmp_path) as tables:
        begun = read_beginnings(tables, Wanted())[3]
    assert (begun.next_offset, begun.leader_epoch) == (20, 1)
    positions = begun.groups["shop"].positions
    assert positions["orders", 0] == ((Commit(7, -1, None), Commit(9, 200, 4)), 11)
    assert positions["orders", 1] == ((Commit(9, 200, None),), 12)


def test_a_name_that_only_the_log_can_tell(tmp_path: Path) -> None:
    names = ("open_commits", "members", "group_state", "latest_rebalances", "offsets")
    groups = made(
        "groups",
        {"group_id": "sh\ufffdp", "type": "simple", "offsets_partition": 0},
        {"group_id": "shop", "type": "simple", "offsets_partition": 1},
    )
    progress = {number: PartitionProgress(20, 1, 0, 0, None, None) for number in (0, 1)}
    published(tmp_path, {name: made(name) for name in names} | {"groups": groups}, progress)
    with open_tables(tmp_path) as tables:
        assert list(read_beginnings(tables, Wanted())) == [1]
