"""A partition read in pieces: cut anywhere, it makes the same tables as read in one."""

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.codec.batches import encode_batch, encode_marker
from muster.codec.offsets_topic import (
    GroupKey,
    GroupValue,
    MemberValue,
    OffsetValue,
    encode_group_value,
    encode_key,
    encode_offset_value,
    offset_key,
)
from muster.codec.records import TRANSACTIONAL, Record
from muster.pipeline import job
from muster.pipeline.extract import fetch
from muster.pipeline.extract.partition import Gaps
from muster.pipeline.late_rows import finished_commits, outdone
from muster.pipeline.model import LiveLog, PartitionReport, PartitionWork, SegmentFiles
from muster.pipeline.pieces import cut, in_pieces, joined
from muster.pipeline.plan import PartitionState
from muster.tables.clocks import AHEAD_MS
from muster.tables.schemas import COMMITS, HISTORY, STATE
from tests.codec.corpus_records import NAMES
from tests.codec.strategies import bounded
from tests.live.fake import FakeCluster, FakeLog
from tests.pipeline.extracting import context_in, run, works_of
from tests.pipeline.world import Rows, rows_of, run_here, unpacked
from tests.segments import START_MS, write_segment

FILES = SegmentFiles(("somewhere",), ())
LIVE = LiveLog((), "__consumer_offsets")
MB = 1024 * 1024
DAY_MS = 24 * 3600 * 1000


# Where pieces are cut


def planned(
    from_offset: int, end: int, segments: Iterable[tuple[int, int]], source: Any = FILES, **changes: Any
) -> list[PartitionWork]:
    segments = tuple(segments)
    size = sum(size for _, size in segments)
    state = PartitionState(3, source, 0, end, (), size, segments=segments)
    work = PartitionWork(3, source, from_offset, end, False, size)._replace(**changes)
    return in_pieces([work], [state], 64 << 20)


def ranges(works: Iterable[PartitionWork]) -> list[tuple[int, int | None, int]]:
    return [(work.from_offset, work.to_offset, work.size_bytes // MB) for work in works]


def test_files_are_cut_where_segments_begin() -> None:
    works = planned(0, 1000, [(0, 100 * MB), (300, 100 * MB), (600, 70 * MB), (900, 5 * MB)])
    assert ranges(works) == [(0, 300, 100), (300, 600, 100), (600, 1000, 75)]
    assert [(work.is_first, work.range_end) for work in works] == [(True, 1000), (False, 1000), (False, None)]


def test_small_segments_are_gathered() -> None:
    works = planned(0, 2000, [(100 * number, 10 * MB) for number in range(20)])
    assert ranges(works) == [(0, 600, 60), (600, 1200, 60), (1200, 2000, 80)]


def test_what_was_read_before_is_no_part_of_a_piece() -> None:
    segments = [(0, 100 * MB), (300, 100 * MB), (600, 100 * MB)]
    assert ranges(planned(330, 1000, segments, size_bytes=190 * MB)) == [(330, 600, 90), (600, 1000, 100)]
    assert ranges(planned(590, 1000, segments, size_bytes=103 * MB)) == [(590, 1000, 103)], "a rest is little"


def test_a_live_log_is_cut_at_any_offset() -> None:
    works = planned(10, 1000, [], LIVE, size_bytes=300 * MB)
    assert ranges(works) == [(10, 208, 60), (208, 406, 60), (406, 604, 60), (604, 802, 60), (802, 1000, 60)]


@pytest.mark.parametrize(
    ("source", "changes"),
    [
        (SegmentFiles(("leader", "follower"), ()), {}),
        (FILES, {"state_from_scratch": True}),
        (FILES, {"to_offset": None}),
        (FILES, {"size_bytes": 90 * MB}),
        (LIVE, {"size_bytes": 90 * MB}),
    ],
)
def test_what_stays_whole(source: Any, changes: dict[str, Any]) -> None:
    (work,) = planned(0, 1000, [(0, 100 * MB), (300, 100 * MB)], source, **changes)
    assert (work.is_first, work.range_end) == (True, None)


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(0, 100)), min_size=1),
    st.integers(0, 500),
    st.integers(1, 99),
    st.booleans(),
)
@bounded
def test_pieces_tile_the_range(
    given_segments: list[tuple[int, int]], from_offset: int, piece_bytes: int, live: bool
) -> None:
    bases = [0]
    for span, _ in given_segments:
        bases.append(bases[-1] + span)
    end, segments = bases[-1], tuple(zip(bases, (size for _, size in given_segments), strict=False))
    source = LIVE if live else FILES
    work = PartitionWork(3, source, min(from_offset, end), end, False, sum(size for _, size in given_segments))
    works = in_pieces([work], [PartitionState(3, source, 0, end, (), 0, segments=segments)], piece_bytes)
    assert (works[0].from_offset, works[-1].to_offset) == (work.from_offset, end)
    assert all(one.to_offset == other.from_offset < (other.to_offset or 0) for one, other in pairwise(works))
    assert [each.is_first for each in works] == [True] + [False] * (len(works) - 1)
    assert [each.range_end for each in works] == [end] * (len(works) - 1) + [None]
    if not live:
        assert {each.from_offset for each in works[1:]} <= set(bases)


# Reports of pieces


def report(from_offset: int, next_offset: int, **changes: Any) -> PartitionReport:
    plain = PartitionReport(3, 0, next_offset, 1, 0, 0, from_offset, None, None, 0, (), 0, from_offset=from_offset)
    return plain._replace(**changes)


def gaps_report(from_offset: int, next_offset: int, records: list[int]) -> PartitionReport:
    """As the extract step makes it, of a range of which these records are left and batches up to `next_offset` are."""
    gaps = Gaps(from_offset)
    for offset in records:
        gaps.take(np.array([offset]), np.array([offset * 10]))
    gaps.finish(next_offset)
    return report(
        from_offset, next_offset, records=len(records), gaps=gaps.missing, complete_since_offset=gaps.since_offset,
        complete_since_ms=gaps.since_ms,
    )  # fmt: skip


@given(
    st.lists(st.tuples(st.integers(0, 3), st.lists(st.booleans(), min_size=1, max_size=4)), max_size=12),
    st.sets(st.integers(0, 60)),
)
@bounded
def test_gaps_of_pieces_are_those_of_the_whole(batches: list[tuple[int, list[bool]]], cuts: set[int]) -> None:
    """Batches, each behind a hole and with or without its records."""
    position, records, covered = 0, [], []
    for hole, left in batches:
        position += hole
        covered += range(position, position + len(left))
        records += [position + number for number, is_left in enumerate(left) if is_left]
        position += len(left)
    end = position + 2  # the last offsets are nobody's
    bounds = sorted({0, end} | {each for each in cuts if each < end})
    parts = [
        gaps_report(
            first, max((each + 1 for each in covered if first <= each < last), default=first),
            [each for each in records if first <= each < last],
        )
        for first, last in pairwise(bounds)
    ]  # fmt: skip
    Random(len(batches)).shuffle(parts)
    (found,) = joined(parts)
    assert found == gaps_report(0, position, records)


def test_a_report_of_several_pieces() -> None:
    one = report(
        0, 10, leader_epoch=4, records=10, unread=1, size_bytes=100, newest_timestamp_ms=7, last_timestamp_ms=7,
        damage=("first",), landmarks=((0, 1), (9, 7)),
    )  # fmt: skip
    other = report(10, 30, leader_epoch=5, records=20, unread=2, size_bytes=50, newest_timestamp_ms=6,
                   last_timestamp_ms=5, damage=("second",), landmarks=((10, 8),))  # fmt: skip
    nothing = report(30, 30, leader_epoch=9, has_batches=False)
    elsewhere = report(0, 3)._replace(offsets_partition=1)
    first, found = joined([other, nothing, elsewhere, one])
    assert first == elsewhere
    assert (found.from_offset, found.next_offset, found.records, found.unread, found.size_bytes) == (0, 30, 30, 3, 150)
    assert (found.leader_epoch, found.newest_timestamp_ms, found.dated_ahead) == (5, 7, None)
    assert (found.damage, found.untold_damage) == (("first", "second"), 0)
    assert set(found.landmarks) == {(0, 1), (9, 7), (10, 8)}


def test_damage_that_is_told_is_bounded() -> None:
    parts = [report(n, n + 1, damage=tuple(f"{n}-{each}" for each in range(60)), untold_damage=n) for n in range(3)]
    (found,) = joined(parts)
    assert (len(found.damage), found.untold_damage) == (100, 80 + 3)


def test_a_time_that_a_later_piece_contradicts_counts_for_nothing() -> None:
    ahead, now = 99 * AHEAD_MS, 5 * AHEAD_MS
    parts = [report(0, 1, newest_timestamp_ms=ahead, last_timestamp_ms=ahead),
             report(1, 2, newest_timestamp_ms=now, last_timestamp_ms=now - 1)]  # fmt: skip
    (found,) = joined(parts)
    assert (found.newest_timestamp_ms, found.dated_ahead) == (now, ahead)
    (found,) = joined([parts[0], report(1, 2)])
    assert (found.newest_timestamp_ms, found.dated_ahead) == (ahead, None)


# The same tables


class MadeLog:
    """Batches of one partition: commits, deletions, groups, transactions that end or do not, and holes."""

    def __init__(self, random: Random, steps: int, number: int = 0) -> None:
        self._random, self.offset, self.now_ms = random, 0, START_MS
        self._groups = [f"orders-app-{number}", f"billing-{number}"]  # a group is in one partition
        self.batches: list[tuple[int, bytes]] = []
        for _ in range(steps):
            self._step()

    def _step(self) -> None:
        random = self._random
        self.now_ms += random.choice([1000, 1000, 60_000, 8 * DAY_MS])
        match random.choices(["plain", "transaction", "marker", "empty", "hole"], [10, 5, 4, 1, 1])[0]:
            case "plain":
                self._add(encode_batch(self._records(random.randint(1, 4)), leader_epoch=self.offset // 20))
            case "transaction":
                producer = random.randint(1, 3)
                records = self._records(random.randint(1, 3), groups=False)
                self._add(encode_batch(records, attributes=TRANSACTIONAL, producer_id=producer, producer_epoch=0))
            case "marker":
                data = encode_marker(
                    self.offset, self.now_ms, random.randint(1, 3), 0, commit=random.random() < 0.7, coordinator_epoch=0
                )
                self.offset += 1
                self._add(data)
            case "empty":
                self.offset += 2
                self._add(encode_batch([], base_offset=self.offset - 2, last_offset=self.offset - 1))
            case "hole":
                self.offset += random.randint(1, 3)

    def _add(self, data: bytes) -> None:
        self.batches.append((int.from_bytes(data[:8], "big"), data))

    def _records(self, count: int, groups: bool = True) -> list[Record]:
        made = []
        for _ in range(count):
            if self._random.random() < 0.1:
                self.offset += 1  # cleaned away
            made.append(self._record(self.offset, groups))
            self.offset += 1
        return made

    def _record(self, offset: int, groups: bool) -> Record:
        random = self._random
        group = random.choice(self._groups)
        kind = random.choices(["commit", "delete", "group", "ungroup"], [6, 3, 3, 1] if groups else [6, 1, 0, 0])[0]
        if kind in ("group", "ungroup"):
            member = MemberValue(f"member-{offset}", None, "client", "/10.0.0.1", 60_000, 45_000, b"", b"")
            value = GroupValue("consumer", offset, "range", member.member_id, self.now_ms, (member,))
            return Record(
                offset, self.now_ms, encode_key(GroupKey(group)),
                encode_group_value(value, 3) if kind == "group" else None,
            )  # fmt: skip
        key = encode_key(offset_key(group, "orders", random.randint(0, 1)))
        made_ms = random.choice([self.now_ms, self.now_ms, self.now_ms - 5 * DAY_MS, -1])
        expires_ms = random.choice([-1, made_ms + DAY_MS])
        value = encode_offset_value(OffsetValue(offset, 0, "", made_ms, expires_ms), 3 if expires_ms < 0 else 1)
        return Record(offset, self.now_ms, key, value if kind == "commit" else None)

    def write(self, folder: Path, partition: int, share: float = 1.0) -> None:
        """Segments of a few batches each, of a share of the log."""
        shown = self.batches[: max(1, int(len(self.batches) * share))]
        for first in range(0, len(shown), 7):
            some = shown[first : first + 7]
            write_segment(folder, b"".join(data for _, data in some), some[0][0], partition)


def cut_anywhere(monkeypatch: pytest.MonkeyPatch, seed: int, at_every_offset: bool = False) -> None:
    """From here on runs read every partition in pieces."""
    random = Random(seed)

    def pieces_of(
        works: Iterable[PartitionWork], states: Iterable[PartitionState], size_bytes: int
    ) -> list[PartitionWork]:
        made = []
        for work in works:
            assert work.to_offset is not None
            inner = range(work.from_offset + 1, work.to_offset)
            chosen = inner if at_every_offset else sorted(random.sample(inner, min(len(inner), random.randint(0, 6))))
            made += cut(work, work.to_offset, dict.fromkeys([work.from_offset, *chosen], 1)) if inner else [work]
        random.shuffle(made)
        return made

    monkeypatch.setattr(job, "in_pieces", pieces_of)


def all_rows(tables: Path, *names: str) -> dict[str, list[str]]:
    found: dict[str, Rows] = rows_of(tables, *(names or (*STATE, *HISTORY)))
    return {name: sorted(map(repr, rows)) for name, rows in found.items()}


def progress_of(tables: Path) -> Any:
    from muster.tables.storage.store import TableStore

    manifest = TableStore(str(tables), {}).manifest()
    assert manifest is not None
    return {number: each._replace(landmarks=()) for number, each in manifest.progress.items()}


@pytest.mark.parametrize("name", ["k43-all", *(pytest.param(name, marks=pytest.mark.long) for name in NAMES)])
def test_a_real_log_cut_at_its_segments(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = unpacked(name, tmp_path)
    whole = run_here(tmp_path / "whole", log)
    monkeypatch.setattr(job, "task_bytes", lambda works: 1)
    cut_up = run_here(tmp_path / "cut", log)
    assert all_rows(tmp_path / "whole") == all_rows(tmp_path / "cut")
    assert progress_of(tmp_path / "whole") == progress_of(tmp_path / "cut")
    assert whole.notes == cut_up.notes
    assert (whole.records, whole.size_bytes, whole.partitions) == (cut_up.records, cut_up.size_bytes, cut_up.partitions)


@pytest.mark.parametrize(
    ("seed", "history", "at_every_offset"),
    [
        pytest.param(1, True, True, marks=pytest.mark.long),
        (3, False, False),
        *(pytest.param(seed, seed % 3 > 0, seed % 4 == 0, marks=pytest.mark.long) for seed in range(4, 31)),
    ],
)
def test_logs_of_all_kinds_cut_anywhere(
    seed: int, history: bool, at_every_offset: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In two runs, of which the second reads on; a log for each partition."""
    steps = 28 if seed == 1 else 40  # enough for every kind of batch, and a piece for each offset is much work
    logs = [MadeLog(Random(f"{seed} {number}"), steps, number) for number in range(1 if at_every_offset else 4)]
    for share in (0.6, 1.0):
        for number, log in enumerate(logs):
            log.write(tmp_path / "log", number, share)
        with monkeypatch.context() as patched:
            run_here(tmp_path / "whole", tmp_path / "log", history=history)
            cut_anywhere(patched, seed, at_every_offset)
            run_here(tmp_path / "cut", tmp_path / "log", history=history)
        names = [*STATE, *HISTORY] if history else list(job.STATE_ALONE)
        assert all_rows(tmp_path / "whole", *names) == all_rows(tmp_path / "cut", *names), share
        assert progress_of(tmp_path / "whole") == progress_of(tmp_path / "cut")


# Pieces of logs that are elsewhere


def sorted_tables(found: Any) -> dict[str, list[str]]:
    return {name: sorted(map(repr, rows)) for name, rows in found.tables.items()}


@pytest.mark.parametrize("seed", range(3))
def test_a_live_log_in_pieces_is_the_same_as_files_in_pieces(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Headers behind a piece are downloaded a few offsets at a time, and only while a transaction is open."""
    monkeypatch.setattr(fetch, "OFFSETS_AT_ONCE", 5)
    made = MadeLog(Random(f"live {seed}"), 30)
    made.write(tmp_path / "log", 0)
    (work,) = works_of(tmp_path / "log")
    assert work.to_offset is not None
    begins = dict.fromkeys([0, *sorted(Random(seed).sample(range(1, work.to_offset), 5))], 1)
    files = run(cut(work, work.to_offset, begins), context_in(tmp_path / "files"))
    with FakeCluster(FakeLog.of(*(data for _, data in made.batches))) as cluster:
        live = work._replace(source=LiveLog(tuple(cluster.config.items()), "offsets"))
        found = run(cut(live, work.to_offset, begins), context_in(tmp_path / "live"))
    assert sorted_tables(found) == sorted_tables(files)
    (one,), (other,) = joined(found.extracted.reports), joined(files.extracted.reports)
    by_chunks = ("log_start_offset", "size_bytes", "landmarks")  # and a download has others
    assert one._replace(**{name: getattr(other, name) for name in by_chunks}) == other


def transaction(offset: int, producer: int) -> bytes:
    key, value = encode_key(offset_key("app", "orders", 0)), encode_offset_value(OffsetValue(offset, 0, "", 5), 3)
    record = Record(offset, 7, key, value)
    return encode_batch([record], attributes=TRANSACTIONAL, producer_id=producer, producer_epoch=0)


def ended(offset: int, producer: int) -> bytes:
    return encode_marker(offset, 7, producer, 0, commit=True, coordinator_epoch=0)


def test_markers_are_looked_for_no_further_than_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "OFFSETS_AT_ONCE", 2)
    batches = [transaction(0, 7), ended(1, 8), ended(2, 7), *(transaction(offset, 9) for offset in range(3, 20))]
    with FakeCluster(FakeLog.of(*batches)) as cluster:
        work = PartitionWork(0, LiveLog(tuple(cluster.config.items()), "offsets"), 0, 20, False, 1)
        first, *_ = cut(work, 20, {0: 1, 1: 1})
        found = run([first], context_in(tmp_path))
        assert [(row["txn_outcome"], row["txn_marker_offset"]) for row in found.tables["commits"]] == [("committed", 2)]
        offsets = [
            part["fetchOffset"] for body in cluster.fetches for each in body["topics"] for part in each["partitions"]
        ]
        assert max(offsets) <= 2


def test_markers_behind_a_piece_in_an_object_store(tmp_path: Path) -> None:
    """Segments behind it are fetched one by one."""
    log = [(0, transaction(0, 7)), (1, transaction(1, 8)), (2, ended(2, 7)), (3, ended(3, 8))]
    for base, data in log:
        write_segment(tmp_path / "log", data, base)
    (work,) = works_of(tmp_path / "log")
    first, *_ = cut(work, 4, dict.fromkeys(range(4), 1))
    assert _stretches_of(first, tmp_path) == [(1, 2, [1]), (2, 3, [2]), (3, 4, [3])]


def _stretches_of(piece: PartitionWork, tmp_path: Path) -> list[tuple[int, int, list[int]]]:
    """What `fetch_behind` gives, of a source that is held not to be here."""
    found = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(fetch, "is_here", lambda source: False)
        for directory, first, last in fetch.fetch_behind(piece, tmp_path):
            found.append((first, last, sorted(int(path.stem) for path in directory.glob("*.log"))))
    return found


def test_a_deletion_in_an_aborted_transaction_is_a_deletion_beside_others_too(tmp_path: Path) -> None:
    """What is in the same chunk does not matter, so cutting does not."""
    key = encode_key(offset_key("app", "orders", 0))
    gone = [Record(offset, 7, key, None) for offset in range(2)]
    data = encode_batch(gone[:1], attributes=TRANSACTIONAL, producer_id=7, producer_epoch=0)
    marker = encode_marker(2, 7, 7, 0, commit=False, coordinator_epoch=0)
    write_segment(tmp_path / "log", data + encode_batch(gone[1:]) + marker)
    found = run(works_of(tmp_path / "log"), context_in(tmp_path))
    assert [(row["kind"], row["txn_outcome"]) for row in found.tables["commits"]] == [
        ("deleted", "aborted"),
        ("deleted", None),
    ]


def test_what_a_late_deletion_deletes_was_visible() -> None:
    """An earlier piece has a commit, and a newer one of a transaction that was aborted: that one deletes nothing, is
    deleted by nothing, and is no reason for the other to go.
    """
    key = {"offsets_partition": 0, "group_id": "g", "topic": "t", "partition": 0}
    empty = dict.fromkeys(COMMITS.names) | key
    visible = empty | {"log_offset": 5, "kind": "commit", "commit_timestamp_ms": 100, "expire_timestamp_ms": -1}
    aborted = visible | {"log_offset": 8, "commit_timestamp_ms": 900, "txn_outcome": "aborted"}
    deletion = empty | {"log_offset": 20, "timestamp_ms": 1000}
    with duckdb.connect() as connection:
        for name, rows in {"late": [deletion], "winners": [visible, aborted], "held": []}.items():
            connection.register(name, pa.Table.from_pylist(rows, COMMITS))
        asked = connection.sql(finished_commits("late", "winners", "held", offsets_retention_ms=500))
        assert [(row["kind"], row["previous_commit_timestamp_ms"]) for row in asked.to_arrow_table().to_pylist()] == [
            ("expired", 100)
        ]
        for with_ended in (False, True):
            gone = connection.sql(f"SELECT log_offset FROM winners a WHERE {outdone('winners', with_ended)}").fetchall()
            assert gone == []
        connection.register("winners", pa.Table.from_pylist([visible, aborted, visible | {"log_offset": 9}], COMMITS))
        gone = connection.sql(
            f"SELECT log_offset FROM winners a WHERE {outdone('winners', with_ended=False)}"
        ).fetchall()
        assert sorted(gone) == [(5,), (8,)]
