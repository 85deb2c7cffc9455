"""Where an exporter begins if there are tables: each partition of __consumer_offsets as the last run left it.

A run has read every partition up to some place. What all records before that place come down to is in the tables:
groups, members, committed offsets, commits whose transaction is open, and what the next rebalance is compared with. So
only what follows that place need be read from the cluster.
"""

from base64 import urlsafe_b64decode
from collections.abc import Iterator, Mapping
from typing import Any

from muster.codec.offsets_topic import OffsetValue, offset_key
from muster.errors import BadInput
from muster.exporter.groups import CLASSIC, STREAMS, Beginning, Group, Member, OpenCommit, Position
from muster.exporter.limits import Wanted
from muster.exporter.rebalances import Rebalances
from muster.pipeline.rebalances.causes import COLUMNS, snapshot_of
from muster.tables.reading import Tables
from muster.tables.schemas import LATEST_REBALANCES
from muster.verdicts import Commit

NEEDED = ("offsets", "open_commits", "groups", "members", "group_state", "latest_rebalances")
NO_TIME = -1
REPLACED = "\ufffd"
"""In tables it stands for bytes of a name that are no UTF-8: which bytes, only the log tells."""
Row = Mapping[str, Any]


def read_beginnings(tables: Tables, wanted: Wanted) -> dict[int, Beginning]:
    """By partition; one with a name that only its log can tell is left out."""
    missing = [name for name in NEEDED if name not in tables.manifest.tables]
    if missing:
        raise BadInput(f"the tables at {tables.store.address} have no {', '.join(missing)}.")
    found = {
        number: Beginning(progress.next_offset, progress.leader_epoch, {}, [])
        for number, progress in tables.manifest.progress.items()
    }
    _add_groups(tables, found)
    _add_members(tables, found)
    _add_positions(tables, found)
    _add_open_commits(tables, found)
    _add_rebalances(tables, found)
    whole = {number: one for number, one in found.items() if not any(REPLACED in name for name in _names(one))}
    for beginning in whole.values():
        for group_id in [each for each in beginning.groups if each not in wanted]:
            del beginning.groups[group_id]
        beginning.open_commits[:] = [one for one in beginning.open_commits if one.key.group_id in wanted]
    return whole


def _names(beginning: Beginning) -> Iterator[str]:
    for group_id, group in beginning.groups.items():
        yield group_id
        yield from group.members
        yield from (topic for topic, _ in group.positions)
    for one in beginning.open_commits:
        yield from (one.key.group_id, one.key.topic)


def _rows(tables: Tables, table: str, *columns: str, condition: str = "TRUE") -> Iterator[Any]:
    names = ", ".join(f'q."{name}"' for name in columns)
    yield from tables.asked(f"SELECT {names} FROM {tables.relation(table)} q WHERE {condition}")


def _add_groups(tables: Tables, found: Mapping[int, Beginning]) -> None:
    """A group that only commits, and one of which only members are known, has no type."""
    columns = ("offsets_partition", "group_id", "type", "protocol_type", "protocol", "log_offset")
    for number, group_id, kind, protocol_type, protocol, log_offset in _rows(tables, "groups", *columns):
        known_type = None if log_offset is None else kind
        found[number].groups[group_id] = Group(known_type, protocol_type or "", protocol or "")


def _add_members(tables: Tables, found: Mapping[int, Beginning]) -> None:
    columns = ("offsets_partition", "group_id", "member_id", "type", "client_id", "client_host", "assignment")
    for number, group_id, member_id, kind, client_id, host, assignment in _rows(tables, "members", *columns):
        member = Member(client_id or "", host or "")
        if kind == CLASSIC:
            owned = frozenset((one["topic"], each) for one in assignment or () for each in one["partitions"])
            member = member._replace(owned=owned)
        elif kind != STREAMS:  # those own tasks, which are no partitions
            by_id = tuple((_topic_id(one["topic_id"]), tuple(one["partitions"])) for one in assignment or ())
            member = member._replace(owned_by_id=by_id)
        found[number].groups[group_id].members[member_id] = member


def _topic_id(printed: str) -> bytes:
    return urlsafe_b64decode(printed + "==")


def _add_positions(tables: Tables, found: Mapping[int, Beginning]) -> None:
    """With the window of `status`, if that ends in the commit in force; else with this commit alone."""
    windows = _windows(tables)
    columns = ("offsets_partition", "group_id", "topic", "partition", "committed_offset", "commit_timestamp_ms",
               "log_offset")  # fmt: skip
    for number, group_id, topic, partition, offset, at_ms, log_offset in _rows(tables, "offsets", *columns):
        window, until = windows.get((group_id, topic, partition), ((), None))
        if until != log_offset:
            window = (Commit(offset, NO_TIME if at_ms is None else at_ms, None),)
        found[number].groups[group_id].positions[topic, partition] = Position(window, log_offset)


Windows = dict[tuple[str, str, int], tuple[tuple[Commit, ...], int | None]]


def _windows(tables: Tables) -> Windows:
    """The last commits of each partition, and the place of the newest in the log."""
    if "status" not in tables.manifest.tables:
        return {}
    rows = _rows(tables, "status", "group_id", "topic", "partition", "window")
    return {
        (group_id, topic, partition): (tuple(map(_seen, window)), window[-1]["log_offset"])
        for group_id, topic, partition, window in rows
        if window
    }


def _seen(commit: Row) -> Commit:
    at_ms = commit["commit_ms"]
    return Commit(commit["committed_offset"], NO_TIME if at_ms is None else at_ms, commit["lag"])


def _add_open_commits(tables: Tables, found: Mapping[int, Beginning]) -> None:
    columns = ("offsets_partition", "producer_id", "log_offset", "group_id", "topic", "partition", "committed_offset",
               "commit_timestamp_ms")  # fmt: skip
    for number, producer_id, log_offset, *key, offset, at_ms in sorted(_rows(tables, "open_commits", *columns)):
        value = OffsetValue(offset, commit_timestamp_ms=NO_TIME if at_ms is None else at_ms)
        found[number].open_commits.append(OpenCommit(producer_id, offset_key(*key), log_offset, value))


def _add_rebalances(tables: Tables, found: Mapping[int, Beginning]) -> None:
    """A group that has a newest row carries there what the next one is compared with; others have it in their state."""
    latest = {
        row["group_id"]: row
        for row in (
            dict(zip(LATEST_REBALANCES.names, values, strict=True))
            for values in _rows(tables, "latest_rebalances", *LATEST_REBALANCES.names)
        )
    }
    state: dict[str, list[dict[str, Any]]] = {}
    for values in _rows(tables, "group_state", *COLUMNS, condition="q.group_id IS NOT NULL"):
        row = dict(zip(COLUMNS, values, strict=True))
        state.setdefault(row["group_id"], []).append(row)
    for beginning in found.values():
        for group_id, group in beginning.groups.items():
            if group_id in latest or group_id in state:
                group.rebalances = Rebalances(snapshot_of(state.get(group_id, ()), latest.get(group_id)))
