"""What must hold whatever happens. Each check is about one promise, and reads only the log or only the live state."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from muster.codec import decode_key, decode_value
from muster.codec.error_codes import ErrorCode
from muster.codec.offsets_topic import GroupKey, OffsetKey, OffsetValue
from muster.core.coordinator import Coordinator
from muster.core.events import (
    CommitAnswer,
    Event,
    FetchAnswer,
    FetchedOffset,
    JoinGroup,
    OffsetFetch,
    SyncAnswer,
    SyncGroup,
    TimerKey,
    TimerKind,
    commit_error,
)
from muster.core.groups import NO_PRODUCER, Group
from muster.core.outcome import OffsetsRecord
from muster.core.seats import Seats
from muster.core.states import LEGAL_MOVES, State

Key = tuple[str, str, int]


class Marker(NamedTuple):
    """The end of a transaction, as it stands in the log."""

    producer_id: int
    commit: bool


class Entry(NamedTuple):
    record: OffsetsRecord
    producer_id: int


class CommitModel:
    """Committed offsets by the log alone, worked out another way than the coordinator does."""

    def __init__(self) -> None:
        self.committed: dict[Key, tuple[int, OffsetValue]] = {}
        self.pending: dict[Key, dict[int, tuple[int, OffsetValue]]] = {}
        self.group_tombstones: Counter[str] = Counter()
        self.place_of_offset: dict[int, int] = {}
        """Where in the log each offset was committed; every offset is used once."""

    def take(self, place: int, entry: Entry | Marker) -> None:
        if isinstance(entry, Marker):
            for key, held in self.pending.items():
                offset = held.pop(entry.producer_id, None)
                if offset is not None and entry.commit and offset[0] > self.committed.get(key, (-1,))[0]:
                    self.committed[key] = offset
            return
        key = decode_key(entry.record.key)
        if isinstance(key, GroupKey):
            self.group_tombstones[key.group_id] += entry.record.value is None
            return
        assert isinstance(key, OffsetKey)
        where = (key.group_id, key.topic, key.partition)
        if entry.record.value is None:
            self.committed.pop(where, None)
            self.pending.pop(where, None)
            return
        value = decode_value(key.record_type, entry.record.value)[1]
        assert isinstance(value, OffsetValue)
        self.place_of_offset[value.committed_offset] = place
        if entry.producer_id == NO_PRODUCER:
            self.committed[where] = (place, value)
        else:
            self.pending.setdefault(where, {})[entry.producer_id] = (place, value)

    def expected(self, event: OffsetFetch) -> FetchAnswer:
        """What a fetch has to be told."""
        wanted = event.partitions
        if wanted is None:
            wanted = tuple((key[1], key[2]) for key in self.committed if key[0] == event.group_id)
        return FetchAnswer(ErrorCode.NONE, tuple(self._fetched(event, *partition) for partition in wanted))

    def _fetched(self, event: OffsetFetch, topic: str, partition: int) -> FetchedOffset:
        key = (event.group_id, topic, partition)
        if event.require_stable and self.pending.get(key):
            return FetchedOffset(topic, partition, -1, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)
        _, value = self.committed.get(key, (-1, None))
        if value is None:
            return FetchedOffset(topic, partition, -1, -1, "", ErrorCode.NONE)
        return FetchedOffset(
            topic, partition, value.committed_offset, value.leader_epoch, value.metadata, ErrorCode.NONE
        )


def check_counters(coordinator: Coordinator) -> None:
    """What is limited is counted as it comes and goes."""
    groups = coordinator.groups.values()
    seats = [group.seats for group in groups]
    assert coordinator.rebalancing.seat_count == sum(len(each.members) + len(each.pending_members) for each in seats)
    held = sum(len(offsets) for group in groups for offsets in group.pending.values())
    assert coordinator.table.pending_offsets == held
    assert coordinator.rebalancing.held_bytes == sum(each.held_bytes for each in seats)
    for each in seats:
        of_members = sum(member.held_bytes for member in each.members.values())
        assert each.held_bytes == of_members + sum(map(len, each.pending_members)), each


def check_refusal(asked: Event, answer: Any, error: ErrorCode) -> None:
    """The client that asked for what the log refused hears Kafka's error for it, and nothing else.

    A dynamic member that would be the first of its group gets its id all the same, which is of no use to it.
    """
    if isinstance(answer, ErrorCode):
        heard = {answer}
    elif isinstance(answer, CommitAnswer):
        heard = set(answer.errors or ())
    else:
        heard = {answer.error}
    is_only_named = isinstance(asked, JoinGroup) and asked.version >= 4 and asked.instance_id is None
    expected = ErrorCode.MEMBER_ID_REQUIRED if is_only_named else commit_error(error)
    assert heard == {expected}, f"{error!r} became {heard}"


class Moves:
    """Watches every move of every group: each starts where the last one ended, and is legal."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[Seats, State]] = {}

    def __enter__(self) -> None:
        self._move = Seats.move
        Seats.move = self._watched()  # type: ignore[method-assign]

    def __exit__(self, *_: object) -> None:
        Seats.move = self._move  # type: ignore[method-assign]

    def _watched(self) -> Callable[[Seats, State, int], None]:
        def move(seats: Seats, to: State, wall_ms: int) -> None:
            came_from = seats.state
            before = self._seen.get(id(seats), (seats, came_from))[1]
            assert before is came_from, f"{seats} is {before}, but leaves {came_from}"
            assert to in LEGAL_MOVES[came_from], f"{seats} goes from {came_from} to {to}"
            self._move(seats, to, wall_ms)
            self._seen[id(seats)] = (seats, seats.state)

        return move

    def check(self, coordinator: Coordinator) -> None:
        for group_id, group in coordinator.groups.items():
            seats = group.seats
            before = self._seen.setdefault(id(seats), (seats, seats.state))[1]
            assert before is seats.state, f"{group_id} went from {before} to {seats.state} by no move"


class Generations:
    """A group's generation only grows while it lives."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[Seats, int]] = {}

    def check(self, coordinator: Coordinator) -> None:
        for group_id, group in coordinator.groups.items():
            before, seats = self._seen.get(group_id), group.seats
            if before is not None:
                same = before[0] is seats
                assert not same or before[1] <= seats.generation, f"{group_id}: {before[1]} to {seats.generation}"
                assert same or before[0].state is State.DEAD, f"{group_id} was replaced while alive"
            self._seen[group_id] = (seats, seats.generation)


class Plans:
    """One assignment per generation, made by its leader."""

    def __init__(self) -> None:
        self._sent: dict[int, tuple[SyncGroup, bool]] = {}
        self._of_generation: dict[tuple[str, int, int], int] = {}

    def sent(self, event: SyncGroup, group: Group | None) -> None:
        # A copy: a request that is parked keeps no assignments.
        self._sent[event.reply_to] = (replace(event), group is not None and group.seats.leader == event.member_id)

    def delivered(self, event: SyncGroup, answer: SyncAnswer, incarnation: int) -> None:
        if answer.error is not ErrorCode.NONE:
            return
        generation = (event.group_id, incarnation, event.generation)
        if not answer.assignment:
            known = self._of_generation.get(generation)
            plan = self._sent[known][0].assignments if known is not None else {}
            assert event.member_id not in plan, f"{event.member_id} got nothing of {plan}"
            return
        number = int(answer.assignment.split(b":")[0])
        plan_of, by_leader = self._sent[number]
        assert by_leader, f"{answer.assignment!r} is a follower's plan"
        assert (plan_of.group_id, plan_of.generation) == (event.group_id, event.generation)
        owners = [member_id for member_id, assigned in plan_of.assignments.items() if assigned == answer.assignment]
        assert owners == [event.member_id] or _same_instance(owners[0], event), f"{event.member_id}: {answer}"
        first = self._of_generation.setdefault(generation, number)
        assert first == number, f"{generation} has two plans: {first} and {number}"


def _same_instance(member_id: str, event: SyncGroup) -> bool:
    return event.instance_id is not None and member_id.startswith(f"{event.instance_id}-uuid")


def check_bookkeeping(group: Group) -> None:
    """Counts that are kept beside the members agree with a recount."""
    seats = group.seats
    members = seats.members.values()
    assert seats.awaiting_join == sum(member.join_waiter is not None for member in members)
    support = Counter(name for member in members for name, _ in member.protocols)
    assert seats._support == support, f"{seats._support} is not {support}"
    assert seats.static_members == {m.instance_id: m.member_id for m in members if m.instance_id is not None}
    assert all(member_id == member.member_id for member_id, member in seats.members.items())
    assert not seats.pending_members.keys() & seats.members.keys()
    assert seats.leader in seats.members if seats.members else seats.leader is None, f"leader {seats.leader!r}"
    assert not seats.members or seats.candidates(), "no protocol is left that all support"
    check_rebalance(seats)
    if seats.state is State.STABLE:
        assert seats.members, "a Stable group has members"
        assert seats.value() == group.record, f"seats are not as written: {seats.value()} and {group.record}"
    assert seats.state is State.COMPLETING_REBALANCE or not any(member.sync_waiter for member in members)
    assert seats.state is State.PREPARING_REBALANCE or not any(member.join_waiter for member in members)


def check_rebalance(seats: Seats) -> None:
    """There is a rebalance from the first join until the last member has its assignment, and no longer."""
    rebalance = seats.rebalance
    if seats.state is State.EMPTY:
        assert rebalance is None, f"{rebalance} of an Empty group"
        assert not seats.members, f"{list(seats.members)} sit in an Empty group"
    elif seats.state is State.STABLE:
        assert rebalance is None or rebalance.sync_deadline_ms is not None, f"{rebalance} is over"
    else:
        assert rebalance is not None, f"no rebalance in {seats.state}"
    if rebalance is not None:
        assert rebalance.sync_deadline_ms is not None or not rebalance.pending_sync & seats.members.keys()


def waiting(coordinator: Coordinator) -> set[int]:
    """Numbers of all parked requests."""
    return {
        waiter.reply_to
        for group in coordinator.groups.values()
        for member in group.seats.members.values()
        for waiter in (member.join_waiter, member.sync_waiter)
        if waiter is not None
    }


def check_sessions_are_watched(coordinator: Coordinator, timers: dict[TimerKey, int]) -> None:
    """Every member that waits for nothing has a timer that will ask after it; so has every phase with an end."""
    for group_id, group in coordinator.groups.items():
        seats = group.seats
        for member_id, member in seats.members.items():
            parked = member.join_waiter is not None or member.sync_waiter is not None
            watched = TimerKey(TimerKind.SESSION, group_id, member_id) in timers
            assert parked or watched, f"nobody watches the session of {member_id}"
        for member_id in seats.pending_members:
            assert TimerKey(TimerKind.PENDING, group_id, member_id) in timers, f"nobody watches the id {member_id}"
        if seats.state is State.PREPARING_REBALANCE:
            assert TimerKey(TimerKind.JOIN, group_id) in timers, f"joining {group_id} never ends"
        if seats.rebalance is not None and seats.rebalance.pending_sync:
            assert TimerKey(TimerKind.SYNC, group_id) in timers, f"syncing {group_id} never ends"


def check_timers_have_a_use(coordinator: Coordinator, timers: dict[TimerKey, int]) -> None:
    """No timer outlives what it is for."""
    for key in timers:
        group = coordinator.groups.get(key.group_id)
        assert group is not None, f"{key} is of a group that is gone"
        if key.kind is TimerKind.SESSION:
            assert key.member_id in group.seats.members, f"{key} is of no member"
        elif key.kind is TimerKind.PENDING:
            assert key.member_id in group.seats.pending_members, f"{key} is of no id that was handed out"
