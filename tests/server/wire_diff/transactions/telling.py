"""What a story about transactions is told with.

    @story(INIT)
    def an_id_that_is_new(tx: Teller) -> None:
        tx.init()                        in the version of the run, for the transactional id of the run
        tx.add(tx.here)

A story is played once for each of its versions, each time with a transactional id and a group of its own, to two
partitions of the topic `TOPIC` that no other story has. What a client must remember, `tx.producer` remembers: id and
epoch, as InitProducerId and the newer EndTxn gave them. All answers are compared, with ids of producers under the names
of their order of appearance, without times, and with batches opened.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from muster.codec.batches import encode_batch, iter_batches
from muster.codec.records import TRANSACTIONAL, Record
from tests.server.wire_diff.talk import PATIENCE_S, Link, Message, Side

TOPIC = "transactions"
INIT, ADD, ADD_OFFSETS, END, COMMIT = range(6), range(6), range(5), range(6), range(6)
OLD_END, NEW_END = range(5), 5
OLD_PRODUCE, NEW_PRODUCE = 11, 12
MINUTE_MS = 60_000
NOW_MS = int(time.time() * 1000)
UNORDERED = {
    "AddPartitionsToTxn": frozenset({"TopicResults", "ResultsByPartition", "ResultsByTransaction",
                                     "ResultsByTopicV3AndBelow"}),
    "DescribeTransactions": frozenset({"Topics", "Partitions"}),
    "ListTransactions": frozenset({"TransactionStates", "UnknownStateFilters"}),
    "DescribeProducers": frozenset({"ActiveProducers"}),
    "WriteTxnMarkers": frozenset({"Markers", "Topics", "Partitions"}),
}  # fmt: skip
"""Lists that Kafka keeps in maps."""
TIMES = frozenset({"TransactionStartTimeMs", "LastTimestamp", "LogAppendTimeMs"})
SENTENCES = frozenset({"ErrorMessage", "BatchIndexErrorMessage"})


class Producer(NamedTuple):
    """What a transactional client remembers."""

    id: int = -1
    epoch: int = -1


NOBODY = Producer()


@dataclass(slots=True)
class Teller:
    """One run of a story, to one side."""

    side: Side
    link: Link
    name: str
    version: int
    here: int
    """The first of its two partitions."""
    producer: Producer = NOBODY
    sequence: int = 0
    names: dict[int, str] | None = None

    @property
    def id(self) -> str:
        return f"{self.name}-{self.version}"

    @property
    def group(self) -> str:
        return f"{self.name}-{self.version}-group"

    def other(self, id: str = "", producer: Producer | None = None) -> "Teller":
        """A second client, of the same transactional id unless said otherwise, with the same names of producers."""
        name = f"{self.name}{id}"
        return replace(self, name=name, producer=self.producer if producer is None else producer)

    # Requests

    def ask(self, api: str, version: int, message: Mapping[str, Any]) -> Message:
        """Post, hear and record; the answer as it came."""
        self.link.post(api, version, message)
        answer = self.link.hear(api, version, is_of_all=api == "OffsetFetch" and message["Topics"] is None)
        label, heard = self.side.heard[-1]
        self.side.heard[-1] = label, self._comparable(heard, api)
        if "connection" in answer:
            self.link = self.side.connect()
        return answer

    def unheard(self, api: str, version: int, message: Mapping[str, Any]) -> Message:
        with self.side.connect() as link:
            link.post(api, version, message)
            frame = link.read()
            assert isinstance(frame, bytes), frame
            return link.decoded(api, version, frame)

    def init(
        self, timeout_ms: int = MINUTE_MS, producer: Producer | None = None, v: int | None = None, **more: Any
    ) -> Message:
        known = NOBODY if producer is None else producer
        asked = {"TransactionalId": self.id, "TransactionTimeoutMs": timeout_ms, "ProducerId": known.id,
                 "ProducerEpoch": known.epoch, **more}  # fmt: skip
        answer = self.ask("InitProducerId", 4 if v is None else v, asked)
        self._learn(answer)
        self.sequence = 0
        return answer

    def find(self, v: int = 6, *keys: str, key_type: int = 1) -> Message:
        wanted = list(keys) or [self.id]
        asked = {"Key": wanted[0], "KeyType": key_type, "CoordinatorKeys": wanted}
        return self.ask("FindCoordinator", v, asked)

    def add(self, *partitions: int, v: int = 3, topic: str = TOPIC, verify_only: bool = False, **more: Any) -> Message:
        """AddPartitionsToTxn, of the older form or the newer one."""
        topics = [{"Name": topic, "Partitions": list(partitions)}]
        return self.add_topics(topics, v, verify_only, **more)

    def add_topics(self, topics: list[Message], v: int, verify_only: bool = False, **more: Any) -> Message:
        who: Message = {"id": self.id, "producer": self.producer} | more
        producer = who["producer"]
        if v < 4:
            asked = {"V3AndBelowTransactionalId": who["id"], "V3AndBelowProducerId": producer.id,
                     "V3AndBelowProducerEpoch": producer.epoch, "V3AndBelowTopics": topics}  # fmt: skip
        else:
            asked = {"Transactions": [{"TransactionalId": who["id"], "ProducerId": producer.id,
                                       "ProducerEpoch": producer.epoch, "VerifyOnly": verify_only,
                                       "Topics": topics}]}  # fmt: skip
        return self.ask("AddPartitionsToTxn", v, asked)

    def add_offsets(self, v: int = 3, group: str | None = None, **more: Any) -> Message:
        asked = {**self._whose(**more), "GroupId": self.group if group is None else group}
        return self.ask("AddOffsetsToTxn", v, asked)

    def commit_offsets(
        self, offsets: Mapping[int, int], v: int = 3, topic: str = TOPIC, group: str | None = None, **more: Any
    ) -> Message:
        """TxnOffsetCommit of offsets by partition."""
        member = {name: more.pop(name) for name in ("GenerationId", "MemberId", "GroupInstanceId") if name in more}
        partitions = [
            {"PartitionIndex": partition, "CommittedOffset": offset, "CommittedLeaderEpoch": 0,
             "CommittedMetadata": "so far"}
            for partition, offset in offsets.items()
        ]  # fmt: skip
        asked = {**self._whose(**more), "GroupId": self.group if group is None else group, **member,
                 "Topics": [{"Name": topic, "Partitions": partitions}]}  # fmt: skip
        return self.ask("TxnOffsetCommit", v, asked)

    def end(self, is_commit: bool = True, v: int = 4, **more: Any) -> Message:
        answer = self.ask("EndTxn", v, {**self._whose(**more), "Committed": is_commit})
        if v >= NEW_END and not answer.get("ErrorCode", 1):
            self._learn(answer)
        return answer

    def produce(
        self, *values: str, v: int = OLD_PRODUCE, partition: int | None = None, topic: str = TOPIC, acks: int = -1,
        producer: Producer | None = None, sequence: int | None = None, id: str | None = "",
        is_transactional: bool = True, written_ms: int = NOW_MS,
    ) -> Message:  # fmt: skip
        """A batch of the transaction; sequences count up by themselves."""
        who = self.producer if producer is None else producer
        first = self.sequence if sequence is None else sequence
        records = [Record(n, written_ms, b"key", value.encode()) for n, value in enumerate(values)]
        batch = encode_batch(
            records, producer_id=who.id, producer_epoch=who.epoch, base_sequence=first,
            attributes=TRANSACTIONAL if is_transactional else 0,
        )  # fmt: skip
        data = {"Index": self.here if partition is None else partition, "Records": batch}
        topics = [{"Name": topic, "TopicId": self.side.topic_ids.get(topic, bytes(16)), "PartitionData": [data]}]
        asked = {"TransactionalId": self.id if id == "" else id, "Acks": acks, "TimeoutMs": 10_000,
                 "TopicData": topics}  # fmt: skip
        answer = self.ask("Produce", v, asked)
        if "connection" not in answer and not answer["Responses"][0]["PartitionResponses"][0]["ErrorCode"]:
            self.sequence = first + len(values)
        return answer

    def fetch(self, isolation: int = 1, partition: int | None = None, offset: int = 0, v: int = 12) -> Message:
        where = self.here if partition is None else partition
        wanted = {"Partition": where, "CurrentLeaderEpoch": -1, "FetchOffset": offset, "LastFetchedEpoch": -1,
                  "LogStartOffset": -1, "PartitionMaxBytes": 1 << 20}  # fmt: skip
        topics = [{"Topic": TOPIC, "TopicId": self.side.topic_ids[TOPIC], "Partitions": [wanted]}]
        asked = {"ReplicaId": -1, "MaxWaitMs": 0, "MinBytes": 1, "MaxBytes": 1 << 24, "IsolationLevel": isolation,
                 "SessionId": 0, "SessionEpoch": -1, "Topics": topics, "ForgottenTopicsData": [],
                 "RackId": ""}  # fmt: skip
        return self.ask("Fetch", v, asked)

    def list_offsets(
        self, isolation: int = 1, timestamp: int = -1, v: int = 7, partition: int | None = None
    ) -> Message:
        asked = {"PartitionIndex": self.here if partition is None else partition, "CurrentLeaderEpoch": -1,
                 "Timestamp": timestamp}  # fmt: skip
        topics = [{"Name": TOPIC, "Partitions": [asked]}]
        return self.ask("ListOffsets", v, {"ReplicaId": -1, "IsolationLevel": isolation, "Topics": topics})

    def offsets(self, *partitions: int, is_stable: bool = True, v: int = 9, group: str | None = None) -> Message:
        """OffsetFetch; of everything if no partition is named."""
        topics = [{"Name": TOPIC, "PartitionIndexes": list(partitions)}] if partitions else None
        name = self.group if group is None else group
        groups = [{"GroupId": name, "Topics": topics, "MemberId": None, "MemberEpoch": -1}]
        asked = {"GroupId": name, "Topics": topics, "Groups": groups, "RequireStable": is_stable}
        return self.ask("OffsetFetch", v, asked)

    def describe(self, *ids: str) -> Message:
        return self.ask("DescribeTransactions", 0, {"TransactionalIds": list(ids) or [self.id]})

    def listed(self, v: int = 2, **filters: Any) -> Message:
        return self.ask("ListTransactions", v, filters)

    def producers(self, partition: int | None = None, topic: str = TOPIC) -> Message:
        where = self.here if partition is None else partition
        return self.ask("DescribeProducers", 0, {"Topics": [{"Name": topic, "PartitionIndexes": [where]}]})

    def mark(self, is_commit: bool, *partitions: int, v: int = 1, topic: str = TOPIC, **more: Any) -> Message:
        """WriteTxnMarkers, as a coordinator or `kafka-transactions abort` sends it."""
        producer = more.pop("producer", self.producer)
        topics = [{"Name": topic, "PartitionIndexes": list(partitions) or [self.here]}]
        marker = {"ProducerId": producer.id, "ProducerEpoch": producer.epoch, "TransactionResult": is_commit,
                  "Topics": topics, "CoordinatorEpoch": 0, **more}  # fmt: skip
        return self.ask("WriteTxnMarkers", v, {"Markers": [marker]})

    def stalled(self, is_commit: bool = True, v: int = 4) -> Message:
        """Add a partition and end the transaction so that its markers are not all written, ever.

        The partition has heard of a newer epoch, from outside. So the coordinator's marker is refused there, and the
        transaction stays where it is until the broker starts again.
        """
        if v < NEW_END:
            self.add(self.here + 1)
        else:
            self.produce("stalled", v=NEW_PRODUCE, partition=self.here + 1, sequence=0)
        self.mark(False, self.here + 1, producer=self.at_epoch(100))
        answer = self.end(is_commit, v)
        self.until("PrepareCommit" if is_commit else "PrepareAbort")
        return answer

    # Waiting

    def until(self, *states: str, id: str = "") -> None:
        """Wait until the transaction is in one of these states; unheard."""
        name = id or self.id
        asked = {"TransactionalIds": [name]}

        def state() -> str:
            answer = self.unheard("DescribeTransactions", 0, asked)
            return str(answer["TransactionStates"][0]["TransactionState"])

        wait_for(lambda: state() in states, lambda: f"{name} is {state()}, not {states}")

    def unheard_until_led(self, topic: str) -> None:
        asked = {"ReplicaId": -1, "Topics": [{"Name": topic, "Partitions": [{"PartitionIndex": 0, "Timestamp": -1}]}]}
        wait_for(lambda: not self._list_error(asked), lambda: f"{topic} is not led")

    def unheard_until_gone(self, topic: str) -> None:
        asked = {"ReplicaId": -1, "Topics": [{"Name": topic, "Partitions": [{"PartitionIndex": 0, "Timestamp": -1}]}]}
        wait_for(lambda: self._list_error(asked) == 3, lambda: f"{topic} is still there")

    def _list_error(self, asked: Message) -> int:
        return int(self.unheard("ListOffsets", 7, asked)["Topics"][0]["Partitions"][0]["ErrorCode"])

    def ended(self, is_commit: bool = True) -> None:
        self.until("CompleteCommit" if is_commit else "CompleteAbort")

    def at_epoch(self, difference: int) -> Producer:
        return self.producer._replace(epoch=self.producer.epoch + difference)

    def of_id(self, difference: int) -> Producer:
        return self.producer._replace(id=self.producer.id + difference)

    def _whose(self, **more: Any) -> Message:
        who: Message = {"id": self.id, "producer": self.producer} | more
        return {
            "TransactionalId": who["id"],
            "ProducerId": who["producer"].id,
            "ProducerEpoch": who["producer"].epoch,
        }

    def _learn(self, answer: Message) -> None:
        if not answer.get("ErrorCode", 1):
            if answer["ProducerId"] != self.producer.id or answer["ProducerEpoch"] != self.producer.epoch:
                self.sequence = 0
            self.producer = Producer(answer["ProducerId"], answer["ProducerEpoch"])

    # What is compared

    def _comparable(self, value: Any, api: str, field: str = "") -> Any:
        if isinstance(value, Mapping):
            if value.get("AbortedTransactions"):
                value = _without_aborted_beyond(value)
            return {name: self._comparable(one, api, name) for name, one in value.items() if name not in SENTENCES}
        if field == "Records":
            return [self._batch(batch) for batch in iter_batches(value or b"")]
        if isinstance(value, list):
            items = [self._comparable(one, api) for one in value if self._is_ours(one, api)]
            return sorted(items, key=repr) if field in UNORDERED.get(api, ()) else items
        if field == "ProducerId" and value >= 0:
            return self._named(value)
        if field == "SessionId" and value:
            return "a session"
        if field == "Timestamp" and value > NOW_MS:
            return "the time of a marker"
        return "a time" if field in TIMES and value > 0 else value

    def _is_ours(self, one: Any, api: str) -> bool:
        return api != "ListTransactions" or not isinstance(one, Mapping) or one["TransactionalId"].startswith(self.id)

    def _named(self, producer: int) -> str:
        names = self.names
        assert names is not None
        return names.setdefault(producer, f"producer {len(names)}")

    def _batch(self, batch: Any) -> Any:
        header = batch.header
        assert batch.problem is None, batch.problem
        return (
            header.base_offset, header.last_offset, header.attributes, self._named(header.producer_id),
            header.producer_epoch, header.base_sequence, header.leader_epoch,
            [(record.key, record.value, None if header.is_control else record.timestamp_ms)
             for record in batch.records],
        )  # fmt: skip


def _without_aborted_beyond(fetched: Mapping[str, Any]) -> Mapping[str, Any]:
    """Kafka tells of aborted transactions behind what it sends, as far as its index is coarse; nobody meets those."""
    end = fetched["LastStableOffset"]
    return {
        **fetched,
        "AbortedTransactions": [one for one in fetched["AbortedTransactions"] if one["FirstOffset"] < end],
    }


def wait_for(is_so: Callable[[], bool], complaint: Callable[[], str]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, complaint()
        time.sleep(0.01)


Telling = Callable[[Teller], None]


@dataclass(slots=True)
class Story:
    name: str
    tell: Telling
    versions: tuple[int, ...]
    is_slow: bool
    here: int = 0

    def play(self, side: Side) -> None:
        for version in self.versions:
            self.tell(Teller(side, side.connect(), self.name, version, self.here, names={}))


STORIES: dict[str, Story] = {}


def story(versions: Iterable[int] = (0,), is_slow: bool = False) -> Callable[[Telling], Telling]:
    """Put a story on the list, to be played in these versions; a slow one is for `make real`."""

    def put(tell: Telling) -> Telling:
        name = tell.__name__.replace("_", "-")
        assert name not in STORIES, name
        STORIES[name] = Story(name, tell, tuple(versions), is_slow, 2 * len(STORIES))
        return tell

    return put
