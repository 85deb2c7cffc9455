"""Whatever goes wrong in one answer, timer, event or partition ends there: all others go on, and the log tells of it.

Each test makes one thing go wrong inside a running server, beside clients that have done nothing to deserve it.
"""

import io
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from muster.broker import Broker
from muster.codec.partitioning import partition_for
from muster.core.offsets import Commits, Offsets
from muster.core.rebalancing import Rebalancing
from muster.log.steps import GrowingPause
from muster.protocol.apis import ApiKey
from muster.protocol.messages import decode_response, encode_request
from muster.server import assembly, waiting_replies
from muster.server.cluster import metadata
from muster.server.cluster.cluster import ClusterApi
from muster.server.led_partitions import LedPartitions
from muster.server.records import fetch
from muster.server.wire import members as wire_members
from tests.server.raw import Raw, commit_body, fetch_offsets
from tests.server.test_abuse import JOIN, is_hung_up

WAIT_S = 20
PARTITIONS = 4
DELAY_MS = 300
"""Of the first rebalance of a group: its timer is what ends it."""


@contextmanager
def serving(**settings: Any) -> Iterator[tuple[Broker, io.StringIO]]:
    said = io.StringIO()
    given = {"offsets_topic_num_partitions": PARTITIONS, "muster_flush": "always", **settings}
    with Broker(log=said, **given) as broker:
        broker.create_topic("orders", 4)
        yield broker, said


def connect(broker: Broker) -> Raw:
    return Raw((broker.host, broker.port), WAIT_S)


def until(condition: Callable[[], Any], what: object) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, what() if callable(what) else what
        time.sleep(0.01)


def faults(said: io.StringIO) -> list[str]:
    """Lines about what went wrong, without the time."""
    return [line[13:] for line in said.getvalue().splitlines() if "Error: " in line]


def members(said: io.StringIO) -> int:
    """How many have joined so far, but for those whose names are too long for a line."""
    return len(re.findall(r"member \S+ joined", said.getvalue()))


def in_one_turn(broker: Broker, seconds: float = 0.3) -> None:
    """Let the server sleep: what arrives or comes due meanwhile is handled together."""
    assert broker._loop is not None
    broker._loop.call_soon_threadsafe(time.sleep, seconds)


def group_in(partition: int, name: str) -> str:
    """A group id that belongs to a partition."""
    return next(group for number in range(1_000) if partition_for(group := f"{name}-{number}", PARTITIONS) == partition)


def join_frame(group: str, client_id: str, number: int = 1, version: int = 3, **changes: Any) -> bytes:
    return encode_request(ApiKey.JOIN_GROUP, version, number, client_id, {"groupId": group, **JOIN, **changes})


def commits(raw: Raw, group: str, offset: int) -> bool:
    answer = raw.ask(ApiKey.OFFSET_COMMIT, 8, **commit_body(group, "orders", {0: offset}))
    return bool(answer["topics"][0]["partitions"][0]["errorCode"] == 0)


def joined(raw: Raw) -> int:
    return int(decode_response(ApiKey.JOIN_GROUP, 3, raw.frame())[1]["errorCode"])


# Answers that cannot be encoded.


def a_long_client_id(monkeypatch: pytest.MonkeyPatch) -> str:
    """A member id is made of it; one of this length did not fit into an old answer."""
    return "bad" + "x" * 32_760


def a_mistake_in_the_codec(monkeypatch: pytest.MonkeyPatch) -> str:
    encode = wire_members.encode_join_group

    def broken(version: int, correlation_id: int, answer: Any) -> bytes:
        if answer.member_id.startswith("bad"):
            raise ValueError("a mistake")
        return encode(version, correlation_id, answer)

    monkeypatch.setattr(wire_members, "encode_join_group", broken)
    return "bad"


@pytest.mark.parametrize("trigger", [a_long_client_id, a_mistake_in_the_codec])
def test_an_answer_that_cannot_be_encoded_keeps_no_other_of_its_turn(
    monkeypatch: pytest.MonkeyPatch, trigger: Callable[[pytest.MonkeyPatch], str]
) -> None:
    client_id = trigger(monkeypatch)
    group, honest = group_in(0, "bad"), group_in(0, "honest")
    with serving() as (broker, said), ExitStack() as stack:
        bad = stack.enter_context(connect(broker))
        others = [stack.enter_context(connect(broker)) for _ in range(5)]
        assert all(commits(other, f"{honest}", 1) for other in others)
        commit = encode_request(ApiKey.OFFSET_COMMIT, 8, 1, "bad", commit_body(group, "orders", {0: 1}))
        in_one_turn(broker)
        bad.socket.sendall(commit + join_frame(group, client_id, 2, version=4))  # which is told an id, at once
        for other in others:
            other.send(ApiKey.OFFSET_COMMIT, 8, **commit_body(honest, "orders", {0: 2}))
        for other in others:
            answer = other.hear(ApiKey.OFFSET_COMMIT, 8)[1]
            assert answer["topics"][0]["partitions"][0]["errorCode"] == 0
        assert fetch_offsets(others[0], honest) == (0, {("orders", 0): 2})
        if trigger is a_mistake_in_the_codec:
            assert is_hung_up(bad.socket)
            until(lambda: len(faults(said)) == 1, said.getvalue)
            (line,) = faults(said)
            assert f"was sent away: the answer to its JoinGroup about group {group} could not be made" in line
            assert line.endswith("(ValueError: a mistake)")


@pytest.mark.parametrize("trigger", [a_long_client_id, a_mistake_in_the_codec])
def test_a_timer_whose_answers_cannot_be_encoded_keeps_no_other_timer(
    monkeypatch: pytest.MonkeyPatch, trigger: Callable[[pytest.MonkeyPatch], str]
) -> None:
    """Twenty joins of other groups and five sessions come due together with it."""
    client_id = trigger(monkeypatch)
    settings = {"group_initial_rebalance_delay_ms": DELAY_MS, "offsets_retention_check_interval_ms": 600_000}
    with serving(**settings) as (broker, said), ExitStack() as stack:
        bad = stack.enter_context(connect(broker))
        others = [stack.enter_context(connect(broker)) for _ in range(20)]
        silent = [group_in(1 + number % 3, f"silent{number}") for number in range(5)]
        asker = stack.enter_context(connect(broker))
        for number, group in enumerate(silent):  # each becomes a group of one, whose session will end
            others[number].socket.sendall(join_frame(group, "silent", sessionTimeoutMs=1_000))
        for number in range(len(silent)):
            assert joined(others[number]) == 0
        bad.socket.sendall(join_frame(group_in(0, "bad"), client_id))
        for number, other in enumerate(others):
            other.socket.sendall(join_frame(f"g-{number}", "good"))
        until(lambda: members(said) >= 25 + (trigger is a_mistake_in_the_codec), said.getvalue)
        in_one_turn(broker, 1.2)
        assert [joined(other) for other in others] == [0] * 20

        def states() -> set[str]:
            answer = asker.ask(ApiKey.DESCRIBE_GROUPS, 0, groups=silent)
            return {group["groupState"] for group in answer["groups"]}

        until(lambda: states() == {"Empty"}, states)
        assert commits(asker, "somebody", 1)


# Events that break off.


def breaks_for(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, is_bad: Callable[[Any], bool]) -> list[Any]:
    """Let a method of the core fail, after half of its work, for some events; returns the events it failed for."""
    method, failed = getattr(owner, name), []

    def broken(self: Any, event: Any, *others: Any) -> None:
        method(self, event, *others)
        if is_bad(event) and not failed:
            failed.append(event)
            raise KeyError("a mistake")

    monkeypatch.setattr(owner, name, broken)
    return failed


def test_a_request_that_breaks_off_costs_its_connection_and_its_partition_is_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bad, neighbour, parked, other = (group_in(p, name) for p, name in [(0, "bad"), (0, "n"), (0, "parked"), (1, "o")])
    breaks_for(monkeypatch, Commits, "commit", lambda event: event.group_id == bad)
    with serving() as (broker, said), ExitStack() as stack:
        culprit, waiting, asker = (stack.enter_context(connect(broker)) for _ in range(3))
        assert commits(asker, neighbour, 7)
        assert commits(asker, other, 8)
        first = asker.ask(ApiKey.JOIN_GROUP, 3, groupId=parked, **JOIN)
        assert first["errorCode"] == 0
        waiting.socket.sendall(join_frame(parked, "waits"))
        until(lambda: members(said) == 2, said.getvalue)
        culprit.send(ApiKey.OFFSET_COMMIT, 8, **commit_body(bad, "orders", {0: 1}))
        assert is_hung_up(culprit.socket)
        assert joined(waiting) == 16, "it looks for the coordinator again"
        assert commits(asker, other, 9), "other partitions notice nothing"
        until(lambda: fetch_offsets(asker, neighbour) == (0, {("orders", 0): 7}), said.getvalue)
        assert commits(asker, bad, 2)
        assert fetch_offsets(asker, bad) == (0, {("orders", 0): 2})
    told = [line for line in faults(said) if line.startswith("partition 0: ")]
    assert told == [f"partition 0: OffsetCommit of group {bad} failed (KeyError: 'a mistake')"]
    assert said.getvalue().count("It is read again") == 1


def test_a_partition_that_breaks_off_again_and_again_is_read_less_and_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client may ask for what breaks it all the time."""
    pauses: list[float] = []
    next_s = GrowingPause.next_s

    def noted(self: GrowingPause) -> float:
        pauses.append(next_s(self))
        return 0.01

    def broken(self: Any, *_: object) -> None:
        raise KeyError("a mistake")

    monkeypatch.setattr(GrowingPause, "next_s", noted)
    monkeypatch.setattr(Offsets, "delete_group", broken)
    with serving() as (broker, said), connect(broker) as asker:
        for number in range(4):
            until(lambda: fetch_offsets(asker, "g")[0] == 0, said.getvalue)
            with connect(broker) as culprit:
                culprit.send(ApiKey.DELETE_GROUPS, 1, groupsNames=["g"])
                assert is_hung_up(culprit.socket)
            until(lambda number=number: len(pauses) > number, said.getvalue)  # type: ignore[misc]
        assert pauses == [1.0, 2.0, 4.0, 8.0]


@pytest.mark.parametrize("how", ["let go", "timed out"])
def test_answers_that_cannot_be_refused_keep_no_other_from_it(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """The disk does not answer, and requests that wait are told so: but for one, whose refusal cannot be made."""
    bad, honest = group_in(0, "bad"), group_in(0, "honest")

    failures = iter([AssertionError("a mistake")])

    def broken(make: Callable[..., Any]) -> Callable[..., Any]:
        def refuse(*arguments: Any) -> Any:
            for failure in failures:  # the first that is refused is the one that has waited longest
                raise failure
            return make(*arguments)

        return refuse

    monkeypatch.setattr(waiting_replies, "failed", broken(waiting_replies.failed))
    monkeypatch.setattr(waiting_replies, "timed_out", broken(waiting_replies.timed_out))
    settings = {"offsets_commit_timeout_ms": 200} if how == "timed out" else {}
    with serving(**settings) as (broker, said), connect(broker) as culprit, connect(broker) as asker:
        assert broker._server is not None
        assert broker._loop is not None
        monkeypatch.setattr(broker._server.parts.flusher, "flush_each", lambda *_: None)
        culprit.send(ApiKey.OFFSET_COMMIT, 8, **commit_body(bad, "orders", {0: 1}))
        until(lambda: len(broker._server.parts.led_partitions.by_number[0].replies) == 1, said.getvalue)  # type: ignore[union-attr]
        asker.send(ApiKey.OFFSET_COMMIT, 8, **commit_body(honest, "orders", {0: 1}))
        if how == "let go":
            until(lambda: len(broker._server.parts.led_partitions.by_number[0].replies) == 2, said.getvalue)  # type: ignore[union-attr]
            broker._loop.call_soon_threadsafe(broker._server.parts.leadership.resign, 0)
        answer = asker.hear(ApiKey.OFFSET_COMMIT, 8)[1]["topics"][0]["partitions"][0]
        assert answer["errorCode"] == {"let go": 16, "timed out": 15}[how]
        assert is_hung_up(culprit.socket)
        until(
            lambda: f"about group {bad} could not be made (AssertionError: a mistake)" in said.getvalue(), said.getvalue
        )
        monkeypatch.undo()


def test_a_question_that_breaks_off_costs_nothing_but_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    breaks_for(monkeypatch, Offsets, "fetch", lambda event: event.group_id == "g")
    with serving() as (broker, said), connect(broker) as culprit, connect(broker) as asker:
        assert commits(asker, "g", 7)
        with pytest.raises((EOFError, ConnectionResetError)):
            fetch_offsets(culprit, "g")
        assert fetch_offsets(asker, "g") == (0, {("orders", 0): 7})
    assert "It is read again" not in said.getvalue()
    (line,) = faults(said)
    assert "was sent away: its request could not be handled (KeyError: 'a mistake')" in line


def test_a_timer_that_breaks_off_costs_its_partition_and_no_other_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = group_in(0, "bad")
    breaks_for(monkeypatch, Rebalancing, "timer", lambda key: key[1] == bad)
    goods = [group_in(1 + number % 3, f"good{number}") for number in range(12)]
    with serving(group_initial_rebalance_delay_ms=DELAY_MS) as (broker, said), ExitStack() as stack:
        culprit = stack.enter_context(connect(broker))
        others = [stack.enter_context(connect(broker)) for _ in goods]
        culprit.socket.sendall(join_frame(bad, "bad"))
        for group, other in zip(goods, others, strict=True):
            other.socket.sendall(join_frame(group, "good"))
        until(lambda: members(said) == len(goods) + 1, said.getvalue)
        in_one_turn(broker, 0.5)
        assert [joined(other) for other in others] == [0] * len(goods)
        assert joined(culprit) == 16
    (line,) = faults(said)
    assert line.startswith("partition 0: TimerFired ")
    assert bad in line


def test_an_expiration_that_breaks_off_in_one_partition_goes_on_in_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    old = [group_in(partition, "old") for partition in range(PARTITIONS)]
    settings = {"offsets_retention_check_interval_ms": 300}
    is_mended = False
    expire = Offsets.expire

    def broken(self: Any, *others: Any) -> None:
        if old[0] in self._groups and not is_mended:
            raise KeyError("a mistake")
        expire(self, *others)

    monkeypatch.setattr(Offsets, "expire", broken)
    with serving(**settings) as (broker, said), connect(broker) as raw:
        for group in old:
            raw.ask(ApiKey.OFFSET_COMMIT, 2, **(commit_body(group, "orders", {0: 1}) | {"retentionTimeMs": 1}))
        for group in old[1:]:
            until(lambda group=group: f"group {group}: removed" in said.getvalue(), said.getvalue)  # type: ignore[misc]
        assert "ExpireOffsets failed (KeyError: 'a mistake')" in faults(said)[0]
        is_mended = True
        until(lambda: f"group {old[0]}: removed" in said.getvalue(), said.getvalue)


# Everything else.


def test_parked_fetches_are_answered_although_one_of_them_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    complete, first = fetch.complete, []

    def broken(parked: Any, *more: Any) -> Any:
        if not first:
            first.append(parked)
            raise KeyError("a mistake")
        return complete(parked, *more)

    asked = {
        "replicaId": -1, "minBytes": 1, "maxBytes": 1 << 20, "isolationLevel": 0, "sessionId": 0, "sessionEpoch": -1,
        "forgottenTopicsData": [], "rackId": "",
        "topics": [{"topic": "orders", "partitions": [
            {"partition": 0, "currentLeaderEpoch": -1, "fetchOffset": 0, "logStartOffset": -1,
             "partitionMaxBytes": 1 << 20}]}],
    }  # fmt: skip
    with serving() as (broker, said), ExitStack() as stack:
        bad, *others = [stack.enter_context(connect(broker)) for _ in range(5)]
        bad.send(ApiKey.FETCH, 11, maxWaitMs=1_000, **asked)
        for other in others:
            other.send(ApiKey.FETCH, 11, maxWaitMs=1_200, **asked)
        until(lambda: broker._server is not None and len(broker._server.parts.fetches) == 5, "not parked")
        monkeypatch.setattr(fetch, "complete", broken)
        in_one_turn(broker, 1.3)
        assert [other.hear(ApiKey.FETCH, 11)[1]["errorCode"] for other in others] == [0] * 4
        assert is_hung_up(bad.socket)
    (line,) = faults(said)
    assert "the answer to its Fetch could not be made (KeyError: 'a mistake')" in line


def test_a_handler_that_fails_costs_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a mistake")

    with serving() as (broker, said), connect(broker) as culprit, connect(broker) as asker:
        assert commits(asker, "g", 1)
        monkeypatch.setitem(metadata.APIS, ApiKey.DESCRIBE_CLUSTER, ClusterApi(lambda *_: None, broken, broken))
        culprit.send(ApiKey.DESCRIBE_CLUSTER, 0, includeClusterAuthorizedOperations=False)
        assert is_hung_up(culprit.socket)
        assert commits(asker, "g", 2)
    (line,) = faults(said)
    assert line.startswith(f"{culprit_peer(line)} was sent away: its request could not be handled")


def culprit_peer(line: str) -> str:
    peer = line.split(" ")[0]
    socket.inet_aton(peer.split(":")[0])
    return peer


def test_housekeeping_that_fails_is_told_and_tried_again_and_keeps_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembly, "TICK_S", 0.02)
    tries: list[int] = []

    def broken(self: LedPartitions) -> None:
        tries.append(1)
        if len(tries) <= 3:
            raise KeyError("a mistake")

    monkeypatch.setattr(LedPartitions, "time_out_replies", broken)
    with serving(connections_max_idle_ms=100) as (broker, said), connect(broker) as idle:
        until(lambda: len(tries) > 5, tries)
        assert is_hung_up(idle.socket), "idle connections are closed all the same"
        assert len(faults(said)) == 3
        assert "it is called again in 0.02 s (KeyError: 'a mistake')" in faults(said)[0]
