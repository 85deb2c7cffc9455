"""The state as of a moment, two ways: SQL over history, and core's own loader over the log up to there."""

import random
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

import duckdb
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from muster.codec.batches import ReadBatch, encode_batch, encode_marker, iter_batches
from muster.codec.offsets_topic import (
    GroupKey,
    GroupValue,
    MemberValue,
    OffsetKey,
    OffsetValue,
    encode_group_value,
    encode_key,
    encode_offset_value,
)
from muster.codec.partition_state import decode_commit
from muster.codec.records import TRANSACTIONAL, Record
from muster.core.coordinator import Coordinator
from muster.core.groups import replay_batches
from muster.core.seats import Seats
from muster.errors import BadInput, CodecError
from muster.segments.sources import Sources
from muster.tables.relations import Moment
from tests.codec.corpus_records import CORPORA, NAMES
from tests.tables.history import History, history, history_of

MOMENTS_OF_A_CORPUS = 2

Log = dict[int, list[ReadBatch]]
"""Batches by partition of the offsets topic."""


def replayed(batches: Iterable[ReadBatch], as_of_ms: int) -> Coordinator:
    """A coordinator that has read the log before the first record with a later time."""
    batches = list(batches)
    later = [record.offset for batch in batches for record in batch.records if record.timestamp_ms > as_of_ms]
    end = min(later, default=None)
    coordinator = Coordinator()
    replay_batches(
        coordinator.table,
        (
            batch._replace(records=[record for record in batch.records if end is None or record.offset < end])
            for batch in batches
        ),
    )
    return coordinator


def told_by_core(log: Log, as_of_ms: int) -> dict[str, Any]:
    offsets, groups, members, waiting, newer = {}, {}, set(), {}, {}
    for batches in log.values():
        coordinator = replayed(batches, as_of_ms)
        newer.update(coordinator.newer.kinds)
        for group_id, group in coordinator.groups.items():
            for (topic, partition), commit_bytes in group.offsets.items():
                place, value = decode_commit(commit_bytes)
                offsets[group_id, topic, partition] = (place, value.committed_offset, value.metadata)
            for producer_id, held in group.pending.items():
                for (topic, partition), commit_bytes in held.items():
                    waiting[group_id, topic, partition, producer_id] = decode_commit(commit_bytes).log_offset
            if group.record is not None:
                seats = Seats.recorded(group.record)
                groups[group_id] = (seats.generation, seats.state.value, seats.protocol_type or "")
                members |= {(group_id, each.member_id, each.client_id) for each in seats.members.values()}
    return {"offsets": offsets, "groups": groups, "members": members, "open": waiting, "newer": newer}


def told_by_tables(tables: History, as_of_ms: int) -> dict[str, Any]:
    with duckdb.connect(config={"threads": 1}) as connection:  # small tables: handing them round costs more
        for name, table in tables.items():
            connection.register(name, table)
        moment = Moment(connection, lambda name: name, as_of_ms, "then")

        def ask(table: str, columns: str, condition: str = "TRUE") -> list[tuple[Any, ...]]:
            sql = f"SELECT {columns} FROM {moment.relation(table)} q WHERE {condition}"
            return connection.execute(sql).fetchall()

        offsets = ask("offsets", "group_id, topic, partition, log_offset, committed_offset, metadata")
        groups = ask("groups", "group_id, generation, state, coalesce(protocol_type, '')", "generation IS NOT NULL AND "
                     "type IN ('classic', 'simple')")  # fmt: skip
        waiting = ask("open_commits", "group_id, topic, partition, producer_id, log_offset")
        alive = {row[0] for row in ask("groups", "group_id")}
        assert alive >= {row[0] for row in offsets} | {row[0] for row in waiting}
        return {
            "offsets": {row[:3]: row[3:] for row in offsets},
            "groups": {row[0]: row[1:] for row in groups},
            "members": set(ask("members", "group_id, member_id, client_id", "type = 'classic'")),
            "open": {row[:4]: row[4] for row in sorted(waiting)},  # of several the last, as in a coordinator
            "newer": dict(ask("groups", "group_id, type", "type NOT IN ('classic', 'simple')")),
        }


@cache
def log_of(name: str) -> Log:
    with Sources([CORPORA / name / f"{name}.tar.zst"]) as sources:
        return {
            partition.partition or 0: list(batches_of(segment.path.read_bytes() for segment in partition.segments))
            for partition in sources.partitions
        }


def batches_of(pieces: Iterable[bytes]) -> Iterator[ReadBatch]:
    for data in pieces:
        try:
            yield from iter_batches(data)
        except CodecError:
            continue


def moments_of(log: Log, seed: str, count: int) -> list[int]:
    """Before all, after all, and some between or right at a record."""
    times = sorted(
        {record.timestamp_ms for batches in log.values() for batch in batches for record in batch.records} - {-1}
    )
    chosen = random.Random(seed)
    some = [chosen.choice(times) + chosen.choice([-1, 0, 0, 1]) for _ in range(count)]
    return [times[0] - 1, *some, times[-1]]


@pytest.mark.parametrize("name", NAMES)
def test_a_moment_of_a_real_log_is_its_prefix_replayed(name: str) -> None:
    log, tables = log_of(name), history_of(name)
    found = 0
    for as_of_ms in moments_of(log, name, MOMENTS_OF_A_CORPUS):
        told = told_by_tables(tables, as_of_ms)
        assert told == told_by_core(log, as_of_ms), as_of_ms
        found += len(told["offsets"])
    assert found


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_so_is_every_moment(name: str) -> None:
    log, tables = log_of(name), history_of(name)
    found = 0
    for as_of_ms in moments_of(log, f"{name} again", 200):
        told = told_by_tables(tables, as_of_ms)
        assert told == told_by_core(log, as_of_ms), as_of_ms
        found += len(told["offsets"])
    assert found


# Made-up logs: few keys, clocks that step back, transactions that interleave.


def member(name: str) -> MemberValue:
    return MemberValue(name, None, f"client-{name}", "/h", 30_000, 10_000, b"", b"")


GROUPS = st.sampled_from(["g", "h"])
OFFSET_RECORDS = st.builds(
    lambda group, partition, committed, legacy: (
        encode_key(OffsetKey(group, "t", partition, 0 if legacy else 1)),
        None if committed is None else encode_offset_value(OffsetValue(committed, -1, "note", 5), 3),
    ),
    GROUPS,
    st.sampled_from([0, 1]),
    st.one_of(st.none(), st.integers(0, 99)),
    st.sampled_from([False, False, True]),
)
GROUP_RECORDS = st.builds(
    lambda group, generation, members: (
        encode_key(GroupKey(group)),
        None
        if generation is None
        else encode_group_value(
            GroupValue("consumer", generation, "range" if members else None, "m0" if members else None, 5,
                       tuple(member(f"m{number}") for number in range(members))), 3),
    ),
    GROUPS,
    st.one_of(st.none(), st.integers(0, 9)),
    st.integers(0, 2),
)  # fmt: skip
CONTENTS = st.lists(st.one_of(OFFSET_RECORDS, OFFSET_RECORDS, GROUP_RECORDS), min_size=1, max_size=3)
Content = tuple[bytes, bytes | None]
Step = tuple[str, list[Content], int, int]
STEPS = st.one_of(
    st.tuples(st.just("write"), CONTENTS, st.sampled_from([-1, -1, 1, 2]), st.integers(0, 20)),
    st.tuples(st.sampled_from(["commit", "commit", "abort"]), st.just([]), st.sampled_from([1, 2]), st.integers(0, 20)),
)
PENDING = (encode_key(OffsetKey("g", "t", 0)), encode_offset_value(OffsetValue(7, -1, "note", 5), 3))
TOMBSTONE = (PENDING[0], None)


def written(steps: list[Step]) -> bytes:
    data, end = b"", 0
    for kind, contents, producer_id, now_ms in steps:
        if kind == "write":
            records = [Record(end + number, now_ms, *content) for number, content in enumerate(contents)]
            attributes = TRANSACTIONAL if producer_id >= 0 else 0
            data += encode_batch(records, producer_id=producer_id, attributes=attributes, base_offset=end)
        else:
            data += encode_marker(end, now_ms, producer_id, 0, commit=kind == "commit", coordinator_epoch=0)
        end += max(1, len(contents))
    return data


@settings(max_examples=6, deadline=None)
@given(st.lists(STEPS, min_size=1, max_size=20))
@example([("write", [PENDING], 1, 5), ("write", [TOMBSTONE], -1, 6), ("commit", [], 1, 7)])
@example([("write", [PENDING, TOMBSTONE], 1, 0)])  # a deletion in a transaction does not wait for its end
@example([("write", [PENDING], 1, 5), ("write", [PENDING], -1, 3), ("commit", [], 1, 4), ("abort", [], 1, 9)])
@example([("write", [PENDING], 1, 5), ("abort", [], 1, 6), ("write", [PENDING], 1, 7), ("commit", [], 1, 9)])
def test_a_moment_of_any_log_is_its_prefix_replayed(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Step]
) -> None:
    assert_moments_are_prefixes(tmp_path_factory, steps, 2)


@pytest.mark.long
@settings(max_examples=1500, deadline=None)
@given(st.lists(STEPS, min_size=1, max_size=30))
def test_so_is_every_moment_of_any_log(tmp_path_factory: pytest.TempPathFactory, steps: list[Step]) -> None:
    assert_moments_are_prefixes(tmp_path_factory, steps, 20)


def assert_moments_are_prefixes(tmp_path_factory: pytest.TempPathFactory, steps: list[Step], most_moments: int) -> None:
    data = written(steps)
    folder = tmp_path_factory.mktemp("log") / "__consumer_offsets-0"
    folder.mkdir()
    (folder / f"{0:020}.log").write_bytes(data)
    with Sources([folder]) as sources:
        tables = history(sources.partitions, {})
    log = {0: list(iter_batches(data))}
    moments = sorted({now_ms for *_, now_ms in steps})[-most_moments:]
    assert moments
    for as_of_ms in moments:
        assert told_by_tables(tables, as_of_ms) == told_by_core(log, as_of_ms)


def test_what_is_kept_for_now_only_has_no_past() -> None:
    with duckdb.connect() as connection, pytest.raises(BadInput, match="Leave --as-of out"):
        Moment(connection, _no_table, 0, "then").relation("activity")


_no_table: Callable[[str], str] = "({})".format
