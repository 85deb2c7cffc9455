import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.codec.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartitions,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from muster.errors import CodecError, Malformed, Truncated, UnsupportedVersion
from tests.codec.golden_bytes import golden
from tests.codec.strategies import BLOB, INT32, TEXT, bounded

GOLDEN = golden("records.hex")
SUBSCRIPTION_1 = GOLDEN["subscription-v1"]
SUBSCRIPTION_3 = GOLDEN["subscription-v3"]
ASSIGNMENT_1 = GOLDEN["assignment-v1"]

TOPICS = st.lists(
    st.builds(TopicPartitions, TEXT, st.lists(INT32, max_size=4).map(tuple)),
    max_size=3,
).map(tuple)
USER_DATA = st.none() | BLOB


def test_golden_subscriptions() -> None:
    assert decode_subscription(SUBSCRIPTION_1) == Subscription(1, ("t1",))
    assert decode_subscription(SUBSCRIPTION_3) == Subscription(
        3, ("t1",), None, (TopicPartitions("t1", (0,)),), generation_id=4, rack_id="r1"
    )


def test_golden_assignment() -> None:
    assert decode_assignment(ASSIGNMENT_1) == Assignment(1, (TopicPartitions("t1", (0, 1)),))


def test_golden_blobs_are_written_back_and_every_cut_is_truncated() -> None:
    for data in (SUBSCRIPTION_1, SUBSCRIPTION_3):
        assert encode_subscription(decode_subscription(data)) == data
        for cut in range(1, len(data)):
            with pytest.raises(Truncated):
                decode_subscription(data[:cut])
    assert encode_assignment(decode_assignment(ASSIGNMENT_1)) == ASSIGNMENT_1
    for cut in range(1, len(ASSIGNMENT_1)):
        with pytest.raises(Truncated):
            decode_assignment(ASSIGNMENT_1[:cut])


def test_a26_a_blob_of_zero_bytes_provides_nothing() -> None:
    assert decode_subscription(b"") is None
    assert decode_assignment(b"") is None
    assert encode_subscription(None) == encode_assignment(None) == b""


def test_a_newer_version_is_read_with_the_newest_layout() -> None:
    newer = b"\x00\x07" + SUBSCRIPTION_3[2:] + b"fields of the future"
    assert decode_subscription(newer) == Subscription(7, ("t1",), None, (TopicPartitions("t1", (0,)),), 4, "r1")
    assert decode_assignment(b"\x00\x07" + ASSIGNMENT_1[2:] + b"more") == Assignment(
        7, (TopicPartitions("t1", (0, 1)),)
    )


@pytest.mark.parametrize("prefix", [b"\xff\xff", b"\x80\x00"])
def test_a_negative_version_is_refused(prefix: bytes) -> None:
    with pytest.raises(UnsupportedVersion, match="subscription version -"):
        decode_subscription(prefix + SUBSCRIPTION_1[2:])
    with pytest.raises(UnsupportedVersion, match="assignment version -"):
        decode_assignment(prefix + ASSIGNMENT_1[2:])


def test_a_null_list_of_topics_is_malformed() -> None:
    with pytest.raises(Malformed):
        decode_subscription(bytes.fromhex("0000 ffffffff ffffffff"))


@bounded
@given(st.integers(0, 5), st.lists(TEXT, max_size=3).map(tuple), USER_DATA, TOPICS, INT32, st.none() | TEXT)
def test_subscriptions_come_back_with_what_their_version_holds(
    version: int,
    topics: tuple[str, ...],
    user_data: bytes | None,
    owned: tuple[TopicPartitions, ...],
    generation_id: int,
    rack_id: str | None,
) -> None:
    written = encode_subscription(Subscription(version, topics, user_data, owned, generation_id, rack_id))
    assert decode_subscription(written) == Subscription(
        version,
        topics,
        user_data,
        owned if version >= 1 else (),
        generation_id if version >= 2 else -1,
        rack_id if version >= 3 else None,
    )


@bounded
@given(st.integers(0, 5), TOPICS, USER_DATA)
def test_assignments_come_back(version: int, topics: tuple[TopicPartitions, ...], user_data: bytes | None) -> None:
    assignment = Assignment(version, topics, user_data)
    assert decode_assignment(encode_assignment(assignment)) == assignment


@bounded
@given(st.binary(max_size=60))
def test_arbitrary_bytes_raise_nothing_but_codec_errors(data: bytes) -> None:
    for decode in (decode_subscription, decode_assignment):
        for blob in (data, b"\x00\x03" + data):
            with contextlib.suppress(CodecError):
                decode(blob)
