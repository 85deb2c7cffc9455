"""Clients that behave, and remember what they were promised.

Each commits ever larger offsets to partitions that nobody else commits for. After every connect, and every now and then
in between, it fetches what is committed: nothing below what was acknowledged, nothing above what was sent. Problems too
are a request that is not answered in time, a connection that is cut while the server runs, and an error that no client
could make sense of. Errors that ask for patience are answered with patience, but not for ever: `rounds` looks at when
each client got on last.

Producers number the records of a partition that nobody else writes to, so that each says its own offset. What they were
promised is in the log, once and in its place; and a consumer finds again what it has read.
"""

import contextlib
import itertools
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from muster.protocol.apis import ApiKey
from tests.server.raw import Raw, commit_body, fetch_offsets
from tests.server.records.talking import PRODUCE, batch, fetch, produce_body, records_in

MOST_WAITED_S = 10.0
TOPIC = "orders"
LOADING, NOT_AVAILABLE, NOT_COORDINATOR = 14, 15, 16
ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCE, MEMBER_ID_REQUIRED = 22, 25, 27, 79
PATIENCE = (LOADING, NOT_AVAILABLE, NOT_COORDINATOR)
"""Errors that every client answers by asking again."""
RECORDS_TOPIC = "sales"
NOT_LEADER, TIMED_OUT, STORAGE = 6, 7, 56
PATIENCE_FOR_RECORDS = (NOT_LEADER, TIMED_OUT, STORAGE)
"""The same for producers and consumers, while a log is opened again."""
IN_FLIGHT = 8
PAUSE_S = 0.02


@dataclass
class Situation:
    """What everybody in a campaign knows of the server."""

    address: tuple[str, int] = ("", 0)
    life: int = 0
    """How many servers there have been."""
    is_restarting: bool = True
    ready_at: float = 0.0
    is_over: threading.Event = field(default_factory=threading.Event)
    resting: threading.Event = field(default_factory=threading.Event)
    """While it is set, those who behave ask nothing."""
    problems: list[str] = field(default_factory=list)

    def problem(self, text: str) -> None:
        self.problems.append(f"{time.strftime('%H:%M:%S')} {text}")


class Honest(threading.Thread):
    """One connection at a time, made again whenever the server is."""

    def __init__(self, situation: Situation, group: str, partitions: range, rng: random.Random) -> None:
        super().__init__(daemon=True, name=f"{type(self).__name__.lower()} of {group}")
        self.situation = situation
        self.group = group
        self.partitions = partitions
        self.rng = rng
        self.sent: dict[int, int] = {}
        self.acknowledged: dict[int, int] = {}
        self.commits = 0
        """Acknowledged ones."""
        self.checks = 0
        self.checked_life = 0
        """The last server that was asked for everything acknowledged before, and had it."""
        self.got_on_at = time.monotonic()
        self.longest_wait_s = 0.0
        self._offset = 0
        self._life = 0

    def run(self) -> None:
        try:
            while not self.situation.is_over.is_set():
                self._live()
        except Exception as error:
            self.situation.problem(f"{self.name}: {type(error).__name__}: {error}")
            raise

    def _live(self) -> None:
        if self.situation.is_restarting:
            time.sleep(PAUSE_S)
            return
        self._life = self.situation.life
        try:
            with Raw(self.situation.address, MOST_WAITED_S) as raw:
                self.check(raw)
                self.checked_life = self._life
                self.work(raw)
        except TimeoutError:
            if not self._is_excused:
                self.situation.problem(f"HUNG {self.name}: no answer for {MOST_WAITED_S:.0f} s")
        except (EOFError, OSError) as error:
            if not self._is_excused:
                self.situation.problem(f"DROPPED {self.name}: {error or type(error).__name__}")
            time.sleep(PAUSE_S)

    @property
    def _is_excused(self) -> bool:
        """Whether a connection may end, because its server does."""
        for _ in range(50):  # whoever ends the server may be a moment behind those who notice it
            if self.situation.is_restarting or self.situation.life != self._life or self.situation.is_over.is_set():
                return True
            time.sleep(0.01)
        return False

    def asked(self, raw: Raw, api_key: ApiKey, version: int, **body: Any) -> Any:
        """Ask, and see how long it takes."""
        started = time.monotonic()
        answer = raw.ask(api_key, version, **body)
        self.longest_wait_s = max(self.longest_wait_s, time.monotonic() - started)
        return answer

    def goes_on(self) -> bool:
        while self.situation.resting.is_set() and not self.situation.is_over.is_set():
            time.sleep(PAUSE_S)
            self.got_on_at = time.monotonic()
        return not self.situation.is_over.is_set()

    def got_on(self) -> None:
        self.got_on_at = time.monotonic()

    def work(self, raw: Raw) -> None:
        raise NotImplementedError

    def check(self, raw: Raw) -> None:
        """Everything acknowledged is there, and nothing that was never sent."""
        while True:
            started = time.monotonic()
            error, found = fetch_offsets(raw, self.group)
            self.longest_wait_s = max(self.longest_wait_s, time.monotonic() - started)
            if error == 0:
                break
            if error not in PATIENCE:
                self.situation.problem(f"ERROR {self.name}: OffsetFetch was answered with error {error}")
                return
            if not self.goes_on():
                return
            time.sleep(PAUSE_S)
        self.compare({partition: offset for (topic, partition), offset in found.items() if topic == TOPIC})
        self.got_on()

    def compare(self, found: dict[int, int]) -> None:
        self.checks += 1
        for partition, offset in self.acknowledged.items():
            there = found.get(partition, -1)
            if there < offset:
                self.situation.problem(
                    f"LOST {self.name}, partition {partition}: {offset} was acknowledged, {there} is there"
                )
        for partition in self.partitions:
            there = found.get(partition, -1)
            if there > self.sent.get(partition, -1):
                self.situation.problem(
                    f"INVENTED {self.name}, partition {partition}: {there} is there, "
                    f"the last one sent was {self.sent.get(partition, -1)}"
                )

    def next_offset(self) -> tuple[int, int]:
        """A partition, and an offset larger than all before."""
        self._offset += 1
        partition = self.partitions[self._offset % len(self.partitions)]
        self.sent[partition] = self._offset
        return partition, self._offset

    def heard(self, partition: int, offset: int) -> None:
        self.acknowledged[partition] = offset
        self.commits += 1
        self.got_on()


class Committer(Honest):
    """Commits without being a member, several requests in flight."""

    def work(self, raw: Raw) -> None:
        for turn in itertools.count():
            if not self.goes_on():
                return
            if turn % 10 == 9:
                self.check(raw)
            started = time.monotonic()
            waiting = {}
            for _ in range(self.rng.randint(1, IN_FLIGHT)):
                partition, offset = self.next_offset()
                body = commit_body(self.group, TOPIC, {partition: offset})
                waiting[raw.send(ApiKey.OFFSET_COMMIT, 8, **body)] = partition, offset
            error = 0
            for number, (partition, offset) in waiting.items():
                heard, answer = raw.hear(ApiKey.OFFSET_COMMIT, 8)
                assert heard == number, "answers out of order"
                error = answer["topics"][0]["partitions"][0]["errorCode"]
                if error == 0:
                    self.heard(partition, offset)
                elif error not in PATIENCE:
                    self.situation.problem(f"ERROR {self.name}: a commit was answered with error {error}")
            self.longest_wait_s = max(self.longest_wait_s, time.monotonic() - started)
            time.sleep(PAUSE_S if error else PAUSE_S / 4)


class Member(Honest):
    """Joins its group, and commits in its generation; leaves it every now and then."""

    def __init__(
        self, situation: Situation, group: str, partitions: range, rng: random.Random, instance_id: str | None = None
    ) -> None:
        super().__init__(situation, group, partitions, rng)
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1

    def work(self, raw: Raw) -> None:
        while self.goes_on():
            if self._join(raw):
                for _ in self._while_member(raw):
                    pass
            time.sleep(PAUSE_S)

    def _join(self, raw: Raw) -> bool:
        joined = self.asked(
            raw, ApiKey.JOIN_GROUP, 5, groupId=self.group, sessionTimeoutMs=6_000, rebalanceTimeoutMs=4_000,
            memberId=self.member_id, groupInstanceId=self.instance_id, protocolType="consumer",
            protocols=[{"name": "range", "metadata": b"m" * 20}],
        )  # fmt: skip
        error = joined["errorCode"]
        if error in (0, MEMBER_ID_REQUIRED):
            self.member_id, self.generation = joined["memberId"], joined["generationId"]
        if error:
            return self._is_settled("JoinGroup", error)
        assignments = [{"memberId": one["memberId"], "assignment": b"yours"} for one in joined["members"]]
        synced = self.asked(raw, ApiKey.SYNC_GROUP, 3, assignments=assignments, **self._me)
        return self._is_settled("SyncGroup", synced["errorCode"])

    @property
    def _me(self) -> dict[str, Any]:
        return {
            "groupId": self.group, "generationId": self.generation, "memberId": self.member_id,
            "groupInstanceId": self.instance_id,
        }  # fmt: skip

    def _while_member(self, raw: Raw) -> Iterator[None]:
        while self.goes_on():
            heartbeat = self.asked(raw, ApiKey.HEARTBEAT, 3, **self._me)
            if not self._is_settled("Heartbeat", heartbeat["errorCode"]):
                return
            partition, offset = self.next_offset()
            body = commit_body(self.group, TOPIC, {partition: offset})
            body.update(
                generationIdOrMemberEpoch=self.generation, memberId=self.member_id, groupInstanceId=self.instance_id
            )
            answer = self.asked(raw, ApiKey.OFFSET_COMMIT, 8, **body)
            error = answer["topics"][0]["partitions"][0]["errorCode"]
            if error == 0:
                self.heard(partition, offset)
            elif not self._is_settled("OffsetCommit", error):
                return
            if self.rng.random() < 0.05:
                self.check(raw)
            if self.rng.random() < 0.01:
                leaving = [{"memberId": self.member_id, "groupInstanceId": self.instance_id}]
                self.asked(raw, ApiKey.LEAVE_GROUP, 3, groupId=self.group, members=leaving)
                self.member_id = ""
                return
            time.sleep(PAUSE_S / 2)
            yield

    def _is_settled(self, what: str, error: int) -> bool:
        """Whether to go on in this generation; if not, what to join with next time."""
        if error == UNKNOWN_MEMBER:
            self.member_id = ""
        elif error and error not in (ILLEGAL_GENERATION, REBALANCE, MEMBER_ID_REQUIRED, *PATIENCE):
            self.situation.problem(f"ERROR {self.name}: {what} was answered with error {error}")
        return error == 0


class Observer(Honest):
    """Asks what operators and clients ask all day, in old versions and new ones."""

    groups: tuple[str, ...] = ()

    def work(self, raw: Raw) -> None:
        while self.goes_on():
            errors = {
                "ListGroups": self.asked(raw, ApiKey.LIST_GROUPS, self.rng.randint(0, 2))["errorCode"],
                "ListGroups v4": self.asked(raw, ApiKey.LIST_GROUPS, 4, statesFilter=[])["errorCode"],
                "Metadata": self._metadata(raw),
            }
            found = self.asked(raw, ApiKey.FIND_COORDINATOR, 4, keyType=0, coordinatorKeys=list(self.groups))
            errors |= {f"FindCoordinator {one['key']}": one["errorCode"] for one in found["coordinators"]}
            described = self.asked(
                raw, ApiKey.DESCRIBE_GROUPS, 5, groups=list(self.groups), includeAuthorizedOperations=False
            )
            errors |= {f"DescribeGroups {one['groupId']}": one["errorCode"] for one in described["groups"]}
            for what, error in errors.items():
                if error and error not in PATIENCE:
                    self.situation.problem(f"ERROR {self.name}: {what} was answered with error {error}")
            if not any(errors.values()):
                self.got_on()
            time.sleep(PAUSE_S)

    def _metadata(self, raw: Raw) -> int:
        answer = self.asked(raw, ApiKey.METADATA, 5, topics=[{"name": TOPIC}], allowAutoTopicCreation=False)
        return int(answer["topics"][0]["errorCode"])


class OfRecords(Honest):
    """Somebody who has to do with one partition of records."""

    def __init__(self, situation: Situation, partition: int, rng: random.Random) -> None:
        super().__init__(situation, f"{RECORDS_TOPIC}-{partition}", range(0), rng)
        self.partition = partition
        self.read_up_to = 0
        """Records that were read, from the first on."""
        self.records = 0
        """Acknowledged, or read."""

    def read_on(self, raw: Raw, wait_ms: int = 0) -> bool:
        """Read what follows; whether there was something."""
        at = self.read_up_to
        told = fetch(raw, RECORDS_TOPIC, self.partition, at, maxWaitMs=wait_ms)
        error = told["errorCode"]
        if error:
            if error not in PATIENCE_FOR_RECORDS:
                self.situation.problem(f"LOST {self.name}: {at} records were read, and then Fetch said error {error}")
            time.sleep(PAUSE_S)
            return error in PATIENCE_FOR_RECORDS
        self.got_on()
        found = [(record.offset, record.value) for record in records_in(told["records"]) if record.offset >= at]
        expected = [(offset, b"%d" % offset) for offset in range(at, at + len(found))]
        if found != expected:
            wrong = next(pair for pair in zip(found, expected, strict=True) if pair[0] != pair[1])
            self.situation.problem(f"LOST {self.name}: {wrong[0]} where {wrong[1]} should be")
        self.read_up_to += len(found)
        return bool(found)


class RecordProducer(OfRecords):
    """Sends batches with sequences, each until it is acknowledged."""

    def __init__(self, situation: Situation, partition: int, rng: random.Random) -> None:
        super().__init__(situation, partition, rng)
        self._batch = b""
        self._batch_count = 0

    def work(self, raw: Raw) -> None:
        for turn in itertools.count():
            if not self.goes_on():
                return
            if turn % 20 == 19:
                self._catch_up(raw)
            if not self._batch_count:
                self._batch_count = self.rng.randint(1, 4)
                values = [str(self.records + number) for number in range(self._batch_count)]
                self._batch = batch(
                    *values, producer_id=5_000 + self.partition, producer_epoch=0, base_sequence=self.records,
                    codec=self.rng.randrange(5),
                )  # fmt: skip
            body = produce_body(RECORDS_TOPIC, {self.partition: self._batch})
            answer = self.asked(raw, ApiKey.PRODUCE, PRODUCE, **body)
            (told,) = answer["responses"][0]["partitionResponses"]
            error = told["errorCode"]
            if error == 0:
                if told["baseOffset"] != self.records:
                    self.situation.problem(f"ERROR {self.name}: record {self.records} is at {told['baseOffset']}")
                self.records += self._batch_count
                self._batch_count = 0
                self.got_on()
            elif error not in PATIENCE_FOR_RECORDS:
                self.situation.problem(f"ERROR {self.name}: Produce was answered with error {error}")
            time.sleep(PAUSE_S)

    def check(self, raw: Raw) -> None:
        """All of it, from the first record on."""
        self.read_up_to = 0
        self._catch_up(raw)

    def _catch_up(self, raw: Raw) -> None:
        acknowledged = self.records
        while self.read_on(raw) and self.goes_on():
            pass
        self.checks += 1
        if self.read_up_to < acknowledged and self.goes_on():
            self.situation.problem(
                f"LOST {self.name}: {acknowledged} records were acknowledged, {self.read_up_to} are there"
            )
        if self.read_up_to > self.records + self._batch_count:
            self.situation.problem(f"INVENTED {self.name}: {self.read_up_to} records, {self.records} and a batch sent")


class RecordConsumer(OfRecords):
    """Reads on from where it was, and waits for what is not there yet."""

    def check(self, raw: Raw) -> None:
        self.read_on(raw)
        self.checks += 1

    def work(self, raw: Raw) -> None:
        while self.goes_on():
            self.read_on(raw, wait_ms=200)
            self.records = self.read_up_to


class RealClient(Honest):
    """librdkafka in a group of its own, as an application would use it. It lives as long as the campaign.

    It has its own mind about when to try again, so nobody looks at how long it takes.
    """

    def run(self) -> None:
        from confluent_kafka import Consumer, KafkaException

        while self.situation.is_restarting and not self.situation.is_over.is_set():
            time.sleep(PAUSE_S)
        host, port = self.situation.address
        self._is_waiting = False
        consumer = Consumer(
            {
                "bootstrap.servers": f"{host}:{port}", "group.id": self.group, "enable.auto.commit": False,
                "session.timeout.ms": 6_000, "heartbeat.interval.ms": 200, "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200, "retry.backoff.ms": 50, "retry.backoff.max.ms": 200, "log_level": 0,
                "allow.auto.create.topics": False, "topic.metadata.refresh.interval.ms": 1_000,
                "on_commit": self._committed,
            }
        )  # fmt: skip
        consumer.subscribe([TOPIC])
        try:
            while not self.situation.is_over.is_set():
                consumer.poll(PAUSE_S)  # calls `_committed`
                with contextlib.suppress(KafkaException):  # whatever it was, an application would try again
                    self._go_on(consumer)
        finally:
            consumer.close()

    def _go_on(self, consumer: Any) -> None:
        from confluent_kafka import TopicPartition

        if self._is_waiting or self.situation.resting.is_set():
            return
        life = self.situation.life
        if self.commits % 20 == 0 or life != self.checked_life:
            asked = [TopicPartition(TOPIC, number) for number in self.partitions]
            found = consumer.committed(asked, timeout=1.0)
            if any(one.error is not None for one in found):
                return
            self.compare({one.partition: one.offset for one in found})
            self.checked_life = life
        partition, offset = self.next_offset()
        consumer.commit(offsets=[TopicPartition(TOPIC, partition, offset)])
        self._is_waiting = True

    def _committed(self, error: Any, partitions: list[Any]) -> None:
        self._is_waiting = False
        for one in partitions:
            if error is None and one.error is None:
                self.heard(one.partition, one.offset)
