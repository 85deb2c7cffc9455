"""What the driver asks of a task, and what a task reports back. All of it is picklable, and small but for packets."""

from typing import NamedTuple

from muster.pipeline.packets import Packet
from muster.tables.storage.files import WrittenFile


class SegmentFiles(NamedTuple):
    """One partition as directories of segments: the replica that leads first, others of the same log after it.

    `epochs` is the leader's lineage, (leader epoch, its first offset) in rising order; a replica's record counts only
    where the lineage agrees with the epoch it was written under.
    """

    directories: tuple[str, ...]
    epochs: tuple[tuple[int, int], ...]
    storage_options: tuple[tuple[str, str], ...] = ()


class LiveLog(NamedTuple):
    """One partition of a live cluster; `config` are a client's properties by librdkafka's names."""

    config: tuple[tuple[str, str], ...]
    topic: str


class PartitionWork(NamedTuple):
    """One partition of the offsets topic, and from where on it is new."""

    offsets_partition: int
    source: SegmentFiles | LiveLog
    from_offset: int
    to_offset: int | None
    """Where the log ended when the run was planned; None reads whatever is there. Of a copy in an object store, whose
    end is not known then, an offset beyond any (`offsets_topic.UNKNOWN_END`)."""
    state_from_scratch: bool
    """The log was truncated: it is read from its beginning, since what the last run left tells of commits that are cut
    off. Its winners come from a second reading."""
    size_bytes: int
    is_first: bool = True
    """What is before the range is in the tables; False: it is in another piece (`pipeline/pieces.py`)."""
    range_end: int | None = None
    """Of a piece that another one follows: where the last of them ends."""
    landmarks: tuple[tuple[int, int], ...] = ()
    """Of files: records before the range, by which the log is known again where planning could not look into it."""


class ExtractContext(NamedTuple):
    """What all tasks of one reading share."""

    run_id: str
    tables: str
    """Root of the tables: files of a table go to `<tables>/<table>/`."""
    storage_options: tuple[tuple[str, str], ...]
    history: bool
    """False: winners only, no history is written."""
    with_ended: bool
    """Send all commits of transactions that have ended as winners, too: where tables keep history and a partition is
    read again for its state alone. Nothing else would tell how those ended that earlier runs left open."""
    offsets_retention_ms: int
    topic_names: tuple[tuple[str, str], ...]
    """Topic id (as Kafka prints it) to name, for assignments that have ids only."""
    previous_offsets: tuple[str, ...]
    """Files of the `offsets` table before this run: what a deletion in the new range may delete."""
    previous_activity: tuple[str, ...] = ()
    """Files of the `activity` table: when groups committed before the new range."""
    progress: str | None = None
    """A directory where tasks write down how much they have read; None: the progress is not shown."""


class PartitionReport(NamedTuple):
    """What one partition gave."""

    offsets_partition: int
    log_start_offset: int
    next_offset: int
    """Progress: the first offset not read yet."""
    leader_epoch: int
    """Of the last batch read; where none was, the last that the log's own list of epochs has; -1 without any."""
    records: int
    gaps: int
    """Offsets of the range without a record: the cleaner, an aborted rest, or damage took them."""
    complete_since_offset: int
    """From here on nothing is missing in what this run has read."""
    complete_since_ms: int | None
    newest_timestamp_ms: int | None
    unread: int
    damage: tuple[str, ...]
    size_bytes: int
    landmarks: tuple[tuple[int, int], ...] = ()
    """Some of the records (`pipeline/plan.py`)."""
    dated_ahead: int | None = None
    """The latest time that cannot be, as others far earlier stand behind it; it is not `newest_timestamp_ms`."""
    from_offset: int = 0
    """Where the range begins."""
    last_timestamp_ms: int | None = None
    """Of the last record."""
    has_batches: bool = True
    """False: no batch was met, and the leader epoch is from elsewhere."""
    untold_damage: int = 0
    """Damaged places beyond those that are told."""
    ends_before: int | None = None
    """Of a copy that had to be fetched: where it ends, if it is older than what was read before."""


class Extracted(NamedTuple):
    """The answer of one task: files of history, what each partition gave, and the rows that the merge needs."""

    files: tuple[WrittenFile, ...]
    reports: tuple[PartitionReport, ...]
    packets: tuple[Packet, ...]
    """They travel by themselves: the driver sees none."""
    packet_rows: int = 0
    """How many rows those have."""
