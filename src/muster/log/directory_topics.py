"""Topics as directories: found, compared with the registry, and removed.

A partition lives in `TOPIC-PARTITION`. One that is being deleted is renamed to `TOPIC-PARTITION.UNIQUE-delete` first,
as in Kafka: from then on it is nobody's, and its files may go in any order.
"""

import re
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from muster.errors import LogDamaged, Malformed
from muster.log.checkpoints import read_partition_metadata
from muster.log.files import Files
from muster.log.topics import Topic, TopicRegistry, new_topic_id

DELETE_SUFFIX = "-delete"
NOT_PARTITIONS = (DELETE_SUFFIX, "-future", "-stray")
METADATA_TOPIC = "__cluster_metadata"
"""Kafka's own log of its metadata; muster leaves it alone."""

LONGEST_DIRECTORY_NAME = 255
_PARTITION_DIRECTORY = re.compile(r"(?P<topic>.+)-(?P<partition>\d{1,9})")


def partition_directories(files: Files, path: Path) -> dict[str, list[int]]:
    """The partitions that have a directory, by topic."""
    found: dict[str, list[int]] = {}
    for entry in files.entries(path):
        match = _PARTITION_DIRECTORY.fullmatch(entry.name)
        if not entry.is_directory or not match or entry.name.endswith(NOT_PARTITIONS):
            continue
        if match["topic"] != METADATA_TOPIC and entry.name == f"{match['topic']}-{int(match['partition'])}":
            found.setdefault(match["topic"], []).append(int(match["partition"]))
    return found


def reconcile(files: Files, path: Path, registry: TopicRegistry, notes: list[str]) -> None:
    """Bring the registry in line with the directories: a broker, or somebody's hand, may have been here.

    A topic without any directory was deleted by somebody else, or is one whose creation a crash interrupted before
    anybody heard of it. One that lacks some of its directories gets them when it is opened.
    """
    there = partition_directories(files, path)
    changed: list[Topic] = []
    for name, partitions in there.items():
        known = registry.get(name)
        topic_id = _topic_id(files, path, name, partitions)
        if topic_id is None:
            topic_id = known.topic_id if known else new_topic_id()
        count = max(max(partitions) + 1, known.partitions if known else 0)
        topic = Topic(name, topic_id, count, known.configs if known else {})
        if topic != known:
            changed.append(topic)
            if known is not None:
                notes.append(f"topic {name}: taken over from its directories with id {topic_id}, {count} partitions")
    gone = [topic.name for topic in registry.topics() if topic.name not in there]
    if gone:
        notes.append(f"topics without any directory are forgotten: {', '.join(gone)}")
        registry.remove(*gone)
    if changed:
        registry.put(*changed)


def _topic_id(files: Files, path: Path, name: str, partitions: Sequence[int]) -> str | None:
    """What the partitions say; None where none says anything, or nothing that can be read."""
    ids: dict[str, int] = {}
    for partition in partitions:
        try:
            topic_id = read_partition_metadata(files, path / f"{name}-{partition}")
        except Malformed:
            continue
        if topic_id is not None:
            ids[topic_id] = partition
    if len(ids) > 1:
        raise LogDamaged(
            f"the partitions of {name} have different topic ids: "
            + ", ".join(f"{topic_id} in {name}-{partition}" for topic_id, partition in sorted(ids.items()))
            + ". They are of two topics of one name; move those of one of them away."
        )
    return next(iter(ids), None)


def remove_topic(
    files: Files, path: Path, registry: TopicRegistry, topic: Topic, forget_offsets: Callable[[str], None]
) -> None:
    """Remove a topic that the registry has as being deleted, its directories first by name, then by content.

    Can be done again from wherever it broke off.
    """
    renamed = []
    for partition in partition_directories(files, path).get(topic.name, []):
        unique = f".{uuid.uuid4().hex}{DELETE_SUFFIX}"
        kept = f"{topic.name}-{partition}"[: LONGEST_DIRECTORY_NAME - len(unique)]
        files.rename(path / f"{topic.name}-{partition}", path / (kept + unique))
        renamed.append(path / (kept + unique))
    forget_offsets(topic.name)  # which syncs the directory, so the new names last before the topic is forgotten
    registry.remove(topic.name)
    for directory in renamed:
        remove_directory(files, directory)


def remove_deleted_directories(files: Files, path: Path, notes: list[str]) -> None:
    for entry in files.entries(path):
        if entry.is_directory and entry.name.endswith(DELETE_SUFFIX):
            remove_directory(files, path / entry.name)
            notes.append(f"{entry.name}: removed, left over from the deletion of a topic")


def remove_directory(files: Files, directory: Path) -> None:
    for entry in files.entries(directory):
        if entry.is_directory:
            remove_directory(files, directory / entry.name)
        else:
            files.unlink(directory / entry.name)
    files.rmdir(directory)
