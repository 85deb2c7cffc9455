"""What the records of the offsets topic come down to, and how much of it is held."""

import pytest

from muster.exporter.groups import Member
from muster.exporter.limits import Limits, Wanted
from muster.verdicts import Commit
from tests.exporter.logs import GROUP, START_MS, TOPIC, Log


def offsets(log: Log, group: str = GROUP) -> dict[int, int]:
    found = log.state.groups.get(group)
    return {} if found is None else {where[1]: one.window[-1].offset for where, one in found.positions.items()}


def test_the_last_commits_of_each_partition() -> None:
    log = Log()
    for offset in range(12):
        log.commit(offset, 0)
    log.commit(7, 1)
    assert offsets(log) == {0: 11, 1: 7}
    window = log.state.groups[GROUP].positions[TOPIC, 0].window
    assert [commit.offset for commit in window] == list(range(2, 12))


def test_a_tombstone_forgets_and_the_last_one_ends_the_group() -> None:
    log = Log()
    log.commit(5, 0)
    log.commit(6, 1)
    log.commit(None, 0)
    assert offsets(log) == {1: 6}
    log.commit(None, 1)
    assert log.state.groups == {}
    assert (log.room.groups, log.room.partitions) == (0, 0)


def test_commits_in_transactions_count_when_they_are_committed() -> None:
    log = Log()
    log.commit(5)
    log.commit(8, producer_id=1)
    log.commit(9, 1, producer_id=2)
    assert offsets(log) == {0: 5}
    log.marker(2, commit=False)
    log.marker(1, commit=True)
    assert offsets(log) == {0: 8}
    log.marker(1, commit=True)  # nothing is left for it
    assert offsets(log) == {0: 8}


def test_of_two_commits_the_one_further_down_the_log_counts() -> None:
    log = Log()
    log.commit(8, producer_id=1)
    log.commit(5)
    log.marker(1, commit=True)
    assert offsets(log) == {0: 5}


def test_a_tombstone_ends_what_is_pending() -> None:
    log = Log()
    log.commit(8, producer_id=1)
    log.commit(None)
    log.marker(1, commit=True)
    assert log.state.groups == {}


def test_lag_at_arrival_is_known_of_what_arrives() -> None:
    ends = {(TOPIC, 0): 10}
    log = Log(ends=ends)
    log.commit(4)
    log.state.go_live()
    log.commit(7)
    log.commit(9, 1)
    group = log.state.groups[GROUP]
    assert group.positions[TOPIC, 0].window == (Commit(4, START_MS, None), Commit(7, START_MS, 3))
    assert group.positions[TOPIC, 1].window == (Commit(9, START_MS, None),)
    assert group.commits == 2


def test_members_and_what_they_own() -> None:
    log = Log()
    log.generation(1, {"a": [0, 1], "b": [2]})
    members = log.state.groups[GROUP].members
    assert members == {
        "a": Member("client-a", "/10.0.0.1", frozenset({(TOPIC, 0), (TOPIC, 1)})),
        "b": Member("client-b", "/10.0.0.1", frozenset({(TOPIC, 2)})),
    }
    log.generation(2, {})
    assert log.state.groups[GROUP].members == {}
    log.group_tombstone()
    assert log.state.groups == {}


def test_a_deleted_group_keeps_offsets_that_nobody_deleted() -> None:
    log = Log()
    log.commit(3)
    log.generation(1, {"a": [0]})
    log.group_tombstone()
    assert offsets(log) == {0: 3}
    assert log.state.groups[GROUP].type is None


MEMBER = {"clientId": "new", "clientHost": "/10.0.0.2", "subscribedTopicNames": [TOPIC]}


def test_members_of_newer_groups() -> None:
    log = Log()
    topic_id = bytes(range(16))
    log.newer(3, {"epoch": 1, "metadataHash": 0}, GROUP)
    log.newer(5, _whole(5, MEMBER), GROUP, "m")
    current = {"memberEpoch": 1, "assignedPartitions": [{"topicId": topic_id, "partitions": [0, 3]}]}
    log.newer(8, _whole(8, current), GROUP, "m")
    group = log.state.groups[GROUP]
    assert group.type == "consumer"
    assert group.members == {"m": Member("new", "/10.0.0.2", owned_by_id=((topic_id, (0, 3)),))}
    log.newer(5, _whole(5, MEMBER | {"clientId": "newer"}), GROUP, "m")  # keeps what it has
    assert group.members["m"].client_id == "newer"
    assert group.members["m"].owned_by_id == ((topic_id, (0, 3)),)
    log.newer(8, None, GROUP, "m")
    assert group.members["m"].owned_by_id == ()
    log.newer(5, None, GROUP, "m")
    assert group.members == {}
    log.newer(3, None, GROUP)
    assert log.state.groups == {}


def _whole(record_type: int, data: dict[str, object]) -> dict[str, object]:
    """All fields that the layout has."""
    from muster.codec.group_records import layouts_of

    fields = layouts_of(record_type)[0].message.fields
    return {field.name: field.default for field in fields} | data


def rebalances(log: Log) -> dict[str, int]:
    found = log.state.groups[GROUP].rebalances
    assert found is not None
    found.settle()
    return dict(found.by_cause)


def test_rebalances_are_counted_by_cause_from_when_they_are_followed() -> None:
    log = Log()
    log.generation(1, {"a": [0]})
    log.generation(2, {"a": [0], "b": [1]})
    log.state.go_live()
    assert rebalances(log) == {}
    log.generation(3, {"a": [0, 1]})
    assert rebalances(log) == {"member left": 1}
    assert rebalances(log) == {"member left": 1}
    log.generation(4, {"a": [0], "c": [1]})
    log.generation(5, {"a": [0], "c": [1], "d": []})
    assert rebalances(log) == {"member left": 1, "member joined": 2}
    log.generation(6, {})
    log.group_tombstone()
    assert log.state.groups == {}


def test_a_newer_group_s_rebalance_counts_once_its_assignment_had_time() -> None:
    log = Log()
    log.state.go_live()
    log.newer(5, _whole(5, MEMBER), GROUP, "m")
    log.newer(3, {"epoch": 2, "metadataHash": 0}, GROUP)
    assert rebalances(log) == {"first members": 1}
    log.newer(3, {"epoch": 3, "metadataHash": 1}, GROUP)  # nothing visible changed: the assignment may tell more
    assert rebalances(log) == {"first members": 1}
    targets = {"topicPartitions": [{"topicId": bytes(16), "partitions": [0]}]}
    log.newer(7, targets, GROUP, "m")
    log.newer(6, {"assignmentEpoch": 3, "assignmentTimestamp": 0}, GROUP)
    assert rebalances(log) == {"first members": 1, "partitions changed": 1}


def test_groups_beyond_the_limit_are_left_out_and_counted() -> None:
    log = Log(Limits(groups=2, partitions=3))
    for number in range(4):
        log.commit(1, group=f"g{number}")
    log.commit(1, group="g3")
    assert sorted(log.state.groups) == ["g0", "g1"]
    assert log.left_out.counts == {"groups": 2, "partitions": 0}
    log.commit(1, 1, group="g0")
    log.commit(1, 2, group="g0")
    assert offsets(log, "g0") == {0: 1, 1: 1}
    assert log.left_out.counts == {"groups": 2, "partitions": 1}
    log.commit(None, 1, group="g0")  # there is room again
    log.commit(5, 2, group="g0")
    assert offsets(log, "g0") == {0: 1, 2: 5}


def test_open_transactions_are_limited_too() -> None:
    log = Log(Limits(partitions=2))
    for number in range(4):
        log.commit(number, number, producer_id=number)
    assert log.left_out.counts["partitions"] == 2
    log.marker(0, commit=False)
    log.commit(9, 9, producer_id=9)
    assert log.left_out.counts["partitions"] == 2


def test_letting_go_makes_room() -> None:
    log = Log()
    log.commit(1)
    log.generation(1, {"a": [0]}, group="other")
    log.state.let_go()
    assert (log.room.groups, log.room.partitions) == (0, 0)


@pytest.mark.parametrize(
    ("patterns", "group", "is_wanted"),
    [
        ((), "any", True),
        (("shop-*",), "shop-1", True),
        (("shop-*",), "my-shop-1", False),
        (("shop-?", "x"), "x", True),
        (("shop-?",), "shop-12", False),
        (("a[1]*",), "a[1]b", True),
        (("a[1]*",), "a1b", False),
        (("*",), "line\nbreak", True),
    ],
)
def test_groups_by_pattern(patterns: tuple[str, ...], group: str, is_wanted: bool) -> None:
    assert (group in Wanted(patterns)) is is_wanted


def test_other_groups_are_not_held() -> None:
    log = Log(wanted=["shop*"])
    log.commit(1, group="other")
    log.commit(1)
    assert list(log.state.groups) == [GROUP]
    assert log.left_out.counts["groups"] == 0


def test_what_cannot_be_read_is_counted_and_stepped_over() -> None:
    log = Log()
    log.raw(b"\x00", b"")
    log.raw(b"\x00\x01\x00\x05ab", b"")
    log.raw(b"\x00\x63what", b"")  # of a kind that is not known: no harm
    log.commit(4)
    assert offsets(log) == {0: 4}
    assert (log.state.records, log.state.unreadable) == (4, 2)
