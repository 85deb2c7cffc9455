"""Where offsets go when they are reset: kafka-consumer-groups' specifications, and the plan that each makes.

Nothing is asked here. `needs` says what must be known of the partitions, the caller brings it as `Known`, and
`plan_reset` gives the new offsets. The rules are those of Kafka's tool:

- earliest, latest: the ends of the log; current: where the group is, or the end where it never was;
- an offset, a shift and a file are held within the log;
- a time is the first record at or after it, or the end where there is none.
"""

import csv
import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from muster.cli.groups.model import Refusal, TopicPartition
from muster.errors import BadInput, MusterError

NO_OFFSET = -1
"""What ListOffsets answers when no record is as young as that."""

DURATION = re.compile(
    r"(?P<sign>[-+]?)P(?:(?P<days>[-+]?\d{1,12})D)?"
    r"(?P<time>T(?:(?P<hours>[-+]?\d{1,12})H)?(?:(?P<minutes>[-+]?\d{1,12})M)?"
    r"(?:(?P<seconds>[-+]?\d{1,12})(?:[.,](?P<fraction>\d{0,9}))?S)?)?",
    re.IGNORECASE | re.ASCII,
)
TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)
PARTITION_NUMBERS = re.compile(r"\d{1,9}(,\d{1,9})*", re.ASCII)
HEADERS = {("topic", "partition"), ("group", "topic", "partition")}


class CannotReset(MusterError):
    """This group's offsets cannot be reset as asked; the text says why and what to do instead."""


@dataclass(frozen=True, slots=True)
class ToEarliest:
    pass


@dataclass(frozen=True, slots=True)
class ToLatest:
    pass


@dataclass(frozen=True, slots=True)
class ToCurrent:
    pass


@dataclass(frozen=True, slots=True)
class ToOffset:
    offset: int


@dataclass(frozen=True, slots=True)
class ShiftBy:
    offsets: int


@dataclass(frozen=True, slots=True)
class ToTime:
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class FromFile:
    """Offsets by group; those under None are for the one group that was named on the command line."""

    offsets: Mapping[str | None, Mapping[TopicPartition, int]]

    def of(self, group_id: str) -> Mapping[TopicPartition, int]:
        return self.offsets.get(group_id, {}) or self.offsets.get(None, {})


ResetSpec = ToEarliest | ToLatest | ToCurrent | ToOffset | ShiftBy | ToTime | FromFile


class Need(Enum):
    COMMITTED = auto()
    LOG_START = auto()
    TIME = auto()


def needs(spec: ResetSpec) -> set[Need]:
    """What must be known beside the ends of the partitions, which always are: they tell which partitions exist."""
    match spec:
        case ToEarliest() | ToOffset() | FromFile():
            return {Need.LOG_START}
        case ShiftBy():
            return {Need.LOG_START, Need.COMMITTED}
        case ToCurrent():
            return {Need.COMMITTED}
        case ToTime():
            return {Need.TIME}
        case ToLatest():
            return set()


@dataclass(frozen=True, slots=True)
class Known:
    """What the cluster says of the partitions. Those missing from `log_end` cannot be used; `refused` may say why."""

    log_end: Mapping[TopicPartition, int]
    log_start: Mapping[TopicPartition, int] = field(default_factory=dict)
    committed: Mapping[TopicPartition, int] = field(default_factory=dict)
    at_time: Mapping[TopicPartition, int] = field(default_factory=dict)
    refused: Mapping[TopicPartition, Refusal] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """New offsets, and what a person should know about them: `notes` has a sentence for each that is not as asked."""

    offsets: dict[TopicPartition, int]
    notes: list[str]


def plan_reset(spec: ResetSpec, group_id: str, partitions: Iterable[TopicPartition], known: Known) -> Plan:
    """The new offsets of one group; CannotReset when one of the partitions makes it impossible."""
    wanted = sorted(spec.of(group_id) if isinstance(spec, FromFile) else set(partitions))
    sources = [known.log_end]
    sources += [known.log_start] if Need.LOG_START in needs(spec) else []
    sources += [known.at_time] if Need.TIME in needs(spec) else []
    missing = [partition for partition in wanted if not all(partition in source for source in sources)]
    if missing:
        why = f" ({known.refused[missing[0]].text})" if missing[0] in known.refused else ""
        raise CannotReset(
            f"group '{group_id}': cannot find {named(missing)}{why}. "
            "`--topic NAME` takes those partitions of a topic that there are."
        )
    plan = Plan({}, [])
    for partition in wanted:
        plan.offsets[partition] = _new_offset(spec, group_id, partition, known, plan.notes)
    return plan


def _new_offset(spec: ResetSpec, group_id: str, partition: TopicPartition, known: Known, notes: list[str]) -> int:
    end = known.log_end[partition]
    match spec:
        case ToEarliest():
            return known.log_start[partition]
        case ToLatest():
            return end
        case ToCurrent():
            return known.committed.get(partition, end)
        case ToOffset():
            return _within_log(spec.offset, partition, known, notes)
        case FromFile():
            return _within_log(spec.of(group_id)[partition], partition, known, notes)
        case ShiftBy():
            if partition not in known.committed:
                raise CannotReset(
                    f"group '{group_id}' has no committed offset of {partition} to shift. Name partitions that have "
                    "one (`--topic t:0,1`), or give others a start with --to-earliest, --to-latest or --to-offset."
                )
            return _within_log(known.committed[partition] + spec.offsets, partition, known, notes)
        case ToTime():
            offset = known.at_time[partition]
            if offset == NO_OFFSET:
                notes.append(f"{partition} has no record of that time or later: taking its end, {end}.")
                return end
            return offset


def _within_log(offset: int, partition: TopicPartition, known: Known, notes: list[str]) -> int:
    start, end = known.log_start[partition], known.log_end[partition]
    if offset > end:
        notes.append(f"{offset} is beyond the end of {partition}: taking its end, {end}.")
        return end
    if offset < start:
        notes.append(f"{offset} is before the start of {partition}: taking its start, {start}.")
        return start
    return offset


def named(partitions: Iterable[TopicPartition], most: int = 5) -> str:
    """Their names, or the first few of many."""
    names = [str(partition) for partition in partitions]
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


def parse_duration(text: str) -> int:
    """Nanoseconds of an ISO-8601 duration as Java reads it: PnDTnHnMn.nS. ValueError with a sentence otherwise."""
    match = DURATION.fullmatch(text.strip())
    parts = match and (match["days"], match["hours"], match["minutes"], match["seconds"])
    if not match or not parts or not any(parts) or (match["time"] or "").upper() == "T":
        raise ValueError(f"'{text}' is not a duration. Write PT2H for two hours, PT30M for 30 minutes, P1DT12H")
    days, hours, minutes, seconds = (int(part or 0) for part in parts)
    fraction_ns = int((match["fraction"] or "").ljust(9, "0"))
    if (match["seconds"] or "").startswith("-"):
        fraction_ns = -fraction_ns
    total_ns = (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1_000_000_000 + fraction_ns
    return -total_ns if match["sign"] == "-" else total_ns


def time_before(now_ms: int, duration_ns: int) -> int:
    """Epoch milliseconds of so long ago; what is left of a millisecond counts as the one before."""
    return (now_ms * 1_000_000 - duration_ns) // 1_000_000


def parse_topics(arguments: Iterable[str]) -> tuple[list[str], list[TopicPartition]]:
    """Whole topics, and single partitions: `orders` and `orders:0,3`. ValueError with a sentence."""
    topics: list[str] = []
    partitions: list[TopicPartition] = []
    for argument in arguments:
        topic, colon, numbers = argument.partition(":")
        if not TOPIC_NAME.fullmatch(topic) or (colon and not PARTITION_NUMBERS.fullmatch(numbers)):
            raise ValueError(f"'{argument}' is not a topic. Write orders, or orders:0,3 for two of its partitions")
        if colon:
            partitions += [TopicPartition(topic, int(number)) for number in numbers.split(",")]
        else:
            topics.append(topic)
    return topics, partitions


def parse_plan(text: str, name: str) -> FromFile:
    """A file of `topic,partition,offset` or `group,topic,partition,offset`, as --export writes it.

    A line with names, as --csv has, may stand on top. The last line for a partition counts.
    """
    offsets: dict[str | None, dict[TopicPartition, int]] = {}
    reader = csv.reader(text.splitlines())
    try:
        for number, row in enumerate(reader):
            values = [value.strip() for value in row]
            if not any(values) or (number == 0 and tuple(values[: len(values) - 1]) in HEADERS):
                continue
            *group, topic, partition, offset = values
            if len(group) > 1 or "\0" in "".join(group) or not TOPIC_NAME.fullmatch(topic):
                raise ValueError(values)
            place = TopicPartition(topic, _whole_number(partition, r"\d{1,9}"))
            offsets.setdefault(group[0] if group else None, {})[place] = _whole_number(offset, r"\d{1,19}")
    except (ValueError, csv.Error):
        raise BadInput(
            f"{name}, line {reader.line_num}: not a line of `topic,partition,offset` or "
            "`group,topic,partition,offset`. `muster groups reset-offsets --export` writes such files."
        ) from None
    if None in offsets and len(offsets) > 1:
        raise BadInput(f"{name}: some lines name a group and some do not. Name it in all of them, or in none.")
    if not offsets:
        raise BadInput(f"{name}: there is no offset in it. `muster groups reset-offsets --export` writes such files.")
    return FromFile(offsets)


def _whole_number(text: str, pattern: str) -> int:
    if not re.fullmatch(pattern, text, re.ASCII):
        raise ValueError(text)
    return int(text)


def export_text(new_offsets: Mapping[str, Mapping[TopicPartition, int]], with_group: bool) -> str:
    """What `parse_plan` reads; Kafka's tool leaves the group out when only one was asked for."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for group_id, offsets in sorted(new_offsets.items()):
        for partition, offset in sorted(offsets.items()):
            writer.writerow([*([group_id] if with_group else []), *partition, offset])
    return out.getvalue()
