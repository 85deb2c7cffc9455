"""Packed offsets say what the values said."""

from hypothesis import given
from hypothesis import strategies as st

from muster.codec.committed import (
    FIXED_BYTES,
    fetched,
    is_further,
    log_offset_of,
    pack,
    times_ms,
    topic_id_of,
    unpack,
)
from muster.codec.offsets_topic import NO_TOPIC_ID, OffsetValue, encode_offset_value, encode_plain_commit

LONGS = st.integers(-(2**63), 2**63 - 1)
LOG_OFFSETS = st.integers(0, 2**63 - 1)
TOPIC_IDS = st.one_of(st.just(NO_TOPIC_ID), st.binary(min_size=16, max_size=16))
VALUES = st.builds(
    OffsetValue, LONGS, st.integers(-(2**31), 2**31 - 1), st.text(max_size=20), LONGS, LONGS, TOPIC_IDS, st.just(())
)


@given(LOG_OFFSETS, VALUES)
def test_there_and_back(log_offset: int, value: OffsetValue) -> None:
    packed = pack(log_offset, value)
    assert unpack(packed) == (log_offset, value)
    assert fetched(packed) == value[:3]
    assert times_ms(packed) == (value.commit_timestamp_ms, value.expire_timestamp_ms)
    assert topic_id_of(packed) == value.topic_id
    assert log_offset_of(packed) == log_offset
    assert len(packed) == FIXED_BYTES + len(value.metadata.encode())


@given(LOG_OFFSETS, LOG_OFFSETS, VALUES)
def test_further_down_the_log(one: int, other: int, value: OffsetValue) -> None:
    assert is_further(pack(one, value), pack(other, value)) == (one > other)


def test_bytes_that_are_not_text_come_back() -> None:
    value = OffsetValue(1, metadata=b"\xff\xfe".decode("utf-8", "surrogateescape"))
    assert unpack(pack(0, value)).value == value


@given(VALUES)
def test_the_quick_encoder_is_the_encoder(value: OffsetValue) -> None:
    plain = value._replace(metadata="", expire_timestamp_ms=-1)
    quick = encode_plain_commit(plain.committed_offset, plain.leader_epoch, plain.commit_timestamp_ms, plain.topic_id)
    assert quick == encode_offset_value(plain._replace(unknown_tags=()), 4)
