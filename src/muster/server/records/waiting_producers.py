"""Producers that wait to hear what became of their batches."""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from muster.codec.error_codes import ErrorCode
from muster.log.partition import DiskLog
from muster.segments.checkpoints import TopicPartition
from muster.server.records.produce import ProduceAnswer, Produced, ProduceRequest


class Pending:
    """A request whose batches are not all decided yet."""

    __slots__ = ("_answer", "_left", "_produced", "request")

    def __init__(self, request: ProduceRequest, answer: Callable[[ProduceAnswer], None]) -> None:
        self.request = request
        self._answer = answer
        self._left = len(request.partitions)
        self._produced: list[Produced | None] = [None] * self._left

    def settle(self, number: int, produced: Produced) -> None:
        assert self._produced[number] is None
        self._produced[number] = produced
        self._left -= 1
        if not self._left:
            self._answer(ProduceAnswer(self.request, tuple(one for one in self._produced if one is not None)))


class MarkerPending:
    """A marker that is on its way; its place is that of a producer."""

    __slots__ = ("_settled",)

    def __init__(self, settled: Callable[[ErrorCode], None]) -> None:
        self._settled = settled

    def settle(self, number: int, produced: Produced) -> None:
        self._settled(produced.error)


class Waiting(NamedTuple):
    """A batch that is in the log, and whose producer is told so when the log has got far enough."""

    end_offset: int
    deadline_ms: float
    pending: Pending | MarkerPending
    number: int
    produced: Produced


class DataLog:
    """One log, with the answers that wait for it."""

    __slots__ = ("is_dirty", "key", "log", "readable_to", "waits_for_disk", "waits_for_write")

    def __init__(self, key: TopicPartition, log: DiskLog) -> None:
        self.key = key
        self.log = log
        self.waits_for_write: deque[Waiting] = deque()
        self.waits_for_disk: deque[Waiting] = deque()
        self.is_dirty = False
        """Whether something was appended in this turn."""
        self.readable_to = log.high_watermark
        """As far as readers were told."""
