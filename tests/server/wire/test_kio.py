"""What the codecs written by hand read and write is what the independent library `kio` makes of it."""

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.codec.error_codes import ErrorCode
from muster.core.events import ALL_COMMITTED, CommitAnswer, FetchAnswer, FetchedOffset, Heartbeat
from muster.protocol.apis import ApiKey
from muster.protocol.messages import REQUEST, RESPONSE, decode_request
from muster.server.wire import TopicNames
from muster.server.wire.heartbeat import decode_heartbeat, encode_heartbeat
from muster.server.wire.offset_commit import decode_offset_commit, encode_offset_commit
from muster.server.wire.offset_fetch import decode_offset_fetch, encode_offset_fetch
from tests.protocol.strategies import bodies, more_at_length, patient
from tests.protocol.test_kio import body_of, read_by_kio, special, text, written_by_kio


@settings(patient, max_examples=25)
@given(data=st.data())
@pytest.mark.parametrize("version", range(5))
def test_heartbeat_by_hand(version: int, data: st.DataObject) -> None:
    body = data.draw(bodies(ApiKey.HEARTBEAT, version, REQUEST, text))
    made, theirs = written_by_kio(ApiKey.HEARTBEAT, version, REQUEST, body)
    expected = Heartbeat(None, made.group_id, made.generation_id, made.member_id)
    expected.instance_id = made.group_instance_id if version >= 3 else None
    assert decode_heartbeat(version, theirs, 0, len(theirs)) == expected
    error = data.draw(st.sampled_from(ErrorCode))
    answer = body_of(ApiKey.HEARTBEAT, version, RESPONSE, encode_heartbeat((version, 7), error))
    assert read_by_kio(ApiKey.HEARTBEAT, version, RESPONSE, answer).error_code == int(error)


@settings(patient, max_examples=15)
@given(data=st.data())
@pytest.mark.parametrize("version", range(2, 11))
@more_at_length
def test_offset_commit_by_hand(again: int, version: int, data: st.DataObject) -> None:
    body = data.draw(bodies(ApiKey.OFFSET_COMMIT, version, REQUEST, text, special))
    for number, topic in enumerate(body["topics"]):
        for index, one in enumerate(topic["partitions"]):
            one["partitionIndex"] = index
        if "topicId" in topic:
            topic["topicId"] = bytes([number + 1]) * 16
    made, theirs = written_by_kio(ApiKey.OFFSET_COMMIT, version, REQUEST, body)
    keys = [(topic.get("name", f"t{number}"), topic.get("topicId", b"")) for number, topic in enumerate(body["topics"])]
    topics = TopicNames({name: (key, 9) for name, key in keys}, {key: name for name, key in keys})
    event, reply = decode_offset_commit(version, 7, theirs, 0, len(theirs), topics)
    wanted = [(topic, one) for topic in made.topics for one in topic.partitions]
    if event is None:
        assert not wanted
        return
    assert (event.group_id, event.member_id) == (made.group_id, made.member_id)
    assert event.generation == made.generation_id_or_member_epoch
    assert event.instance_id == (made.group_instance_id if version >= 7 else None)
    assert event.retention_ms == (made.retention_time // timedelta(milliseconds=1) if version <= 4 else -1)
    assert [(where[1], where[2], where[4]) for where in event.partitions] == [
        (one.partition_index, one.committed_offset, one.committed_metadata) for _, one in wanted
    ]
    if version >= 6:
        assert [where[3] for where in event.partitions] == [one.committed_leader_epoch for _, one in wanted]
    codes = data.draw(st.lists(st.sampled_from(ErrorCode), min_size=len(wanted), max_size=len(wanted)))
    for answer, expected in ((ALL_COMMITTED, [0] * len(wanted)), (CommitAnswer(tuple(codes)), codes)):
        frame = encode_offset_commit(reply, answer)
        told = read_by_kio(
            ApiKey.OFFSET_COMMIT, version, RESPONSE, body_of(ApiKey.OFFSET_COMMIT, version, RESPONSE, frame)
        )
        assert [int(one.error_code) for topic in told.topics for one in topic.partitions] == expected
        key = "topic_id" if version >= 10 else "name"
        assert [(getattr(topic, key), one.partition_index) for topic in told.topics for one in topic.partitions] == [
            (getattr(topic, key), one.partition_index) for topic, one in wanted
        ]


@settings(patient, max_examples=15)
@given(data=st.data())
@pytest.mark.parametrize("version", range(1, 11))
@more_at_length
def test_offset_fetch_by_hand(again: int, version: int, data: st.DataObject) -> None:
    body = data.draw(bodies(ApiKey.OFFSET_FETCH, version, REQUEST, text))
    groups = body["groups"] if version >= 8 else [body]
    by_id = {}
    for group in groups:
        for topic in group["topics"] or ():
            if "topicId" in topic:
                by_id[topic["topicId"]] = topic["topicId"].hex()
    _, theirs = written_by_kio(ApiKey.OFFSET_FETCH, version, REQUEST, body)
    assert decode_request(ApiKey.OFFSET_FETCH, version, theirs)
    topics = TopicNames({}, by_id)
    events, reply = decode_offset_fetch(version, 7, theirs, 0, len(theirs), topics)
    assert [event.group_id for event in events] == [group["groupId"] for group in groups]
    assert {event.require_stable for event in events} <= {body.get("requireStable", False)}
    wanted = [
        None
        if group["topics"] is None
        else tuple(
            [
                (by_id[topic["topicId"]] if version >= 10 else topic["name"], index)
                for topic in group["topics"]
                for index in topic["partitionIndexes"]
            ]
        )
        for group in groups
    ]
    assert [event.partitions for event in events] == wanted
    answers = [
        FetchAnswer(
            ErrorCode.NONE,
            tuple([FetchedOffset(*where, 5, 6, "seen", ErrorCode.NONE) for where in event.partitions or ()]),
        )
        for event in events
    ]
    frame = encode_offset_fetch(reply, answers, topics)
    told = read_by_kio(ApiKey.OFFSET_FETCH, version, RESPONSE, body_of(ApiKey.OFFSET_FETCH, version, RESPONSE, frame))
    for group, one in zip(groups, told.groups if version >= 8 else [told], strict=True):
        found = [
            (partition.partition_index, partition.committed_offset, partition.metadata)
            for topic in one.topics
            for partition in topic.partitions
        ]
        asked = [(index, 5, "seen") for topic in group["topics"] or () for index in topic["partitionIndexes"]]
        assert found == asked
