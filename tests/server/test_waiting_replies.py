"""Answers that wait for their log: when they leave, and what goes out instead of those that must not."""

from typing import Any

import pytest

from muster.codec.error_codes import ErrorCode
from muster.core.events import (
    ALL_COMMITTED,
    CommitAnswer,
    DescribeAnswer,
    FetchAnswer,
    JoinAnswer,
    LeaveAnswer,
    ListAnswer,
    OffsetDeleteAnswer,
    SyncAnswer,
)
from muster.protocol.apis import ApiKey
from muster.protocol.messages import decode_response, encode_request
from muster.server import waiting_replies
from muster.server.waiting_replies import Callback, WaitingReplies
from muster.server.wire import TopicNames
from muster.server.wire.offset_commit import decode_offset_commit, encode_offset_commit

NOT_COORDINATOR, NOT_AVAILABLE = ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE


class FakeReply:
    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.failures: list[Exception] = []

    def answer(self, answer: Any) -> None:
        self.answers.append(answer)

    def fail(self, error: Exception) -> None:
        self.failures.append(error)


def answered(*answers: Any) -> list[tuple[Any, Any]]:
    return [(FakeReply(), answer) for answer in answers]


def heard(replies: list[tuple[Any, Any]]) -> list[Any]:
    return [answer for reply, _ in replies for answer in reply.answers]


def test_answers_leave_when_their_log_is_durable_up_to_where_it_ended() -> None:
    waiting, first, second = WaitingReplies(), answered("a", "b"), answered("c")
    waiting.of_turn += first
    waiting.end_turn(10, now_ms=0)
    waiting.end_turn(11, now_ms=0)  # a turn without answers
    waiting.wait(second, 12, now_ms=0)
    assert len(waiting) == 3
    waiting.release(9)
    assert heard(first) == []
    waiting.release(11)
    assert (heard(first), heard(second)) == (["a", "b"], [])
    waiting.release(12)
    assert heard(second) == ["c"]
    assert len(waiting) == 0


@pytest.mark.parametrize(
    ("answer", "instead"),
    [
        (JoinAnswer(ErrorCode.NONE, "m", 3), JoinAnswer(NOT_COORDINATOR, "")),
        (SyncAnswer(ErrorCode.NONE, b"mine"), SyncAnswer(NOT_COORDINATOR)),
        (LeaveAnswer(ErrorCode.NONE), LeaveAnswer(NOT_COORDINATOR)),
        (ALL_COMMITTED, CommitAnswer(NOT_COORDINATOR)),
        (FetchAnswer(ErrorCode.NONE, ()), FetchAnswer(NOT_COORDINATOR)),
        (OffsetDeleteAnswer(ErrorCode.NONE), OffsetDeleteAnswer(NOT_COORDINATOR)),
        (DescribeAnswer(ErrorCode.NONE, "Stable"), DescribeAnswer(NOT_COORDINATOR)),
        (ListAnswer(ErrorCode.NONE), ListAnswer(NOT_COORDINATOR)),
        (ErrorCode.NONE, NOT_COORDINATOR),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_partition_that_is_given_up_answers_each_request_in_its_own_form(answer: Any, instead: Any) -> None:
    waiting, held, of_turn = WaitingReplies(), answered(answer), answered(answer)
    waiting.wait(held, 10, now_ms=0)
    waiting.of_turn += of_turn
    waiting.fail(NOT_COORDINATOR)
    assert heard(held) == heard(of_turn) == [instead]
    assert len(waiting) == 0


def test_an_error_for_a_whole_commit_is_one_of_each_partition() -> None:
    body = {
        "groupId": "g",
        "generationIdOrMemberEpoch": -1,
        "topics": [{"name": "orders", "partitions": [{"partitionIndex": index} for index in (2, 0, 9)]}],
    }
    frame = encode_request(ApiKey.OFFSET_COMMIT, 8, 7, "c", body)
    header_bytes = 4 + 8 + 2 + 1 + 1  # size; key, version and correlation id; client id; tags
    topics = TopicNames({"orders": (bytes(16), 4)}, {})
    event, context = decode_offset_commit(8, 7, frame, header_bytes, len(frame), topics)
    assert event is not None
    _, response = decode_response(ApiKey.OFFSET_COMMIT, 8, encode_offset_commit(context, CommitAnswer(NOT_COORDINATOR)))
    ((topic,),) = (response["topics"],)
    errors = {one["partitionIndex"]: one["errorCode"] for one in topic["partitions"]}
    assert errors == {0: NOT_COORDINATOR, 2: NOT_COORDINATOR, 9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_only_those_that_wait_too_long_time_out() -> None:
    waiting, early, late = WaitingReplies(), answered(ALL_COMMITTED), answered(ALL_COMMITTED)
    waiting.wait(early, 10, now_ms=1_000)
    waiting.wait(late, 11, now_ms=1_001)
    waiting.time_out(before_ms=999)
    assert heard(early) == []
    waiting.time_out(before_ms=1_000)
    assert (heard(early), heard(late)) == ([CommitAnswer(NOT_AVAILABLE)], [])
    waiting.release(11)
    assert heard(late) == [ALL_COMMITTED]


def test_a_refusal_that_cannot_be_made_fails_its_reply_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    mistakes = iter([ZeroDivisionError("a mistake")])

    def mistaken_once(answer: Any, error: ErrorCode) -> ErrorCode:
        for mistake in mistakes:
            raise mistake
        return error

    monkeypatch.setattr(waiting_replies, "failed", mistaken_once)
    waiting, replies = WaitingReplies(), answered(ErrorCode.NONE, ErrorCode.NONE)
    waiting.wait(replies, 10, now_ms=0)
    waiting.fail(NOT_COORDINATOR)
    assert [type(failure) for failure in replies[0][0].failures] == [ZeroDivisionError]
    assert heard(replies) == [NOT_COORDINATOR]


def test_a_call_may_wait_in_the_place_of_a_reply() -> None:
    told: list[Any] = []
    waiting = WaitingReplies()
    waiting.wait([(Callback(told.append, told.append), "done")], 10, now_ms=0)
    waiting.release(10)
    assert told == ["done"]
