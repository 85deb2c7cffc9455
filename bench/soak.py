"""A server under constant churn for a long time: `python -m bench.soak --minutes 30`.

Ends with 0 if the server stayed as it was, with 1 if not, and with 2 if all that grew was latency on a machine that was
busy with other work, which proves nothing either way.

Members join and leave, groups are made, deleted, abandoned and expire, connections open and close, and the offsets
topic has segments so small that they are closed and compacted all the time. Every ten seconds one line: memory, latency
of a commit and of a heartbeat, bytes on disk, groups. At the end the first third is compared with the last third, after
a few minutes in which the server reaches its cruising height (what was committed first has to expire first).
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.kit.kafka import free_ports

from bench import coordinator_tool
from bench.coordinator_servers import Muster, ServerFailed, allow_open_files, ending, rss_mb, scratch
from bench.dump import CACHE

INTERVAL_S = 10
PARTITIONS = 8
SETTINGS = {
    "offsets.topic.num.partitions": "4",
    "offsets.topic.segment.bytes": str(64 * 1024),
    "offsets.retention.minutes": "1",
    "offsets.retention.check.interval.ms": "5000",
    "log.cleaner.backoff.ms": "2000",
    "log.cleaner.delete.retention.ms": "20000",
}

# A soak in which one of these never happened has soaked something else.
HAPPENINGS = (
    "offset_commits", "rebalances", "expired_members", "expired_offsets", "deleted_offsets", "removed_groups",
    "compactions",
)  # fmt: skip

REQUESTS = ("commit", "heartbeat", "fetch", "rebalance")
QUIET_CORES = 0.2


class Sample(NamedTuple):
    """What one interval looked like."""

    minute: float
    rss_mb: float
    commit_p50_us: float
    commit_p99_us: float
    commit_max_us: float
    heartbeat_p50_us: float
    heartbeat_p99_us: float
    log_mb: float
    groups: int
    cpu_us_per_request: float
    cpu_cores: float
    other_cores: float


class Flatness(NamedTuple):
    """One figure at the start and at the end of a soak."""

    name: str
    first: float
    last: float
    growth_allowed: float
    slack: float  # in the figure's own unit: what is within the noise however small the figure is

    @property
    def is_flat(self) -> bool:
        return self.last <= self.first * self.growth_allowed + self.slack

    def told(self) -> str:
        times = self.last / self.first if self.first else 1.0
        verdict = "flat" if self.is_flat else "NOT FLAT"
        return f"{self.name}: first third {self.first:.1f}, last third {self.last:.1f} ({times:.2f}×) {verdict}"


# How much more the last third may have than the first. Latency is at the mercy of whatever else the machine does, so it
# has room; memory is not.
LIMITS: dict[str, tuple[float, float]] = {
    "rss_mb": (1.05, 2.0),
    "commit_p50_us": (1.5, 100.0),
    "commit_p99_us": (2.0, 2_000.0),
    "heartbeat_p50_us": (1.5, 100.0),
    "heartbeat_p99_us": (2.0, 2_000.0),
    "cpu_us_per_request": (1.25, 50.0),
    "log_mb": (1.25, 1.0),
    "groups": (1.2, 10.0),
}


LATENCIES = ("commit_p50_us", "commit_p99_us", "heartbeat_p50_us", "heartbeat_p99_us")


def flatness(samples: Sequence[Sample]) -> list[Flatness]:
    """Medians of the first and of the last third."""
    third = len(samples) // 3
    if third == 0:
        raise ValueError(f"{len(samples)} samples are too few to compare a first third with a last one")
    return [
        Flatness(
            name,
            statistics.median(getattr(sample, name) for sample in samples[:third]),
            statistics.median(getattr(sample, name) for sample in samples[-third:]),
            growth_allowed,
            slack,
        )
        for name, (growth_allowed, slack) in LIMITS.items()
    ]


def log_bytes(data_dir: Path) -> int:
    """Everything under the data directory; compaction may take a file away while we look."""
    total = 0
    for path in data_dir.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue
    return total


def metric(port: int, name: str) -> float:
    """The sum of one of the server's metrics over its labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((f"{name} ", f"{name}{{")))


def churn(server: Muster, metrics_port: int, arguments: argparse.Namespace) -> Iterator[Sample]:
    """Drive the server; one sample for each line of the generator."""
    command = coordinator_tool.command(
        "churn", bootstrap=server.bootstrap, server_pid=server.pid, seconds=arguments.minutes * 60, interval=INTERVAL_S,
        conns=16, rate=arguments.rate, lives=arguments.lives, partitions=PARTITIONS, topic="soak",
    )  # fmt: skip
    started = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        try:
            for text in driver.stdout:
                line = json.loads(text)
                if line["errors"]:
                    raise coordinator_tool.ToolFailed(f"requests were answered with errors: {line['errors']}")
                yield Sample(
                    round((time.monotonic() - started) / 60, 2),
                    rss_mb(server.pid),
                    line["commit_p50_us"],
                    line["commit_p99_us"],
                    line["commit_max_us"],
                    line["heartbeat_p50_us"],
                    line["heartbeat_p99_us"],
                    log_bytes(server.data_dir) / 1e6,
                    round(metric(metrics_port, "muster_groups")),
                    line["server_cpu_s"] * 1e6 / sum(line.get(f"{name}_count", 0) for name in REQUESTS),
                    (line["server_cpu_s"] + line["client_cpu_s"]) / INTERVAL_S,
                    line["other_cores"],
                )
        finally:
            driver.kill()
    if driver.returncode > 0:
        raise coordinator_tool.ToolFailed(
            f"the load generator ended with {driver.returncode}; the server said last:\n{server.last_words()}"
        )


def soak(arguments: argparse.Namespace) -> int:
    """The exit code."""
    allow_open_files(4096)
    metrics_port = free_ports(1)[0]
    with scratch(CACHE / "coordinator", "soak") as folder:
        server = Muster(folder, SETTINGS, metrics_port=metrics_port)
        with ending(server):
            server.start()
            server.wait_until_ready()
            samples = []
            print(" ".join(f"{name:>16}" for name in Sample._fields), flush=True)
            for sample in churn(server, metrics_port, arguments):
                samples.append(sample)
                print(" ".join(f"{value:16.2f}" for value in sample), flush=True)
            told = {name: round(metric(metrics_port, f"muster_{name}_total")) for name in HAPPENINGS}
            server.stop()
    (CACHE / "soak.json").write_text(json.dumps([sample._asdict() for sample in samples]) + "\n", encoding="utf-8")
    return judge(samples, told, arguments)


def judge(samples: list[Sample], told: dict[str, int], arguments: argparse.Namespace) -> int:
    print("in all: " + ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in told.items()))
    idle = [name for name, count in told.items() if count == 0]
    if idle:
        print(f"this was not a soak: no {', '.join(idle)}")
        return 1
    settled = [sample for sample in samples if sample.minute > arguments.settle_minutes]
    figures = flatness(settled)
    for figure in figures:
        print(figure.told())
    other_cores = statistics.median(sample.other_cores for sample in settled)
    print(f"other work on the machine: {other_cores:.1f} cores")
    grown = [figure.name for figure in figures if not figure.is_flat]
    if grown and other_cores > QUIET_CORES and all(name in LATENCIES for name in grown):
        print("only latency grew, and the machine was busy: repeat it on a quiet one")
        return 2
    return 1 if grown else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description="A server under churn, for a long time.")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--settle-minutes", type=float, default=3, help="left out of the comparison")
    parser.add_argument("--rate", type=float, default=200, help="requests a second of members that stay")
    parser.add_argument("--lives", type=float, default=2, help="groups a second that come and go")
    try:
        return soak(parser.parse_args())
    except (coordinator_tool.ToolUnavailable, coordinator_tool.ToolFailed, ServerFailed) as problem:
        print(f"soak: {problem}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
