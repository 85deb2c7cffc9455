"""A real process on a real disk, killed at random moments.

SIGKILL leaves the page cache alone, so this shows the order of things and not their durability (the power cuts do
that): whatever the writer was doing, the next one finds a log that opens, with every record that was acknowledged, and
of every append all of its records or none.
"""

import os
import random
import select
import signal
import struct
import time
import traceback
from pathlib import Path

import pytest

from muster.codec.records import Record
from muster.log.config import Flush, LogConfig
from muster.log.directory import LogDirectory
from muster.log.flush import Flusher
from muster.log.partition import DiskLog
from muster.segments.checkpoints import TopicPartition
from tests.log.disk.changes import checkpoint, create_topic

CONFIG = LogConfig(segment_bytes=20_000, index_interval_bytes=500, flush=Flush.ALWAYS)
T0 = TopicPartition("t", 0)
START_MS = 1_800_000_000_000
LONGEST_LIFE_S = 0.12
ACK = struct.Struct(">q")


def opened(path: Path) -> LogDirectory:
    return LogDirectory.open(path, lambda topic: CONFIG)


def append(log: DiskLog, dice: random.Random) -> None:
    """One append of a few records, each of which says to which append it belongs and how many it has."""
    first, count = log.end_offset, dice.randrange(1, 8)
    padding = b"." * dice.choice((0, 10, 300))
    records = [(b"%d" % first, b"%d/%d" % (number, count) + padding) for number in range(count)]
    producer_id = dice.choice((-1, -1, -1, 7))
    log.append(records, START_MS + first, producer_id, 0 if producer_id >= 0 else -1)
    if producer_id >= 0 and dice.random() < 0.5:
        log.append_marker(producer_id, 0, START_MS + first, commit=dice.random() < 0.5)


def live(path: Path, seed: int, acks: int) -> None:
    """Write until somebody kills us, telling the pipe of every offset that is durable."""
    dice = random.Random(seed)
    directory = opened(path)
    flusher = Flusher(2) if dice.random() < 0.5 else None
    if T0 not in directory.logs:
        create_topic(directory, "t", 1)
    while True:
        log = directory.logs[T0]
        for _ in range(dice.randrange(1, 4)):
            append(log, dice)
        if flusher is not None:
            flusher.flush(log, lambda error: None)
            flusher.drain()
        else:
            log.flush()
        os.write(acks, ACK.pack(log.flushed_offset))
        if dice.random() < 0.03:
            checkpoint(directory)
        if dice.random() < 0.02:
            assert directory.close()
            directory = opened(path)


def one_life(path: Path, seed: int) -> int:
    """Start a writer, kill it after a while; the last offset it acknowledged."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            live(path, seed, writing)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    os.close(writing)
    time.sleep(random.Random(seed).random() * LONGEST_LIFE_S)
    ended = bool(os.waitpid(child, os.WNOHANG)[0])
    if not ended:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    acknowledged = 0
    while select.select([reading], [], [], 0)[0] and (data := os.read(reading, 1 << 16)):
        acknowledged = ACK.unpack(data[-ACK.size :])[0]
    os.close(reading)
    assert not ended, "the writer died of something else"
    return acknowledged


def check(path: Path, acknowledged: int) -> int:
    directory = opened(path)
    log = directory.logs.get(T0)
    if log is None:
        assert acknowledged == 0
        return directory.close() and 0
    assert log.end_offset >= acknowledged
    records = [
        record
        for batch in log.batches()
        if not batch.header.is_control
        for record in checked(batch.problem, batch.records)
    ]
    units: dict[bytes, list[bytes]] = {}
    for record in records:
        assert record.key is not None
        assert record.value is not None
        units.setdefault(record.key, []).append(record.value.rstrip(b"."))
    for first, values in units.items():
        assert values == [b"%d/%d" % (number, len(values)) for number in range(len(values))], (
            f"append {first!r} is torn"
        )
    everything = [record.offset for batch in log.batches() for record in batch.records]
    assert everything == list(range(log.end_offset))
    end_offset = log.end_offset
    assert directory.close()
    return end_offset


def checked(problem: object, records: list[Record]) -> list[Record]:
    assert problem is None
    return records


def lives(path: Path, rounds: int, seed: int) -> None:
    dice = random.Random(seed)
    ends = []
    for _ in range(rounds):
        acknowledged = one_life(path, dice.randrange(1 << 30))
        ends.append(check(path, acknowledged))
        # A clean stop ended the check; a writer that finds a killed one's files is the more interesting one.
        if dice.random() < 0.7:
            (path / ".kafka_cleanshutdown").unlink(missing_ok=True)
    assert ends[-1] > 0
    assert ends == sorted(ends)


def test_killed_twenty_times(tmp_path: Path) -> None:
    lives(tmp_path / "data", 20, seed=1)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_killed_hundreds_of_times(tmp_path: Path, seed: int) -> None:
    lives(tmp_path / "data", 100, seed=100 + seed)
