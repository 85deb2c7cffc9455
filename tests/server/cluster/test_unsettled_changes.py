"""A disk fails so that nobody can say whether a change of topics is on it: it is settled before anybody is told.

The moment is a small one: the new list of topics has its name, the directory cannot be synced, and the old list cannot
be written back.
"""

import asyncio
import errno
import os
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from muster.codec.error_codes import ErrorCode
from muster.log.directory import LogDirectory
from muster.protocol.apis import ApiKey
from muster.segments.checkpoints import TopicPartition
from muster.segments.files import File, RealFiles
from muster.server.server import Server
from muster.server.server_log import ServerLog
from muster.server.settings import settings_from
from tests.server.records.talking import PRODUCE, batch, produce_body
from tests.server.test_power_cut import QUIET, Client

GIVE_UP_S = 20.0
SETTINGS = {"listeners": "PLAINTEXT://127.0.0.1:0", "offsets.topic.num.partitions": "1"}
DELETE = ApiKey.DELETE_TOPICS, 5, {"topicNames": ["orders"], "timeoutMs": 5_000}
CONFIGS = [{"name": "retention.ms", "value": "1000"}]
CONFIGURE = (
    ApiKey.ALTER_CONFIGS, 1,
    {"resources": [{"resourceType": 2, "resourceName": "orders", "configs": CONFIGS}], "validateOnly": False},
)  # fmt: skip


class BreakingFiles(RealFiles):
    """Breaks behind the rename of the list of topics, when that is ordered, and stays so until it is mended."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self.breaks_next = False
        self.is_broken = False
        self.failures = 0

    def _check(self, path: Path) -> None:
        if self.is_broken and path.parent == self._data:
            self.failures += 1
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        if write or create:
            self._check(path)
        return super().open(path, write=write, create=create)

    def sync_directory(self, directory: Path, point: str) -> None:
        self.is_broken |= self.breaks_next and point == "registry.directory"
        self._check(directory / point)
        super().sync_directory(directory, point)

    def mend(self) -> None:
        self.breaks_next = self.is_broken = False


class Serving:
    """A server with a topic `orders`, and one record in it."""

    def __init__(self, data: Path) -> None:
        self.data, self.files = data, BreakingFiles(data)
        self.lines: list[str] = []

    async def run(self, story: Callable[["Serving", Client, Client], Awaitable[None]]) -> None:
        settings = settings_from(SETTINGS)
        log = ServerLog(QUIET)
        said = log.say
        log.say = lambda text, **more: (self.lines.append(text), said(text, **more))[1]  # type: ignore[method-assign]
        self.server = Server(self.data, settings.groups, settings.broker, log, self.files)
        await self.server.start()
        address = self.server.host, self.server.port
        try:
            async with asyncio.timeout(GIVE_UP_S), Client(address) as admin, Client(address) as producer:
                await self.server.parts.topic_changes.create_topic(self.server.parts.cluster, "orders", 1)
                assert await produced(producer, "before") == ErrorCode.NONE
                await story(self, admin, producer)
        finally:
            self.files.mend()
            await self.server.stop()

    def after_a_kill(self) -> LogDirectory:
        """What the next process finds now, if this one is killed."""
        copied = self.data.with_name("copied")
        shutil.copytree(self.data, copied)
        return LogDirectory.open(copied)


async def produced(client: Client, value: str) -> int:
    answer = await client.ask(ApiKey.PRODUCE, PRODUCE, **produce_body("orders", {0: batch(value)}))
    error: int = answer["responses"][0]["partitionResponses"][0]["errorCode"]
    return error


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("change", [DELETE, CONFIGURE], ids=["deleted", "configured"])
def test_a_change_that_is_in_doubt_is_answered_when_it_is_taken_back(
    tmp_path: Path, change: tuple[ApiKey, int, dict[str, Any]]
) -> None:
    async def story(serving: Serving, admin: Client, producer: Client) -> None:
        api_key, version, body = change
        files = serving.files
        files.breaks_next = True
        asked = asyncio.ensure_future(admin.ask(api_key, version, **body))
        await until(lambda: files.failures >= 3)  # the sync, and two attempts to write the old list
        assert not asked.done(), "it is not known, and so not told"
        assert any("not known whether the last change of topics is on the disk" in line for line in serving.lines)
        if api_key is ApiKey.DELETE_TOPICS:
            error = await produced(producer, "meanwhile")
            assert error != ErrorCode.NONE, "a record of a topic that may be deleted is not taken"
        files.mend()
        answer = await asked
        (told,) = answer["responses"]
        assert told["errorCode"] == ErrorCode.KAFKA_STORAGE_ERROR
        assert "Nothing was changed" in told["errorMessage"]
        assert await produced(producer, "behind") == ErrorCode.NONE
        found = serving.after_a_kill()
        (topic,) = [topic for topic in found.registry.topics() if topic.name == "orders"]
        assert topic.configs == {}
        assert found.logs[TopicPartition("orders", 0)].end_offset == 2
        found.close()
        again = await admin.ask(api_key, version, **body)
        assert again["responses"][0]["errorCode"] == ErrorCode.NONE, "on a disk that is well it is made"

    asyncio.run(Serving(tmp_path / "data").run(story))


def test_a_server_that_is_stopped_while_a_change_is_in_doubt_answers_nothing(tmp_path: Path) -> None:
    async def story(serving: Serving, admin: Client, producer: Client) -> None:
        api_key, version, body = DELETE
        serving.files.breaks_next = True
        asked = asyncio.ensure_future(admin.ask(api_key, version, **body))
        await until(lambda: serving.files.failures >= 2)
        assert not await serving.server.stop(), "it was not closed well"
        with pytest.raises(asyncio.IncompleteReadError):
            await asked

    asyncio.run(Serving(tmp_path / "data").run(story))
