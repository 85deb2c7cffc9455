"""Old history is dropped. State, younger rows and every moment that is left are as in tables that keep all."""

import shutil
import time
from collections import Counter
from collections.abc import Sequence
from errno import ENOSPC
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
import pytest

from muster.cli.status import Status
from muster.codec import OffsetValue, encode_key, encode_offset_value, offset_key
from muster.codec.batches import encode_batch, encode_marker
from muster.codec.offsets_topic import GroupKey, GroupValue, MemberValue, encode_group_value
from muster.codec.records import TRANSACTIONAL, Record
from muster.errors import BadInput
from muster.pipeline.analytics import BY_HOUR
from muster.pipeline.engine import LocalEngine
from muster.pipeline.interval_task import Making
from muster.pipeline.job import Request, Summary
from muster.pipeline.job import run as run_job
from muster.tables.clocks import iso_time
from muster.tables.reading import open_tables
from muster.tables.schemas import ANALYTICS, HISTORY, STATE, published_name
from muster.tables.storage.changes import begin_run
from muster.tables.storage.compact import compact
from muster.tables.storage.files import TableWriter
from muster.tables.storage.manifest import Manifest, PartitionProgress
from muster.tables.storage.retention import LONGER_MS, drop_history, horizon_ms
from muster.tables.storage.store import TableStore
from muster.tables.storage.upkeep import Keep
from tests.cli import run
from tests.pipeline.test_job import sorted_rows
from tests.pipeline.world import batch_ends, rows_of, run_here
from tests.tables.made import made

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
TEN_DAYS = Keep(history_ms=10 * DAY_MS)
DERIVED = ("offsets", "open_commits", "group_state", "groups", "members", "lag")
TIMES = {
    "commits": "timestamp_ms", "group_records": "timestamp_ms", "markers": "timestamp_ms", "rebalances": "at_ms",
    "log_ends": "observed_at_ms", "lag_history": "interval_start_ms", "rates": "interval_start_ms",
    "group_hours": "hour_ms", "verdicts": "at_ms",
}  # fmt: skip


class OldLog:
    """A log directory of two partitions that is written in steps, with the time of each record chosen."""

    def __init__(self, root: Path, seed: int, now_ms: int) -> None:
        self.root, self.now_ms, self._random = root, now_ms, Random(seed)
        self._next = [0, 0]
        self._open: list[tuple[int, int]] = []
        """Partition and producer of transactions that have not ended."""
        self._producers = 0
        self._data = 0

    def live_for(self, days: float, steps: int, hostile: bool = True) -> None:
        for _ in range(steps):
            self.now_ms += round(days * DAY_MS / steps)
            self._step(hostile)
        self.produce(self._random.randint(1, 20))

    def _step(self, hostile: bool) -> None:
        number = self._random.randrange(2)
        group, partition = f"group-{number}-{self._random.randrange(3)}", self._random.randrange(2)
        key = encode_key(offset_key(group, "orders", partition))
        match self._random.randrange(8):
            case 0:
                self.write(number, key, None, self._stamp(hostile))
            case 1:
                self._producers += 1
                self._open.append((number, self._producers))
                self.write(number, key, self._value(), self._stamp(hostile), self._producers)
            case 2 if self._open:
                where, producer = self._open.pop(self._random.randrange(len(self._open)))
                is_commit = self._random.random() < 0.7
                marker = encode_marker(
                    self._next[where], self._stamp(hostile), producer, 0, commit=is_commit, coordinator_epoch=1
                )
                self._append(where, marker)
            case 3 | 4:
                self.write(number, encode_key(GroupKey(group)), self._members(), self._stamp(hostile))
            case 5:
                self.write(number, encode_key(GroupKey(group)), None, self._stamp(hostile))
            case _:
                self.write(number, key, self._value(), self._stamp(hostile))

    def _stamp(self, hostile: bool) -> int:
        """Mostly now; sometimes a clock that steps back, microseconds, or no time at all."""
        if not hostile or self._random.random() < 0.8:
            return self.now_ms
        return self._random.choice([self.now_ms - 30 * 60_000, self.now_ms - 2 * DAY_MS, self.now_ms * 1000, -1])

    def _value(self) -> bytes:
        committed = max(0, self._data - self._random.randint(0, 15))
        return encode_offset_value(OffsetValue(committed, -1, "", self.now_ms, None), 3)

    def _members(self) -> bytes:
        generation = self._random.randint(1, 100)
        member = MemberValue(f"m{generation}", None, "client", "/127.0.0.1", 1000, 1000, b"", b"")
        return encode_group_value(
            GroupValue("consumer", generation, "range", member.member_id, self.now_ms, (member,)), 3
        )

    def commit(self, group: str, committed_offset: int) -> None:
        value = encode_offset_value(OffsetValue(committed_offset, -1, "", self.now_ms, None), 3)
        self.write(0, encode_key(offset_key(group, "orders", 0)), value, self.now_ms)

    def write(self, number: int, key: bytes, value: bytes | None, time_ms: int, producer: int | None = None) -> None:
        record = Record(self._next[number], time_ms, key, value)
        if producer is None:
            self._append(number, encode_batch([record]))
        else:
            self._append(
                number, encode_batch([record], attributes=TRANSACTIONAL, producer_id=producer, producer_epoch=0)
            )

    def _append(self, number: int, batch: bytes) -> None:
        self._next[number] += 1
        with self._segment(f"__consumer_offsets-{number}").open("ab") as file:
            file.write(batch)

    def produce(self, count: int) -> None:
        """Data, so that there are ends to be behind of."""
        for partition in range(2):
            records = [Record(self._data + place, self.now_ms, None, b"v") for place in range(count)]
            with self._segment(f"orders-{partition}").open("ab") as file:
                file.write(encode_batch(records))
        self._data += count

    def _segment(self, directory: str) -> Path:
        folder = self.root / directory
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{0:020}.log"


def long_ago(days: int) -> int:
    return time.time_ns() // 1_000_000 - days * DAY_MS


def manifest_of(tables: Path) -> Manifest:
    found = TableStore(tables).manifest()
    assert found is not None
    return found


def since_of(tables: Path) -> int:
    since_ms = manifest_of(tables).history_since_ms
    assert since_ms is not None
    return since_ms


def counted(rows: list[dict[str, Any]]) -> "Counter[str]":
    return Counter(sorted_rows(rows))


def assert_same_but_shorter(kept: Path, everything: Path, *, analytics: bool = False, moments: int = 1) -> None:
    """What is left is what the tables without an end say, from the horizon on."""
    since_ms, until_ms = since_of(kept), manifest_of(kept).observed_at_ms
    state = [table for table in STATE if table != "latest_rebalances"]
    history = [*HISTORY, *(ANALYTICS if analytics else ())]
    here, there = rows_of(kept, *state, *history), rows_of(everything, *state, *history)
    for table in state:
        assert sorted_rows(here[table]) == sorted_rows(there[table]), table
    for table in history:
        missing = counted(there[table]) - counted(here[table])
        assert not counted(here[table]) - counted(there[table]), table  # nothing but rows that were there
        gone = [row for row in there[table] if sorted_rows([row])[0] in missing]
        assert all(row[TIMES[table]] is None or row[TIMES[table]] < since_ms for row in gone), table
    random = Random(since_ms)
    for moment_ms in [since_ms, *(random.randint(since_ms, until_ms) for _ in range(moments))]:
        derived = [*DERIVED, *(("status", "expiry") if analytics else ())]
        here, there = (rows_of(each, *derived, as_of_ms=moment_ms) for each in (kept, everything))
        for table in derived:
            assert sorted_rows(here[table]) == sorted_rows(there[table]), (table, moment_ms)
    with pytest.raises(BadInput, match=f"is not known any more. Ask for --as-of {iso_time(since_ms)} or later"):
        rows_of(kept, "offsets", as_of_ms=since_ms - 1)


@pytest.mark.long
def test_moments_that_are_left_are_what_they_were(tmp_path: Path) -> None:
    kept, everything = tmp_path / "kept", tmp_path / "everything"
    log = OldLog(tmp_path / "log", 3, long_ago(100))
    for days, steps in ((20, 60), (20, 60)):
        log.live_for(days, steps)
        run_here(kept, log.root, keep=TEN_DAYS)
        run_here(everything, log.root)
    assert_same_but_shorter(kept, everything, moments=2)
    rows = {each: rows_of(each, "commits")["commits"] for each in (kept, everything)}
    assert len(rows[kept]) < len(rows[everything]) * 0.7


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10, 60))
def test_so_they_are_of_any_log(seed: int, tmp_path: Path) -> None:
    kept, everything = tmp_path / "kept", tmp_path / "everything"
    log = OldLog(tmp_path / "log", seed, long_ago(150))
    random = Random(seed)
    for _ in range(6):
        log.live_for(random.randint(1, 25), random.randint(5, 80))
        run_here(kept, log.root, keep=TEN_DAYS)
        run_here(everything, log.root)
        if random.random() < 0.3:
            for tables in (kept, everything):
                compact(TableStore(tables))
    if manifest_of(kept).history_since_ms is not None:
        assert_same_but_shorter(kept, everything, moments=10)


@pytest.mark.long
def test_together_with_joined_files_and_tables_by_interval(tmp_path: Path) -> None:
    kept, everything = tmp_path / "kept", tmp_path / "everything"
    log = OldLog(tmp_path / "log", 4, long_ago(100))
    for _ in range(2):
        log.live_for(16, 36, hostile=False)
        for tables, keep in ((kept, TEN_DAYS), (everything, Keep())):
            run_here(tables, log.root, keep=keep, analytics=True)
            compact(TableStore(tables))
    assert_same_but_shorter(kept, everything, analytics=True)
    rows = {each: rows_of(each, *ANALYTICS) for each in (kept, everything)}
    assert all(len(rows[kept][table]) < len(rows[everything][table]) for table in ANALYTICS)


def test_of_old_verdicts_the_last_of_each_key_stays(tmp_path: Path) -> None:
    said = [("a", 1, "OK"), ("b", 1, "OK"), ("a", 5, "STOPPED"), ("b", 5, None), ("a", 50, "OK")]
    rows = [
        {"group_id": group, "topic": "t", "at_ms": at_ms, "verdict": verdict, "run_number": at_ms}
        for group, at_ms, verdict in said
    ]
    with begin_run(TableStore(tmp_path)) as changes:
        changes.append_rows("verdicts", made("verdicts", *rows))
        gone = drop_history(changes, 10, 100)
        changes.publish({}, {})
    assert (gone.rows, gone.notes) == ({"verdicts": 3}, [])
    left = rows_of(tmp_path, "verdicts")["verdicts"]
    assert [(row["group_id"], row["at_ms"], row["verdict"]) for row in left] == [said[2], said[4]]


def test_of_old_ends_those_stay_that_lines_begin_at(tmp_path: Path) -> None:
    """The newest run before the horizon did not get the end of one partition; nobody has committed anything."""
    base_ms, hour_ms = 1000 * DAY_MS, DAY_MS // 24
    looks = [("t", 1, 10), ("u", 1, 10), ("t", 5, 11), ("u", 5, 12), ("t", 6, None), ("u", 6, 20), ("t", 8, 30)]
    rows = [
        {"topic": topic, "partition": 0, "observed_at_ms": base_ms + at * hour_ms, "log_end_offset": end,
         "run_number": at}
        for topic, at, end in looks
    ]  # fmt: skip
    with begin_run(TableStore(tmp_path)) as changes:
        changes.append_rows("log_ends", made("log_ends", *rows))
        gone = drop_history(changes, base_ms + 7 * hour_ms, base_ms + 9 * hour_ms)
        changes.publish({}, {})
    assert (gone.rows, gone.notes) == ({"log_ends": 3}, [])
    left = rows_of(tmp_path, "log_ends")["log_ends"]
    assert {(row["topic"], row["run_number"]) for row in left} == {("t", 5), ("t", 6), ("u", 6), ("t", 8)}


def test_a_second_run_drops_nothing_and_a_day_later_a_day_goes(tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    log = OldLog(tmp_path / "log", 5, long_ago(60))
    log.live_for(40, 80, hostile=False)
    first = run_here(tables, log.root, keep=TEN_DAYS)
    assert first.dropped_rows["commits"] > 0
    assert first.history_since_ms == since_of(tables) == log.now_ms - 10 * DAY_MS - LONGER_MS
    versions = manifest_of(tables).tables

    again = run_here(tables, log.root, keep=TEN_DAYS)
    assert again.dropped_rows == {}
    assert manifest_of(tables).tables == versions
    log.live_for(0.9, 2, hostile=False)
    assert run_here(tables, log.root, keep=TEN_DAYS).dropped_rows == {}
    assert since_of(tables) == first.history_since_ms
    log.live_for(9, 20, hostile=False)
    assert run_here(tables, log.root).dropped_rows == {}  # not asked for
    assert since_of(tables) == first.history_since_ms
    assert run_here(tables, log.root, keep=TEN_DAYS).dropped_rows["commits"] > 0
    assert since_of(tables) == log.now_ms - 10 * DAY_MS - LONGER_MS


def test_the_lag_in_time_of_a_group_that_is_far_behind_stays_known(tmp_path: Path) -> None:
    """It is measured by an observation that is older than all history that is kept."""
    kept, everything = tmp_path / "kept", tmp_path / "everything"
    log = OldLog(tmp_path / "log", 6, long_ago(80))
    for day in range(4):
        log.produce(10)
        if day == 1:
            log.commit("slow", 13)
        log.commit("quick", 10 * (day + 1))
        dropped = run_here(kept, log.root, keep=TEN_DAYS).dropped_rows
        if day:
            run_here(everything, log.root)
        else:
            assert dropped == {}
            shutil.copytree(kept, everything)
        log.now_ms += 15 * DAY_MS
    found = [rows_of(each, "lag", "log_ends") for each in (kept, everything)]
    assert sorted_rows(found[0]["lag"]) == sorted_rows(found[1]["lag"])
    assert len(found[0]["log_ends"]) < len(found[1]["log_ends"])
    moment_ms = since_of(kept) + DAY_MS
    lags = [rows_of(each, "lag", as_of_ms=moment_ms)["lag"] for each in (kept, everything)]
    assert sorted_rows(lags[0]) == sorted_rows(lags[1])
    (slow,) = [row for row in lags[0] if row["group_id"] == "slow"]
    assert slow["lag_ms_by"] == "interpolated"
    ends = [rows_of(each, "log_ends", as_of_ms=moment_ms)["log_ends"] for each in (kept, everything)]
    newest = [[row for row in some if row["run_number"] == max(each["run_number"] for each in some)] for some in ends]
    assert sorted_rows(newest[0]) == sorted_rows(newest[1])  # whole, also of a partition that nothing is committed for


def test_wrong_stamps_move_no_horizon() -> None:
    now_ms = 1_794_904_384_123
    asked = 90 * DAY_MS

    def counted_from(*logs: Sequence[int], data_ms: Sequence[int | None] = ()) -> int | None:
        """The time that a horizon is counted from, of logs with records of these times, in days before now."""
        progress = [
            PartitionProgress(
                len(days), 0, 0, 0, None, max((now_ms - day * DAY_MS for day in days), default=None),
                tuple((place, now_ms - day * DAY_MS) for place, day in enumerate(days)),
            )
            for days in logs
        ]  # fmt: skip
        horizon = horizon_ms(progress, now_ms, asked, data_ms)
        return None if horizon is None else (now_ms - horizon - asked - LONGER_MS) // DAY_MS

    empty, microseconds = (), -now_ms * 999 // DAY_MS
    assert counted_from([1], *[empty] * 49) == 1  # borne out by this machine's clock
    assert counted_from([402, 401, 400], *[empty] * 49) == 400  # a copy of an old log, by its own records
    assert counted_from([402, 401, 300]) == 401
    assert counted_from([402, 300]) is None
    assert counted_from([300]) is None
    assert counted_from([300], data_ms=[None, now_ms - 303 * DAY_MS]) == 300
    assert counted_from([402, 401, 400], [microseconds]) == 400
    assert counted_from([microseconds]) is None
    assert counted_from(empty) is None
    assert counted_from([402, 401, 400], [405, 301, 300]) == 400  # a partition that is alone with its times
    assert counted_from([402, 401, 400], [400, 301, 300], data_ms=[now_ms - 400 * DAY_MS]) == 400
    assert counted_from([402, 401, 400], [405, 300], [406, 301], [401], [402]) == 400  # and two of five
    assert counted_from([402, 401, 400], [405, 300], [406, 301], [330], [340]) == 300


def test_a_lonely_stamp_in_a_copy_of_an_old_log_drops_nothing(tmp_path: Path) -> None:
    log = OldLog(tmp_path / "log", 3, long_ago(100))
    for number in range(8):
        log.commit("app", number)
        log.now_ms += DAY_MS
    log.produce(10)
    value = encode_offset_value(OffsetValue(1, -1, "", log.now_ms, None), 3)
    log.write(1, encode_key(offset_key("b", "orders", 0)), value, log.now_ms + 60 * DAY_MS)
    summary = run_here(tmp_path / "tables", log.root, keep=TEN_DAYS)
    assert (summary.dropped_rows, summary.history_since_ms, summary.notes) == ({}, None, [])
    assert len(rows_of(tmp_path / "tables", "commits", as_of_ms=log.now_ms)["commits"]) == 8


def test_nothing_is_dropped_where_no_time_can_be_believed_and_that_is_said(tmp_path: Path) -> None:
    log = OldLog(tmp_path / "log", 7, long_ago(60))
    log.commit("app", 1)
    log.now_ms = log.now_ms * 1000
    log.commit("app", 2)
    summary = run_here(tmp_path / "tables", log.root, keep=TEN_DAYS)
    note = "no record has a time that can be believed, since no other is near it: no history was dropped."
    assert note in summary.notes
    assert len(rows_of(tmp_path / "tables", "commits")["commits"]) == 2


def test_a_wrong_stamp_that_ends_no_log_goes_on_ending_none(tmp_path: Path) -> None:
    """A commit stamped in microseconds is in force; that the log goes on behind it is told by an old record alone."""
    log = OldLog(tmp_path / "log", 9, long_ago(90))
    key, value = encode_key(offset_key("app", "orders", 0)), encode_offset_value(OffsetValue(7, -1, "", 1, None), 3)
    log.write(0, key, value, log.now_ms * 1000)
    log.write(0, encode_key(offset_key("gone", "orders", 0)), value, log.now_ms)
    log.write(0, encode_key(offset_key("gone", "orders", 0)), None, log.now_ms)
    for _ in range(5):
        log.now_ms += 10 * DAY_MS
        log.write(1, encode_key(offset_key("other", "orders", 0)), value, log.now_ms)
    log.produce(1)
    assert run_here(tmp_path / "tables", log.root, keep=TEN_DAYS).dropped_rows["commits"] > 1
    rows = rows_of(tmp_path / "tables", "offsets", as_of_ms=since_of(tmp_path / "tables") + DAY_MS)["offsets"]
    assert {row["group_id"] for row in rows} == {"app", "other"}


def test_what_a_deletion_has_ended_does_not_come_back_with_its_transaction(tmp_path: Path) -> None:
    log = OldLog(tmp_path / "log", 9, long_ago(90))
    key, value = encode_key(offset_key("app", "orders", 0)), encode_offset_value(OffsetValue(7, -1, "", 1, None), 3)
    log.write(0, key, value, log.now_ms, producer=5)
    log.write(0, key, None, log.now_ms)
    for number in range(5):
        log.now_ms += 10 * DAY_MS
        log.commit("other", number)
    log.produce(1)
    assert run_here(tmp_path / "tables", log.root, keep=TEN_DAYS).dropped_rows["commits"] > 1
    rows = rows_of(tmp_path / "tables", "open_commits", "groups", as_of_ms=since_of(tmp_path / "tables") + DAY_MS)
    assert rows["open_commits"] == []
    assert [row["group_id"] for row in rows["groups"]] == ["other"]


def test_a_clock_that_stepped_back_across_the_horizon(tmp_path: Path) -> None:
    """What was written under the earlier time was not there yet at a moment in between."""
    log = OldLog(tmp_path / "log", 9, long_ago(20))
    newest_ms = log.now_ms
    horizon = newest_ms - 10 * DAY_MS - LONGER_MS
    log.now_ms = horizon - 3 * DAY_MS
    for _ in range(4):  # enough that the file is rewritten
        log.commit("old", 9)
    times = {"app": horizon - 2 * DAY_MS, "old": horizon - DAY_MS, "later": horizon + 5 * 60_000}
    for committed, (group, time_ms) in enumerate(
        [*times.items(), ("app", horizon - 60_000), ("old", newest_ms)], start=1
    ):
        log.now_ms = time_ms
        log.commit(group, committed)
    log.produce(1)
    run_here(tmp_path / "tables", log.root, keep=TEN_DAYS)
    assert manifest_of(tmp_path / "tables").source["retention"]["horizon_ms"] == horizon
    rows = rows_of(tmp_path / "tables", "offsets", as_of_ms=horizon + 60_000)["offsets"]
    assert {(row["group_id"], row["committed_offset"]) for row in rows} == {("app", 1), ("old", 2)}


def test_files_of_which_little_can_go_are_left_alone(tmp_path: Path) -> None:
    """A row is not rewritten every day until its own day comes."""
    tables = tmp_path / "tables"
    log = OldLog(tmp_path / "log", 8, long_ago(90))
    for number in range(100):
        log.commit("app", number)
        log.now_ms += DAY_MS // 2
    run_here(tables, log.root, keep=Keep(history_ms=30 * DAY_MS))
    first = manifest_of(tables).tables["commits"]
    versions = []
    for number in range(4):
        log.now_ms += DAY_MS
        log.commit("app", number)
        run_here(tables, log.root, keep=Keep(history_ms=30 * DAY_MS))
        versions.append(manifest_of(tables).tables["commits"])
    assert versions == [first + 1, first + 2, first + 3, first + 4]  # each appended a row, and rewrote none


def generation_in(log: OldLog, group: str, number: int) -> None:
    """A generation of as many members."""
    members = [MemberValue(f"m{n}", None, "client", "/127.0.0.1", 1000, 1000, b"", b"") for n in range(number)]
    value = GroupValue("consumer", number, "range", "m0", log.now_ms, tuple(members))
    log.write(0, encode_key(GroupKey(group)), encode_group_value(value, 3), log.now_ms)
    log.now_ms += HOUR_MS


class Told(LocalEngine):
    """Knows which files of rebalances the last run has made `group_hours` of."""

    def __init__(self) -> None:
        self.rebalances: Sequence[str] | None = None

    def each(self, step: str, task: Any, works: Sequence[Any]) -> list[Any]:
        for work in works:
            if isinstance(work, Making) and work.tables == BY_HOUR:
                self.rebalances = work.files["rebalances"]
        return super().each(step, task, works)


@pytest.mark.long
def test_groups_that_are_gone_cost_the_later_runs_nothing(tmp_path: Path) -> None:
    """They are in history, and neither in what is rewritten by every run nor in what is read by it."""
    log, tables, engine = OldLog(tmp_path / "log", 3, long_ago(60)), tmp_path / "tables", Told()

    def run_on(days: float) -> tuple[set[str], set[str]]:
        """The groups of which the tables of state remember rebalances, and commits."""
        log.commit("here", 5)
        log.produce(1)
        run_job(engine, Request([str(log.root)], str(tables)))
        log.now_ms += int(days * DAY_MS)
        with open_tables(tables) as opened:
            names = ("latest_rebalances", "activity")
            found = [opened.asked(f"SELECT group_id FROM {opened.relation(name)} r") for name in names]
        latest, activity = ({group for (group,) in rows} for rows in found)
        return latest, activity

    generation_in(log, "here", 1)
    for number in (1, 2):
        generation_in(log, "gone", number)
    log.commit("gone", 5)
    log.write(0, encode_key(offset_key("gone", "orders", 0)), None, log.now_ms)
    log.write(0, encode_key(GroupKey("gone")), None, log.now_ms)
    assert run_on(days=6) == ({"here", "gone"}, {"here", "gone"})
    generation_in(log, "here", 2)
    assert run_on(days=2) == ({"here", "gone"}, {"here", "gone"})
    generation_in(log, "here", 3)
    assert run_on(days=1) == ({"here"}, {"here"})
    generation_in(log, "here", 4)
    run_on(days=0)
    assert engine.rebalances is not None
    assert len(engine.rebalances) < len(list((tables / "rebalances").glob("*.parquet")))
    run_here(tmp_path / "once", log.root, analytics=True)
    found, expected = (rows_of(each, "rebalances", "group_hours") for each in (tables, tmp_path / "once"))
    assert {name: sorted_rows(rows) for name, rows in found.items()} == {
        name: sorted_rows(rows) for name, rows in expected.items()
    }


@pytest.mark.long
def test_a_truncation_takes_nothing_from_groups_that_it_does_not_touch(tmp_path: Path) -> None:
    """What is known of their rebalances cannot be told again: the records are dropped."""
    kept, everything = tmp_path / "kept", tmp_path / "everything"
    log = OldLog(tmp_path / "log", 3, long_ago(60))

    def generation(group: str, number: int) -> None:
        generation_in(log, group, number)

    def runs(**more: Any) -> Summary:
        run_here(everything, log.root, **more)
        return run_here(kept, log.root, keep=TEN_DAYS, **more)

    for number in (1, 2, 3):
        generation("quiet", number)
    log.commit("quiet", 5)
    assert run_here(kept, log.root, keep=TEN_DAYS).dropped_rows == {}
    shutil.copytree(kept, everything)  # the same until something is dropped
    log.now_ms += 40 * DAY_MS
    generation("it's cut", 1)
    log.produce(5)
    assert runs().dropped_rows["rebalances"] == 2
    segment = log.root / "__consumer_offsets-0" / f"{0:020}.log"
    size = segment.stat().st_size
    generation("it's cut", 2)
    runs()
    segment.write_bytes(segment.read_bytes()[:size])
    (note,) = runs(accept_truncation=True).notes
    assert "was truncated at offset 5 by --accept-truncation: 1 rows" in note
    found = {each: rows_of(each, "rebalances")["rebalances"] for each in (kept, everything)}
    known = {("quiet", 3), ("it's cut", 1)}
    left = [row for row in found[everything] if (row["group_id"], row["generation"]) in known]
    assert sorted_rows(found[kept]) == sorted_rows(left)

    segment.write_bytes(segment.read_bytes()[: batch_ends(segment)[1]])  # among what was dropped
    summary = runs(accept_truncation=True)
    assert "no moment before" in summary.notes[-1]
    assert since_of(kept) == manifest_of(kept).observed_at_ms
    runs()
    assert since_of(kept) < manifest_of(kept).observed_at_ms


def names_in(tables: Path, table: str) -> set[str]:
    return {file.name for file in (tables / table).glob("*.parquet")}


def test_a_damaged_old_file_is_told_and_the_run_is_published(tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    log = OldLog(tmp_path / "log", 5, long_ago(60))
    log.live_for(40, 80, hostile=False)
    run_here(tables, log.root)
    (old,) = (tables / "commits").glob("*.parquet")
    content = old.read_bytes()
    old.write_bytes(content[:4] + b"x" * 36 + content[40:])
    log.live_for(1, 5, hostile=False)
    summary = run_here(tables, log.root, keep=TEN_DAYS)
    (note,) = summary.notes
    assert note.startswith("no old history of any table was dropped: ")
    assert note.endswith("the next run tries again; a file that is damaged must be restored first.")
    found = manifest_of(tables)
    assert (found.run_id, found.source["retention"], summary.dropped_rows) == (summary.run_id, None, {})
    assert summary.new_rows["commits"] > 0
    old.write_bytes(content)
    assert run_here(tables, log.root, keep=TEN_DAYS).dropped_rows["commits"] > 0


@pytest.mark.long
def test_files_of_later_rows_are_not_opened(tmp_path: Path) -> None:
    """Of tables that do not tell up to where a log is old."""
    tables, names = tmp_path / "tables", (*ANALYTICS, "rebalances")
    log = OldLog(tmp_path / "log", 5, long_ago(60))
    ends_ms = []
    for _ in range(3):
        log.live_for(15, 50, hostile=False)
        run_here(tables, log.root, analytics=True)
        ends_ms.append(log.now_ms)
    with begin_run(TableStore(tables)) as changes:
        for name in names:
            column = published_name(TIMES[name])
            times = {file: pq.read_table(file, columns=[column])[column].to_pylist() for file in changes.files(name)}
            later = [file for file, found in times.items() if min(found).timestamp() * 1000 > ends_ms[0]]
            assert 0 < len(later) < len(times)
            for file in later:
                Path(file).write_bytes(b"")
        gone = drop_history(changes, ends_ms[0], ends_ms[2])
    assert not gone.notes
    assert all(gone.rows[name] > 0 for name in names)


@pytest.mark.parametrize("time_ms", [None, 3000 * DAY_MS], ids=["no-time", "a-wrong-one"])
def test_a_file_of_later_rows_and_one_that_no_time_tells_of_is_looked_at(time_ms: int | None, tmp_path: Path) -> None:
    """That one is at an old place, and in force: those before it can go."""

    def commit(log_offset: int, at_ms: int | None, group: str = "g") -> dict[str, Any]:
        key = {"offsets_partition": 0, "kind": "commit", "group_id": group, "topic": "t", "partition": 0}
        return key | {"log_offset": log_offset, "timestamp_ms": at_ms, "committed_offset": log_offset}

    old_ms, later_ms = 1000 * DAY_MS, 2000 * DAY_MS
    with begin_run(TableStore(tmp_path)) as changes:
        changes.append_rows("commits", made("commits", commit(1, old_ms), commit(2, old_ms), commit(5, old_ms, "h")))
        changes.append_rows("commits", made("commits", commit(3, time_ms), commit(10, later_ms)))
        gone = drop_history(changes, 1500 * DAY_MS, later_ms)
    assert (gone.rows, gone.notes) == ({"commits": 2}, [])


@pytest.mark.long
def test_a_full_disk_leaves_a_table_as_it_was_and_the_next_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a log with wrong stamps."""
    tables, everything = tmp_path / "kept*", tmp_path / "everything"  # duckdb's own reader takes that for a pattern
    log = OldLog(tmp_path / "log", 5, long_ago(60))
    log.live_for(40, 80)
    run_here(tables, log.root)
    shutil.copytree(tables, everything)
    held = names_in(tables, "group_records")

    def disk_full(writer: TableWriter, close: Any = TableWriter.close) -> None:
        close(writer)
        if writer.files and writer.files[0].table == "group_records":
            raise OSError(ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(TableWriter, "close", disk_full)
        summary = run_here(tables, log.root, keep=TEN_DAYS)
    (note,) = summary.notes
    assert note.startswith("no old history of group_records was dropped: [Errno 28] No space left on device. ")
    assert names_in(tables, "group_records") == held
    assert summary.dropped_rows["commits"] > 0
    assert "group_records" not in summary.dropped_rows
    assert summary.history_since_ms == since_of(tables) == log.now_ms - 10 * DAY_MS - LONGER_MS
    assert_same_but_shorter(tables, everything)

    again = run_here(tables, log.root, keep=TEN_DAYS)
    assert (again.notes, set(again.dropped_rows)) == ([], {"group_records"})
    assert since_of(tables) == summary.history_since_ms
    assert_same_but_shorter(tables, everything)
    assert run_here(tables, log.root, keep=TEN_DAYS).dropped_rows == {}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--keep-history", "90"], "'90' is a number without a unit. Write 90s, 90m, 90h or 90d"),
        (["--keep-history", "5m"], "5m is too short: whole days are dropped. Write 1d or more"),
        (["--keep-history", "90d", "--state-only"], "it does not go with --state-only"),
    ],
)
def test_what_cannot_be_kept_is_refused(arguments: list[str], sentence: str, tmp_path: Path) -> None:
    result = run("pipeline", "run", "--source", str(tmp_path), "--out", str(tmp_path / "tables"), *arguments)
    assert result.status == Status.USAGE
    assert sentence in " ".join(result.err.split())
