"""Requests of very many elements: the same answers, and others have their turn in between."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from typing import Any, cast

import pytest

from muster.broker import Broker
from muster.protocol.apis import ApiKey
from muster.server import cluster_requests, connection, long_requests
from muster.server.cluster import list_offsets as list_of_many
from muster.server.connection import Connection, PendingReply
from muster.server.groups import requests as group_requests
from muster.server.long_requests import LongRequests
from muster.server.records import waiting_fetches
from muster.server.slices import Slices
from muster.server.transactions import questions, serving
from tests.server.raw import Raw, commit_body, fetch_offsets
from tests.server.records.talking import FETCH, batch, fetch_body, produce, produce_body
from tests.server.test_connection import FakeTransport, connected, requests

MANY = 3_000
"""Elements of a request, more than are handled at once."""
TIMEOUT_S = 60


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("orders", partitions=3)
        yield broker


@pytest.fixture
def raw(broker: Broker) -> Iterator[Raw]:
    with Raw((broker.host, broker.port)) as raw:
        yield raw


def partitions(**more: Any) -> list[dict[str, Any]]:
    return [{"partitionIndex": number, **more} for number in range(MANY)]


REQUESTS: dict[str, tuple[ApiKey, int, dict[str, Any]]] = {
    "Metadata": (
        ApiKey.METADATA, 12,
        {"topics": [{"name": name} for name in ("orders", *(f"a-long-name-{n}" for n in range(MANY)))],
         "allowAutoTopicCreation": False},
    ),
    "ListOffsets": (
        ApiKey.LIST_OFFSETS, 7,
        {"replicaId": -1, "isolationLevel": 0,
         "topics": [{"name": "orders", "partitions": partitions(currentLeaderEpoch=-1, timestamp=-1)}]},
    ),
    "OffsetForLeaderEpoch": (
        ApiKey.OFFSET_FOR_LEADER_EPOCH, 4,
        {"replicaId": -2, "topics": [{"topic": "orders", "partitions": [
            {"partition": number, "currentLeaderEpoch": -1, "leaderEpoch": 0} for number in range(MANY)]}]},
    ),
    "DescribeConfigs": (
        ApiKey.DESCRIBE_CONFIGS, 4,
        {"resources": [{"resourceType": 2, "resourceName": name, "configurationKeys": None}
                       for name in ("orders", *(f"no-topic-{n}" for n in range(MANY)))]},
    ),
    "DescribeTopicPartitions": (
        ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0,
        {"topics": [{"name": name} for name in ("orders", *(f"no-topic-{n}" for n in range(MANY)))],
         "responsePartitionLimit": 2_000, "cursor": None},
    ),
    "DescribeProducers": (
        ApiKey.DESCRIBE_PRODUCERS, 0, {"topics": [{"name": "orders", "partitionIndexes": list(range(2 * MANY))}]},
    ),
    "Fetch": (ApiKey.FETCH, FETCH, fetch_body("orders", dict.fromkeys(range(MANY), 0))),
    "Fetch without sense": (
        ApiKey.FETCH, FETCH, fetch_body("orders", dict.fromkeys(range(MANY), 0), isolationLevel=9),
    ),
    "Produce": (ApiKey.PRODUCE, 9, produce_body("orders", dict.fromkeys(range(3, MANY), b"no batch"))),
    "OffsetFetch": (
        ApiKey.OFFSET_FETCH, 9,
        {"groups": [{"groupId": "readers", "memberId": None, "memberEpoch": -1,
                     "topics": [{"name": "orders", "partitionIndexes": list(range(2 * MANY))}]}],
         "requireStable": False},
    ),
    "DescribeGroups": (
        ApiKey.DESCRIBE_GROUPS, 5,
        {"groups": ["readers", *(f"no-group-{n}" for n in range(MANY))], "includeAuthorizedOperations": False},
    ),
    "DeleteGroups": (ApiKey.DELETE_GROUPS, 2, {"groupsNames": [f"no-group-{n}" for n in range(MANY)]}),
    "AddPartitionsToTxn": (
        ApiKey.ADD_PARTITIONS_TO_TXN, 3,
        {"v3AndBelowTransactionalId": "worker", "v3AndBelowProducerId": 1, "v3AndBelowProducerEpoch": 0,
         "v3AndBelowTopics": [{"name": "orders", "partitions": [*range(2 * MANY), 0, 0]}]},
    ),
    "AddPartitionsToTxn of brokers": (
        ApiKey.ADD_PARTITIONS_TO_TXN, 5,
        {"transactions": [{"transactionalId": f"worker-{n}", "producerId": n, "producerEpoch": 0, "verifyOnly": True,
                           "topics": [{"name": "orders", "partitions": [n % 4]}]} for n in range(MANY)]},
    ),
    "TxnOffsetCommit": (
        ApiKey.TXN_OFFSET_COMMIT, 3,
        {"transactionalId": "worker", "groupId": "readers", "producerId": 1, "producerEpoch": 0, "topics": [
            {"name": "orders", "partitions": partitions(committedOffset=1, committedMetadata="")}]},
    ),
    "WriteTxnMarkers": (
        ApiKey.WRITE_TXN_MARKERS, 1,
        {"markers": [{"producerId": n, "producerEpoch": 0, "transactionResult": True, "coordinatorEpoch": 0,
                      "topics": [{"name": "orders", "partitionIndexes": [n % 4]}]} for n in range(MANY)]},
    ),
    "DescribeTransactions": (
        ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactionalIds": [f"worker-{n}" for n in range(MANY)]},
    ),
    "FindCoordinator": (
        ApiKey.FIND_COORDINATOR, 4, {"keyType": 0, "coordinatorKeys": [f"group-{n}" for n in range(MANY)]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REQUESTS)
def test_the_answer_is_the_same(broker: Broker, raw: Raw, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert broker._server is not None
    produce(raw, "orders", 1, batch("a", "b", producer_id=3, producer_epoch=0, base_sequence=0))
    raw.ask(ApiKey.OFFSET_COMMIT, 8, **commit_body("readers", "orders", {1: 2}))
    api_key, version, body = REQUESTS[name]
    began: list[int] = []
    begin = LongRequests.begin
    monkeypatch.setattr(LongRequests, "begin", lambda *given: (began.append(1), begin(*given))[1])
    raw.send(api_key, version, **body)
    in_slices = raw.frame()
    assert began
    began.clear()
    for module in (cluster_requests, group_requests, waiting_fetches, serving, questions):
        for limit in ("LONG_REQUEST_BYTES", "MANY_PARTITIONS"):
            monkeypatch.setattr(module, limit, 1 << 30, raising=False)
    raw.send(api_key, version, **body)
    at_once = raw.frame()
    assert not began
    assert in_slices[8:] == at_once[8:], "all but the correlation id"
    assert len(at_once) > 1_000


def test_others_are_served_while_a_request_is_read(broker: Broker, raw: Raw, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what the same client sends behind it is answered behind it."""
    reading, go_on = threading.Event(), threading.Event()
    decode = list_of_many.decode_list_offsets

    def slow(*given: Any) -> Any:
        reading.set()
        assert go_on.wait(TIMEOUT_S)
        return decode(*given)

    apis = list_of_many.APIS
    monkeypatch.setitem(apis, ApiKey.LIST_OFFSETS, apis[ApiKey.LIST_OFFSETS]._replace(decode=slow))
    api_key, version, body = REQUESTS["ListOffsets"]
    first = raw.send(api_key, version, **body)
    second = raw.send(ApiKey.METADATA, 12, topics=None)
    assert reading.wait(TIMEOUT_S)
    with Raw((broker.host, broker.port)) as other:
        other.ask(ApiKey.OFFSET_COMMIT, 8, **commit_body("g", "orders", {0: 1}))
        assert fetch_offsets(other, "g") == (0, {("orders", 0): 1})
        assert produce(other, "orders", 0, batch("a")) == (0, 0)
    go_on.set()
    assert [raw.hear(api_key, version)[0], raw.hear(ApiKey.METADATA, 12)[0]] == [first, second]


def test_bytes_that_make_no_sense_end_the_connection(broker: Broker, raw: Raw) -> None:
    size = 100_000
    raw.socket.sendall(
        size.to_bytes(4, "big") + bytes((0, ApiKey.LIST_OFFSETS, 0, 5)) + bytes(4) + b"\xff" * (size - 8)
    )
    with pytest.raises(EOFError):
        raw.frame()
    assert "was sent away: ListOffsetsRequest version 5" in broker.log_text


def test_large_requests_stay_with_their_connections_while_too_much_waits(
    broker: Broker, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_requests, "MOST_WAITING_BYTES", 1)
    looks: list[int] = []
    check_room = LongRequests.check_room
    monkeypatch.setattr(LongRequests, "check_room", lambda self: (looks.append(1), check_room(self))[1])
    api_key, version, body = REQUESTS["ListOffsets"]
    with ExitStack() as opened:
        clients = [raw, *(opened.enter_context(Raw((broker.host, broker.port))) for _ in range(9))]
        for one in clients:
            one.send(api_key, version, **body)
        for one in clients:
            one.hear(api_key, version)
    assert len(looks) <= 2 * len(clients), "each is looked at again when there is room for it, and not before"
    assert broker._server is not None
    assert broker._server.parts.long_requests._waiting_bytes == 0


class TestFetchesOfVeryManyPartitions:
    @pytest.fixture(autouse=True)
    def _few_are_many(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for module in (cluster_requests, waiting_fetches):
            monkeypatch.setattr(module, "MANY_PARTITIONS", 2)

    def test_one_that_waits_is_woken(self, broker: Broker, raw: Raw) -> None:
        raw.send(ApiKey.FETCH, FETCH, **fetch_body("orders", dict.fromkeys(range(3), 0), maxWaitMs=60_000))
        wait_for(broker, lambda parts: len(parts.fetches) == 1)
        with Raw((broker.host, broker.port)) as other:
            produce(other, "orders", 2, batch("late"))
        told = raw.hear(ApiKey.FETCH, FETCH)[1]["responses"][0]["partitions"]
        assert [bool(one["records"]) for one in told] == [False, False, True]

    @pytest.mark.parametrize("is_deleted", [False, True])
    def test_what_happens_while_it_looks_is_not_missed(
        self, broker: Broker, raw: Raw, monkeypatch: pytest.MonkeyPatch, is_deleted: bool
    ) -> None:
        """Something happens to a partition that has been looked at, before the fetch is parked."""
        slices = cluster_requests.fetch_slices.handle
        looked, go_on = threading.Event(), threading.Event()

        def held(*given: Any) -> Slices[Any]:
            answer = yield from slices(*given)
            looked.set()
            while not go_on.is_set():
                yield
            return answer

        monkeypatch.setattr(cluster_requests.fetch_slices, "handle", held)
        monkeypatch.setattr(long_requests, "SLICE_S", 0)
        raw.send(ApiKey.FETCH, FETCH, **fetch_body("orders", dict.fromkeys(range(3), 0), maxWaitMs=60_000))
        assert looked.wait(TIMEOUT_S)
        with Raw((broker.host, broker.port)) as other:
            if is_deleted:
                other.ask(ApiKey.DELETE_TOPICS, 5, topicNames=["orders"], timeoutMs=10_000)
            else:
                produce(other, "orders", 0, batch("meanwhile"))
        go_on.set()
        told = raw.hear(ApiKey.FETCH, FETCH)[1]["responses"][0]["partitions"]
        assert [one["errorCode"] for one in told] == [3 if is_deleted else 0] * 3
        assert bool(told[0]["records"]) is not is_deleted

    def test_one_of_a_session_is_told_what_is_new(self, raw: Raw) -> None:
        opened = raw.ask(ApiKey.FETCH, FETCH, **fetch_body("orders", dict.fromkeys(range(3), 0), sessionEpoch=0))
        assert len(opened["responses"][0]["partitions"]) == 3
        produce(raw, "orders", 1, batch("new"))
        session = {"sessionId": opened["sessionId"], "sessionEpoch": 1, "topics": []}
        answer = raw.ask(ApiKey.FETCH, FETCH, **(fetch_body("orders", {}) | session))
        assert [one["partitionIndex"] for one in answer["responses"][0]["partitions"]] == [1]


def wait_for(broker: Broker, condition: Callable[[Any], bool]) -> None:
    async def until() -> None:
        assert broker._server is not None
        while not condition(broker._server.parts):
            await asyncio.sleep(0.001)

    assert broker._loop is not None
    asyncio.run_coroutine_threadsafe(until(), broker._loop).result(TIMEOUT_S)


def replying(connection: Connection) -> PendingReply:
    return connection.reply(3, lambda context, answer: b"", None)


def test_long_requests_take_turns_and_everybody_else_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_requests, "SLICE_S", -1.0)  # an element is a slice
    order: list[str] = []

    async def story() -> None:
        host, one, _ = connected(lambda connection: order.append("small"))
        requests_ = LongRequests(host.turns)

        def elements(name: str) -> Slices[str]:
            for _ in range(4):
                order.append(name)
                yield
            return name

        async def work(name: str) -> None:
            order.append(await requests_.in_slices(elements(name)) + " is done")

        for name in "abc":
            requests_.begin(replying(one), 0, work(name))
        while len(requests_):
            await asyncio.sleep(0)
            one.data_received(requests(1, api_key=ApiKey.HEARTBEAT))
        requests_.stop()

    asyncio.run(story())
    steps = [step for step in order if step != "small"]
    assert steps[:8] == ["a", "b"] * 4, "two at a time; c waits for one of them"
    assert [step for step in steps if len(step) > 1] == ["a is done", "b is done", "c is done"]
    for first, second in pairwise(order):
        assert "small" in (first, second) or "done" in first + second, "no two slices without a look at the others"


def test_one_with_few_requests_goes_before_those_who_always_have_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty clients whose requests take long, a new one as soon as one is answered, and one who comes now and then."""
    order: list[str] = []
    now_s = 0.0
    monkeypatch.setattr(connection, "monotonic", lambda: now_s)

    def handle(handled: Connection) -> None:
        nonlocal now_s
        order.append(handled.peer)
        now_s += 0.2 if handled.peer == "greedy" else 0.001

    async def story() -> None:
        host, light, _ = connected(handle)
        light.peer = "light"
        greedy = [Connection(cast(Any, host), asyncio.get_running_loop()) for _ in range(20)]
        for one in greedy:
            one.connection_made(cast(Any, FakeTransport(one, is_read=True)))
            one.peer = "greedy"
            one.data_received(requests(50, 2_000, ApiKey.FETCH))
        while len(order) < 25:
            await asyncio.sleep(0)
        for _ in range(20):
            before = len(order)
            light.data_received(requests(1, api_key=ApiKey.PRODUCE))
            while "light" not in order[before:]:
                await asyncio.sleep(0)
            assert order[before:].index("light") <= 1, "it waits for the one at hand at most"
            while len(order) < before + 5:
                await asyncio.sleep(0)
        assert order.count("greedy") > 80, "and they go on, too"

    asyncio.run(story())


def test_those_who_always_have_another_share_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose requests take ten times as long has a tenth of the turns."""
    order: list[str] = []
    now_s = 0.0
    monkeypatch.setattr(connection, "monotonic", lambda: now_s)

    def handle(handled: Connection) -> None:
        nonlocal now_s
        order.append(handled.peer)
        now_s += 0.5 if handled.peer == "slow" else 0.05

    async def story() -> None:
        host, slow, _ = connected(handle)
        quick = Connection(cast(Any, host), asyncio.get_running_loop())
        quick.connection_made(cast(Any, FakeTransport(quick, is_read=True)))
        slow.peer, quick.peer = "slow", "quick"
        for one in (slow, quick):
            one.data_received(requests(300, 2_000, ApiKey.FETCH))
        while len(order) < 112:
            await asyncio.sleep(0)

    asyncio.run(story())
    assert 9 <= order.count("slow") <= 13
