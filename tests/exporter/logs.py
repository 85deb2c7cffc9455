"""Logs of __consumer_offsets made by hand, and a partition that takes them."""

from collections.abc import Iterable

from muster.codec.batches import encode_batch, encode_marker, iter_batches
from muster.codec.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartitions,
    encode_assignment,
    encode_subscription,
)
from muster.codec.group_records import encode_struct
from muster.codec.offsets_topic import (
    GroupKey,
    GroupValue,
    MemberValue,
    OffsetValue,
    TypedKey,
    encode_group_value,
    encode_key,
    encode_offset_value,
    offset_key,
)
from muster.codec.records import TRANSACTIONAL, Record
from muster.exporter.groups import OffsetsPartition, Room
from muster.exporter.limits import LeftOut, Limits, Wanted

START_MS = 1_700_000_000_000
GROUP, TOPIC = "shop", "orders"


class Log:
    """Takes records in log order; `state` is what they come down to."""

    def __init__(
        self,
        limits: Limits | None = None,
        wanted: Iterable[str] = (),
        ends: dict[tuple[str, int], int] | None = None,
    ) -> None:
        self.left_out = LeftOut()
        self.room = Room(limits or Limits(), self.left_out)
        known = ends if ends is not None else {}
        self.state = OffsetsPartition(self.room, Wanted(wanted), known.get)
        self._next = 0

    def _append(self, key: bytes, value: bytes | None, producer_id: int | None = None) -> None:
        record = Record(self._next, START_MS + self._next, key, value)
        if producer_id is None:
            self.take(encode_batch([record]))
        else:
            self.take(encode_batch([record], attributes=TRANSACTIONAL, producer_id=producer_id, producer_epoch=0))

    def take(self, data: bytes) -> None:
        for batch in iter_batches(data):
            assert batch.problem is None
            self.state.take(batch.header, batch.records)
        self._next += 1

    def raw(self, key: bytes, value: bytes | None) -> None:
        self._append(key, value)

    def commit(
        self,
        offset: int | None,
        partition: int = 0,
        *,
        group: str = GROUP,
        topic: str = TOPIC,
        at_ms: int = START_MS,
        producer_id: int | None = None,
    ) -> None:
        value = None
        if offset is not None:
            value = encode_offset_value(OffsetValue(offset, commit_timestamp_ms=at_ms), 4)
        self._append(encode_key(offset_key(group, topic, partition)), value, producer_id)

    def marker(self, producer_id: int, *, commit: bool) -> None:
        self.take(encode_marker(self._next, START_MS, producer_id, 0, commit=commit, coordinator_epoch=0))

    def generation(self, number: int, members: dict[str, list[int]], *, group: str = GROUP) -> None:
        """A classic group, its members with the partitions they own."""
        listed = tuple(_member(member_id, partitions) for member_id, partitions in members.items())
        protocol = "range" if members else None
        value = GroupValue("consumer", number, protocol, next(iter(members), None), START_MS, listed)
        self._append(encode_key(GroupKey(group)), encode_group_value(value, 3))

    def group_tombstone(self, group: str = GROUP) -> None:
        self._append(encode_key(GroupKey(group)), None)

    def newer(self, record_type: int, data: dict[str, object] | None, *fields: str) -> None:
        value = None if data is None else encode_struct(record_type, 0, data)
        self._append(encode_key(TypedKey(record_type, fields)), value)


def _member(member_id: str, partitions: list[int]) -> MemberValue:
    subscription = encode_subscription(Subscription(1, (TOPIC,)))
    assignment = encode_assignment(Assignment(1, (TopicPartitions(TOPIC, tuple(partitions)),)))
    return MemberValue(member_id, None, f"client-{member_id}", "/10.0.0.1", 1000, 1000, subscription, assignment)
