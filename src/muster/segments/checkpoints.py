"""The small text files around the logs, in Kafka's formats.

    recovery-point-offset-checkpoint   up to where a log, and its indexes, are known to be on the disk
    replication-offset-checkpoint      high watermarks
    log-start-offset-checkpoint        first offsets, where they are not those of the first segments
    cleaner-offset-checkpoint          first offsets that compaction has not looked at yet
    leader-epoch-checkpoint            in each partition: where each leader's records begin
    partition.metadata                 in each partition: the topic's id
    meta.properties                    the ids of the cluster, of the node, and of the directory itself

The first five have a version, a count, and a line for each entry. A damaged one is `Malformed`; its reader decides what
that means, since none of them is worth a log.

`meta.properties` is a Java properties file. Version 1 (KRaft) names a cluster, a node and the directory; version 0
(ZooKeeper) a cluster and a broker. A directory keeps the ids it was made with.
"""

import base64
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from muster.codec.primitives import java_text
from muster.config.properties import parse_properties
from muster.errors import ConfigError, Malformed
from muster.segments.files import Files, read_file, replace_file, write_file, write_hint

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"

VERSION = 0
LARGEST_FILE_BYTES = 64 * 1024 * 1024
TOPIC_ID = re.compile(r"[a-zA-Z0-9_-]{22}")
"""A topic's id as Kafka spells it: sixteen bytes in URL-safe base64."""


def new_topic_id() -> str:
    """A random id. Kafka avoids those that begin with a dash, since its tools take them for options."""
    while True:
        data = bytearray(os.urandom(16))
        data[6], data[8] = (data[6] & 0x0F) | 0x40, (data[8] & 0x3F) | 0x80  # a version 4 UUID
        topic_id = base64.urlsafe_b64encode(data).decode().rstrip("=")
        if not topic_id.startswith("-"):
            return topic_id


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


Offsets = Mapping[TopicPartition, int]


def encode_lines(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in (str(VERSION), str(len(lines)), *lines)).encode()


def decode_lines(data: bytes, name: str) -> list[str]:
    """The entries of a checkpoint file. An empty file has none: Kafka makes it before it has anything to say."""
    lines = data.decode("utf-8", "replace").splitlines()
    if not lines:
        return []
    if lines[0].strip() != str(VERSION):
        raise Malformed(f"{name} begins with {java_text(lines[0])[:20]!r}, and version {VERSION} exists")
    if len(lines) == 1:
        return []
    entries = lines[2:]
    if lines[1].strip() != str(len(entries)):
        raise Malformed(f"{name} says it has {lines[1][:20]!r} entries and has {len(entries)}")
    return entries


def _number(text: str, name: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise Malformed(f"{name} has {text[:20]!r} where a number should be") from None


def read_offsets(files: Files, path: Path) -> dict[TopicPartition, int]:
    """An offset checkpoint; empty where there is none."""
    if not files.exists(path):
        return {}
    found: dict[TopicPartition, int] = {}
    for line in decode_lines(read_file(files, path, LARGEST_FILE_BYTES), path.name):
        fields = line.split()
        if len(fields) != 3:
            raise Malformed(f"{path.name} has the line {line[:60]!r}; a topic, a partition and an offset make one")
        topic, partition, offset = fields
        found[TopicPartition(topic, _number(partition, path.name))] = _number(offset, path.name)
    return found


def write_offsets(files: Files, path: Path, offsets: Offsets, point: str = "offsets") -> None:
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())]
    replace_file(files, path, encode_lines(lines), point)


class LeaderEpochs:
    """Where the records of each leader begin: rising epochs at rising offsets."""

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self.entries = entries or []

    @property
    def latest(self) -> int | None:
        return self.entries[-1][0] if self.entries else None

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that an epoch's records begin here; False if that was known. What contradicts it is forgotten."""
        if self.entries and self.entries[-1][0] >= epoch and self.entries[-1][1] <= start_offset:
            return False
        kept = [entry for entry in self.entries if entry[0] < epoch and entry[1] < start_offset]
        self.entries = [*kept, (epoch, start_offset)]
        return True

    def truncate_from_end(self, end_offset: int) -> bool:
        """Forget epochs that begin at or behind an offset."""
        kept = [entry for entry in self.entries if entry[1] < end_offset]
        changed, self.entries = len(kept) != len(self.entries), kept
        return changed

    def truncate_from_start(self, start_offset: int) -> bool:
        """Forget epochs whose records are all before an offset; the one in force there begins there."""
        before = [entry for entry in self.entries if entry[1] <= start_offset]
        if not before or before == [(before[-1][0], start_offset)]:
            return False
        behind = self.entries[len(before) :]
        self.entries = [(before[-1][0], start_offset), *behind]
        return True

    def end_offset_of(self, epoch: int, log_end_offset: int) -> tuple[int, int] | None:
        """The largest epoch not above this one, and one behind its last offset: where a lagging reader must cut."""
        if not self.entries or epoch > self.entries[-1][0]:
            return None
        if epoch == self.entries[-1][0]:
            return epoch, log_end_offset
        known = [entry for entry in self.entries if entry[0] <= epoch]
        if not known:
            return epoch, self.entries[0][1]
        return known[-1][0], self.entries[len(known)][1]


def read_epochs(files: Files, directory: Path) -> LeaderEpochs:
    path = directory / LEADER_EPOCHS
    if not files.exists(path):
        return LeaderEpochs()
    return LeaderEpochs(decode_epochs(read_file(files, path, LARGEST_FILE_BYTES), path.name))


def decode_epochs(data: bytes, name: str) -> list[tuple[int, int]]:
    """Epochs and where they begin, both rising."""
    entries: list[tuple[int, int]] = []
    for line in decode_lines(data, name):
        fields = line.split()
        if len(fields) != 2:
            raise Malformed(f"{name} has the line {line[:60]!r}; an epoch and an offset make one")
        entries.append((_number(fields[0], name), _number(fields[1], name)))
    if any(one[0] >= other[0] or one[1] > other[1] for one, other in pairwise(entries)):
        raise Malformed(f"{name} has epochs that do not rise")
    return entries


def write_epochs(files: Files, directory: Path, epochs: LeaderEpochs) -> None:
    """The name lasts with the next sync of the directory."""
    lines = [f"{epoch} {start_offset}" for epoch, start_offset in epochs.entries]
    write_file(files, directory / LEADER_EPOCHS, encode_lines(lines), "epochs")


def read_partition_metadata(files: Files, directory: Path) -> str | None:
    """The topic's id as Kafka spells it; None where there is no such file (brokers before 2.8 wrote none)."""
    path = directory / PARTITION_METADATA
    if not files.exists(path):
        return None
    fields = dict(
        line.split(":", 1)
        for line in read_file(files, path, 4096).decode("utf-8", "replace").splitlines()
        if ":" in line
    )
    topic_id = fields.get("topic_id", "").strip()
    if _number(fields.get("version", "?").strip(), path.name) < VERSION or not TOPIC_ID.fullmatch(topic_id):
        raise Malformed(f"{directory.name}/{path.name} names no topic id")
    return topic_id


def write_partition_metadata(files: Files, directory: Path, topic_id: str) -> None:
    """For a topic that the registry has already: should this file be lost, it is written again from there."""
    write_hint(files, directory / PARTITION_METADATA, f"version: {VERSION}\ntopic_id: {topic_id}".encode())


# `meta.properties`.


META_PROPERTIES = "meta.properties"


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """Ids of a data directory; a broker before KRaft may have left some out."""

    cluster_id: str | None
    node_id: int | None
    directory_id: str | None
    version: int = 1


def new_cluster_id() -> str:
    return new_topic_id()


def decode_meta(text: str, path: Path) -> MetaProperties:
    try:
        fields = {name: value.strip() for name, value in parse_properties(text)}
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    version = fields.get("version", "0")
    if version not in ("0", "1"):
        raise ConfigError(
            f"{path} is of version {version[:20]!r}; 0 and 1 are known. A newer Kafka may have written it."
        )
    node = fields.get("node.id" if version == "1" else "broker.id")
    try:
        node_id = None if node is None else int(node)
    except ValueError:
        raise ConfigError(
            f"{path} names node {node!r}, which is no number. Restore the file, or move it away."
        ) from None
    cluster_id = fields.get("cluster.id")
    if version == "1" and (node_id is None or not cluster_id):
        missing = "cluster.id" if not cluster_id else "node.id"
        raise ConfigError(f"{path} has no {missing}. Restore the file, or move it away to have a new one written.")
    return MetaProperties(cluster_id, node_id, fields.get("directory.id"), int(version))


def encode_meta(meta: MetaProperties) -> bytes:
    lines = [f"version={meta.version}"]
    if meta.cluster_id is not None:
        lines.append(f"cluster.id={meta.cluster_id}")
    if meta.node_id is not None:
        lines.append(f"{'node.id' if meta.version == 1 else 'broker.id'}={meta.node_id}")
    if meta.directory_id is not None:
        lines.append(f"directory.id={meta.directory_id}")
    return ("\n".join(lines) + "\n").encode()


def settle_meta(files: Files, directory: Path, cluster_id: str | None, node_id: int | None) -> MetaProperties:
    """Read a directory's ids, or give it new ones. `ConfigError` where it belongs to another cluster or node."""
    path = directory / META_PROPERTIES
    if not files.exists(path):
        meta = MetaProperties(cluster_id or new_cluster_id(), 1 if node_id is None else node_id, new_topic_id())
        replace_file(files, path, encode_meta(meta), "meta")
        return meta
    meta = decode_meta(read_file(files, path, 65536).decode("utf-8", "replace"), path)
    if cluster_id is not None and meta.cluster_id is not None and meta.cluster_id != cluster_id:
        raise ConfigError(
            f"{directory} belongs to cluster {meta.cluster_id}, and cluster {cluster_id} was asked for. Point at "
            "another directory, or leave the cluster id out to go on as the one that is there."
        )
    if node_id is not None and meta.node_id is not None and meta.node_id != node_id:
        raise ConfigError(
            f"{directory} belongs to node {meta.node_id}, and this is node {node_id} (node.id). Go on as the node that "
            f"is there (--node-id {meta.node_id}), or choose another directory."
        )
    return meta
