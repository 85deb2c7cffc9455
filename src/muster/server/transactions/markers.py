"""`Markers`: carries out the end of a transaction, which its coordinator has decided and its log has safely.

One marker goes into each partition that takes part: into logs of data topics, and into those of the offsets topic,
whose coordinator then lets the offsets count, or forgets them. Each is safe when its log is, as `muster.flush` means
it. When all are, the coordinator hears `MarkersWritten`, and writes that the transaction is complete.

A partition that cannot take its marker now (its disk has failed, it is being opened again, loaded or deleted) is tried
again after a pause, until it can or is gone. If the coordinator is let go meanwhile, all of it is dropped: the next
load finds the decision in the log and asks again. A marker that is asked for again is not written where nothing of its
producer is open, since that is how a log looks behind it.

A partition may have heard of a later epoch of the producer, in a marker or a batch that another client has written. The
end of a transaction that is decided now stays undone then, as in Kafka, and the log says so: the next load finds that
nothing is open there.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from muster.codec.error_codes import ErrorCode
from muster.codec.transaction_log import TopicPartition as Partition
from muster.core.events import EndTransaction
from muster.core.transactions.coordinator import TransactionCoordinator
from muster.core.transactions.events import MarkersWritten
from muster.core.transactions.writes import WriteMarkers
from muster.log.validation import AppendRefused
from muster.segments.checkpoints import TopicPartition
from muster.server.cluster.topics import OFFSETS_TOPIC, Topics
from muster.server.led_partitions import LedGroups, LedTransaction, LedTransactions
from muster.server.records.data_partitions import DataPartitions
from muster.server.server_log import ABORTED, COMMITTED, RateLimitedLog, Stats
from muster.server.transactions.ends import Ends
from muster.server.transactions.steps import Step, Steps
from muster.server.transactions.timeouts import LONGEST_ID

RETRY_S = 0.1
_IS_OVER = frozenset({ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
Settled = Callable[[ErrorCode], None]


@dataclass(slots=True, eq=False)
class _End:
    """The end of one transaction, under way."""

    led: LedTransaction
    coordinator: TransactionCoordinator | None
    markers: WriteMarkers
    is_repeated: bool
    left: dict[Partition, None] = field(default_factory=dict)
    """Partitions whose marker is not safe yet."""

    @property
    def is_wanted(self) -> bool:
        return self.coordinator is not None and self.led.coordinator is self.coordinator


class Markers:
    """Everything here runs in the thread of the event loop."""

    def __init__(
        self,
        data: DataPartitions,
        groups: LedGroups,
        transactions: LedTransactions,
        ends: Ends,
        topics: Topics,
        steps: Steps,
        refused: RateLimitedLog,
        stats: Stats,
    ) -> None:
        self._data = data
        self._groups = groups
        self._transactions = transactions
        self._ends = ends
        self._topics = topics
        self._steps = steps
        self._refused = refused
        self._stats = stats
        self._loop = asyncio.get_running_loop()
        self._under_way = 0
        self._try_again: list[tuple[_End, Partition]] = []
        self._alarm: asyncio.TimerHandle | None = None
        self._completing: WriteMarkers | None = None

    @property
    def is_at_rest(self) -> bool:
        """Whether no marker is on its way to a disk; some may wait for a partition that cannot take theirs."""
        return not self._under_way

    def __len__(self) -> int:
        """How many are not safe yet."""
        return self._under_way + len(self._try_again)

    def write(self, led: LedTransaction, markers: WriteMarkers, is_repeated: bool) -> None:
        """The decision is safe: write all markers, perhaps `is_repeated`ly."""
        if markers == self._completing:  # the log has refused that it is complete, and may do so again
            self._loop.call_later(RETRY_S, self._begin, led, led.coordinator, markers, True)
        else:
            self._begin(led, led.coordinator, markers, is_repeated)

    def _begin(
        self, led: LedTransaction, coordinator: TransactionCoordinator | None, markers: WriteMarkers, is_repeated: bool
    ) -> None:
        end = _End(led, coordinator, markers, is_repeated, dict.fromkeys(markers.partitions))
        if not end.is_wanted:
            return
        self._steps.reached(Step.PREPARED)
        if not end.left:
            self._loop.call_soon(self._all_are_safe, end)
        is_cut_short = self._steps.is_ordered(Step.FIRST_MARKER)
        for partition in list(end.left)[: 1 if is_cut_short else None]:
            self._write_one(end, partition)

    def _write_one(self, end: _End, partition: Partition) -> None:
        self._under_way += 1
        self.write_one(partition, end.markers, end.is_repeated, partial(self._settled, end, partition))

    def write_one(self, partition: Partition, markers: WriteMarkers, is_repeated: bool, settled: Settled) -> None:
        """Write one marker; `settled` hears, perhaps at once, that it is safe or why it is not there."""
        name, number = partition
        topic = self._topics.get(name)
        if topic is None or not 0 <= number < topic.partitions:
            settled(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif name == OFFSETS_TOPIC:
            self._write_to_groups(number, markers, is_repeated, settled)
        else:
            self._data.end_transaction(TopicPartition(name, number), markers, is_repeated, settled)

    def _write_to_groups(self, number: int, markers: WriteMarkers, is_repeated: bool, settled: Settled) -> None:
        led = self._groups.by_number.get(number)
        if led is None or led.coordinator is None:
            settled(ErrorCode.NOT_COORDINATOR)
            return
        try:
            self._groups.append_marker(led, markers, is_repeated=is_repeated)
        except AppendRefused as refused:
            settled(refused.error)
            return
        self._groups.apply(led, EndTransaction(markers.producer_id, markers.producer_epoch, markers.commit))
        self._groups.when_safe(led, partial(settled, ErrorCode.NONE), partial(settled, ErrorCode.NOT_COORDINATOR))

    def _settled(self, end: _End, partition: Partition, error: ErrorCode) -> None:
        self._under_way -= 1
        if not end.is_wanted:
            return
        if error is ErrorCode.INVALID_PRODUCER_EPOCH and not end.is_repeated:
            self._say_refused(end.markers, partition)
            return
        if error not in _IS_OVER and error is not ErrorCode.INVALID_PRODUCER_EPOCH:
            end.is_repeated = True
            self._try_again.append((end, partition))
            if self._alarm is None:
                self._alarm = self._loop.call_later(RETRY_S, self._go_on)
            return
        end.left.pop(partition, None)
        self._steps.reached(Step.FIRST_MARKER)
        if not end.left:
            self._loop.call_soon(self._all_are_safe, end)

    def _say_refused(self, markers: WriteMarkers, partition: Partition) -> None:
        shown_id, (topic, number) = markers.transactional_id[:LONGEST_ID], partition
        self._refused.say(
            f"transactional id {shown_id!r}: {topic}-{number} refuses the marker of its end, because somebody has "
            "written there with a later epoch of its producer. It stays as it is until the server starts again",
            transactional_id=shown_id,
        )

    def _go_on(self) -> None:
        self._alarm = None
        again, self._try_again = self._try_again, []
        for end, partition in again:
            if end.is_wanted:
                self._write_one(end, partition)

    def _all_are_safe(self, end: _End) -> None:
        if not end.is_wanted:
            return
        self._steps.reached(Step.MARKERS)
        markers = end.markers
        self._completing = markers
        self._transactions.apply(
            end.led, MarkersWritten(markers.transactional_id, markers.producer_id, markers.producer_epoch)
        )
        self._completing = None
        self._stats.ended_transactions[COMMITTED if markers.commit else ABORTED] += 1
        self._ends.is_over(markers.transactional_id)
        if self._steps.is_ordered(Step.COMPLETED):
            self._transactions.when_safe(end.led, partial(self._steps.reached, Step.COMPLETED), lambda: None)

    def stop(self) -> None:
        """Nothing is tried again any more."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._try_again.clear()
