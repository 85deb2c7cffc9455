"""Reading a generated offsets topic: muster beside kafka-dump-log on the same files."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench import measure

ROOT = Path(__file__).parent.parent
CACHE = ROOT / ".cache" / "bench"


class Line(NamedTuple):
    """One row of the report."""

    work: str
    records: int
    seconds: float
    peak_rss_mb: float
    note: str = ""

    @property
    def records_per_s(self) -> float:
        return self.records / self.seconds


def topic(records: int, value_version: int = 4, seed: int = 1) -> Path:
    """A generated topic, kept for the next run."""
    folder = CACHE / f"{records}-v{value_version}-seed{seed}"
    if not (folder / "expected.json").exists():
        print(f"generating {records:,} records …", file=sys.stderr)
        arguments = ["--records", records, "--value-version", value_version, "--seed", seed, "--out", folder]
        subprocess.run([sys.executable, ROOT / "bench" / "make_large.py", *map(str, arguments)], check=True)
    return folder


def muster(folder: Path, records: int) -> Iterator[Line]:
    """The command as users run it, each in a process of its own, start-up included."""
    dump = [sys.executable, "-m", "muster", "dump", str(folder), "--no-progress"]
    for name, arguments in {
        "muster dump --summary": ["--summary"],
        "muster dump --format text": ["--format", "text"],
        "muster dump --format json": ["--format", "json"],
    }.items():
        cost = measure.run([*dump, *arguments], repeat=3)
        yield Line(name, records, cost.wall_s, cost.peak_rss_mb)
    for name, work, note in (
        ("columns, bytes in memory", "decode", "one thread, CRC checked"),
        ("columns, from files", "read", "one thread, markers read first"),
        ("newest per key, from files", "latest", "one thread"),
    ):
        command = [sys.executable, "-m", "bench.columnar", work, str(folder)]
        result = json.loads(subprocess.check_output(command, cwd=ROOT))
        cost = measure.run(command)
        yield Line(name, result["records"], result["median_s"], cost.peak_rss_mb, note)


def kafka(folder: Path, records: int) -> Line:
    """Kafka's own tool on the same segments, with the JVM free to optimise."""
    from tests.kit.kafka import resolve

    release = resolve()
    segments = ",".join(str(path) for path in sorted(folder.glob("*/*.log")))
    command = [
        str(release.java), "-Xmx1g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", f"{release.libs}/*",
        release.dump_log_class, "--offsets-decoder", "--print-data-log", "--files", segments,
    ]  # fmt: skip
    cost = measure.run(command)
    return Line(f"kafka-dump-log {release.version}", records, cost.wall_s, cost.peak_rss_mb, "--offsets-decoder")
