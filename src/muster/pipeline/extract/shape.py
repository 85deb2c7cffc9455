"""Decoded records to rows of the three history tables. Every record becomes a row of exactly one of them.

    commits         offset commits and their deletions that can be read
    markers         control records
    group_records   all else: groups of every kind, unknown types, and whatever cannot be read, with its bytes

Nothing is looked up outside of the batch but transaction markers and names of topics. What only the log before and
after can tell (which deletion is an expiry, when a group committed around a rebalance) is filled in by `extract`, which
reads the log in order; here deletions are `deleted` and those columns NULL.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from muster.codec.columns.arrow import strings
from muster.codec.columns.chunks import with_slack
from muster.codec.transaction_outcomes import Markers
from muster.tables.column_kinds import ASSIGNED, CLASSIC_MEMBER
from muster.tables.schemas import COMMITS, GROUP_RECORDS, MARKERS

Array = Any  # pyarrow has no types of its own

_SUBSCRIBED = {5: "subscribedTopicNames", 10: "subscribedTopicNames", 16: "topics"}
"""Types whose value lists topics: a member's own, or those that a group's regular expression matches."""
_ASSIGNED = {
    7: "topicPartitions",
    8: "assignedPartitions",
    13: "topicPartitions",
    14: "assignedPartitions",
    21: "activeTasks",
    22: "activeTasks",
}

_WITH_LISTS = _SUBSCRIBED.keys() | _ASSIGNED.keys()


class NewerColumns(NamedTuple):
    """One row for each record given; NULL where its kind has no such thing, or where it is a tombstone."""

    subscribed_topics: Array
    subscribed_expression: Array
    assignment: Array


def newer_columns(
    record_types: Iterable[int | None], texts: Iterable[str | None], topic_names: Mapping[str, str]
) -> NewerColumns:
    """Columns of these values of types 3 to 23 (any other type, or None for a text, gives NULLs).

    An assignment has topic ids, and names only where `topic_names` knows them. The tasks of a streams group belong to
    subtopologies: the subtopology's id stands in the place of the topic, for active tasks only.
    """
    topics: list[list[str] | None] = []
    expressions: list[str | None] = []
    assignments: list[list[dict[str, Any]] | None] = []
    for record_type, text in zip(record_types, texts, strict=True):
        value = json.loads(text) if text is not None and record_type in _WITH_LISTS else {}
        topics.append(value.get(_SUBSCRIBED.get(record_type or 0)))
        expressions.append(value.get("subscribedTopicRegex") or None)
        assigned = value.get(_ASSIGNED.get(record_type or 0))
        assignments.append(None if assigned is None else [_assigned(one, topic_names) for one in assigned])
    return NewerColumns(
        pa.array(topics, pa.list_(pa.string())),
        pa.array(expressions, pa.string()),
        pa.array(assignments, pa.list_(ASSIGNED)),
    )


def _assigned(one: Mapping[str, Any], topic_names: Mapping[str, str]) -> dict[str, Any]:
    topic_id = one.get("topicId")
    topic = one.get("subtopologyId") if topic_id is None else topic_names.get(topic_id)
    return {"topic": topic, "topic_id": topic_id, "partitions": one["partitions"]}


Longs = NDArray[np.int64]

KINDS = ("commit", "deleted", "expired")
COMMIT, DELETED, EXPIRED = range(3)


class Shaped(NamedTuple):
    """Three `pyarrow.Table`s with the schemas COMMITS, GROUP_RECORDS and MARKERS."""

    commits: Array
    group_records: Array
    markers: Array


def shape(batch: Array, markers: Markers, topic_names: Mapping[str, str] | None = None) -> Shaped:
    """The rows of a `pyarrow.RecordBatch` with the codec's schema RECORDS, each table in the order of the batch.

    `markers` are all of the stretch of log that counts. A commit whose transaction has no marker among them is in
    `commits` too, with the outcome `open`, for the caller to set apart.
    """
    is_marker = pc.is_valid(batch.column("control"))
    is_commit = pc.and_(
        pc.less_equal(pc.fill_null(batch.column("record_type"), 99), 1), pc.is_null(batch.column("unread"))
    )
    is_other = pc.invert(pc.or_(is_marker, is_commit))
    return Shaped(
        commit_rows(_chosen(batch, is_commit, COMMITS), markers),
        group_rows(_chosen(batch, is_other, GROUP_RECORDS), topic_names or {}),
        marker_rows(_chosen(batch, is_marker, MARKERS)),
    )


_FROM_RECORDS = {
    id(COMMITS): ("is_tombstone", "txn_outcome"),
    id(GROUP_RECORDS): ("group", "newer", "unread"),
    id(MARKERS): ("control",),
}
"""Columns that rows are made of beside those that have the same name."""


def _chosen(batch: Array, mask: Array, schema: Array) -> Array:
    wanted = [name for name in batch.schema.names if name in schema.names or name in _FROM_RECORDS[id(schema)]]
    batch = batch.select(wanted)
    count = mask.true_count
    return batch if count == len(batch) else batch.slice(0, 0) if count == 0 else batch.filter(mask)


def _table(columns: Mapping[str, Array], count: int, schema: Array) -> Array:
    """Columns by name; those not given are NULL."""
    arrays = [columns[field.name] if field.name in columns else pa.nulls(count, field.type) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def _same_names(batch: Array, schema: Array) -> dict[str, Array]:
    return {name: batch.column(name) for name in batch.schema.names if name in schema.names}


def commit_rows(
    batch: Array, markers: Markers, kinds: NDArray[np.int8] | None = None, previous_commit_ms: Array = None
) -> Array:
    """Rows of COMMITS; all records of the batch are offset commits or their tombstones.

    `kinds` are positions in `KINDS`, where the caller knows more than that a tombstone deletes.
    """
    columns = _same_names(batch, COMMITS)
    if kinds is None:
        kinds = pc.cast(batch.column("is_tombstone"), pa.int8()).to_numpy()
    columns["kind"] = named_kinds(kinds)
    if previous_commit_ms is not None:
        columns["previous_commit_timestamp_ms"] = previous_commit_ms
    if batch.column("txn_outcome").null_count < len(batch):
        columns["txn_marker_offset"] = _marker_offsets(batch, markers)
    return _table(columns, len(batch), COMMITS)


_KIND_BYTES = with_slack("".join(KINDS).encode())
_KIND_LENGTHS = np.array([len(name) for name in KINDS])
_KIND_STARTS = np.cumsum(_KIND_LENGTHS) - _KIND_LENGTHS


def named_kinds(kinds: NDArray[np.int8]) -> Array:
    """The column `kind`, of positions in `KINDS`."""
    return strings(_KIND_BYTES, _KIND_STARTS[kinds], _KIND_LENGTHS[kinds])


def _marker_offsets(batch: Array, markers: Markers) -> Array:
    """Of each commit in a transaction that has ended, the offset of the marker that ended it."""
    rows = np.flatnonzero(batch.column("txn_outcome").is_valid().to_numpy(zero_copy_only=False))
    producer_ids = pc.fill_null(batch.column("producer_id"), -1).to_numpy()[rows]
    places = first_after(markers, producer_ids, batch.column("log_offset").to_numpy()[rows])
    ended = places >= 0
    offsets, valid = np.zeros(len(batch), np.int64), np.zeros(len(batch), np.bool_)
    valid[rows] = ended
    offsets[rows[ended]] = markers.offsets[places[ended]]
    bitmap = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(pa.int64(), len(batch), [bitmap, pa.py_buffer(offsets)])


def first_after(markers: Markers, producer_ids: Longs, offsets: Longs) -> Longs:
    """Of each (producer, offset), the place of that producer's first marker at a higher offset; -1 without one.

    One binary search for all of them, each between the bounds of its own producer.
    """
    low = np.searchsorted(markers.producer_ids, producer_ids, "left")
    last = np.searchsorted(markers.producer_ids, producer_ids, "right")
    high = last.copy()
    while (searching := low < high).any():
        middle = (low + high) >> 1
        before = searching & (markers.offsets[np.where(searching, middle, 0)] <= offsets)
        low = np.where(before, middle + 1, low)
        high = np.where(searching & ~before, middle, high)
    return np.where(low < last, low, -1)


def marker_rows(batch: Array) -> Array:
    """Rows of MARKERS; all records of the batch are control records."""
    kind, coordinator_epoch = batch.column("control").flatten()
    columns = _same_names(batch, MARKERS) | {"type": kind, "coordinator_epoch": coordinator_epoch}
    return _table(columns, len(batch), MARKERS)


def group_rows(batch: Array, topic_names: Mapping[str, str]) -> Array:
    """Rows of GROUP_RECORDS, of any records whatever."""
    columns = _same_names(batch, GROUP_RECORDS)
    group, newer, unread = (_fields(batch.column(name)) for name in ("group", "newer", "unread"))
    columns["problem"], columns["raw_key"], columns["raw_value"] = unread["problem"], unread["key"], unread["value"]
    columns["protocol_type"], columns["protocol"], columns["leader"] = (
        group[name] for name in ("protocol_type", "protocol", "leader")
    )
    columns["members"] = _classic_members(group["members"])
    for name in (
        "member_id", "previous_epoch", "member_state", "instance_id", "rack_id", "client_id", "client_host",
        "rebalance_timeout_ms", "json",
    ):  # fmt: skip
        columns[name] = newer[name]
    columns["epoch"] = pc.coalesce(group["generation"], newer["epoch"])
    # An assignment's timestamp is 0 where the release did not write one yet.
    assigned_at = newer["assignment_timestamp_ms"]
    assigned_at = pc.if_else(pc.greater(assigned_at, 0), assigned_at, pa.scalar(None, pa.int64()))
    columns["state_timestamp_ms"] = pc.coalesce(group["state_timestamp_ms"], assigned_at)
    if newer["json"].null_count < len(batch):
        made = newer_columns(batch.column("record_type").to_pylist(), newer["json"].to_pylist(), topic_names)
        columns["subscribed_topics"], columns["assignment"] = made.subscribed_topics, made.assignment
        columns["regular_expression"] = pc.coalesce(newer["regular_expression"], made.subscribed_expression)
    else:
        columns["regular_expression"] = newer["regular_expression"]
    return _table(columns, len(batch), GROUP_RECORDS)


def _fields(struct: Array) -> dict[str, Array]:
    """The fields of a struct column; NULL where the struct is."""
    return dict(zip((field.name for field in struct.type), struct.flatten(), strict=True))


def _classic_members(members: Array) -> Array:
    """Members of classic groups: as the codec has them, without the raw blobs."""
    fields = _fields(members.values)
    assigned = _fields(fields["assigned_partitions"].values)
    topics = pa.StructArray.from_arrays(
        [assigned["topic"], pa.nulls(len(assigned["topic"]), pa.string()), assigned["partitions"]],
        fields=list(ASSIGNED),
    )
    fields["assignment"] = _with_values(fields["assigned_partitions"], topics)
    made = pa.StructArray.from_arrays([fields[field.name] for field in CLASSIC_MEMBER], fields=list(CLASSIC_MEMBER))
    return _with_values(members, made)


def _with_values(lists: Array, values: Array) -> Array:
    """The same lists, of other values."""
    return pa.Array.from_buffers(
        pa.list_(values.type), len(lists), lists.buffers()[:2], offset=lists.offset, children=[values]
    )
