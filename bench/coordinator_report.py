"""The cells as tables: load with rate and latency side by side, the rest one figure a row."""

import sys
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.coordinator_cells import P50, P99, RATE, Cell, Figure, shown, shown_aim, unreached

QUIET_CORES = 0.2


def print_cells(cells: list[Cell], run: dict[str, Any]) -> None:
    console = Console(width=150 if not sys.stdout.isatty() else None)
    title = f"muster beside Kafka {run['kafka']}, {run['cores']} cores, {run['plan']['name']}, {run['minutes']:.1f} min"
    console.print(title)
    if loads := [cell for cell in cells if RATE in cell.figures]:
        console.print(_loads(loads))
    if others := [cell for cell in cells if RATE not in cell.figures]:
        console.print(_others(others))
    console.print(f"fdatasync of a small append on this disk: p50 {run['fdatasync_p50_us']:,.0f} µs")
    console.print(_busy(cells, run))
    missed = unreached(cells)
    aims = sum(len(cell.aims) for cell in cells)
    console.print(f"{aims - len(missed)} of {aims} aims reached" + "".join(f"\n  not yet: {line}" for line in missed))


def _loads(cells: list[Cell]) -> Table:
    table = Table()
    table.add_column("work")
    for heading in ("muster", "p50 / p99 ms", "Kafka", "p50 / p99 ms", "×", "×/CPU s", "aim", "reached", "other"):
        table.add_column(heading, justify="right", no_wrap=True)
    for cell in cells:
        ours, theirs = (shown(RATE, rate) for rate in cell.medians(RATE))
        (our_p50, their_p50), (our_p99, their_p99) = cell.medians(P50), cell.medians(P99)
        aimed = [figure for figure in cell.figures if figure.key in cell.aims]
        aims = ", ".join(
            ("p50 " if figure is P50 else "") + shown_aim(figure, cell.aims[figure.key]) for figure in aimed
        )
        verdict = ", ".join(_verdict(cell, figure) for figure in aimed)
        table.add_row(
            cell.work,
            *(ours, _latency(our_p50, our_p99), theirs, _latency(their_p50, their_p99)),
            *(_times(cell.times_better(RATE)), _times(cell.times_cheaper()), aims, verdict, _cores(cell)),
        )
    return table


def _others(cells: list[Cell]) -> Table:
    table = Table()
    table.add_column("work")
    for heading in ("muster", "Kafka", "× better", "aim", "reached", "other cores"):
        table.add_column(heading, justify="right", no_wrap=True)
    for cell in cells:
        for number, figure in enumerate(cell.figures):
            ours, theirs = cell.medians(figure)
            aim = shown_aim(figure, cell.aims[figure.key]) if figure.key in cell.aims else ""
            table.add_row(
                cell.work if number == 0 else "",
                *(
                    shown(figure, ours),
                    shown(figure, theirs),
                    _times(cell.times_better(figure)),
                    aim,
                    _verdict(cell, figure),
                ),
                _cores(cell) if number == 0 else "",
            )
    return table


def _latency(p50_us: float, p99_us: float) -> str:
    return " / ".join(f"{each / 1000:.0f}" if each >= 10_000 else f"{each / 1000:.2f}" for each in (p50_us, p99_us))


def _cores(cell: Cell) -> str:
    return "" if cell.other_cores is None else f"{cell.other_cores:.1f}"


def _times(times: float | None) -> str:
    return "" if times is None else f"{times:.1f}"


def _verdict(cell: Cell, figure: Figure) -> str:
    return {True: "yes", False: "no", None: ""}[cell.is_reached(figure)]


def _busy(cells: list[Cell], run: dict[str, Any]) -> str:
    """Whether the figures are worth anything."""
    busiest = max((cell.other_cores for cell in cells if cell.other_cores is not None), default=0.0)
    load = f"load average before the run {run['load_before']:.1f}, other work up to {busiest:.1f} cores during it"
    if busiest <= QUIET_CORES:
        return f"The machine was quiet: {load}."
    return f"The machine was busy, so these are lower bounds: {load}."
