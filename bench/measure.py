"""Run a command and say what it cost: wall time, CPU time and peak memory of the whole child process."""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple


class Cost(NamedTuple):
    """What one run of a child process took."""

    wall_s: float
    cpu_s: float
    peak_rss_mb: float


def run(command: Sequence[str], *, repeat: int = 1, limit_s: float = 600) -> Cost:
    """The median run (by wall time) of a command whose output is thrown away."""
    costs = [_once(command, limit_s) for _ in range(repeat)]
    middle = statistics.median_low(cost.wall_s for cost in costs)
    return next(cost for cost in costs if cost.wall_s == middle)


def _once(command: Sequence[str], limit_s: float) -> Cost:
    started = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as child:
        assert child.stderr is not None
        complaint = child.stderr.read()  # also waits for the end of the output
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    wall_s = time.perf_counter() - started
    if child.returncode != 0 or wall_s > limit_s:
        sys.exit(
            f"{' '.join(command)} ended with {child.returncode} after {wall_s:.0f} s:\n{complaint.decode()[-2000:]}"
        )
    peak = usage.ru_maxrss / 1024 if sys.platform != "darwin" else usage.ru_maxrss / 1024 / 1024
    return Cost(wall_s, usage.ru_utime + usage.ru_stime, peak)
