"""What muster makes of an offsets topic that a real Kafka 4.3.0 left behind: `make demo`.

Ends with 0 only if what was read off the files is what that broker's own Admin API said just before it stopped.
"""

import json
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from muster.log.columns import record_batches
from muster.log.reader import Damage, read_partition
from muster.log.sources import Sources
from muster.log.summary import Summary

CORPUS = Path(__file__).parent.parent / "tests" / "corpus" / "k43-all"
Key = tuple[str, str]
Offset = tuple[int, str]

console = Console(width=None if sys.stdout.isatty() else 100, highlight=False)


def main() -> int:
    archive = CORPUS / "k43-all.tar.zst"
    console.print(f"\n[bold]muster dump {archive.relative_to(CORPUS.parents[2])}[/]  — a broker's log directory\n")
    show_what_is_there(archive)
    in_force, open_commits = offsets_in_force(archive)
    show_some_groups(in_force)
    for group, topic in sorted(open_commits):
        console.print(f"  [yellow]{group}[/] has a commit for {topic} waiting for its transaction to end")
    return check(in_force)


def show_what_is_there(archive: Path) -> None:
    """A few lines out of `muster dump --summary`."""
    from muster.codec.columns.chunks import Scratch

    summary, damage = Summary(), list[Damage]()
    with Sources([archive]) as sources:
        for partition in sources.partitions:
            for piece in read_partition(partition, Scratch(), damage):
                summary.add(piece)
    result = summary.result(damage)
    kinds: dict[str, list[int]] = {}
    for count in result.record_counts:
        kinds.setdefault(count.name, [0, 0])[count.is_tombstone] += count.records
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for heading in ("record", "written", "deleted"):
        table.add_column(heading, justify="left" if heading == "record" else "right")
    for name, (written, deleted) in sorted(kinds.items(), key=lambda item: -sum(item[1]))[:9]:
        table.add_row(name, str(written), f"[dim]{deleted or ''}[/]")
    console.print(table)
    console.print(
        f"\n{result.totals['records']:,} records of {result.distinct_groups} groups; {len(kinds)} kinds in all, "
        f"{'no' if not damage else len(damage)} damage.\n"
    )


def offsets_in_force(archive: Path) -> tuple[dict[Key, Offset], set[Key]]:
    """The committed offsets as a coordinator would load them, and what open transactions would add.

    The newest record of a key wins by its place in the log; a commit in a transaction counts if it was committed.
    """
    newest: dict[Key, tuple[int, Offset | None]] = {}
    still_open = set()
    for batch in record_batches(archive, latest=True):
        for row in batch.to_pylist():
            if row["topic"] is None:
                continue
            key = row["group_id"], f"{row['topic']}-{row['partition']}"
            if row["txn_outcome"] == "open":
                still_open.add(key)
            if row["txn_outcome"] in ("open", "aborted") or newest.get(key, (-1, None))[0] > row["log_offset"]:
                continue
            value = None if row["is_tombstone"] else (row["committed_offset"], row["metadata"])
            newest[key] = row["log_offset"], value
    return {key: value for key, (_, value) in newest.items() if value is not None}, still_open


def show_some_groups(in_force: dict[Key, Offset]) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for heading in ("group", "topic-partition", "offset", "metadata"):
        table.add_column(heading, justify="right" if heading == "offset" else "left", no_wrap=True, max_width=36)
    shown = [key for key in sorted(in_force) if key[0] in ("billing", "next-gen", "streams-copy", "warehouse-static")]
    for group, topic in shown:
        offset, metadata = in_force[group, topic]
        table.add_row(group, topic, str(offset), f"[dim]{metadata}[/]")
    console.print(table)
    console.print()


def check(in_force: dict[Key, Offset]) -> int:
    """Compare with what the broker answered through its Admin API."""
    groups: list[dict[str, Any]] = json.loads((CORPUS / "expected" / "groups.json").read_text())["groups"]
    answered = {
        (group["groupId"], topic): (offset["offset"], offset["metadata"])
        for group in groups
        for topic, offset in (group.get("committed") or {}).items()
    }
    if in_force != answered:
        different = sorted(in_force.items() ^ answered.items())
        console.print(f"[red]not what the broker said[/]: {different[:5]}")
        return 1
    console.print(
        f"\n[green]✓[/] all {len(answered)} committed offsets of {len({group for group, _ in answered})} groups are "
        "what the broker itself answered before it stopped\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
