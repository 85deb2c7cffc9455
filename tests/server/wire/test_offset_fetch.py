"""OffsetFetch by hand is OffsetFetch by the book."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.codec.error_codes import ErrorCode
from muster.core.events import FetchAnswer, FetchedOffset, OffsetFetch
from muster.protocol.apis import ApiKey
from muster.protocol.errors import BadBody, WireError
from muster.protocol.messages import decode_request, decode_response, encode_response
from muster.server.wire import offset_fetch
from muster.server.wire.offset_fetch import FetchReply, decode_offset_fetch, encode_offset_fetch
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

VERSIONS = range(1, 11)
KEY = ApiKey.OFFSET_FETCH
versions = st.sampled_from(VERSIONS)
every_version = pytest.mark.parametrize("version", VERSIONS)

topics = st.builds(
    lambda key, indexes: {"name": key[0], "topicId": key[1], "partitionIndexes": indexes},
    topic_keys,
    st.lists(int32s, max_size=3) | st.just(list(range(150))),
)
groups = st.fixed_dictionaries(
    {
        "groupId": texts,
        "memberId": st.none() | texts,
        "memberEpoch": int32s,
        "topics": st.none() | st.lists(topics, max_size=3),
    }
)
found_offsets = st.tuples(int64s, int32s, metadata, st.sampled_from([ErrorCode.NONE, ErrorCode(88)]))


def as_message(version: int, some: list[dict[str, Any]], is_stable: bool) -> dict[str, Any]:
    """The groups as a request of that version has them; without topics where null may not be."""
    if version >= 8:
        some = [
            {**group, "topics": group["topics"] and [trimmed(version, one) for one in group["topics"]]}
            for group in some
        ]
        return {"groups": some, "requireStable": is_stable}
    (group,) = some
    asked = group["topics"] or [] if version < 2 else group["topics"]
    return {
        "groupId": group["groupId"],
        "topics": asked and [trimmed(version, one) for one in asked],
        "requireStable": is_stable,
    }


def trimmed(version: int, topic: dict[str, Any]) -> dict[str, Any]:
    """The layout of topics below version 8 knows no ids."""
    return {name: value for name, value in topic.items() if version >= 8 or name != "topicId"}


@st.composite
def messages(draw: st.DrawFn, version: int) -> dict[str, Any]:
    some = draw(st.lists(groups, min_size=1, max_size=1 if version < 8 else 3))
    return as_message(version, some, draw(st.booleans()))


def usual(version: int) -> bytes:
    """The request of a consumer that starts."""
    asked = [
        {"name": "orders", "topicId": ORDERS_ID, "partitionIndexes": [0, 1, 2]},
        {"name": "clicks", "topicId": CLICKS_ID, "partitionIndexes": [7]},
    ]
    return body(KEY, version, as_message(version, [{"groupId": "billing", "topics": asked}], version >= 7))


class Judge:
    """What a request asks for, and how it is answered, by the layouts."""

    def __init__(self, version: int, data: bytes) -> None:
        self.version = version
        message = decode_request(KEY, version, data)
        self.groups = message["groups"] if version >= 8 else [message]
        self.events = tuple([self._event(group, message["requireStable"]) for group in self.groups])

    def _event(self, group: dict[str, Any], require_stable: bool) -> OffsetFetch:
        if group["topics"] is None:
            return OffsetFetch(None, group["groupId"], None, require_stable)
        known = [(self.name(topic), topic) for topic in group["topics"] if self.name(topic) is not None]
        wanted = tuple([(name, index) for name, topic in known for index in topic["partitionIndexes"]])
        ids = {name: topic["topicId"] for name, topic in known} if self.version >= 10 else None
        return OffsetFetch(None, group["groupId"], wanted, require_stable, ids)

    def name(self, topic: dict[str, Any]) -> str | None:
        return TOPICS.by_id.get(topic["topicId"]) if self.version >= 10 else topic["name"]

    def frame(self, correlation_id: int, answers: list[FetchAnswer]) -> bytes:
        told = [self._told(group, answer) for group, answer in zip(self.groups, answers, strict=True)]
        if self.version >= 8:
            return encode_response(KEY, self.version, correlation_id, {"groups": told})
        del told[0]["groupId"]
        return encode_response(KEY, self.version, correlation_id, told[0])

    def _told(self, group: dict[str, Any], answer: FetchAnswer) -> dict[str, Any]:
        told: dict[str, Any] = {"groupId": group["groupId"], "errorCode": answer.error, "topics": []}
        if answer.error is not ErrorCode.NONE:
            if self.version == 1:
                told["topics"] = [self._failed(topic, answer.error) for topic in group["topics"]]
            return told
        if group["topics"] is None:
            told["topics"] = self._all(answer)
            return told
        left = list(answer.partitions)
        for topic in group["topics"]:
            if self.name(topic) is not None:
                some = [left.pop(0) for _ in topic["partitionIndexes"]]
                told["topics"].append(self._topic(topic["name"], topic.get("topicId"), some))
        for topic in group["topics"]:
            if self.name(topic) is None:
                told["topics"].append(self._failed(topic, ErrorCode.UNKNOWN_TOPIC_ID))
        return told

    def _all(self, answer: FetchAnswer) -> list[dict[str, Any]]:
        told = []
        for name in dict.fromkeys(one.topic for one in answer.partitions):
            if self.version < 10 or name in TOPICS.by_name:
                topic_id = TOPICS.by_name[name][0] if self.version >= 10 else None
                told.append(self._topic(name, topic_id, [one for one in answer.partitions if one.topic == name]))
        return told

    def _failed(self, topic: dict[str, Any], error: ErrorCode) -> dict[str, Any]:
        some = [FetchedOffset("", index, -1, -1, "", error) for index in topic["partitionIndexes"]]
        return self._topic(topic["name"], topic.get("topicId"), some)

    def _topic(self, name: str, topic_id: bytes | None, some: list[FetchedOffset]) -> dict[str, Any]:
        key = {"topicId": topic_id} if self.version >= 10 else {"name": name}
        return key | {
            "partitions": [
                {
                    "partitionIndex": one.partition,
                    "committedOffset": one.offset,
                    "committedLeaderEpoch": one.leader_epoch,
                    "metadata": one.metadata,
                    "errorCode": one.error,
                }
                for one in some
            ]
        }


@st.composite
def answers_to(draw: st.DrawFn, event: OffsetFetch) -> FetchAnswer:
    if draw(st.integers(0, 4)) == 0:
        return FetchAnswer(draw(st.sampled_from([ErrorCode(14), ErrorCode(16)])))
    wanted = event.partitions
    if wanted is None:
        wanted = (("orders", 0), ("gone", 5), ("clicks", 1), ("orders", 2))
    found = draw(st.lists(found_offsets, min_size=1, max_size=3))
    return FetchAnswer(
        ErrorCode.NONE,
        tuple([FetchedOffset(*where, *found[place % len(found)]) for place, where in enumerate(wanted)]),
    )


def decode(version: int, data: bytes) -> tuple[tuple[OffsetFetch, ...], FetchReply]:
    return decode_offset_fetch(version, 5, data, 0, len(data), TOPICS)


@settings(patient, max_examples=150)
@given(version=versions, data=st.data())
@more_at_length
def test_a_request_and_its_answer_are_what_the_layout_says(again: int, version: int, data: st.DataObject) -> None:
    message = data.draw(messages(version))
    encoded = body(KEY, version, message)
    judge = Judge(version, encoded)
    answers = [data.draw(answers_to(event)) for event in judge.events]
    tagged = tagged_body(KEY, version, message)
    for buffer, position, end in [*placed(encoded), (tagged, 0, len(tagged))]:
        events, reply = decode_offset_fetch(version, 5, buffer, position, end, TOPICS)
        assert events == judge.events
        assert encode_offset_fetch(reply, answers, TOPICS) == judge.frame(5, answers)


@pytest.mark.parametrize("version", [8, 9, 10])
def test_the_usual_request_takes_the_short_way(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_fetch, "decode_request", None)
    data = usual(version)
    assert decode(version, data)[0] == Judge(version, data).events


@pytest.mark.parametrize("version", [8, 9, 10])
def test_no_groups_are_no_events(version: int) -> None:
    events, reply = decode(version, body(KEY, version, {"groups": []}))
    assert events == ()
    assert decode_response(KEY, version, encode_offset_fetch(reply, [], TOPICS))[1]["groups"] == []


def test_in_version_1_the_groups_error_is_each_partitions() -> None:
    _, reply = decode(1, usual(1))
    _, answer = decode_response(KEY, 1, encode_offset_fetch(reply, [FetchAnswer(ErrorCode(16))], TOPICS))
    told = [(one["errorCode"], one["committedOffset"]) for topic in answer["topics"] for one in topic["partitions"]]
    assert told == [(16, -1)] * 4


def test_null_topics_are_refused_in_version_1_and_mean_all_of_them_later() -> None:
    null = b"\x00\x01g\xff\xff\xff\xff"
    with pytest.raises(BadBody, match="null"):
        decode(1, null)
    assert decode(2, null)[0] == (OffsetFetch(None, "g", None),)


def test_metadata_too_long_for_an_old_version_is_an_error() -> None:
    found = tuple([FetchedOffset("orders", index, 1, 1, "x" * 40_000, ErrorCode.NONE) for index in range(4)])
    for version in VERSIONS:
        _, reply = decode(version, usual(version))
        if version >= 6:
            assert encode_offset_fetch(reply, [FetchAnswer(ErrorCode.NONE, found)], TOPICS)
        else:
            with pytest.raises(BadBody, match="40000"):
                encode_offset_fetch(reply, [FetchAnswer(ErrorCode.NONE, found)], TOPICS)


@settings(patient, max_examples=8)
@given(version=versions, data=st.data())
@more_at_length
def test_a_request_cut_short_is_an_error(again: int, version: int, data: st.DataObject) -> None:
    message = data.draw(messages(version))
    for encoded in (body(KEY, version, message), tagged_body(KEY, version, message)):
        for buffer, position, end in cut_short(encoded):
            with pytest.raises(BadBody, match=f"OffsetFetchRequest version {version}: "):
                decode_offset_fetch(version, 5, buffer, position, end, TOPICS)


@every_version
def test_the_usual_request_cut_short_is_an_error(version: int) -> None:
    for encoded in (usual(version), tagged_body(KEY, version, decode_request(KEY, version, usual(version)))):
        for buffer, position, end in cut_short(encoded):
            with pytest.raises(BadBody):
                decode_offset_fetch(version, 5, buffer, position, end, TOPICS)


def check_as_the_layout_sees_it(version: int, encoded: bytes) -> None:
    try:
        judge = Judge(version, encoded)
    except WireError:
        with pytest.raises(BadBody):
            decode(version, encoded)
        return
    events, reply = decode(version, encoded)
    assert events == judge.events
    answers = [
        FetchAnswer(
            ErrorCode.NONE, tuple([FetchedOffset(*one, 7, 8, "", ErrorCode.NONE) for one in event.partitions or ()])
        )
        for event in events
    ]
    assert encode_offset_fetch(reply, answers, TOPICS) == judge.frame(5, answers)


@settings(patient, max_examples=150)
@given(version=versions, data=st.data())
@more_at_length
def test_damage_is_seen_as_the_layout_sees_it(again: int, version: int, data: st.DataObject) -> None:
    whole = st.just(usual(version)) | messages(version).map(lambda message: body(KEY, version, message))
    check_as_the_layout_sees_it(version, data.draw(damaged(whole)))


@pytest.mark.parametrize("version", [1, 2, 7, 8, 9, 10])
def test_every_changed_byte_is_seen_as_the_layout_sees_it(version: int) -> None:
    for encoded in (*changed_everywhere(whole := usual(version)), *lengths_in_two_bytes(whole)):
        check_as_the_layout_sees_it(version, encoded)


@settings(patient, max_examples=300)
@given(versions, st.binary(max_size=100))
def test_any_bytes_are_a_request_or_an_error(version: int, data: bytes) -> None:
    with suppress(WireError):
        decode(version, data)
