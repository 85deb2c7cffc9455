"""A cluster whose log grows for weeks, a little before each run: commits, transactions, deletions, groups, data."""

import csv
import gzip
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random

from muster.log.config import LogConfig
from muster.log.partition import DiskLog
from tests.pipeline.world import GrowingLog

ROOT = Path(__file__).parents[2]
START_MS = 1_790_000_000_000
DAY_MS = 86_400_000
DATA_PARTITIONS = 6


class Years:
    """Rounds: `grow` before each run. `log` is the directory to run over."""

    def __init__(self, folder: Path, rounds: int, records: int, days: float) -> None:
        self._rounds, self._days, self._round = rounds, days, 0
        source = folder / "source"
        command = [sys.executable, str(ROOT / "bench" / "make_large.py"), "--out", str(source), "--seed", "5"]
        command += ["--records", str(records), "--days", str(days), "--start-ms", str(START_MS)]
        command += ["--partitions", "4", "--groups", "40", "--segment-bytes", "200000", "--group-pct", "2"]
        subprocess.run([*command, "--jobs", "1"], check=True, stdout=subprocess.DEVNULL)
        self._offsets = GrowingLog(source, folder / "log", Random(5))
        self.log = folder / "log"
        self._data = [self._opened(name) for name in self._busiest(source)]

    @staticmethod
    def _busiest(source: Path) -> list[str]:
        with gzip.open(source / "state.tsv.gz", "rt") as file:
            rows = csv.DictReader(file, delimiter="\t")
            found = Counter(f"{row['topic']}-{row['partition']}" for row in rows)
        return [name for name, _ in found.most_common(DATA_PARTITIONS)]

    def _opened(self, name: str) -> DiskLog:
        return DiskLog.open(self.log / name, LogConfig(segment_bytes=20_000, index_interval_bytes=1_000))

    def grow(self) -> None:
        """One round: a share of the offsets topic, and some records of data."""
        self._offsets.grow_a_little(1 / (self._rounds - self._round))
        self._round += 1
        now_ms = START_MS + int(self._days * DAY_MS * self._round / self._rounds)
        for number, log in enumerate(self._data):
            log.append([(b"key", b"value")] * (1 + (self._round + number) % 3), now_ms)
            log.write()
            log.flush()

    def close(self) -> None:
        for log in self._data:
            log.close()
