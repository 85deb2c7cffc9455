"""What the classic generations of a batch change, found for all of them at once.

A classic group writes all of its members with every generation. `Generations` takes the member lists of a batch and
makes integers of their strings: a member, an instance, an owner, a topic, a partition is a code. One pass over the
codes says how many generations ago each was there last (`_Sets`): one, and it stayed; more, and it is new.

A `Generation` is one of them, and stands where `Members` and owners stand. The functions here answer from the arrays
when they are asked about a generation and the one right before it in the same batch. All else (the first of a group in
a batch, one behind a deletion, one whose names are not unique) `members` answers from plain objects.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from muster.codec.columns.recurrence import previous_places
from muster.pipeline.rebalances import members as plain
from muster.pipeline.rebalances.members import Changes, Members, Owned, Row

Codes = np.ndarray[Any, np.dtype[np.int64]]
"""Equal where the values are; 0 for NULL."""
Flags = np.ndarray[Any, np.dtype[np.bool_]]
FIELDS = ("member_id", "instance_id", "subscribed_topics", "assignment")
LONG_AGO = 1 << 40


class Generations:
    """Records of classic groups, by group and in log order. Lists have one entry for each."""

    def __init__(self, group_ids: pa.Array, leaders: pa.Array, listed: pa.Array) -> None:
        self._count = len(listed)
        found, at = _flattened(listed)
        fields = [found.field(name) for name in FIELDS]
        ends = np.searchsorted(at, np.arange(self._count + 1))
        self.members: list[int] = np.diff(ends).tolist()
        self._listed = pa.ListArray.from_arrays(
            pa.array(ends, pa.int32()), pa.StructArray.from_arrays(fields, names=FIELDS)
        )
        self._last: tuple[int, list[Row]] = (-1, [])
        member_ids, instance_ids, topics, assignment = fields
        names = pa.concat_arrays([member_ids, instance_ids, leaders]).dictionary_encode()
        self._names = names.dictionary
        codes = _numbers(names.indices)
        member, instance, leader = np.split(codes, [len(at), 2 * len(at)])
        owner = np.where(instance > 0, instance, member)

        members = _Sets(at, member, self._count)
        unlike = np.zeros(self._count, np.bool_)
        unlike[at[(members.ago == 0) | (_Sets(at, owner, self._count).ago == 0) | (member == 0)]] = True
        nameless = pc.index(self._names, "").as_py() + 1
        if nameless:
            unlike[at[instance == nameless]] = True
        group = _codes(group_ids)
        follows = np.zeros(self._count, np.bool_)
        follows[1:] = (group[1:] == group[:-1]) & ~unlike[1:] & ~unlike[:-1]
        self.follows: list[bool] = follows.tolist()
        """Whether the one before it is of the same group, and can be compared."""
        self.unlike: list[bool] = unlike.tolist()
        """Whether a name occurs twice or is empty: of such a generation nothing is known here."""

        self._find_changes(follows, members, instance)
        owning, leads = leader.copy(), member == leader[at]
        owning[at[leads]] = owner[leads]
        self.leader_owners: list[str | None] = self._names.take(pa.array(owning - 1, mask=owning == 0)).to_pylist()
        subscribed = _Sets(at, _pairs(owner, _codes_of_lists(topics)), self._count)
        self.same_subscriptions: list[bool] = ((subscribed.lost() == 0) & (subscribed.new() == 0)).tolist()
        self._find_moves(at, owner, assignment)

    def listed(self, place: int) -> list[Row]:
        """The members of a generation as Python objects."""
        if self._last[0] != place:
            self._last = (place, self._listed.slice(place, 1).to_pylist()[0])
        return self._last[1]

    def member_ids(self, place: int) -> list[str]:
        """All of them, sorted."""
        return sorted(self._listed.slice(place, 1).flatten().field("member_id").to_pylist())

    def changes(self, place: int) -> Changes:
        return Changes(self._joined.at(place), self._left.at(place), self._replaced.at(place))

    def _find_changes(self, follows: Flags, members: "_Sets", instance: Codes) -> None:
        at, member = members.at, members.codes
        joined, left = members.ago > 1, members.until > 1
        static = np.flatnonzero(instance)
        instances = _Sets(at[static], instance[static], self._count)
        now = np.flatnonzero(instances.ago == 1)
        before, now = static[instances.previous[now]], static[now]
        is_other = member[before] != member[now]
        before, now = before[is_other], now[is_other]
        joined[now] = left[before] = False
        self._joined = _Names(self._names, at[joined], member[joined], follows)
        self._left = _Names(self._names, at[left] + 1, member[left], follows)
        self._replaced = _Names(self._names, at[now], instance[now], follows)

    def _find_moves(self, at: Codes, owner: Codes, assignment: pa.Array) -> None:
        readable = np.ones(self._count, np.bool_)
        readable[at[_flags(pc.is_null(assignment))]] = False
        self.readable: list[bool] = readable.tolist()
        topics, of_member = _flattened(assignment)
        is_named = pc.fill_null(pc.not_equal(topics.field("topic"), ""), False)
        topic = _codes(pc.if_else(is_named, topics.field("topic"), topics.field("topic_id")))
        numbers, of_topic = _flattened(topics.field("partitions"))
        of_member = of_member[of_topic]
        partition, generation = _pairs(topic[of_topic], _numbers(numbers)), at[of_member]
        held = _Sets(generation, partition, self._count)
        owned = _Sets(generation, _pairs(owner[of_member], partition), self._count)
        self.assigned: list[int] = held.sizes().tolist()
        self.moved: list[int] = owned.lost().tolist()
        self.gained: list[int] = held.new().tolist()
        self.gained_anew: list[int] = held.new(2).tolist()
        """Of what a generation gained, that which was not assigned in the last but one either."""


class _Sets:
    """A set of codes in each generation: `at` says in which one a code is, and rises."""

    def __init__(self, at: Codes, codes: Codes, count: int) -> None:
        self.at, self.codes, self._count = at, codes, count
        self.previous = previous_places(codes)
        self.ago: Codes = np.where(self.previous < 0, LONG_AGO, at - at[self.previous])
        """Generations since the code was there last; 0: it is there twice."""

    @property
    def until(self) -> Codes:
        """Generations until the code is there again."""
        until = np.full(len(self.at), LONG_AGO)
        again = np.flatnonzero(self.previous >= 0)
        until[self.previous[again]] = self.ago[again]
        return until

    def sizes(self) -> Codes:
        return self._counts(self.ago > 0)

    def new(self, generations: int = 1) -> Codes:
        """How many were in none of so many generations before."""
        return self._counts(self.ago > generations)

    def lost(self) -> Codes:
        """How many were in the generation before, and no longer are."""
        lost = -self._counts(self.ago == 1)
        lost[1:] += self.sizes()[:-1]
        return lost

    def _counts(self, which: Flags) -> Codes:
        counts: Codes = np.bincount(self.at[which], minlength=self._count)
        return counts


class Generation:
    """One of `Generations`, by its place among them."""

    __slots__ = ("all", "place")

    def __init__(self, generations: Generations, place: int) -> None:
        self.all, self.place = generations, place

    def __len__(self) -> int:
        return len(plain_members(self)) if self.all.unlike[self.place] else self.all.members[self.place]

    def owners(self) -> "Generation | None":
        """As owners; None if an assignment cannot be read."""
        return self if self.all.readable[self.place] else None

    def follows(self, before: object) -> bool:
        return (
            isinstance(before, Generation)
            and before.all is self.all
            and before.place == self.place - 1
            and self.all.follows[self.place]
        )


SomeMembers = Members | Generation
SomeOwners = dict[str, Owned] | Generation | None


def plain_members(members: SomeMembers) -> Members:
    return plain.members_of(members.all.listed(members.place)) if isinstance(members, Generation) else members


def plain_owners(owners: SomeOwners) -> dict[str, Owned] | None:
    return plain.owners_listed(owners.all.listed(owners.place)) if isinstance(owners, Generation) else owners


def owner_of_leader(leader: str | None, members: SomeMembers) -> str | None:
    if leader is None:
        return None
    if isinstance(members, Generation) and not members.all.unlike[members.place]:
        return members.all.leader_owners[members.place]
    return plain.owner_of(leader, plain_members(members))


def changes(before: SomeMembers, after: SomeMembers) -> Changes:
    if isinstance(after, Generation) and after.follows(before):
        return after.all.changes(after.place)
    if isinstance(after, Generation) and not before and not after.all.unlike[after.place]:
        return Changes(after.all.member_ids(after.place), [], [])
    return plain.changes(plain_members(before), plain_members(after))


def same_subscriptions(before: SomeMembers, after: SomeMembers) -> bool:
    if isinstance(after, Generation) and after.follows(before):
        return after.all.same_subscriptions[after.place]
    return plain.subscriptions(plain_members(before)) == plain.subscriptions(plain_members(after))


def assigned_count(owners: SomeOwners) -> int | None:
    if isinstance(owners, Generation) and not owners.all.unlike[owners.place]:
        return owners.all.assigned[owners.place]
    return plain.assigned_count(plain_owners(owners))


def moved_count(before: SomeOwners, after: SomeOwners) -> int | None:
    if before is None or after is None:
        return None
    if not before:
        return 0
    if isinstance(after, Generation) and after.follows(before):
        return after.all.moved[after.place]
    return plain.moved_count(plain_owners(before), plain_owners(after))


def hands_out_revoked(earlier: SomeOwners, before: SomeOwners, after: SomeOwners) -> bool:
    if earlier is None or before is None or after is None:
        return False
    if isinstance(after, Generation) and isinstance(before, Generation) and after.follows(before):
        columns, place = after.all, after.place
        if columns.moved[place] or not columns.gained[place]:
            return False
        if before.follows(earlier):
            return not columns.gained_anew[place]
    return plain.hands_out_revoked(plain_owners(earlier), plain_owners(before), plain_owners(after))


class _Names:
    """Names by generation."""

    def __init__(self, names: pa.Array, at: Codes, codes: Codes, follows: Flags) -> None:
        which = np.flatnonzero(np.append(follows, False)[at])
        self._names: list[str] = names.take(pa.array(codes[which] - 1)).to_pylist()
        self._starts: list[int] = np.searchsorted(at[which], np.arange(len(follows) + 1)).tolist()

    def at(self, place: int) -> list[str]:
        start, end = self._starts[place], self._starts[place + 1]
        return sorted(self._names[start:end]) if start < end else []


def _flattened(lists: pa.Array) -> tuple[pa.Array, Codes]:
    """The elements of all lists, and which list each is in; a NULL has none."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    return lists.flatten(), np.repeat(np.arange(len(lists)), lengths)


def _flags(values: pa.Array) -> Flags:
    flags: Flags = values.to_numpy(zero_copy_only=False)
    return flags


def _numbers(values: pa.Array) -> Codes:
    """One more than the values, so that 0 is left for NULL."""
    numbers: Codes = pc.fill_null(values, -1).to_numpy().astype(np.int64)
    numbers += 1
    return numbers


def _codes(values: pa.Array) -> Codes:
    return _numbers(values.dictionary_encode().indices)


def _pairs(one: Codes, other: Codes) -> Codes:
    """A code for each pair of codes."""
    return _codes(pa.array(one * (1 << 32) + other))


def _codes_of_lists(lists: pa.Array) -> Codes:
    """A code for each list of strings, whatever their order: the codes of its strings, sorted, are its bytes."""
    values, at = _flattened(lists)
    keys = np.sort(at * (1 << 32) + _codes(values), kind="stable")
    ends = np.searchsorted(at, np.arange(len(lists) + 1)) * 4
    sets = [None, pa.py_buffer(ends), pa.py_buffer(keys.astype(np.uint32))]
    codes = _codes(pa.Array.from_buffers(pa.large_binary(), len(lists), sets))
    codes[_flags(pc.is_null(lists))] = 0
    return codes
