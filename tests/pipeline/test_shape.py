"""Rows of the history tables against what Kafka's own tools printed of the same records."""

import base64
import gzip
import json
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from muster.codec.batches import encode_batch, encode_marker
from muster.codec.columns.arrow import decode, markers_in
from muster.codec.columns.chunks import with_slack
from muster.codec.consumer_protocol import decode_assignment, decode_subscription
from muster.codec.records import TRANSACTIONAL, Record
from muster.codec.transaction_outcomes import Markers
from muster.errors import CodecError
from muster.pipeline.extract.shape import Shaped, first_after, shape
from muster.segments.reader import read_markers, record_batches
from muster.segments.sources import Sources
from muster.tables.schemas import COMMITS, GROUP_RECORDS, MARKERS
from tests.codec.corpus_records import CORPORA, NAMES
from tests.segments import commit, tombstone

Row = dict[str, Any]


def none_if_negative(number: int | None) -> int | None:
    return None if number is None or number < 0 else number


@cache
def printed(name: str) -> tuple[Row, ...]:
    """The records of a corpus as Kafka printed them; batches without records are left out."""
    with gzip.open(CORPORA / name / "expected" / "records.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return tuple(row for row in rows if ("keyHex" in row or "control" in row) and row["batch"]["crcValid"])


def record_type(row: Row) -> int | None:
    return int(row["keyHex"][:4], 16) if row.get("keyHex") else None


@cache
def shaped(name: str) -> dict[int, Shaped]:
    """The tables of each partition of a corpus."""
    tables = {}
    with Sources([CORPORA / name / f"{name}.tar.zst"]) as sources:
        for partition in sources.partitions:
            markers = read_markers(partition.segments)
            pieces = [shape(batch, markers, names_of(name)) for batch in record_batches(partition.directory)]
            tables[partition.partition or 0] = Shaped(*(pa.concat_tables(some) for some in zip(*pieces, strict=True)))
    return tables


@cache
def names_of(name: str) -> dict[str, str]:
    answers = json.loads((CORPORA / name / "expected" / "groups.json").read_text(encoding="utf-8"))
    return {facts["topicId"]: topic for topic, facts in answers["topics"].items() if facts.get("topicId")}


def rows_of(name: str, table: str) -> Iterator[tuple[tuple[int, int], Row]]:
    for partition, tables in shaped(name).items():
        for row in getattr(tables, table).to_pylist():
            assert row["offsets_partition"] == partition
            yield (partition, row["log_offset"]), row


@pytest.mark.parametrize("name", NAMES)
def test_every_record_is_in_exactly_one_table(name: str) -> None:
    found = [place for table in Shaped._fields for place, _ in rows_of(name, table)]
    expected = [(row["partition"], row["offset"]) for row in printed(name)]
    assert sorted(found) == sorted(expected)
    for tables in shaped(name).values():
        assert tables.commits.schema == COMMITS
        assert tables.group_records.schema == GROUP_RECORDS
        assert tables.markers.schema == MARKERS
        for table in tables:
            table.validate(full=True)


@pytest.mark.parametrize("name", NAMES)
def test_commits_are_what_kafka_printed(name: str) -> None:
    expected = {}
    for row in printed(name):
        if record_type(row) not in (0, 1):
            continue
        key, value, batch = row["key"]["data"], row["value"] and row["value"]["data"], row["batch"]
        expected[row["partition"], row["offset"]] = {
            "timestamp_ms": none_if_negative(row["timestamp"]),
            "kind": "commit" if value else "deleted",
            "group_id": key["group"],
            "topic": key["topic"],
            "partition": key["partition"],
            "committed_offset": value and value["offset"],
            "leader_epoch": value and none_if_negative(value.get("leaderEpoch", -1)),
            "metadata": value and value["metadata"],
            "commit_timestamp_ms": value and value.get("commitTimestamp", value.get("timestamp")),
            "expire_timestamp_ms": value and none_if_negative(value.get("expireTimestamp", -1)),
            "topic_id": value and value.get("topicId"),
            "producer_id": none_if_negative(batch["producerId"]),
            "producer_epoch": none_if_negative(batch["producerEpoch"]),
            "previous_commit_timestamp_ms": None,
        }
    found = dict(rows_of(name, "commits"))
    outcomes = {place: (row.pop("txn_outcome"), row.pop("txn_marker_offset")) for place, row in found.items()}
    for row in found.values():
        del row["offsets_partition"], row["log_offset"]
    assert found == expected
    assert outcomes == expected_outcomes(name)


def expected_outcomes(name: str) -> dict[tuple[int, int], tuple[str | None, int | None]]:
    """By walking back from the end: the last marker met is the first one behind."""
    outcomes: dict[tuple[int, int], tuple[str | None, int | None]] = {}
    nearest: dict[tuple[int, int], tuple[str, int]] = {}
    for row in reversed(printed(name)):
        producer = row["partition"], row["batch"]["producerId"]
        if "control" in row:
            nearest[producer] = {"COMMIT": "committed", "ABORT": "aborted"}[row["control"]], row["offset"]
        elif record_type(row) in (0, 1):
            in_transaction = row["batch"]["isTransactional"]
            outcome = nearest.get(producer, ("open", None)) if in_transaction else (None, None)
            outcomes[row["partition"], row["offset"]] = outcome
    return outcomes


@pytest.mark.parametrize("name", NAMES)
def test_markers_are_what_kafka_printed(name: str) -> None:
    expected = [
        {
            "offsets_partition": row["partition"],
            "log_offset": row["offset"],
            "timestamp_ms": row["timestamp"],
            "producer_id": row["batch"]["producerId"],
            "producer_epoch": row["batch"]["producerEpoch"],
            "type": row["control"],
            "coordinator_epoch": row["coordinatorEpoch"],
        }
        for row in printed(name)
        if "control" in row
    ]
    assert [row for _, row in rows_of(name, "markers")] == expected


def classic_member(member: Row, protocol_type: str) -> Row:
    subscription, assignment = base64.b64decode(member["subscription"]), base64.b64decode(member["assignment"])
    topics: list[str] | None = None
    assigned: list[Row] | None = None
    if protocol_type == "consumer":  # some groups call themselves consumers and are not: their blobs are NULL
        with suppress(CodecError, AttributeError):
            topics = list(decode_subscription(subscription).topics)
        with suppress(CodecError, AttributeError):
            for topic, partitions in decode_assignment(assignment).assigned_partitions:
                assigned = (assigned or []) + [{"topic": topic, "topic_id": None, "partitions": list(partitions)}]
            assigned = assigned or []
    return {
        "member_id": member["memberId"],
        "instance_id": member.get("groupInstanceId"),
        "client_id": member["clientId"],
        "client_host": member["clientHost"],
        "rebalance_timeout_ms": member.get("rebalanceTimeout", member["sessionTimeout"]),
        "session_timeout_ms": member["sessionTimeout"],
        "subscribed_topics": topics,
        "assignment": assigned,
    }


@pytest.mark.parametrize("name", NAMES)
def test_classic_groups_are_what_kafka_printed(name: str) -> None:
    found = {place: row for place, row in rows_of(name, "group_records") if row["record_type"] == 2}
    printed_groups = [row for row in printed(name) if record_type(row) == 2]
    assert len(found) == len(printed_groups)
    for expected in printed_groups:
        row = found[expected["partition"], expected["offset"]]
        assert row["timestamp_ms"] == none_if_negative(expected["timestamp"])
        assert row["group_id"] == expected["key"]["data"]["group"]
        assert row["is_tombstone"] == (expected["value"] is None)
        value = expected["value"] and expected["value"]["data"]
        if value is None:
            assert row["members"] is None
            assert row["epoch"] is None
            continue
        assert row["value_version"] == expected["value"]["version"]
        assert row["epoch"] == value["generation"]
        assert row["state_timestamp_ms"] == none_if_negative(value.get("currentStateTimestamp", -1))
        for column, field in (("protocol_type", "protocolType"), ("protocol", "protocol"), ("leader", "leader")):
            assert row[column] == value[field]
        assert row["members"] == [classic_member(member, value["protocolType"]) for member in value["members"]]
        assert row["problem"] is None


def expected_newer(row: Row, names: dict[str, str]) -> Row:
    """The flat columns of one value, by the fields that Kafka gave it."""
    value = (row["value"] or {}).get("data", {})
    epochs = [value[name] for name in ("epoch", "assignmentEpoch", "memberEpoch") if name in value]
    assigned = next((value[n] for n in ("topicPartitions", "assignedPartitions", "activeTasks") if n in value), None)
    is_expression = record_type(row) == 16
    return {
        "group_id": row["key"]["data"]["groupId"],
        "member_id": row["key"]["data"].get("memberId"),
        "is_tombstone": row["value"] is None,
        "regular_expression": row["key"]["data"].get("regularExpression") or value.get("subscribedTopicRegex") or None,
        "subscribed_topics": value.get("topics") if is_expression else value.get("subscribedTopicNames"),
        "epoch": epochs[0] if epochs else None,
        "previous_epoch": value.get("previousMemberEpoch"),
        "member_state": value.get("state"),
        "instance_id": value.get("instanceId"),
        "rack_id": value.get("rackId"),
        "client_id": value.get("clientId"),
        "client_host": value.get("clientHost"),
        "rebalance_timeout_ms": value.get("rebalanceTimeoutMs"),
        "state_timestamp_ms": value.get("assignmentTimestamp"),
        "assignment": None
        if assigned is None
        else [
            {
                "topic": one.get("subtopologyId") or names.get(one["topicId"]),
                "topic_id": one.get("topicId"),
                "partitions": one["partitions"],
            }
            for one in assigned
        ],
    }


@pytest.mark.parametrize("name", NAMES)
def test_newer_kinds_are_what_kafka_printed(name: str) -> None:
    found = {place: row for place, row in rows_of(name, "group_records") if row["record_type"] != 2}
    expected = [row for row in printed(name) if (record_type(row) or 0) > 2]
    assert len(found) == len(expected)
    for printed_row in expected:
        row = found[printed_row["partition"], printed_row["offset"]]
        wanted = expected_newer(printed_row, names_of(name))
        assert {column: row[column] for column in wanted} == wanted
        assert (row["json"] and json.loads(row["json"])) == (printed_row["value"] and printed_row["value"]["data"])


def test_the_corpora_have_what_these_tests_are_about() -> None:
    every = [row for name in ("k43-full", "k40", "k39-new") for _, row in rows_of(name, "group_records")]
    assert {row["record_type"] for row in every} >= {2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 19, 20, 21}
    assert any(one["topic"] == "orders" and one["topic_id"] for row in every for one in row["assignment"] or ())
    assert {outcome for outcome, _ in expected_outcomes("k43-full").values()} == {None, "committed", "aborted", "open"}


def test_what_cannot_be_read_is_a_group_record_with_its_bytes() -> None:
    bad_commit = commit(1)._replace(value=b"\x00\x03\x00")
    unknown = Record(2, 5, b"\x00\x63later", b"what")
    data = encode_batch([commit(0), bad_commit, unknown])
    (batch,) = decode(data, partition=7).to_batches()
    tables = shape(batch, Markers.none())
    assert tables.commits.column("log_offset").to_pylist() == [0]
    bad, later = tables.group_records.to_pylist()
    assert (bad["log_offset"], bad["record_type"], bad["group_id"]) == (1, 1, "orders-app")
    assert (bad["raw_key"], bad["raw_value"]) == (bad_commit.key, bad_commit.value)
    assert bad["problem"]
    assert (later["raw_key"], later["problem"]) == (unknown.key, "unknown record type 99")


def test_only_deletions() -> None:
    (batch,) = decode(encode_batch([tombstone(0), tombstone(1)]), partition=0).to_batches()
    tables = shape(batch, Markers.none())
    assert tables.commits.column("kind").to_pylist() == ["deleted", "deleted"]
    assert len(tables.group_records) == len(tables.markers) == 0


def test_the_first_marker_of_the_same_producer_counts() -> None:
    parts = [
        encode_batch([commit(0)], attributes=TRANSACTIONAL, producer_id=7, producer_epoch=0),
        encode_batch([commit(1)], attributes=TRANSACTIONAL, producer_id=8, producer_epoch=0),
        encode_marker(2, 5, 8, 0, commit=False, coordinator_epoch=0),
        encode_marker(3, 5, 7, 0, commit=True, coordinator_epoch=0),
        encode_batch([commit(4)], attributes=TRANSACTIONAL, producer_id=8, producer_epoch=0),
        encode_marker(5, 5, 7, 0, commit=False, coordinator_epoch=0),
    ]
    data = b"".join(parts)
    (batch,) = decode(data, partition=0).to_batches()
    rows = shape(batch, markers_in(with_slack(data), len(data))).commits.to_pylist()
    assert [(row["txn_outcome"], row["txn_marker_offset"]) for row in rows] == [
        ("committed", 3),
        ("aborted", 2),
        ("open", None),
    ]


def test_searching_markers_equals_asking_one_by_one() -> None:
    chance = np.random.default_rng(5)
    markers = Markers.of(
        np.stack([chance.integers(0, 9, 200), chance.integers(0, 500, 200), np.ones(200)], 1).astype(int)
    )
    producer_ids, offsets = chance.integers(-1, 11, 300), chance.integers(-5, 510, 300)
    found = first_after(markers, producer_ids, offsets)
    for producer_id, offset, place in zip(producer_ids, offsets, found, strict=True):
        later = [
            number
            for number in range(200)
            if markers.producer_ids[number] == producer_id and markers.offsets[number] > offset
        ]
        assert place == (later[0] if later else -1)
    assert first_after(Markers.none(), producer_ids, offsets).tolist() == [-1] * 300
