"""Topics are changed beside everything else, on a disk that takes its time."""

import asyncio
import resource
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from muster.protocol.apis import ApiKey
from muster.segments.files import File, RealFile, RealFiles
from muster.server.server import Server
from muster.server.server_log import ServerLog
from muster.server.settings import settings_from
from tests.server.raw import Raw, ServerProcess, commit_body, create_topic, fetch_offsets
from tests.server.test_power_cut import QUIET, Client

GIVE_UP_S = 20.0
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "offsets.topic.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
}


class Gate:
    """Lets nobody through while it is closed; but not for ever, so that a server which waits there fails its test."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._open.set()
        self.somebody_waits = threading.Event()

    def close(self) -> None:
        self._open.clear()
        self.somebody_waits.clear()

    def open(self) -> None:
        self._open.set()

    def pass_through(self) -> None:
        if not self._open.is_set():
            self.somebody_waits.set()
            self._open.wait(GIVE_UP_S / 4)


class GatedFile(RealFile):
    __slots__ = ("gate",)

    def sync(self, point: str) -> None:
        if point == "flush.log":
            self.gate.pass_through()
        super().sync(point)


class GatedFiles(RealFiles):
    """Making directories, and syncs of logs, wait at gates."""

    def __init__(self) -> None:
        self.making, self.syncing = Gate(), Gate()

    def mkdir(self, directory: Path) -> None:
        self.making.pass_through()
        super().mkdir(directory)

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        opened = super().open(path, write=write, create=create)
        assert isinstance(opened, RealFile)
        file = GatedFile(path, opened._fd)
        file.gate = self.syncing
        return file


def served(data: Path, story: Callable[[Server, GatedFiles], Awaitable[None]]) -> None:
    async def run() -> None:
        files, settings = GatedFiles(), settings_from(SETTINGS)
        server = Server(data, settings.groups, settings.broker, ServerLog(QUIET), files)
        await server.start()
        try:
            await asyncio.wait_for(story(server, files), GIVE_UP_S)
        finally:
            files.making.open()
            files.syncing.open()
            await server.stop()

    asyncio.run(run())


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


def new_topic(name: str, partitions: int = 1) -> dict[str, Any]:
    return {"name": name, "numPartitions": partitions, "replicationFactor": 1, "assignments": [], "configs": []}


async def create(client: Client, *names: str, partitions: int = 1) -> list[int]:
    topics = [new_topic(name, partitions) for name in names]
    answer = await client.ask(ApiKey.CREATE_TOPICS, 5, topics=topics, timeoutMs=5_000, validateOnly=False)
    return [topic["errorCode"] for topic in answer["topics"]]


@pytest.mark.parametrize("how", ["create", "ask"])
def test_groups_are_served_while_a_topic_is_made(tmp_path: Path, how: str) -> None:
    async def story(server: Server, files: GatedFiles) -> None:
        address = server.host, server.port
        async with Client(address) as admin, Client(address) as member:
            files.making.close()
            if how == "create":
                admin.send(ApiKey.CREATE_TOPICS, 5, topics=[new_topic("slow")], timeoutMs=5_000, validateOnly=False)
            else:
                admin.send(ApiKey.METADATA, 4, topics=[{"name": "slow"}], allowAutoTopicCreation=True)
            await until(files.making.somebody_waits.is_set)
            beat = {"groupId": "g", "generationId": 1, "memberId": "m", "groupInstanceId": None}
            assert (await member.ask(ApiKey.HEARTBEAT, 3, **beat))["errorCode"] == 25
            assert (await member.ask(ApiKey.METADATA, 4, topics=None, allowAutoTopicCreation=False))["topics"]
            assert "slow" not in server.parts.cluster.topics, "it is not there before it is"
            assert not files.making._open.is_set()
            files.making.open()
            await admin.hear(ApiKey.CREATE_TOPICS if how == "create" else ApiKey.METADATA, 5 if how == "create" else 4)
            assert "slow" in server.parts.cluster.topics

    served(tmp_path / "data", story)


def test_changes_are_made_one_after_the_other(tmp_path: Path) -> None:
    async def story(server: Server, files: GatedFiles) -> None:
        clients = [Client((server.host, server.port)) for _ in range(6)]
        for client in clients:
            await client.__aenter__()
        files.making.close()
        asked = [asyncio.ensure_future(create(client, "same")) for client in clients[:5]]
        await until(files.making.somebody_waits.is_set)
        await until(lambda: len(server.parts.topic_changes._under_way) == 5)
        deleted = clients[5].ask(ApiKey.DELETE_TOPICS, 1, topicNames=["same"], timeoutMs=5_000)
        deleting = asyncio.ensure_future(deleted)
        await until(lambda: len(server.parts.topic_changes._under_way) == 6)
        files.making.open()
        errors = [error for answer in await asyncio.gather(*asked) for error in answer]
        assert sorted(errors) == [0, 36, 36, 36, 36]
        assert (await deleting)["responses"][0]["errorCode"] == 0
        for client in clients:
            await client.__aexit__()

    served(tmp_path / "data", story)


def test_large_requests_that_wait_for_their_turn_are_few_and_small_ones_are_not_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muster.server.cluster.topic_storage.MOST_WAITING_BYTES", 700_000)

    async def story(server: Server, files: GatedFiles) -> None:
        clients = [Client((server.host, server.port)) for _ in range(8)]
        for client in clients:
            await client.__aenter__()
        first, *greedy, small = clients
        files.making.close()
        asked = [asyncio.ensure_future(create(first, "first"))]
        await until(files.making.somebody_waits.is_set)
        junk = [{"name": f"setting {number}", "value": "x" * 30_000} for number in range(10)]
        for client in greedy:
            topics = [new_topic("greedy") | {"configs": junk}]
            client.send(ApiKey.CREATE_TOPICS, 5, topics=topics, timeoutMs=5_000, validateOnly=False)
        await until(lambda: server.parts.stats.bad_requests == 4)
        asked.append(asyncio.ensure_future(create(small, "small")))
        await until(lambda: len(server.parts.topic_changes._under_way) == 4)
        assert not files.making._open.is_set()
        files.making.open()
        assert await asyncio.gather(*asked) == [[0], [0]]
        assert server.parts.topic_changes._waiting_bytes == 0
        for client in clients:
            await client.__aexit__()

    served(tmp_path / "data", story)


def test_a_deletion_is_answered_when_the_deletion_of_its_offsets_is_durable(tmp_path: Path) -> None:
    async def story(server: Server, files: GatedFiles) -> None:
        address = server.host, server.port
        async with Client(address) as admin, Client(address) as other:
            assert await create(admin, "orders", "kept") == [0, 0]
            for group in ("a", "b", "c", "d"):
                await other.ask(ApiKey.OFFSET_COMMIT, 8, **commit_body(group, "orders", {0: 5}))
            files.syncing.close()
            deleted = asyncio.ensure_future(admin.ask(ApiKey.DELETE_TOPICS, 1, topicNames=["orders"], timeoutMs=5_000))
            await until(files.syncing.somebody_waits.is_set)
            for _ in range(20):  # time enough for an answer that does not wait
                await other.ask(ApiKey.API_VERSIONS, 0)
            assert not deleted.done()
            assert not files.syncing._open.is_set()
            files.syncing.open()
            assert (await deleted)["responses"][0]["errorCode"] == 0

    served(tmp_path / "data", story)


LIMITED = """
import resource, runpy, sys
most = int(sys.argv.pop(1))
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
sys.argv[0] = "muster"
runpy.run_module("muster", run_name="__main__")
"""


class LimitedServer(ServerProcess):
    """A server that may have so many files open."""

    def __init__(self, data: Path, most_files: int) -> None:
        super().__init__(data)
        assert self._command[1:3] == ["-m", "muster"]
        self._command[1:3] = ["-c", LIMITED, str(most_files)]


@pytest.mark.skipif(sys.platform == "win32", reason="no limit of open files")
def test_more_partitions_than_files_may_be_open_are_refused_and_harm_nothing(tmp_path: Path) -> None:
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] >= 256
    with LimitedServer(tmp_path / "data", 256) as server, Raw(server.address) as raw:
        create_topic(server.address, "small", 3)
        for _ in range(2):
            topics = [new_topic("large", 120)]
            answer = raw.ask(ApiKey.CREATE_TOPICS, 5, topics=topics, timeoutMs=5_000, validateOnly=False)
            (refused,) = answer["topics"]
            assert refused["errorCode"] == 44
            assert "120 partitions keep 360 files open" in refused["errorMessage"]
            assert "Raise the limit of open files" in refused["errorMessage"]
        deleted = raw.ask(ApiKey.DELETE_TOPICS, 1, topicNames=["large"], timeoutMs=5_000)
        assert deleted["responses"][0]["errorCode"] == 3
        create_topic(server.address, "large", 5)
        grow = [{"name": "large", "count": 100, "assignments": None}]
        grown = raw.ask(ApiKey.CREATE_PARTITIONS, 1, topics=grow, timeoutMs=5_000, validateOnly=False)
        assert grown["results"][0]["errorCode"] == 44
        raw.ask(ApiKey.OFFSET_COMMIT, 8, **commit_body("g", "small", {0: 7}))
        server.kill()
    with LimitedServer(tmp_path / "data", 256) as server, Raw(server.address) as raw:
        assert fetch_offsets(raw, "g") == (0, {("small", 0): 7})
        asked = raw.ask(ApiKey.METADATA, 4, topics=[{"name": "large"}], allowAutoTopicCreation=False)
        assert len(asked["topics"][0]["partitions"]) == 5
