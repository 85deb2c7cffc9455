"""Topics found as directories, compared with the registry, and taken over.

A partition lives in `TOPIC-PARTITION`. The registry says which topics there are. A directory that it does not know is
taken over only if a broker must have made it: it has the files of a partition, and with its siblings it makes up a
topic from partition 0 on without a gap. Every other one is a stray: left alone, and named in the notes. Nothing is ever
made because of a number in a name.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from muster.errors import ConfigError, LogDamaged, Malformed
from muster.log.segment import LOG, offset_in_name
from muster.log.topics import Topic, TopicRefused, TopicRegistry, check_name
from muster.segments.checkpoints import (
    LEADER_EPOCHS,
    PARTITION_METADATA,
    Offsets,
    TopicPartition,
    new_topic_id,
    read_partition_metadata,
)
from muster.segments.files import Files
from muster.segments.sources import OFFSETS_TOPIC

DELETE_SUFFIX = "-delete"
NOT_PARTITIONS = (DELETE_SUFFIX, "-future", "-stray")
METADATA_TOPIC = "__cluster_metadata"
"""Kafka's own log of its metadata; muster leaves it alone."""

_PARTITION_DIRECTORY = re.compile(r"(?P<topic>.+)-(?P<partition>\d{1,9})")


def partition_directories(files: Files, path: Path) -> dict[str, list[int]]:
    """The partitions that have a directory, by topic, rising."""
    found: dict[str, list[int]] = {}
    for entry in files.entries(path):
        match = _PARTITION_DIRECTORY.fullmatch(entry.name)
        if not entry.is_directory or not match or entry.name.endswith(NOT_PARTITIONS):
            continue
        if match["topic"] != METADATA_TOPIC and entry.name == f"{match['topic']}-{int(match['partition'])}":
            found.setdefault(match["topic"], []).append(int(match["partition"]))
    return {name: sorted(numbers) for name, numbers in found.items()}


def as_ranges(numbers: Iterable[int]) -> str:
    """Numbers for people: 0-46, 49."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ", ".join(f"{first}-{last}" if first != last else f"{first}" for first, last in ranges)


class Found(NamedTuple):
    """The directories of one name."""

    name: str
    ids: Mapping[int, str | None]
    """The topic id that each partition has, by number; None where it has none, or none that can be read."""

    @property
    def topic_ids(self) -> set[str]:
        return {topic_id for topic_id in self.ids.values() if topic_id is not None}

    @property
    def topic_id(self) -> str | None:
        """The id that all partitions agree on. `LogDamaged` where they do not."""
        if len(self.topic_ids) > 1:
            one_of = {topic_id: number for number, topic_id in self.ids.items() if topic_id is not None}
            raise LogDamaged(
                f"the partitions of {self.name} have different topic ids: "
                + ", ".join(f"{topic_id} in {self.name}-{number}" for topic_id, number in sorted(one_of.items()))
                + ". They are of two topics of one name; move those of one of them away."
            )
        return next(iter(self.topic_ids), None)

    @property
    def has_no_gap(self) -> bool:
        return sorted(self.ids) == list(range(len(self.ids)))

    def only(self, numbers: Iterable[int]) -> "Found":
        return Found(self.name, {number: self.ids[number] for number in numbers if number in self.ids})


class TakingOver:
    """Brings the registry in line with the directories, which a broker or an operator may have changed.

    `offsets_partitions` is how many partitions the offsets topic has, for a registry that does not know it: which group
    is in which partition depends on it, so it is never taken from what happens to be on this disk.
    """

    def __init__(
        self, files: Files, path: Path, registry: TopicRegistry, written: Offsets, offsets_partitions: int | None
    ) -> None:
        self._files = files
        self._path = path
        self._registry = registry
        self._written = written
        """The recovery points: partitions that are named there have been logs once."""
        self._offsets_partitions = offsets_partitions
        self._strays: list[str] = []
        self.notes: list[str] = []

    def run(self) -> None:
        changed = []
        there = {
            name: self._found(name, numbers) for name, numbers in partition_directories(self._files, self._path).items()
        }
        for name, found in there.items():
            known = self._registry.get(name)
            topic = self._unknown(found) if known is None else self._known(known, found)
            if topic is not None and topic != known:
                changed.append(topic)
                if known is not None or self._registry.was_there:
                    count = "1 partition" if topic.partitions == 1 else f"{topic.partitions} partitions"
                    self.notes.append(
                        f"topic {name}: taken over from its directories with id {topic.topic_id}, {count}"
                    )
        lost = self._lost_offsets_topic(there)
        if lost is not None:
            changed.append(lost)
        gone = [topic.name for topic in self._registry.topics() if self._is_gone(topic, there)]
        if gone:
            self.notes.append(f"topics without any directory are forgotten: {', '.join(gone)}")
        if self._strays:
            self.notes.append(
                f"left alone, since no topic has them: {', '.join(sorted(self._strays))}. Move away what is not needed"
            )
        if changed or gone:
            self._registry.change(changed, gone)

    def _found(self, name: str, numbers: Iterable[int]) -> Found:
        ids: dict[int, str | None] = {}
        for number in numbers:
            try:
                ids[number] = read_partition_metadata(self._files, self._path / f"{name}-{number}")
            except Malformed:
                ids[number] = None
        return Found(name, ids)

    def _stray(self, found: Found, numbers: Iterable[int]) -> None:
        self._strays += [f"{found.name}-{number}" for number in numbers]

    def _known(self, topic: Topic, found: Found) -> Topic:
        """A topic of the registry. A broker may have given it more partitions, or made it anew under another id."""
        topic_id = found.only(range(topic.partitions)).topic_id
        if topic_id is not None and topic_id != topic.topic_id:
            again = self._unknown(found)
            return topic if again is None else Topic(topic.name, topic_id, again.partitions, topic.configs)
        count = topic.partitions
        if topic.name != OFFSETS_TOPIC:
            while found.ids.get(count) == topic.topic_id:
                count += 1
        self._stray(found, [number for number in found.ids if number >= count])
        return Topic(topic.name, topic.topic_id, count, topic.configs)

    def _unknown(self, found: Found) -> Topic | None:
        """A topic that the registry does not have, if a broker made these directories; None if they are strays."""
        numbers = [number for number in found.ids if self._is_partition(found, number)]
        self._stray(found, [number for number in found.ids if number not in numbers])
        found = found.only(numbers)
        if not numbers or not _is_legal(found.name):
            self._stray(found, numbers)
            return None
        if found.name == OFFSETS_TOPIC and self._offsets_partitions is not None:
            return self._unknown_offsets_topic(found, self._offsets_partitions)
        of_others = {topic.topic_id for topic in self._registry.topics() if topic.name != found.name}
        if not found.has_no_gap or found.topic_ids & of_others or (self._registry.was_there and not found.topic_ids):
            self._stray(found, numbers)
            return None
        return Topic(found.name, found.topic_id or new_topic_id(), len(numbers))

    def _unknown_offsets_topic(self, found: Found, count: int) -> Topic:
        if max(found.ids) >= count:
            raise ConfigError(
                f"{self._path} has partitions {as_ranges(found.ids)} of {OFFSETS_TOPIC}, and "
                f"offsets.topic.num.partitions is {count}. Which group is in which partition depends on the number, "
                f"and no file here tells it: set offsets.topic.num.partitions to what the cluster had."
            )
        return Topic(found.name, found.topic_id or new_topic_id(), count)

    def _is_partition(self, found: Found, number: int) -> bool:
        """Whether a directory has the files of a partition, or was a log once."""
        if found.ids[number] is not None or TopicPartition(found.name, number) in self._written:
            return True
        names = [entry.name for entry in self._files.entries(self._path / f"{found.name}-{number}")]
        kinds = (LEADER_EPOCHS, PARTITION_METADATA)
        return any(name in kinds or offset_in_name(name, LOG) is not None for name in names)

    def _lost_offsets_topic(self, there: Mapping[str, Found]) -> Topic | None:
        """The offsets topic, where only the recovery points remember it."""
        count, is_known = self._offsets_partitions, self._registry.get(OFFSETS_TOPIC) is not None
        was_written = any(key.topic == OFFSETS_TOPIC and offset > 0 for key, offset in self._written.items())
        if count is None or is_known or OFFSETS_TOPIC in there or not was_written:
            return None
        return Topic(OFFSETS_TOPIC, new_topic_id(), count)

    def _is_gone(self, topic: Topic, there: Mapping[str, Found]) -> bool:
        """Whether a broker has deleted a topic of the registry: with its directories what was written down went too."""
        if topic.name in there or topic.name == OFFSETS_TOPIC:
            return False
        return not any(key.topic == topic.name for key in self._written)


def _is_legal(name: str) -> bool:
    try:
        check_name(name)
    except TopicRefused:
        return False
    return True
