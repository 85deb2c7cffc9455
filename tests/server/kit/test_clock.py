"""A clock that is turned: what is due happens, in order, without anybody sleeping."""

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from muster.broker import Broker
from muster.errors import ConfigError, NotInTime
from muster.protocol.apis import ApiKey
from muster.server.kit.time_travel import TimeTravel, milliseconds
from tests.server.kit.consumers import consumer, values
from tests.server.raw import Raw

go_to = TimeTravel._go_to


@pytest.fixture
def broker(shared: Broker) -> Iterator[Broker]:
    yield shared
    shared.reset()
    assert abs(shared.clock.now() - datetime.now(UTC)) < timedelta(minutes=1)


def test_a_week_takes_less_than_a_second_and_leaves_what_a_week_leaves(broker: Broker) -> None:
    broker.create_topic("kept", configs={"retention.ms": -1})
    broker.seed_records("orders", "one")
    broker.seed_records("kept", "two")
    broker.seed_commits("idle", {("orders", 0): 1})
    with consumer(broker, "app", "orders") as worker:
        assert values(worker, 1) == [b"one"]
        worker.commit(asynchronous=False)
        broker.wait_for_members("app", 1)
        started_s, started_cpu_s = time.monotonic(), time.process_time()
        broker.clock.advance("1 week")
        assert time.process_time() - started_cpu_s < 1
        assert time.monotonic() - started_s < 5  # on a busy machine
    assert broker.committed("idle") == {}
    assert broker.committed("app") == {("orders", 0): 1}
    assert broker.topics()["orders"].starts == [1]
    assert [record.value for record in broker.records("kept")] == [b"two"]


def test_things_happen_in_the_order_of_their_times(broker: Broker) -> None:
    """Offsets expire seven days after a group has become empty, which is when its member's session ended."""
    broker.seed_records("orders", "one")
    group = _silent_member(broker, session_ms=30_000)
    broker.clock.advance("29 s")
    assert broker.groups()[group].state == "Stable"
    broker.clock.advance("7 days")
    assert broker.groups()[group].state == "Empty"
    assert broker.committed(group) == {("orders", 0): 1}
    broker.clock.advance("20 s")
    assert group not in broker.groups()


def _silent_member(broker: Broker, session_ms: int) -> str:
    """A member that has committed, and whose client says nothing more. Its connection is gone."""
    with Raw((broker.host, broker.port)) as raw:
        join = {
            "groupId": "silent", "sessionTimeoutMs": session_ms, "rebalanceTimeoutMs": session_ms, "memberId": "",
            "protocolType": "consumer", "protocols": [{"name": "range", "metadata": b""}],
        }  # fmt: skip
        joined = raw.ask(ApiKey.JOIN_GROUP, 2, **join)
        member = {"groupId": "silent", "memberId": joined["memberId"], "generationId": joined["generationId"]}
        raw.ask(ApiKey.SYNC_GROUP, 2, **member, assignments=[{"memberId": joined["memberId"], "assignment": b"x"}])
        raw.ask(
            ApiKey.OFFSET_COMMIT, 5, groupId="silent", memberId=joined["memberId"],
            generationIdOrMemberEpoch=joined["generationId"],
            topics=[{"name": "orders", "partitions": [
                {"partitionIndex": 0, "committedOffset": 1, "committedMetadata": ""}]}],
        )  # fmt: skip
    return "silent"


def test_members_are_expelled_by_default_and_kept_on_demand_while_they_are_connected(broker: Broker) -> None:
    broker.create_topic("orders", 2)
    with consumer(broker, "app", "orders", client_id="lives") as worker:
        with consumer(broker, "app", "orders", client_id="dies", group_instance_id="static") as other:
            _until_stable(broker, 2, worker, other)
        before = {one.client_id: one.member_id for one in broker.groups()["app"].members}
        assert set(before) == {"lives", "dies"}  # a static member does not leave when it closes

        with ThreadPoolExecutor(1) as beside:
            turned = beside.submit(broker.clock.advance, "1 day", keep_members=True)
            while not turned.done():
                worker.poll(0.01)
            turned.result()
        _until_stable(broker, 1, worker)
        assert broker.groups()["app"].members[0].member_id == before["lives"]

        broker.clock.advance("1 day", keep_members=True)  # nothing to join: nobody need poll
        assert broker.groups()["app"].members[0].member_id == before["lives"]

        broker.clock.advance("1 day")
        _until_stable(broker, 1, worker)
        assert broker.groups()["app"].members[0].member_id != before["lives"]


def test_a_member_that_is_kept_and_does_not_join_is_told(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muster.server.kit.time_travel.JOINED_WITHIN_S", 0.05)
    broker.create_topic("orders")
    with consumer(broker, "app", "orders", client_id="stays") as worker:
        with consumer(broker, "app", "orders", client_id="dies", group_instance_id="static") as other:
            _until_stable(broker, 2, worker, other)
        with pytest.raises(NotInTime, match=r"group app rebalances, .* poll it in another thread"):
            broker.clock.advance("1 hour", keep_members=True)
        _until_stable(broker, 1, worker)


def _until_stable(broker: Broker, members: int, *consumers) -> None:  # type: ignore[no-untyped-def]
    """Clients take part in a rebalance while they poll."""
    for _ in range(500):
        for one in consumers:
            one.poll(0.01)
        group = broker.groups().get("app")
        if group is not None and (group.state, len(group.members)) == ("Stable", members):
            return
    raise AssertionError(broker.groups())


def test_a_fetch_that_waits_is_answered_in_its_time(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.create_topic("orders")
    partitions = [{"partition": 0, "fetchOffset": 0, "partitionMaxBytes": 1000}]
    with Raw((broker.host, broker.port)) as raw:
        raw.send(
            ApiKey.FETCH, 4, replicaId=-1, maxWaitMs=600_000, minBytes=1, maxBytes=1000, isolationLevel=0,
            topics=[{"topic": "orders", "partitions": partitions}],
        )  # fmt: skip
        while broker._server is None or not len(broker._server.parts.fetches):
            time.sleep(0.001)
        broker.clock.advance("9 minutes")
        fetches, stops = broker._server.parts.fetches, []
        assert len(fetches) == 1
        (deadline_ms,) = fetches._timers.deadlines().values()
        monkeypatch.setattr(TimeTravel, "_go_to", lambda self, ms: (stops.append(ms), go_to(self, ms)))
        broker.clock.advance(3600)
        assert deadline_ms in stops
        assert raw.hear(ApiKey.FETCH, 4)[1]["responses"][0]["partitions"][0]["errorCode"] == 0


def test_reset_answers_a_fetch_that_came_in_the_turned_time(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader of the topic that stays, which fetches again while the others are deleted."""
    partitions = [{"partition": 0, "fetchOffset": 0, "partitionMaxBytes": 1 << 30}]
    broker.clock.advance("7 days")
    with Raw((broker.host, broker.port)) as raw:
        assert broker._server is not None
        assert broker._kit is not None
        fetches = broker._server.parts.fetches
        asked: list[Raw] = []
        kit = broker._kit
        forget = kit.inside.forget_everything

        async def meanwhile() -> None:
            if not asked:
                asked.append(raw)
                raw.send(
                    ApiKey.FETCH, 4, replicaId=-1, maxWaitMs=1000, minBytes=1 << 30, maxBytes=1 << 30, isolationLevel=0,
                    topics=[{"topic": "__consumer_offsets", "partitions": partitions}],
                )  # fmt: skip
                while not len(fetches):
                    await asyncio.sleep(0.001)
            await forget()

        monkeypatch.setattr(kit.inside, "forget_everything", meanwhile)
        broker.reset()
        assert len(fetches) == 0
        assert raw.hear(ApiKey.FETCH, 4)[1]["responses"][0]["partitions"][0]["errorCode"] == 0


def test_append_times_follow_the_clock_and_create_times_do_not(broker: Broker) -> None:
    broker.create_topic("append", configs={"message.timestamp.type": "LogAppendTime"})
    now_ms = int(time.time() * 1000)
    broker.clock.advance(timedelta(days=30))
    broker.seed_records("append", {"value": "x", "timestamp_ms": now_ms})
    broker.seed_records("create", {"value": "x", "timestamp_ms": now_ms}, "y")
    later_ms = now_ms + 30 * 86_400_000
    assert 0 <= broker.records("append")[0].timestamp_ms - later_ms < 60_000
    assert broker.records("create")[0].timestamp_ms == now_ms
    assert 0 <= broker.records("create")[1].timestamp_ms - later_ms < 60_000
    assert 0 <= broker.clock.now().timestamp() * 1000 - later_ms < 60_000


@pytest.mark.parametrize(
    ("duration", "in_ms"),
    [("7 days", 604_800_000), ("1 week", 604_800_000), ("1h 30min", 5_400_000), ("250 ms", 250), ("90s", 90_000),
     ("1.5 seconds", 1500), (0.25, 250)],
)  # fmt: skip
def test_durations(duration: float | str, in_ms: int) -> None:
    assert milliseconds(duration) == in_ms


@pytest.mark.parametrize("duration", ["", "7", "days", "7 fortnights", "-1 s", 0, -3, "200 years"])
def test_what_is_no_duration(duration: float | str) -> None:
    with pytest.raises(ConfigError, match="is not a time to go on by; write it as '7 days'"):
        milliseconds(duration)
