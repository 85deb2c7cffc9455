"""Rendered records against what Kafka's tools printed for the same bytes."""

import json

import pytest

from muster.codec.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartitions,
    encode_assignment,
    encode_subscription,
)
from muster.codec.kafka_json import Flavour, key_json, unknown_type_text, value_json
from muster.codec.offsets_topic import (
    GroupKey,
    GroupValue,
    MemberValue,
    OffsetKey,
    OffsetValue,
    TypedKey,
    UnknownKey,
    decode_key,
    decode_value,
)
from tests.codec.corpus_records import NAMES, CorpusRecord, dumped, records

FORMATTER, DUMP_LOG = Flavour.FORMATTER, Flavour.DUMP_LOG


def rendered(record: CorpusRecord, flavour: Flavour) -> tuple[str, str]:
    key = decode_key(record.key)
    version, value = (0, None) if record.value is None else decode_value(key.record_type, record.value)
    return key_json(key, flavour), value_json(key.record_type, version, value, flavour)


@pytest.mark.parametrize("name", NAMES)
def test_records_look_as_the_formatters_print_them(name: str) -> None:
    for record in records(name):
        key, value = rendered(record, FORMATTER)
        assert f'"key":{key},"value":{value},"keyHex":' in record.line


@pytest.mark.parametrize("name", NAMES)
def test_records_look_as_dump_log_prints_them(name: str) -> None:
    by_place = {(record.partition, record.offset): record for record in records(name)}
    compared = 0
    for partition, offset, key, payload in dumped(name):
        record = by_place.get((partition, offset))
        if record is not None:
            assert rendered(record, DUMP_LOG) == (key, payload)
            compared += 1
    # dump-log also prints the records of corrupt batches, and gives up earlier in a damaged segment.
    assert compared == len(by_place) or name.startswith("damaged-")
    assert compared > 200


def one_member(subscription: bytes, assignment: bytes = b"") -> GroupValue:
    member = MemberValue("m", None, "c", "/h", 1, 2, subscription, assignment)
    return GroupValue("consumer", 1, "range", "m", 5, (member,))


def shown(group: GroupValue, field: str) -> object:
    return json.loads(value_json(2, 3, group, DUMP_LOG))["data"]["members"][0][field]


OWNED = (TopicPartitions("t1", (0,)),)


# From here on the right-hand sides were printed by the classes of Kafka 4.3.0 for the same bytes.


@pytest.mark.parametrize(
    ("blob", "expected"),
    [
        (b"", ""),
        (b"\x01\x02\x03", "AQID"),
        (encode_subscription(Subscription(0, ("t1",))), {"topics": ["t1"], "userData": None}),
        (encode_subscription(Subscription(0, ("t1",), b"")), {"topics": ["t1"], "userData": ""}),
        (
            encode_subscription(Subscription(1, (), b"\xff\xfe")),
            {"topics": [], "userData": "//4=", "ownedPartitions": []},
        ),
        (
            encode_subscription(Subscription(4, ("t1",), None, (), 4, "r1")),
            {"topics": ["t1"], "userData": None, "ownedPartitions": [], "generationId": 4, "rackId": "r1"},
        ),
        (
            encode_subscription(Subscription(4, ("t1",), None, OWNED, 4, "r1")),
            "AAQAAAABAAJ0Mf////8AAAABAAJ0MQAAAAEAAAAAAAAABAACcjE=",
        ),
        (encode_subscription(Subscription(-1, ("t1",))), {"topics": ["t1"], "userData": None}),
    ],
)
def test_subscriptions_in_dump_log(blob: bytes, expected: object) -> None:
    assert shown(one_member(blob), "subscription") == expected


@pytest.mark.parametrize(
    ("blob", "expected"),
    [
        (b"", ""),
        (
            encode_assignment(Assignment(3, OWNED)),
            {"assignedPartitions": [{"topic": "t1", "partitions": [0]}], "userData": None},
        ),
        (
            encode_assignment(Assignment(-1, OWNED)),
            {"assignedPartitions": [{"topic": "t1", "partitions": [0]}], "userData": None},
        ),
        (encode_assignment(Assignment(5, OWNED)), "AAUAAAABAAJ0MQAAAAEAAAAA/////w=="),
        (encode_assignment(Assignment(5, ())), {"assignedPartitions": [], "userData": None}),
    ],
)
def test_assignments_in_dump_log(blob: bytes, expected: object) -> None:
    assert shown(one_member(b"", blob), "assignment") == expected


def test_blobs_stay_base64_for_formatters_and_for_other_protocol_types() -> None:
    group = one_member(encode_subscription(Subscription(0, ("t1",))))
    base64 = "AAAAAAABAAJ0Mf////8="
    assert json.loads(value_json(2, 3, group, FORMATTER))["data"]["members"][0]["subscription"] == base64
    assert shown(group._replace(protocol_type="connect"), "subscription") == base64


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        (b"\x00\x01\x1f\x7f\b\f\r\n\t/\xe2\x80\xa8", "\\u0000\\u0001\\u001F\x7f\\b\\f\\r\\n\\t/\u2028"),
        (b"\\u001f\x1f", "\\\\u001f\\u001F"),
        (b'"quoted" \\', '\\"quoted\\" \\\\'),
        ("é消😀".encode(), "é消😀"),
        (b"caf\xe9", "caf\ufffd"),
        (b"\xed\xa0\x80", "\ufffd"),
        (b"\xe1\x80", "\ufffd"),
    ],
)
def test_strings_are_spelled_as_jackson_spells_them(metadata: bytes, expected: str) -> None:
    text = metadata.decode("utf-8", "surrogateescape")
    assert value_json(1, 2, OffsetValue(42, -1, text, 1), DUMP_LOG) == (
        '{"version":"2","data":{"offset":42,"metadata":"' + expected + '","commitTimestamp":1}}'
    )


@pytest.mark.parametrize(
    ("record_type", "value", "expected"),
    [
        (5, "00 00 02 63 02 2f 01 01 ffffffff 00 00", '"serverAssignor":null}}'),
        (5, "00 00 02 63 02 2f 01 01 ffffffff 00 01 00 01 00", '"serverAssignor":null,"classicMemberMetadata":null}}'),
        (5, "00 00 02 63 02 2f 01 01 ffffffff 00 01 00 07 01 00000000 01 00", '"serverAssignor":null}}'),
        (17, "00000001 0000000000000001 00", '{"epoch":1,"metadataHash":1}}'),
        (17, "00000001 0000000000000001 01 01 01 00", '"metadataHash":1,"lastAssignmentConfigs":null}}'),
        (17, "00000001 0000000000000001 01 01 01 01", '"metadataHash":1}}'),
        (3, "00000001 01 63 02 cafe", '{"version":"0","data":{"epoch":1}}'),
    ],
)
def test_tagged_fields_show_if_they_differ_from_their_default(record_type: int, value: str, expected: str) -> None:
    version, struct = decode_value(record_type, b"\x00\x00" + bytes.fromhex(value))
    assert value_json(record_type, version, struct, DUMP_LOG).endswith(expected)


def test_keys_of_both_flavours() -> None:
    assert key_json(OffsetKey("g", "t", 3, 0), FORMATTER) == (
        '{"type":0,"data":{"group":"g","topic":"t","partition":3}}'
    )
    assert key_json(GroupKey("g"), DUMP_LOG) == '{"type":"2","data":{"group":"g"}}'
    assert key_json(TypedKey(5, ("g", "m")), DUMP_LOG) == '{"type":"5","data":{"groupId":"g","memberId":"m"}}'


def test_tombstones_of_both_flavours() -> None:
    assert value_json(1, 0, None, FORMATTER) == "null"
    assert value_json(1, 0, None, DUMP_LOG) == "<DELETE>"


def test_unknown_types() -> None:
    assert key_json(UnknownKey(18, b"\x00\x12"), FORMATTER) == '{"type":18,"data":"unknown"}'
    assert unknown_type_text(18, 7) == "Unknown record type 18 at offset 7, skipping."
