"""Asking published tables with duckdb."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from muster.errors import BadInput
from muster.tables.reading import NOT_SHOWN, ORDERS, Tables, open_tables
from muster.tables.schemas import COMMITS, LOG_ENDS, PUBLISHED, TABLES
from muster.tables.storage.changes import begin_run
from muster.tables.storage.manifest import PartitionProgress
from muster.tables.storage.store import TableStore
from muster.tables.times import inner
from tests.tables.history import PUBLISHED_AT_MS, History, history_of, published, state_at_the_end
from tests.tables.made import made

PROGRESS = {
    0: PartitionProgress(100, 0, 0, 0, None, 9),  # the whole log was read
    1: PartitionProgress(100, 0, 40, 50, 5_000, 9),
    2: PartitionProgress(100, 0, 40, 100, None, 9),  # nobody knows
}


def rows(tables: Tables, table: str, **asked: Any) -> list[dict[str, Any]]:
    """As they are inside: moments are milliseconds."""
    schema = TABLES[NOT_SHOWN.get(table, table)]
    found: list[dict[str, Any]] = inner(tables.read(table, **asked).table(), schema).to_pylist()
    return found


def commits(*given: dict[str, Any]) -> History:
    defaults = {"offsets_partition": 0, "kind": "commit", "group_id": "g", "topic": "t", "partition": 0}
    return {"commits": pa.Table.from_pylist([defaults | row for row in given], schema=COMMITS)}


def test_every_table_is_read_as_it_was_published(tmp_path: Path) -> None:
    state = state_at_the_end("k43-full")
    published(tmp_path, state)
    with open_tables(tmp_path) as tables:
        for name in ORDERS:
            shown = tables.read(name).table()
            assert [(field.name, field.type) for field in shown.schema] == [
                (field.name, field.type) for field in PUBLISHED[name]
            ]
            answer = inner(shown, TABLES[name])
            order = [(column, "ascending") for column in ORDERS[name].split(", ")]
            expected = state[name].sort_by(order) if name in state else TABLES[name].empty_table()
            assert answer.sort_by(order).to_pylist() == expected.to_pylist(), name


def test_a_moment_after_all_is_now(tmp_path: Path) -> None:
    state = state_at_the_end("k43-full")
    published(tmp_path, state)
    with open_tables(tmp_path) as tables:
        for name in ("offsets", "groups", "members", "open_commits", "commits", "markers", "group_state"):
            assert rows(tables, name, as_of_ms=PUBLISHED_AT_MS) == rows(tables, name), name


def test_a_moment_after_the_last_run_is_refused(tmp_path: Path) -> None:
    published(tmp_path, commits({"log_offset": 1, "timestamp_ms": 1}))
    with open_tables(tmp_path) as tables:
        assert tables.read("offsets").as_of_ms == PUBLISHED_AT_MS
        assert tables.read("offsets", as_of_ms=7).as_of_ms == 7
        sentence = "end at 2026-11-16 17:26:40 UTC, when the last run looked; nothing is known of 2026-11-16 17:26:41"
        for table in ("offsets", "lag", "commits", "log_ends"):
            with pytest.raises(BadInput, match=sentence):
                tables.read(table, as_of_ms=PUBLISHED_AT_MS + 1000)


def test_a_record_that_is_ahead_of_the_clock_of_the_run_is_known(tmp_path: Path) -> None:
    later = PUBLISHED_AT_MS + 5000
    progress = {0: PartitionProgress(2, 0, 0, 0, None, later)}
    published(tmp_path, commits({"log_offset": 1, "timestamp_ms": later}), progress)
    with open_tables(tmp_path) as tables:
        assert len(rows(tables, "offsets", as_of_ms=later)) == 1
        with pytest.raises(BadInput, match="nothing is known of"):
            tables.read("offsets", as_of_ms=later + 1)


def test_tables_of_state_alone_know_no_past(tmp_path: Path) -> None:
    store = TableStore(tmp_path)
    with begin_run(store) as run:
        run.replace("offsets", made("offsets", {"group_id": "g"}))
        run.publish({}, {"history": False})
    with open_tables(tmp_path) as tables:
        assert len(rows(tables, "offsets")) == 1
        with pytest.raises(BadInput, match=r"of state alone .* nothing is known of the past"):
            tables.read("offsets", as_of_ms=1)


def test_lag_says_when_the_ends_were_observed(tmp_path: Path) -> None:
    ends = [{"topic": "t", "partition": 0, "observed_at_ms": at, "log_end_offset": at} for at in (100, 200)]
    given = commits({"log_offset": 0, "timestamp_ms": 50, "committed_offset": 4})
    published(tmp_path, given | {"log_ends": pa.Table.from_pylist(ends, schema=LOG_ENDS)})
    with open_tables(tmp_path) as tables:
        assert tables.read("lag", as_of_ms=200)[-2:] == (200, False)
        assert tables.read("lag", as_of_ms=150)[-2:] == (150, True)
        assert tables.read("lag", as_of_ms=99).ends_observed_at_ms is None
        assert tables.read("offsets", as_of_ms=150).ends_observed_at_ms is None


def test_a_group_that_is_gone_has_an_end(tmp_path: Path) -> None:
    published(tmp_path, commits(
        {"log_offset": 1, "timestamp_ms": 10}, {"log_offset": 2, "timestamp_ms": 20, "kind": "expired"},
        {"log_offset": 3, "timestamp_ms": None, "kind": "vanished", "group_id": "h"},
    ))  # fmt: skip
    with open_tables(tmp_path) as tables:
        assert tables.end_of_group("g") == (20, "expired", 10)
        assert tables.end_of_group("h") == (None, "vanished", None)
        assert tables.end_of_group("x") is None
        assert tables.first_record_ms() == 10


def test_moments_do_not_mix(tmp_path: Path) -> None:
    published(tmp_path, commits(*({"log_offset": n, "timestamp_ms": n, "committed_offset": n} for n in range(5))))
    with open_tables(tmp_path) as tables:
        for moment in (3, 1, 3, 4, 0):
            assert [row["committed_offset"] for row in rows(tables, "offsets", as_of_ms=moment)] == [moment]
        with pytest.raises(
            BadInput, match=r"is of 1970-01-01 00:00:00 UTC: nothing is known of 1969-12-31 23:59:59 UTC"
        ):
            rows(tables, "offsets", as_of_ms=-1)


def test_what_comes_behind_a_later_record_was_not_there_yet(tmp_path: Path) -> None:
    """The clock stepped back: log order decides."""
    published(tmp_path, commits(
        {"log_offset": 0, "timestamp_ms": 10, "committed_offset": 1},
        {"log_offset": 1, "timestamp_ms": 30, "committed_offset": 2},
        {"log_offset": 2, "timestamp_ms": 15, "committed_offset": 3},
    ))  # fmt: skip
    with open_tables(tmp_path) as tables:
        assert [row["committed_offset"] for row in rows(tables, "offsets", as_of_ms=20)] == [1]
        assert [row["log_offset"] for row in rows(tables, "commits", as_of_ms=20)] == [0]


def test_filters_have_wildcards_and_take_brackets_as_they_are(tmp_path: Path) -> None:
    names = ["app-1", "app-2", "other", "a[b]", "ab"]
    given = [{"log_offset": n, "timestamp_ms": 1, "group_id": name} for n, name in enumerate(names)]
    published(tmp_path, commits(*given))
    with open_tables(tmp_path) as tables:

        def groups(*patterns: str) -> list[str]:
            return [row["group_id"] for row in rows(tables, "commits", where={"group_id": patterns})]

        assert groups("app-*") == ["app-1", "app-2"]
        assert groups("app-?", "other") == ["app-1", "app-2", "other"]
        assert groups("a[b]*") == ["a[b]"]
        assert groups("a[b]") == ["a[b]"]
        assert [row["group_id"] for row in rows(tables, "commits", where={"group_id": "other"})] == ["other"]
        assert groups("x' OR TRUE --") == []
        with pytest.raises(BadInput, match="markers has no column group_id"):
            tables.read("markers", where={"group_id": ["x"]})


def test_a_limit_takes_the_first(tmp_path: Path) -> None:
    published(tmp_path, commits(*({"log_offset": n, "timestamp_ms": 1} for n in (3, 1, 2))))
    with open_tables(tmp_path) as tables:
        assert [row["log_offset"] for row in rows(tables, "commits", limit=2)] == [1, 2]


def test_unknown_is_told_where_history_begins_later(tmp_path: Path) -> None:
    given = commits({"log_offset": 45, "timestamp_ms": 4_000}, {"log_offset": 60, "timestamp_ms": 6_000})
    published(tmp_path, given, PROGRESS)
    with open_tables(tmp_path) as tables:
        assert tables.read("offsets", as_of_ms=4_999).complete_since == {1: 5_000, 2: None}
        assert tables.read("offsets", as_of_ms=5_000).complete_since == {2: None}
        assert tables.read("offsets").complete_since == {}


def test_the_newest_rebalance_of_a_group_is_shown_with_the_others(tmp_path: Path) -> None:
    row = {"group_id": "g", "at_ms": 5, "generation": 1, "offsets_partition": 0, "log_offset": 3, "left": ["m"]}
    final = made("rebalances", row)
    newest = [row | {"at_ms": 9, "generation": 2, "log_offset": 8, "carry": "{}"}, {"group_id": "h", "carry": "{}"}]
    latest = made("latest_rebalances", *newest)
    given = commits({"log_offset": 7, "timestamp_ms": 8})
    published(tmp_path, {"rebalances": final, "latest_rebalances": latest, **given})
    with open_tables(tmp_path) as tables:
        assert [row["generation"] for row in rows(tables, "rebalances")] == [1, 2]
        assert [row["generation"] for row in rows(tables, "rebalances", as_of_ms=7)] == [1]
        assert [row["generation"] for row in rows(tables, "latest_rebalances")] == [1, 2]


def test_lag_of_a_moment_is_against_the_ends_of_that_moment(tmp_path: Path) -> None:
    ends = [
        {"topic": "t", "partition": 0, "observed_at_ms": at, "log_end_offset": end}
        for at, end in ((100, 10), (200, 30))
    ]
    given = commits({"log_offset": 0, "timestamp_ms": 50, "committed_offset": 4})
    published(tmp_path, given | {"log_ends": pa.Table.from_pylist(ends, schema=LOG_ENDS)})
    with open_tables(tmp_path) as tables:
        assert [row["lag"] for row in rows(tables, "lag", as_of_ms=100)] == [6]
        assert [row["lag"] for row in rows(tables, "lag", as_of_ms=150)] == [16]
        assert [row["lag"] for row in rows(tables, "lag", as_of_ms=200)] == [26]
        assert [row["lag"] for row in rows(tables, "lag", as_of_ms=99)] == [None]  # unknown, not 0


def test_files_of_an_older_schema_have_nulls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from muster.tables.storage import changes as module

    with monkeypatch.context() as patch:
        patch.setattr(module, "PUBLISHED", PUBLISHED | {"offsets": pa.schema(list(PUBLISHED["offsets"])[:-3])})
        lacking = dict.fromkeys(("offsets_partition", "log_offset"))
        older = made("offsets", {"group_id": "g", **lacking})
        store = published(tmp_path, {"offsets": older})
    with open_tables(tmp_path) as tables:
        assert rows(tables, "offsets") == older.to_pylist()
    with begin_run(store) as run:
        run.append_rows("offsets", made("offsets", {"group_id": "h", "log_offset": 7}))
        run.publish({}, {})
    with open_tables(tmp_path) as tables:
        assert [(row["group_id"], row["log_offset"]) for row in rows(tables, "offsets")] == [("g", None), ("h", 7)]
    added = {field.name: field.nullable for field in DeltaTable(tmp_path / "offsets").schema().fields}
    assert (added["group_id"], added["log_offset"]) == (False, True)  # whatever came later is NULL in older rows


def test_a_reader_stays_with_its_run(tmp_path: Path) -> None:
    store = published(tmp_path, commits({"log_offset": 1, "timestamp_ms": 1}))
    with open_tables(tmp_path) as tables:
        with begin_run(store) as run:
            run.append_rows("commits", commits({"log_offset": 2, "timestamp_ms": 1})["commits"])
            run.publish({}, {})
        assert [row["log_offset"] for row in rows(tables, "commits")] == [1]
    with open_tables(tmp_path) as tables:
        assert [row["log_offset"] for row in rows(tables, "commits")] == [1, 2]


def test_facts(tmp_path: Path) -> None:
    published(tmp_path, history_of("k26"))
    with open_tables(tmp_path) as tables:
        facts = {one.table: one for one in tables.facts()}
    assert facts["commits"].rows == history_of("k26")["commits"].num_rows
    assert facts["commits"].newest_ms == max(filter(None, history_of("k26")["commits"]["timestamp_ms"].to_pylist()))
    assert (facts["lag"].rows, facts["lag"].version) == (0, -1)


def test_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"there are no tables at .* `muster pipeline run"):
        open_tables(tmp_path / "nothing")
    store = published(tmp_path, commits({"log_offset": 1, "timestamp_ms": 1}))
    (file,) = store.files("commits", 0)
    Path(file).write_bytes(b"PAR1 not a file")
    with open_tables(tmp_path) as tables:
        with pytest.raises(BadInput, match=r"cannot be read: .*build them anew"):
            tables.read("commits")
        with pytest.raises(BadInput, match="no table 'comits'"):
            tables.read("comits")
    Path(file).unlink()
    with open_tables(tmp_path) as tables, pytest.raises(BadInput, match="cannot be read"):
        tables.read("commits")


def test_a_deletion_kept_beside_open_commits_ends_them(tmp_path: Path) -> None:
    given = [
        {"log_offset": 1, "timestamp_ms": 1, "txn_outcome": "open", "producer_id": 7},
        {"log_offset": 2, "timestamp_ms": 2, "kind": "deleted"},
        {"log_offset": 3, "timestamp_ms": 3, "txn_outcome": "open", "producer_id": 7, "partition": 1},
    ]
    waiting = commits(*given)["commits"]
    published(tmp_path, {"open_commits": waiting, **commits(given[1])})
    with open_tables(tmp_path) as tables:
        assert [row["log_offset"] for row in rows(tables, "open_commits")] == [3]
        assert [row["log_offset"] for row in rows(tables, "open_commits", as_of_ms=1)] == [1]
        assert [row["log_offset"] for row in rows(tables, "commits", as_of_ms=9)] == [2]
        assert [row["group_id"] for row in rows(tables, "groups", as_of_ms=1)] == ["g"]
        assert rows(tables, "offsets", as_of_ms=9) == []


@pytest.mark.parametrize("table", ["offsets", "open_commits", "group_state", "groups", "members", "lag", "commits"])
def test_asking_for_some_groups_at_a_moment_gives_their_rows_of_all(tmp_path: Path, table: str) -> None:
    """The condition goes down to the files; where the log ended then is told by all groups of a partition."""
    state = state_at_the_end("k43-full")
    published(tmp_path, state)
    times = sorted(time for time in state["commits"]["timestamp_ms"].to_pylist() if time is not None)
    groups = sorted({group for group in state["commits"]["group_id"].to_pylist() if group is not None})
    for as_of_ms in (times[len(times) // 3], times[-1]):
        with open_tables(tmp_path) as tables:
            everything = rows(tables, table, as_of_ms=as_of_ms)
            for asked in ([groups[0]], groups[1:3], [f"{groups[0][:3]}*"], ["it's none"]):
                found = rows(tables, table, as_of_ms=as_of_ms, where={"group_id": asked})
                assert found == [row for row in everything if _matches(row["group_id"], asked)], asked


def _matches(group: str, patterns: list[str]) -> bool:
    return any(group == one or (one.endswith("*") and group.startswith(one[:-1])) for one in patterns)


def test_another_groups_record_ends_the_log_of_a_moment_for_the_group_asked_for(tmp_path: Path) -> None:
    """A clock stepped back: what stands behind a later record was not there yet, whoever wrote that."""
    given = [
        {"log_offset": 0, "timestamp_ms": 50, "committed_offset": 1},
        {"log_offset": 1, "timestamp_ms": 500, "group_id": "other", "committed_offset": 2},
        {"log_offset": 2, "timestamp_ms": 100, "committed_offset": 3},
    ]
    published(tmp_path, commits(*given))
    with open_tables(tmp_path) as tables:
        for where in ({}, {"group_id": ["g"]}):
            (row,) = rows(tables, "offsets", as_of_ms=200, where=where)
            assert row["committed_offset"] == 1


def test_groups_of_a_log_that_has_ended_and_of_one_that_has_not_are_asked_for_together(tmp_path: Path) -> None:
    given = [
        {"log_offset": 0, "timestamp_ms": 50, "committed_offset": 1},
        {"log_offset": 1, "timestamp_ms": 500, "committed_offset": 2},
        {"log_offset": 7, "timestamp_ms": 60, "committed_offset": 3, "group_id": "h", "offsets_partition": 1},
    ]
    published(tmp_path, commits(*given))
    with open_tables(tmp_path) as tables:
        for asked, expected in ((["g"], [1]), (["h"], [3]), (["g", "h"], [1, 3]), (["*"], [1, 3])):
            found = rows(tables, "offsets", as_of_ms=200, where={"group_id": asked})
            assert [row["committed_offset"] for row in found] == expected, asked


def test_a_query_of_ones_own_sees_tables_as_they_are_inside(tmp_path: Path) -> None:
    published(tmp_path, commits({"log_offset": 1, "timestamp_ms": 7}, {"log_offset": 2, "group_id": "it's"}))
    with open_tables(tmp_path) as tables:
        asked = f"SELECT log_offset, timestamp_ms FROM {tables.relation('commits')} c WHERE group_id = ?"
        assert tables.asked(asked, ["g"]) == [(1, 7)]
        assert tables.asked(asked, ["it's"]) == [(2, None)]
        with pytest.raises(BadInput, match="there is no table 'nosuch'"):
            tables.relation("nosuch")
        with pytest.raises(BadInput, match="cannot be read"):
            tables.asked("SELECT 1 FROM nosuch")


def test_relations_are_for_sql_of_ones_own(tmp_path: Path) -> None:
    offsets_in_force = state_at_the_end("k43-full")["offsets"].to_pylist()
    groups = sorted({row["group_id"] for row in offsets_in_force if row["group_id"]})
    published(tmp_path, state_at_the_end("k43-full"))
    with open_tables(tmp_path) as tables:
        for pattern in (groups[0], f"{groups[0][:2]}*", "?*"):
            of_some = [name for name in groups if name == pattern or name.startswith(pattern.rstrip("?*"))]
            offsets = tables.relation("offsets", groups=[pattern])
            assert tables.asked(f"SELECT DISTINCT group_id FROM {offsets} o ORDER BY 1") == [
                (name,) for name in of_some
            ]
        then = tables.relation("offsets", PUBLISHED_AT_MS, [groups[0]])
        counted = tables.asked(f"SELECT count(*) FROM {then} o WHERE group_id = ?", [groups[0]])
        assert counted == [(sum(row["group_id"] == groups[0] for row in offsets_in_force),)]
        with pytest.raises(BadInput, match="nothing is known of"):
            tables.relation("offsets", PUBLISHED_AT_MS + 1)
