"""The power goes while a server is at work: what clients had been told before is there when it comes back.

A server runs on a disk in memory, with clients on real connections. After many of its disk operations the disk is kept
as it was (on paper), together with what clients had been told by then; each of those is then opened under several rules
of what survives, and loaded as a server would.
"""

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from muster.codec.offsets_topic import GroupKey, GroupValue, OffsetKey, OffsetValue, decode_key, decode_value
from muster.codec.partition_state import fetched
from muster.core.coordinator import Coordinator
from muster.core.seats import Seats
from muster.log.directory import LogDirectory
from muster.log.partition import DiskLog
from muster.protocol.apis import ApiKey
from muster.protocol.messages import decode_response, encode_request
from muster.segments.checkpoints import TopicPartition
from muster.segments.sources import OFFSETS_TOPIC
from muster.server.cluster.topic_storage import log_config
from muster.server.groups.loading import load
from muster.server.server import Server
from muster.server.server_log import ServerLog
from muster.server.settings import Settings, settings_from
from tests.log.disk.crashes import LossFound
from tests.log.disk.model import NOTHING, PLAIN, Chance, Image, Survivors, fingerprint
from tests.server.raw import commit_body
from tests.server.shared_disk import SharedFiles

COMMITTERS = 4
PARTITIONS = 3
OFFSETS_PARTITIONS = 3


@dataclass(slots=True)
class Told:
    """What clients have heard, so far."""

    offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    """Committed, by group and partition of `orders`; -1 where the group was deleted behind it."""
    assignments: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    """By group, the generation and what its member was assigned in it."""

    def copy(self) -> "Told":
        return Told(dict(self.offsets), dict(self.assignments))


@dataclass(slots=True, frozen=True)
class Cut:
    number: int
    operation: str
    image: Image
    told: Told


class Client:
    """One connection of the loop that the server runs in, too."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._number = 0

    async def __aenter__(self) -> "Client":
        self._reader, self._writer = await asyncio.open_connection(*self._address)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    def send(self, api_key: ApiKey, version: int, **body: Any) -> None:
        self._number += 1
        self._writer.write(encode_request(api_key, version, self._number, "client", body))

    async def hear(self, api_key: ApiKey, version: int) -> Any:
        head = await self._reader.readexactly(4)
        frame = head + await self._reader.readexactly(int.from_bytes(head, "big"))
        return decode_response(api_key, version, frame)[1]

    async def ask(self, api_key: ApiKey, version: int, **body: Any) -> Any:
        self.send(api_key, version, **body)
        return await self.hear(api_key, version)


class Day:
    """A server and its clients, from its first start on, until the power goes."""

    def __init__(self, data: Path, seed: int, *, flush: str, without: frozenset[str] = frozenset()) -> None:
        self._data = data
        self._random = random.Random(seed)
        self.settings = settings_for(flush)
        self.files = SharedFiles(data, without=without)
        self.told = Told()
        self.cuts: list[Cut] = []
        self._operations = 0

    def _watch(self, operation: str) -> None:
        self._operations += 1
        if self._random.random() < 0.15:
            told = self.told.copy()  # before the image: what is told meanwhile need not be in it
            self.cuts.append(Cut(self._operations, operation, self.files.image(), told))

    async def run(self, rounds: int) -> None:
        async with Serving(self._data, self.settings, self.files) as server:
            await server.parts.topic_changes.create_topic(server.parts.cluster, "orders", PARTITIONS)
            self.files.watch = self._watch
            address = server.host, server.port
            await asyncio.gather(
                *(self._commit(address, f"committer-{number}", rounds) for number in range(COMMITTERS)),
                self._rebalance(address, "members", rounds // 4),
                self._commit_and_delete(address, rounds // 4),
                self._checkpoint(server, rounds // 8),
            )
            told = self.told.copy()
            self.cuts.append(Cut(self._operations, "the end", self.files.image(), told))
            self.files.watch = lambda operation: None

    async def _commit(self, address: tuple[str, int], group: str, rounds: int) -> None:
        async with Client(address) as client:
            for number in range(rounds):
                commits = [(partition, 10 * number + partition) for partition in range(PARTITIONS)]
                for partition, offset in commits:
                    client.send(ApiKey.OFFSET_COMMIT, 8, **commit_body(group, "orders", {partition: offset}))
                for partition, offset in commits:
                    assert error_of(await client.hear(ApiKey.OFFSET_COMMIT, 8)) == 0
                    self.told.offsets[group, partition] = offset

    async def _rebalance(self, address: tuple[str, int], group: str, rounds: int) -> None:
        """A static member that comes back with another subscription each time: a generation each."""
        async with Client(address) as client:
            member = ""
            for number in range(rounds):
                joined = await client.ask(
                    ApiKey.JOIN_GROUP, 5, groupId=group, sessionTimeoutMs=30_000, rebalanceTimeoutMs=30_000,
                    memberId=member, groupInstanceId="seat", protocolType="consumer",
                    protocols=[{"name": "range", "metadata": b"%d" % number}],
                )  # fmt: skip
                assert joined["errorCode"] == 0
                member, assignment = joined["memberId"], b"part %d" % number
                synced = await client.ask(
                    ApiKey.SYNC_GROUP, 3, groupId=group, generationId=joined["generationId"], memberId=member,
                    groupInstanceId="seat", assignments=[{"memberId": member, "assignment": assignment}],
                )  # fmt: skip
                assert (synced["errorCode"], synced["assignment"]) == (0, assignment)
                self.told.assignments[group] = joined["generationId"], assignment

    async def _commit_and_delete(self, address: tuple[str, int], rounds: int) -> None:
        async with Client(address) as client:
            for number in range(rounds):
                group = f"gone-{number}"
                answer = await client.ask(ApiKey.OFFSET_COMMIT, 8, **commit_body(group, "orders", {0: 5}))
                assert error_of(answer) == 0
                deleted = await client.ask(ApiKey.DELETE_GROUPS, 1, groupsNames=[group])
                assert deleted["results"][0]["errorCode"] == 0
                self.told.offsets[group, 0] = -1

    async def _checkpoint(self, server: Server, rounds: int) -> None:
        for _ in range(rounds):
            await asyncio.sleep(0.01)
            server.parts.checkpoints.begin()


class Serving:
    """A server on a disk of ours, in this loop."""

    def __init__(self, data: Path, settings: Settings, files: SharedFiles) -> None:
        self._server = Server(data, settings.groups, settings.broker, ServerLog(QUIET), files)

    async def __aenter__(self) -> Server:
        await self._server.start()
        return self._server

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop()


class _Quiet:
    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None: ...


QUIET: Any = _Quiet()


def settings_for(flush: str) -> Settings:
    return settings_from(
        {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
            "offsets.topic.segment.bytes": "3000",
            "group.initial.rebalance.delay.ms": "0",
            "log.cleaner.backoff.ms": "20",
            "log.cleaner.min.cleanable.ratio": "0.01",
            "muster.flush": flush,
        }
    )


def error_of(commit_answer: Any) -> int:
    return int(commit_answer["topics"][0]["partitions"][0]["errorCode"])


# What is there afterwards.


@dataclass(slots=True)
class Found:
    """What a log says, newest record first in importance: as Kafka's loader takes it."""

    offsets: dict[tuple[str, str, int], int] = field(default_factory=dict)
    groups: dict[str, GroupValue] = field(default_factory=dict)

    def take(self, log: DiskLog) -> None:
        for batch in log.batches():
            assert batch.problem is None
            for record in batch.records:
                self._take(record.key, record.value)

    def _take(self, key_bytes: bytes | None, value_bytes: bytes | None) -> None:
        assert key_bytes is not None
        key = decode_key(key_bytes)
        value = None if value_bytes is None else decode_value(key.record_type, value_bytes)[1]
        if isinstance(key, OffsetKey):
            place = key.group_id, key.topic, key.partition
            if isinstance(value, OffsetValue):
                self.offsets[place] = value.committed_offset
            else:
                self.offsets.pop(place, None)
        elif isinstance(key, GroupKey):
            if isinstance(value, GroupValue):
                self.groups[key.group_id] = value
            else:
                self.groups.pop(key.group_id, None)


def check(data: Path, settings: Settings, disk: SharedFiles, told: Told) -> None:
    """Open what is left, load it, and hold it against what clients were told."""
    directory = LogDirectory.open(data, lambda topic: log_config(topic, settings.broker, settings.groups), files=disk)
    found, loaded = Found(), Found()
    for partition in range(OFFSETS_PARTITIONS):
        log = directory.logs[TopicPartition(OFFSETS_TOPIC, partition)]
        found.take(log)
        coordinator, report = load(log, settings.groups)
        assert not report.problems
        take_loaded(loaded, coordinator)
    assert loaded.offsets == found.offsets, "the loader read something else than the log says"
    assert {group: (value.generation, members_of(value)) for group, value in loaded.groups.items()} == {
        group: (value.generation, members_of(value)) for group, value in found.groups.items()
    }
    for (group, partition), offset in told.offsets.items():
        there = found.offsets.get((group, "orders", partition), -1)
        assert there >= offset if offset >= 0 else there == -1, f"{group} {partition}: {offset} was told, {there} there"
    for group, (generation, assignment) in told.assignments.items():
        value = found.groups.get(group)
        assert value is not None, f"{group} is gone"
        assert value.generation >= generation, f"{group}: generation {generation} was told, {value.generation} there"
        if value.generation == generation:
            assert [member.assignment for member in value.members] == [assignment]
    assert not directory.losses, "nothing that was durable is gone, and yet it is said"


def members_of(value: GroupValue) -> dict[str, bytes]:
    return {member.member_id: member.assignment for member in value.members}


def take_loaded(loaded: Found, coordinator: Coordinator) -> None:
    for group in coordinator.groups.values():
        for (topic, partition), commit_bytes in group.offsets.items():
            loaded.offsets[group.group_id, topic, partition] = fetched(commit_bytes)[0]
        if group.record is not None:
            seats = Seats.recorded(group.record)
            assert seats.generation == group.record.generation
            assert {one.member_id: one.assignment for one in seats.members.values()} == members_of(group.record)
            loaded.groups[group.group_id] = group.record


def survivors(cut: Cut, chances: int) -> Iterator[Survivors]:
    yield from PLAIN
    yield from (Chance(1000 * cut.number + seed) for seed in range(chances))


def look_at(day: Day, data: Path, chances: int) -> int:
    """Every cut under every rule of survival; how many disks that were. `LossFound` if one lost something."""
    seen: set[tuple[bytes, int]] = set()
    for number, cut in enumerate(day.cuts):
        for rule in survivors(cut, chances):
            disk = SharedFiles(data, cut.image.root(rule))
            known = fingerprint(disk.root), number
            if known in seen:
                continue
            seen.add(known)
            try:
                check(data, day.settings, disk, cut.told)
            except Exception as error:
                raise LossFound(f"after operation {cut.number} ({cut.operation}), {rule!r}: {error!r}") from error
    return len(seen)


def a_day(data: Path, seed: int, rounds: int, flush: str = "always", without: frozenset[str] = frozenset()) -> Day:
    data.mkdir(exist_ok=True)  # for the control socket's address
    day = Day(data, seed, flush=flush, without=without)
    asyncio.run(day.run(rounds))
    assert any(cut.told.offsets for cut in day.cuts)
    return day


@pytest.mark.parametrize("seed", [1, 2])
def test_what_was_acknowledged_is_there_after_a_power_cut(tmp_path: Path, seed: int) -> None:
    day = a_day(tmp_path / "data", seed, rounds=16)
    day.cuts = random.Random(seed).sample(day.cuts, 15)
    assert look_at(day, tmp_path / "data", chances=1) > 30


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10, 16))
def test_many_power_cuts(tmp_path: Path, seed: int) -> None:
    day = a_day(tmp_path / "data", seed, rounds=48)
    day.cuts = random.Random(seed).sample(day.cuts, 60)
    print(f"\nseed {seed}: {len(day.cuts)} cuts, {look_at(day, tmp_path / 'data', chances=3)} disks")


def test_without_a_flush_acknowledged_commits_are_lost(tmp_path: Path) -> None:
    """What `muster.flush=os` says it may do; and the proof that the tests above would notice."""
    day = a_day(tmp_path / "data", 3, rounds=8, flush="os")
    with pytest.raises(LossFound, match=r"was told|is gone"):
        look_at(day, tmp_path / "data", chances=0)


def test_without_the_sync_of_the_log_acknowledged_commits_are_lost(tmp_path: Path) -> None:
    day = a_day(tmp_path / "data", 4, rounds=8, without=frozenset({"flush.log"}))
    with pytest.raises(LossFound, match=r"was told|is gone"):
        look_at(day, tmp_path / "data", chances=0)


def test_clients_go_on_after_a_power_cut(tmp_path: Path) -> None:
    """On the wire: offsets are fetched, and the member of the last generation keeps its seat."""
    data = tmp_path / "data"
    day = a_day(data, 5, rounds=16)

    async def ask(cut: Cut) -> None:
        async with (
            Serving(data, day.settings, SharedFiles(data, cut.image.root(NOTHING))) as server,
            Client((server.host, server.port)) as client,
        ):
            for (group, partition), offset in cut.told.offsets.items():
                asked = [{"groupId": group, "memberId": None, "memberEpoch": -1, "topics": None}]
                answer = await client.ask(ApiKey.OFFSET_FETCH, 9, groups=asked, requireStable=False)
                assert answer["groups"][0]["errorCode"] == 0
                offsets = {
                    each["partitionIndex"]: each["committedOffset"]
                    for topic in answer["groups"][0]["topics"]
                    for each in topic["partitions"]
                }
                assert offsets.get(partition, -1) >= offset
            for group, (generation, _) in cut.told.assignments.items():
                described = await client.ask(
                    ApiKey.DESCRIBE_GROUPS, 3, groups=[group], includeAuthorizedOperations=False
                )
                (member,) = described["groups"][0]["members"]
                assert described["groups"][0]["groupState"] == "Stable"
                answer = await client.ask(
                    ApiKey.HEARTBEAT, 3, groupId=group, generationId=generation, memberId=member["memberId"],
                    groupInstanceId="seat",
                )  # fmt: skip
                assert answer["errorCode"] in (0, 22)  # 22: a later generation was durable, and not told yet

    cuts = [cut for cut in day.cuts if cut.told.assignments]
    for cut in random.Random(5).sample(cuts, 5):
        asyncio.run(ask(cut))
