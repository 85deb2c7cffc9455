"""Rebalances told from records: what happened to the corpora's groups, and made-up groups for the rare causes."""

import json
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.codec.transaction_outcomes import Markers
from muster.pipeline.extract.shape import shape
from muster.pipeline.rebalances.causes import rebalance_batches, rebalances_of, snapshot_of, with_first_commit
from muster.segments.reader import record_batches
from muster.tables.schemas import GROUP_RECORDS, LATEST_REBALANCES, REBALANCES
from tests.codec.corpus_records import CORPORA, NAMES

Row = dict[str, Any]
START_MS = 1_800_000_000_000
UNDAMAGED = [name for name in NAMES if not name.startswith("damaged")]
MAKES_ROWS = (2, 3, 11, 17)


def rebalances_table(records: pa.Table, state: pa.Table | None, latest: pa.Table | None, rows: int = 1000) -> pa.Table:
    """The rebalances of records that come in batches of so many rows."""
    return pa.Table.from_batches(rebalance_batches(records.to_batches(rows), state, latest), LATEST_REBALANCES)


@cache
def corpus(name: str) -> pa.Table:
    """The group records of a corpus."""
    tables = [shape(batch, Markers.none()) for batch in record_batches(CORPORA / name / f"{name}.tar.zst")]
    found = pa.concat_tables([one.group_records for one in tables])
    return found.sort_by([("group_id", "ascending"), ("log_offset", "ascending")])


@cache
def commits(name: str) -> dict[str, list[tuple[int, int]]]:
    """Of each group the (log offset, time) of its commits, in log order."""
    found: dict[str, list[tuple[int, int]]] = {}
    for batch in record_batches(CORPORA / name / f"{name}.tar.zst"):
        table = shape(batch, Markers.none()).commits
        for row in table.select(["group_id", "kind", "log_offset", "timestamp_ms"]).to_pylist():
            if row["kind"] == "commit" and row["timestamp_ms"] is not None:
                found.setdefault(row["group_id"], []).append((row["log_offset"], row["timestamp_ms"]))
    return {group: sorted(places) for group, places in found.items()}


def by_group(table: pa.Table) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in table.to_pylist():
        if row["group_id"] is not None:
            groups.setdefault(row["group_id"], []).append(row)
    return groups


@cache
def rebalances(name: str) -> dict[str, list[Row]]:
    return by_group(rebalances_table(corpus(name), None, None))


STORY = {  # group: (generation, cause, members, partitions assigned, partitions moved)
    "billing": [
        (1, "first members", 1, 3, 0),
        (2, "member joined", 2, 3, 1),
        (3, "member joined", 3, 5, 2),
        (4, "member left", 2, 5, 1),
        (5, "member left", 1, 5, 2),
    ],
    "warehouse-static": [
        (1, "first members", 1, 3, 0),
        (2, "member joined", 2, 3, 1),
        (2, "static member returned", 2, 3, 0),
        (3, "member left", 1, 3, 1),
    ],
    "connect-cluster": [(1, "first members", 1, None, None), (2, "member joined", 2, None, None)],
    "flaky-worker": [(1, "first members", 1, 3, 0), (2, "group emptied", 0, 0, 3)],
    "short-lived-had-members": [
        (1, "first members", 1, 3, 0),
        (2, "group emptied", 0, 0, 3),
        (2, "group deleted", 0, 0, 0),
    ],
    "next-gen": [
        (2, "first members", 1, 3, 0),
        (3, "member joined", 2, 5, 2),
        (4, "member joined", 3, 5, 1),
        (5, "member left", 2, 5, 1),
    ],
    "next-gen-static": [(2, "first members", 1, 3, 0), (2, "static member returned", 1, 3, 0)],
    "next-gen-regex": [(2, "first members", 1, 5, 0), (3, "matched topics changed", 1, 7, 0)],
    "next-gen-gone": [(2, "first members", 1, 3, 0), (3, "group emptied", 0, 0, 3), (3, "group deleted", 0, 0, 0)],
    "upgraded-online": [
        (1, "first members", 1, 3, 0),
        (1, "type changed", 1, 3, None),
        (2, "member joined", 2, 3, 1),
    ],
    "downgraded-online": [
        (2, "first members", 1, 3, 0),
        (3, "member joined", 2, 3, 1),
        (3, "type changed", 1, 1, None),
        (4, "partitions changed", 1, 3, 0),
    ],
    "share-workers": [
        (2, "first members", 1, 0, 0),
        (3, "member joined", 2, 3, 0),
        (4, "partitions changed", 2, 5, 0),
        (5, "member left", 1, 5, 2),
    ],
    "streams-count": [
        (2, "first members", 1, 0, 0),
        (3, "partitions changed", 1, 4, 0),  # its internal topics exist by now
        (4, "member joined", 2, 4, 2),
        (5, "member left", 1, 4, 2),
    ],
}


def test_the_story_of_a_real_broker_is_told_again() -> None:
    columns = ("generation", "cause", "members", "partitions_assigned", "partitions_moved")
    found = rebalances("k43-full")
    assert {group: [tuple(row[name] for name in columns) for row in found[group]] for group in STORY} == STORY
    assert "short-lived" not in found  # it had commits, and no members ever


def test_members_are_named() -> None:
    first, joined, returned, left = rebalances("k43-full")["warehouse-static"]
    (one,), (other,) = first["joined"], joined["joined"]
    assert one.startswith("shelf-1-")
    assert other.startswith("shelf-2-")
    assert (returned["joined"], returned["left"], returned["replaced"]) == ([], [], ["shelf-1"])
    assert returned["leader"].startswith("shelf-1-")
    assert returned["leader"] != joined["leader"]
    assert returned["leader_changed"] is False, "it is the same leader under a new member id"
    assert left["left"] == [other]
    assert left["replaced"] == []
    assert left["since_last_ms"] == left["at_ms"] - joined["at_ms"], "the return in between was no rebalance"


@pytest.mark.parametrize("name", UNDAMAGED)
def test_the_newest_row_is_what_the_broker_answered(name: str) -> None:
    answers = json.loads((CORPORA / name / "expected" / "groups.json").read_text(encoding="utf-8"))
    compared = 0
    for group in answers["groups"]:
        rows = rebalances(name).get(group["groupId"])
        if rows is None or "members" not in group:  # a broker that could not describe it says nothing of them
            assert not group.get("members"), group["groupId"]
            continue
        newest = rows[-1]
        listed_as = group["listed"].get("type") or "Classic"
        assert newest["type"] == listed_as.lower(), group["groupId"]
        assert newest["members"] == len(group["members"]), group["groupId"]
        listed = [one.get("assignment") for one in group["members"]]
        if newest["type"] in ("classic", "consumer", "share") and None not in listed:
            assert newest["partitions_assigned"] == len({partition for some in listed for partition in some})
            compared += 1
    assert compared


@pytest.mark.parametrize("name", NAMES)
def test_one_open_row_a_group_and_rows_in_log_order(name: str) -> None:
    assert sum(map(len, rebalances(name).values())) > 0
    for group, rows in rebalances(name).items():
        assert [row["carry"] is not None for row in rows] == [False] * (len(rows) - 1) + [True], group
        assert all(one["log_offset"] < other["log_offset"] for one, other in pairwise(rows))
        for row in rows:
            same = row["generation"] == row["previous_generation"]
            assert same == (row["cause"] in ("static member returned", "group deleted", "type changed")), row


# Any cut of the log gives the same rows.


def with_gaps(records: list[Row], places: list[tuple[int, int]], since: int) -> list[Row]:
    """Records of a run that begins at an offset, with the commits around them as a reader in log order sees them."""
    makers = [record["log_offset"] for record in records if record["record_type"] in MAKES_ROWS]
    filled = []
    for record in records:
        here = record["log_offset"]
        if here in makers:
            until = min((other for other in makers if other > here), default=1 << 62)
            before = [time for place, time in places if place < here]
            after = [time for place, time in places if here < place < until and place >= since]
            record = record | {
                "last_commit_before_ms": before[-1] if before else None,
                "first_commit_after_ms": after[0] if after else None,
            }
        filled.append(record)
    return filled


def state_after(state: dict[tuple[Any, ...], Row], records: list[Row]) -> None:
    for record in records:
        key = (record["group_id"], record["record_type"], record["member_id"])
        if record["record_type"] == 16:
            key = (*key, record["regular_expression"])
        if record["is_tombstone"]:
            state.pop(key, None)
        else:
            state[key] = record


def in_runs(
    records: list[Row], places: list[tuple[int, int]], cuts: list[int], told_by: Any = rebalances_table
) -> list[Row]:
    """The rows of a group when the log is read in runs that end at these offsets, by way of tables and back."""
    final: list[Row] = []
    latest: Row | None = None
    state: dict[tuple[Any, ...], Row] = {}
    for start, end in pairwise([0, *cuts, 1 << 62]):
        seen = [place for place in places if place[0] < end]
        run = with_gaps([one for one in records if start <= one["log_offset"] < end], seen, start)
        makers = [one["log_offset"] for one in run if one["record_type"] in MAKES_ROWS]
        early = [time for place, time in seen if start <= place < min(makers, default=1 << 62)]
        if latest is not None and early:
            latest = with_first_commit(latest, early[0])
        if run:
            rows = told_by(
                pa.Table.from_pylist(run, GROUP_RECORDS),
                pa.Table.from_pylist(list(state.values()), GROUP_RECORDS),
                None if latest is None else pa.Table.from_pylist([latest], LATEST_REBALANCES),
            ).to_pylist()
            if rows:
                final, latest = final + rows[:-1], rows[-1]
        state_after(state, run)
    return final if latest is None else [*final, latest]


def cut_anywhere(name: str, group: str, random: Random) -> None:
    records, places = by_group(corpus(name))[group], commits(name).get(group, [])
    whole = in_runs(records, places, [])
    offsets = sorted({record["log_offset"] for record in records} | {place + 1 for place, _ in places[:20]})
    everywhere = [offset for one in offsets for offset in (one, one + 1)]
    assert whole, "nothing to compare"
    for cuts in (everywhere, *(random.sample(everywhere, min(3, len(everywhere))) for _ in range(3))):
        assert in_runs(records, places, sorted(set(cuts))) == whole, (name, group, cuts)


def groups_with_rows(name: str) -> list[str]:
    groups = [group for group, rows in rebalances(name).items() if rows]
    assert groups, name
    return groups


@pytest.mark.parametrize("name", ["k43-full", "k26-full", "k41", "k36-gzip"])
def test_any_cut_of_the_log_gives_the_same_rows(name: str) -> None:
    random = Random(name)
    for group in groups_with_rows(name):
        cut_anywhere(name, group, random)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_any_cut_of_every_log_gives_the_same_rows(name: str) -> None:
    random = Random(f"long {name}")
    for group in groups_with_rows(name):
        for _ in range(2):
            cut_anywhere(name, group, random)


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_batches_may_end_inside_a_group(rows: int) -> None:
    assert by_group(rebalances_table(corpus("k43-full"), None, None, rows)) == rebalances("k43-full")


def test_rows_leave_as_soon_as_they_are_final() -> None:
    """However many groups there are, no more is held than a batch, and the newest row of the group at its end."""
    groups, generations, rows = 60, 7, 10
    made = pa.Table.from_pylist(
        [record(place, place + 1, member("a", [0]), group_id=f"app-{group:03}")
            for group in range(groups) for place in range(generations)], GROUP_RECORDS,
    )  # fmt: skip
    pulled, emitted, waiting, bytes_held = 0, 0, [], []

    def log() -> Iterator[pa.RecordBatch]:
        nonlocal pulled
        for start in range(0, len(made), rows):
            waiting.append(pulled - emitted)
            bytes_held.append(pa.total_allocated_bytes())
            taken = made.take(list(range(start, min(start + rows, len(made)))))
            pulled += len(taken)
            yield taken.combine_chunks().to_batches()[0]
            del taken

    for batch in rebalance_batches(log(), None, None):
        emitted += len(batch)
        del batch
    assert (pulled, emitted) == (groups * generations, groups * generations)
    assert waiting == [0] + [1] * (len(waiting) - 1)
    assert set(bytes_held) == {bytes_held[0]}, "Arrow's memory is as it was before the first batch"


# Made-up classic groups.


def member(
    member_id: str, partitions: list[int] | None, instance_id: str | None = None, topics: tuple[str, ...] = ("orders",)
) -> Row:
    return {
        "member_id": member_id,
        "instance_id": instance_id,
        "subscribed_topics": list(topics),
        "assignment": None if partitions is None else [{"topic": "orders", "topic_id": None, "partitions": partitions}],
    }


def record(log_offset: int, generation: int | None, *members: Row, **fields: Any) -> Row:
    blank: Row = dict.fromkeys(GROUP_RECORDS.names)
    return blank | {
        "offsets_partition": 0, "log_offset": log_offset, "timestamp_ms": START_MS + log_offset, "record_type": 2,
        "is_tombstone": False, "group_id": "app", "epoch": generation, "protocol_type": "consumer",
        "protocol": "range" if members else None, "leader": members[0]["member_id"] if members else None,
        "members": list(members),
    } | fields  # fmt: skip


def causes(*records: Row) -> list[str | None]:
    rows = rebalances_of(records, None)
    assert pa.Table.from_pylist(rows, LATEST_REBALANCES).num_rows == len(rows)
    return [row["cause"] for row in rows]


def test_nothing_visible_changed() -> None:
    assert causes(record(0, 1, member("a", [0])), record(1, 2, member("a", [0]))) == ["first members", "rejoined"]


def test_a_record_written_again_is_no_rebalance() -> None:
    assert causes(record(0, 1, member("a", [0])), record(1, 1, member("a", [0]))) == ["first members"]


def test_a_commit_behind_a_record_written_again_counts() -> None:
    again = record(1, 1, member("a", [0]), first_commit_after_ms=START_MS + 9)
    (row,) = rebalances_of([record(0, 1, member("a", [0])), again], None)
    assert row["first_commit_after_ms"] == START_MS + 9


def newer(log_offset: int, record_type: int, **value: Any) -> Row:
    """A record of a consumer group with one member."""
    fields = {"record_type": record_type, "epoch": value.get("epoch"), "json": json.dumps(value), "members": None}
    return record(log_offset, None, **fields, member_id="m" if record_type in (5, 7) else None,
                  regular_expression="o.*" if record_type == 16 else None)  # fmt: skip


def test_a_cause_is_named_once() -> None:
    group = [
        newer(0, 5, subscribedTopicNames=[], subscribedTopicRegex="o.*"),
        newer(1, 16, topics=["orders"]),
        newer(2, 3, epoch=2),
        newer(3, 16, topics=["orders", "old-orders"]),
        newer(4, 3, epoch=3),
        newer(5, 3, epoch=4),
        newer(6, 5, subscribedTopicNames=["orders"], subscribedTopicRegex=""),
        newer(7, 3, epoch=5),
    ]
    expected = ["first members", "matched topics changed", "metadata changed", "subscription changed"]
    assert causes(*group) == expected


def test_the_assignment_of_an_epoch_may_come_late() -> None:
    group = [newer(0, 5, subscribedTopicNames=["orders"]), newer(1, 3, epoch=2), newer(2, 3, epoch=3)]
    before, row = rebalances_of(group, None)
    assert (row["cause"], row["partitions_assigned"]) == ("metadata changed", 0)
    assigned = [newer(3, 7, topicPartitions=[{"topicId": "t", "partitions": [0, 1]}]), newer(4, 6, assignmentEpoch=3)]
    (later,) = rebalances_of(assigned, snapshot_of((), row))
    assert (later["cause"], later["partitions_assigned"]) == ("partitions changed", 2)
    assert (later["log_offset"], before["partitions_assigned"]) == (row["log_offset"], 0)


def test_another_assignor() -> None:
    rows = rebalances_of([record(0, 1, member("a", [0])), record(1, 2, member("a", [0]), protocol="sticky")], None)
    assert rows[1]["cause"] == "protocol changed"
    assert rows[1]["protocol_changed"] is True


def test_another_subscription() -> None:
    again = record(1, 2, member("a", [0], topics=("orders", "payments")))
    assert causes(record(0, 1, member("a", [0])), again)[1] == "subscription changed"


def test_more_partitions() -> None:
    assert causes(record(0, 1, member("a", [0])), record(1, 2, member("a", [0, 1])))[1] == "partitions changed"


def test_a_cooperative_rebalance_in_its_two_halves() -> None:
    rows = rebalances_of(
        [
            record(0, 1, member("a", [0, 1])),
            record(1, 2, member("a", [0]), member("b", [])),  # 1 is taken from a, and free
            record(2, 3, member("a", [0]), member("b", [1])),
        ],
        None,
    )
    assert [row["cause"] for row in rows[1:]] == ["member joined", "revoked partitions assigned"]
    assert [row["partitions_moved"] for row in rows] == [0, 1, 0], "a partition moves once"


def test_a_static_member_that_comes_back_late_or_with_other_topics() -> None:
    one, again = member("s-1", [0], "shelf"), member("s-2", [0], "shelf", ("orders", "payments"))
    rows = rebalances_of([record(0, 1, one), record(1, 2, again)], None)
    assert (rows[1]["cause"], rows[1]["replaced"], rows[1]["left"]) == ("static member replaced", ["shelf"], [])
    assert (rows[1]["partitions_moved"], rows[1]["leader_changed"]) == (0, False)


def test_a_dynamic_member_that_was_restarted() -> None:
    rows = rebalances_of([record(0, 1, member("a", [0])), record(1, 2, member("b", [0]))], None)
    assert (rows[1]["cause"], rows[1]["joined"], rows[1]["left"]) == ("members joined and left", ["b"], ["a"])
    assert (rows[1]["partitions_moved"], rows[1]["leader_changed"]) == (1, True)


def test_what_came_before_is_not_in_the_log() -> None:
    (row,) = rebalances_of([record(0, 7, member("a", [0]))], None)
    unknown = ("cause", "joined", "left", "replaced", "previous_generation", "partitions_moved", "since_last_ms")
    assert [row[name] for name in unknown] == [None] * len(unknown)
    assert (row["members"], row["partitions_assigned"]) == (1, 1)


def test_an_assignment_that_nobody_can_read() -> None:
    rows = rebalances_of([record(0, 1, member("a", None)), record(1, 2, member("a", [0, 1]))], None)
    assert [(row["partitions_assigned"], row["partitions_moved"]) for row in rows] == [(None, None), (2, None)]


def test_unreadable_records_and_unknown_kinds_are_passed_over() -> None:
    odd = [record(1, None, problem="bad version", members=None), record(2, None, record_type=999, members=None)]
    odd.append(record(3, None, record_type=None, members=None, problem="key too short"))
    assert causes(record(0, 1, member("a", [0])), *odd, record(4, 2, member("a", [0])))[1] == "rejoined"


def test_a_group_that_ends_and_begins_again() -> None:
    gone = record(2, None, is_tombstone=True, members=None)
    rows = rebalances_of(
        [record(0, 1, member("a", [0])), record(1, 2), gone, record(3, 0), record(4, 1, member("b", [0]))], None
    )
    assert [row["cause"] for row in rows] == ["first members", "group emptied", "group deleted", "first members"]
    assert rows[-1]["previous_generation"] is None
    assert rebalances_of([gone], None) == [], "a group that never had members has no rebalances"


def test_the_gap_between_commits() -> None:
    (row,) = rebalances_of([record(0, 1, member("a", [0]), last_commit_before_ms=START_MS - 500)], None)
    assert (row["first_commit_after_ms"], row["commit_gap_ms"]) == (None, None)
    later = with_first_commit(row, START_MS + 1500)
    assert (later["first_commit_after_ms"], later["commit_gap_ms"]) == (START_MS + 1500, 2000)
    assert with_first_commit(later, START_MS + 9000) == later, "only the first counts"
    (row,) = rebalances_of([record(0, 1, member("a", [0]), first_commit_after_ms=START_MS + 9)], None)
    assert (row["first_commit_after_ms"], row["commit_gap_ms"]) == (START_MS + 9, None)


def test_state_stands_in_for_a_row_that_is_not_there() -> None:
    before = snapshot_of([record(0, 1, member("a", [0]))], None)
    (row,) = rebalances_of([record(1, 2, member("a", [0]), member("b", [1]))], before)
    assert (row["cause"], row["joined"], row["previous_generation"]) == ("member joined", ["b"], 1)
    assert before.generation == 1, "what was given is left as it was"


# Columns against the model: `rebalances_of`, which takes plain records one by one.


def one_by_one(records: pa.Table, state: pa.Table | None, latest: pa.Table | None) -> pa.Table:
    """What `rebalance_batches` has to say, by the model."""
    known, newest = by_group(state) if state else {}, by_group(latest) if latest else {}
    rows: list[Row] = []
    for group, group_records in by_group(records).items():
        (newest_row,) = newest.get(group, [None])
        rows += rebalances_of(group_records, snapshot_of(() if newest_row else known.get(group, ()), newest_row))
    return pa.Table.from_pylist(rows, LATEST_REBALANCES)


@pytest.mark.parametrize("name", NAMES)
def test_columns_say_what_the_model_says_of_every_log(name: str) -> None:
    assert rebalances_table(corpus(name), None, None).equals(one_by_one(corpus(name), None, None))


NAME = st.sampled_from(["a", "b", "c", "d", "é"])
TOPIC = st.sampled_from(["orders", "payments", ""])
PARTITIONS = st.lists(st.integers(0, 3), max_size=3)
ASSIGNED = st.one_of(
    st.fixed_dictionaries(
        {"topic": st.just("orders"), "topic_id": st.sampled_from([None, "T"]), "partitions": PARTITIONS}
    ),
    st.fixed_dictionaries({"topic": st.sampled_from([None, ""]), "topic_id": st.just("T"), "partitions": PARTITIONS}),
)
MEMBER = st.fixed_dictionaries(
    {
        "member_id": NAME,
        "instance_id": st.none() | st.sampled_from(["shelf", "desk", "a", ""]),
        "subscribed_topics": st.none() | st.lists(TOPIC, max_size=3),
        "assignment": st.one_of([st.lists(ASSIGNED, max_size=2)] * 7 + [st.none()]),
    }
)
STEADY = st.lists(  # as brokers write them: every member once
    st.builds(member, NAME, st.none() | PARTITIONS), max_size=4, unique_by=lambda one: one["member_id"]
)
STATIC = st.lists(
    st.builds(member, NAME, PARTITIONS, st.sampled_from(["shelf", "desk", "door"])),
    max_size=3, unique_by=(lambda one: one["member_id"], lambda one: one["instance_id"]),
)  # fmt: skip
COMMITS_AROUND = {name: st.none() | st.integers(START_MS, START_MS + 9)
                  for name in ("last_commit_before_ms", "first_commit_after_ms")}  # fmt: skip


@st.composite
def classic(draw: st.DrawFn) -> Row:
    members = draw(st.one_of([STEADY, STATIC] * 3 + [st.lists(MEMBER, max_size=3)]))
    fields: Row = {"protocol": draw(st.sampled_from(["range", "sticky", None])), "leader": draw(st.none() | NAME)}
    return record(0, draw(st.integers(0, 3)), *members, **fields, **draw(st.fixed_dictionaries(COMMITS_AROUND)))


@st.composite
def other(draw: st.DrawFn) -> Row:
    """A record of a newer group, or one that is passed over."""
    kind, epoch = draw(st.sampled_from([3, 3, 5, 6, 7, 11, 16, 999])), draw(st.integers(0, 4))
    value = {
        5: {"subscribedTopicNames": draw(st.lists(TOPIC, max_size=2))},
        7: {"topicPartitions": [{"topicId": "T", "partitions": draw(PARTITIONS)}]},
        16: {"topics": draw(st.lists(TOPIC, max_size=2))},
    }.get(kind, {"epoch": epoch})
    fields: Row = {"epoch": epoch, "member_id": draw(NAME) if kind in (5, 7) else None}
    return newer(0, kind, **value) | fields | {"problem": draw(st.sampled_from([None, None, None, "bad version"]))}


RECORD = st.one_of([classic()] * 4 + [other()] * 2 + [st.just(record(0, None, is_tombstone=True, members=None))])


@st.composite
def changed(draw: st.DrawFn, before: Row) -> Row:
    """The next generation of a group that changes little: a member less, one more, another assignment, another name."""
    members = [dict(one) for one in before["members"]]
    for one in members:
        if draw(st.sampled_from([False, False, True])):
            one["assignment"] = member("", draw(PARTITIONS))["assignment"]
    change = draw(st.sampled_from(["none", "none", "left", "joined", "renamed"]))
    if change == "left":
        members = members[1:]
    elif change == "joined":
        members.append(draw(MEMBER))
    elif change == "renamed" and members:
        members[0]["member_id"] = draw(NAME)
    return before | {"epoch": before["epoch"] + draw(st.sampled_from([0, 1, 1])), "members": members}


@st.composite
def histories(draw: st.DrawFn) -> list[Row]:
    """Records of a group, in log order."""
    rows: list[Row] = [draw(RECORD)]
    for _ in range(draw(st.integers(0, 8))):
        goes_on = rows[-1]["record_type"] == 2 and not rows[-1]["is_tombstone"]
        rows.append(draw(st.one_of([changed(rows[-1])] * 5 + [RECORD] * 2) if goes_on else RECORD))
    return [row | {"log_offset": place, "timestamp_ms": START_MS + 7 * place} for place, row in enumerate(rows)]


@settings(deadline=None, max_examples=60)
@given(histories(), histories(), st.integers(1, 20))
def test_columns_say_what_the_model_says(one: list[Row], other: list[Row], rows: int) -> None:
    groups = [*one, *(row | {"group_id": "bpp"} for row in other)]
    table = pa.Table.from_pylist(groups, GROUP_RECORDS)
    found, expected = rebalances_table(table, None, None, rows).to_pylist(), one_by_one(table, None, None).to_pylist()
    assert found == expected


@settings(deadline=None, max_examples=40)
@given(histories(), st.sets(st.integers(1, 8)))
def test_columns_say_what_the_model_says_in_runs(records: list[Row], cuts: set[int]) -> None:
    assert in_runs(records, [], sorted(cuts)) == in_runs(records, [], sorted(cuts), one_by_one)


def life(random: Random, group_id: str, generations: int) -> list[Row]:
    """A classic group as brokers write it: now and then a member comes, goes, returns under its name, or is unreadable.

    Half of the rebalances are cooperative: what is taken from a member is free for one generation.
    """
    records: list[Row] = []
    here: list[tuple[str, str | None]] = []
    generation, born, owned = 0, 0, dict[str, list[int]]()
    topics: tuple[str, ...] = ("orders",)
    for place in range(generations):
        step = random.choice(["join", "join", "leave", "return", "late", "restart", "stay", "again", "topics",
                              "delete", "empty"])  # fmt: skip
        if step == "join" and len(here) < 6:
            born += 1
            here = [*here, (f"m-{born}", f"shelf-{born}" if born % 3 == 0 else None)]
        elif step == "leave":
            here = here[1:]
        elif step == "restart":
            born += 1
            here = [*here[1:], (f"m-{born}", None)]
        elif step in ("return", "late"):
            born += 1
            here = [(f"m-{born}-{name}", name) if name else (member_id, name) for member_id, name in here]
        elif step == "topics":
            topics = random.choice([("orders",), ("orders", "payments"), ("payments", "orders")])
        elif step in ("delete", "empty") and random.random() < 0.3:
            here = []
        if step == "delete" and not here:
            records.append(record(place, None, group_id=group_id, is_tombstone=True, members=None))
            generation, owned = 0, {}
            continue
        generation += step not in ("return", "again")
        if step not in ("return", "again"):
            wanted = {name or one: list(range(at, 8, len(here))) for at, (one, name) in enumerate(here)}
            taken = {
                partition for one, some in owned.items() for partition in some if partition not in wanted.get(one, ())
            }
            if random.random() < 0.5:
                wanted = {
                    one: [partition for partition in some if partition not in taken] for one, some in wanted.items()
                }
            owned = wanted
        unreadable = random.random() < 0.05
        members = [member(one, None if unreadable else owned.get(name or one, []), name, topics) for one, name in here]
        protocol = random.choice(["range", "range", "range", "range", "sticky"]) if here else None
        random.shuffle(members)
        records.append(record(place, generation, *members, group_id=group_id, protocol=protocol))
    return records


def test_columns_say_what_the_model_says_of_long_lives() -> None:
    random = Random("lives")
    records = [one for group in range(12) for one in life(random, f"app-{group:02}", 80)]
    table = pa.Table.from_pylist(records, GROUP_RECORDS)
    expected = one_by_one(table, None, None).to_pylist()
    for rows in (7, 64, 10_000):
        assert rebalances_table(table, None, None, rows).to_pylist() == expected
    seen = {row["cause"] for row in expected}
    assert seen >= {
        "group deleted", "group emptied", "first members", "members joined and left", "member joined", "member left",
        "static member returned", "static member replaced", "protocol changed", "subscription changed",
        "revoked partitions assigned", "partitions changed", "rejoined",
    }  # fmt: skip
    for group, own in by_group(table.slice(0, 160)).items():
        cuts = sorted(random.sample(range(80), 4))
        assert in_runs(own, [], cuts) == [row for row in expected if row["group_id"] == group]


def test_topics_that_cannot_be_read_are_not_the_same_as_none() -> None:
    unreadable = member("a", [0]) | {"subscribed_topics": None}
    records = [record(0, 1, unreadable), record(1, 2, member("a", [0], topics=())), record(2, 3, unreadable)]
    rows = rebalances_table(pa.Table.from_pylist(records, GROUP_RECORDS), None, None)
    assert rows["cause"].to_pylist()[1:] == ["subscription changed", "subscription changed"]


def test_a_group_goes_to_another_type_and_back() -> None:
    there = [newer(2, 5, subscribedTopicNames=["orders"]), newer(3, 3, epoch=3)]
    gone = [newer(4, 5), newer(5, 3)]
    records = [
        record(0, 1, member("m", [0])), record(1, 2, member("m", [0, 1])), *there,
        *(one | {"is_tombstone": True} for one in gone),
        record(6, 3, member("m", [0])), record(7, 4, member("m", [0]), member("n", [1])),
    ]  # fmt: skip
    rows = rebalances_table(pa.Table.from_pylist(records, GROUP_RECORDS), None, None)
    expected = ["first members", "partitions changed", "type changed", "type changed", "member joined"]
    assert rows["cause"].to_pylist() == expected
    assert rows["type"].to_pylist() == ["classic", "classic", "consumer", "classic", "classic"]
    for cut in range(1, 8):
        assert [row["cause"] for row in in_runs(records, [], [cut])] == expected, cut


def test_a_table_of_nothing() -> None:
    assert rebalances_table(GROUP_RECORDS.empty_table(), None, None).schema == LATEST_REBALANCES
    assert LATEST_REBALANCES.names[:-1] == REBALANCES.names
