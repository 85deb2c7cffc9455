"""What a run is asked to do, and how it went."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from muster.errors import BadInput
from muster.pipeline.model import PartitionReport
from muster.segments.archives import DEFAULT_LIMIT, UnpackLimit
from muster.tables.clocks import shown
from muster.tables.sql.expiry import WEEK_MS
from muster.tables.sql.intervals import INTERVAL_MS
from muster.tables.storage.manifest import Manifest
from muster.tables.storage.upkeep import KEEP, Keep


@dataclass(frozen=True, slots=True)
class Request:
    """What a run is asked to do."""

    sources: Sequence[str]
    tables: str
    storage_options: Mapping[str, str] = field(default_factory=dict)
    kafka_config: Mapping[str, str] = field(default_factory=dict)
    history: bool = True
    """False keeps state tables only: quicker, and nothing is remembered."""
    offsets_retention_ms: int | None = None
    """`offsets.retention.minutes` of the cluster: tells expired offsets from deleted ones, and when others will expire.
    None: a live cluster is asked, else it is a week."""
    unpack_limit: UnpackLimit = DEFAULT_LIMIT
    """How much may come out of a source that is an archive."""
    accept_truncation: bool = False
    """Withdraw what the source's log does not have, even where no newer leader epoch says that it was cut."""
    keep: Keep = KEEP
    analytics: bool = True
    """False leaves tables by interval (`lag_history`, ...) and those that judge (`status`, ...) as they are."""
    interval_ms: int = INTERVAL_MS
    """Of `lag_history` and `rates`, where this run is the first to make them; tables keep the length that they have."""


@dataclass(slots=True)
class Summary:
    """How a run went."""

    run_id: str
    source: str
    cluster_id: str | None
    records: int = 0
    size_bytes: int = 0
    seconds: float = 0.0
    partitions: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    """Rows of each table, after the run."""
    new_rows: dict[str, int] = field(default_factory=dict)
    incomplete_partitions: int | None = None
    """Partitions whose log had lost records before it was first read; None where no history is kept."""
    complete_since_ms: int | None = None
    """Since when nothing is missing in any of them; None: nothing ever was, or it is not known."""
    dropped_rows: dict[str, int] = field(default_factory=dict)
    """Rows older than the history that is kept, which this run has dropped."""
    history_since_ms: int | None = None
    """Before this moment history was dropped, by this run or an earlier one; None: none was."""
    offsets_retention_ms: int = WEEK_MS
    offsets_retention_by: str = "default"
    """Who says so: `told`, by the request; the `broker`; or Kafka's own `default`."""
    notes: list[str] = field(default_factory=list)
    """Anything odd: damage, gaps, truncation, partitions that were left alone, what could not be read."""
    damaged: bool = False

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


def check_history(manifest: Manifest, request: Request) -> None:
    """Refuse a run with history over tables of state alone, and the other way round."""
    if manifest.source.get("history") and not request.history:
        raise BadInput(
            f"the tables in {request.tables} keep history, and a run of state alone would leave a hole in it. "
            "Run without --state-only, or write to another directory."
        )
    if manifest.source.get("history") is False and request.history:
        raise BadInput(
            f"the tables in {request.tables} are of state alone, and what was read for them is in no history. "
            "Run with --state-only, or write to another directory: that reads the whole log."
        )


def odd_things(report: PartitionReport, was_read_before: bool) -> list[str]:
    """What the notes of a run say about a partition."""
    notes = list(report.damage)
    if report.untold_damage:
        notes.append(f"{report.untold_damage} more places are damaged.")
    if report.unread:
        notes.append(
            f"partition {report.offsets_partition}: {report.unread} records of a kind or version unknown here are "
            "kept in group_records with their bytes."
        )
    if report.dated_ahead is not None:
        notes.append(
            f"partition {report.offsets_partition} has a record dated {shown(report.dated_ahead)}, and far earlier "
            "ones behind it: that time counts for nothing."
        )
    if report.ends_before is not None:
        notes.append(
            f"the copy of partition {report.offsets_partition} ends at offset {report.ends_before}, and it was read up "
            f"to {report.from_offset}: an older copy. What was read stays as it is."
        )
    if report.gaps and was_read_before:
        notes.append(
            f"partition {report.offsets_partition}: {report.gaps} offsets behind the last run have no record any "
            "more; its state was read from the whole log."
        )
    return notes
