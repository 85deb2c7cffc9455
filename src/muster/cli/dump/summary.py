"""A summary for people: panels and tables on a terminal, the same without colours and boxes in a pipe."""

import io
import sys
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from muster.cli.people import shown, shown_time
from muster.tables.clocks import zone_name

if TYPE_CHECKING:
    from muster.segments.summary import RecordCount, SummaryResult

LISTED_PARTITIONS = 50
LISTED_TRANSACTIONS = 20
WIDTH_OF_A_PIPE = 120


def summary_text(result: "SummaryResult") -> bytes:
    """What to print; fancy when stdout is a terminal."""
    is_terminal = sys.stdout.isatty()
    text = io.StringIO()
    console = Console(
        file=text,
        width=min(Console().width, 140) if is_terminal else WIDTH_OF_A_PIPE,
        force_terminal=is_terminal,
        highlight=False,
    )
    for part in _parts(result, is_terminal):
        console.print(part)
    lines = (line.rstrip() for line in text.getvalue().splitlines())
    return ("\n".join(lines).strip("\n") + "\n").encode("utf-8", "replace")


def _parts(result: "SummaryResult", fancy: bool) -> Iterator[RenderableType]:
    yield _facts(result, fancy)
    yield _titled("Records", _records(result, fancy), fancy)
    yield _titled("Batches", _batches(result, fancy), fancy)
    if result.busiest_groups:
        yield _titled("Busiest groups", _groups(result, fancy), fancy)
    yield _titled("Partitions", _partitions(result, fancy), fancy)
    if result.open_transactions:
        yield _titled("Open transactions", _open_transactions(result, fancy), fancy)


def _titled(title: str, body: RenderableType, fancy: bool) -> RenderableType:
    return Group(Text(f"\n{title}", style="bold" if fancy else ""), body)


def _table(fancy: bool) -> Table:
    return Table(
        box=box.SIMPLE_HEAD if fancy else None,
        pad_edge=False,
        padding=(0, 1 if fancy else 2, 0, 0),
        header_style="dim" if fancy else "",
    )


def _facts(result: "SummaryResult", fancy: bool) -> RenderableType:
    """The few numbers that one wants first."""
    totals = result.totals
    first, last = shown_time(result.first_timestamp_ms), shown_time(result.last_timestamp_ms)
    missing = totals["missing_between_batches"] + totals["missing_inside_batches"]
    facts = {
        "records": f"{totals['records']:,} ({result.tombstones:,} tombstones)",
        "groups": f"{result.distinct_groups:,}",
        "written": f"{first} to {last} {zone_name()}" if first else "nothing",
        "partitions": f"{totals['partitions']:,} in {totals['segments']:,} segments, {shown_size(totals['bytes'])}",
        "batches": f"{totals['batches']:,}, {totals['emptied_batches']:,} of them emptied by compaction",
        "compacted away": f"{missing:,} offsets; {totals['gaps']:,} gaps between batches",
        "transactions": (
            f"{result.committed_transactions:,} committed, {result.aborted_transactions:,} aborted, "
            f"{len(result.open_transactions):,} open"
        ),
        "damage": f"{len(result.damage):,} places" if result.damage else "none",
    }
    if result.unknown_records or result.unreadable_records:
        facts["not understood"] = (
            f"{result.unknown_records:,} of unknown types, {result.unreadable_records:,} unreadable"
        )
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim" if fancy else "", justify="right" if fancy else "left")
    grid.add_column()
    for name, fact in facts.items():
        alarming = name in ("damage", "not understood") and fact != "none"
        grid.add_row(name, Text(fact, style="bold red" if alarming and fancy else ""))
    return Panel(grid, title="__consumer_offsets", border_style="cyan", expand=False, padding=(1, 2)) if fancy else grid


def _records(result: "SummaryResult", fancy: bool) -> RenderableType:
    """By type, version, tombstone and codec; the magic is left to the table of batches."""
    counts: dict[tuple[str, str, str, str], int] = defaultdict(int)
    for count in result.record_counts:
        counts[_shown_type(count), count.name, _shown_version(count), count.codec] += count.records
    table = _table(fancy)
    table.add_column("type", justify="right")
    table.add_column("name")
    table.add_column("value")
    table.add_column("codec")
    table.add_column("records", justify="right")
    table.add_column("share", justify="right")
    if fancy:
        table.add_column("")
    total = sum(counts.values())
    for (number, name, version, codec), records in counts.items():
        cells = [number, name, version, codec, f"{records:,}", f"{records / total:.1%}"]
        style = "dim" if version == "tombstone" and fancy else ""
        table.add_row(*cells, *([_bar(records / total)] if fancy else []), style=style)
    return table


def _shown_type(count: "RecordCount") -> str:
    return "" if count.record_type is None else str(count.record_type)


def _shown_version(count: "RecordCount") -> str:
    if count.marker is not None:
        return count.marker
    if count.is_tombstone:
        return "tombstone"
    return "?" if count.value_version is None else f"v{count.value_version}"


def _bar(share: float) -> Text:
    eighths = max(round(share * 160), 1)
    return Text("█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip(), style="cyan")


def _batches(result: "SummaryResult", fancy: bool) -> RenderableType:
    table = _table(fancy)
    table.add_column("format")
    table.add_column("codec")
    table.add_column("kind")
    table.add_column("batches", justify="right")
    for count in result.batch_counts:
        flags = {
            "transactional": count.is_transactional and not count.is_control,
            "marker": count.is_control,
            "emptied": count.is_empty,
            "damaged": count.is_damaged,
        }
        words = ", ".join(word for word, holds in flags.items() if holds) or "plain"
        table.add_row(f"magic {count.magic}", count.codec, words, f"{count.batches:,}")
    return table


def _groups(result: "SummaryResult", fancy: bool) -> RenderableType:
    table = _table(fancy)
    table.add_column("group", overflow="ellipsis", no_wrap=True)
    table.add_column("records", justify="right")
    for group, records in result.busiest_groups:
        table.add_row(Text(shown(group)), f"{records:,}")
    return table


def _partitions(result: "SummaryResult", fancy: bool) -> RenderableType:
    table = _table(fancy)
    table.add_column("partition", overflow="ellipsis", no_wrap=True)
    for title in ("segments", "batches", "records", "size", "offsets", "gaps", "missing", "damaged"):
        table.add_column(title, justify="right", no_wrap=True)
    for partition in result.partitions[:LISTED_PARTITIONS]:
        span = "" if partition.first_offset is None else f"{partition.first_offset}..{(partition.next_offset or 0) - 1}"
        missing = partition.missing_between_batches + partition.missing_inside_batches
        table.add_row(
            Text(shown(partition.name)), f"{partition.segments:,}", f"{partition.batches:,}", f"{partition.records:,}",
            shown_size(partition.bytes), span, f"{partition.gaps:,}", f"{missing:,}", f"{partition.damaged_batches:,}",
        )  # fmt: skip
    left = len(result.partitions) - LISTED_PARTITIONS
    return Group(table, Text(f"and {left:,} more; --json lists all")) if left > 0 else table


def _open_transactions(result: "SummaryResult", fancy: bool) -> RenderableType:
    table = _table(fancy)
    table.add_column("partition", no_wrap=True)
    table.add_column("producer", justify="right", no_wrap=True)
    table.add_column("first offset", justify="right", no_wrap=True)
    table.add_column(f"since ({zone_name()})", no_wrap=True)
    table.add_column("records", justify="right", no_wrap=True)
    table.add_column("groups")  # what is left of the width
    for transaction in result.open_transactions[:LISTED_TRANSACTIONS]:
        table.add_row(
            transaction.partition, str(transaction.producer_id), str(transaction.first_offset),
            shown_time(transaction.since_ms), f"{transaction.records:,}", Text(shown(", ".join(transaction.groups))),
        )  # fmt: skip
    left = len(result.open_transactions) - LISTED_TRANSACTIONS
    return Group(table, Text(f"and {left:,} more; --json lists all")) if left > 0 else table


def shown_size(size_bytes: int) -> str:
    """A size in the unit that fits it."""
    size = float(size_bytes)
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            break
        size /= 1000
    return f"{size_bytes} B" if unit == "B" else f"{size:.1f} {unit}"
