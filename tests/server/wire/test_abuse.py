"""Requests that were made to hurt: what they may cost."""

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from muster.codec.primitives import Writer
from muster.protocol.apis import ApiKey
from muster.protocol.errors import BadBody
from muster.protocol.messages import decode_request
from muster.protocol.reader import MAX_ELEMENTS
from muster.server.wire import offset_commit
from muster.server.wire.heartbeat import decode_heartbeat
from muster.server.wire.offset_commit import decode_offset_commit
from muster.server.wire.offset_fetch import decode_offset_fetch
from tests.server.wire.requests import TOPICS

MEGABYTE = 1 << 20
TOO_MANY = MAX_ELEMENTS + 1
int32 = TOO_MANY.to_bytes(4, "big")


@contextmanager
def traced() -> Iterator[Callable[[], int]]:
    """The most memory in use inside, once it is over."""
    peaks: list[int] = []
    tracemalloc.start()
    try:
        yield lambda: peaks[0]
    finally:
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()


def compact(count: int) -> bytes:
    writer = Writer()
    writer.compact_array_count(count)
    return writer.finish()


def commit(version: int) -> Callable[[bytes], object]:
    return lambda data: decode_offset_commit(version, 1, data, 0, len(data), TOPICS)


def fetch(version: int) -> Callable[[bytes], object]:
    return lambda data: decode_offset_fetch(version, 1, data, 0, len(data), TOPICS)


def by_layout(key: ApiKey, version: int) -> Callable[[bytes], object]:
    return lambda data: decode_request(key, version, data)


def heartbeat(data: bytes) -> object:
    return decode_heartbeat(4, data, 0, len(data))


MANY = compact(TOO_MANY)
ONE_OLD, ORDERS, OLD_ORDERS = b"\x00\x00\x00\x01", b"\x07orders", b"\x00\x06orders"
PARTITION = ONE_OLD + bytes(8) + b"\xff\xff"
JOIN = b"\x02g" + bytes(8) + b"\x01\x00\x01"
OLD_COMMIT = b"\x00\x01g" + bytes(4) + b"\x00\x01m" + bytes(8)
FLEXIBLE_COMMIT = b"\x02g" + bytes(4) + b"\x02m\x00"
FETCH = b"\x02\x02g\x00" + bytes(4)
CASES: dict[str, tuple[Callable[[bytes], object], bytes]] = {
    "groups to describe": (by_layout(ApiKey.DESCRIBE_GROUPS, 0), int32 + bytes(2 * TOO_MANY)),
    "protocols to join with": (by_layout(ApiKey.JOIN_GROUP, 9), JOIN + MANY + b"\x01\x01\x00" * TOO_MANY),
    "partitions, old": (commit(2), OLD_COMMIT + ONE_OLD + OLD_ORDERS + int32 + PARTITION * TOO_MANY),
    "topics, old": (commit(2), OLD_COMMIT + int32 + (OLD_ORDERS + ONE_OLD + PARTITION) * TOO_MANY),
    "partitions, flexible": (commit(9), FLEXIBLE_COMMIT + b"\x02" + ORDERS + MANY + bytes(18 * TOO_MANY)),
    "topics of no partition": (commit(9), FLEXIBLE_COMMIT + MANY + b"\x01\x01\x00" * TOO_MANY),
    "partitions to fetch": (fetch(9), FETCH + b"\x02" + ORDERS + MANY + bytes(4 * TOO_MANY)),
    "groups to fetch": (fetch(9), MANY + b"\x01\x00\x00\x00\x00\x00\x00\x00" * TOO_MANY),
    "tagged fields": (heartbeat, b"\x02g" + bytes(4) + b"\x02m\x00" + MANY + bytes(3 * TOO_MANY)),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_too_much_of_anything_is_refused_before_it_costs_anything(case: str) -> None:
    decode, data = CASES[case]
    with traced() as peak, pytest.raises(BadBody, match="limit"):
        decode(data)
    assert peak() < MEGABYTE


@pytest.mark.parametrize("case", CASES)
def test_a_count_that_lies_costs_nothing(case: str) -> None:
    decode, data = CASES[case]
    with traced() as peak, pytest.raises(BadBody):
        decode(data[:60])
    assert peak() < MEGABYTE


def test_the_limit_is_on_topics_and_partitions_together(monkeypatch: pytest.MonkeyPatch) -> None:
    data = OLD_COMMIT + b"\x00\x00\x00\x03" + (OLD_ORDERS + ONE_OLD + PARTITION) * 3
    assert offset_commit._decode_usual_old(2, 1, data, 0, len(data), TOPICS) is not None
    monkeypatch.setattr(offset_commit, "MAX_ELEMENTS", 6)
    assert offset_commit._decode_usual_old(2, 1, data, 0, len(data), TOPICS) is not None
    monkeypatch.setattr(offset_commit, "MAX_ELEMENTS", 5)
    assert offset_commit._decode_usual_old(2, 1, data, 0, len(data), TOPICS) is None, (
        "it is left to the slow way, which has the words for it"
    )
