"""When records were written, and where the data of a log ends: small fetches, many partitions in each.

Both answer what lag in time and in records asks of the topics themselves, and both are bounded: what is not known when
the time is up stays unknown (None), which is not an error.

Records of aborted transactions count as data here: telling them apart would take the history before them.
"""

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

from muster.codec.batches import computed_crc, decode_records, read_header
from muster.codec.error_codes import ErrorCode
from muster.codec.records import BatchHeader
from muster.errors import CodecError, Malformed, Truncated
from muster.live.cluster import Cluster, LogEnds
from muster.live.requests import Fetched, FetchFrom, TopicPartition

PATIENCE_S = 30.0
MOST_WANTED = 100_000
ROUND_PARTITIONS = 256
SMALL_BYTES, LARGE_BYTES = 64 * 1024, 1024 * 1024
ROUND_BYTES = ROUND_PARTITIONS * SMALL_BYTES
FARTHEST_BACK = 1024
"""How many offsets before the end data is looked for: as many markers in a row are rare."""
MOST_ROUNDS = 32

Wanted = tuple[str, int, int]


def timestamps_at(
    config: Mapping[str, str],
    wanted: Iterable[Wanted],
    *,
    most: int = MOST_WANTED,
    patience_s: float = PATIENCE_S,
) -> dict[Wanted, int | None]:
    """Timestamp in ms of the first data record at or after each (topic, partition, offset).

    None where there is no such record, where it has no timestamp, or where it could not be found out: a topic that is
    gone or not ours to read, an unreadable batch, no time left, more than `most` questions.
    """
    found: dict[Wanted, int | None] = dict.fromkeys(wanted)
    offsets: dict[TopicPartition, list[int]] = {}
    for topic, partition, offset in list(found)[:most]:
        offsets.setdefault((topic, partition), []).append(offset)
    searches = deque(_Search(where, each) for where, each in offsets.items())
    deadline = time.monotonic() + patience_s
    with Cluster(config) as cluster:
        while searches and (left_s := deadline - time.monotonic()) > 0:
            begun = [searches.popleft() for _ in range(min(len(searches), ROUND_PARTITIONS))]
            answers = _fetch_round(cluster, begun, left_s)
            for search in begun:
                for offset, timestamp_ms in search.settle(answers.get(search.where)):
                    found[*search.where, offset] = timestamp_ms
            _follow_log_starts(cluster, [search for search in begun if search.is_out_of_range], left_s)
            # A search that got nothing comes first next time: the first one in an answer gets its batch, however large.
            searches.extendleft(search for search in begun if search.offsets and search.is_starved)
            searches.extend(search for search in begun if search.offsets and not search.is_starved)
    return found


class _Search:
    """The offsets of one partition that are still open, in order, and where to read next."""

    def __init__(self, where: TopicPartition, offsets: Iterable[int]) -> None:
        self.where = where
        self.offsets = deque(sorted(offsets))
        self.position = max(self.offsets[0], 0)
        self.is_starved = False
        self.is_out_of_range = False

    def settle(self, fetched: Fetched | None) -> list[tuple[int, int | None]]:
        """What an answer tells of the open offsets; those that nothing more can be learned of are closed."""
        settled: list[tuple[int, int | None]] = []
        self.is_out_of_range = fetched is not None and fetched.error == ErrorCode.OFFSET_OUT_OF_RANGE
        if self.is_out_of_range:
            return settled
        if fetched is None or fetched.error:
            self.offsets.clear()
            return settled
        before = self.position
        try:
            self._walk(fetched, settled)
        except CodecError:
            self.offsets.clear()
        self.is_starved = self.position == before
        if self.position >= fetched.high_watermark:
            self.offsets.clear()
        elif self.offsets:
            self.position = max(self.position, self.offsets[0])
        return settled

    def _walk(self, fetched: Fetched, settled: list[tuple[int, int | None]]) -> None:
        for byte_position, header in _batches(fetched):
            if not self.offsets:
                return
            if header.last_offset >= self.offsets[0] and not header.is_control:
                for record in decode_records(fetched.frame, byte_position, header):
                    while self.offsets and self.offsets[0] <= record.offset:
                        timestamp_ms = record.timestamp_ms if record.timestamp_ms >= 0 else None
                        settled.append((self.offsets.popleft(), timestamp_ms))
            self.position = max(self.position, header.last_offset + 1)


def _fetch_round(cluster: Cluster, begun: "Sequence[_Search | _End]", left_s: float) -> dict[TopicPartition, Fetched]:
    wanted = {
        one.where: FetchFrom(one.position, LARGE_BYTES if one.is_starved else SMALL_BYTES)
        for one in sorted(begun, key=lambda one: not one.is_starved)
    }
    return cluster.fetch(wanted, ROUND_BYTES, left_s).answers


def _follow_log_starts(cluster: Cluster, lost: list[_Search], left_s: float) -> None:
    """Offsets that are no longer in the log: its first record is the answer then. Or not yet: there is none."""
    ends = cluster.log_ends([search.where for search in lost], left_s) if lost else {}
    for search in lost:
        start = ends[search.where].log_start_offset
        if start is not None and search.position < start:
            search.position = start
        else:
            search.offsets.clear()


def _batches(fetched: Fetched) -> Iterator[tuple[int, BatchHeader]]:
    """Byte position and header of the batches that came whole."""
    data = fetched.frame[: fetched.end]
    byte_position = fetched.start
    while True:
        try:
            header = read_header(data, byte_position)
        except Truncated:
            return
        if computed_crc(data, byte_position, header) != header.crc:
            raise Malformed(f"the batch at offset {header.base_offset} has a checksum that does not fit its bytes")
        yield byte_position, header
        byte_position += header.size_bytes


def data_ends(
    config: Mapping[str, str], log_ends: Mapping[TopicPartition, LogEnds], *, patience_s: float = PATIENCE_S
) -> dict[TopicPartition, int | None]:
    """The offset after the last record that is no transaction marker, below each high watermark that is given.

    A log with nothing but markers has its start for an answer. None where it is not cheaply known: too many markers in
    a row, batches too large for a glance, a partition that cannot be read.
    """
    found: dict[TopicPartition, int | None] = dict.fromkeys(log_ends)
    deadline = time.monotonic() + patience_s
    with Cluster(config) as cluster:
        searches: deque[_End] = deque()
        for where, ends in log_ends.items():
            if ends.log_start_offset is not None and ends.high_watermark is not None:
                searches.append(_End(where, ends.log_start_offset, ends.high_watermark))
        while searches and (left_s := deadline - time.monotonic()) > 0:
            begun = [searches.popleft() for _ in range(min(len(searches), ROUND_PARTITIONS))]
            asked = [search for search in begun if search.position < search.high_watermark]
            answers = _fetch_round(cluster, asked, left_s)
            for search in begun:
                if search.position >= search.high_watermark:  # an empty log
                    found[search.where] = search.high_watermark
                elif search.settle(answers.get(search.where)):
                    found[search.where] = search.data_end
                else:
                    searches.append(search)
    return found


class _End:
    """The search for the end of the data in one partition: from near the end of the log to it, from ever farther back.

    One answer need not reach the end: a broker's ends with the segment.
    """

    def __init__(self, where: TopicPartition, log_start_offset: int, high_watermark: int) -> None:
        self.where = where
        self.high_watermark = high_watermark
        self.data_end: int | None = None
        self.is_starved = False
        self._start = log_start_offset
        self._back = 1
        self._rounds = 0
        self._begun = self.position = max(log_start_offset, high_watermark - 1)

    def settle(self, fetched: Fetched | None) -> bool:
        """Whether the search is over; `data_end` is None where it failed."""
        self._rounds += 1
        try:
            is_over = fetched is None or bool(fetched.error) or self._walked(fetched)
        except CodecError:
            is_over, self.data_end = True, None
        if not is_over and self._rounds == MOST_ROUNDS:
            is_over, self.data_end = True, None
        return is_over

    def _walked(self, fetched: Fetched) -> bool:
        before, was_starved = self.position, self.is_starved
        for byte_position, header in _batches(fetched):
            if header.base_offset >= self.high_watermark:  # written since the end was looked at
                self.position = self.high_watermark
                break
            self.position = header.last_offset + 1
            if not header.is_control and header.record_count:
                self.data_end = min(_end_of_data(fetched, byte_position, header), self.high_watermark)
        self.is_starved = self.position == before
        if self.position < self.high_watermark:
            if self.is_starved and was_starved:  # nothing came, not even with more room for it
                self.data_end = None
                return True
            return False
        if self.data_end is None and self._begun == self._start:
            self.data_end = self._start
        if self.data_end is not None or self._back >= FARTHEST_BACK:
            return True
        self._back *= 2
        self._begun = self.position = max(self._start, self.high_watermark - self._back)
        return False


def _end_of_data(fetched: Fetched, byte_position: int, header: BatchHeader) -> int:
    """Behind the last record that the cleaner has left in a batch."""
    if header.magic < 2 or header.record_count == header.last_offset - header.base_offset + 1:
        return header.last_offset + 1
    return decode_records(fetched.frame, byte_position, header)[-1].offset + 1
