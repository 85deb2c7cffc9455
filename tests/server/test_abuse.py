"""Clients that do not behave: others are not harmed, memory stays bounded, one line each."""

import contextlib
import io
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from muster.broker import Broker
from muster.protocol.apis import ApiKey
from muster.protocol.messages import decode_response, encode_request
from tests.server.raw import Raw, commit_body, fetch_offsets

JOIN = {
    "sessionTimeoutMs": 30_000, "rebalanceTimeoutMs": 30_000, "memberId": "", "protocolType": "consumer",
    "protocols": [{"name": "range", "metadata": b"x"}],
}  # fmt: skip


@pytest.fixture(scope="module")
def server_log() -> io.StringIO:
    return io.StringIO()


@pytest.fixture(scope="module")
def broker(server_log: io.StringIO) -> Iterator[Broker]:
    with Broker(log=server_log, socket_request_max_bytes=1 << 20) as running:
        running.create_topic("orders", 4)
        yield running


@pytest.fixture
def good(broker: Broker) -> Iterator[Raw]:
    """Somebody who behaves, and must not notice anything."""
    with Raw((broker.host, broker.port)) as raw:
        yield raw
        assert is_well(raw)


def is_well(raw: Raw) -> bool:
    answer = raw.ask(ApiKey.OFFSET_COMMIT, 8, **commit_body("good", "orders", {0: 1}))
    return bool(answer["topics"][0]["partitions"][0]["errorCode"] == 0)


def connect(broker: Broker) -> socket.socket:
    return socket.create_connection((broker.host, broker.port), 10)


def is_hung_up(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def rss_mb() -> float:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


@pytest.mark.parametrize(
    "garbage",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", (1 << 20) + 1),
        struct.pack(">i", 0),
        struct.pack(">ihhi", 8, 9_999, 0, 1),
        struct.pack(">ihhi", 8, ApiKey.HEARTBEAT, 99, 1),
        struct.pack(">ihhih", 12, ApiKey.JOIN_GROUP, 9, 1, -1) + b"\xff\xff",
        b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
        bytes(range(256)) * 300,
    ],
    ids=["negative", "2 GB", "too long", "nothing", "unknown API", "unknown version", "torn body", "http", "noise"],
)
def test_a_client_that_sends_garbage_is_sent_away(
    broker: Broker, server_log: io.StringIO, good: Raw, garbage: bytes
) -> None:
    lines = server_log.getvalue().count("was sent away")
    with connect(broker) as client:
        client.sendall(garbage)
        assert is_hung_up(client)
    assert server_log.getvalue().count("was sent away") == lines + 1


def test_byte_by_byte(broker: Broker, good: Raw) -> None:
    frame = encode_request(ApiKey.OFFSET_COMMIT, 8, 7, "slow", commit_body("slow", "orders", {1: 5}))
    with connect(broker) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for place in range(len(frame)):
            client.sendall(frame[place : place + 1])
            time.sleep(0.0005)
        size = struct.unpack(">i", client.recv(4))[0]
        assert client.recv(size)[:4] == struct.pack(">i", 7)


def test_half_a_frame_and_gone(broker: Broker, good: Raw) -> None:
    frame = encode_request(ApiKey.HEARTBEAT, 4, 7, "half", {"groupId": "g", "generationId": 1, "memberId": "m"})
    for cut in (1, 3, 4, 9, len(frame) - 1):
        with connect(broker) as client:
            client.sendall(frame[:cut])
    assert is_well(good)
    deadline = time.monotonic() + 10
    while any(connection._held for connection in broker._server.parts.connections.open):  # type: ignore[union-attr]
        assert time.monotonic() < deadline, "bytes of those who left are still counted"
        time.sleep(0.01)


POOL_BYTES = 4 << 20
LARGE = struct.pack(">i", 3 << 20) + bytes(2 << 20)
"""Two of three announced megabytes."""


@pytest.fixture
def narrow() -> Iterator[tuple[Broker, io.StringIO]]:
    """A server with little room for requests that have not come whole."""
    lines = io.StringIO()
    with Broker(log=lines, queued_max_request_bytes=POOL_BYTES, socket_request_max_bytes=POOL_BYTES) as running:
        running.create_topic("orders", 4)
        yield running, lines


def send_what_is_taken(clients: list[socket.socket], data: bytes) -> None:
    """Send to each as much as it takes, until none takes any more."""
    left = dict.fromkeys(clients, data)
    for client in clients:
        client.setblocking(False)
    quiet = 0
    while left and quiet < 20:
        quiet += 1
        for client in list(left):
            with contextlib.suppress(BlockingIOError):
                left[client] = left[client][client.send(left[client]) :]
                quiet = 0
            if not left[client]:
                del left[client]
        time.sleep(0.01)


def test_half_sent_frames_get_nobody_dropped(narrow: tuple[Broker, io.StringIO]) -> None:
    """Clients hold all the room there is; one whose requests come in two parts goes on committing beside them."""
    broker, lines = narrow
    before = rss_mb()
    hoarders = [connect(broker) for _ in range(20)]
    send_what_is_taken(hoarders, LARGE)
    with Raw((broker.host, broker.port)) as honest:
        for number in range(30):
            frame = encode_request(
                ApiKey.OFFSET_COMMIT, 8, number, "honest", commit_body("honest", "orders", {0: number})
            )
            honest.socket.sendall(frame[:20])
            time.sleep(0.01)
            honest.socket.sendall(frame[20:])
            heard, answer = honest.hear(ApiKey.OFFSET_COMMIT, 8)
            assert (heard, answer["topics"][0]["partitions"][0]["errorCode"]) == (number, 0)
        assert fetch_offsets(honest, "honest") == (0, {("orders", 0): 29})
    assert "was sent away" not in lines.getvalue()
    assert rss_mb() - before < 30, "40 MB were sent"
    for hoarder in hoarders:
        hoarder.close()


def test_clients_that_hoard_give_way_to_one_who_finishes_its_request(
    narrow: tuple[Broker, io.StringIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, lines = narrow
    monkeypatch.setattr("muster.server.connections.GIVE_WAY_S", 0.5)
    hoarders = [connect(broker) for _ in range(3)]
    send_what_is_taken(hoarders, LARGE)
    with Raw((broker.host, broker.port)) as honest:
        body = commit_body("honest", "orders", {0: 7})
        body["topics"][0]["partitions"][0]["committedMetadata"] = "x" * 30_000
        body["topics"][0]["partitions"] *= 70
        answer = honest.ask(ApiKey.OFFSET_COMMIT, 8, **body)
        assert answer["topics"][0]["partitions"][0]["errorCode"] == 12, "it was read to its end, and found too large"
    (line, *_) = [line for line in lines.getvalue().splitlines() if "was sent away" in line]
    assert "bytes of a request that was not whole, and" in line
    assert "waited for room (queued.max.request.bytes)" in line
    for hoarder in hoarders:
        hoarder.close()


def test_a_request_that_never_comes_to_its_end_ends_its_connection() -> None:
    lines = io.StringIO()
    with Broker(log=lines, muster_request_timeout_ms=300) as broker, Raw((broker.host, broker.port)) as patient:
        broker.create_topic("orders", 4)
        with connect(broker) as client:
            client.sendall(b"\x00\x00")
            drops = threading.Thread(target=drip, args=(client,))
            drops.start()
            drops.join(30)
            assert not drops.is_alive(), "drop by drop, it is read for ever"
        assert is_well(patient), "one who sends nothing is not in the middle of a request"
    assert "its request was not whole after 0.3 s (muster.request.timeout.ms)" in lines.getvalue()


def drip(client: socket.socket) -> None:
    """A byte at a time of a request of a megabyte, until the other side hangs up."""
    with contextlib.suppress(OSError):
        for byte in b"\x10\x00" + bytes(600):
            client.sendall(bytes([byte]))
            time.sleep(0.05)


def test_answers_come_in_the_order_of_the_requests(broker: Broker, good: Raw) -> None:
    with Raw((broker.host, broker.port)) as raw:
        numbers = []
        for place in range(200):
            if place % 3:
                numbers.append(raw.send(ApiKey.HEARTBEAT, 3, groupId="nobody", generationId=1, memberId="m"))
            else:
                numbers.append(raw.send(ApiKey.OFFSET_COMMIT, 8, **commit_body("pipelined", "orders", {0: place})))
        heard = [struct.unpack_from(">i", raw.frame(), 4)[0] for _ in numbers]
        assert heard == numbers
        assert fetch_offsets(raw, "pipelined")[1] == {("orders", 0): 198}


def test_requests_behind_a_parked_join_wait_for_it(broker: Broker, good: Raw) -> None:
    address = broker.host, broker.port
    with Raw(address) as first, Raw(address) as second, Raw(address) as watcher:
        joined = first.ask(ApiKey.JOIN_GROUP, 3, groupId="parked", **JOIN)
        assert joined["errorCode"] == 0
        parked = second.send(ApiKey.JOIN_GROUP, 3, groupId="parked", **JOIN)  # waits for the first to join again
        behind = second.send(ApiKey.OFFSET_COMMIT, 8, **commit_body("behind", "orders", {0: 9}))
        time.sleep(0.2)
        assert fetch_offsets(watcher, "behind")[1] == {}, "a request overtook the join before it"
        first.send(ApiKey.JOIN_GROUP, 3, **(JOIN | {"groupId": "parked", "memberId": joined["memberId"]}))
        assert second.hear(ApiKey.JOIN_GROUP, 3)[0] == parked
        assert second.hear(ApiKey.OFFSET_COMMIT, 8)[0] == behind
        assert fetch_offsets(watcher, "behind")[1] == {("orders", 0): 9}


def test_one_who_closes_in_the_middle_of_a_join(broker: Broker, good: Raw) -> None:
    for _ in range(20):
        client = Raw((broker.host, broker.port))
        client.send(ApiKey.JOIN_GROUP, 3, groupId="leavers", **(JOIN | {"sessionTimeoutMs": 50}))
        client.close()
    assert is_well(good)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells that a client has hung up")
def test_one_who_closes_behind_a_fetch_that_waits_for_weeks(
    broker: Broker, good: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muster.server.connections.LEFT_AFTER_S", 0.0)
    partition = {"partition": 0, "fetchOffset": 0, "partitionMaxBytes": 1}
    body = {"maxWaitMs": 2**31 - 1, "minBytes": 1, "topics": [{"topic": "orders", "partitions": [partition]}]}
    with Raw((broker.host, broker.port)) as patient:
        patient.send(ApiKey.FETCH, 4, **body)
        with Raw((broker.host, broker.port)) as gone:
            gone.send(ApiKey.FETCH, 4, **body)
            until(lambda: len(broker._server.parts.fetches) == 2)  # type: ignore[union-attr]
        until(lambda: len(broker._server.parts.fetches) == 1)  # type: ignore[union-attr]
        assert is_well(good)
        assert len(broker._server.parts.fetches) == 1, "one who is there goes on waiting"  # type: ignore[union-attr]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_one_who_never_reads(broker: Broker, good: Raw) -> None:
    with connect(broker) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        client.settimeout(0.5)
        before = rss_mb()
        frame = encode_request(ApiKey.API_VERSIONS, 0, 1, "deaf", {}) * 1_000
        sent = 0
        try:
            while sent < 64 << 20:
                sent += client.send(frame)
        except TimeoutError:
            pass  # nobody reads from us any more: what was to happen
        assert sent < 64 << 20, "everything was taken in"
        assert rss_mb() - before < 64
        assert is_well(good)


def member_of(raw: Raw, group: str, metadata_bytes: int) -> None:
    """A stable group of one member."""
    protocols = [{"name": "range", "metadata": bytes(metadata_bytes)}]
    joined = raw.ask(ApiKey.JOIN_GROUP, 3, groupId=group, **(JOIN | {"protocols": protocols}))
    seat = {"groupId": group, "generationId": joined["generationId"], "memberId": joined["memberId"]}
    assert raw.ask(ApiKey.SYNC_GROUP, 2, assignments=[], **seat)["errorCode"] == 0


def answered(raw: Raw, api_key: ApiKey, version: int, **body: Any) -> tuple[int, Any]:
    """How many bytes an answer has, and what it says."""
    raw.send(api_key, version, **body)
    frame = raw.frame()
    return len(frame), decode_response(api_key, version, frame)[1]


def test_a_large_group_named_again_and_again(broker: Broker, server_log: io.StringIO, good: Raw) -> None:
    """Kafka answers each time; that ends where the largest answer ends."""
    with Raw((broker.host, broker.port), timeout_s=60) as raw:
        member_of(raw, "large", 900_000)
        size, answer = answered(raw, ApiKey.DESCRIBE_GROUPS, 6, groups=["large"] * 3 + ["small"])
        assert [group["errorCode"] for group in answer["groups"]] == [0, 0, 0, 69]
        assert size > 2_700_000
        size, answer = answered(raw, ApiKey.DESCRIBE_GROUPS, 6, groups=["small"] + ["large"] * 100)
        assert size < 100_000, "900 bytes become 90 MB"
        assert [group["errorCode"] for group in answer["groups"]] == [69] + [44] * 100
        assert answer["groups"][1]["errorMessage"] == "The answer would be larger than muster.max.response.bytes."
    assert "asked with one DescribeGroups for more than an answer may hold" in server_log.getvalue()


def test_offsets_of_a_group_named_again_and_again(broker: Broker, good: Raw) -> None:
    with Raw((broker.host, broker.port), timeout_s=60) as raw:
        body = commit_body("wordy", "orders", dict.fromkeys(range(4), 1))
        for partition in body["topics"][0]["partitions"]:
            partition["committedMetadata"] = "x" * 4_096
        raw.ask(ApiKey.OFFSET_COMMIT, 8, **body)
        everything = {"groupId": "wordy", "memberId": None, "memberEpoch": -1, "topics": None}
        one_of_them = {**everything, "topics": [{"name": "orders", "partitionIndexes": [0] * 30_000}]}
        size, answer = answered(raw, ApiKey.OFFSET_FETCH, 9, groups=[everything] * 20, requireStable=False)
        assert size > 20 * 4 * 4_096
        assert {group["errorCode"] for group in answer["groups"]} == {0}
        for groups in [everything] * 6_000, [one_of_them]:
            size, answer = answered(raw, ApiKey.OFFSET_FETCH, 9, groups=groups, requireStable=False)
            assert size < 1_000_000, "they become 100 MB"
            assert {group["errorCode"] for group in answer["groups"]} == {44}
            assert {len(group["topics"]) for group in answer["groups"]} == {0}


def test_large_answers_are_not_made_before_those_before_them_are_read(broker: Broker, good: Raw) -> None:
    """Many questions in one go, each with a large answer, from a client that reads none of them."""
    with Raw((broker.host, broker.port)) as raw:
        member_of(raw, "much", 900_000)
        before = rss_mb()
        raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        question = encode_request(ApiKey.DESCRIBE_GROUPS, 5, 1, "deaf", {"groups": ["much"] * 20})
        raw.socket.sendall(question * 100)
        for _ in range(20):
            assert is_well(good)
            time.sleep(0.02)
        assert rss_mb() - before < 150, "each is 18 MB"


def test_many_connections(broker: Broker, good: Raw) -> None:
    clients = [connect(broker) for _ in range(400)]
    assert is_well(good)
    for client in clients:
        client.close()


def test_a_great_many_groups_and_a_storm_of_joins(broker: Broker, good: Raw) -> None:
    with Raw((broker.host, broker.port)) as raw:
        before, groups = rss_mb(), 20_000
        for start in range(0, groups, 500):
            for number in range(start, start + 500):
                raw.send(ApiKey.OFFSET_COMMIT, 8, **commit_body(f"many-{number}", "orders", {0: number}))
            for _ in range(500):
                raw.frame()
        assert (rss_mb() - before) * 1e6 / groups < 10_000, "a group of one offset takes kilobytes"
        assert is_well(good)
        for _ in range(500):
            raw.send(ApiKey.JOIN_GROUP, 5, groupId="storm", groupInstanceId=None, **JOIN)
        for _ in range(500):
            raw.frame()
        assert is_well(good)


def test_the_server_loads_nothing_it_does_not_need() -> None:
    import subprocess

    code = (
        "import sys, muster; b = muster.Broker().start(); b.stop(); "
        "print([name for name in ('numpy', 'numba', 'pyarrow', 'kio', 'pyspark') if name in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"
