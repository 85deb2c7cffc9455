"""Follows __consumer_offsets: fetches what is new in each partition, from the start of its log the first time.

Where there are tables of the log, it is from the place where these end. If the log does not have that place any more,
or lacks records behind it (compaction takes tombstones, too), it is read from its start after all.

A partition is shown once it has been read to the end that its log had when the reading began. Where a log is not the
one that was followed (truncated, made anew, its start moved past us), it is read again from its start; what was known
is shown until that is done.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from muster.codec.batches import computed_crc, decode_records, read_header
from muster.codec.error_codes import ErrorCode
from muster.codec.records import BatchHeader, Record
from muster.errors import ClusterError, CodecError, Truncated
from muster.exporter.groups import Beginning, Group, OffsetsPartition
from muster.exporter.history import stretches
from muster.live.cluster import Cluster
from muster.live.requests import NO_EPOCH, Fetched, FetchFrom, NoSuchTopic, partition_problem

OFFSETS = "__consumer_offsets"
FETCH_BYTES, LARGE_FETCH_BYTES = 1 << 16, 16 << 20
"""What is asked for first of a partition, and if that was not all."""
ROUND_BYTES = 32 << 20
LONG_HISTORY = 5_000
"""Records that are left to be read, from where on they are read by columns."""


@dataclass(slots=True)
class _Log:
    """How far one partition has been read, and what it came down to."""

    state: OffsetsPartition
    position: int = 0
    last_epoch: int = NO_EPOCH
    shown: OffsetsPartition | None = None
    """What the page shows: `state`, or what was known before it is read again."""
    target: int | None = None
    """Where the log ended when this round began."""
    caught_up_at: float | None = None
    is_starved: bool = False
    must_be_whole: bool = False
    """It goes on from tables, and has not come to the end yet: not one record may be missing."""
    problem: ClusterError | None = None

    @property
    def is_done(self) -> bool:
        return self.problem is not None or (self.target is not None and self.position >= self.target)


class Follower:
    def __init__(self, cluster: Cluster, new_state: Callable[[], OffsetsPartition]) -> None:
        self._cluster, self._new_state = cluster, new_state
        self._logs: dict[int, _Log] = {}
        self._topic_id = b""
        self._read = self._unreadable = 0
        self._beginnings: dict[int, Beginning] = {}
        self.places_lost: set[int] = set()
        """Partitions that no longer go on from where tables end."""

    def begin_with(self, beginnings: Mapping[int, Beginning]) -> None:
        """Begin with what tables tell; before the first `catch_up`."""
        self._beginnings = dict(beginnings)

    # What there is to show.

    def groups(self) -> dict[str, Group]:
        """Groups of all partitions that have been read whole."""
        found: dict[str, Group] = {}
        for log in self._logs.values():
            if log.shown is not None:
                found |= log.shown.groups
        return found

    def read_at(self) -> dict[str, float]:
        """By group, when the partition that tells of it was last read to its end."""
        found: dict[str, float] = {}
        for log in self._logs.values():
            if log.shown is not None and log.caught_up_at is not None:
                found |= dict.fromkeys(log.shown.groups, log.caught_up_at)
        return found

    @property
    def records(self) -> int:
        return self._read

    @property
    def unreadable(self) -> int:
        return self._unreadable + sum(log.state.unreadable for log in self._logs.values())

    @property
    def oldest_at(self) -> float | None:
        """When the partition that was read longest ago was read; None as long as none was."""
        return min((log.caught_up_at for log in self._logs.values() if log.caught_up_at is not None), default=None)

    @property
    def problems(self) -> list[ClusterError]:
        return [log.problem for log in self._logs.values() if log.problem is not None]

    def partition_states(self) -> dict[str, int]:
        failing = len(self.problems)
        loading = sum(log.problem is None and log.shown is not log.state for log in self._logs.values())
        return {"followed": len(self._logs) - failing - loading, "loading": loading, "failing": failing}

    # Reading.

    def try_to_read(self) -> None:
        """A glance at one partition: `ClusterRefused` where we may not read the topic."""
        number = min(self._cluster.topic(OFFSETS).partitions)
        fetched = self._cluster.fetch({(OFFSETS, number): FetchFrom(0, 1)}, 1).answers.get((OFFSETS, number))
        if fetched is not None and fetched.error not in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE):
            raise partition_problem((OFFSETS, number), fetched.error)

    def catch_up(self, deadline: float) -> None:
        """Read to the ends that the logs have now, or as far as there is time for it."""
        self._find_partitions()
        begun = time.monotonic()
        for log in self._logs.values():
            log.target, log.problem = None, None
        while time.monotonic() < deadline and (left := self._unread()):
            self._fetch(left, begun)
        for log in self._logs.values():
            for group in log.state.groups.values() if log.state.is_live else ():
                if group.rebalances is not None:
                    group.rebalances.settle()

    def _find_partitions(self) -> None:
        try:
            topic = self._cluster.topic(OFFSETS)
        except NoSuchTopic:  # the first group makes it
            return
        if topic.topic_id != self._topic_id:
            for log in self._logs.values():
                self._begin_again(log)
            self._topic_id = topic.topic_id
        for number in topic.partitions:
            if number not in self._logs:
                self._logs[number] = self._new_log(self._beginnings.pop(number, None))

    def _new_log(self, beginning: Beginning | None) -> _Log:
        log = _Log(self._new_state())
        if beginning is not None:
            log.state.restore(beginning)
            log.position, log.last_epoch = beginning.next_offset, max(beginning.leader_epoch, NO_EPOCH)
            log.must_be_whole = True
        return log

    def _unread(self) -> dict[int, _Log]:
        """Those that got nothing the last time come first: the first in an answer gets its batch, however large."""
        left = [(number, log) for number, log in self._logs.items() if not log.is_done]
        return dict(sorted(left, key=lambda one: not one[1].is_starved))

    def _fetch(self, left: dict[int, _Log], begun: float) -> None:
        wanted = _that_fit(left)
        asked = self._cluster.fetch(wanted, ROUND_BYTES)
        for number, log in ((number, left[number]) for _, number in wanted):
            fetched = asked.answers.get((OFFSETS, number))
            if fetched is None:
                log.problem = asked.problems[OFFSETS, number]
            else:
                self._take(number, log, fetched)
            if log.problem is None and log.is_done:
                self._caught_up(log, begun)

    def _take(self, number: int, log: _Log, fetched: Fetched) -> None:
        if fetched.error == ErrorCode.OFFSET_OUT_OF_RANGE or fetched.diverging_offset is not None:
            self._find_start(number, log)
            return
        if fetched.error:
            log.problem = partition_problem((OFFSETS, number), fetched.error)
            return
        log.target = fetched.high_watermark if log.target is None else log.target
        before = log.position
        try:
            self._walk(log, fetched)
        except CodecError as problem:
            log.problem = ClusterError(f"{OFFSETS}-{number} cannot be read behind offset {log.position}: {problem}.")
        except _RecordsMissing:
            self._find_start(number, log)
            return
        is_starved = log.position == before and not log.is_done
        if is_starved and log.is_starved:
            log.problem = ClusterError(f"{OFFSETS}-{number} gives nothing at offset {log.position}.")
        log.is_starved = is_starved

    def _walk(self, log: _Log, fetched: Fetched) -> None:
        start = fetched.start
        if not log.state.is_live and not log.must_be_whole and (log.target or 0) - log.position >= LONG_HISTORY:
            start = self._walk_columns(log, fetched)
        for header, records in _batches(fetched._replace(start=start)):
            if log.must_be_whole and records is not None and not _is_whole(header, records, log.position):
                raise _RecordsMissing
            self._read += sum(record.offset >= log.position for record in records or ())
            self._take_batch(log, header, records)

    def _walk_columns(self, log: _Log, fetched: Fetched) -> int:
        """Returns where what it has not read begins: a batch that was cut off, or none."""
        read_until = fetched.start
        for found in stretches(fetched.frame[fetched.start : fetched.end]):
            self._read += found.read
            self._take_batch(log, found.header, found.records)
            read_until = fetched.start + found.end
        return read_until

    def _take_batch(self, log: _Log, header: BatchHeader, records: list[Record] | None) -> None:
        if records is None:
            self._unreadable += 1
        else:
            log.state.take(header, [record for record in records if record.offset >= log.position])
        log.position = max(log.position, header.last_offset + 1)
        log.last_epoch = max(header.leader_epoch, NO_EPOCH)

    def _find_start(self, number: int, log: _Log) -> None:
        """What we followed is not there: begin anew where the log begins now."""
        asked = self._cluster.log_starts([(OFFSETS, number)])
        if (OFFSETS, number) not in asked.answers:
            log.problem = asked.problems[OFFSETS, number]
            return
        if log.must_be_whole:
            self.places_lost.add(number)
        self._begin_again(log)
        log.position, log.target = asked.answers[OFFSETS, number].offset, None

    def _begin_again(self, log: _Log) -> None:
        if log.shown is not log.state:  # it was being read again already
            log.state.let_go()
        self._unreadable += log.state.unreadable
        log.state, log.position, log.last_epoch, log.must_be_whole = self._new_state(), 0, NO_EPOCH, False

    def _caught_up(self, log: _Log, begun: float) -> None:
        log.caught_up_at, log.must_be_whole = begun, False
        if log.shown is log.state:
            return
        if log.shown is not None:
            log.shown.let_go()
        log.state.go_live()
        log.shown = log.state


def _that_fit(left: Mapping[int, _Log]) -> dict[tuple[str, int], FetchFrom]:
    """As many as an answer has room for, and one at least: who gets nothing then has nothing to give."""
    wanted: dict[tuple[str, int], FetchFrom] = {}
    room = ROUND_BYTES
    for number, log in left.items():
        size = FETCH_BYTES if log.target is None else LARGE_FETCH_BYTES
        if wanted and size > room:
            break
        room -= size
        wanted[OFFSETS, number] = FetchFrom(log.position, size, log.last_epoch)
    return wanted


class _RecordsMissing(Exception):
    """Between what tables tell and what the log has."""


def _is_whole(header: BatchHeader, records: list[Record], position: int) -> bool:
    """Whether a batch has every record from a position on, which may be inside it."""
    present = sum(record.offset >= position for record in records)
    return header.base_offset <= position and present == max(0, header.last_offset + 1 - position)


def _batches(fetched: Fetched) -> Iterator[tuple[BatchHeader, list[Record] | None]]:
    """The batches that came whole; None for records that cannot be read."""
    data, position = fetched.frame[: fetched.end], fetched.start
    while True:
        try:
            header = read_header(data, position)
        except Truncated:
            return
        records: list[Record] | None = None
        if computed_crc(data, position, header) == header.crc:
            try:
                records = decode_records(data, position, header)
            except CodecError:
                records = None
        yield header, records
        position += header.size_bytes
