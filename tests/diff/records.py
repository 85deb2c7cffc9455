"""The records that a script has left in the log, in its own words.

Batches are not compared, only records: a broker puts what arrives together into one batch. Neither are times, but for
what must hold of them (a commit has one; an expiry lies its retention after the commit).
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from muster.codec.batches import ReadBatch, decode_control
from muster.codec.offsets_topic import (
    GroupKey,
    GroupValue,
    OffsetKey,
    OffsetValue,
    decode_key,
    decode_value,
)
from muster.codec.records import Record
from tests.diff.requests import Cast

Told = dict[str, Any]
NO_TIME = -1
NO_PRODUCER = -1


class _Entry(NamedTuple):
    offset: int
    producer_id: int
    record: Record
    is_marker: bool


class LogIndex:
    """One partition's log, by group: read once, asked about by hundreds of scripts."""

    def __init__(self, batches: Iterable[ReadBatch]) -> None:
        self._records: dict[str, list[_Entry]] = {}
        self._markers: dict[int, list[_Entry]] = {}
        for batch in batches:
            assert batch.problem is None, batch.problem
            header = batch.header
            producer_id = header.producer_id if header.is_transactional else NO_PRODUCER
            for record in batch.records:
                entry = _Entry(record.offset, producer_id, record, header.is_control)
                if header.is_control:
                    self._markers.setdefault(producer_id, []).append(entry)
                    continue
                assert record.key is not None
                key = decode_key(record.key)
                if isinstance(key, OffsetKey | GroupKey):
                    self._records.setdefault(key.group_id, []).append(entry)

    def told(self, group: str, cast: Cast, until_offset: int | None = None) -> list[Told]:
        """What the log holds of a group, in log order, up to an offset.

        A marker is told if its producer had a commit pending in the group; the log does not say so, but only then does
        it mean anything here.
        """
        entries = list(self._records.get(cast.group_id(group), ()))
        for producer_id in {entry.producer_id for entry in entries} - {NO_PRODUCER}:
            entries += self._markers.get(producer_id, ())
        found: list[Told] = []
        has_pending: set[int] = set()
        for offset, producer_id, record, is_marker in sorted(entries, key=lambda entry: entry.offset):
            if until_offset is not None and offset >= until_offset:
                break
            producer = {} if producer_id == NO_PRODUCER else {"producer": cast.producer_name(producer_id)}
            if not is_marker:
                found.append(_record(record, cast) | producer)
                has_pending |= {producer_id} - {NO_PRODUCER}
            elif producer_id in has_pending:
                found.append({"marker": decode_control(record).name.lower(), **producer})
                has_pending.discard(producer_id)
        return _with_tombstones_in_order(found)


def _record(record: Record, cast: Cast) -> Told:
    assert record.key is not None
    key = decode_key(record.key)
    assert isinstance(key, OffsetKey | GroupKey)
    told: Told = {"key": f"{key.topic}/{key.partition}" if isinstance(key, OffsetKey) else "group"}
    if record.value is None:
        return told | {"value": None}
    version, value = decode_value(key.record_type, record.value)
    if isinstance(value, OffsetValue):
        return told | {"version": version} | _offset(value, cast)
    assert isinstance(value, GroupValue)
    return told | {"version": version} | _group(value, cast)


def _offset(value: OffsetValue, cast: Cast) -> Told:
    expires = value.expire_timestamp_ms
    return {
        "offset": value.committed_offset,
        "leader_epoch": value.leader_epoch,
        "metadata": value.metadata,
        "has_time": value.commit_timestamp_ms > 0,
        "retention_ms": None if expires == NO_TIME else expires - value.commit_timestamp_ms,
        "topic_id": cast.topic_name(value.topic_id),
        "unknown_tags": list(value.unknown_tags),
    }


def _group(value: GroupValue, cast: Cast) -> Told:
    members = [
        {
            "member": cast.member_name(member.member_id),
            "instance": member.instance_id,
            "client_id": member.client_id,
            "client_host": member.client_host,
            "rebalance_timeout_ms": member.rebalance_timeout_ms,
            "session_timeout_ms": member.session_timeout_ms,
            "subscription": member.subscription.hex(),
            "assignment": member.assignment.hex(),
        }
        for member in value.members
    ]
    return {
        "type": value.protocol_type,
        "generation": value.generation,
        "protocol": value.protocol,
        "leader": None if value.leader is None else cast.member_name(value.leader),
        "has_time": value.state_timestamp_ms > 0,
        "members": sorted(members, key=lambda member: str(member["member"])),
    }


def _with_tombstones_in_order(told: list[Told]) -> list[Told]:
    """A group's offsets go in the order of a hash map: neighbouring tombstones are put into one of ours."""
    found: list[Told] = []
    run: list[Told] = []
    for each in [*told, {}]:
        if each.get("key", "group") != "group" and each.get("value", ...) is None:
            run.append(each)
            continue
        found.extend(sorted(run, key=lambda tombstone: str(tombstone["key"])))
        run = []
        if each:
            found.append(each)
    return found
