"""The rebalances of a group, from its records in log order: who came and went, what moved, and the likely cause.

A classic group writes one record per generation, so that record is the row. Newer groups (consumer, share, streams)
write members, then an epoch, then, perhaps seconds later, the target assignment of that epoch. The epoch record makes
the row, and the assignment completes it; until the next row comes the newest one is *open*, and a later run may change
it. So of the rows returned for a group the last one belongs to `latest_rebalances`, with all that is needed to go on
in `carry`, and those before it are final. However the log is cut into runs, the rows are the same.

Some rows are no rebalance, and have `generation = previous_generation`. A static member that comes back in time takes
over its place under a new member id (`static member returned`): worth seeing, and nothing stopped for it. A group goes
on as one of another type (`type changed`). Or it ends (`group deleted`). `since_last_ms` counts from the last row that
is a rebalance.

`cause` is the first that applies:

    type changed               classic to consumer, or back, with the members that were there
    group deleted
    group emptied              the last member left
    first members              into a group that was empty, or new
    members joined and left    also a dynamic member that was restarted: it has no name that lasts
    member joined
    member left                it left, or its session ended
    static member returned     in the same generation
    static member replaced     it came back, and that took a rebalance
    protocol changed           another assignor
    subscription changed       of a member that was there before
    matched topics changed     newer groups: of a regular expression
    topology changed           streams groups
    revoked partitions assigned   the second half of a cooperative rebalance
    partitions changed         same members and subscriptions, another number of assigned partitions
    rejoined                   classic groups: nothing visible changed
    metadata changed           newer groups: nothing visible changed but the epoch

NULL, as are `joined`, `left` and `replaced`: what came before this generation is no longer in the log.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from muster.pipeline.rebalances.generations import (
    Generation,
    Generations,
    SomeMembers,
    SomeOwners,
    assigned_count,
    changes,
    hands_out_revoked,
    moved_count,
    owner_of_leader,
    plain_members,
    plain_owners,
    same_subscriptions,
)
from muster.pipeline.rebalances.members import (
    NO_CHANGES,
    NOTHING,
    Changes,
    Member,
    Members,
    Owned,
    Row,
    members_of,
    owner_of,
    owners_listed,
    owners_of,
    subscription_of,
)
from muster.pipeline.rebalances.snapshot import Snapshot
from muster.tables.schemas import GROUP_RECORDS, LATEST_REBALANCES

COLUMNS = [
    "offsets_partition", "log_offset", "timestamp_ms", "record_type", "is_tombstone", "group_id", "member_id",
    "regular_expression", "epoch", "protocol", "leader", "state_timestamp_ms", "members", "instance_id", "json",
    "problem", "last_commit_before_ms", "first_commit_after_ms",
]  # fmt: skip
"""Of `group_records`: all that is looked at."""

CLASSIC, CONSUMER, SHARE, STREAMS = "classic", "consumer", "share", "streams"
EPOCHS = {3: CONSUMER, 11: SHARE, 17: STREAMS}
MEMBERS, ASSIGNMENT_EPOCHS, TARGETS = (5, 10, 19), (6, 12, 20), (7, 13, 21)
CLASSIC_GROUP, REGULAR_EXPRESSION, TOPOLOGY = 2, 16, 23

FIRST_GENERATION = {CLASSIC: 1, CONSUMER: 2, SHARE: 2, STREAMS: 2}
"""Nothing can have come before it: newer brokers count a new group's creation and its first member in one go."""

RETURNED, DELETED, EMPTIED, TYPE_CHANGED = "static member returned", "group deleted", "group emptied", "type changed"


def rebalances_of(records: Iterable[Row], before: Snapshot | None) -> list[Row]:
    """The rows of one group: the open row of `before` as it is now, if there was one, and all that follow it.

    `records` are rows of `group_records` in log order. Only the last row has a `carry`.
    """
    history = History(deepcopy(before) if before is not None else Snapshot())
    for record in records:
        history.take(record)
    return history.all_rows()


def snapshot_of(state: Iterable[Row], latest: Row | None) -> Snapshot:
    """The group as the last run left it: from its newest row, or, where it has none yet, from its rows of state."""
    if latest is not None and latest.get("carry"):
        return Snapshot.of_carry(latest["carry"], {**latest, "carry": None})
    history = History(Snapshot())
    for record in sorted(state, key=lambda record: int(record["log_offset"])):
        history.take(record)
    history.at.open_row = latest
    return history.at


def with_first_commit(row: Row, timestamp_ms: int | None) -> Row:
    """The row, completed by the group's first commit behind it, if that was still missing."""
    if timestamp_ms is None or row["first_commit_after_ms"] is not None:
        return row
    return row | {
        "first_commit_after_ms": timestamp_ms,
        "commit_gap_ms": _gap(row["last_commit_before_ms"], timestamp_ms),
    }


def rebalance_batches(
    group_records: Iterable[pa.RecordBatch], state: pa.Table | None, latest: pa.Table | None
) -> Iterator[pa.RecordBatch]:
    """The rows of every group of batches that are sorted by (group_id, log_offset), a batch for each of them.

    `state` and `latest` are as of before these records; rows of other groups in them are left alone. The newest row of
    a group (the only one with `carry`) replaces its row in `latest_rebalances`, the others are final. No more is held
    than one batch, the rows it makes, and the group that goes on in the next one.
    """
    told = _Told(_Before(state, latest))
    for batch in group_records:
        yield from told.take(batch.select(COLUMNS))
        del batch  # before the next one is made
    yield from told.finish()


class _Told:
    """Takes batches of records; the group at the end of the last one may go on."""

    def __init__(self, before: "_Before") -> None:
        self._before = before
        self._group_id: str | None = None
        self._history = History(Snapshot())

    def take(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        rows: list[Row] = []
        pieces = _pieces(batch)
        records = _records(batch)
        self._before.look_up([piece.group_id for piece in pieces])
        for piece in pieces:
            if piece.group_id != self._group_id:
                rows += self._history.all_rows()
                self._group_id, self._history = piece.group_id, History(self._before.snapshot(piece.group_id))
            for record in records[piece.start : piece.end]:
                self._history.take(record)
            rows += self._history.final_rows()
        self._history.let_go()
        return _batches_of(rows)

    def finish(self) -> Iterator[pa.RecordBatch]:
        return _batches_of(self._history.all_rows())


def _batches_of(rows: list[Row]) -> Iterator[pa.RecordBatch]:
    if rows:
        yield pa.RecordBatch.from_pylist(rows, LATEST_REBALANCES)


class _Piece(NamedTuple):
    """Where the records of one group are in a batch."""

    group_id: str
    start: int
    end: int


def _pieces(batch: pa.RecordBatch) -> list[_Piece]:
    runs = pc.run_end_encode(batch["group_id"])
    ends: list[int] = runs.run_ends.to_pylist()
    pieces = zip(runs.values.to_pylist(), [0, *ends], ends, strict=False)
    return [_Piece(group_id, start, end) for group_id, start, end in pieces if group_id is not None]


def _records(batch: pa.RecordBatch) -> list[Row]:
    """Rows whose `members` are a `Generation`: as Python objects those would take ten times the space."""
    columns = {name: batch[name].to_pylist() for name in COLUMNS if name != "members"}
    members: list[Generation | None] = [None] * len(batch)
    written = pc.and_(pc.equal(batch["record_type"], CLASSIC_GROUP), pc.is_null(batch["problem"]))
    written = pc.and_not(pc.fill_null(written, False), pc.fill_null(batch["is_tombstone"], False))
    generations = batch.select(["group_id", "leader", "members"]).filter(written)
    if len(generations):
        found = Generations(*generations.columns)
        for place, at in enumerate(pc.indices_nonzero(written).to_pylist()):
            members[at] = Generation(found, place)
    columns["members"] = members
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


class _Before:
    """Groups as the last run left them; rows become Python objects for the groups of one batch at a time."""

    def __init__(self, state: pa.Table | None, latest: pa.Table | None) -> None:
        self._latest = LATEST_REBALANCES.empty_table() if latest is None else latest
        known = self._latest["group_id"]
        self._latest_at = {group_id: place for place, group_id in enumerate(known.to_pylist())}
        self._state = GROUP_RECORDS.empty_table() if state is None else state
        self._state = self._state.select(COLUMNS)
        # A group that has a row carries its state there.
        unknown = pc.invert(pc.is_in(self._state["group_id"], value_set=pc.unique(known)))
        self._state = self._state.filter(unknown)
        self._state_at: dict[str, list[int]] = {}
        for place, group_id in enumerate(self._state["group_id"].to_pylist()):
            self._state_at.setdefault(group_id, []).append(place)
        self._rows: dict[str, Row] = {}

    def look_up(self, groups: list[str]) -> None:
        """Make ready what `snapshot` is going to be asked for."""
        places = [self._latest_at[group_id] for group_id in groups if group_id in self._latest_at]
        self._rows = {row["group_id"]: row for row in self._latest.take(places).to_pylist()} if places else {}

    def snapshot(self, group_id: str) -> Snapshot:
        places, latest = self._state_at.get(group_id), self._rows.get(group_id)
        return snapshot_of(self._state.take(places).to_pylist() if places else (), latest)


def _gap(before_ms: int | None, after_ms: int | None) -> int | None:
    return None if before_ms is None or after_ms is None else after_ms - before_ms


class History:
    """Takes the records of one group in order; `at` is where it has got to, `rows` are those that are final."""

    def __init__(self, at: Snapshot) -> None:
        self.at = at
        self.rows: list[Row] = []

    def final_rows(self) -> list[Row]:
        """Those that are final since the last call."""
        rows, self.rows = self.rows, []
        return rows

    def let_go(self) -> None:
        """Of the batch that the last record was in: plain objects take the place of its generations."""
        at = self.at
        at.members, at.owners = plain_members(at.members), plain_owners(at.owners)
        at.owners_before = plain_owners(at.owners_before)

    def all_rows(self) -> list[Row]:
        self.let_go()
        if self.at.open_row is None:
            return self.rows
        return [*self.rows, self.at.open_row | {"carry": self.at.carry()}]

    def take(self, record: Row) -> None:
        kind = record["record_type"]
        if record["problem"] is not None or kind is None:
            return
        if kind == CLASSIC_GROUP:
            self._classic(record)
        elif kind in EPOCHS:
            self._epoch(record, EPOCHS[kind])
        elif kind in MEMBERS:
            self._member(record)
        elif kind in TARGETS:
            self._target(record)
        elif kind in ASSIGNMENT_EPOCHS and not record["is_tombstone"]:
            self._assigned()
        elif kind == REGULAR_EXPRESSION:
            self._matched(record)
        elif kind == TOPOLOGY:
            self._topology(record)

    # Classic groups.

    def _classic(self, record: Row) -> None:
        if record["is_tombstone"]:
            self._deleted(record, CLASSIC)
            return
        listed = record["members"] or []
        if isinstance(listed, Generation):
            self._generation(record, CLASSIC, listed, listed.owners)
        else:
            self._generation(record, CLASSIC, members_of(listed), lambda: owners_listed(listed))

    # Newer groups.

    def _epoch(self, record: Row, group_type: str) -> None:
        if record["is_tombstone"]:
            self._deleted(record, group_type)
            return
        members = dict(self.at.current)
        self._generation(record, group_type, members, lambda: self._still_owned(members, group_type))

    def _still_owned(self, members: Members, group_type: str) -> dict[str, Owned]:
        """Until the assignment of a new epoch is there, a member that stays keeps what it has."""
        owners = plain_owners(self.at.owners)
        if owners is None or self.at.type != group_type:
            return owners_of({one: self.at.targets.get(one, NOTHING) for one in members}, members)
        staying = {owner_of(member_id, members) for member_id in members}
        return {owner: owned for owner, owned in owners.items() if owner in staying}

    def _member(self, record: Row) -> None:
        at, member_id = self.at, record["member_id"]
        if record["is_tombstone"]:
            at.current.pop(member_id, None)
            return
        value = json.loads(record["json"] or "{}")
        topics, regex = value.get("subscribedTopicNames"), value.get("subscribedTopicRegex")
        member = Member(record["instance_id"], subscription_of([*(topics or ()), f"/{regex}"] if regex else topics))
        at.current[member_id] = member
        before = plain_members(at.members)
        instances = {one.instance_id: name for name, one in before.items() if one.instance_id}
        predecessor = instances.get(member.instance_id or "", member_id)
        if predecessor != member_id and at.type != CLASSIC and at.generation is not None:
            members = {name: one for name, one in before.items() if name != predecessor} | {member_id: member}
            found = changes(before, members)
            assert at.type is not None
            self._add(record, at.type, at.generation, members, at.owners, found, RETURNED)

    def _target(self, record: Row) -> None:
        if record["is_tombstone"]:
            self.at.targets.pop(record["member_id"], None)
            return
        value = json.loads(record["json"] or "{}")
        self.at.targets[record["member_id"]] = frozenset(
            (one.get("topicId") or one.get("subtopologyId") or "", partition)
            for one in value.get("topicPartitions") or value.get("activeTasks") or ()
            for partition in one["partitions"]
        )

    def _assigned(self) -> None:
        at = self.at
        first, generation = at.first_epoch, at.generation
        if first is not None and at.current:
            at.known, at.generation = False, None
            self._add(first, EPOCHS[first["record_type"]], generation, dict(at.current), {}, NO_CHANGES, None)
        at.owners = owners_of(at.targets, at.current)
        row = at.open_row
        if row is None or row["cause"] == DELETED:
            return
        if row["cause"] is None:  # members that compaction has moved behind their epoch
            at.members = dict(at.current)
            row["members"] = len(at.members)
        self._complete(row)

    def _matched(self, record: Row) -> None:
        pattern = record["regular_expression"] or ""
        if record["is_tombstone"]:
            self.at.topics.pop(pattern, None)
            return
        topics = sorted(json.loads(record["json"] or "{}").get("topics") or ())
        if self.at.topics.get(pattern, topics) != topics:
            self.at.news = "matched topics changed"
        self.at.topics[pattern] = topics

    def _topology(self, record: Row) -> None:
        if self.at.topology is not None and record["epoch"] is not None and record["epoch"] != self.at.topology:
            self.at.news = "topology changed"
        self.at.topology = record["epoch"]

    # Rows.

    def _generation(self, record: Row, group_type: str, members: SomeMembers, owners: Callable[[], SomeOwners]) -> None:
        """A generation or epoch, with all members in it; a row, unless nothing came of it."""
        at, generation = self.at, record["epoch"]
        same_type = at.type == group_type
        if at.ended:
            if same_type:  # it did end, and this is another life
                at.members, at.owners, at.generation = {}, {}, None
            else:
                at.open_row = None
            at.ended = False
        found = changes(at.members, members)
        repeated = at.known and same_type and generation == at.generation and not (found.joined or found.left)
        cause = None
        if at.members and not same_type:
            cause = TYPE_CHANGED
        elif repeated and found.replaced:
            cause = RETURNED
        if (members or at.members) and not (repeated and cause is None):
            self._add(record, group_type, generation, members, owners(), found, cause)
            return
        if at.open_row is not None:
            at.open_row = with_first_commit(at.open_row, record["first_commit_after_ms"])
        at.owners = owners()
        unseen = not at.known and group_type != CLASSIC and generation > FIRST_GENERATION[group_type]
        self._note(record, group_type, generation, members)
        at.first_epoch = record if unseen else None

    def _deleted(self, record: Row, group_type: str) -> None:
        at = self.at
        if at.type != group_type or at.ended:
            return
        if at.open_row is None:  # it never had members
            self.at = Snapshot(type=group_type, known=True)
            return
        if at.open_row["cause"] == DELETED:
            return
        members, generation = at.members, at.generation
        self._add(record, group_type, at.generation, {}, {}, changes(members, {}), DELETED)
        at.generation, at.news, at.topology = None, None, None
        at.current, at.targets, at.topics = {}, {}, {}
        if members:  # another type of group may go on with them
            at.members, at.generation, at.ended = members, generation, True

    def _add(
        self,
        record: Row,
        group_type: str,
        generation: int | None,
        members: SomeMembers,
        owners: SomeOwners,
        found: Changes,
        cause: str | None,
    ) -> None:
        """Close the open row and open the next one."""
        at = self.at
        unknown = not at.known and (generation or 0) > FIRST_GENERATION[group_type]
        leader = owner_of_leader(record["leader"], members)
        at_ms = record["timestamp_ms"] if record["timestamp_ms"] is not None else record["state_timestamp_ms"]
        protocol_changed = _differ(at.protocol, record["protocol"])
        row: Row = {
            "group_id": record["group_id"], "generation": generation, "at_ms": at_ms,
            "cause": None if unknown else cause or self._cause(found, members, protocol_changed),
            "members": len(members),
            "joined": None if unknown else found.joined, "left": None if unknown else found.left,
            "replaced": None if unknown else found.replaced,
            "leader": record["leader"], "leader_changed": _differ(at.leader, leader),
            "protocol": record["protocol"], "protocol_changed": protocol_changed,
            "partitions_assigned": None, "partitions_moved": None, "since_last_ms": _gap(at.rebalanced_at_ms, at_ms),
            "last_commit_before_ms": record["last_commit_before_ms"], "first_commit_after_ms": None,
            "commit_gap_ms": None, "previous_generation": at.generation or None, "type": group_type,
            "offsets_partition": record["offsets_partition"], "log_offset": record["log_offset"], "carry": None,
        }  # fmt: skip
        if generation != at.generation:
            at.rebalanced_at_ms = at_ms
        if row["cause"] is None and not unknown and hands_out_revoked(at.owners_before, at.owners, owners):
            row["cause"] = "revoked partitions assigned"
        at.settled = unknown or row["cause"] is not None
        at.owners_before = None if unknown or cause == TYPE_CHANGED else at.owners
        at.owners = owners
        if at.open_row is not None:
            self.rows.append(at.open_row)
        self._note(record, group_type, generation, members)
        self._complete(with_first_commit(row, record["first_commit_after_ms"]))

    def _cause(self, found: Changes, members: SomeMembers, protocol_changed: bool | None) -> str | None:
        """What members tell; None where they do not tell anything."""
        at = self.at
        if not members:
            return EMPTIED
        if not at.members:
            return "first members"
        if found.joined or found.left:
            both = "members joined and left"
            return both if found.joined and found.left else "member joined" if found.joined else "member left"
        if found.replaced:
            return "static member replaced"
        if protocol_changed:
            return "protocol changed"
        return at.news if same_subscriptions(at.members, members) else "subscription changed"

    def _complete(self, row: Row) -> None:
        """What the assignment has to say; again when there is another one."""
        at = self.at
        assigned = row["partitions_assigned"] = assigned_count(at.owners)
        row["partitions_moved"] = moved_count(at.owners_before, at.owners)
        if not at.settled:
            unchanged, before = (
                "rejoined" if at.type == CLASSIC else "metadata changed",
                assigned_count(at.owners_before),
            )
            differs = assigned is not None and before is not None and assigned != before
            row["cause"] = "partitions changed" if differs else unchanged
        at.open_row = row

    def _note(self, record: Row, group_type: str, generation: int | None, members: SomeMembers) -> None:
        at = self.at
        at.type, at.generation, at.known = group_type, generation, True
        at.protocol = record["protocol"]
        at.leader = owner_of_leader(record["leader"], members)
        at.members, at.first_epoch = members, None
        if record["record_type"] in EPOCHS:
            at.news = None


def _differ(before: str | None, now: str | None) -> bool | None:
    return None if before is None or now is None else before != now
