"""A data directory: the partitions of many topics, and the files that speak of them all.

Laid out as a Kafka broker's: a directory for each partition, `meta.properties`, the checkpoints, `.lock` while somebody
is at work, `.kafka_cleanshutdown` after a clean stop. Opening it opens every partition. A broker's own directory is
taken as it is, cluster id and topic ids included.
"""

import errno
import json
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

from muster.codec.error_codes import ErrorCode
from muster.errors import ConfigError, LogDamaged, Malformed
from muster.log.checkpoints import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    Offsets,
    TopicPartition,
    read_offsets,
    read_partition_metadata,
    write_offsets,
    write_partition_metadata,
)
from muster.log.directory_meta import MetaProperties, settle_meta
from muster.log.directory_topics import reconcile, remove_deleted_directories, remove_topic
from muster.log.files import REAL_FILES, DirectoryLocked, Files, Lock
from muster.log.partition import DiskLog
from muster.log.partition_config import LogConfig
from muster.log.topics import REGISTRY, Topic, TopicRefused, TopicRegistry, check_name, new_topic_id

LOCK = ".lock"
CLEAN_STOP = ".kafka_cleanshutdown"

THREADS = 8
"""For opening and closing many partitions: nearly all of that is waiting for syncs."""

ConfigOf = Callable[[Topic], LogConfig]
Item = TypeVar("Item")
Result = TypeVar("Result")


class LogDirectory:
    """All logs of one directory. `notes` says in sentences what opening found and did."""

    def __init__(self, path: Path, files: Files, lock: Lock, config_of: ConfigOf, wall_ms: int | None) -> None:
        self.path = path
        self.files = files
        self.logs: dict[TopicPartition, DiskLog] = {}
        self.notes: list[str] = []
        self.meta = MetaProperties(None, None, None)
        self.was_clean = False
        self._lock = lock
        self._config_of = config_of
        self._wall_ms = wall_ms
        self._recovery_points: Offsets = {}
        self._log_starts: Offsets = {}
        self.registry = TopicRegistry(files, path / REGISTRY, {})
        self.was_truncated: Callable[[TopicPartition, int], None] = lambda key, end_offset: None
        """Called behind `truncate` with the log's new end: whoever knows how far a log is clean must think again."""

    @classmethod
    def open(
        cls,
        path: Path,
        config_of: ConfigOf | None = None,
        *,
        files: Files = REAL_FILES,
        cluster_id: str | None = None,
        node_id: int = 1,
        wall_ms: int | None = None,
    ) -> Self:
        """Open a directory, or make it. `config_of` gives each topic's log its settings.

        `ConfigError` where it cannot be used at all (locked, read-only, another cluster's), with what to do about it.
        """
        try:
            if not files.exists(path):
                files.mkdir(path)
                files.sync_directory(path.parent, "made.directory")
            lock = files.lock(path / LOCK)
        except DirectoryLocked as error:
            raise ConfigError(
                f"{path} is in use: {error}. Stop the broker or muster that has it open, or choose another directory."
            ) from error
        except OSError as error:
            raise _unusable(path, error) from error
        directory = cls(path, files, lock, config_of or (lambda topic: LogConfig()), wall_ms)
        try:
            directory._load(cluster_id, node_id)
        except OSError as error:
            directory._abandon()
            if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
                raise _unusable(path, error) from error
            raise LogDamaged(f"{path} cannot be opened: {error}") from error
        except BaseException:
            directory._abandon()
            raise
        return directory

    def _load(self, cluster_id: str | None, node_id: int) -> None:
        self.meta = settle_meta(self.files, self.path, cluster_id, node_id)
        self.was_clean = self.files.exists(self.path / CLEAN_STOP)
        if self.was_clean:
            # For good, before anything is written: else a power cut brings the mark back, and a torn log is trusted.
            self.files.unlink(self.path / CLEAN_STOP)
            self.files.sync_directory(self.path, "opened.directory")
        self._recovery_points = self._read_checkpoint(RECOVERY_POINTS, "all logs are looked at from their start")
        self._log_starts = self._read_checkpoint(LOG_STARTS, "logs start with their first segment")
        self.registry = TopicRegistry.read(self.files, self.path / REGISTRY)
        for topic in self.registry.topics():
            if topic.deleting:
                remove_topic(self.files, self.path, self.registry, topic, self._forget_offsets)
                self.notes.append(f"topic {topic.name}: removed, as had been begun")
        remove_deleted_directories(self.files, self.path, self.notes)
        reconcile(self.files, self.path, self.registry, self.notes)
        directories = len(self.files.entries(self.path))
        self._open_partitions(
            [(topic, number) for topic in self.registry.topics() for number in range(topic.partitions)]
        )
        if len(self.files.entries(self.path)) != directories:  # some were missing
            self.files.sync_directory(self.path, "topic.restored")

    def _read_checkpoint(self, name: str, without: str) -> Offsets:
        try:
            return read_offsets(self.files, self.path / name)
        except Malformed as error:
            self.notes.append(f"{error}: ignored, so {without}")
            return {}

    def reopen(self, key: TopicPartition) -> DiskLog:
        """Look at a log again after its disk failed, and put it in the place of the old one.

        `LogDamaged` if the disk still fails; the old one then stays, of no use to anybody.
        """
        topic = self.registry.get(key.topic)
        if topic is None:
            raise LogDamaged(f"{key}: there is no such topic any more")
        self.logs[key].abandon()
        self.was_clean = False
        self._adopt(key, self._open_partition(topic, key.partition))
        return self.logs[key]

    def truncate(self, key: TopicPartition, offset: int) -> None:
        """Cut a log's end off, for good; the batch that holds the offset goes too. `LogDamaged` if the disk fails."""
        log = self.logs[key]
        log.truncate_to(offset)
        self.was_truncated(key, log.end_offset)

    def _each(self, work: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """Do the same to many partitions, several at a time where that is possible."""
        if not self.files.concurrent:
            return list(map(work, items))
        with ThreadPoolExecutor(THREADS, "muster-directory") as pool:
            return list(pool.map(work, items))

    def _open_partitions(self, partitions: list[tuple[Topic, int]]) -> None:
        """Open them all, or none: the first error is raised when the others have been let go of."""
        opened = self._each(self._open_or_error, partitions)
        errors = [one for one in opened if isinstance(one, Exception)]
        for (topic, number), log in zip(partitions, opened, strict=True):
            if isinstance(log, Exception):
                continue
            if errors:
                log.abandon()
                continue
            self._adopt(TopicPartition(topic.name, number), log)
            self.notes += log.report.notes
        if errors:
            raise errors[0]

    def _adopt(self, key: TopicPartition, log: DiskLog) -> None:
        log.lower_recovery_point = partial(self._lower_recovery_point, key)
        self.logs[key] = log

    def _open_or_error(self, which: tuple[Topic, int]) -> DiskLog | Exception:
        try:
            return self._open_partition(*which)
        except Exception as error:
            return error

    def _open_partition(self, topic: Topic, partition: int) -> DiskLog:
        key = TopicPartition(topic.name, partition)
        directory = self.path / str(key)
        self.files.mkdir(directory)
        try:
            has_metadata = read_partition_metadata(self.files, directory) == topic.topic_id
        except Malformed:
            has_metadata = False
        if not has_metadata:
            write_partition_metadata(self.files, directory, topic.topic_id)
        return DiskLog.open(
            directory,
            self._config_of(topic),
            files=self.files,
            recovery_point=self._recovery_points.get(key, 0),
            start_offset=self._log_starts.get(key, 0),
            clean=self.was_clean,
            wall_ms=self._wall_ms,
        )

    def create_topic(
        self, name: str, partitions: int, configs: Mapping[str, str] | None = None, topic_id: str | None = None
    ) -> Topic:
        """Make a topic; it is there for good when this returns.

        `TopicRefused` if it may not be. `LogDamaged` if the disk fails: it is there wholly, or not at all, the next
        time the directory is opened.
        """
        check_name(name)
        if self.registry.get(name) is not None:
            raise TopicRefused(ErrorCode.TOPIC_ALREADY_EXISTS, f"there is a topic {name} already")
        if partitions < 1:
            raise TopicRefused(ErrorCode.INVALID_PARTITIONS, f"{partitions} partitions; a topic has at least one")
        topic = Topic(name, topic_id or new_topic_id(), partitions, dict(configs or {}))
        self._grow(topic, 0)
        return topic

    def add_partitions(self, name: str, partitions: int) -> Topic:
        """Let a topic have more partitions: as many as said, all together."""
        topic = self._known(name)
        if partitions <= topic.partitions:
            raise TopicRefused(
                ErrorCode.INVALID_PARTITIONS, f"{name} has {topic.partitions} partitions; they can only become more"
            )
        grown = Topic(name, topic.topic_id, partitions, topic.configs)
        self._grow(grown, topic.partitions)
        return grown

    def _grow(self, topic: Topic, first: int) -> None:
        try:
            self.registry.put(topic)
            self._open_partitions([(topic, number) for number in range(first, topic.partitions)])
            self.files.sync_directory(self.path, "topic.directories")
        except OSError as error:
            raise LogDamaged(f"topic {topic.name} could not be made: {error}") from error

    def set_configs(self, name: str, configs: Mapping[str, str]) -> Topic:
        """Give a topic other settings; its logs go by them at once."""
        topic = self._known(name)
        changed = Topic(name, topic.topic_id, topic.partitions, dict(configs))
        try:
            self.registry.put(changed)
        except OSError as error:
            raise LogDamaged(f"the settings of {name} could not be saved: {error}") from error
        for partition in range(changed.partitions):
            self.logs[TopicPartition(name, partition)].reconfigure(self._config_of(changed))
        return changed

    def delete_topic(self, name: str) -> None:
        """Remove a topic with all its records; it is gone for good when this returns."""
        topic = self._known(name)
        try:
            self.registry.put(replace(topic, deleting=True))
        except OSError as error:
            raise LogDamaged(f"topic {name} could not be removed: {error}. Nothing was changed.") from error
        for partition in range(topic.partitions):
            self.logs.pop(TopicPartition(name, partition)).abandon()
        try:
            remove_topic(self.files, self.path, self.registry, topic, self._forget_offsets)
        except OSError as error:
            raise LogDamaged(
                f"topic {name} was not removed wholly: {error}. That is finished when the directory is opened again."
            ) from error

    def _forget_offsets(self, name: str) -> None:
        """A new topic of that name must not inherit where the old one started, how far it was durable, or clean."""
        self._recovery_points = _without(self._recovery_points, name)
        self._log_starts = _without(self._log_starts, name)
        write_offsets(self.files, self.path / RECOVERY_POINTS, self._recovery_points)
        write_offsets(self.files, self.path / LOG_STARTS, self._log_starts)
        try:
            clean = read_offsets(self.files, self.path / CLEANER_OFFSETS)
        except Malformed:
            return  # nobody will believe it
        if any(key.topic == name for key in clean):
            write_offsets(self.files, self.path / CLEANER_OFFSETS, _without(clean, name), "cleaner-offsets")

    def _known(self, name: str) -> Topic:
        topic = self.registry.get(name)
        if topic is None or topic.deleting:
            raise TopicRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
        return topic

    # Checkpoints and the end.

    def checkpoint(self) -> None:
        """Make every log durable and write down how far they are, here and now. `LogDamaged` if the disk fails.

        A server that must not wait gives `Flusher.flush_all(logs, then, indexes=True)` the logs, after
        `take_snapshot` of each, and calls `write_checkpoints` behind it.
        """
        self._each(DiskLog.checkpoint, [log for log in self.logs.values() if log.failure is None])
        self.write_checkpoints()

    def write_checkpoints(self) -> None:
        """Write down how far the logs are durable, readable, and where they start."""
        self._recovery_points = {key: log.recovery_point for key, log in self.logs.items()}
        high_watermarks = {key: log.high_watermark for key, log in self.logs.items()}
        try:
            write_offsets(self.files, self.path / RECOVERY_POINTS, self._recovery_points)
            write_offsets(self.files, self.path / HIGH_WATERMARKS, high_watermarks)
        except OSError as error:
            raise LogDamaged(f"the checkpoints of {self.path} could not be written: {error}") from error
        self.write_log_starts()

    def write_log_starts(self) -> None:
        """Make raised log start offsets last: before anybody is told that records are deleted."""
        self._log_starts = {
            key: log.start_offset for key, log in self.logs.items() if log.start_offset > log.segments[0].base_offset
        }
        try:
            write_offsets(self.files, self.path / LOG_STARTS, self._log_starts)
        except OSError as error:
            raise LogDamaged(f"the log starts of {self.path} could not be written: {error}") from error

    def _lower_recovery_point(self, key: TopicPartition, offset: int) -> None:
        if self._recovery_points.get(key, 0) > offset:
            self._recovery_points = {**self._recovery_points, key: offset}
            write_offsets(self.files, self.path / RECOVERY_POINTS, self._recovery_points)

    def close(self) -> bool:
        """Stop in peace. False if something failed: then no mark of a clean stop is left, and recovery will look."""
        well = all(self._each(DiskLog.close, self.logs.values()))
        if well:
            try:
                self.write_checkpoints()
                self._mark_clean_stop()
            except (OSError, LogDamaged):
                well = False
        self._lock.release()
        return well

    def _mark_clean_stop(self) -> None:
        """Only that it is there counts; what is in it is Kafka's business, and may be lost."""
        mark = self.files.open(self.path / CLEAN_STOP, create=True)
        mark.pwrite(json.dumps({"version": 0, "brokerEpoch": -1}).encode(), 0)
        mark.close()
        self.files.sync_directory(self.path, "clean-stop.directory")

    def _abandon(self) -> None:
        for log in self.logs.values():
            log.abandon()
        self._lock.release()


def _unusable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"{path} cannot be used as a data directory: {error.strerror}. "
        "It must be a directory that this user may write to."
    )


def _without(offsets: Offsets, topic: str) -> Offsets:
    return {key: offset for key, offset in offsets.items() if key.topic != topic}
