"""Crowds and floods against `muster serve`: what it costs in memory, and what one who behaves notices of it.

Small every day, in full under `long`, where each prints its figures (`-s` shows them).
"""

import asyncio
import contextlib
import os
import resource
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from muster.protocol.apis import ApiKey
from muster.protocol.messages import decode_response, encode_request
from muster.server.server_log import LINES_IN_A_WINDOW
from tests.server.bystander import Bystander
from tests.server.raw import Raw, ServerProcess, commit_body, create_topic, running

MOST_WAITED_MS = 10_000
"""A consumer's session, unless it asks for another (45 s since Kafka 3): whoever waits no longer keeps their seat."""

USUALLY_WAITED_MS = 500

SHORTEST_S = 0.5
"""A storm lasts at least so long, for somebody to be there who may suffer from it."""

SLOW = pytest.mark.long


@pytest.fixture(scope="module", autouse=True)
def _many_files() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextmanager
def serving(data: Path, *settings: str) -> Iterator[ServerProcess]:
    arguments = [part for setting in ("socket.listen.backlog.size=1000", *settings) for part in ("--set", setting)]
    with running(data, *arguments) as server:
        create_topic(server.address, "orders", 4)
        yield server


def rss_mb(server: ServerProcess) -> float:
    assert server.process is not None
    pages = int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def sent_away(server: ServerProcess) -> list[str]:
    return [line for line in server.log.read_text().splitlines() if "was sent away" in line]


def until(condition: Callable[[], bool], what: str, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


class Storm:
    """Figures of one: memory before, during and after it, how long it took, and what a bystander waited."""

    def __init__(self, name: str, server: ServerProcess) -> None:
        self._name = name
        self._server = server
        self._bystander = Bystander(server.address)
        self.before_mb = self.most_mb = 0.0

    def __enter__(self) -> "Storm":
        self._bystander.__enter__()
        self.before_mb = self.most_mb = rss_mb(self._server)
        self._started = time.monotonic()
        return self

    def look(self) -> float:
        """How much memory has been taken so far."""
        self.most_mb = max(self.most_mb, rss_mb(self._server))
        return self.most_mb - self.before_mb

    def __exit__(self, *problem: object) -> None:
        self.look()
        time.sleep(max(0.0, SHORTEST_S - (time.monotonic() - self._started)))
        seconds = time.monotonic() - self._started
        self._bystander.__exit__()
        waited = self._bystander.waited
        assert waited is not None
        print(
            f"\n{self._name}: {seconds:.1f} s, RSS {self.before_mb:.0f} MB, then {self.most_mb:.0f} MB at most, "
            f"{rss_mb(self._server):.0f} MB behind it; a bystander waited {waited}"
        )
        if problem[0] is None:
            assert waited.most_ms < MOST_WAITED_MS, waited
            assert waited.median_ms < USUALLY_WAITED_MS, waited


def hung_up(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=SLOW)])
def test_connections(tmp_path: Path, count: int) -> None:
    with serving(tmp_path / "data") as server, Storm(f"{count} connections", server) as storm:
        clients = [socket.create_connection(server.address, 30) for _ in range(count)]
        question = encode_request(ApiKey.API_VERSIONS, 0, 7, "crowd", {})
        for client in clients:
            client.sendall(question)
        for client in clients:
            assert client.recv(8)[4:] == struct.pack(">i", 7)
        assert storm.look() < 20 + count * 0.02, "a connection takes more than 20 kB"
        for client in clients:
            client.close()
        with Raw(server.address) as raw:
            assert raw.ask(ApiKey.API_VERSIONS, 0)["errorCode"] == 0


@pytest.mark.parametrize("count", [300, pytest.param(5_000, marks=SLOW)])
def test_connections_that_wait_for_records_and_leave(tmp_path: Path, count: int) -> None:
    """Fetches that are parked, all dropped at the same time."""
    fetch = {
        "replicaId": -1, "maxWaitMs": 60_000, "minBytes": 1, "maxBytes": 1 << 20, "isolationLevel": 0,
        "sessionId": 0, "sessionEpoch": -1, "forgottenTopicsData": [], "rackId": "",
        "topics": [{"topic": "orders", "partitions": [
            {"partition": 0, "currentLeaderEpoch": -1, "fetchOffset": 0, "logStartOffset": -1,
             "partitionMaxBytes": 1 << 20}]}],
    }  # fmt: skip
    with serving(tmp_path / "data") as server, Storm(f"{count} parked fetches", server) as storm:
        clients = [socket.create_connection(server.address, 30) for _ in range(count)]
        question = encode_request(ApiKey.FETCH, 11, 7, "crowd", fetch)
        for client in clients:
            client.sendall(question)
        time.sleep(0.5 + count / 10_000)
        assert storm.look() < 20 + count * 0.03
        for client in clients:
            client.close()
        with Raw(server.address) as raw:
            assert raw.ask(ApiKey.API_VERSIONS, 0)["errorCode"] == 0


def test_more_connections_than_files(tmp_path: Path) -> None:
    """The limit of the process is below what clients want: it says so, in a line, and goes on serving the others."""
    data = tmp_path / "data"
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with running(data) as server:
        assert server.process is not None
        create_topic(server.address, "orders", 4)
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (400, hard))
        with Bystander(server.address):
            clients = [socket.create_connection(server.address, 30) for _ in range(500)]
            served = 0
            question = encode_request(ApiKey.API_VERSIONS, 0, 7, "crowd", {})
            for client in clients:
                with contextlib.suppress(OSError):
                    client.sendall(question)
                    served += client.recv(8)[4:] == struct.pack(">i", 7)
            assert 100 < served < 400
            for client in clients:
                client.close()
        until(lambda: "refused" in server.log.read_text(), "it is not told")
        lines = [line for line in server.log.read_text().splitlines() if "refused" in line]
        assert len(lines) == 1, lines
        assert "this process may open 400 files (ulimit -n)" in lines[0]
        with Raw(server.address) as raw:  # there is room again
            assert raw.ask(ApiKey.API_VERSIONS, 0)["errorCode"] == 0
        assert server.stop() == 0


def test_the_server_takes_the_files_it_may_have(tmp_path: Path) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with ServerProcess(tmp_path / "data", files=256) as server:
        assert server.process is not None
        assert resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE) == (hard, hard)


@pytest.mark.parametrize("count", [200, pytest.param(5_000, marks=SLOW)])
def test_half_frames_and_slow_senders(tmp_path: Path, count: int) -> None:
    """Everybody says that a request of a megabyte comes, and sends it drop by drop."""
    with serving(tmp_path / "data", "socket.request.max.bytes=1048576") as server:
        with Storm(f"{count} slow senders", server) as storm:
            clients = [socket.create_connection(server.address, 30) for _ in range(count)]
            for client in clients:
                client.sendall(struct.pack(">i", 1 << 20) + b"\0\x08")
            for _ in range(20):
                for client in clients:
                    client.sendall(b"drop")
            assert storm.look() < 20 + count * 0.03, "memory is taken for what was announced, not for what came"
            for client in clients:
                client.close()
        assert sent_away(server) == []


@pytest.mark.parametrize("count", [100, pytest.param(3_000, marks=SLOW)])
def test_announcements_of_two_gigabytes_and_garbage(tmp_path: Path, count: int) -> None:
    garbage = [struct.pack(">i", 2**31 - 1) + bytes(4_096), os.urandom(4_096), b"GET / HTTP/1.1\r\n\r\n" * 50]
    with serving(tmp_path / "data") as server, Storm(f"{count} liars", server) as storm:
        for number in range(count):
            with socket.create_connection(server.address, 30) as client:
                client.sendall(b"\x7f" + garbage[number % 3][1:])  # whatever it is, it is long
                assert hung_up(client)
        assert storm.look() < 30
        most = min(count, LINES_IN_A_WINDOW)
        until(lambda: len(sent_away(server)) >= most, "they are not told")
        assert len(sent_away(server)) == most, "a flood of clients is a flood of lines"


@pytest.mark.parametrize("count", [3, pytest.param(100, marks=SLOW)])
def test_those_who_never_read(tmp_path: Path, count: int) -> None:
    with serving(tmp_path / "data") as server, Storm(f"{count} deaf clients", server) as storm:
        clients = []
        flood = encode_request(ApiKey.METADATA, 1, 1, "deaf", {"topics": None}) * 2_000
        for _ in range(count):
            client = socket.create_connection(server.address, 30)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            client.settimeout(0.05)
            clients.append(client)
        for _ in range(10):
            for client in clients:
                with contextlib.suppress(OSError):  # nobody reads from it any more, or it was sent away
                    client.sendall(flood)
        time.sleep(1)  # until all is handled that will be
        assert storm.look() < 30 + 3 * count, "answers that nobody reads pile up"
        for client in clients:
            client.close()


@pytest.mark.parametrize(
    ("count", "kilobytes"), [(10_000, 8), pytest.param(1_000_000, 3, marks=SLOW)], ids=["small", "full"]
)
def test_distinct_groups(tmp_path: Path, count: int, kilobytes: int) -> None:
    """A commit to each of a great many groups: bounded by `muster.max.groups`, and nobody else waits long."""
    with serving(tmp_path / "data", "muster.flush=os") as server, Storm(f"{count} groups", server) as storm:
        with Raw(server.address, 60) as raw:
            for start in range(0, count, 500):
                bodies = [commit_body(f"g-{number}", "orders", {0: 1}) for number in range(start, start + 500)]
                requests = [encode_request(ApiKey.OFFSET_COMMIT, 8, 1, "many", body) for body in bodies]
                raw.socket.sendall(b"".join(requests))
                for _ in requests:
                    raw.frame()
        assert storm.look() * 1000 / count < kilobytes


def test_groups_end_at_their_limit(tmp_path: Path) -> None:
    with serving(tmp_path / "data", "muster.max.groups=50") as server, Raw(server.address) as raw:
        errors = []
        for number in range(400):
            answer = raw.ask(ApiKey.OFFSET_COMMIT, 8, **commit_body(f"g-{number}", "orders", {0: 1}))
            errors.append(answer["topics"][0]["partitions"][0]["errorCode"])
        assert errors.count(0) == 200, "50 groups in each of 4 partitions"
        assert set(errors) == {0, 44}


class Member:
    """One of a group that joins from a connection of its own, as a Java client would."""

    def __init__(self, address: tuple[str, int], group: str) -> None:
        self._address = address
        self._group = group
        self.generation = 0
        self.member_id = ""
        self.members = 0

    async def run(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(*self._address)
        try:
            while True:
                joined = await self._ask(
                    ApiKey.JOIN_GROUP, 5, groupId=self._group, sessionTimeoutMs=60_000, rebalanceTimeoutMs=60_000,
                    memberId=self.member_id, groupInstanceId=None, protocolType="consumer",
                    protocols=[{"name": "range", "metadata": b"x" * 50}],
                )  # fmt: skip
                self.member_id = joined["memberId"]
                if joined["errorCode"] == 79:  # an id, to join with
                    continue
                assert joined["errorCode"] == 0, joined["errorCode"]
                self.generation = joined["generationId"]
                self.members = max(self.members, len(joined["members"]))
                assignments = [{"memberId": one["memberId"], "assignment": b"yours"} for one in joined["members"]]
                synced = await self._ask(
                    ApiKey.SYNC_GROUP, 3, groupId=self._group, generationId=self.generation, memberId=self.member_id,
                    groupInstanceId=None, assignments=assignments,
                )  # fmt: skip
                if synced["errorCode"] == 27:  # others came meanwhile
                    continue
                assert (synced["errorCode"], synced["assignment"]) == (0, b"yours")
                while await self._heartbeat() == 0:
                    if self.is_done():
                        return
                    await asyncio.sleep(0.5)
        finally:
            self._writer.close()

    is_done: Callable[[], bool]

    async def _heartbeat(self) -> int:
        answer = await self._ask(
            ApiKey.HEARTBEAT, 3, groupId=self._group, generationId=self.generation, memberId=self.member_id,
            groupInstanceId=None,
        )  # fmt: skip
        return int(answer["errorCode"])

    async def _ask(self, api_key: ApiKey, version: int, **body: Any) -> Any:
        self._writer.write(encode_request(api_key, version, 1, "member", body))
        head = await self._reader.readexactly(4)
        frame = head + await self._reader.readexactly(int.from_bytes(head, "big"))
        return decode_response(api_key, version, frame)[1]


@pytest.mark.parametrize("count", [150, pytest.param(5_000, marks=SLOW)])
def test_a_storm_of_joins(tmp_path: Path, count: int) -> None:
    """All members of a large group at once, each on its own connection, until all are in one generation."""

    async def storm_in() -> list[Member]:
        members = [Member(server.address, "storm") for _ in range(count)]
        for member in members:
            member.is_done = lambda: all(
                one.generation == members[0].generation and one.generation > 0 for one in members
            )
        await asyncio.wait_for(asyncio.gather(*(member.run() for member in members)), 240)
        return members

    settings = ("group.initial.rebalance.delay.ms=500", "group.max.session.timeout.ms=60000")
    with serving(tmp_path / "data", *settings) as server, Storm(f"{count} joins", server) as storm:
        members = asyncio.run(storm_in())
        assert max(member.members for member in members) == count
        assert storm.look() < 30 + count * 0.06
        until(lambda: f"with {count} members" in server.log.read_text(), "it is not told")
        stable = [line for line in server.log.read_text().splitlines() if "rebalanced in" in line]
        assert f"with {count} members" in stable[-1]
