"""A transaction coordinator with a log that is a list, a made-up clock, and markers that wait for the test.

    world = TransactionWorld()
    world.init()                       the answer
    world.add(); world.end(commit=True)
    world.write_markers()

Producer id and epoch are those of the last answer, unless given. After everything that happens, the log alone explains
the state.
"""

from typing import Any

from muster.codec.error_codes import ErrorCode
from muster.codec.transaction_log import TopicPartition, TransactionValue, decode_transaction_value
from muster.core.events import Instant
from muster.core.outcome import Outcome
from muster.core.transactions.config import TransactionConfig
from muster.core.transactions.coordinator import TransactionCoordinator
from muster.core.transactions.events import (
    AbortTimedOut,
    AddAnswer,
    AddPartitions,
    Asker,
    DescribedTransaction,
    DescribeTransaction,
    EndAnswer,
    EndTxn,
    Event,
    InitAnswer,
    InitProducerId,
    MarkersWritten,
)
from muster.core.transactions.states import TransactionState
from muster.core.transactions.writes import WriteMarkers

START_MS = 1_700_000_000_000
TIMEOUT_MS = 60_000
FIRST_FRESH_ID = 1000
COORDINATOR_EPOCH = 5
OLD, NEW = 4, 5
"""Versions of EndTxn: the last that keeps the epoch, the first that bumps it."""
A0: TopicPartition = ("a", 0)
A1: TopicPartition = ("a", 1)
NO_ANSWER = object()


class TransactionWorld:
    def __init__(self, **settings: Any) -> None:
        self.config = TransactionConfig(**settings)
        self.coordinator = TransactionCoordinator(self.config, COORDINATOR_EPOCH)
        self.wall_ms = START_MS
        self.log: list[tuple[bytes, bytes | None]] = []
        self.markers: list[WriteMarkers] = []
        self.refuse_with: ErrorCode | None = None
        self.last_fresh_id = FIRST_FRESH_ID - 1
        self.producer_id, self.producer_epoch = -1, -1

    # What happens.

    def ask(self, event: Event) -> Any:
        """Let it happen; the answer, if it is a request."""
        out = Outcome()
        self.coordinator.handle(event, Instant(0, self.wall_ms), out)
        self._carry_out(out)
        assert len(out.replies) <= 1
        return out.replies[0][1] if out.replies else NO_ANSWER

    def _carry_out(self, out: Outcome) -> None:
        for write in out.writes:
            if self.refuse_with is not None:
                refused, self.refuse_with = self.refuse_with, None
                self.coordinator.refused(write, refused, out)
                continue
            base_offset = len(self.log)
            self.log += write.records
            self.coordinator.appended(write, base_offset, out)
        self.markers += out.markers
        assert self.replayed().hard_state() == self.coordinator.hard_state()

    def replayed(self) -> TransactionCoordinator:
        """What a load of the log gives."""
        other = TransactionCoordinator(self.config, COORDINATOR_EPOCH)
        for log_offset, record in enumerate(self.log):
            other.replay(record, log_offset)
        return other

    def crash(self) -> None:
        """Everything but the log is lost."""
        self.coordinator = self.replayed()
        self.markers.clear()
        out = Outcome()
        self.coordinator.activate(Instant(0, self.wall_ms), out)
        self._carry_out(out)

    def fresh(self) -> int:
        self.last_fresh_id += 1
        return self.last_fresh_id

    def init(self, transactional_id: str = "t", *, as_known: bool = False, **fields: Any) -> InitAnswer:
        """`as_known` says which producer it is, as one that goes on after an error."""
        if as_known:
            fields = {"producer_id": self.producer_id, "producer_epoch": self.producer_epoch} | fields
        fields = {"timeout_ms": TIMEOUT_MS, "fresh_producer_id": self.fresh()} | fields
        answer: InitAnswer = self.ask(InitProducerId("client", transactional_id, **fields))
        if answer.error is ErrorCode.NONE:
            _, self.producer_id, self.producer_epoch = answer
        return answer

    def add(self, *partitions: TopicPartition, **fields: Any) -> AddAnswer:
        fields = {"asker": Asker.ADD_PARTITIONS, "version": 3} | fields
        event = AddPartitions(
            "client",
            fields.pop("transactional_id", "t"),
            fields.pop("producer_id", self.producer_id),
            fields.pop("producer_epoch", self.producer_epoch),
            partitions or (A0,),
            **fields,
        )
        answer: AddAnswer = self.ask(event)
        return answer

    def end(self, commit: bool = True, version: int = OLD, **fields: Any) -> EndAnswer:
        event = EndTxn(
            "client",
            fields.pop("transactional_id", "t"),
            fields.pop("producer_id", self.producer_id),
            fields.pop("producer_epoch", self.producer_epoch),
            commit,
            version,
            self.fresh(),
        )
        answer: EndAnswer = self.ask(event)
        if answer.error is ErrorCode.NONE and answer.producer_id != -1:
            _, self.producer_id, self.producer_epoch = answer
        return answer

    def write_markers(self) -> list[WriteMarkers]:
        """All that were asked for are safe."""
        written, self.markers = self.markers, []
        for markers in written:
            self.ask(MarkersWritten(markers.transactional_id, markers.producer_id, markers.producer_epoch))
        return written

    def abort_timed_out(self) -> list[str]:
        due = self.coordinator.timed_out(Instant(0, self.wall_ms))
        for transactional_id in due:
            self.ask(AbortTimedOut(transactional_id, self.fresh()))
        return due

    def pass_ms(self, duration_ms: int) -> None:
        self.wall_ms += duration_ms

    # What there is.

    def state(self, transactional_id: str = "t") -> TransactionState:
        return self.coordinator.transactions[transactional_id].state

    def record(self, transactional_id: str = "t") -> TransactionValue:
        return self.coordinator.transactions[transactional_id].record

    def last_record(self) -> TransactionValue:
        """The last one in the log, from its bytes."""
        value = self.log[-1][1]
        assert value is not None
        return decode_transaction_value(value)[1]

    def described(self, transactional_id: str = "t") -> DescribedTransaction:
        answer: DescribedTransaction = self.ask(DescribeTransaction("client", transactional_id))
        return answer

    # Whole stories.

    def in_state(self, state: TransactionState, version: int = NEW) -> None:
        """A transactional id that is in this state, reached as a client reaches it."""
        self.init()
        if state is TransactionState.EMPTY:
            return
        self.add()
        if state is TransactionState.ONGOING:
            return
        self.end(state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT), version)
        if state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT):
            self.write_markers()
        assert self.state() is state

    def with_epoch(self, epoch: int, state: TransactionState = TransactionState.EMPTY) -> None:
        """As if the producer id had been used for long: the log says so."""
        self.in_state(state)
        key, _ = self.log[-1]
        changed = self.coordinator.transactions["t"]
        record = changed.record._replace(producer_epoch=epoch)
        self.log.append((key, type(changed)("t", record).encoded[1]))
        self.crash()
        self.producer_epoch = epoch
