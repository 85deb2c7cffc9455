"""A log between runs: commits, deletions, transactions, compaction, the whole life of a tombstone, truncation."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest

from muster.codec import OffsetValue, encode_key, encode_offset_value, offset_key, offset_value_version
from muster.errors import BadInput
from muster.log.compaction.manager import LogCleaner
from muster.log.compaction.plan import CompactionConfig
from muster.log.config import LogConfig
from muster.log.partition import DiskLog
from muster.segments.checkpoints import TopicPartition
from tests.pipeline.world import Rows, rows_of, run_here

START_MS = 1_800_000_000_000
DAY_MS = 86_400_000
KEYS = [(group, partition) for group in ("app", "billing") for partition in range(3)]
Key = tuple[str, int]


def seeds(every_day: int, now_and_then: int) -> list[Any]:
    return [*range(every_day), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(every_day, now_and_then))]


@dataclass
class Life:
    """A log of one partition with its cleaner, and what a coordinator would have in force: the newest one's rules."""

    root: Path
    now_ms: int = START_MS
    in_force: dict[Key, tuple[int, int]] = field(default_factory=dict)
    """Committed offset, and where in the log."""
    pending: dict[int, dict[Key, tuple[int, int]]] = field(default_factory=dict)
    moments: list[tuple[int, dict[Key, int]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.key = TopicPartition("__consumer_offsets", 0)
        self.root.mkdir(parents=True, exist_ok=True)
        config = LogConfig(segment_bytes=900, index_interval_bytes=100, compacted=True)
        self.log = DiskLog.open(self.root / str(self.key), config)
        self.cleaner = LogCleaner(
            self.root, {self.key: self.log}, lambda _: CompactionConfig(0.0, delete_retention_ms=DAY_MS)
        )

    def _write(self, key: Key, committed: int | None, producer: int = -1) -> int:
        self.now_ms += 1000
        value = None if committed is None else encode_offset_value(
            OffsetValue(committed, metadata="", commit_timestamp_ms=self.now_ms), offset_value_version()
        )  # fmt: skip
        record = (encode_key(offset_key(key[0], "orders", key[1])), value)
        offset = self.log.append([record], self.now_ms, producer, 0 if producer >= 0 else -1)
        self._settle()
        return offset

    def _settle(self) -> None:
        self.log.write()
        self.log.flush()

    def remember(self) -> None:
        self.moments.append((self.now_ms, {key: committed for key, (committed, _) in self.in_force.items()}))

    def commit(self, key: Key, committed: int) -> None:
        self.in_force[key] = (committed, self._write(key, committed))

    def delete(self, key: Key) -> None:
        self._write(key, None)
        self.in_force.pop(key, None)
        for waiting in self.pending.values():
            waiting.pop(key, None)

    def commit_in_transaction(self, producer: int, key: Key, committed: int) -> None:
        self.pending.setdefault(producer, {})[key] = (committed, self._write(key, committed, producer))

    def end(self, producer: int, *, commit: bool) -> None:
        self.now_ms += 1000
        self.log.append_marker(producer, 0, self.now_ms, commit=commit)
        self._settle()
        for key, found in self.pending.pop(producer, {}).items():
            if commit and (key not in self.in_force or self.in_force[key][1] < found[1]):
                self.in_force[key] = found

    def clean(self, later_ms: int = 0) -> None:
        self.now_ms += later_ms
        self.cleaner.run_once(self.now_ms)

    def close_segment(self) -> None:
        """Write until the active segment is another one, to a key that nobody looks at."""
        before = len(self.log.segments)
        while len(self.log.segments) == before:
            self.commit(("filler", 0), self.log.end_offset)

    def step(self, random: Random) -> None:
        """Something happens."""
        key, committed = random.choice(KEYS), random.randrange(10**6)
        producer = random.choice([41, 42])
        match random.choice(["commit"] * 6 + ["delete", "transaction", "transaction", "end", "end", "close"]):
            case "commit":
                self.commit(key, committed)
            case "delete":
                self.delete(key)
            case "transaction":
                self.commit_in_transaction(producer, key, committed)
            case "end" if producer in self.pending:
                self.end(producer, commit=random.random() < 0.7)
            case "close":
                self.close_segment()
        self.remember()


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    made = Life(tmp_path / "log")
    yield made
    made.log.close()


def offsets_of(tables: Path, as_of_ms: int | None = None) -> dict[Key, int]:
    rows = rows_of(tables, "offsets", as_of_ms=as_of_ms)["offsets"]
    return {(row["group_id"], row["partition"]): row["committed_offset"] for row in rows}


def places(rows: Rows) -> set[tuple[int, str, str | None]]:
    return {(row["log_offset"], row["kind"], row["txn_outcome"]) for row in rows}


def places_of(rows: Rows) -> list[tuple[str, int, int]]:
    return sorted((row["group_id"], row["partition"], row["log_offset"]) for row in rows)


@pytest.mark.parametrize("seed", seeds(1, 100))
def test_runs_between_everything_a_log_can_live_through(seed: int, life: Life, tmp_path: Path) -> None:
    random = Random(seed)
    tables = tmp_path / "tables"
    for _ in range(random.randint(3, 6)):
        for _ in range(random.randint(1, 25)):
            life.step(random)
        if random.random() < 0.6:
            life.close_segment()
            life.clean(random.choice([0, 0, DAY_MS + 1, 3 * DAY_MS]))
        run_here(tables, life.root)
        assert offsets_of(tables) == {key: committed for key, (committed, _) in life.in_force.items()}
    run_here(tmp_path / "scratch", life.root)
    ours, scratch = (rows_of(each, "offsets", "open_commits", "commits") for each in (tables, tmp_path / "scratch"))
    assert places_of(ours["offsets"]) == places_of(scratch["offsets"])
    # Of an open commit that a newer one has overtaken, whether it was deleted in between is known to earlier runs only.
    overtaken = {(row["group_id"], row["partition"]): row["log_offset"] for row in ours["offsets"]}
    still_open = [
        [
            row
            for row in found["open_commits"]
            if row["log_offset"] > overtaken.get((row["group_id"], row["partition"]), -1)
        ]
        for found in (ours, scratch)
    ]
    assert places_of(still_open[0]) == places_of(still_open[1])
    # Of a transaction that ended and was cleaned away nobody knows more than earlier runs have seen.
    known = {(offset, kind) for offset, kind, _ in places(ours["commits"])}
    assert {(offset, "deleted" if kind == "expired" else kind) for offset, kind, _ in places(scratch["commits"])} <= {
        (offset, "deleted" if kind == "expired" else kind) for offset, kind in known
    }


@pytest.mark.parametrize("seed", seeds(1, 50))
def test_any_moment_that_runs_have_seen(seed: int, life: Life, tmp_path: Path) -> None:
    """The log is cleaned behind every run, and still every moment can be asked for."""
    random = Random(seed)
    tables = tmp_path / "tables"
    for _ in range(4):
        for _ in range(random.randint(5, 20)):
            life.step(random)
        run_here(tables, life.root)
        life.close_segment()
        life.remember()
        run_here(tables, life.root)
        life.clean(random.choice([0, 2 * DAY_MS]))
    for moment, expected in random.sample(life.moments, min(12, len(life.moments))):
        assert offsets_of(tables, moment) == expected, moment
    with pytest.raises(BadInput, match="nothing is known of"):
        offsets_of(tables, START_MS - 1)


def test_a_tombstone_that_came_and_went_between_two_runs(life: Life, tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    life.commit(("app", 0), 7)
    life.commit(("app", 1), 8)
    life.close_segment()
    run_here(tables, life.root)
    seen_until = life.log.end_offset
    life.delete(("app", 0))
    life.close_segment()
    life.clean()
    life.close_segment()
    life.clean(2 * DAY_MS)
    life.close_segment()
    life.clean(2 * DAY_MS)
    held = {record.offset for batch in life.log.batches() for record in batch.records}
    assert not any(offset == seen_until for offset in held), "the tombstone should be gone by now"
    summary = run_here(tables, life.root)
    assert any("have no record any more" in note for note in summary.notes)
    assert ("app", 0) not in offsets_of(tables)
    assert offsets_of(tables)["app", 1] == 8
    (gone,) = (row for row in rows_of(tables, "commits")["commits"] if row["kind"] == "vanished")
    assert (gone["group_id"], gone["partition"], gone["log_offset"]) == ("app", 0, seen_until)
    assert gone["timestamp_ms"] is None
    assert gone["previous_commit_timestamp_ms"] == START_MS + 1000


def test_a_transaction_that_ended_where_a_tombstone_came_and_went(life: Life, tmp_path: Path) -> None:
    """The whole log is read again there, and its marker counts for a commit that is in force no more."""
    tables = tmp_path / "tables"
    life.commit_in_transaction(41, ("app", 0), 5)
    life.commit(("app", 1), 8)
    life.close_segment()
    run_here(tables, life.root)
    (waiting,) = rows_of(tables, "open_commits")["open_commits"]
    life.delete(("app", 1))
    marker = life.log.end_offset
    life.end(41, commit=True)
    for delete_ms in (0, 2 * DAY_MS, 2 * DAY_MS):
        life.close_segment()
        life.clean(delete_ms)
    life.commit(("app", 0), 6)
    summary = run_here(tables, life.root)
    assert any("have no record any more" in note for note in summary.notes)
    assert offsets_of(tables)["app", 0] == 6
    (ended,) = (row for row in rows_of(tables, "commits")["commits"] if row["log_offset"] == waiting["log_offset"])
    assert (ended["txn_outcome"], ended["txn_marker_offset"]) == ("committed", marker)


def test_a_truncated_log_withdraws_what_was_cut_off(tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    before = Life(tmp_path / "log")
    before.commit(("app", 0), 1)
    before.commit_in_transaction(41, ("app", 2), 5)
    before.commit(("app", 0), 2)
    cut = before.log.end_offset
    before.commit(("app", 0), 3)  # acknowledged by a leader that was deposed
    before.end(41, commit=True)
    before.commit(("app", 1), 4)
    run_here(tables, before.root)
    assert offsets_of(tables) == {("app", 0): 3, ("app", 1): 4, ("app", 2): 5}
    before.log.truncate_to(cut)
    before.log.leader_epoch = 7
    before.in_force, before.pending = {("app", 0): (2, 2)}, {41: {("app", 2): (5, 1)}}
    before.commit(("billing", 0), 9)
    before.commit(("billing", 1), 9)
    before.commit(("billing", 1), 10)
    before.commit(("billing", 2), 11)
    summary = run_here(tables, before.root)
    assert any("truncated" in note for note in summary.notes)
    assert offsets_of(tables) == {("app", 0): 2, ("billing", 0): 9, ("billing", 1): 10, ("billing", 2): 11}
    run_here(tmp_path / "scratch", before.root)
    ours, scratch = (rows_of(each, "commits", "open_commits", "markers") for each in (tables, tmp_path / "scratch"))
    for table in ours:
        assert sorted(map(repr, ours[table])) == sorted(map(repr, scratch[table])), table
    before.end(41, commit=True)
    run_here(tables, before.root)
    assert offsets_of(tables)["app", 2] == 5
    before.log.close()


def test_replicas_are_one_log(life: Life, tmp_path: Path) -> None:
    random = Random(5)
    for _ in range(40):
        life.step(random)
    other = tmp_path / "other"
    shutil.copytree(life.root, other)  # a follower, whose cleaner has not run
    life.close_segment()
    life.clean()
    run_here(tmp_path / "leader", life.root)
    run_here(tmp_path / "both", life.root, other)
    run_here(tmp_path / "other-way", other, life.root)
    leader, both, other_way = (
        rows_of(tmp_path / each, "offsets", "commits") for each in ("leader", "both", "other-way")
    )
    assert sorted(map(repr, both["offsets"])) == sorted(map(repr, leader["offsets"]))
    offsets = [row["log_offset"] for row in both["commits"]]
    assert len(offsets) == len(set(offsets))
    assert len(offsets) > len(leader["commits"])  # what the leader's cleaner took is still with the follower
    assert sorted(map(repr, other_way["commits"])) == sorted(map(repr, both["commits"]))
