"""What a transaction coordinator asks of the shell besides answers: records to append, and markers to write."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from muster.codec.transaction_log import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from muster.core.transactions.events import Request


class WriteMarkers(NamedTuple):
    """Markers that a decision in the log asks for: one in each partition, when all that was appended before is safe.

    When all of them are safe the shell says `MarkersWritten`. A partition where this transaction has ended before needs
    none, nor does one that was deleted. With no partitions at all that news may come at once.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    partitions: tuple[TopicPartition, ...]
    transaction_version: int


class Changed(NamedTuple):
    """A transaction has another record; then the request for it is answered, and a decided end gets its markers."""

    transactional_id: str
    last_epoch: int
    """The epoch before, with which the producer may ask for the same once more; -1 if it may not."""
    event: Request | None = None
    answer: Any = None


class Expired(NamedTuple):
    """Transactional ids are forgotten. Half of the tombstones do no harm without the rest."""


@dataclass(slots=True)
class TransactionWrite:
    """Records to append as one, and the decision that they are the record of."""

    records: list[tuple[bytes, bytes | None]]
    decision: Changed | Expired
    producer_id: ClassVar[int] = NO_PRODUCER_ID
    producer_epoch: ClassVar[int] = NO_PRODUCER_EPOCH

    @property
    def event(self) -> Request | None:
        """The request that is answered when this is taken or refused, if that is so."""
        return self.decision.event if isinstance(self.decision, Changed) else None
