"""Partitions of the offsets topic are loaded beside compaction, after failures, and off the loop's thread.

A server runs in the loop of the test, on real files whose syncs do nothing but tell in which thread they were asked
for, or on the model of a disk that can fill up.
"""

import asyncio
import errno
import io
import os
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from muster.codec.partition_state import fetched
from muster.core.coordinator import Coordinator
from muster.core.groups import Group
from muster.core.offsets import Offsets as ClassicOffsets
from muster.core.router import Ownership
from muster.errors import ConfigError
from muster.protocol.apis import ApiKey
from muster.segments.checkpoints import TopicPartition
from muster.segments.files import File, Files, RealFile, RealFiles
from muster.segments.reader import _Window
from muster.segments.sources import OFFSETS_TOPIC
from muster.server.compaction import Compaction
from muster.server.control import ask
from muster.server.led_partitions import LedPartition
from muster.server.server import Server
from muster.server.server_log import ServerLog
from muster.server.settings import settings_from
from tests.server.raw import commit_body
from tests.server.shared_disk import SharedFiles
from tests.server.test_power_cut import Client, error_of

WAIT_S = 120.0
"""Generous: kernels may have to be compiled first."""
KEY = TopicPartition(OFFSETS_TOPIC, 0)
GROUPS, PARTITIONS, ROUNDS = 10, 4, 6
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.segment.bytes": "3000",
    "log.cleaner.backoff.ms": "3600000",
    "log.cleaner.min.cleanable.ratio": "0.0",
}

Offsets = dict[tuple[str, str, int], int]


# A world.


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        asyncio.run(test(*arguments, **named))

    return run


class Gate:
    """Holds the loader's thread up before it opens a segment other than the first."""

    def __init__(self) -> None:
        self.is_armed = False
        self.reached = threading.Event()
        self.open = threading.Event()

    def pass_through(self, path: Path) -> None:
        is_loader = threading.current_thread().name.startswith("load")
        if self.is_armed and is_loader and path.suffix == ".log" and int(path.stem) > 0:
            self.reached.set()
            assert self.open.wait(WAIT_S)


class WatchedFile(RealFile):
    __slots__ = ("_syncs",)

    def __init__(self, path: Path, fd: int, syncs: list[tuple[str, int]]) -> None:
        super().__init__(path, fd)
        self._syncs = syncs

    def sync(self, point: str) -> None:
        self._syncs.append((point, threading.get_ident()))


class WatchedFiles(RealFiles):
    """Real files. Syncs are only written down, with the threads that asked for them."""

    def __init__(self, gate: Gate | None = None) -> None:
        self.syncs: list[tuple[str, int]] = []
        self._gate = gate

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        if self._gate is not None:
            self._gate.pass_through(path)
        flags = (os.O_RDWR if write or create else os.O_RDONLY) | (os.O_CREAT if create else 0) | os.O_CLOEXEC
        return WatchedFile(path, os.open(path, flags, 0o644), self.syncs)

    def sync_directory(self, directory: Path, point: str) -> None:
        self.syncs.append((point, threading.get_ident()))


class Told(io.StringIO):
    """The server's log."""

    def __contains__(self, text: str) -> bool:
        return text in self.getvalue()

    def count(self, text: str) -> int:
        return self.getvalue().count(text)


@asynccontextmanager
async def serving(data: Path, files: Files, told: Told, **settings: str) -> AsyncIterator[Server]:
    data.mkdir(exist_ok=True)  # for the control socket's address
    all_settings = settings_from(SETTINGS | {name.replace("_", "."): value for name, value in settings.items()})
    server = Server(data, all_settings.groups, all_settings.broker, ServerLog(told), files)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def until(what: Callable[[], Any], told: Told) -> None:
    deadline = time.monotonic() + WAIT_S
    while not what():
        assert time.monotonic() < deadline, told.getvalue()[-2000:]
        await asyncio.sleep(0.01)


async def commit_all(server: Server) -> Offsets:
    """Commits over several segments: every group says each thing a few times, and each segment has a newest one."""
    if "orders" not in server.parts.cluster.topics:
        await server.parts.topic_changes.create_topic(server.parts.cluster, "orders", PARTITIONS)
    async with Client((server.host, server.port)) as client:
        for number in range(GROUPS * ROUNDS):
            offsets = dict.fromkeys(range(PARTITIONS), number)
            group = f"group-{number // ROUNDS}"
            assert error_of(await client.ask(ApiKey.OFFSET_COMMIT, 8, **commit_body(group, "orders", offsets))) == 0
    assert len(server.parts.directory.logs[KEY].segments) > 4
    return offsets_of(server)


def offsets_of(server: Server) -> Offsets:
    coordinator = server.parts.led_partitions.by_number[0].coordinator
    assert coordinator is not None
    return {
        (group_id, *partition): fetched(commit_bytes)[0]
        for group_id, group in coordinator.groups.items()
        for partition, commit_bytes in group.offsets.items()
    }


def is_served(server: Server) -> bool:
    return server.parts.led_partitions.by_number[0].coordinator is not None


def state(server: Server) -> Ownership | None:
    return server.parts.led_partitions.states()[0]


def compaction_of(server: Server) -> Compaction:
    return server.parts.compaction


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate()

    class GatedWindow(_Window):
        def __init__(self, path: Path, chunk_bytes: int) -> None:
            gate.pass_through(path)
            super().__init__(path, chunk_bytes)

    monkeypatch.setattr("muster.segments.reader._Window", GatedWindow)
    yield gate
    gate.open.set()


@pytest.fixture(params=["rows", "columns"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How logs are read."""
    if request.param == "columns":
        monkeypatch.setattr("muster.server.groups.loading.COLUMNS_FROM_BYTES", 0)
        monkeypatch.setattr("muster.server.groups.loading.ROWS_UP_TO_BYTES", 0)
    return str(request.param)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muster.server.leadership.FIRST_PAUSE_S", 0.05)
    monkeypatch.setattr("muster.log.compaction.manager.FIRST_PAUSE_S", 0.05)


# Beside compaction.


@in_a_loop
async def test_compaction_waits_for_a_load(tmp_path: Path, gate: Gate, way: str) -> None:
    told = Told()
    async with serving(tmp_path / "data", WatchedFiles(gate), told) as server:
        before = await commit_all(server)
        server.parts.leadership.resign(0)
        gate.is_armed = True
        server.parts.leadership.elect(0)
        await until(gate.reached.is_set, told)
        compaction = compaction_of(server)
        compaction.begin_if_due()
        await until(lambda: compaction._round is None, told)
        gate.open.set()
        await until(lambda: is_served(server), told)
        assert offsets_of(server) == before
        assert "compacted in" not in told, "while it was loaded"
        compaction.begin_if_due()
        await until(lambda: "compacted in" in told, told)
        server.parts.leadership.resign(0)
        server.parts.leadership.elect(0)
        await until(lambda: is_served(server), told)
        assert offsets_of(server) == before


@in_a_loop
async def test_a_load_waits_for_compaction(
    tmp_path: Path, gate: Gate, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told()
    swaps, go_on, swap = threading.Event(), threading.Event(), Compaction._swap

    def slow_swap(*arguments: Any) -> None:
        swaps.set()
        assert go_on.wait(WAIT_S)
        swap(*arguments)

    monkeypatch.setattr(Compaction, "_swap", slow_swap)
    async with serving(tmp_path / "data", WatchedFiles(gate), told) as server:
        before = await commit_all(server)
        compaction = compaction_of(server)
        compaction.begin_if_due()
        await until(swaps.is_set, told)
        server.parts.leadership.resign(0)
        gate.is_armed = True
        await ask(tmp_path / "data", {"do": "load", "partition": 0})
        await asyncio.to_thread(gate.reached.wait, 0.3)
        has_begun = gate.reached.is_set()
        go_on.set()
        await until(lambda: compaction._round is None, told)
        gate.open.set()
        await until(lambda: is_served(server), told)
        assert offsets_of(server) == before
        assert not has_begun, "a load may not begin before the round has ended"


# Beside a deletion.


@in_a_loop
async def test_a_partition_that_is_loaded_while_a_topic_is_deleted_forgets_its_offsets_too(
    tmp_path: Path, gate: Gate
) -> None:
    told = Told()
    async with serving(tmp_path / "data", WatchedFiles(gate), told) as server:
        await commit_all(server)
        server.parts.leadership.resign(0)
        gate.is_armed = True
        server.parts.leadership.elect(0)
        await until(gate.reached.is_set, told)
        async with Client((server.host, server.port)) as admin:
            answer = await admin.ask(ApiKey.DELETE_TOPICS, 1, topicNames=["orders"], timeoutMs=5_000)
            assert answer["responses"][0]["errorCode"] == 0
        await server.parts.topic_changes.create_topic(server.parts.cluster, "orders", PARTITIONS)
        gate.open.set()
        await until(lambda: is_served(server), told)
        assert offsets_of(server) == {}, "the new topic begins without them"
    async with serving(tmp_path / "data", WatchedFiles(), told) as server:
        assert offsets_of(server) == {}


@in_a_loop
async def test_a_disk_that_fails_under_a_deletion_does_not_bring_offsets_back(tmp_path: Path) -> None:
    data, told, failures = tmp_path / "data", Told(), [errno.EIO, errno.EIO]

    def fail_twice(operation: str, path: Path) -> int | None:
        is_append = operation == "pwrite" and path.name.endswith(".log") and is_served(server)
        return failures.pop() if failures and is_append else None

    files = SharedFiles(data)
    async with serving(data, files, told, muster_flush="always") as server:
        await commit_all(server)
        async with Client((server.host, server.port)) as admin:
            files.fail = fail_twice
            answer = await admin.ask(ApiKey.DELETE_TOPICS, 1, topicNames=["orders"], timeoutMs=5_000)
            assert answer["responses"][0]["errorCode"] == 0
        await until(lambda: told.count("It is read again") == 2 and is_served(server), told)
        assert offsets_of(server) == {}


# Whatever goes wrong in a load.


@in_a_loop
async def test_a_segment_that_vanishes_in_a_load_fails_it_and_it_is_tried_again(
    tmp_path: Path, gate: Gate, way: str
) -> None:
    told = Told()
    async with serving(tmp_path / "data", WatchedFiles(gate), told) as server:
        before = await commit_all(server)
        server.parts.leadership.resign(0)
        gate.is_armed = True
        server.parts.leadership.elect(0)
        await until(gate.reached.is_set, told)
        vanishing = server.parts.directory.logs[KEY].segments[2].path(".log")
        hidden = vanishing.rename(tmp_path / "hidden")
        gate.open.set()
        await until(lambda: "cannot be served" in told, told)
        assert vanishing.name in told
        assert state(server) is Ownership.FAILED
        hidden.rename(vanishing)
        await until(lambda: is_served(server), told)
        assert offsets_of(server) == before


@in_a_loop
async def test_any_exception_of_a_load_is_told_once_and_the_load_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, tries = Told(), []

    def mistaken(*arguments: Any, **named: Any) -> None:
        tries.append(time.monotonic())
        raise ZeroDivisionError("a mistake of ours")

    async with serving(tmp_path / "data", WatchedFiles(), told) as server:
        before = await commit_all(server)
        server.parts.leadership.resign(0)
        with monkeypatch.context() as patch:
            patch.setattr("muster.server.groups.loading.replay_batches", mistaken)
            server.parts.leadership.elect(0)
            await until(lambda: len(tries) == 2, told)
            assert await list_groups(server) == 0, "lists go without it"
        await until(lambda: is_served(server), told)
        assert offsets_of(server) == before
        assert told.count("cannot be served: ZeroDivisionError: a mistake of ours. ") == 1


@in_a_loop
async def test_a_partition_that_cannot_be_activated_is_tried_again_with_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, tries = Told(), []

    def mistaken(*arguments: Any, **named: Any) -> None:
        tries.append(None)
        raise ZeroDivisionError("a mistake of ours")

    monkeypatch.setattr("muster.server.leadership.FIRST_PAUSE_S", 3600.0)
    monkeypatch.setattr("muster.server.leadership.LONGEST_PAUSE_S", 3600.0)
    async with serving(tmp_path / "data", WatchedFiles(), told) as server:
        before = await commit_all(server)
        server.parts.leadership.resign(0)
        with monkeypatch.context() as patch:
            patch.setattr(Coordinator, "activate", mistaken)
            server.parts.leadership.elect(0)
            await until(lambda: "cannot be served: ZeroDivisionError: a mistake of ours. " in told, told)
            await asyncio.sleep(0.3)
            assert len(tries) == 1
            assert state(server) is Ownership.FAILED
        server.parts.leadership.elect(0)
        await until(lambda: is_served(server), told)
        assert offsets_of(server) == before


@in_a_loop
async def test_what_an_event_that_broke_off_had_appended_is_durable_before_the_partition_is_served_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, appended = Told(), Coordinator.appended

    def mistaken(*arguments: Any) -> None:
        appended(*arguments)
        raise ZeroDivisionError("a mistake of ours")

    async with serving(tmp_path / "data", WatchedFiles(), told, muster_flush="always") as server:
        await commit_all(server)
        with monkeypatch.context() as patch:
            patch.setattr(Coordinator, "appended", mistaken)
            async with Client((server.host, server.port)) as client:
                with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                    await client.ask(ApiKey.OFFSET_COMMIT, 8, **commit_body("late", "orders", {0: 1}))
        await until(lambda: is_served(server), told)
        led = server.parts.led_partitions.by_number[0]
        assert ("late", "orders", 0) in offsets_of(server)
        await until(lambda: led.log.flushed_offset == led.log.end_offset, told)
        await until(lambda: not led.is_behind, told)


@in_a_loop
async def test_a_server_whose_port_is_taken_loads_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told()
    async with serving(tmp_path / "data", WatchedFiles(), told) as server:
        before = await commit_all(server)
    monkeypatch.setattr("muster.server.leadership.LOAD_AT_START_BYTES", 0)
    with socket.create_server(("127.0.0.1", 0)) as other:
        loads: list[Any] = []
        with monkeypatch.context() as patch:
            patch.setattr("muster.server.groups.loading.load", lambda *arguments, **named: loads.append(arguments))
            with pytest.raises(ConfigError, match="is taken"):
                async with serving(
                    tmp_path / "data", WatchedFiles(), told, listeners=f"PLAINTEXT://127.0.0.1:{other.getsockname()[1]}"
                ):
                    pass
            await asyncio.sleep(0.1)
        assert not loads
    async with serving(tmp_path / "data", WatchedFiles(), told) as server:
        await until(lambda: is_served(server), told)
        assert offsets_of(server) == before


async def list_groups(server: Server) -> int:
    async with Client((server.host, server.port)) as client:
        return int((await client.ask(ApiKey.LIST_GROUPS, 3))["errorCode"])


@in_a_loop
async def test_an_id_that_was_handed_out_is_no_member_to_an_operator(tmp_path: Path) -> None:
    async with (
        serving(tmp_path / "data", WatchedFiles(), Told()) as server,
        Client((server.host, server.port)) as client,
    ):
        body = {
            "groupId": "g", "sessionTimeoutMs": 10_000, "rebalanceTimeoutMs": 10_000, "memberId": "",
            "protocolType": "consumer", "protocols": [{"name": "range", "metadata": b""}],
        }  # fmt: skip
        answer = await client.ask(ApiKey.JOIN_GROUP, 4, **body)
        assert answer["errorCode"] == 79, "MEMBER_ID_REQUIRED"
        told = (await ask(tmp_path / "data", {"do": "list"}))["partitions"][0]
        assert (told["groups"], told["members"]) == (1, 0)


@in_a_loop
async def test_an_operator_ends_the_tries_or_hastens_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, told, tries = tmp_path / "data", Told(), []

    def mistaken(*arguments: Any, **named: Any) -> None:
        tries.append(None)
        raise ZeroDivisionError("a mistake of ours")

    monkeypatch.setattr("muster.server.leadership.FIRST_PAUSE_S", 3600.0)
    monkeypatch.setattr("muster.server.leadership.LONGEST_PAUSE_S", 3600.0)
    async with serving(data, WatchedFiles(), told) as server:
        before = await commit_all(server)
        server.parts.leadership.resign(0)
        with monkeypatch.context() as patch:
            patch.setattr("muster.server.groups.loading.replay_batches", mistaken)
            server.parts.leadership.elect(0)
            await until(lambda: state(server) is Ownership.FAILED, told)
            assert (await ask(data, {"do": "list"}))["partitions"][0]["state"] == "failed"
            assert (await ask(data, {"do": "load", "partition": 0}))["was_loaded"] is False
            await until(lambda: len(tries) == 2, told)
            await until(lambda: state(server) is Ownership.FAILED, told)
            await ask(data, {"do": "unload", "partition": 0})
            await until(lambda: not server.parts.leadership._tasks, told)
            assert state(server) is None
        for _ in range(5):
            server.parts.leadership.elect(0)
        assert len(server.parts.leadership._tasks) == 1
        await until(lambda: is_served(server), told)
        await until(lambda: not server.parts.leadership._tasks, told)
        assert server.parts.led_partitions.by_number[0].epoch == server.parts.directory.logs[KEY].leader_epoch
        assert offsets_of(server) == before


@in_a_loop
async def test_an_operator_who_loads_a_partition_begins_its_pauses_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a dozen tries by hand on a disk that is full would have it left alone for long when there is room again."""
    data, told, tries = tmp_path / "data", Told(), []

    def mistaken(*arguments: Any, **named: Any) -> None:
        tries.append(None)
        raise ZeroDivisionError("a mistake of ours")

    monkeypatch.setattr("muster.server.leadership.FIRST_PAUSE_S", 0.2)
    monkeypatch.setattr("muster.server.leadership.LONGEST_PAUSE_S", 3600.0)
    async with serving(data, WatchedFiles(), told) as server:
        before = await commit_all(server)
        with monkeypatch.context() as patch:
            patch.setattr("muster.server.groups.loading.replay_batches", mistaken)
            for what in ("unload", "load") * 12:
                seen = len(tries)
                await ask(data, {"do": what, "partition": 0})
                if what == "load":
                    await until(lambda seen=seen: len(tries) > seen, told)
        await until(lambda: is_served(server), told)
        assert offsets_of(server) == before


def full_for(*endings: str, once: str | None = None) -> Callable[[str, Path], int | None]:
    """A disk without room for some files, and for one kind of them only the first time."""
    left = [once] if once is not None else []

    def fail(operation: str, path: Path) -> int | None:
        if operation != "pwrite":
            return None
        if left and path.name.endswith(left[0]):
            left.clear()
            return errno.ENOSPC
        return errno.ENOSPC if path.name.endswith(endings) else None

    return fail


FULL = {"epochs": full_for("epoch-checkpoint.tmp", once=".log"), "everything": full_for("")}


@pytest.mark.parametrize("full", FULL)
@in_a_loop
async def test_a_partition_heals_when_a_full_disk_has_room_again(tmp_path: Path, full: str) -> None:
    data, told = tmp_path / "data", Told()
    files = SharedFiles(data)
    async with serving(data, files, told, muster_flush="always") as server:
        before = await commit_all(server)
        async with Client((server.host, server.port)) as client:
            files.fail = FULL[full]
            refused = await client.ask(ApiKey.OFFSET_COMMIT, 8, **commit_body("late", "orders", {0: 1}))
            assert error_of(refused) != 0
            await until(lambda: "cannot be served" in told, told)
            assert await list_groups(server) == 0, "lists go without it"
            files.fail = full_for()
            await until(lambda: is_served(server), told)
            assert offsets_of(server) == before
            accepted = await client.ask(ApiKey.OFFSET_COMMIT, 8, **commit_body("late", "orders", {0: 1}))
            assert error_of(accepted) == 0
            assert await list_groups(server) == 0


@in_a_loop
async def test_a_checkpoint_on_a_full_disk_is_told_and_breaks_no_log(tmp_path: Path) -> None:
    data, told = tmp_path / "data", Told()
    files = SharedFiles(data)
    async with serving(data, files, told) as server:
        before = await commit_all(server)
        files.fail = full_for(".snapshot", "checkpoint.tmp")
        server.parts.checkpoints.begin()
        await until(lambda: "a snapshot could not be written" in told, told)
        await until(lambda: "could not be written: [Errno 28]" in told, told)
        files.fail = full_for()
        assert [log.failure for log in server.parts.directory.logs.values() if log.failure is not None] == []
        assert await commit_all(server) == before


# Compaction goes on.


@in_a_loop
async def test_compaction_goes_on_after_an_unexpected_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from muster.log.compaction.cleaner import clean

    told, rounds = Told(), []

    def mistaken_once(*arguments: Any) -> Any:
        rounds.append(None)
        if len(rounds) == 1:
            raise ZeroDivisionError("a mistake of ours")
        return clean(*arguments)

    monkeypatch.setattr("muster.server.compaction.clean", mistaken_once)
    async with serving(tmp_path / "data", WatchedFiles(), told, log_cleaner_backoff_ms="20") as server:
        before = await commit_all(server)
        await until(lambda: "compacted in" in told, told)
        assert offsets_of(server) == before
        assert told.count("could not be compacted: ZeroDivisionError: a mistake of ours.") == 1


@in_a_loop
async def test_replaced_segments_are_gone_after_a_stop(tmp_path: Path) -> None:
    told, partition = Told(), tmp_path / "data" / str(KEY)
    async with serving(tmp_path / "data", WatchedFiles(), told) as server:
        await commit_all(server)
        compaction_of(server).begin_if_due()
        await until(lambda: "compacted in" in told, told)
        assert list(partition.glob("*.log.deleted")), "they stay for a minute"
        compaction_of(server).delete_replaced()
    assert not list(partition.glob("*.deleted"))
    async with serving(tmp_path / "data", WatchedFiles(), told, log_segment_delete_delay_ms="0") as server:
        assert "left over" not in told
        await commit_all(server)
        compaction_of(server).begin_if_due()
        await until(lambda: told.count("compacted in") == 2, told)
        await until(lambda: not list(partition.glob("*.deleted")), told)


# Off the loop.

IN_THE_LOOP = {"roll.log", "roll.directory"}
"""Why these stay is told in docs/storage.md."""


@in_a_loop
async def test_the_loop_does_not_wait_for_the_disk(tmp_path: Path) -> None:
    """Commits with rolls, checkpoints, compaction, and a log that is opened again: syncs are other threads' work."""
    files, told = WatchedFiles(), Told()
    async with serving(tmp_path / "data", files, told, muster_flush="always") as server:
        await server.parts.topic_changes.create_topic(server.parts.cluster, "orders", PARTITIONS)
        files.syncs.clear()
        before = await commit_all(server)
        server.parts.checkpoints.begin()
        await until(lambda: not server.parts.checkpoints.is_under_way, told)
        compaction_of(server).begin_if_due()
        await until(lambda: compaction_of(server)._round is None, told)
        assert "compacted in" in told
        server.parts.directory.logs[KEY]._fail("for the test", OSError(errno.EIO, "it failed"))
        server.parts.leadership.give_up_failed_logs()
        await until(lambda: is_served(server), told)
        assert offsets_of(server) == before
        here = threading.get_ident()
        points = {point for point, _ in files.syncs}
        assert {
            "flush.log", "offsets.data", "cleaner-offsets.data", "swap.prepared", "swap.removed", "recovery.log",
            "epochs.data",
        } <= points  # fmt: skip
        assert {point for point, thread in files.syncs if thread == here} <= IN_THE_LOOP


# Expiration.


def expire_from_now_on(server: Server) -> None:
    coordinator = server.parts.led_partitions.by_number[0].coordinator
    assert coordinator is not None
    coordinator.offsets._retention_ms = 0


@in_a_loop
async def test_offsets_expire_a_few_groups_in_a_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muster.server.housekeeping.GROUPS_AT_A_TIME", 1)
    monkeypatch.setattr("muster.server.housekeeping.SLICE_S", 0.0)
    told = Told()
    async with serving(tmp_path / "data", WatchedFiles(), told) as server:
        await commit_all(server)
        expire_from_now_on(server)
        expiration = server.parts.expiration
        expiration.begin()
        left = []
        while expiration.is_under_way:
            left.append(len({group for group, _, _ in offsets_of(server)}))
            expiration.begin()  # while one is under way another adds nothing
            await asyncio.sleep(0)
        assert left == list(range(GROUPS - 1, -1, -1))
        assert offsets_of(server) == {}


@in_a_loop
async def test_a_walk_over_the_groups_that_raises_is_over_and_the_next_one_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muster.server.housekeeping.GROUPS_AT_A_TIME", 1)
    told = Told()
    async with serving(tmp_path / "data", WatchedFiles(), told) as server:
        await commit_all(server)
        expire_from_now_on(server)
        led_partitions, expiration = server.parts.led_partitions, server.parts.expiration
        apply, mistakes = led_partitions.apply, iter([ZeroDivisionError("a mistake of ours")])

        def mistaken_once(led: LedPartition, event: Any) -> None:
            for mistake in mistakes:
                raise mistake
            apply(led, event)

        monkeypatch.setattr(led_partitions, "apply", mistaken_once)
        with pytest.raises(ZeroDivisionError):
            expiration.begin()
        assert not expiration.is_under_way
        assert len({group for group, _, _ in offsets_of(server)}) == GROUPS, "nothing has expired yet"
        expiration.begin()
        await until(lambda: not expiration.is_under_way, told)
        assert offsets_of(server) == {}


@in_a_loop
async def test_a_group_that_cannot_expire_keeps_no_other_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muster.server.housekeeping.GROUPS_AT_A_TIME", 1)
    expired = ClassicOffsets._expired

    def mistaken_once(self: ClassicOffsets, group: Group, wall_ms: int) -> Any:
        if group.group_id == "group-3":
            raise ZeroDivisionError("a mistake of ours")
        return expired(self, group, wall_ms)

    monkeypatch.setattr(ClassicOffsets, "_expired", mistaken_once)
    told = Told()
    async with serving(tmp_path / "data", WatchedFiles(), told) as server:
        await commit_all(server)
        expire_from_now_on(server)
        for _ in range(2):
            server.parts.expiration.begin()
            await until(lambda: not server.parts.expiration.is_under_way, told)
        assert {group for group, _, _ in offsets_of(server)} == {"group-3"}
        assert told.count("ExpireOffsets failed (ZeroDivisionError: a mistake of ours)") == 2
        assert told.count("It is read again") == 0, "nothing was half done"


# Lists of all groups.


class SteppedFiles(WatchedFiles):
    """Once armed, each sync of a log waits for a step."""

    def __init__(self) -> None:
        super().__init__()
        self.is_armed = False
        self.steps = threading.Semaphore(0)

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        files = self

        class SteppedFile(RealFile):
            def sync(self, point: str) -> None:
                if files.is_armed and point == "flush.log":
                    assert files.steps.acquire(timeout=WAIT_S)

        flags = (os.O_RDWR if write or create else os.O_RDONLY) | (os.O_CREAT if create else 0) | os.O_CLOEXEC
        return SteppedFile(path, os.open(path, flags, 0o644))


@in_a_loop
async def test_a_list_of_groups_does_not_wait_for_commits_that_come_after_it(tmp_path: Path) -> None:
    told, files = Told(), SteppedFiles()
    async with serving(tmp_path / "data", files, told, muster_flush="always") as server:
        await server.parts.topic_changes.create_topic(server.parts.cluster, "orders", PARTITIONS)
        led, address = server.parts.led_partitions.by_number[0], (server.host, server.port)
        async with Client(address) as first, Client(address) as lister, Client(address) as second:
            files.is_armed = True
            asked: list[asyncio.Task[Any]] = []
            for question in (
                first.ask(ApiKey.OFFSET_COMMIT, 8, **commit_body("first", "orders", {0: 1})),
                lister.ask(ApiKey.LIST_GROUPS, 3),
                second.ask(ApiKey.OFFSET_COMMIT, 8, **commit_body("second", "orders", {0: 1})),
            ):
                asked.append(asyncio.create_task(question))
                await until(lambda: len(led.replies) == len(asked), told)
            files.steps.release()
            answered, _ = await asyncio.wait(asked[1:2], timeout=10)
            files.is_armed = False
            files.steps.release(100)
            await asyncio.gather(*asked)
        assert answered, "while the second commit is not durable yet"
