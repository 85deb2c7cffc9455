"""The durable log: appends for each flush setting and number of appenders, and how fast a data directory opens.

Appenders run in a closed loop, as clients of a coordinator do: each appends one small record, asks for it to be
durable, and appends the next one when it is. `syncs` counts fdatasyncs, so `appends per sync` is what group commit
saves.
"""

import json
import os
import shutil
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.log.disk.changes import create_topic

from bench.dump import CACHE
from muster.codec.batches import encode_batch
from muster.codec.offsets_topic import OffsetValue, encode_key, encode_offset_value, offset_key
from muster.codec.records import Record
from muster.log.config import OFFSETS_TOPIC_CONFIG, Flush
from muster.log.directory import LogDirectory
from muster.log.flush import Flusher
from muster.log.partition import DiskLog
from muster.log.topics import Topic

SECONDS = 2.0
RECORD = (
    encode_key(offset_key("a-group-of-consumers", "orders", 7)),
    encode_offset_value(OffsetValue(123_456, 3, "", 1_760_000_000_000), 4),
)
START_MS = 1_760_000_000_000
LARGE_BYTES = 5 << 30


def fdatasync_rate(folder: Path) -> float:
    """What the disk itself can do: a small append and an fdatasync, over and over."""
    descriptor = os.open(folder / "plain", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    done, until = 0, time.perf_counter() + SECONDS
    while time.perf_counter() < until:
        os.write(descriptor, b"x" * 100)
        os.fdatasync(descriptor)
        done += 1
    os.close(descriptor)
    return done / SECONDS


class Run:
    """Appenders over the logs of one directory."""

    def __init__(self, folder: Path, flush: Flush, appenders: int, partitions: int) -> None:
        config = replace(OFFSETS_TOPIC_CONFIG, flush=flush)
        self.directory = LogDirectory.open(folder, lambda topic: config)
        create_topic(self.directory, "t", partitions)
        self.logs = list(self.directory.logs.values())
        self.flush = flush
        self.appends = 0
        self.ready: deque[DiskLog] = deque(self.logs[number % partitions] for number in range(appenders))
        self.flusher = Flusher()

    def measure(self) -> dict[str, float]:
        started = time.perf_counter()
        until = started + SECONDS
        while time.perf_counter() < until:
            self._turn()
        self.flusher.drain()
        seconds = time.perf_counter() - started
        written = sum(log.size_bytes for log in self.logs)
        syncs = self.flusher.syncs
        self.flusher.close()
        self.directory.close()
        return {
            "appends/s": self.appends / seconds,
            "MB/s": written / seconds / 1e6,
            "appends per sync": self.appends / syncs if syncs else 0,
        }

    def _turn(self) -> None:
        """As a turn of the server's loop: all who are ready append, then one write, then the syncs."""
        turn, self.ready = self.ready, deque()
        logs: dict[int, DiskLog] = {}
        for log in turn:
            log.append((RECORD,), START_MS)
            logs[id(log)] = log
        self.appends += len(turn)
        if self.flush is Flush.ALWAYS:
            mine: dict[int, list[DiskLog]] = {}
            for log in turn:
                mine.setdefault(id(log), []).append(log)
            for key, log in logs.items():
                self.flusher.flush(log, lambda error, who=mine[key]: self.ready.extend(who))  # type: ignore[misc]
            while not self.ready:
                self.flusher.finish()
                time.sleep(0)
            return
        for log in logs.values():
            log.write()
        self.ready = turn


def appends() -> Iterator[dict[str, object]]:
    base = CACHE / "disk"
    base.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=base) as folder:
        yield {"what": "the disk's own fdatasync", "appends/s": round(fdatasync_rate(Path(folder)))}
    for flush in Flush:
        for appenders, partitions in ((1, 1), (16, 1), (256, 1), (1_000, 50)):
            with tempfile.TemporaryDirectory(dir=base) as folder:
                result = Run(Path(folder) / "data", flush, appenders, partitions).measure()
                yield {
                    "what": f"flush={flush.value}, {appenders} appenders, {partitions} partitions",
                    **{name: round(value, 1) for name, value in result.items()},
                }


def opening() -> Iterator[dict[str, object]]:
    """A directory of 5 GB in 50 partitions, after a clean stop and after a kill."""
    folder = CACHE / "disk" / "large"
    shutil.rmtree(folder, ignore_errors=True)
    large = encode_batch([Record(number, START_MS, RECORD[0], bytes(1_000)) for number in range(900)])
    config = replace(OFFSETS_TOPIC_CONFIG, flush=Flush.OS)

    def config_of(topic: Topic) -> object:
        return config

    try:
        directory = LogDirectory.open(folder, config_of)  # type: ignore[arg-type]
        create_topic(directory, "t", 50)
        logs = list(directory.logs.values())
        while sum(log.size_bytes for log in logs) < LARGE_BYTES:
            for log in logs:
                log.append_batches(large, START_MS)
                log.write()
        directory.close()
        started = time.perf_counter()
        directory = LogDirectory.open(folder, config_of)  # type: ignore[arg-type]
        yield {"what": "open 5 GB in 50 partitions after a clean stop", "s": round(time.perf_counter() - started, 3)}
        for log in directory.logs.values():
            log.append((RECORD,), START_MS)
            log.write()
        directory._abandon()  # as a killed process does: nothing is saved
        started = time.perf_counter()
        directory = LogDirectory.open(folder, config_of)  # type: ignore[arg-type]
        yield {"what": "and after a kill", "s": round(time.perf_counter() - started, 3)}
        directory.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    for result in appends():
        print(json.dumps(result), flush=True)
    for result in opening():
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
