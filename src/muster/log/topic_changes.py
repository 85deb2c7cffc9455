"""Topics made, grown and removed: durably, and wholly or not at all.

Making: the registry says what is planned; directories and files are made; the registry says that they are there. The
last write is the moment of creation. Whatever comes in between (no room, no more open files, a crash), the topic is not
there, and what was made of it is removed: at once, or when the directory is opened next, or when it is made again.

Removing: the registry says that it is being deleted. That is the moment of deletion. Directories, checkpoints and the
entry go behind it; what does not go then goes when the directory is opened next, or when a topic of that name is made.

Whether a write of the registry has happened may be in doubt. `ChangeUnsettled` (`topics.py`) then ends the change.

A partition's directory that is being deleted is renamed to `TOPIC-PARTITION.UNIQUE-delete` first, as in Kafka: from
then on it belongs to no topic, and its files may go in any order. Many topics cost as many writes of the registry as
one.
"""

import re
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from muster.codec.error_codes import ErrorCode
from muster.errors import LogDamaged, MusterError
from muster.log.partition import DiskLog
from muster.log.taking_over import DELETE_SUFFIX, partition_directories
from muster.log.topics import ChangeUnsettled, Topic, TopicRefused, TopicRegistry, check_name
from muster.segments.checkpoints import TopicPartition
from muster.segments.files import Files

Logs = dict[TopicPartition, DiskLog]
LONGEST_DIRECTORY_NAME = 255
_DELETED_DIRECTORY = re.compile(r".+\.[0-9a-f]{8,32}-delete")


class Made(NamedTuple):
    """A topic that was asked for: its new logs, or why there are none."""

    topic: Topic
    logs: Logs
    error: MusterError | None = None


class DirectoryChanges:
    """Changes the topics of a data directory. Used by one thread at a time, which need not be that of the logs."""

    def __init__(
        self,
        files: Files,
        path: Path,
        registry: TopicRegistry,
        open_partitions: Callable[[Topic, range], Logs],
        forget_offsets: Callable[[set[str]], None],
    ) -> None:
        self._files = files
        self._path = path
        self._registry = registry
        self._open_partitions = open_partitions
        self._forget_offsets = forget_offsets

    # Making.

    def make(self, wanted: Sequence[Topic]) -> list[Made]:
        """Make topics, or give those that are there more partitions; one outcome for each, in order.

        The logs are open, and not yet part of the directory.
        """
        there = {entry.name for entry in self._files.entries(self._path)}
        outcomes = {topic.name: Made(topic, {}, self._refusal(topic, there)) for topic in wanted}
        accepted = [topic for topic in wanted if outcomes[topic.name].error is None]
        if accepted:
            outcomes |= {made.topic.name: made for made in self._make(accepted)}
        return [outcomes[topic.name] for topic in wanted]

    def _refusal(self, topic: Topic, there: set[str]) -> MusterError | None:
        try:
            check_name(topic.name)
        except TopicRefused as refused:
            return refused
        if topic.partitions < 1:
            message = f"{topic.partitions} partitions; a topic has at least one"
            return TopicRefused(ErrorCode.INVALID_PARTITIONS, message)
        known = self._registry.get(topic.name)
        if known is not None and known.deleting:
            return self._finished_deletion(known)
        first = 0
        if known is not None:
            first = known.partitions
            if first and known.topic_id != topic.topic_id:
                return TopicRefused(ErrorCode.TOPIC_ALREADY_EXISTS, f"there is a topic {topic.name} already")
            if topic.partitions <= first:
                message = f"{topic.name} has {first} partitions; they can only become more"
                return TopicRefused(ErrorCode.INVALID_PARTITIONS, message)
        half_made = 0 if known is None else known.planned
        strays = [f"{topic.name}-{number}" for number in range(max(first, half_made), topic.partitions)]
        stray = next((name for name in strays if name in there), None)
        if stray is None:
            return None
        message = f"{self._path / stray} is there already, and is no topic's. Move it away to make {topic.name}."
        return TopicRefused(ErrorCode.KAFKA_STORAGE_ERROR, message)

    def _finished_deletion(self, topic: Topic) -> LogDamaged | None:
        """An older topic of the name has to be gone wholly first."""
        try:
            remove_topics(self._files, self._path, self._registry, [topic], self._forget_offsets)
        except OSError as error:
            return LogDamaged(f"the topic {topic.name} that was there before cannot be removed wholly: {error}.")
        return None

    def _make(self, wanted: Sequence[Topic]) -> list[Made]:
        first = {topic.name: self._partitions_of(topic) for topic in wanted}
        left_over = [topic for one in wanted if (topic := self._registry.get(one.name)) is not None and topic.planned]
        planned = [replace(topic, partitions=first[topic.name], planned=topic.partitions) for topic in wanted]
        made: list[Made] = []
        try:
            if left_over:
                remove_half_made(self._files, self._path, self._registry, left_over)
            self._registry.put(*planned)
            made = [self._opened(topic, first[topic.name]) for topic in wanted]
            self._files.sync_directory(self._path, "topic.directories")
            self._registry.put(*[one.topic for one in made if one.error is None])
        except OSError as error:
            for one in made:
                _let_go(one.logs)
            made = [Made(topic, {}, _not_made(topic, error)) for topic in wanted]
        failed = {one.topic.name for one in made if one.error is not None}
        if failed:
            self._undo([topic for topic in planned if topic.name in failed])
        return made

    def _partitions_of(self, topic: Topic) -> int:
        known = self._registry.get(topic.name)
        return 0 if known is None else known.partitions

    def _opened(self, topic: Topic, first: int) -> Made:
        try:
            return Made(topic, self._open_partitions(topic, range(first, topic.partitions)))
        except (OSError, LogDamaged) as error:
            return Made(topic, {}, _not_made(topic, error))

    def _undo(self, planned: Sequence[Topic]) -> None:
        """Take back what is half made, at once if that can be."""
        with suppress(OSError):  # else when it is made again, or the directory is opened
            remove_half_made(self._files, self._path, self._registry, planned)

    # Removing.

    def remove(self, topics: Sequence[Topic], logs: Logs) -> str | None:
        """Remove topics, whose logs are not used any more. Says what is left of them, if anything.

        `LogDamaged` if that cannot even be begun: then nothing is changed.
        """
        topics = [self._registry.with_plan(topic) for topic in topics]
        try:
            self._registry.put(*[replace(topic, deleting=True) for topic in topics])
        except OSError as error:
            raise LogDamaged(f"{_names(topics)} could not be removed: {error}. Nothing was changed.") from error
        _let_go(logs)
        try:
            remove_topics(self._files, self._path, self._registry, topics, self._forget_offsets)
        except (OSError, ChangeUnsettled) as error:  # deleted is what it is in either case
            return (
                f"{_names(topics)}: deleted, but not all files could be removed: {error}. They go when the directory "
                "is opened again"
            )
        return None


def _let_go(logs: Logs) -> None:
    for log in logs.values():
        log.abandon()


def _not_made(topic: Topic, error: Exception) -> LogDamaged:
    return LogDamaged(f"topic {topic.name} of {topic.partitions} partitions could not be made: {error}")


def _names(topics: Sequence[Topic]) -> str:
    shown = ", ".join(topic.name for topic in topics[:5])
    return f"topic {shown}" if len(topics) <= 5 else f"topics {shown} and {len(topics) - 5} more"


# Files and directories.


def remove_topics(
    files: Files,
    path: Path,
    registry: TopicRegistry,
    topics: Iterable[Topic],
    forget_offsets: Callable[[set[str]], None],
) -> None:
    """Remove topics that the registry has as being deleted, their directories first by name, then by content.

    Can be done again from wherever it broke off.
    """
    topics = list(topics)
    there = partition_directories(files, path)
    renamed = [
        set_aside(files, path / f"{topic.name}-{number}")
        for topic in topics
        for number in there.get(topic.name, ())
        if number < max(topic.partitions, topic.planned)  # other directories are not ours
    ]
    names = {topic.name for topic in topics}
    forget_offsets(names)  # which syncs the directory, so the new names last before the topics are forgotten
    registry.remove(*names)
    for directory in renamed:
        remove_directory(files, directory)


def remove_half_made(files: Files, path: Path, registry: TopicRegistry, topics: Iterable[Topic]) -> None:
    """Remove partitions whose making has begun and not ended; their topics are then as they were before.

    The registry says that they are not there, so nothing was ever written to them. Can be done again.
    """
    topics = list(topics)
    there = {entry.name for entry in files.entries(path) if entry.is_directory}
    for topic in topics:
        for number in range(topic.partitions, topic.planned):
            if f"{topic.name}-{number}" in there:
                remove_directory(files, path / f"{topic.name}-{number}")
    files.sync_directory(path, "topic.half-made")
    kept = [Topic(topic.name, topic.topic_id, topic.partitions, topic.configs) for topic in topics if topic.partitions]
    registry.change(kept, [topic.name for topic in topics if not topic.partitions])


def set_aside(files: Files, directory: Path) -> Path:
    """Give a directory a name under which it belongs to no topic."""
    unique = f".{uuid.uuid4().hex}{DELETE_SUFFIX}"
    target = directory.with_name(directory.name[: LONGEST_DIRECTORY_NAME - len(unique)] + unique)
    files.rename(directory, target)
    return target


def remove_deleted_directories(files: Files, path: Path, notes: list[str]) -> None:
    for entry in files.entries(path):
        if entry.is_directory and _DELETED_DIRECTORY.fullmatch(entry.name):
            remove_directory(files, path / entry.name)
            notes.append(f"{entry.name}: removed, left over from the deletion of a topic")


def remove_directory(files: Files, directory: Path) -> None:
    for entry in files.entries(directory):
        if entry.is_directory:
            remove_directory(files, directory / entry.name)
        else:
            files.unlink(directory / entry.name)
    files.rmdir(directory)
