"""What is compared, what we aim for, and the verdict: pure figures, no process and no clock."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Result = dict[str, Any]


class Figure(NamedTuple):
    """One number of a result: where it stands, how it is shown, and which way is better."""

    key: str
    unit: str
    more_is_better: bool = False


RATE = Figure("rate", "/s", more_is_better=True)
P50 = Figure("p50_us", "µs")
P99 = Figure("p99_us", "µs")
JOIN = Figure("join_ms", "ms")
START = Figure("api_ms", "ms")
ALL_GROUPS = Figure("all_groups_ms", "ms")
IDLE_RSS = Figure("rss_mb", "MB")
LOADED_RSS = Figure("rss_loaded_mb", "MB")
HOLDING_RSS = Figure("rss_after_mb", "MB")
CONNECTION = Figure("kb_per_conn", "KB each")
MISSING = Figure("missing_offsets", "missing")
STALE = Figure("stale_offsets", "stale")


@dataclass(slots=True)
class Cell:
    """The same work on both servers, as often as it was repeated."""

    work: str
    figures: tuple[Figure, ...]
    aims: dict[str, float] = field(default_factory=dict)  # by key of a figure
    muster: list[Result] = field(default_factory=list)
    kafka: list[Result] = field(default_factory=list)

    def medians(self, figure: Figure) -> tuple[float, float]:
        return median(self.muster, figure), median(self.kafka, figure)

    def times_better(self, figure: Figure) -> float | None:
        """How many times better muster is; below 1 it is worse. None where there is nothing to divide."""
        ours, theirs = self.medians(figure)
        above, below = (ours, theirs) if figure.more_is_better else (theirs, ours)
        return above / below if below > 0 and above > 0 else None

    def times_cheaper(self) -> float | None:
        """Requests for a second of the server's CPU, beside Kafka's: what a busy machine distorts least."""
        ours, theirs = (
            [each["requests"] / each["server_cpu_s"] for each in results if each.get("server_cpu_s")]
            for results in (self.muster, self.kafka)
        )
        return statistics.median(ours) / statistics.median(theirs) if ours and theirs else None

    def is_reached(self, figure: Figure) -> bool | None:
        """Whether the median of muster is as good as its aim; None where there is none."""
        aim = self.aims.get(figure.key)
        if aim is None:
            return None
        ours = median(self.muster, figure)
        return ours >= aim if figure.more_is_better else ours <= aim

    @property
    def other_cores(self) -> float | None:
        """The busiest the rest of the machine was: above 0.2 the wall-clock figures are lower bounds only.

        None where it was not looked at: half a second is too short to tell.
        """
        return max(
            (result["other_cores"] for result in (*self.muster, *self.kafka) if "other_cores" in result), default=None
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "work": self.work,
            "figures": {
                figure.key: {
                    "muster": self.medians(figure)[0],
                    "kafka": self.medians(figure)[1],
                    "times_better": self.times_better(figure),
                    "aim": self.aims.get(figure.key),
                    "reached": self.is_reached(figure),
                }
                for figure in self.figures
            },
            "other_cores": self.other_cores,
            "repetitions": {"muster": self.muster, "kafka": self.kafka},
        }


def median(results: Sequence[Result], figure: Figure) -> float:
    return float(statistics.median(result[figure.key] for result in results))


class Shape(NamedTuple):
    """Connections, and requests in flight on each."""

    conns: int
    depth: int

    def __str__(self) -> str:
        return f"{self.conns} × {self.depth}"


BUSY, ALONE = Shape(16, 32), Shape(1, 1)
JOIN_AIMS_MS = {10: 3.0, 100: 15.0, 1_000: 120.0}


def load_cell(api: str, shape: Shape, durability: str, fdatasync_us: float) -> Cell:
    """`durability` is `page cache` or `fsync` for a commit, and empty for what writes nothing."""
    aims: dict[tuple[str, str, Shape], dict[str, float]] = {
        ("commit", "page cache", BUSY): {"rate": 80_000},
        ("commit", "fsync", BUSY): {"rate": 40_000},
        ("heartbeat", "", BUSY): {"rate": 90_000},
        ("fetch", "", BUSY): {"rate": 80_000},
        ("commit", "page cache", ALONE): {"p50_us": 150},
        ("commit", "fsync", ALONE): {"p50_us": 1.5 * fdatasync_us},
    }
    name = {"commit": "OffsetCommit", "heartbeat": "Heartbeat", "fetch": "OffsetFetch"}[api]
    work = f"{name} {shape}" + (f", {durability}" if durability else "")
    return Cell(work, (RATE, P50, P99), aims.get((api, durability, shape), {}))


def rebalance_cell(members: int) -> Cell:
    return Cell(f"one more joins {members:,} members", (JOIN,), {"join_ms": JOIN_AIMS_MS[members]})


def start_cell() -> Cell:
    return Cell("start to first answer, and idle", (START, IDLE_RSS), {"api_ms": 300, "rss_mb": 60})


def restart_cell(how: str, offsets: int, rounds: int) -> Cell:
    """Not only quick: an offset that is missing or old makes the speed worthless, so their aim is none."""
    millions = f"{offsets / 1e6:.0f} M offsets in {offsets * rounds / 1e6:.0f} M records"
    work = f"restart after {how}, {millions}"
    aims = {"all_groups_ms": 2_000.0, "rss_loaded_mb": 400.0, "missing_offsets": 0.0, "stale_offsets": 0.0}
    return Cell(work, (ALL_GROUPS, LOADED_RSS, MISSING, STALE), aims)


def idle_cells(conns: int) -> tuple[Cell, Cell]:
    return (
        Cell(f"{conns:,} idle connections", (HOLDING_RSS, CONNECTION)),
        Cell(f"OffsetCommit 1 × 1, page cache, beside {conns:,} idle", (RATE, P50, P99)),
    )


def unreached(cells: Iterable[Cell]) -> list[str]:
    """What is still missing, one line each."""
    return [
        f"{cell.work}: {shown(figure, cell.medians(figure)[0])}, aim {shown_aim(figure, cell.aims[figure.key])}"
        for cell in cells
        for figure in cell.figures
        if cell.is_reached(figure) is False
    ]


def shown(figure: Figure, value: float) -> str:
    """A figure with its unit, in at most a handful of digits."""
    if figure.unit == "ms" and value >= 1_000:
        return f"{value / 1_000:.2f} s"
    if figure.unit == "/s" and value >= 10_000:
        return f"{value / 1_000:.1f} k/s"
    return f"{value:,.0f} {figure.unit}" if value >= 100 or value == int(value) else f"{value:.1f} {figure.unit}"


def shown_aim(figure: Figure, aim: float) -> str:
    if aim == 0:
        return "none"
    return f"{'≥' if figure.more_is_better else '≤'} {shown(figure, aim)}"
