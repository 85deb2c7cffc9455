"""Logs of a simulated disk: what is written runs ahead of what is flushed, and a power cut takes some of the rest."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

from muster.codec.transaction_log import TopicPartition
from muster.core.transactions.writes import WriteMarkers

OFFSETS: TopicPartition = ("__consumer_offsets", 0)
DATA: tuple[TopicPartition, ...] = (("orders", 0), ("orders", 1), ("clicks", 0))


class Intent(NamedTuple):
    """A transaction as its producer means it: the number makes it one of a kind."""

    producer: str
    number: int


class Batch(NamedTuple):
    """Something written in a transaction: a record of a data partition, or an offset of a group."""

    producer_id: int
    producer_epoch: int
    intent: Intent
    value: int


class Marker(NamedTuple):
    producer_id: int
    producer_epoch: int
    commit: bool


@dataclass(slots=True)
class SimLog:
    """One log. `epochs` are those of the producers in it, as a broker keeps them for each log."""

    entries: list[Any] = field(default_factory=list)
    flushed: int = 0
    epochs: dict[int, int] = field(default_factory=dict)
    values: set[int] = field(default_factory=set)
    """What was written: a batch that is sent twice is taken once, by its sequence number in a real log."""

    @property
    def end(self) -> int:
        return len(self.entries)

    def append(self, entry: Any) -> int:
        """Returns where the log ends then."""
        self.entries.append(entry)
        self._know(entry)
        return self.end

    def _know(self, entry: Any) -> None:
        if isinstance(entry, Batch | Marker):
            known = self.epochs.get(entry.producer_id, -1)
            assert entry.producer_epoch >= known or isinstance(entry, Marker)
            self.epochs[entry.producer_id] = max(known, entry.producer_epoch)
        if isinstance(entry, Batch):
            self.values.add(entry.value)

    def is_fenced(self, producer_id: int, producer_epoch: int) -> bool:
        return producer_epoch < self.epochs.get(producer_id, -1)

    def is_open(self, producer_id: int) -> bool:
        """Whether a transaction of this producer has begun here and not ended."""
        for entry in reversed(self.entries):
            if isinstance(entry, Batch | Marker) and entry.producer_id == producer_id:
                return isinstance(entry, Batch)
        return False

    def flush(self) -> None:
        self.flushed = self.end

    def power_cut(self, rng: Random) -> None:
        """What was flushed is there, and perhaps a part of what was not."""
        del self.entries[rng.randint(self.flushed, self.end) :]
        self.flushed = self.end
        self.epochs.clear()
        self.values.clear()
        for entry in self.entries:
            self._know(entry)


def fates(log: SimLog) -> Iterator[tuple[Batch, bool | None]]:
    """Every batch, and how the first marker behind it ended its transaction: None where there is none yet."""
    open_batches: dict[int, list[Batch]] = {}
    for entry in log.entries:
        if isinstance(entry, Batch):
            open_batches.setdefault(entry.producer_id, []).append(entry)
        elif isinstance(entry, Marker):
            for batch in open_batches.pop(entry.producer_id, ()):
                yield batch, entry.commit
    for batches in open_batches.values():
        for batch in batches:
            yield batch, None


@dataclass(slots=True)
class MarkerTask:
    """Markers on their way: those not written yet, and where the logs of the others must be flushed to."""

    markers: WriteMarkers
    unwritten: list[TopicPartition]
    ends: dict[TopicPartition, int] = field(default_factory=dict)


@dataclass(slots=True)
class Waiting:
    """Something that follows when a log is flushed up to an end."""

    log: SimLog
    end: int
    follow: Callable[[], None]
