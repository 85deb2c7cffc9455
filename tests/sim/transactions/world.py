"""A transaction coordinator's whole surroundings from one seed: producers, data and offsets partitions, bad days.

The world is the shell, in the order that the shell keeps (decision 0017): a write is appended before the next event; an
answer and a `WriteMarkers` wait until the log of transactions is flushed up to them; `MarkersWritten` comes when every
marker is flushed. In between anything may happen: partitions get their markers one by one, answers are lost, power cuts
leave of every log what was flushed and perhaps a little more, the partition of the coordinator moves, the log refuses.

A batch of the newer flow is appended when its partition was added, safely, and unless its producer is fenced in that
log by then; one of the older flow in the same turn in which it is verified.
"""

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

from muster.codec.error_codes import ErrorCode
from muster.codec.offsets_topic import OffsetValue
from muster.codec.partition_state import encode_commit
from muster.core.coordinator import Coordinator
from muster.core.events import CommittedPartition, EndTransaction, Instant, TxnOffsetCommit
from muster.core.groups import DecidedCommit
from muster.core.outcome import CommitWrite, Outcome
from muster.core.transactions.config import TransactionConfig
from muster.core.transactions.coordinator import TransactionCoordinator
from muster.core.transactions.events import (
    LAST_EPOCH,
    AbortTimedOut,
    AddPartitions,
    Asker,
    DescribeTransaction,
    EndTxn,
    Event,
    ExpireTransactionalIds,
    InitProducerId,
    ListTransactions,
    MarkersWritten,
)
from muster.core.transactions.states import AT_REST, PREPARED
from muster.core.transactions.transactions import BUMPS_AT_END, Transaction
from muster.core.transactions.writes import WriteMarkers
from tests.sim.transactions.checkers import Checkers
from tests.sim.transactions.logs import DATA, OFFSETS, Batch, Marker, MarkerTask, SimLog, Waiting
from tests.sim.transactions.producers import ADD, END, INIT, WRITE, Producer, Sent

START_WALL_MS = 1_700_000_000_000
TIMEOUT_MS = 20_000
LAST_STEPS = 40
LOG_OFFSET_BYTES = 8
REFUSALS = (
    ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.MESSAGE_TOO_LARGE,
)  # fmt: skip


class TransactionSim:
    """One seed's world. `run` plays it; whatever goes wrong in it raises."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(seed)
        self.config = TransactionConfig(transactional_id_expiration_ms=rng.choice((60_000, 10**9)))
        ids = ["t", "u"][: rng.choice((1, 2))]
        # Producers of one id are of one flow: else Kafka takes the end of one for the repeated end of another.
        is_newer = {transactional_id: rng.random() < 0.6 for transactional_id in ids}
        chosen = [*ids, *rng.choices(ids, k=rng.choice((0, 0, 0, 1, 2)))]
        self.producers = [Producer(f"p{number}", each, is_newer[each], rng) for number, each in enumerate(chosen)]
        self.wall_ms = START_WALL_MS
        self.transcript: deque[str] = deque(maxlen=LAST_STEPS)
        self.log = SimLog()
        self.partitions = {partition: SimLog() for partition in (*DATA, OFFSETS)}
        self.network: list[Sent] = []
        self.waiting: list[Waiting] = []
        self.tasks: list[MarkerTask] = []
        self.told: list[MarkersWritten] = []
        self.refuse_next: ErrorCode | None = None
        self.last_id = 1000
        self._values = 0
        self.is_calm = False
        self.checkers = Checkers(self)
        for transactional_id in ids:
            if rng.random() < 0.3:  # its epochs are nearly used up
                old = Transaction.new(transactional_id, self.fresh_id(), TIMEOUT_MS, self.wall_ms)
                record = old.record._replace(producer_epoch=LAST_EPOCH - rng.randint(1, 8))
                self.log.append(Transaction(transactional_id, record).encoded)
        self.log.flush()
        self._load()

    # Playing.

    def run(self, steps: int) -> None:
        for _ in range(steps):
            choices, weights = zip(*self._STEPS, strict=True)
            self.rng.choices(choices, weights)[0](self)
            self.checkers.check()
        self.settle()

    def go_on_quietly(self) -> None:
        """One step of a day without faults."""
        self.rng.choice((self.producer_acts, self.receive, self.write_marker, self.flush_log, self.flush_partition))()
        self.checkers.check()

    def settle(self) -> None:
        """No more faults: every producer commits once more, then every transaction comes to its end."""
        self.note("no more faults")
        self.is_calm, self.refuse_next = True, None
        commits = {producer.name: producer.commits for producer in self.producers}
        for producer in self.producers:
            for _ in range(400):
                self._calm_step([producer])
                if producer.commits > commits[producer.name]:
                    break
            assert producer.commits > commits[producer.name], f"{producer.name} cannot commit"
        for _ in range(20):
            self.wall_ms += TIMEOUT_MS
            self.tick()
            self._calm_step([])
        assert all(each.state in AT_REST for each in self.coordinator.transactions.values())
        assert not self.tasks
        self.checkers.check_the_end()

    def _calm_step(self, producers: list[Producer]) -> None:
        for producer in producers:
            if producer.waits_for is None:
                self.send(producer.next_request(self.next_value()))
            elif producer.waits_for not in self.network:
                self._lose_patience(producer)
        while self.network:
            self._receive(self.network.pop(0))
        for _ in range(6):
            self.flush_all()
            while any(task.unwritten for task in self.tasks):
                self.write_marker()
        self.checkers.check()

    # What can happen.

    def producer_acts(self) -> None:
        idle = [producer for producer in self.producers if producer.waits_for is None]
        producer = self.rng.choice(idle or self.producers)
        if producer.waits_for is None:
            self.send(producer.next_request(self.next_value()))
            if self.rng.random() < 0.5:  # it is quick
                self.receive()
                self.flush_log()
        elif self.rng.random() < (0.5 if producer.waits_for.is_slow else 0.04):
            self._lose_patience(producer)

    def _lose_patience(self, producer: Producer) -> None:
        self.note(f"{producer.name} waits no longer for {producer.waits_for}")
        sent = producer.loses_patience()
        if sent is not None:
            self.send(sent)

    def producer_restarts(self) -> None:
        producer = self.rng.choice(self.producers)
        self.note(f"{producer.name} is restarted")
        producer.restart()

    def receive(self) -> None:
        """One request reaches the server: those of a producer in their order, all but writes that it has given up."""
        if self.network:
            chosen = self.rng.choice(self.network)
            if chosen.is_slow and not (_is_given_up(chosen) and self.rng.random() < 0.25):
                return
            if not _is_given_up(chosen) and not (chosen.producer.is_newer and self.rng.random() < 0.3):
                who = chosen.producer, chosen.life
                of_its = [sent for sent in self.network if (sent.producer, sent.life) == who and not _is_given_up(sent)]
                chosen = of_its[0]
            self.network.remove(chosen)
            self._receive(chosen)

    def request_is_lost(self) -> None:
        if self.network:
            self.network.pop(self.rng.randrange(len(self.network)))

    def write_marker(self) -> None:
        """One partition gets its marker. Where the transaction has ended before, it needs none."""
        tasks = [task for task in self.tasks if task.unwritten]
        if not tasks:
            return
        task = self.rng.choice(tasks)
        partition = task.unwritten.pop(self.rng.randrange(len(task.unwritten)))
        markers, log = task.markers, self.partitions[partition]
        is_newer = markers.producer_epoch > log.epochs.get(markers.producer_id, -1)
        if is_newer or log.is_open(markers.producer_id) or self.rng.random() < 0.5:
            self.checkers.marker_is_due(markers)
            self.note(f"marker of {markers.transactional_id} in {partition}: {markers.commit}")
            log.append(Marker(markers.producer_id, markers.producer_epoch, markers.commit))
            if partition == OFFSETS:
                ended = EndTransaction(markers.producer_id, markers.producer_epoch, markers.commit)
                self.groups.handle(ended, self.now, Outcome())
        task.ends[partition] = log.end

    def flush_log(self) -> None:
        self.log.flush()
        self._follow()

    def flush_partition(self) -> None:
        self.partitions[self.rng.choice((*DATA, OFFSETS))].flush()
        self._follow()

    def flush_partitions(self) -> None:
        for log in self.partitions.values():
            log.flush()
        self._follow()

    def flush_all(self) -> None:
        self.log.flush()
        for log in self.partitions.values():
            log.flush()
        self._follow()

    def tick(self) -> None:
        """The clock's work."""
        for transactional_id in self.coordinator.timed_out(self.now):
            self.handle(AbortTimedOut(transactional_id, self.fresh_id()))
        if self.rng.random() < 0.2:
            self.handle(ExpireTransactionalIds())

    def time_passes(self) -> None:
        self.wall_ms += self.rng.choice((10, 1_000, 5_000, TIMEOUT_MS, 70_000))
        self.tick()

    def late_news(self) -> None:
        """Markers of the newer flow are told to be written that were so before."""
        late = [news for news in self.told if not self._is_under_way(news)]
        if late:
            self.handle(self.rng.choice(late))

    def _is_under_way(self, news: MarkersWritten) -> bool:
        """Whether the log has refused the record that this end is complete: its markers are asked for again."""
        transaction = self.coordinator.transactions.get(news.transactional_id)
        if transaction is None or transaction.state not in PREPARED:
            return False
        return (news.producer_id, news.producer_epoch) == (transaction.producer_id, transaction.producer_epoch)

    def early_abort(self) -> None:
        """A look at a transaction that is not due, or not there."""
        self.handle(AbortTimedOut(self.rng.choice(("t", "u", "v")), self.fresh_id()))

    def look(self) -> None:
        self.handle(self.rng.choice((ListTransactions(None), DescribeTransaction(None, "t"))))

    def refuse(self) -> None:
        self.refuse_next = self.rng.choice(REFUSALS)

    def power_cut(self) -> None:
        self.note("power cut")
        for log in (self.log, *self.partitions.values()):
            log.power_cut(self.rng)
        self.network.clear()
        self._load()

    def move(self) -> None:
        """The coordinator's partition is given up and loaded again: nothing is lost, and nobody gets an answer."""
        self.note("the partition moves")
        self.coordinator.unload(Outcome())
        self.log.flush()
        self._load()

    _STEPS: tuple[tuple[Callable[["TransactionSim"], None], float], ...] = (
        (producer_acts, 40), (receive, 25), (write_marker, 20), (flush_log, 18), (flush_partition, 10),
        (flush_partitions, 8), (producer_restarts, 0.3), (request_is_lost, 0.5), (time_passes, 1), (early_abort, 0.3),
        (late_news, 0.5), (look, 0.3), (refuse, 0.8), (power_cut, 0.7), (move, 0.4),
    )  # fmt: skip

    # The server.

    @property
    def now(self) -> Instant:
        return Instant(0, self.wall_ms)

    def note(self, line: str) -> None:
        self.transcript.append(line)

    def fresh_id(self) -> int:
        self.last_id += 1
        return self.last_id

    def next_value(self) -> int:
        self._values += 1
        return self._values

    def send(self, sent: Sent) -> None:
        sent.is_slow = sent.kind == WRITE and not self.is_calm and self.rng.random() < 0.1
        self.network.append(sent)

    def _receive(self, sent: Sent) -> None:
        self.note(f"{sent}")
        transactional_id, known = sent.producer.transactional_id, (sent.producer_id, sent.producer_epoch)
        partitions = (sent.partition,)
        match sent.kind, sent.producer.is_newer:
            case (str(kind), _) if kind == INIT:
                old = known if sent.is_known else (-1, -1)
                self.handle(InitProducerId(sent, transactional_id, TIMEOUT_MS, self.fresh_id(), *old))
            case (str(kind), _) if kind == ADD:
                asker = Asker.ADD_OFFSETS if sent.partition == OFFSETS else Asker.ADD_PARTITIONS
                self.handle(AddPartitions(sent, transactional_id, *known, (*sent.others, *partitions), asker, 3))
            case (str(kind), True) if kind == WRITE:
                self.handle(AddPartitions(sent, transactional_id, *known, partitions, Asker.PRODUCE, 12))
            case (str(kind), False) if kind == WRITE:
                self._verify(sent)
            case (str(kind), is_newer):
                assert kind == END
                version = 5 if is_newer else 3
                self.handle(EndTxn(sent, transactional_id, *known, sent.commit, version, self.fresh_id()))

    def _verify(self, sent: Sent) -> None:
        """A batch of the older flow: looked up and appended in one turn."""
        event = AddPartitions(
            sent, sent.producer.transactional_id, sent.producer_id, sent.producer_epoch, (sent.partition,),
            Asker.PRODUCE, 9, verify_only=True,
        )  # fmt: skip
        out = Outcome()
        self.coordinator.handle(event, self.now, out)
        assert not out.writes
        ((_, answer),) = out.replies
        self._write(sent, answer.error)

    def _write(self, sent: Sent, error: ErrorCode) -> None:
        """A batch whose partition belongs to the transaction, as the coordinator says if there is no error."""
        log = self.partitions[sent.partition]
        if error is ErrorCode.NONE and log.is_fenced(sent.producer_id, sent.producer_epoch):
            error = ErrorCode.INVALID_PRODUCER_EPOCH
        if error is not ErrorCode.NONE:
            self._answer(sent, error)
            return
        if sent.value in log.values:
            self.waiting.append(Waiting(log, log.end, lambda: self._answer(sent, ErrorCode.NONE)))
            return
        self.checkers.batch_is_written(sent)
        assert sent.intent is not None
        end = log.append(Batch(sent.producer_id, sent.producer_epoch, sent.intent, sent.value))
        if sent.partition == OFFSETS:
            self._commit_offset(sent, end - 1)
        self.waiting.append(Waiting(log, end, lambda: self._answer(sent, ErrorCode.NONE)))

    def _commit_offset(self, sent: Sent, place: int) -> None:
        out = Outcome()
        commit = CommittedPartition("orders", 0, sent.value)
        self.groups.handle(TxnOffsetCommit(sent, "g", sent.producer_id, sent.producer_epoch, (commit,)), self.now, out)
        (write,) = out.writes
        assert isinstance(write, CommitWrite)
        self.groups.appended(write, place, out)

    def handle(self, event: Event) -> None:
        """Let the coordinator decide, and carry it out."""
        said, out = self.coordinator.hard_state(), Outcome()
        self.coordinator.handle(event, self.now, out)
        assert self.coordinator.hard_state() == said, "a decision has changed what only the log may change"
        self._carry_out(out)

    def _carry_out(self, out: Outcome) -> None:
        for write in out.writes:
            if self.refuse_next is not None:
                error, self.refuse_next = self.refuse_next, None
                self.note(f"    the log refuses {write.decision}: {error!r}")  # type: ignore[union-attr]
                self.coordinator.refused(write, error, out)
                continue
            base_offset = self.log.end
            for record in write.records:
                self.log.append(record)
                self.shadow.replay(record, self.log.end - 1)
            self.coordinator.appended(write, base_offset, out)
        for sent, answer in out.replies:
            if isinstance(sent, Sent):
                self.waiting.append(Waiting(self.log, self.log.end, lambda s=sent, a=answer: self._answered(s, a)))  # type: ignore[misc]
        for markers in out.markers:
            self.waiting.append(Waiting(self.log, self.log.end, lambda m=markers: self._begin_markers(m)))  # type: ignore[misc]

    def _begin_markers(self, markers: WriteMarkers) -> None:
        self.tasks.append(MarkerTask(markers, list(markers.partitions)))

    def _follow(self) -> None:
        """What waited for a flush follows, in its order; then ends whose markers are all safe."""
        due = [each for each in self.waiting if each.log.flushed >= each.end]
        self.waiting = [each for each in self.waiting if each.log.flushed < each.end]
        for each in due:
            each.follow()
        for task in list(self.tasks):
            is_safe = all(self.partitions[partition].flushed >= end for partition, end in task.ends.items())
            if not task.unwritten and is_safe:
                self.tasks.remove(task)
                markers = task.markers
                news = MarkersWritten(markers.transactional_id, markers.producer_id, markers.producer_epoch)
                self.told += [news] * (markers.transaction_version >= BUMPS_AT_END)
                self.handle(news)

    def _answered(self, sent: Sent, answer: Any) -> None:
        """The log is safe up to this answer of the coordinator."""
        if sent.kind == WRITE:
            self._write(sent, answer.error)
        elif sent.kind == ADD:
            self._answer(sent, answer.error)
        else:
            self._answer(sent, *answer)

    def _answer(self, sent: Sent, error: ErrorCode, producer_id: int = -1, producer_epoch: int = -1) -> None:
        is_heard = sent.producer.life == sent.life and sent.producer.waits_for is sent
        if not is_heard or (not self.is_calm and self.rng.random() < 0.04):
            return
        self.note(f"    {sent.producer.name} <- {error.name} {producer_id}/{producer_epoch}")
        self.checkers.answer_is_heard(sent, error, producer_id, producer_epoch)
        sent.producer.hear(sent, error, producer_id, producer_epoch)

    # Loading.

    def _load(self) -> None:
        """New coordinators read their logs; beside that of transactions one that only ever reads."""
        self.waiting.clear()
        self.tasks.clear()
        self.refuse_next = None
        self.coordinator, self.shadow = TransactionCoordinator(self.config), TransactionCoordinator(self.config)
        for place, record in enumerate(self.log.entries):
            self.coordinator.replay(record, place)
            self.shadow.replay(record, place)
        self.groups = Coordinator()
        for place, entry in enumerate(self.partitions[OFFSETS].entries):
            if isinstance(entry, Marker):
                self.groups.table.replay_marker(entry.producer_id, entry.commit)
            else:
                self.groups.table.replay_commits("g", [_offset(entry)], place, entry.producer_id)
        out = Outcome()
        self.coordinator.activate(self.now, out)
        self._carry_out(out)


def _is_given_up(sent: Sent) -> bool:
    return sent.kind == WRITE and sent.producer.waits_for is not sent


def _offset(batch: Batch) -> DecidedCommit:
    """What the record of an offset means, all but its place in the log."""
    return ("orders", 0), encode_commit(0, OffsetValue(batch.value))[LOG_OFFSET_BYTES:]
