"""A committed offset in bytes says what its value said."""

from hypothesis import given
from hypothesis import strategies as st

from muster.codec.offsets_topic import NO_TOPIC_ID, OffsetValue, encode_offset_value, encode_plain_commit
from muster.codec.partition_state import (
    FIXED_BYTES,
    decode_commit,
    encode_commit,
    fetched,
    is_further,
    log_offset_of,
    times_ms,
    topic_id_of,
)

LONGS = st.integers(-(2**63), 2**63 - 1)
LOG_OFFSETS = st.integers(0, 2**63 - 1)
TOPIC_IDS = st.one_of(st.just(NO_TOPIC_ID), st.binary(min_size=16, max_size=16))
VALUES = st.builds(
    OffsetValue, LONGS, st.integers(-(2**31), 2**31 - 1), st.text(max_size=20), LONGS, LONGS, TOPIC_IDS, st.just(())
)


@given(LOG_OFFSETS, VALUES)
def test_a_packed_commit_is_read_back(log_offset: int, value: OffsetValue) -> None:
    commit_bytes = encode_commit(log_offset, value)
    assert decode_commit(commit_bytes) == (log_offset, value)
    assert fetched(commit_bytes) == value[:3]
    assert times_ms(commit_bytes) == (value.commit_timestamp_ms, value.expire_timestamp_ms)
    assert topic_id_of(commit_bytes) == value.topic_id
    assert log_offset_of(commit_bytes) == log_offset
    assert len(commit_bytes) == FIXED_BYTES + len(value.metadata.encode())


@given(LOG_OFFSETS, LOG_OFFSETS, VALUES)
def test_further_down_the_log(one: int, other: int, value: OffsetValue) -> None:
    assert is_further(encode_commit(one, value), encode_commit(other, value)) == (one > other)


def test_bytes_that_are_not_text_come_back() -> None:
    value = OffsetValue(1, metadata=b"\xff\xfe".decode("utf-8", "surrogateescape"))
    assert decode_commit(encode_commit(0, value)).value == value


@given(VALUES)
def test_the_quick_encoder_is_the_encoder(value: OffsetValue) -> None:
    plain = value._replace(metadata="", expire_timestamp_ms=-1)
    quick = encode_plain_commit(plain.committed_offset, plain.leader_epoch, plain.commit_timestamp_ms, plain.topic_id)
    assert quick == encode_offset_value(plain._replace(unknown_tags=()), 4)
