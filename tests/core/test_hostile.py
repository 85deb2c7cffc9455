"""What a hostile client or a damaged log says: every answer can be encoded, every deletion happens, no timer spins."""

import gc
from typing import Any

import pytest

from muster.codec.error_codes import ErrorCode
from muster.codec.offsets_topic import GroupKey, GroupValue, MemberValue, encode_group_value, encode_key
from muster.core.config import GroupConfig
from muster.core.coordinator import Coordinator
from muster.core.events import (
    CommittedPartition,
    DeleteGroup,
    ExpireOffsets,
    Instant,
    JoinGroup,
    Leaver,
    OffsetCommit,
    OffsetDelete,
    SyncGroup,
    TimerFired,
    TopicsDeleted,
)
from muster.core.outcome import Notice, NoticeKind, OffsetsRecord, Outcome
from tests.core.world import World

MAX_STRING_BYTES = 0x7FFF
NOW = Instant(0, 1_700_000_000_000)
WEEK_MS = 7 * 24 * 3_600_000


# Ids that no answer can hold.


@pytest.mark.parametrize("version", [0, 3, 4, 5, 9])
def test_a_client_id_that_makes_an_id_too_long_for_any_answer_is_refused(version: int) -> None:
    world = World()
    asked = world.join(client="c" * MAX_STRING_BYTES, version=version)
    assert world.answer(asked).error is ErrorCode.UNKNOWN_SERVER_ERROR  # as Kafka answers it
    assert world.answer(asked).member_id == ""
    assert world.state() == "Empty"
    assert not world.group().pending_members
    assert not world.coordinator.rebalancing.seat_count


def test_an_instance_id_that_makes_an_id_too_long_for_any_answer_is_refused() -> None:
    world = World()
    asked = world.join(instance="i" * (MAX_STRING_BYTES - 5))
    assert world.answer(asked).error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert world.state() == "Empty"


def test_the_longest_id_that_an_answer_holds_is_given_out() -> None:
    world = World()
    asked = world.join(client="c" * (MAX_STRING_BYTES - len("-uuid-1")))
    assert len(world.answer(asked).member_id) == MAX_STRING_BYTES


# Tombstones that are more than the log takes at once.


class SmallLog:
    """A coordinator whose log takes batches of a few records only, and the notices of what happened."""

    def __init__(self, most_records: int) -> None:
        self.coordinator = Coordinator(GroupConfig(group_min_session_timeout_ms=10))
        self.most_records = most_records
        self.batches: list[list[tuple[bytes, bytes | None]]] = []
        self.notices: list[Notice] = []
        self.answers: dict[Any, Any] = {}
        self.coordinator.activate(NOW, Outcome())
        self._end_offset = 0

    def ask(self, event: Any, now: Instant = NOW) -> Any:
        out = Outcome()
        self.coordinator.handle(event, now, out)
        for write in out.writes:
            if len(write.records) > self.most_records:
                self.coordinator.refused(write, ErrorCode.MESSAGE_TOO_LARGE, out)
                continue
            self.batches.append(write.records)
            self.coordinator.appended(write, self._end_offset, out)
            self._end_offset += len(write.records)
        self.notices += out.notices
        for reply_to, answer in out.replies:
            assert reply_to not in self.answers, f"{reply_to} is answered twice"
            self.answers[reply_to] = answer
        return self.answers.get(getattr(event, "reply_to", None))

    def commit(self, group_id: str, partitions: int) -> None:
        for partition in range(partitions):
            self.ask(
                OffsetCommit(f"{group_id} {partition}", group_id, -1, "", (CommittedPartition("t", partition, 1),))
            )
        assert len(self.coordinator.groups[group_id].offsets) == partitions
        self.batches.clear()

    def told(self) -> list[tuple[NoticeKind, int]]:
        return [(notice.kind, notice.size) for notice in self.notices]


@pytest.mark.parametrize("partitions", [1, 3, 7, 40])
def test_a_group_with_more_offsets_than_a_batch_holds_is_deleted_whole_and_last(partitions: int) -> None:
    log = SmallLog(3)
    log.commit("g", partitions)
    assert log.ask(DeleteGroup("asked", "g")) is ErrorCode.NONE
    assert not log.coordinator.groups
    records = [record for batch in log.batches for record in batch]
    assert len(records) == partitions + 1
    assert records[-1] == (encode_key(GroupKey("g")), None)
    assert all(value is None for _, value in records)
    assert log.told() == [(NoticeKind.REMOVED, partitions)]


def test_offsets_that_are_more_than_a_batch_holds_expire_and_the_groups_with_them() -> None:
    log = SmallLog(3)
    for group_id in "abc":
        log.commit(group_id, 10)
    log.ask(ExpireOffsets(), Instant(NOW.monotonic_ms, NOW.wall_ms + WEEK_MS))
    assert not log.coordinator.groups
    assert log.told() == [(NoticeKind.OFFSETS_EXPIRED, 10), (NoticeKind.REMOVED, 0)] * 3


def test_offsets_of_a_deleted_topic_go_however_many_there_are() -> None:
    log = SmallLog(3)
    log.commit("g", 10)
    log.ask(TopicsDeleted(tuple(("t", partition) for partition in range(8))))
    assert sorted(partition for _, partition in log.coordinator.groups["g"].offsets) == [8, 9]
    assert log.told() == [(NoticeKind.OFFSETS_DELETED, 8)]


def test_offsets_deleted_by_name_go_however_many_there_are() -> None:
    log = SmallLog(3)
    log.commit("g", 10)
    answer = log.ask(OffsetDelete("asked", "g", tuple(("t", partition) for partition in range(8))))
    assert answer.error is ErrorCode.NONE
    assert sorted(partition for _, partition in log.coordinator.groups["g"].offsets) == [8, 9]


def test_the_operator_is_not_told_of_a_deletion_that_the_log_refused() -> None:
    log = SmallLog(3)
    log.commit("g", 2)
    log.most_records = 0
    assert log.ask(DeleteGroup("asked", "g")) is not ErrorCode.NONE
    log.ask(ExpireOffsets(), Instant(NOW.monotonic_ms, NOW.wall_ms + WEEK_MS))
    assert len(log.coordinator.groups["g"].offsets) == 2
    assert {notice.kind for notice in log.notices} == {NoticeKind.NOT_WRITTEN}
    assert {notice.reason for notice in log.notices} == {"MESSAGE_TOO_LARGE"}


def test_the_operator_is_not_told_of_a_group_that_the_log_refused() -> None:
    log = SmallLog(0)
    join = JoinGroup("asked", 3, "g", "", "uuid", "c", "/h", 10_000, 10_000, "consumer", (("range", b""),))
    assert log.ask(join).error is not ErrorCode.NONE
    assert not log.coordinator.groups
    assert [notice.kind for notice in log.notices] == [NoticeKind.NOT_WRITTEN]


# Timers without a length.


def only_a_silent_static_member(rebalance_timeout_ms: int) -> World:
    """Another member joins and leaves again: the phase it began waits for a static member that says nothing."""
    world = loaded(GroupValue("consumer", 1, "range", "s", 0, (member("s", "silent", rebalance_timeout_ms),)))
    asked = world.join(client="other", version=3, rebalance=rebalance_timeout_ms)
    assert world.is_parked(asked)
    (other,) = set(world.group().members) - {"s"}
    world.leave(Leaver(other))
    assert world.state() == "PreparingRebalance"
    return world


def fire_due(world: World) -> int:
    """Fire what is due now, and what that makes due; how many timers fired, at the most 100."""
    for fired in range(100):
        due = [key for key, deadline_ms in world.timers.items() if deadline_ms <= world.now_ms]
        if not due:
            return fired
        del world.timers[due[0]]
        world.ask(TimerFired(due[0]))
    return 100


@pytest.mark.parametrize("rebalance_timeout_ms", [0, 1])
def test_a_phase_of_no_length_that_only_a_silent_static_member_is_missing_in_sets_no_timer_for_now(
    rebalance_timeout_ms: int,
) -> None:
    world = only_a_silent_static_member(rebalance_timeout_ms)
    fired = 0
    for _ in range(50):
        world.now_ms += rebalance_timeout_ms
        fired += fire_due(world)
    assert fired == 1
    world.advance(10_000)  # its session ends, as ever
    assert world.state() == "Empty"


def test_the_next_join_ends_a_phase_that_is_overdue() -> None:
    world = only_a_silent_static_member(0)
    assert fire_due(world) == 1
    assert world.state() == "PreparingRebalance"
    asked = world.join(client="new", version=3, rebalance=0)
    assert world.answer(asked).error is ErrorCode.NONE
    assert world.answer(asked).leader == world.answer(asked).member_id
    assert "s" in world.group().members


# Group records of a damaged disk.


def member(member_id: str, instance_id: str | None = None, rebalance_timeout_ms: int = 10_000) -> MemberValue:
    return MemberValue(member_id, instance_id, "c", "/h", rebalance_timeout_ms, 10_000, b"", b"")


def loaded(value: GroupValue) -> World:
    world = World()
    fresh = Coordinator(world.config)
    fresh.replay(OffsetsRecord(encode_key(GroupKey("g")), encode_group_value(value, 3)), 0)
    out = Outcome()
    fresh.table.take_seats()
    fresh.activate(world.now, out)
    world.coordinator = fresh
    world._carry_out(out)
    return world


def test_a_group_whose_leader_is_no_member_rebalances_with_another() -> None:
    world = loaded(GroupValue("consumer", 5, "range", "ghost", 0, (member("a"), member("b"))))
    first = world.join(member_id="a", protocols=[("range", b"new")])
    second = world.join(member_id="b", protocols=[("range", b"new")])
    assert world.answer(first).error is world.answer(second).error is ErrorCode.NONE
    assert world.answer(first).leader == "a"
    assert world.answer(first).generation == 6


def test_the_generation_behind_the_largest_is_the_smallest() -> None:
    world = loaded(GroupValue("consumer", 2**31 - 1, "range", "a", 0, (member("a"),)))
    asked = world.join(member_id="a", protocols=[("range", b"new")])
    assert world.answer(asked).generation == -(2**31)
    synced = world.sync("a", -(2**31), {"a": b"all"})
    assert world.answer(synced).assignment == b"all"


def test_two_members_of_one_id_are_one_seat_that_can_be_left_and_taken() -> None:
    world = loaded(GroupValue("consumer", 1, "range", "a", 0, (member("a", "one"), member("a", "two"))))
    world.advance(20_000)  # its session ends
    assert world.state() == "Empty"
    asked = world.join(instance="one")
    world.advance(0)
    assert world.answer(asked).error is ErrorCode.NONE


# Requests that a newer one replaces.


class Waiting:
    """A place on a connection, which its request knows."""


@pytest.mark.parametrize("kind", ["join", "sync"])
def test_a_replaced_request_is_freed_at_once(kind: str) -> None:
    world = World()
    world.stable("a", "b")
    leader, follower = world.group().members

    def ask(place: Waiting) -> None:
        event: JoinGroup | SyncGroup
        if kind == "join":
            protocols = (("range", b"new"),)
            event = JoinGroup(place, 9, "g", leader, "u", "c", "/h", 10_000, 60_000, "consumer", protocols)
        else:
            event = SyncGroup(place, "g", world.group().generation, follower)
        world.ask(event)

    if kind == "sync":
        for member_id in (leader, follower):
            world.join(member_id=member_id, protocols=[("range", b"new")])
        assert world.state() == "CompletingRebalance"
    gc.collect()
    gc.disable()
    try:
        ask(Waiting())
        ask(Waiting())
        world.answers.clear()
        alive = [thing for thing in gc.get_objects() if isinstance(thing, Waiting)]
    finally:
        gc.enable()
    assert len(alive) == 1, "the replaced request is kept, and its place with it"
