"""`Manifest`: the version of each table, the progress of each partition, and the source of one run."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa

from muster.errors import BadInput
from muster.tables.clocks import is_ahead

MANIFEST_TABLE = "_manifest"
"""Its directory, beside those of the tables."""

LIVE = "live cluster"
"""The kind of a source that was asked, not read from its files."""

FORMAT_VERSION = 2
"""Of the layout. In 1, moments were int64 of milliseconds, under names that end in `_ms`; no column had a comment."""

MANIFEST = pa.schema(
    [
        pa.field("run_id", pa.string()),
        pa.field("created_at_ms", pa.int64()),
        pa.field("format_version", pa.int32()),
        pa.field("tables", pa.map_(pa.string(), pa.int64())),
        pa.field("progress", pa.string()),
        pa.field("source", pa.string()),
        pa.field("upkeep", pa.string()),
    ]
)
"""The one row of the table `_manifest`."""


class PartitionProgress(NamedTuple):
    """How far one partition of the offsets topic has been read, and since when nothing is missing."""

    next_offset: int
    leader_epoch: int
    log_start_offset: int
    complete_since_offset: int
    complete_since_ms: int | None
    """None: complete from the first record ever on, or there is no record with a time."""
    newest_timestamp_ms: int | None
    landmarks: tuple[tuple[int, int], ...] = ()
    """Offset and timestamp of some records that were read, rising: by them the log is known again."""


class Dropped(NamedTuple):
    """What one run took out of the tables. Runs before it still name these files, so they stay for a while."""

    run_number: int
    at_ms: int
    """When the run was published."""
    files: Mapping[str, list[str]]
    """By table, names in its directory."""
    entries: Mapping[str, tuple[int, int]]
    """By table, the versions whose entries of Delta's log a new checkpoint replaces: the first, and the checkpoint."""


class Upkeep(NamedTuple):
    """What runs tell each other about keeping the tables small and quick to open."""

    checkpoints: Mapping[str, int] = MappingProxyType({})
    """By table, the version of its newest checkpoint; 0 where there is none yet."""
    dropped: tuple[Dropped, ...] = ()
    """What is to be removed one day, oldest first."""
    swept_at_ms: int | None = None
    """When directories were last looked through for files that no run has named."""
    buckets: Mapping[str, Mapping[str, list[str]]] = MappingProxyType({})
    """By state table and bucket, names of files, where a table is replaced bucket by bucket."""
    buckets_version: int = 0
    """Of the definitions by which all of them were made (`pipeline.buckets.VERSION`)."""

    def as_json(self) -> str:
        told = self._asdict() | {"dropped": [each._asdict() for each in self.dropped]}
        return json.dumps({name: dict(value) if isinstance(value, Mapping) else value for name, value in told.items()})


NO_UPKEEP = Upkeep()


@dataclass(frozen=True, slots=True)
class Manifest:
    """One run's result, as readers see it."""

    run_id: str
    created_at_ms: int
    tables: Mapping[str, int]
    """Name of a table to the version of it that belongs here."""
    progress: Mapping[int, PartitionProgress] = field(default_factory=dict)
    source: Mapping[str, Any] = field(default_factory=dict)
    """Which cluster it was: `cluster_id`, `kind`, topic names by id, and whatever else the run wants to find again."""
    upkeep: Upkeep = NO_UPKEEP

    @property
    def observed_at_ms(self) -> int:
        """When the run looked at its source: what was written later is not in the tables."""
        return int(self.source.get("observed_at_ms") or self.created_at_ms)

    @property
    def moment_ms(self) -> int:
        """Of which moment the tables are: when a live cluster was asked; of files that of the newest record in them, so
        a copy from long ago is as it was then.
        """
        return int(self.source.get("moment_ms") or self.observed_at_ms)

    @property
    def newest_record_ms(self) -> int | None:
        """The latest time of any record that was read."""
        times = [each.newest_timestamp_ms for each in self.progress.values() if each.newest_timestamp_ms is not None]
        return max(times, default=None)

    @property
    def now_ms(self) -> int:
        """What is shown as of now counts from here: `moment_ms`, or a newer record by a clock a little ahead."""
        newest_ms = self.newest_record_ms or 0
        return self.moment_ms if is_ahead(newest_ms, self.moment_ms) else max(newest_ms, self.moment_ms)

    @property
    def known_until_ms(self) -> int:
        """The last moment that the tables know: a broker's clock may be ahead of the one that runs were timed by."""
        return max(self.observed_at_ms, self.newest_record_ms or 0)

    @property
    def history_since_ms(self) -> int | None:
        """Rows of history from before this moment were dropped (`--keep-history`); None: none were."""
        found: int | None = (self.source.get("retention") or {}).get("since_ms")
        return found

    @property
    def damage(self) -> list[dict[str, Any]]:
        """What runs have found damaged lately (`of_logs.DAMAGE`)."""
        return list(self.source.get("damage") or ())

    @property
    def lists_all_topics(self) -> bool:
        """Whether the last run was told all topics of its cluster: the directories of some brokers do not tell."""
        return self.source.get("kind") == LIVE

    def as_row(self) -> pa.Table:
        """The manifest as it is stored."""
        row = {
            "run_id": self.run_id,
            "created_at_ms": self.created_at_ms,
            "format_version": FORMAT_VERSION,
            "tables": sorted(self.tables.items()),
            "progress": json.dumps({str(number): progress._asdict() for number, progress in self.progress.items()}),
            "source": json.dumps(dict(self.source)),
            "upkeep": self.upkeep.as_json(),
        }
        return pa.Table.from_pylist([row], schema=MANIFEST)


def manifest_of(row: Mapping[str, Any], address: str, layout: int = FORMAT_VERSION) -> Manifest:
    """A stored manifest of a layout; one of another is refused rather than half understood."""
    found = row["format_version"]
    if found > FORMAT_VERSION:
        raise BadInput(f"the tables at {address} have layout {found}, this muster knows {layout}. Use a newer muster.")
    if found != layout:
        raise BadInput(
            f"the tables at {address} have layout {found}, which an earlier muster wrote; this one works "
            f"with {layout}. `muster pipeline migrate --tables {address}` rewrites them."
        )
    progress = {int(number): _progress_of(fields) for number, fields in json.loads(row["progress"]).items()}
    source, upkeep = json.loads(row["source"]), _upkeep_of(json.loads(row.get("upkeep") or "{}"))
    return Manifest(row["run_id"], row["created_at_ms"], dict(row["tables"]), progress, source, upkeep)


def _upkeep_of(fields: Mapping[str, Any]) -> Upkeep:
    known = {name: fields[name] for name in Upkeep._fields if name in fields}
    known["dropped"] = tuple(_dropped_of(each) for each in fields.get("dropped", ()))
    return Upkeep(**known)


def _dropped_of(fields: Mapping[str, Any]) -> Dropped:
    entries = {table: (first, checkpoint) for table, (first, checkpoint) in fields["entries"].items()}
    return Dropped(fields["run_number"], fields["at_ms"], fields["files"], entries)


def _progress_of(fields: Mapping[str, Any]) -> PartitionProgress:
    known = {name: fields[name] for name in PartitionProgress._fields if name in fields}
    known["landmarks"] = tuple((offset, timestamp_ms) for offset, timestamp_ms in fields.get("landmarks", ()))
    return PartitionProgress(**known)
