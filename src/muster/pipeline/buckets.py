"""State in buckets: a run merges and rewrites the partitions of the offsets topic in which something is new.

A partition is in the bucket of its number modulo how many there are. A bucket is merged by one task, and has a file of
its own in each state table (none where it has no rows). So what is quiet keeps its files, whatever its size.

How many there are follows from the rows to be merged. A merge of no rows takes about as long as one of 80,000: buckets
of fewer rows would cost more than they spare, and a small cluster has one. When their number changes, all are merged
once; so it follows the rows with some play.

So they are when a table has got a column, or another definition of one (`VERSION`): else rows of what is quiet would
keep NULL, or the value of an earlier release, for as long as it is quiet.

`lag` has no buckets: ends of the data move everywhere, and with them every row. It is measured anew from the buckets as
they are (`merge`).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from muster.tables.storage.changes import Run

ROWS_A_BUCKET = 200_000
QUIET_AT_ONCE = 8
"""Buckets whose lag is measured by one task: it takes an eighth of what a merge takes."""
NOT_IN_BUCKETS = "lag"
VERSION = 1
"""Of what state tables say. Raise it with every change of a definition that brings no new column: a new one shows."""


def count_of(rows: int, partitions: int, held: int | None) -> int:
    """How many buckets there are to be, for so many rows in all, where there were so many before."""
    wanted = max(1, min(-(-rows // ROWS_A_BUCKET), partitions))
    return held if held is not None and wanted <= held <= 2 * wanted else wanted


class HeldState(NamedTuple):
    """State tables before a run."""

    buckets: int | None
    """How many; None where they are not known, and all files stand under 0."""
    files: Mapping[str, Mapping[int, Sequence[str]]]
    """By table and bucket."""

    def of(self, table: str, partitions: Iterable[int]) -> tuple[str, ...]:
        """The files that may have rows of these partitions."""
        by_bucket = self.files[table]
        numbers = by_bucket if self.buckets is None else {number % self.buckets for number in partitions}
        return tuple(file for number in sorted(numbers) for file in by_bucket.get(number, ()))


def held(changes: Run, tables: Iterable[str]) -> HeldState:
    """What a run finds."""
    known = {table: changes.bucket_files(table, VERSION) for table in tables}
    counts = {None if files is None else len(files) for files in known.values()}
    count = counts.pop() if len(counts) == 1 else None
    if count:
        return HeldState(count, {table: files or {} for table, files in known.items()})
    return HeldState(None, {table: {0: changes.files(table)} for table in known})


class Shares(NamedTuple):
    """How partitions are shared out among tasks."""

    buckets: int
    """How many there are."""
    merged: Mapping[int, tuple[int, ...]]
    """By bucket, its partitions: those with something new, or all where the buckets are others than before."""
    quiet: tuple[tuple[int, ...], ...]
    """Partitions of the others, by task: their lag alone is measured."""


def shares(partitions: Sequence[int], new: Iterable[int], rows: int, held: int | None) -> Shares:
    """For all partitions there are, those with something new, about so many rows, and so many buckets before."""
    count = count_of(rows, len(partitions), held)
    buckets: dict[int, tuple[int, ...]] = dict.fromkeys(range(count), ())
    for number in partitions:
        buckets[number % count] += (number,)
    is_new = {number % count for number in (new if count == held else partitions)}
    quiet = [some for bucket, some in buckets.items() if some and bucket not in is_new]
    lots = [quiet[first : first + QUIET_AT_ONCE] for first in range(0, len(quiet), QUIET_AT_ONCE)]
    return Shares(
        count,
        {bucket: some for bucket, some in buckets.items() if bucket in is_new},
        tuple(tuple(number for some in lot for number in some) for lot in lots),
    )
