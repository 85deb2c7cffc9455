"""Compaction of one partition of the offsets topic: a round over a log on disk, each in a process of its own.

python -m bench.compaction            every case, as JSON
python -m bench.compaction FOLDER     one round over a copy of FOLDER/__consumer_offsets-0
"""

import importlib
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from muster.log.compaction.cleaner import SMALL_LOG_BYTES, Report
from muster.log.compaction.manager import LogCleaner
from muster.log.compaction.plan import CompactionConfig
from muster.log.config import LogConfig
from muster.log.partition import DiskLog
from muster.segments.checkpoints import TopicPartition

ROOT = Path(__file__).parent.parent
CACHE = ROOT / ".cache" / "bench"
SEGMENT_BYTES = 32 * 1024 * 1024
KEY = TopicPartition("__consumer_offsets", 0)
ROUNDS = 3

CASES = {
    "1 M records, few keys": ["--records", "1000000"],
    "1 M records, many keys": ["--records", "1000000", "--groups", "12000", "--topics", "1500"],
    "50 k records, plain Python": ["--records", "50000"],
}


def log_of(arguments: list[str]) -> Path:
    """A generated log, kept for the next run."""
    folder = CACHE / ("compaction" + "".join(arguments).replace("--", "-"))
    if not (folder / "expected.json").exists():
        print(f"generating {' '.join(arguments)} …", file=sys.stderr)
        fixed = ["--partitions", "1", "--segment-bytes", str(SEGMENT_BYTES), "--out", str(folder)]
        subprocess.run([sys.executable, ROOT / "bench" / "make_large.py", *arguments, *fixed], check=True)
    return folder


def one_round(folder: Path) -> dict[str, float]:
    """Open a copy of the log (which builds its indexes), and compact it once."""
    with tempfile.TemporaryDirectory(dir=CACHE) as name:
        root = Path(name)
        shutil.copytree(folder / str(KEY), root / str(KEY))
        log = DiskLog.open(root / str(KEY), LogConfig(segment_bytes=SEGMENT_BYTES, compacted=True))
        log.roll()
        before_mb = peak_rss_mb()
        import_s = time_of_import() if log.size_bytes > SMALL_LOG_BYTES else 0.0
        cleaner = LogCleaner(root, {KEY: log}, lambda key: CompactionConfig(0.0))
        started, started_cpu = time.perf_counter(), time.process_time()
        report = cleaner.run_once(int(time.time() * 1000))
        seconds, cpu_s = time.perf_counter() - started, time.process_time() - started_cpu
        assert report is not None, list(cleaner.notes)
        result = told(report, seconds) | {
            "CPU seconds": cpu_s,
            "seconds to import the kernels": import_s,
            "peak RSS before, MB": before_mb,
            "peak RSS, MB": peak_rss_mb(),
        }
        log.close()
    return result


def time_of_import() -> float:
    """Once in the life of a process, and not part of a round."""
    started = time.perf_counter()
    importlib.import_module("muster.log.compaction.columns")
    return time.perf_counter() - started


def told(report: Report, seconds: float) -> dict[str, float]:
    count = report.counted
    return {
        "M records/s": count.records_read / seconds / 1e6,
        "MB/s": count.bytes_read / seconds / 1e6,
        "seconds": seconds,
        "of which learning": report.learning_s,
        "records kept": count.records_kept,
        "MB kept": count.bytes_kept / 1e6,
        "keys": report.keys,
    }


def peak_rss_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1024 if sys.platform != "darwin" else peak / 1024 / 1024


def main() -> None:
    if len(sys.argv) > 1:
        print(json.dumps(one_round(Path(sys.argv[1]))))
        return
    results = {}
    for name, arguments in CASES.items():
        command = [sys.executable, "-m", "bench.compaction", str(log_of(arguments))]
        runs = [json.loads(subprocess.check_output(command, cwd=ROOT)) for _ in range(ROUNDS)]
        best = min(runs, key=lambda run: run["seconds"])
        results[name] = {what: round(value, 2) for what, value in best.items()}
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
