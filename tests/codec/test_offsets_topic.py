import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.codec.group_records import RECORD_TYPES, layouts_of
from muster.codec.layouts import UNKNOWN_TAGS, Field
from muster.codec.offsets_topic import (
    NO_TOPIC_ID,
    GroupKey,
    GroupValue,
    MemberValue,
    OffsetKey,
    OffsetValue,
    StructValue,
    TypedKey,
    UnknownKey,
    Value,
    decode_key,
    decode_value,
    encode_group_value,
    encode_key,
    encode_offset_value,
    encode_struct_value,
    group_value_version,
    offset_key,
    offset_value_version,
)
from muster.errors import BadInput, CodecError, Malformed, Truncated, UnsupportedVersion
from tests.codec.corpus_records import NAMES, one_of_each_kind, records
from tests.codec.golden_bytes import golden
from tests.codec.strategies import BLOB, INT32, INT64, TEXT, UUIDS, bounded

GOLDEN = golden("records.hex")
NOON = 1600000000000
TOPIC_ID = bytes(range(16))
COMMIT = OffsetValue(537, leader_epoch=15, metadata="metadata", commit_timestamp_ms=NOON)
SUBSCRIPTION, ASSIGNMENT = GOLDEN["subscription-v1"], GOLDEN["assignment-v1"]
MEMBER = MemberValue("c-1", "inst", "c", "/127.0.0.1", 300000, 45000, SUBSCRIPTION, ASSIGNMENT)
GROUP = GroupValue("consumer", 1, "range", "c-1", NOON, (MEMBER,))

GOLDEN_VALUES: dict[str, tuple[int, Value]] = {
    "offset-v0": (1, OffsetValue(42, -1, "m", NOON)),
    "offset-v1": (1, OffsetValue(42, -1, "m", NOON, NOON + 86400000)),
    "offset-v2": (1, OffsetValue(42, -1, "m", NOON)),
    "offset-v3": (1, OffsetValue(42, 7, "m", NOON)),
    "offset-v3-bare": (1, OffsetValue(42, -1, "", NOON)),
    "offset-v4": (1, OffsetValue(42, 7, "m", NOON)),
    "offset-v4-id": (1, OffsetValue(42, 7, "m", NOON, topic_id=TOPIC_ID)),
    "group-v3-empty": (2, GroupValue("consumer", 5, None, None, NOON)),
    "group-v3-new": (2, GroupValue("", 0, None, None, NOON)),
    "group-v3": (2, GROUP),
    "share-group-4.0": (11, StructValue(0, {"epoch": 5})),
    "share-group-4.1": (11, StructValue(0, {"epoch": 5, "metadataHash": -2})),
    "share-state-4.0": (
        15,
        StructValue(
            0,
            {
                "initializedTopics": [{"topicId": b"\x11" * 16, "topicName": "t1", "partitions": [0]}],
                "deletingTopics": [],
            },
        ),
    ),
    "share-state-4.1": (
        15,
        StructValue(
            0,
            {
                "initializingTopics": [],
                "initializedTopics": [{"topicId": b"\x11" * 16, "topicName": "t1", "partitions": [0]}],
                "deletingTopics": [],
            },
        ),
    ),
}


def encode_value(record_type: int, version: int, value: Value) -> bytes:
    match value:
        case OffsetValue():
            return encode_offset_value(value, version)
        case GroupValue():
            return encode_group_value(value, version)
        case StructValue():
            return encode_struct_value(record_type, value)


def reread(value: Value, version: int) -> Value:
    record_type = 1 if isinstance(value, OffsetValue) else 2
    read_version, read = decode_value(record_type, encode_value(record_type, version, value))
    assert read_version == version
    return read


# Keys


def test_golden_keys() -> None:
    assert decode_key(GOLDEN["offset-key"]) == OffsetKey("g1", "t1", 3)
    assert decode_key(GOLDEN["group-key"]) == GroupKey("g1")
    assert decode_key(GOLDEN["group-key"]).record_type == 2
    for name in ("offset-key", "group-key"):
        assert encode_key(decode_key(GOLDEN[name])) == GOLDEN[name]


def test_a06_an_offset_key_is_written_as_type_1_even_if_it_was_read_as_type_0() -> None:
    legacy = b"\x00\x00" + GOLDEN["offset-key"][2:]
    key = decode_key(legacy)
    assert key == OffsetKey("g1", "t1", 3, record_type=0)
    assert encode_key(key) == legacy
    assert isinstance(key, OffsetKey)
    assert encode_key(offset_key(key.group_id, key.topic, key.partition)) == GOLDEN["offset-key"]


def test_a22_a_key_of_unknown_type_is_a_value_and_not_an_error() -> None:
    for data in (b"\x7f\xff", b"\x7f\xff\x00\x02g1", b"\x00\x12\x00\x02g1", b"\x00\x18", b"\xff\xff\x00"):
        record_type = int.from_bytes(data[:2], "big", signed=True)
        assert decode_key(data) == UnknownKey(record_type, data)
        assert encode_key(decode_key(data)) == data


def test_keys_of_the_newer_groups_name_their_fields() -> None:
    key = decode_key(bytes.fromhex("0010 0002 6731 0003 742e2a"))
    assert key == TypedKey(16, ("g1", "t.*"))
    assert isinstance(key, TypedKey)
    assert (key.group_id, key.data) == ("g1", {"groupId": "g1", "regularExpression": "t.*"})


def test_a_null_string_in_a_key_is_malformed() -> None:
    for data in ("0001 ffff 0002 7431 00000003", "0001 0002 6731 fffe 00000003", "0002 ffff", "0005 0002 6731 ffff"):
        with pytest.raises(Malformed):
            decode_key(bytes.fromhex(data))
    for group_size in range(-32768, 0):
        with pytest.raises(Malformed):
            decode_key(b"\x00\x00" + group_size.to_bytes(2, "big", signed=True) + bytes(600))


def test_keys_cut_short_are_truncated() -> None:
    kinds = {record.key[:2]: record.key for record in one_of_each_kind().values()}
    assert len(kinds) == 23
    for key in (GOLDEN["offset-key"], GOLDEN["group-key"], *kinds.values()):
        for cut in range(len(key)):
            with pytest.raises(Truncated):
                decode_key(key[:cut])


# Values


@pytest.mark.parametrize("name", GOLDEN_VALUES)
def test_golden_values(name: str) -> None:
    record_type, expected = GOLDEN_VALUES[name]
    version, value = decode_value(record_type, GOLDEN[name])
    assert value == expected
    assert version == int.from_bytes(GOLDEN[name][:2], "big")
    assert encode_value(record_type, version, value) == GOLDEN[name]


def test_values_of_type_0_read_like_those_of_type_1() -> None:
    commits = {name: expected for name, (record_type, expected) in GOLDEN_VALUES.items() if record_type == 1}
    assert len(commits) == 7
    assert {name: decode_value(0, GOLDEN[name])[1] for name in commits} == commits


def test_a07_below_2_1_iv0_a_commit_is_version_1_and_loses_its_epoch() -> None:
    for protocol in ("0.8.2", "0.9", "0.10.1-IV0", "1.1", "2.0-IV1", "2.0"):
        assert offset_value_version(protocol) == 1
    assert reread(COMMIT, 1) == COMMIT._replace(leader_epoch=-1)
    assert encode_offset_value(COMMIT, 1)[-8:] == b"\xff" * 8


def test_a08_at_2_1_iv0_a_commit_is_version_2_and_loses_its_epoch() -> None:
    assert offset_value_version("2.1-IV0") == 2
    assert reread(COMMIT, 2) == COMMIT._replace(leader_epoch=-1)


def test_a09_from_2_1_iv1_a_commit_is_version_3_and_loses_nothing() -> None:
    for protocol in ("2.1-IV1", "2.1", "2.1-IV2", "2.6.3", "3.9-IV0", "3.9", "4.0-IV3", "4.0"):
        assert offset_value_version(protocol) == 3
    assert reread(COMMIT, 3) == COMMIT


def test_from_4_1_and_by_default_a_commit_is_version_4() -> None:
    for protocol in (None, "4.1-IV0", "4.1", "4.3-IV0", "10.0"):
        assert offset_value_version(protocol) == 4
    assert reread(COMMIT._replace(topic_id=TOPIC_ID), 4) == COMMIT._replace(topic_id=TOPIC_ID)


def test_a_commit_with_an_expire_timestamp_is_always_version_1() -> None:
    for protocol in (None, "0.9", "2.1-IV0", "3.9", "4.3"):
        assert offset_value_version(protocol, has_expire_timestamp=True) == 1


@pytest.mark.parametrize("text", ["", "two", "2", "2.1-IV", "2.1-iv1", "-1.0", "2.1 IV1", "٢.١"])
def test_a_protocol_version_that_is_none_is_named(text: str) -> None:
    with pytest.raises(BadInput, match=r"inter\.broker\.protocol\.version"):
        offset_value_version(text)
    with pytest.raises(BadInput, match=r"inter\.broker\.protocol\.version"):
        group_value_version(text)


def test_a11_an_expire_timestamp_of_minus_one_is_absent() -> None:
    value = reread(COMMIT, 1)
    assert isinstance(value, OffsetValue)
    assert value.expire_timestamp_ms == -1 == COMMIT.expire_timestamp_ms


def test_a12_a_flexible_commit_is_read() -> None:
    assert decode_value(1, GOLDEN["offset-v4"]) == (4, OffsetValue(42, 7, "m", NOON))


def test_a13_unknown_tagged_fields_of_a_commit_are_skipped_and_kept() -> None:
    data = GOLDEN["offset-v4"][:-1] + bytes.fromhex("02 05 02 cafe 8001 00")
    version, value = decode_value(1, data)
    assert value == OffsetValue(42, 7, "m", NOON, unknown_tags=((5, b"\xca\xfe"), (128, b"")))
    assert encode_value(1, version, value) == data
    with_id = GOLDEN["offset-v4"][:-1] + bytes.fromhex("02 00 10") + TOPIC_ID + bytes.fromhex("05 01 aa")
    version, value = decode_value(1, with_id)
    assert value == OffsetValue(42, 7, "m", NOON, topic_id=TOPIC_ID, unknown_tags=((5, b"\xaa"),))
    assert encode_value(1, version, value) == with_id


def test_a_topic_id_of_the_wrong_size_is_malformed() -> None:
    with pytest.raises(Malformed, match="topic id"):
        decode_value(1, GOLDEN["offset-v4"][:-1] + bytes.fromhex("01 00 02 0000"))


def test_a_flexible_commit_reads_the_same_whatever_its_metadata_and_tags() -> None:
    for size in (0, 1, 125, 126, 127, 128, 4096):
        for topic_id in (NO_TOPIC_ID, TOPIC_ID):
            for tags in ((), ((3, b"x"),)):
                commit = OffsetValue(1, 2, "m" * size, 3, -1, topic_id, tags)
                assert reread(commit, 4) == commit
    start = bytes.fromhex("0004 000000000000002a 00000007")
    padded_size = start + bytes.fromhex("8200 6d 00000174876e8000 00")
    assert decode_value(1, padded_size + bytes(153 - len(padded_size)))[1] == OffsetValue(42, 7, "m", NOON)
    for null_metadata in ("00 00000174876e8000 00", "00 00000174876e8001 00 10" + "00" * 16):
        with pytest.raises(Malformed):
            decode_value(1, start + bytes.fromhex(null_metadata))


def test_a_negative_metadata_length_is_malformed() -> None:
    for data in ("0000 000000000000002a ffff 00000174876e8000", "0003 000000000000002a 00000007 8000 0000000000000000"):
        with pytest.raises(Malformed):
            decode_value(1, bytes.fromhex(data))


def test_a14_a_flexible_group_is_read() -> None:
    assert reread(GROUP, 4) == GROUP
    tagged = GROUP._replace(
        members=(MEMBER._replace(unknown_tags=((3, b"x"),)), MEMBER), unknown_tags=((0, b""), (9, b"yz"))
    )
    assert reread(tagged, 4) == tagged


def test_a16_a_group_is_written_in_version_3_and_never_in_4() -> None:
    for protocol in (None, "2.3-IV0", "2.3", "2.6", "3.9", "4.0", "4.1", "4.3"):
        assert group_value_version(protocol) == 3


def test_a17_groups_written_under_old_protocols_are_read() -> None:
    assert [group_value_version(protocol) for protocol in ("0.9", "0.10.0", "0.10.1-IV0", "2.0", "2.1", "2.2")] == [
        0,
        0,
        1,
        1,
        2,
        2,
    ]
    for version in (0, 1, 2):
        value = reread(GROUP, version)
        assert isinstance(value, GroupValue)
        assert value[:4] == GROUP[:4]
        assert [(member.member_id, member.instance_id) for member in value.members] == [("c-1", None)]


def test_a18_the_state_timestamp_is_known_from_version_2() -> None:
    for version, expected in enumerate((-1, -1, NOON, NOON, NOON)):
        value = reread(GROUP, version)
        assert isinstance(value, GroupValue)
        assert value.state_timestamp_ms == expected


def test_a19_the_rebalance_timeout_of_version_0_is_the_session_timeout() -> None:
    for version, expected in enumerate((45000, 300000, 300000, 300000, 300000)):
        value = reread(GROUP, version)
        assert isinstance(value, GroupValue)
        assert value.members[0].rebalance_timeout_ms == expected
        assert value.members[0].session_timeout_ms == 45000


def test_a21_an_unknown_group_version_is_named() -> None:
    with pytest.raises(UnsupportedVersion, match="unknown group metadata version -32768"):
        decode_value(2, b"\x80\x00" + GOLDEN["group-v3"][2:])


@pytest.mark.parametrize("version", [-32768, -1, 5, 32767])
def test_unknown_versions_of_every_kind_are_named(version: int) -> None:
    prefix = version.to_bytes(2, "big", signed=True)
    with pytest.raises(UnsupportedVersion, match=f"unknown offset commit version {version}"):
        decode_value(0, prefix + bytes(30))
    with pytest.raises(UnsupportedVersion, match=f"unknown offset commit version {version}"):
        encode_offset_value(COMMIT, version)
    with pytest.raises(UnsupportedVersion, match=f"unknown group metadata version {version}"):
        encode_group_value(GROUP, version)
    for record_type, known in RECORD_TYPES.items():
        with pytest.raises(UnsupportedVersion, match=f"unknown {known.name} version {version}"):
            decode_value(record_type, prefix + bytes(30))


def test_a27_an_empty_consumer_group_keeps_generation_and_type() -> None:
    value = decode_value(2, GOLDEN["group-v3-empty"])[1]
    assert value == GroupValue("consumer", 5, None, None, NOON, members=())


def test_a28_a_simple_group_has_no_protocol_type() -> None:
    simple = GroupValue("", 0, None, None, NOON)
    assert encode_group_value(simple, 3) == GOLDEN["group-v3-new"]
    assert reread(simple, 3) == simple


def test_a29_members_without_a_protocol_are_not_written() -> None:
    for version in range(5):
        with pytest.raises(Malformed, match="no protocol"):
            encode_group_value(GROUP._replace(protocol=None), version)


def test_values_of_unknown_types_have_no_layout() -> None:
    for record_type in (18, 24, 32767, -1):
        with pytest.raises(Malformed, match=f"record type {record_type}"):
            decode_value(record_type, b"\x00\x00\x00")


def test_bytes_after_a_value_are_ignored() -> None:
    for name, (record_type, expected) in GOLDEN_VALUES.items():
        if not name.startswith("share-"):  # there, more bytes may mean another layout
            assert decode_value(record_type, GOLDEN[name] + b"junk")[1] == expected
    assert decode_key(GOLDEN["offset-key"] + b"junk") == OffsetKey("g1", "t1", 3)


def test_a_tagged_field_that_does_not_fill_its_size_is_malformed() -> None:
    group = bytes.fromhex("0000 00000001")
    assert decode_value(3, group + bytes.fromhex("01 00 08 0000000000000007 "))[1] == StructValue(
        0, {"epoch": 1, "metadataHash": 7}
    )
    with pytest.raises(Malformed):
        decode_value(3, group + bytes.fromhex("01 00 09 000000000000000700"))
    with pytest.raises(Truncated):
        decode_value(3, group + bytes.fromhex("01 00 07 00000000000007"))


def test_a_tagged_field_left_out_has_kafkas_default_which_is_not_null() -> None:
    member = bytes.fromhex("0000 00 00 02 63 02 2f 01 01 ffffffff 00")
    absent = decode_value(5, member + b"\x00")[1]
    explicit_null = decode_value(5, member + bytes.fromhex("01 00 01 00"))[1]
    assert isinstance(absent, StructValue)
    assert isinstance(explicit_null, StructValue)
    assert absent.data["classicMemberMetadata"] == {"sessionTimeoutMs": 0, "supportedProtocols": []}
    assert explicit_null.data["classicMemberMetadata"] is None
    assert encode_struct_value(5, absent) == member + b"\x00"
    assert encode_struct_value(5, explicit_null) == member + bytes.fromhex("01 00 01 00")


def test_assignment_epochs_left_out_are_an_empty_list() -> None:
    current = bytes.fromhex("0000 00000002 00000001 00 02") + TOPIC_ID + bytes.fromhex("02 00000003")
    for tags, expected in (("00", []), ("01 00 01 00", None), ("01 00 05 02 00000002", [2])):
        data = current + bytes.fromhex(tags) + b"\x01\x00"
        value = decode_value(8, data)[1]
        assert isinstance(value, StructValue)
        assert value.data["assignedPartitions"][0]["assignmentEpochs"] == expected
        assert encode_struct_value(8, value) == data


def test_a_megabyte_of_unknown_tags_is_read_at_once() -> None:
    """In time that grows with the square of their number this would take a quarter of an hour."""
    count = 500_000
    value = decode_value(3, bytes.fromhex("0000 00000001") + b"\xa0\xc2\x1e" + b"\x05\x00" * count)[1]
    assert isinstance(value, StructValue)
    assert len(value.data[UNKNOWN_TAGS]) == count


def test_the_layout_that_uses_a_value_up_is_preferred_to_one_that_merely_reads_it() -> None:
    # Layout of 4.0 with an unknown tag; that of 4.1 would read three empty lists, no tags, and leave three bytes.
    data = bytes.fromhex("0000 01 01 01 00 02 cafe")
    value = decode_value(15, data)[1]
    assert value == StructValue(0, {"initializedTopics": [], "deletingTopics": [], UNKNOWN_TAGS: ((0, b"\xca\xfe"),)})
    assert isinstance(value, StructValue)
    assert encode_struct_value(15, value) == data


def test_defaults_are_not_shared_between_values() -> None:
    first = decode_value(17, bytes.fromhex("0000 00000001 0000000000000001 00"))[1]
    assert isinstance(first, StructValue)
    first.data["lastAssignmentConfigs"].append({"key": "k", "value": "v"})
    second = decode_value(17, bytes.fromhex("0000 00000001 0000000000000001 00"))[1]
    assert isinstance(second, StructValue)
    assert second.data["lastAssignmentConfigs"] == []


def test_a_struct_with_fields_of_no_layout_is_refused() -> None:
    with pytest.raises(Malformed, match="ShareGroupMetadata has no layout"):
        encode_struct_value(11, StructValue(0, {"epoch": 1, "hash": 2}))


# Every truncation: a value cut short is an error, unless the rest happens to be the older layout of types 11 and 15.


def assert_cuts_are_errors(record_type: int, data: bytes) -> None:
    for cut in range(len(data)):
        if record_type in (11, 15):
            with contextlib.suppress(CodecError):
                decode_value(record_type, data[:cut])
        else:
            with pytest.raises(Truncated):
                decode_value(record_type, data[:cut])


@pytest.mark.parametrize("name", GOLDEN_VALUES)
def test_golden_values_cut_short_are_truncated(name: str) -> None:
    assert_cuts_are_errors(GOLDEN_VALUES[name][0], GOLDEN[name])


def test_values_of_every_kind_in_the_corpora_cut_short_are_truncated() -> None:
    kinds = one_of_each_kind()
    assert set(kinds) == {(0, 0), *((1, v) for v in range(1, 5)), *((2, v) for v in range(4))} | {
        (record_type, 0) for record_type in RECORD_TYPES
    }
    for (record_type, _), record in kinds.items():
        assert record.value is not None
        assert_cuts_are_errors(record_type, record.value)


# Every record of every corpus


@pytest.mark.parametrize("name", NAMES)
def test_every_record_of_the_corpora_is_written_back_byte_for_byte(name: str) -> None:
    keys = values = 0
    for record in records(name):
        key = decode_key(record.key)
        assert not isinstance(key, UnknownKey)
        assert encode_key(key) == record.key
        keys += 1
        if record.value is not None:
            version, value = decode_value(key.record_type, record.value)
            assert encode_value(key.record_type, version, value) == record.value
            values += 1
    assert keys >= values > 0


def test_there_are_corpora() -> None:
    assert len(NAMES) == 19
    assert sum(len(records(name)) for name in NAMES) > 50_000


# Properties

UNKNOWN = st.lists(st.tuples(st.integers(10, 5000), BLOB), max_size=2, unique_by=lambda field: field[0]).map(
    lambda fields: tuple(sorted(fields))
)
COMMITS = st.builds(OffsetValue, INT64, INT32, TEXT, INT64, INT64, st.just(NO_TOPIC_ID) | UUIDS, UNKNOWN)
MEMBERS = st.builds(MemberValue, TEXT, st.none() | TEXT, TEXT, TEXT, INT32, INT32, BLOB, BLOB, UNKNOWN)
GROUPS = st.builds(
    GroupValue, TEXT, INT32, TEXT, st.none() | TEXT, INT64, st.lists(MEMBERS, max_size=3).map(tuple), UNKNOWN
)
SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "int8": st.integers(-128, 127),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "int32": INT32,
    "int64": INT64,
    "uuid": UUIDS,
    "bytes": BLOB,
    "string": TEXT,
}


def structs_of(fields: tuple[Field, ...]) -> st.SearchStrategy[Any]:
    values = {field.name: values_of(field) for field in fields}
    return st.fixed_dictionaries(values, optional={UNKNOWN_TAGS: UNKNOWN.filter(bool)})


def values_of(field: Field) -> st.SearchStrategy[Any]:
    values = structs_of(field.fields) if field.kind == "struct" else SCALARS[field.kind]
    if field.is_array:
        values = st.lists(values, max_size=2)
    if 0 in field.nullable:
        values = st.none() | values
    return values if field.tag is None else st.just(field.default) | values


STRUCTS = {
    record_type: st.one_of([structs_of(layout.message.fields) for layout in layouts_of(record_type)])
    for record_type in RECORD_TYPES
}


@bounded
@given(COMMITS, st.integers(0, 4))
def test_commits_come_back_with_what_their_version_holds(commit: OffsetValue, version: int) -> None:
    held = commit._replace(
        leader_epoch=commit.leader_epoch if version >= 3 else -1,
        expire_timestamp_ms=commit.expire_timestamp_ms if version == 1 else -1,
        topic_id=commit.topic_id if version >= 4 else NO_TOPIC_ID,
        unknown_tags=commit.unknown_tags if version >= 4 else (),
    )
    assert reread(commit, version) == held


@bounded
@given(GROUPS, st.integers(0, 4))
def test_groups_come_back_with_what_their_version_holds(group: GroupValue, version: int) -> None:
    held = group._replace(
        state_timestamp_ms=group.state_timestamp_ms if version >= 2 else -1,
        unknown_tags=group.unknown_tags if version >= 4 else (),
        members=tuple(
            member._replace(
                instance_id=member.instance_id if version >= 3 else None,
                rebalance_timeout_ms=member.rebalance_timeout_ms if version >= 1 else member.session_timeout_ms,
                unknown_tags=member.unknown_tags if version >= 4 else (),
            )
            for member in group.members
        ),
    )
    assert reread(group, version) == held


@pytest.mark.parametrize("record_type", RECORD_TYPES)
@bounded
@given(data=st.data())
def test_structs_come_back(record_type: int, data: st.DataObject) -> None:
    value = StructValue(0, data.draw(STRUCTS[record_type]))
    encoded = encode_struct_value(record_type, value)
    _, read = decode_value(record_type, encoded)
    assert isinstance(read, StructValue)
    if record_type in (11, 15) and read.data.keys() != value.data.keys():
        return  # these bytes happen to be the other layout too
    assert read == value
    assert encode_value(record_type, 0, read) == encoded


@bounded
@given(
    st.one_of(
        st.builds(OffsetKey, TEXT, TEXT, INT32, st.sampled_from([0, 1])),
        st.builds(GroupKey, TEXT),
        st.sampled_from(sorted(RECORD_TYPES)).flatmap(
            lambda record_type: st.builds(
                TypedKey,
                st.just(record_type),
                st.tuples(*[TEXT for _ in RECORD_TYPES[record_type].key_fields]),
            )
        ),
    )
)
def test_keys_come_back(key: OffsetKey | GroupKey | TypedKey) -> None:
    assert decode_key(encode_key(key)) == key


@bounded
@given(st.integers(-1, 25), st.integers(-1, 5), st.binary(max_size=80))
def test_arbitrary_bytes_raise_nothing_but_codec_errors(record_type: int, version: int, data: bytes) -> None:
    for attempt in (data, version.to_bytes(2, "big", signed=True) + data):
        with contextlib.suppress(CodecError):
            decode_value(record_type, attempt)
    for attempt in (data, record_type.to_bytes(2, "big", signed=True) + data):
        with contextlib.suppress(CodecError):
            decode_key(attempt)


@bounded
@given(st.data())
def test_a_damaged_byte_raises_nothing_but_codec_errors(data: st.DataObject) -> None:
    kinds = one_of_each_kind()
    record_type, _ = kind = data.draw(st.sampled_from(sorted(kinds)))
    value = bytearray(kinds[kind].value or b"")
    value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(CodecError):
        decode_value(record_type, value)
