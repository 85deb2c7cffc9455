"""A commit that begins as the one before it: read from its partitions on, it says what the whole of it says."""

from struct import pack

import pytest

from muster.server.wire import TopicNames
from muster.server.wire.offset_commit import decode_commit_head, decode_offset_commit, decode_partitions

TOPIC_ID = bytes(range(16))
TOPICS = TopicNames({"orders": (TOPIC_ID, 4)}, {TOPIC_ID: "orders"})
AFTER = b"\x01\x02\x03"  # the next frame in the buffer


def text(value: str | None) -> bytes:
    return b"\0" if value is None else bytes([len(value) + 1]) + value.encode()


def commit(
    version: int, partitions: list[tuple[int, int, str | None]], instance_id: str | None = None, topic: str = "orders"
) -> bytes:
    """A body; each partition is an index, an offset and metadata."""
    name = TOPIC_ID if version >= 10 else text(topic)
    body = text("g") + pack(">i", 3) + text("member") + text(instance_id) + b"\x02" + name
    body += bytes([len(partitions) + 1])
    for index, offset, metadata in partitions:
        body += pack(">iqi", index, offset, 7) + text(metadata) + b"\0"
    return body + b"\0\0"


@pytest.mark.parametrize("version", [8, 9, 10])
@pytest.mark.parametrize("instance_id", [None, "i1"])
@pytest.mark.parametrize(
    "partitions",
    [[(0, 5, "")], [(3, 1 << 40, None)], [(1, 5, "note")], [(0, 1, ""), (1, 2, None)], [(2, 9, "x"), (0, 1, "")]],
)
def test_the_rest_behind_a_head_is_the_whole(
    version: int, instance_id: str | None, partitions: list[tuple[int, int, str | None]]
) -> None:
    body = commit(version, partitions, instance_id)
    data = AFTER + body + AFTER
    start, end = len(AFTER), len(AFTER) + len(body)
    found = decode_commit_head(version, data, start, end, TOPICS)
    assert found is not None
    head, position = found
    assert decode_partitions(head, 11, data, position, end, TOPICS) == decode_offset_commit(
        version, 11, data, start, end, TOPICS
    )


@pytest.mark.parametrize(
    "partitions", [[(4, 5, "")], [(-1, 5, "")], [(0, 5, "m" * 127)], [(0, 5, ""), (4, 6, "")]], ids=str
)
def test_what_is_not_usual_is_left_to_others(partitions: list[tuple[int, int, str | None]]) -> None:
    body = commit(9, partitions)
    found = decode_commit_head(9, body, 0, len(body), TOPICS)
    assert found is not None
    assert decode_partitions(found[0], 11, body, found[1], len(body), TOPICS) is None


@pytest.mark.parametrize("count", [1, 2])
def test_a_rest_cut_short_is_not_read_on(count: int) -> None:
    body = commit(9, [(number, 5, "") for number in range(count)])
    found = decode_commit_head(9, body, 0, len(body), TOPICS)
    assert found is not None
    head, position = found
    for end in range(position, len(body)):
        for data in (body[:end], body[:end] + bytes(40)):
            assert decode_partitions(head, 11, data, position, end, TOPICS) is None


def test_no_head_of_a_topic_that_is_not_there_or_of_an_old_version() -> None:
    body = commit(9, [(0, 5, "")], topic="gone")
    assert decode_commit_head(9, body, 0, len(body), TOPICS) is None
    body = commit(9, [(0, 5, "")])
    assert decode_commit_head(7, body, 0, len(body), TOPICS) is None
    found = decode_commit_head(9, body, 0, len(body), TOPICS)
    assert found is not None
    assert decode_partitions(found[0], 1, body, found[1], len(body), TopicNames({}, {})) is None
