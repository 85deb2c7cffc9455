"""Compaction of one partition of the offsets topic: a round over a log on disk, each in a process of its own.

A round runs in a thread, beside an event loop that answers a client in another process: what the client waits for an
answer says how much of the interpreter a round takes. "plain Python" is the judge of the tests, for comparison.

python -m bench.compaction                   every case, as JSON
python -m bench.compaction FOLDER [rows]     one round over a copy of FOLDER/__consumer_offsets-0
"""

import asyncio
import importlib
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from muster.log.compaction.cleaner import Job, Report, clean
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

FEW_KEYS = ["--records", "1000000"]
CASES = {
    "1 M records, few keys": (FEW_KEYS, []),
    "1 M records, many keys": (["--records", "1000000", "--groups", "12000", "--topics", "1500"], []),
    "50 k records": (["--records", "50000"], []),
    "1 M records, few keys, plain Python": (FEW_KEYS, ["rows"]),
}

CLIENT = """
import socket, sys, time
client = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
waits = []
while True:
    started = time.perf_counter()
    try:
        client.sendall(bytes(60))
        if not client.recv(100):
            break
    except ConnectionError:  # hung up on in the middle of a question
        break
    waits.append(time.perf_counter() - started)
    time.sleep(0.001)
waits.sort()
print(waits[len(waits) // 2] * 1000, waits[len(waits) * 99 // 100] * 1000, waits[-1] * 1000)
"""


def log_of(arguments: list[str]) -> Path:
    """A generated log, kept for the next run."""
    folder = CACHE / ("compaction" + "".join(arguments).replace("--", "-"))
    if not (folder / "expected.json").exists():
        print(f"generating {' '.join(arguments)} …", file=sys.stderr)
        fixed = ["--partitions", "1", "--segment-bytes", str(SEGMENT_BYTES), "--out", str(folder)]
        subprocess.run([sys.executable, ROOT / "bench" / "make_large.py", *arguments, *fixed], check=True)
    return folder


def one_round(folder: Path, *, by_rows: bool) -> dict[str, float]:
    """Open a copy of the log (which builds its indexes), and compact it once."""
    with tempfile.TemporaryDirectory(dir=CACHE) as name:
        root = Path(name)
        shutil.copytree(folder / str(KEY), root / str(KEY))
        log = DiskLog.open(root / str(KEY), LogConfig(segment_bytes=SEGMENT_BYTES, compacted=True))
        log.roll()
        before_mb = peak_rss_mb()
        import_s = time_of_import()
        cleaner = LogCleaner(root, {KEY: log}, lambda key: CompactionConfig(0.0))
        job = cleaner.next_job(int(time.time() * 1000))
        assert job is not None, list(cleaner.notes)
        result = asyncio.run(beside_a_client(cleaner, job, by_rows=by_rows)) | {
            "seconds to import the kernels": import_s,
            "peak RSS before, MB": before_mb,
            "peak RSS, MB": peak_rss_mb(),
        }
        log.close()
    return result


class Answers(asyncio.Protocol):
    """Answers every request after about as much Python as a heartbeat takes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        sum(range(1000))
        self.transport.write(data)


async def beside_a_client(cleaner: LogCleaner, job: Job, *, by_rows: bool) -> dict[str, float]:
    loop = asyncio.get_running_loop()
    answers = Answers()
    server = await loop.create_server(lambda: answers, "127.0.0.1", 0)
    command = [sys.executable, "-c", CLIENT, str(server.sockets[0].getsockname()[1])]
    client = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    await asyncio.sleep(0.3)
    if by_rows:
        from muster.log.compaction.rows import RowCompactor
    compactor: Any = RowCompactor(job.rules, job.aborted, job.memory_bytes) if by_rows else None
    started, started_cpu = time.perf_counter(), time.process_time()
    report = await loop.run_in_executor(None, lambda: clean(job, cleaner.swap, compactor=compactor))
    seconds, cpu_s = time.perf_counter() - started, time.process_time() - started_cpu
    answers.transport.close()
    server.close()
    output, _ = await client.communicate()
    waits = map(float, output.split())
    names = ("client's p50, ms", "client's p99, ms", "client's longest wait, ms")
    return told(report, seconds) | {"CPU seconds": cpu_s} | dict(zip(names, waits, strict=True))


def time_of_import() -> float:
    """Once in the life of a process, and not part of a round."""
    started = time.perf_counter()
    importlib.import_module("muster.log.compaction.compactor")
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
        print(json.dumps(one_round(Path(sys.argv[1]), by_rows="rows" in sys.argv)))
        return
    results = {}
    for name, (arguments, how) in CASES.items():
        command = [sys.executable, "-m", "bench.compaction", str(log_of(arguments)), *how]
        runs = [json.loads(subprocess.check_output(command, cwd=ROOT)) for _ in range(ROUNDS)]
        best = min(runs, key=lambda run: run["seconds"])
        results[name] = {what: round(value, 2) for what, value in best.items()}
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
