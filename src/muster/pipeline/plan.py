"""What a run has to read: progress compared with what is there now. Pure.

History is withdrawn only on good grounds: a newer leader epoch says that the log was cut, or the user does. A log that
is merely shorter than what was read (an older copy, a follower that lags, a tail that a power cut took) is left alone
until it has caught up or a newer epoch says more. A log with other records than were read is not the same log.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa

from muster.errors import BadInput
from muster.pipeline.model import LiveLog, PartitionReport, PartitionWork, SegmentFiles
from muster.segments.sources import OFFSETS_TOPIC
from muster.tables.clocks import AHEAD_MS
from muster.tables.storage.manifest import Manifest
from muster.tables.storage.manifest import PartitionProgress as Progress

Landmark = tuple[int, int]
"""Offset and timestamp of a record."""


class Parting(NamedTuple):
    """Where a log differs from what was read."""

    log_offset: int
    """The first landmark that it has another record at."""
    agreed_until: int
    """Behind the last landmark before that; 0 where there is none."""


def thinned(landmarks: Iterable[Landmark]) -> tuple[Landmark, ...]:
    """The newest, and in every distance twice as far from it one: some thirty of any log, rising."""
    rising = sorted(set(landmarks))
    kept: dict[int, Landmark] = {}
    for landmark in rising:
        kept.setdefault((rising[-1][0] - landmark[0]).bit_length(), landmark)
    return tuple(kept.values())


def spread(count: int) -> list[int]:
    """Places in a list of so many records from which landmarks may be taken: the first, and more towards the end."""
    return sorted({0, *(count - (1 << power) for power in range(count.bit_length()))}) if count else []


SMALLEST_TASK_BYTES, LARGEST_TASK_BYTES = 64 << 20, 256 << 20
ENOUGH_TASKS = 16


def task_bytes(works: Iterable[PartitionWork]) -> int:
    """How many bytes of log a task should read: it follows from the work, not from the cores that happen to be up.

    Every cut costs something (headers behind the end of a piece are read twice, keys that occur on both sides are sent
    twice), so the tasks of a large log are larger.
    """
    in_all = sum(work.size_bytes for work in works)
    return min(max(in_all // ENOUGH_TASKS, SMALLEST_TASK_BYTES), LARGEST_TASK_BYTES)


class PartitionState(NamedTuple):
    """One partition of the offsets topic as the source has it now."""

    offsets_partition: int
    source: SegmentFiles | LiveLog
    log_start_offset: int
    log_end_offset: int
    epochs: tuple[tuple[int, int], ...]
    """(leader epoch, its first offset), rising; empty for a log without epochs."""
    size_bytes: int
    parting: Parting | None = None
    """Where it differs from what earlier runs read, if it does."""
    segments: tuple[tuple[int, int], ...] = ()
    """Of files: where each segment of the leading replica begins, and its bytes."""


Wanted = Mapping[tuple[str, int], Sequence[int]]
Times = Callable[[Wanted], pa.Table]
"""Timestamps of the records at these offsets of the data (`schemas.TIMES`); picklable."""


class Look(NamedTuple):
    """Where all logs of a cluster end, looked at once: the offsets topic's first, right after it the data's.

    In this order a group that is caught up is never beyond the data's end, and its lag is what was written in between.
    """

    partitions: list[PartitionState]
    log_ends: pa.Table
    """Of the data (`schemas.LOG_ENDS`), without the moment and the number of the run: those are for the run to say."""
    looked_at_ms: int
    """By the clock of this machine, between the two."""
    is_live: bool = False
    """False: the logs may be a copy from long ago."""
    offsets_retention_ms: int | None = None
    """`offsets.retention.minutes` of the cluster, where it tells."""
    unread: tuple[str, ...] = ()
    """Partitions of data whose ends are not known, since their files cannot be read: a sentence each."""


class Source(Protocol):
    """One cluster's offsets topic, and what is known of the data it speaks of."""

    kind: str
    cluster_id: str | None

    def partitions(self, known: Mapping[int, Progress]) -> list[PartitionState]:
        """Every partition; `known` is what earlier runs read of some of them."""

    def topic_names(self) -> dict[str, str]:
        """Topic id to name, as far as known."""

    def look(self, known: Mapping[int, Progress]) -> Look:
        """The partitions, and the ends of the data's logs at the same moment."""

    def times(self) -> Times:
        """How to ask for timestamps of records of the data, from any task."""

    def close(self) -> None: ...


class Cut(NamedTuple):
    """The log was truncated: what earlier runs read from `log_offset` on is no longer part of it."""

    offsets_partition: int
    log_offset: int
    is_accepted: bool = False
    """The user says so, and no newer leader epoch does."""


class Behind(NamedTuple):
    """The log ends before what was read, and nothing says that it was cut."""

    offsets_partition: int
    log_end_offset: int
    next_offset: int


class Conflict(NamedTuple):
    """The log has another record at an offset that was read, and nothing says that it was cut."""

    offsets_partition: int
    log_offset: int


class Plan(NamedTuple):
    works: tuple[PartitionWork, ...]
    cuts: tuple[Cut, ...] = ()
    behind: tuple[Behind, ...] = ()
    """Left as they are."""
    conflicts: tuple[Conflict, ...] = ()
    """With one of these nothing may be read at all."""
    missing: tuple[int, ...] = ()
    """Partitions that earlier runs read and the source does not have."""


def plan(states: Iterable[PartitionState], progress: Mapping[int, Progress], accept_truncation: bool = False) -> Plan:
    """Read each partition from where the last run stopped, or from where its log was cut.

    Progress is offset and leader epoch: after an unclean election another record can stand at an offset already read.
    """
    works, cuts, behind, conflicts = list[PartitionWork](), list[Cut](), list[Behind](), list[Conflict]()
    states = sorted(states)
    for state in states:
        known = progress.get(state.offsets_partition)
        from_offset = state.log_start_offset if known is None else known.next_offset
        found = None if known is None else _compared(state, known, accept_truncation)
        cut = None
        match found:
            case Behind():
                behind.append(found)
                continue
            case Conflict():
                conflicts.append(found)
                continue
            case Cut():
                cuts.append(found)
                cut = from_offset = found.log_offset
        if known is not None and cut is None and state.log_end_offset <= from_offset:
            continue
        works.append(
            PartitionWork(
                state.offsets_partition,
                state.source,
                from_offset,
                state.log_end_offset,
                cut is not None,
                _new_bytes(state, from_offset) if cut is None else state.size_bytes,
                landmarks=_landmarks_before(from_offset, state, known),
            )
        )
    missing = sorted(progress.keys() - {state.offsets_partition for state in states})
    return Plan(tuple(works), tuple(cuts), tuple(behind), tuple(conflicts), tuple(missing))


def _compared(state: PartitionState, known: Progress, accept_truncation: bool) -> Cut | Behind | Conflict | None:
    """How the log relates to what was read; None if it goes on from there."""
    number, end = state.offsets_partition, state.log_end_offset
    # The end of the last epoch that both have: from there on a newer leader has written.
    same_until = next((first for epoch, first in state.epochs if epoch > known.leader_epoch >= 0), known.next_offset)
    same_until = min(same_until, known.next_offset)
    parting = state.parting
    if parting is not None and parting.log_offset < same_until:
        if accept_truncation:
            return Cut(number, min(parting.agreed_until, end), True)
        return Conflict(number, parting.log_offset)
    if same_until < known.next_offset:
        return Cut(number, min(same_until, end))
    if end < known.next_offset:
        return Cut(number, end, True) if accept_truncation else Behind(number, end, known.next_offset)
    return None


def _landmarks_before(from_offset: int, state: PartitionState, known: Progress | None) -> tuple[Landmark, ...]:
    """What a task compares; a live log is known by its epochs and its topic's id."""
    if known is None or isinstance(state.source, LiveLog):
        return ()
    return tuple(landmark for landmark in known.landmarks if landmark[0] < from_offset)


def _new_bytes(state: PartitionState, from_offset: int) -> int:
    """A guess, for the progress bar and for packing: bytes spread evenly over offsets."""
    span = max(state.log_end_offset - state.log_start_offset, 1)
    new = max(state.log_end_offset - from_offset, 0)
    return max(state.size_bytes * min(new, span) // span, 1)


def packed(works: Sequence[PartitionWork], size_bytes: int) -> list[list[PartitionWork]]:
    """Tasks of about so many bytes each, largest works first: however many cores there are, or are going to be. A task
    costs a tenth of a second even when it has nothing to do, so small works share one.
    """
    tasks = -(-sum(work.size_bytes for work in works) // size_bytes)
    bins: list[list[PartitionWork]] = [[] for _ in range(max(1, min(tasks, len(works))))]
    sizes = [0] * len(bins)
    for work in sorted(works, key=lambda work: -work.size_bytes):
        lightest = sizes.index(min(sizes))
        bins[lightest].append(work)
        sizes[lightest] += work.size_bytes
    return [found for found in bins if found]


def advanced(known: Progress | None, report: PartitionReport) -> Progress:
    """Progress after a partition was read. Completeness holds on only where nothing was missing in between."""
    continues = known is not None and report.gaps == 0
    epoch = report.leader_epoch if report.records or known is None else known.leader_epoch
    newest, before = report.newest_timestamp_ms, known and known.newest_timestamp_ms
    if before is not None and (newest is None or newest < before <= newest + AHEAD_MS):
        newest = before
    return Progress(
        report.next_offset,
        epoch,
        report.log_start_offset,
        known.complete_since_offset if known is not None and continues else report.complete_since_offset,
        known.complete_since_ms if known is not None and continues else report.complete_since_ms,
        newest,
        thinned([*(known.landmarks if known is not None else ()), *report.landmarks]),
    )


def withdrawn(known: Progress, cut: Cut) -> Progress:
    """Progress without what a truncation has taken from the log."""
    left = tuple(landmark for landmark in known.landmarks if landmark[0] < cut.log_offset)
    return known._replace(landmarks=left)


MOST_TOPICS_GONE = 10_000


def remembered_topics(before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
    """Names of topics by id: those that there are, and the last that are gone. Records may still name these."""
    gone = [(topic_id, name) for topic_id, name in before.items() if topic_id not in now]
    return dict([*gone[-MOST_TOPICS_GONE:], *now.items()])


# Whether a source is the log that the tables were made of, in sentences.

MOST_TOLD = 5


def check_same_cluster(manifest: Manifest, cluster_id: str | None, topic_names: Mapping[str, str], tables: str) -> None:
    """Refuse a source of another cluster, or of another offsets topic, as far as ids tell."""
    known = manifest.source
    if known.get("cluster_id") and cluster_id and known["cluster_id"] != cluster_id:
        raise BadInput(
            f"the tables in {tables} are of cluster {known['cluster_id']}, the source is of {cluster_id}. "
            "Give every cluster a directory of its own."
        )
    ids, known_ids = (
        {topic_id for topic_id, name in names.items() if name == OFFSETS_TOPIC}
        for names in (topic_names, known.get("topic_names") or {})
    )
    if ids and known_ids and not ids & known_ids:
        raise BadInput(
            f"the tables in {tables} are of the {OFFSETS_TOPIC} with the id {min(known_ids)}, the source's has the id "
            f"{min(ids)}: another cluster, or a topic that was created anew. Give it tables of its own."
        )


def check_same_log(planned: Plan, tables: str) -> None:
    """Refuse a log that has other records than were read."""
    if planned.conflicts:
        number, offset = planned.conflicts[0]
        raise BadInput(
            f"{another_log(number, offset, tables)}; if this log was set back (a backup was restored), "
            "--accept-truncation withdraws what was read behind the last record known to both."
        )


def another_log(number: int, offset: int, tables: str) -> str:
    """What is said of a log with other records than were read."""
    return (
        f"the log of partition {number} in the source is not the one that the tables in {tables} were made of: at "
        f"offset {offset} it has another record than was read before, and no newer leader epoch says that it was "
        "cut. It is of another cluster, or of a copy that went on by itself. Nothing was changed. Give every "
        "cluster tables of its own"
    )


def left_alone(planned: Plan) -> list[str]:
    """Notes about partitions of which the source has less than the tables."""
    notes = []
    if planned.behind:
        told = [f"{number} ends at offset {end}, read up to {known}" for number, end, known in planned.behind]
        notes.append(
            f"the source has less than what was read of {_partitions(told)}. No newer leader epoch says that the log "
            "was cut (an older copy, a follower that lags, a tail that was lost): left as it was. "
            "--accept-truncation takes the shorter log for the truth."
        )
    if planned.missing:
        told = [str(number) for number in planned.missing]
        notes.append(f"the source does not have {_partitions(told)} any more; what was read of it stays.")
    return notes


def unknown_ends(look: Look) -> list[str]:
    """Notes about data that cannot be read: without a word its groups would seem to have less to do."""
    more = len(look.unread) - MOST_TOLD
    notes = [f"{problem} The lag of groups there is unknown." for problem in look.unread[:MOST_TOLD]]
    return [*notes, f"{more} more partitions of data cannot be read."] if more > 0 else notes


def _partitions(told: Sequence[str]) -> str:
    """A list that stays readable however long it is."""
    more = f" and {len(told) - MOST_TOLD} more" if len(told) > MOST_TOLD else ""
    return f"{len(told)} partition{'' if len(told) == 1 else 's'} ({'; '.join(told[:MOST_TOLD])}{more})"
