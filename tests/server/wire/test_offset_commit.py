"""OffsetCommit by hand is OffsetCommit by the book, and refuses what Kafka refuses, in Kafka's order."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.codec.error_codes import ErrorCode
from muster.core.events import ALL_COMMITTED, CommitAnswer, OffsetCommit
from muster.protocol.apis import ApiKey
from muster.protocol.errors import BadBody, WireError
from muster.protocol.messages import decode_request, decode_response, encode_response
from muster.server.wire.offset_commit import CommitReply, decode_offset_commit, decode_plain, encode_offset_commit
from tests.protocol.strategies import int32s, int64s, more_at_length, patient, texts
from tests.server.wire.requests import (
    CLICKS_ID,
    ORDERS_ID,
    TOPICS,
    body,
    changed_everywhere,
    cut_short,
    damaged,
    lengths_in_two_bytes,
    metadata,
    placed,
    tagged_body,
    topic_keys,
)

VERSIONS = range(2, 11)
KEY = ApiKey.OFFSET_COMMIT
INT64_MAX = 2**63 - 1
versions = st.sampled_from(VERSIONS)
errors = st.sampled_from(ErrorCode)
every_version = pytest.mark.parametrize("version", VERSIONS)

partitions = st.fixed_dictionaries(
    {
        "partitionIndex": st.integers(-1, 4),
        "committedOffset": int64s,
        "committedLeaderEpoch": int32s,
        "committedMetadata": st.none() | metadata,
    }
)
topics = st.builds(
    lambda key, some: {"name": key[0], "topicId": key[1], "partitions": some},
    topic_keys,
    st.lists(partitions, max_size=3),
)
messages = st.fixed_dictionaries(
    {
        "groupId": texts,
        "generationIdOrMemberEpoch": int32s,
        "memberId": texts,
        "groupInstanceId": st.none() | texts,
        "retentionTimeMs": int64s,
        "topics": st.lists(topics, max_size=4),
    }
)


plain_names = st.text("abc", min_size=1, max_size=5)
plain_topics = st.builds(
    lambda key, some: {"name": key[0], "topicId": key[1], "partitions": some},
    st.sampled_from([("orders", ORDERS_ID), ("clicks", CLICKS_ID)]),
    st.lists(
        st.builds(
            lambda index, metadata: {"partitionIndex": index, "committedOffset": 5, "committedMetadata": metadata},
            st.sampled_from([0, 1, 2, 2, 1, 3]),
            st.sampled_from([None, "", "seen", "m" * 126, "m" * 127]),
        ),
        min_size=1,
        max_size=3,
    ),
)
plain_messages = st.fixed_dictionaries(
    {
        "groupId": plain_names,
        "memberId": plain_names,
        "groupInstanceId": st.none() | plain_names,
        "topics": st.lists(plain_topics, min_size=1, max_size=3),
    }
)
"""Much nearer to what consumers say."""


def usual(version: int, **changes: Any) -> bytes:
    """The request of a consumer on an ordinary day."""
    some = [{"partitionIndex": index, "committedOffset": 40 + index, "committedMetadata": ""} for index in range(3)]
    message = {
        "groupId": "billing",
        "generationIdOrMemberEpoch": 7,
        "memberId": "consumer-1-b3b4",
        "topics": [
            {"name": "orders", "topicId": ORDERS_ID, "partitions": some},
            {"name": "clicks", "topicId": CLICKS_ID, "partitions": some[:1]},
        ],
        **changes,
    }
    return body(KEY, version, message)


class Judge:
    """Kafka's way with a request, step by step, on the message as the layout reads it."""

    def __init__(self, version: int, data: bytes) -> None:
        self.version = version
        self.message = decode_request(KEY, version, data)
        self.accepted: list[tuple[Any, ...]] = []
        self._answer: list[tuple[Any, list[list[Any]]]] = []
        waiting: list[tuple[Any, list[list[Any]]]] = []
        for topic in self.message["topics"]:
            key = topic["topicId"] if version >= 10 else topic["name"]
            name = TOPICS.by_id.get(key) if version >= 10 else key
            kept: list[list[Any]] = []
            if name not in TOPICS.by_name:
                self._topic(key)
            for one in topic["partitions"]:
                index = one["partitionIndex"]
                if name is None:
                    self._topic(key).append([index, ErrorCode.UNKNOWN_TOPIC_ID])
                elif name not in TOPICS.by_name or not 0 <= index < TOPICS.by_name[name][1]:
                    self._topic(key).append([index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
                else:
                    fields = (one["committedOffset"], one["committedLeaderEpoch"], one["committedMetadata"])
                    self.accepted.append((name, index, *fields, TOPICS.by_name[name][0]))
                    kept.append([index, len(self.accepted) - 1])
            if kept:
                waiting.append((key, kept))
        if not self._answer:
            self._answer = waiting
        else:
            for key, kept in waiting:
                self._topic(key).extend(kept)

    def _topic(self, key: Any) -> list[list[Any]]:
        for known, some in self._answer:
            if known == key:
                return some
        self._answer.append((key, []))
        return self._answer[-1][1]

    @property
    def event(self) -> OffsetCommit | None:
        if not self.accepted:
            return None
        said = self.message
        return OffsetCommit(
            None,
            said["groupId"],
            said["generationIdOrMemberEpoch"],
            said["memberId"],
            tuple(self.accepted),
            said["groupInstanceId"],
            said["retentionTimeMs"],
            self.version,
        )

    def frame(self, correlation_id: int, answered: list[ErrorCode]) -> bytes:
        told = [
            {
                "topicId" if self.version >= 10 else "name": key,
                "partitions": [
                    {"partitionIndex": index, "errorCode": what if isinstance(what, ErrorCode) else answered[what]}
                    for index, what in some
                ],
            }
            for key, some in self._answer
        ]
        return encode_response(KEY, self.version, correlation_id, {"topics": told})


def decode(version: int, data: bytes) -> tuple[OffsetCommit | None, CommitReply]:
    return decode_offset_commit(version, 5, data, 0, len(data), TOPICS)


@settings(patient, max_examples=150)
@given(version=versions, message=messages | plain_messages, data=st.data())
@more_at_length
def test_a_request_and_its_answer_are_what_the_layout_says(
    again: int, version: int, message: dict[str, Any], data: st.DataObject
) -> None:
    encoded = body(KEY, version, message)
    judge = Judge(version, encoded)
    codes = data.draw(st.lists(errors, min_size=len(judge.accepted), max_size=len(judge.accepted)))
    fine = [ErrorCode.NONE] * len(codes)
    tagged = tagged_body(KEY, version, message)
    for buffer, position, end in [*placed(encoded), (tagged, 0, len(tagged))]:
        event, reply = decode_offset_commit(version, 5, buffer, position, end, TOPICS)
        assert event == judge.event
        assert encode_offset_commit(reply, ALL_COMMITTED) == judge.frame(5, fine)
        if event is not None:
            assert encode_offset_commit(reply, CommitAnswer(tuple(codes))) == judge.frame(5, codes)


@every_version
def test_the_usual_request_takes_the_short_way(version: int) -> None:
    for data in (usual(version), usual(version, groupInstanceId="seat-1")):
        event, (_, frame, positions) = decode(version, data)
        assert event == Judge(version, data).event
        assert positions is None, "it was read the long way"
        assert frame == Judge(version, data).frame(5, [ErrorCode.NONE] * 4)


@every_version
def test_errors_go_where_their_partitions_are(version: int) -> None:
    data = usual(version)
    _, reply = decode(version, data)
    codes = [ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode(-1)]
    frame = encode_offset_commit(reply, CommitAnswer(tuple(codes)))
    _, answer = decode_response(KEY, version, frame)
    told = [one["errorCode"] for topic in answer["topics"] for one in topic["partitions"]]
    assert told == [0, 12, 25, -1]
    with pytest.raises(ValueError, match="zip"):
        encode_offset_commit(reply, CommitAnswer((ErrorCode.NONE,)))


def test_what_is_refused_comes_first_as_in_kafka() -> None:
    one, other = {"partitionIndex": 0}, {"partitionIndex": 9}
    asked = [
        {"name": "orders", "partitions": [one]},
        {"name": "gone", "partitions": [one]},
        {"name": "orders", "partitions": [other, {"partitionIndex": 1}]},
    ]
    event, reply = decode(9, usual(9, topics=asked))
    assert event is not None
    assert [(where[0], where[1]) for where in event.partitions] == [("orders", 0), ("orders", 1)]
    _, answer = decode_response(KEY, 9, encode_offset_commit(reply, CommitAnswer((ErrorCode(27), ErrorCode(25)))))
    told = [
        (topic["name"], [(one["partitionIndex"], one["errorCode"]) for one in topic["partitions"]])
        for topic in answer["topics"]
    ]
    assert told == [("gone", [(0, 3)]), ("orders", [(9, 3), (0, 27), (1, 25)])]


def test_an_unknown_topic_id_is_refused() -> None:
    asked = [{"topicId": b"?" * 16, "partitions": [{"partitionIndex": 0}]}]
    event, reply = decode(10, usual(10, topics=asked))
    assert event is None
    _, answer = decode_response(KEY, 10, encode_offset_commit(reply, ALL_COMMITTED))
    assert answer["topics"][0]["partitions"] == [{"partitionIndex": 0, "errorCode": 100}]


@every_version
def test_nothing_asked_is_nothing_told(version: int) -> None:
    for asked in ([], [{"name": "orders", "topicId": ORDERS_ID, "partitions": []}]):
        event, (_, frame, _) = decode(version, usual(version, topics=asked))
        assert event is None
        assert decode_response(KEY, version, frame)[1]["topics"] == []


@pytest.mark.parametrize("version", [2, 3, 4])
def test_the_longest_retention_there_is(version: int) -> None:
    event, _ = decode(version, usual(version, retentionTimeMs=INT64_MAX))
    assert event is not None
    assert event.retention_ms == INT64_MAX


@settings(patient, max_examples=8)
@given(version=versions, message=messages)
@more_at_length
def test_a_request_cut_short_is_an_error(again: int, version: int, message: dict[str, Any]) -> None:
    for encoded in (body(KEY, version, message), tagged_body(KEY, version, message)):
        for buffer, position, end in cut_short(encoded):
            with pytest.raises(BadBody, match=f"OffsetCommitRequest version {version}: "):
                decode_offset_commit(version, 5, buffer, position, end, TOPICS)


@every_version
def test_the_usual_request_cut_short_is_an_error(version: int) -> None:
    for encoded in (usual(version), tagged_body(KEY, version, decode_request(KEY, version, usual(version)))):
        for buffer, position, end in cut_short(encoded):
            with pytest.raises(BadBody):
                decode_offset_commit(version, 5, buffer, position, end, TOPICS)


def check_as_the_layout_sees_it(version: int, encoded: bytes) -> None:
    try:
        judge = Judge(version, encoded)
    except WireError:
        with pytest.raises(BadBody):
            decode(version, encoded)
        return
    event, reply = decode(version, encoded)
    assert event == judge.event
    assert reply[1] == judge.frame(5, [ErrorCode.NONE] * len(judge.accepted))


@settings(patient, max_examples=150)
@given(version=versions, data=st.data())
@more_at_length
def test_damage_is_seen_as_the_layout_sees_it(again: int, version: int, data: st.DataObject) -> None:
    whole = (messages | plain_messages).map(lambda message: body(KEY, version, message))
    check_as_the_layout_sees_it(version, data.draw(damaged(whole)))


@pytest.mark.parametrize("version", [2, 6, 7, 9, 10])
@pytest.mark.parametrize("metadata", [None, "", "seen"])
def test_every_changed_byte_is_seen_as_the_layout_sees_it(version: int, metadata: str | None) -> None:
    # No byte above 7f: the whole of it could be text.
    one = {"partitionIndex": 1, "committedOffset": 5, "committedLeaderEpoch": 4, "committedMetadata": metadata}
    said = {
        "groupId": "group",
        "generationIdOrMemberEpoch": 3,
        "memberId": "me",
        "groupInstanceId": metadata,
        "topics": [{"name": "orders", "topicId": ORDERS_ID, "partitions": [one]}],
    }
    for encoded in (*changed_everywhere(whole := body(KEY, version, said)), *lengths_in_two_bytes(whole)):
        check_as_the_layout_sees_it(version, encoded)


@every_version
def test_a_topic_named_twice_is_answered_twice(version: int) -> None:
    one = [{"partitionIndex": 1, "committedOffset": 5}]
    twice = [{"name": "orders", "topicId": ORDERS_ID, "partitions": one}] * 2
    for data in (body(KEY, version, {"topics": twice}), tagged_body(KEY, version, {"topics": twice})):
        _, (_, frame, _) = decode(version, data)
        assert len(decode_response(KEY, version, frame)[1]["topics"]) == 2


@settings(patient, max_examples=300)
@given(versions, st.binary(max_size=100))
def test_any_bytes_are_a_request_or_an_error(version: int, data: bytes) -> None:
    with suppress(WireError):
        decode(version, data)


@every_version
def test_there_is_a_limit_on_partitions(version: int) -> None:
    some = [{"partitionIndex": index} for index in range(150)]
    data = usual(version, topics=[{"name": "clicks", "topicId": CLICKS_ID, "partitions": some}])
    event, _ = decode(version, data)
    assert event is not None
    assert len(event.partitions) == 150
    with pytest.raises(BadBody, match="limit"):
        decode_plain(version, 5, data, 0, len(data), TOPICS, max_elements=150)
