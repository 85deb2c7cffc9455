"""What must hold whatever happens. Each check is about one promise, and reads only the log or only the live state."""

from collections import Counter
from dataclasses import replace
from typing import Any, NamedTuple

from muster.codec import decode_key, decode_value
from muster.codec.error_codes import ErrorCode
from muster.codec.offsets_topic import GroupKey, OffsetKey, OffsetValue
from muster.core.answers import CommitAnswer, FetchAnswer, FetchedOffset, SyncAnswer, commit_error
from muster.core.coordinator import Coordinator
from muster.core.events import OffsetFetch, SyncGroup
from muster.core.group import LEGAL_MOVES, Group, State
from muster.core.outcome import NO_PRODUCER, OffsetsRecord

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
    assert coordinator.membership.seats == sum(len(group.members) + len(group.pending_members) for group in groups)
    held = sum(len(offsets) for group in groups for offsets in group.pending.values())
    assert coordinator.offsets.pending_offsets == held
    assert coordinator.membership.held_bytes == sum(group.held_bytes for group in groups)
    for group in groups:
        of_members = sum(member.held_bytes for member in group.members.values())
        assert group.held_bytes == of_members + sum(map(len, group.pending_members)), group.group_id


def check_refusal(answer: Any, error: ErrorCode) -> None:
    """Whoever asked for what the log refused hears Kafka's error for it, and nothing else."""
    if isinstance(answer, ErrorCode):
        heard = {answer}
    elif isinstance(answer, CommitAnswer):
        heard = set(answer.errors or ())
    else:
        heard = {answer.error}
    assert heard == {commit_error(error)}, f"{error!r} became {heard}"


class Moves:
    """Watches every move of every group: each starts where the last one ended, and is legal."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._seen: dict[int, tuple[Group, State]] = {}
        self._move = coordinator.membership._move
        coordinator.membership._move = self._watched  # type: ignore[method-assign]

    def _watched(self, group: Group, came_from: State, to: State, *rest: Any) -> None:
        before = self._seen.get(id(group), (group, came_from))[1]
        assert before is came_from, f"{group.group_id} is {before}, but leaves {came_from}"
        assert to in LEGAL_MOVES[came_from], f"{group.group_id} goes from {came_from} to {to}"
        self._seen[id(group)] = (group, to)
        self._move(group, came_from, to, *rest)

    def check(self, coordinator: Coordinator) -> None:
        for group in coordinator.groups.values():
            before = self._seen.setdefault(id(group), (group, group.state))[1]
            assert before is group.state, f"{group.group_id} went from {before} to {group.state} by no move"


class Generations:
    """A group's generation only grows while it lives."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[Group, int]] = {}

    def check(self, coordinator: Coordinator) -> None:
        for group_id, group in coordinator.groups.items():
            before = self._seen.get(group_id)
            if before is not None:
                same = before[0] is group
                assert not same or before[1] <= group.generation, f"{group_id}: {before[1]} to {group.generation}"
                assert same or before[0].is_dead, f"{group_id} was replaced while alive"
            self._seen[group_id] = (group, group.generation)


class Plans:
    """One assignment per generation, made by its leader."""

    def __init__(self) -> None:
        self._sent: dict[int, tuple[SyncGroup, bool]] = {}
        self._of_generation: dict[tuple[str, int, int], int] = {}

    def sent(self, event: SyncGroup, group: Group | None) -> None:
        # A copy: a request that is parked keeps no assignments.
        self._sent[event.reply_to] = (replace(event), group is not None and group.leader == event.member_id)

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
    members = group.members.values()
    assert group.awaiting_join == sum(member.join_waiter is not None for member in members)
    support = Counter(name for member in members for name, _ in member.protocols)
    assert +group._support == support, f"{group._support} is not {support}"
    assert group.static_members == {m.instance_id: m.member_id for m in members if m.instance_id is not None}
    assert all(member_id == member.member_id for member_id, member in group.members.items())
    assert group.sync_deadline_ms is not None or not group.pending_sync & group.members.keys()
    assert not group.pending_members.keys() & group.members.keys()
    assert group.leader in group.members if group.members else group.leader is None, f"leader {group.leader!r}"
    assert not group.members or group.candidates(), "no protocol is left that all support"
    if group.state is State.STABLE:
        assert group.value() == group.durable, f"seats are not as written: {group.value()} and {group.durable}"
    assert group.state is State.COMPLETING_REBALANCE or not any(member.sync_waiter for member in members)
    assert group.state is State.PREPARING_REBALANCE or not any(member.join_waiter for member in members)


def waiting(coordinator: Coordinator) -> set[int]:
    """Numbers of all parked requests."""
    return {
        waiter.reply_to
        for group in coordinator.groups.values()
        for member in group.members.values()
        for waiter in (member.join_waiter, member.sync_waiter)
        if waiter is not None
    }


def check_sessions_are_watched(coordinator: Coordinator, timers: dict[tuple[str, ...], int]) -> None:
    """Everybody who waits for nothing has a timer that will ask after them; so has every phase with an end."""
    for group_id, group in coordinator.groups.items():
        for member_id, member in group.members.items():
            parked = member.join_waiter is not None or member.sync_waiter is not None
            watched = ("session", group_id, member_id) in timers
            assert parked or watched, f"nobody watches the session of {member_id}"
        for member_id in group.pending_members:
            assert ("pending", group_id, member_id) in timers, f"nobody watches the id {member_id}"
        if group.state is State.PREPARING_REBALANCE:
            assert ("join", group_id) in timers, f"joining {group_id} never ends"
        if group.pending_sync:
            assert ("sync", group_id) in timers, f"syncing {group_id} never ends"


def check_timers_have_a_use(coordinator: Coordinator, timers: dict[tuple[str, ...], int]) -> None:
    """No timer outlives what it is for, but that of an id handed out: a deleted group forgets those, and they pass."""
    for key in timers:
        group = coordinator.groups.get(key[1])
        if key[0] == "session":
            assert group is not None, f"{key} is of a group that is no more"
            assert key[2] in group.members, f"{key} is of nobody"
        elif key[0] != "pending":
            assert group is not None, f"{key} is of a group that is no more"
