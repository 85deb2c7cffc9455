"""The power goes at any disk operation of a server with transactions: each is there whole, or not at all.

As `tests/server/test_power_cut.py` does it for groups. Two workers, one in each flow, write a number to two topics
and commit it as an offset, one transaction each; every third is aborted. Behind the cut a whole server starts on what
is left of the disk.

A few cuts are aimed: one worker at a time, and the power goes at every disk operation of a commit and of an abort.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from muster.codec.records import TRANSACTIONAL
from muster.protocol.apis import ApiKey
from muster.server.settings import settings_from
from tests.log.disk.crashes import LossFound
from tests.log.disk.model import NOTHING, PLAIN, Chance, Change, Image, Survivors, fingerprint
from tests.server.records.talking import FETCH, batch, fetch_body, produce_body
from tests.server.shared_disk import SharedFiles
from tests.server.test_power_cut import Client, Serving
from tests.server.transactions.talking import COMMITTED, CONCURRENT, end_of, passed

WORKERS = {0: "older", 1: "version 2"}
TOPICS = ("orders", "invoices")
ABORTED = 3
"""Every third one."""


def is_committed(number: int) -> bool:
    return number % ABORTED != ABORTED - 1


@dataclass(slots=True)
class Told:
    """Numbers whose EndTxn was answered, by worker."""

    ended: dict[int, int] = field(default_factory=dict)

    def copy(self) -> "Told":
        return Told(dict(self.ended))


@dataclass(slots=True, frozen=True)
class Cut:
    operation: str
    image: Image
    told: Told


class OfTransactions(Survivors):
    """What the log of transactions had only in the page cache is there, and nothing else of that kind; or all else."""

    def __init__(self, *, is_kept: bool) -> None:
        self._is_kept = is_kept

    def write(self, change: Change) -> list[Change]:
        is_of_them = isinstance(change, tuple) and b"worker-" in change[1]
        return [change] if is_of_them is self._is_kept else []

    def __repr__(self) -> str:
        return f"the log of transactions is {'ahead of' if self._is_kept else 'behind'} the others"


AHEAD, BEHIND = OfTransactions(is_kept=True), OfTransactions(is_kept=False)
"""What tells the right order of writes from any other: a decision and its markers do not survive together."""


class Worker:
    def __init__(self, client: Client, number: int) -> None:
        self._client = client
        self.number = number
        self.transactional_id = f"worker-{number}"
        self.group = f"group-{number}"
        self._producer: tuple[int, int] = -1, -1
        self._sequence = 0

    async def begin(self) -> None:
        await self._client.ask(ApiKey.FIND_COORDINATOR, 4, keyType=1, coordinatorKeys=[self.transactional_id])
        answer = await self._until_free(
            ApiKey.INIT_PRODUCER_ID, 4, transactionalId=self.transactional_id, transactionTimeoutMs=60_000
        )
        self._producer = answer["producerId"], answer["producerEpoch"]
        self._sequence = 0

    async def _until_free(self, api_key: ApiKey, version: int, **body: Any) -> Any:
        while (answer := await self._client.ask(api_key, version, **body))["errorCode"] == CONCURRENT:
            await asyncio.sleep(0)
        assert answer["errorCode"] == 0, (api_key, answer)
        return answer

    @property
    def _who(self) -> dict[str, Any]:
        producer_id, epoch = self._producer
        return {"transactionalId": self.transactional_id, "producerId": producer_id, "producerEpoch": epoch}

    async def fill(self, number: int) -> None:
        """One transaction, but its end."""
        if self.number == 0:
            await self._add()
        for topic in TOPICS:
            await self._write(topic, str(number))
        self._sequence += 1
        await self._commit_offset(number)

    async def end(self, number: int) -> None:
        version = 4 if self.number == 0 else 5
        answer = await self._client.ask(ApiKey.END_TXN, version, **self._who, committed=is_committed(number))
        assert answer["errorCode"] == 0
        if self.number:
            self._producer, self._sequence = (answer["producerId"], answer["producerEpoch"]), 0

    async def wait_until_complete(self) -> None:
        state = "Prepare"
        while state.startswith("Prepare"):
            answer = await self._client.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactionalIds=[self.transactional_id])
            state = answer["transactionStates"][0]["transactionState"]

    async def _add(self) -> None:
        producer_id, epoch = self._producer
        while True:
            answer = await self._client.ask(
                ApiKey.ADD_PARTITIONS_TO_TXN, 3, v3AndBelowTransactionalId=self.transactional_id,
                v3AndBelowProducerId=producer_id, v3AndBelowProducerEpoch=epoch,
                v3AndBelowTopics=[{"name": topic, "partitions": [self.number]} for topic in TOPICS],
            )  # fmt: skip
            results = answer["resultsByTopicV3AndBelow"]
            errors = {one["partitionErrorCode"] for topic in results for one in topic["resultsByPartition"]}
            if errors != {CONCURRENT}:
                assert errors == {0}
                break
        await self._until_free(ApiKey.ADD_OFFSETS_TO_TXN, 3, **self._who, groupId=self.group)

    async def _write(self, topic: str, value: str) -> None:
        producer_id, epoch = self._producer
        data = batch(
            value, producer_id=producer_id, producer_epoch=epoch, base_sequence=self._sequence, attributes=TRANSACTIONAL
        )
        body = {**produce_body(topic, {self.number: data}), "transactionalId": self.transactional_id}
        version = 11 if self.number == 0 else 12
        error = CONCURRENT
        while error == CONCURRENT:
            answer = await self._client.ask(ApiKey.PRODUCE, version, **body)
            error = answer["responses"][0]["partitionResponses"][0]["errorCode"]
        assert error == 0, error

    async def _commit_offset(self, number: int) -> None:
        offset = {"partitionIndex": self.number, "committedOffset": number, "committedMetadata": ""}
        answer = await self._client.ask(
            ApiKey.TXN_OFFSET_COMMIT, 4 if self.number == 0 else 5, **self._who, groupId=self.group,
            topics=[{"name": TOPICS[0], "partitions": [offset]}],
        )  # fmt: skip
        assert answer["topics"][0]["partitions"][0]["errorCode"] == 0


class Day:
    """A server and its workers, until the power goes; after some of its disk operations the disk is kept."""

    def __init__(self, data: Path, seed: int, *, flush: str = "always", without: frozenset[str] = frozenset()) -> None:
        data.mkdir(exist_ok=True)  # for the control socket's address
        self._data = data
        self._random = random.Random(seed)
        self._settings = settings_from({
            "listeners": "PLAINTEXT://127.0.0.1:0", "offsets.topic.num.partitions": "2",
            "transaction.state.log.num.partitions": "1", "transaction.state.log.segment.bytes": "2000",
            "log.cleaner.backoff.ms": "20", "log.cleaner.min.cleanable.ratio": "0.01", "muster.flush": flush,
        })  # fmt: skip
        self.files = SharedFiles(data, without=without)
        self.told = Told()
        self.cuts: list[Cut] = []

    def _watch_some(self, operation: str) -> None:
        if self._random.random() < 0.3:
            self._keep(operation)

    def _keep(self, operation: str) -> None:
        told = self.told.copy()  # before the image: what is told meanwhile need not be in it
        self.cuts.append(Cut(operation, self.files.image(), told))

    @contextlib.asynccontextmanager
    async def _serving(self) -> AsyncIterator[tuple[str, int]]:
        async with Serving(self._data, self._settings, self.files) as server:
            for topic in TOPICS:
                await server.parts.topic_changes.create_topic(server.parts.cluster, topic, len(WORKERS))
            yield server.host, server.port
            self._keep("the end")
            self.files.watch = lambda operation: None

    async def run(self, rounds: int) -> None:
        async with self._serving() as address:
            self.files.watch = self._watch_some
            await asyncio.gather(*(self._work(address, number, rounds) for number in WORKERS))

    async def run_aimed(self) -> None:
        """Three transactions of each worker in turn; cuts at all operations of a commit's and of an abort's end."""
        async with self._serving() as address, Client(address) as client:
            for worker in [Worker(client, number) for number in WORKERS]:
                await worker.begin()
                for value in range(ABORTED):
                    await worker.fill(value)
                    self.files.watch = self._keep if value else lambda operation: None
                    await worker.end(value)
                    self.told.ended[worker.number] = value
                    await worker.wait_until_complete()
                    self.files.watch = lambda operation: None

    async def _work(self, address: tuple[str, int], number: int, rounds: int) -> None:
        async with Client(address) as client:
            worker = Worker(client, number)
            await worker.begin()
            for value in range(rounds):
                await worker.fill(value)
                await worker.end(value)
                self.told.ended[number] = value

    def look_at(self, cuts: int, chances: int, rules: Sequence[Survivors] = PLAIN) -> int:
        """Some of the cuts under every rule of survival; how many disks that were."""
        seen: set[bytes] = set()
        for number, cut in enumerate(self._random.sample(self.cuts, min(cuts, len(self.cuts)))):
            for rule in (*rules, *(Chance(1000 * number + seed) for seed in range(chances))):
                disk = SharedFiles(self._data, cut.image.root(rule))
                known = fingerprint(disk.root)
                if known in seen:
                    continue
                seen.add(known)
                try:
                    asyncio.run(asyncio.wait_for(self._check(disk, cut.told), 60))
                except Exception as error:
                    raise LossFound(f"cut {number} ({cut.operation}), {rule!r}: {error!r}") from error
        return len(seen)

    async def _check(self, disk: SharedFiles, told: Told) -> None:
        async with Serving(self._data, self._settings, disk) as server, Client((server.host, server.port)) as client:
            for number in WORKERS:
                worker = Worker(client, number)
                await worker.begin()  # what is open is aborted
                orders, invoices = [await self._values(client, topic, number) for topic in TOPICS]
                offset = await self._offset(client, worker)
                assert orders == invoices, f"worker {number}: {orders} and {invoices}"
                assert offset == (orders[-1] if orders else -1), f"worker {number}: {orders}, and offset {offset}"
                last = max([told.ended.get(number, -1), *orders])
                expected = [value for value in range(last + 1) if is_committed(value)]
                assert orders == expected, f"worker {number} was told {told.ended.get(number)}: {orders}"
                assert last <= told.ended.get(number, -1) + 1

    async def _values(self, client: Client, topic: str, partition: int) -> list[int]:
        values: list[str] = []
        offset = 0
        while True:
            answer = await client.ask(ApiKey.FETCH, FETCH, **fetch_body(topic, {partition: offset}, **COMMITTED))
            found = answer["responses"][0]["partitions"][0]
            assert found["errorCode"] == 0
            if not found["records"]:
                assert found["lastStableOffset"] == found["highWatermark"] == offset, "something is open"
                return list(map(int, values))
            aborted = {(one["producerId"], one["firstOffset"]) for one in found["abortedTransactions"] or ()}
            values, offset = values + passed(found["records"], aborted, offset), end_of(found["records"])

    async def _offset(self, client: Client, worker: Worker) -> int:
        asked = [{"name": TOPICS[0], "partitionIndexes": [worker.number]}]
        answer = await client.ask(ApiKey.OFFSET_FETCH, 7, groupId=worker.group, topics=asked, requireStable=True)
        (found,) = answer["topics"][0]["partitions"]
        assert found["errorCode"] == 0
        return int(found["committedOffset"])


def a_day(data: Path, seed: int, rounds: int, **how: Any) -> Day:
    day = Day(data, seed, **how)
    asyncio.run(asyncio.wait_for(day.run(rounds), 120))
    return day


def test_the_power_goes_at_every_step_of_a_commit_and_of_an_abort(tmp_path: Path) -> None:
    day = Day(tmp_path / "data", 1)
    asyncio.run(asyncio.wait_for(day.run_aimed(), 120))
    assert day.look_at(cuts=len(day.cuts), chances=0, rules=(NOTHING, AHEAD, BEHIND)) > len(day.cuts) / 2


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10, 16))
def test_many_power_cuts(tmp_path: Path, seed: int) -> None:
    day = a_day(tmp_path / "data", seed, rounds=25)
    print(f"\nseed {seed}: {len(day.cuts)} cuts, {day.look_at(cuts=100, chances=3)} disks")


def test_without_a_flush_transactions_are_torn_or_lost(tmp_path: Path) -> None:
    """What `muster.flush=os` says it may do; and the proof that the test above would notice."""
    day = a_day(tmp_path / "data", 3, rounds=5, flush="os")
    with pytest.raises(LossFound, match="worker"):
        day.look_at(cuts=100, chances=1)
