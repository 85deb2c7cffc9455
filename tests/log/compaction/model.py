"""Compaction as one would explain it: a list of batches, and what of them is still needed.

Nothing here is shared with the real thing. Transactions have names, so that nobody has to infer from a row of batches
which marker belongs to which; horizons are kept beside the batches and not inside of them.
"""

from dataclasses import dataclass, field

DATA, MARKER = "data", "marker"


@dataclass(slots=True)
class ModelRecord:
    offset: int
    key: bytes | None
    value: bytes | None


@dataclass(slots=True)
class ModelBatch:
    kind: str
    base: int
    last: int
    records: list[ModelRecord]
    """Of a marker: one, without a key."""
    transaction: int | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    horizon_ms: int | None = None


@dataclass(slots=True)
class Model:
    batches: list[ModelBatch] = field(default_factory=list)
    aborted: set[int] = field(default_factory=set)
    """Transactions that ended so."""

    def compact(
        self,
        first_dirty: int,
        end: int,
        now_ms: int,
        retention_ms: int,
        last_data: dict[int, tuple[int | None, int]],
    ) -> None:
        """One round. `last_data` has each producer's last data offset (or None) and epoch."""
        newest: dict[bytes, int] = {}
        for batch in self.batches:
            for record in batch.records if batch.kind == DATA and batch.transaction not in self.aborted else []:
                if record.key is not None and first_dirty <= record.offset < end:
                    newest[record.key] = record.offset
        has_batches = {batch.transaction for batch in self.batches if batch.kind == DATA}
        left = []
        for batch in self.batches:
            if batch.base >= end:
                left.append(batch)
                continue
            may_go = batch.horizon_ms is not None and batch.horizon_ms <= now_ms
            if batch.kind == MARKER:
                is_spent = batch.transaction not in has_batches or not batch.records
                if is_spent and may_go:
                    batch.records = []
                if is_spent and batch.records and batch.horizon_ms is None:
                    batch.horizon_ms = now_ms + retention_ms
            elif batch.transaction in self.aborted:
                batch.records = []
            else:
                batch.records = [
                    record
                    for record in batch.records
                    if record.key is not None
                    and newest.get(record.key, -1) <= record.offset
                    and not (record.value is None and may_go)
                ]
                if batch.horizon_ms is None and any(record.value is None for record in batch.records):
                    batch.horizon_ms = now_ms + retention_ms
            if not batch.records:
                batch.horizon_ms = None
            if batch.records or batch.last + 1 == end or self._is_last_of_producer(batch, last_data):
                left.append(batch)
        self.batches = left

    def _is_last_of_producer(self, batch: ModelBatch, last_data: dict[int, tuple[int | None, int]]) -> bool:
        if batch.producer_id not in last_data:
            return False
        offset, epoch = last_data[batch.producer_id]
        if offset is None:
            return batch.kind == MARKER and batch.producer_epoch == epoch
        return batch.last == offset

    def newest(self) -> dict[bytes, bytes]:
        """What a reader of committed data knows in the end: the last value of each key, tombstones applied."""
        state: dict[bytes, bytes | None] = {}
        for batch in self.batches:
            if batch.kind == DATA and batch.transaction not in self.aborted:
                state.update({record.key: record.value for record in batch.records if record.key is not None})
        return {key: value for key, value in state.items() if value is not None}
