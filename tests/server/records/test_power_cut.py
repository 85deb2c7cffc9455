"""The power goes while records are produced, read and deleted: what clients were told is there when it comes back.

As `tests/server/test_power_cut.py` does it for groups. Producers with sequences, and with batches in flight; a reader,
who must find again what it has read; and one who deletes the oldest records, which must not come back.
"""

import asyncio
import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from muster.log.directory import LogDirectory
from muster.protocol.apis import ApiKey
from muster.segments.checkpoints import TopicPartition
from muster.server.cluster.topic_storage import log_config
from muster.server.server import Server
from tests.log.disk.crashes import LossFound
from tests.log.disk.model import PLAIN, Chance, Image, fingerprint
from tests.server.records.talking import FETCH, PRODUCE, batch, fetch_body, produce_body, records_in
from tests.server.shared_disk import SharedFiles
from tests.server.test_power_cut import Client, Serving, settings_for

PARTITIONS = 3
TRIMMED = 2
"""The partition whose oldest records are deleted."""
IN_FLIGHT = 3
PER_BATCH = 2


@dataclass(slots=True)
class Told:
    """What clients have heard so far, by partition."""

    acknowledged: dict[int, int] = field(default_factory=dict)
    read: dict[int, int] = field(default_factory=dict)
    """Records that were acknowledged, and that a reader has had."""
    deleted: dict[int, int] = field(default_factory=dict)
    """The offset before which records are deleted."""

    def copy(self) -> "Told":
        return Told(dict(self.acknowledged), dict(self.read), dict(self.deleted))


@dataclass(slots=True, frozen=True)
class Cut:
    operation: str
    image: Image
    told: Told


class Day:
    """A server and its clients, until the power goes; after some of its disk operations the disk is kept."""

    def __init__(self, data: Path, seed: int, *, flush: str = "always", without: frozenset[str] = frozenset()) -> None:
        data.mkdir(exist_ok=True)  # for the control socket's address
        self._data = data
        self._random = random.Random(seed)
        self._settings = settings_for(flush)
        self.files = SharedFiles(data, without=without)
        self.told = Told()
        self.cuts: list[Cut] = []

    def _watch(self, operation: str) -> None:
        if self._random.random() < 0.3:
            told = self.told.copy()  # before the image: what is told meanwhile need not be in it
            self.cuts.append(Cut(operation, self.files.image(), told))

    async def run(self, rounds: int) -> None:
        async with Serving(self._data, self._settings, self.files) as server:
            await server.parts.topic_changes.create_topic(server.parts.cluster, "sales", PARTITIONS)
            self.files.watch = self._watch
            address = server.host, server.port
            producers = [self._produce(address, partition, rounds) for partition in range(PARTITIONS)]
            others = [self._read(address), self._delete(address), self._checkpoint(server)]
            beside = [asyncio.ensure_future(work) for work in others]
            await asyncio.gather(*producers)
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
            self.cuts.append(Cut("the end", self.files.image(), self.told.copy()))
            self.files.watch = lambda operation: None

    async def _produce(self, address: tuple[str, int], partition: int, rounds: int) -> None:
        async with Client(address) as client:
            sent = heard = 0
            while heard < rounds:
                while sent < rounds and sent - heard < IN_FLIGHT:
                    first = sent * PER_BATCH
                    values = [f"{partition}:{first + number}" for number in range(PER_BATCH)]
                    data = batch(*values, producer_id=900 + partition, producer_epoch=0, base_sequence=first)
                    client.send(ApiKey.PRODUCE, PRODUCE, **produce_body("sales", {partition: data}))
                    sent += 1
                answer = await client.hear(ApiKey.PRODUCE, PRODUCE)
                assert answer["responses"][0]["partitionResponses"][0]["errorCode"] == 0
                heard += 1
                self.told.acknowledged[partition] = heard * PER_BATCH

    async def _read(self, address: tuple[str, int]) -> None:
        async with Client(address) as client:
            while True:
                for partition in range(TRIMMED):
                    at = self.told.read.get(partition, 0)
                    answer = await client.ask(ApiKey.FETCH, FETCH, **fetch_body("sales", {partition: at}))
                    records = records_in(answer["responses"][0]["partitions"][0]["records"])
                    if records:
                        self.told.read[partition] = records[-1].offset + 1

    async def _delete(self, address: tuple[str, int]) -> None:
        async with Client(address) as client:
            while True:
                before = self.told.acknowledged.get(TRIMMED, 0) // 2
                asked = [{"name": "sales", "partitions": [{"partitionIndex": TRIMMED, "offset": before}]}]
                answer = await client.ask(ApiKey.DELETE_RECORDS, 2, topics=asked, timeoutMs=5_000)
                assert answer["topics"][0]["partitions"][0]["errorCode"] == 0
                self.told.deleted[TRIMMED] = before
                await asyncio.sleep(0.005)

    async def _checkpoint(self, server: Server) -> None:
        while True:
            await asyncio.sleep(0.01)
            server.parts.checkpoints.begin()

    def look_at(self, cuts: int, chances: int) -> int:
        """Some of the cuts under every rule of survival; how many disks that were."""
        seen: set[bytes] = set()
        disks = 0
        for number, cut in enumerate(self._random.sample(self.cuts, min(cuts, len(self.cuts)))):
            for rule in (*PLAIN, *(Chance(1000 * number + seed) for seed in range(chances))):
                disk = SharedFiles(self._data, cut.image.root(rule))
                known = fingerprint(disk.root)
                if known in seen:
                    continue
                seen.add(known)
                disks += 1
                try:
                    self._check(disk, cut.told)
                except Exception as error:
                    raise LossFound(f"cut {number} ({cut.operation}), {rule!r}: {error!r}") from error
        return disks

    def _check(self, disk: SharedFiles, told: Told) -> None:
        broker, groups = self._settings.broker, self._settings.groups
        directory = LogDirectory.open(self._data, lambda topic: log_config(topic, broker, groups), files=disk)
        for partition in range(PARTITIONS):
            log = directory.logs[TopicPartition("sales", partition)]
            found = {}
            for each in log.batches():
                assert each.problem is None
                found |= {record.offset: (record.value or b"").decode() for record in each.records}
            assert log.start_offset >= told.deleted.get(partition, 0), "deleted records are back"
            expected = {offset: f"{partition}:{offset}" for offset in range(min(found, default=0), log.end_offset)}
            assert found == expected, "records are missing, or not in their places, or there twice"
            for promised in (told.acknowledged, told.read):
                offset = promised.get(partition, 0)
                assert log.end_offset >= offset, f"{partition}: {offset} records were told, {log.end_offset} are there"
        assert not directory.losses, "nothing that was durable is gone, and yet it is said"


def a_day(data: Path, seed: int, rounds: int, **how: object) -> Day:
    day = Day(data, seed, **how)  # type: ignore[arg-type]
    asyncio.run(asyncio.wait_for(day.run(rounds), 60))
    assert any(cut.told.acknowledged for cut in day.cuts)
    return day


def test_what_was_told_of_records_holds_after_a_power_cut(tmp_path: Path) -> None:
    day = a_day(tmp_path / "data", 1, rounds=40)
    assert len(day.told.acknowledged) == PARTITIONS
    assert day.told.read
    assert day.told.deleted[TRIMMED] > 0
    assert day.look_at(cuts=25, chances=1) > 40


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10, 16))
def test_many_power_cuts(tmp_path: Path, seed: int) -> None:
    day = a_day(tmp_path / "data", seed, rounds=120)
    print(f"\nseed {seed}: {len(day.cuts)} cuts, {day.look_at(cuts=100, chances=3)} disks")


@pytest.mark.parametrize("how", [{"flush": "os"}, {"without": frozenset({"flush.log"})}], ids=["os", "no sync"])
def test_without_a_flush_acknowledged_records_are_lost(tmp_path: Path, how: dict[str, object]) -> None:
    """What `muster.flush=os` says it may do; and the proof that the test above would notice."""
    day = a_day(tmp_path / "data", 3, rounds=10, **how)
    with pytest.raises(LossFound, match="records were told"):
        day.look_at(cuts=100, chances=0)


def test_without_the_log_starts_deleted_records_come_back(tmp_path: Path) -> None:
    day = a_day(tmp_path / "data", 4, rounds=40, without=frozenset({"offsets.directory"}))
    with pytest.raises(LossFound, match="deleted records are back"):
        day.look_at(cuts=100, chances=0)
