"""Kafka's own tool reads what compaction writes, and finds nothing to complain about."""

import re
import shutil
from pathlib import Path

from muster.codec.batches import iter_batches
from muster.codec.compression import GZIP, LZ4, SNAPPY, ZSTD
from muster.log.compaction.cleaner import Report, clean
from muster.log.compaction.manager import LogCleaner
from muster.log.compaction.plan import CompactionConfig
from muster.log.config import LogConfig
from muster.log.partition import DiskLog
from muster.log.segment import INDEX, LOG, TIMEINDEX, TXNINDEX, Segment
from muster.segments.checkpoints import TopicPartition
from tests.kit.kafka import Kafka, dump_log, require_kafka
from tests.log.compaction import COMPACTORS, DAY_MS, START_MS, History

COMPLAINT = re.compile(r"mismatch|not found|error|exception", re.I)
KEY = TopicPartition("t", 0)
CONFIG = LogConfig(segment_bytes=8000, index_interval_bytes=300, compacted=True)


def written(log: DiskLog) -> None:
    """Everything that a cleaned segment may contain."""
    for turn in range(20):
        time_ms = START_MS + 1000 * turn
        log.append([(b"k%d" % (number % 12), b"%80d" % turn) for number in range(turn, turn + 5)], time_ms)
        log.append([(b"k%d" % (turn % 5), None)], time_ms)
        log.append([(b"t%d" % (turn % 4), b"%40d" % turn)], time_ms, 7, 0)
        log.append([(b"t1", b"aborted"), (b"t2", b"aborted")], time_ms, 8, 0)
        log.append_marker(8, 0, time_ms, commit=False)
        log.append_marker(7, 0, time_ms, commit=True)
        codec = (GZIP, SNAPPY, LZ4, ZSTD)[turn % 4]
        history = History().write(*((b"p%d" % number, b"%60d" % turn) for number in range(turn % 3, 8)), codec=codec)
        log.append_batch(history.batches[0], time_ms)
        log.write()
    log.roll()


def cleaned(log: DiskLog, root: Path, way: str, now_ms: int) -> Report:
    cleaner = LogCleaner(root, {KEY: log}, lambda key: CompactionConfig(0.0))
    job = cleaner.next_job(now_ms)
    assert job is not None
    compactor = COMPACTORS[way](job.rules, job.aborted, job.memory_bytes)
    report = clean(job, cleaner.swap, compactor=compactor)
    cleaner.finished(report)
    return report


def said_of(kafka: Kafka, files: list[Path], check: str) -> str:
    """All that the tool says; what is wrong with an index goes to its standard error."""
    done = kafka.run(kafka.dump_log_class, check, "--files", ",".join(map(str, files)))
    return done.stdout + done.stderr


def compacted_log(root: Path, way: str) -> list[Segment]:
    """A log after two rounds, closed."""
    root.mkdir()
    log = DiskLog.open(root / str(KEY), CONFIG)
    written(log)
    first = cleaned(log, root, way, START_MS + DAY_MS)
    written(log)
    second = cleaned(log, root, way, START_MS + 3 * DAY_MS)
    assert first.counted.records_kept < first.counted.records_read
    assert second.segments_after < second.segments_before
    assert log.close()
    return list(log.segments)


def test_kafka_dump_log_accepts_compacted_segments(tmp_path: Path) -> None:
    kafka = require_kafka()
    segments = [segment for way in COMPACTORS for segment in compacted_log(tmp_path / way, way)]
    logs = [segment.path(LOG) for segment in segments]
    told = dump_log(logs, "--deep-iteration", kafka=kafka)
    assert "isvalid: false" not in told
    records = sum(len(batch.records) for path in logs for batch in iter_batches(path.read_bytes()))
    assert len(re.findall(r"^\| offset: ", told, re.M)) == records
    assert "deleteHorizonMs: OptionalLong[1" in told
    indexes = [segment.path(kind) for segment in segments for kind in (INDEX, TIMEINDEX)]
    assert sum(path.stat().st_size for path in indexes) > 0
    for check in ("--verify-index-only", "--index-sanity-check"):
        assert COMPLAINT.search(said_of(kafka, indexes, check)) is None
    (tmp_path / "wrong").mkdir()
    wrong = [shutil.copy(one, tmp_path / "wrong") for one in (logs[0], *indexes[:2])][1]
    entries = bytearray(Path(wrong).read_bytes())
    entries[3] ^= 1  # the offset of the first entry
    Path(wrong).write_bytes(entries)
    assert COMPLAINT.search(said_of(kafka, [Path(wrong)], "--verify-index-only"))  # it would have said so
    transactions = [path for segment in segments if (path := segment.path(TXNINDEX)).exists()]
    assert "producerId: 8" in dump_log(transactions, kafka=kafka)
