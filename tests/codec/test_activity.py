"""Deletions and group records with their past: the kernel against a plain model over the row-wise codec."""

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.codec.batches import encode_batch
from muster.codec.columns import activity as kernels
from muster.codec.columns.activity import NONE, UNSEEN, Activity
from muster.codec.columns.chunks import Chunk, Scratch, decode_chunk, with_slack
from muster.codec.columns.latest import LatestTable
from muster.codec.columns.scan import R_OFFSET
from muster.codec.columns.select import in_force
from muster.codec.offsets_topic import (
    GroupKey,
    GroupValue,
    OffsetValue,
    encode_group_value,
    encode_key,
    encode_offset_value,
    offset_key,
)
from muster.codec.records import TRANSACTIONAL, Record
from muster.codec.transaction_outcomes import Markers
from tests.codec.strategies import bounded

ABORTED, COMMITTED, OPEN = 5, 6, 7
"""Producers by how all of their transactions end."""
MARKERS = Markers.of(np.array([(ABORTED, 10**6, 0), (COMMITTED, 10**6, 1)]))


class Event(NamedTuple):
    what: str  # commit, delete, group, ungroup
    group: str
    partition: int
    time_ms: int
    expire_ms: int
    producer: int


EVENTS = st.builds(
    Event,
    st.sampled_from(["commit", "commit", "delete", "group", "ungroup"]),
    st.sampled_from(["", "a", "orders-app", "x" * 300]),
    st.integers(0, 2),
    st.integers(0, 10**6),
    st.sampled_from([NONE, 99]),
    st.sampled_from([-1, -1, -1, ABORTED, COMMITTED, OPEN]),
)


def record_of(offset: int, event: Event) -> Record:
    if event.what in ("group", "ungroup"):
        value = encode_group_value(GroupValue("", 1, None, None, 5, ()), 3) if event.what == "group" else None
        return Record(offset, 50, encode_key(GroupKey(event.group)), value)
    key = encode_key(offset_key(event.group, "topic", event.partition))
    value = OffsetValue(1, -1, "note", event.time_ms, event.expire_ms)
    return Record(offset, 50, key, None if event.what == "delete" else encode_offset_value(value, 1))


def chunk_of(events: list[Event], first_offset: int = 0) -> Chunk:
    data = b"".join(
        encode_batch(
            [record_of(first_offset + number, event)],
            attributes=TRANSACTIONAL if event.producer >= 0 else 0,
            producer_id=event.producer,
            producer_epoch=0 if event.producer >= 0 else -1,
        )
        for number, event in enumerate(events)
    )
    return decode_chunk(with_slack(data), 0, len(data), Scratch(), MARKERS)


class Model:
    """What the kernel should say, in dictionaries."""

    def __init__(self, events: list[Event]) -> None:
        self.deletions: dict[int, tuple[int, int]] = {}
        self.groups: dict[int, list[int]] = {}
        commits: dict[Any, tuple[int, int]] = {}
        group_commits: dict[str, int] = {}
        self.first: dict[str, int] = {}
        newest: dict[str, int] = {}
        for offset, event in enumerate(events):
            key, visible = (event.group, event.partition), event.producer in (-1, COMMITTED)
            if event.what == "commit":
                if event.group in newest and self.groups[newest[event.group]][1] == NONE:
                    self.groups[newest[event.group]][1] = event.time_ms
                group_commits[event.group] = event.time_ms
                self.first.setdefault(event.group, event.time_ms)
                if visible:
                    commits[key] = event.time_ms, event.expire_ms
            elif event.what == "delete" and visible:
                self.deletions[offset] = commits.get(key, (UNSEEN, NONE))
                commits[key] = NONE, NONE
            elif event.what in ("group", "ungroup"):
                self.groups[offset] = [group_commits.get(event.group, UNSEEN), NONE]
                newest[event.group] = offset
                self.first.setdefault(event.group, NONE)
        self.last = group_commits


@given(st.lists(EVENTS, max_size=40), st.integers(0, 40))
@bounded
def test_the_kernel_equals_the_model(events: list[Event], cut: int) -> None:
    activity, model = Activity(), Model(events)
    found: dict[int, tuple[int, int]] = {}
    for first, some in ((0, events[:cut]), (len(events[:cut]), events[cut:])):
        if some:
            deletions = activity.update(chunk_of(some, first))
            times = zip(deletions.commit_ms.tolist(), deletions.expire_ms.tolist(), strict=True)
            found |= dict(zip((deletions.rows + first).tolist(), times, strict=True))
    assert found == model.deletions
    offsets, before, after = (times.tolist() for times in activity.group_times(0))
    assert dict(zip(offsets, map(list, zip(before, after, strict=True)), strict=True)) == model.groups
    groups = activity.groups()
    names = [
        bytes(groups.names[place : place + length]).decode()
        for place, length in zip(groups.places, groups.lengths, strict=True)
    ]
    assert dict(zip(names, groups.last_commit_ms.tolist(), strict=True)) == model.last
    assert dict(zip(names, groups.first_commit_ms.tolist(), strict=True)) == {
        name: model.first[name] for name in model.last
    }


@given(st.lists(EVENTS, min_size=1, max_size=40))
@bounded
def test_survivors_recall_what_was_said_when_they_came(events: list[Event]) -> None:
    activity, latest, model = Activity(), LatestTable(), Model(events)
    chunk = chunk_of(events)
    activity.update(chunk)
    latest.update(in_force(chunk, None))
    for survivors in latest.survivors():
        offsets = survivors.records[:, R_OFFSET].tolist()
        rows = [row for row, offset in enumerate(offsets) if events[offset].what != "commit"]
        found = zip(*(times.tolist() for times in activity.recall(survivors, np.array(rows, np.int64))), strict=True)
        for row, times in zip(rows, found, strict=True):
            offset = offsets[row]
            if events[offset].what == "delete":
                assert times == model.deletions[offset]
            elif events[offset].producer == -1:  # no broker writes a group record in a transaction
                newest = max(place for place in model.groups if events[place].group == events[offset].group)
                assert list(times) == model.groups[newest]


def test_rows_that_are_not_to_be_kept_have_no_part() -> None:
    events = [Event("commit", "a", 0, 100, NONE, -1), Event("delete", "a", 0, 0, NONE, -1)]
    deletions = Activity().update(chunk_of(events), np.array([False, True]))
    assert (deletions.rows.tolist(), deletions.commit_ms.tolist()) == ([1], [UNSEEN])
    assert len(Activity().update(chunk_of(events), np.array([True, False])).rows) == 0


def test_a_table_that_grows_forgets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "SMALLEST_INDEX", 8)
    monkeypatch.setattr(kernels, "SMALLEST_ARENA", 16)
    activity, groups = Activity(), [f"group-{number}" for number in range(3000)]
    activity.update(chunk_of([Event("commit", group, 0, number, NONE, -1) for number, group in enumerate(groups)]))
    activity.update(chunk_of([Event("group", group, 0, 0, NONE, -1) for group in groups], 3000))
    deletions = activity.update(chunk_of([Event("delete", group, 0, 0, NONE, -1) for group in groups], 6000))
    assert deletions.commit_ms.tolist() == list(range(3000))
    offsets, before, _ = activity.group_times(0)
    assert (offsets.tolist(), before.tolist()) == (list(range(3000, 6000)), list(range(3000)))


def test_a_negative_commit_time_is_no_time() -> None:
    events = [Event("commit", "a", 0, -50, NONE, -1), Event("delete", "a", 0, 0, NONE, -1)]
    assert Activity().update(chunk_of(events)).commit_ms.tolist() == [NONE]
