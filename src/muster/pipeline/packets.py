"""What leaves a task of the reading step: packets, each with rows of one kind, of one partition of the offsets topic.

    kind                rows of
    winners_commits     COMMITS        the newest visible record of each key, and deletions; of a partition that is read
                                       again all commits of transactions that have ended, too, if history is kept
    open_commits        OPEN_COMMITS   commits whose transaction the range does not end
    winners_groups      GROUP_RECORDS  the newest record of each group, member and so on
    activity            ACTIVITY       when groups committed
    late_commits        COMMITS        of a piece: deletions of something that is not in it
    late_groups         LATE_GROUPS    of a piece: classic groups' records with commits around them that are not in it
    piece_activity      PIECE_ACTIVITY of a piece: when groups committed in it

The rows of a packet are an Arrow stream in a binary column: for Spark a packet is one row, which it keeps, shuffles by
partition and never looks into. A packet is of bounded size, so a partition has as many as it needs.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from muster.tables.schemas import ACTIVITY, COMMITS, GROUP_RECORDS, OPEN_COMMITS
from muster.tables.times import all_bounded

LATE_GROUPS = pa.schema([
    *GROUP_RECORDS,
    pa.field("piece_offset", pa.int64(), False),  # where its piece begins
    pa.field("is_begun_before", pa.bool_(), False),  # the commit before it is not in the piece
    pa.field("goes_on_behind", pa.bool_(), False),  # the commit after it is not in the piece
])  # fmt: skip
PIECE_ACTIVITY = pa.schema([
    *ACTIVITY,
    pa.field("piece_offset", pa.int64(), False),
    pa.field("has_committed", pa.bool_(), False),  # False: the piece has records of the group, and no commit
])  # fmt: skip
KINDS = {
    "winners_commits": COMMITS,
    "open_commits": OPEN_COMMITS,
    "winners_groups": GROUP_RECORDS,
    "activity": ACTIVITY,
    "late_commits": COMMITS,
    "late_groups": LATE_GROUPS,
    "piece_activity": PIECE_ACTIVITY,
}
PACKET_BYTES = 8 * 1024 * 1024
"""Rows are gathered until they are as large as this, before they are compressed."""
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


class Packet(NamedTuple):
    kind: str
    offsets_partition: int
    rows: int
    payload: bytes


class PacketWriter:
    """Rows of one kind; `append` in the order of partitions, then `close`."""

    def __init__(self, kind: str) -> None:
        self._kind, self._schema = kind, KINDS[kind]
        self._partition = -1
        self._waiting: list[Any] = []
        self._bytes = 0
        self.packets: list[Packet] = []

    def append(self, offsets_partition: int, rows: Any) -> None:
        """Rows of the kind's schema, a `pyarrow.Table`, all of this partition."""
        if not len(rows):
            return
        if offsets_partition != self._partition:
            self.close()
            self._partition = offsets_partition
        self._waiting.append(rows)
        self._bytes += rows.nbytes
        if self._bytes >= PACKET_BYTES:
            self.close()

    def close(self) -> None:
        """Make a packet of what is held."""
        if not self._waiting:
            return
        table = all_bounded(pa.concat_tables(self._waiting))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._schema, options=_OPTIONS) as stream:
            stream.write_table(table)
        self.packets.append(Packet(self._kind, self._partition, len(table), sink.getvalue().to_pybytes()))
        self._waiting, self._bytes = [], 0


def rows_of(packets: Iterable[Packet], kind: str) -> pa.RecordBatchReader:
    """The rows of the packets of one kind, decoded as they are asked for."""

    def batches() -> Iterator[pa.RecordBatch]:
        for packet in packets:
            if packet.kind == kind:
                yield from pa.ipc.open_stream(packet.payload)

    return pa.RecordBatchReader.from_batches(KINDS[kind], batches())
