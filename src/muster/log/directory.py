"""A data directory: the partitions of many topics, and the files that concern them all.

Laid out as a Kafka broker's: a directory for each partition, `meta.properties`, the checkpoints, `.lock` while a
process has it open, `.kafka_cleanshutdown` after a clean stop. Opening it opens every partition. A broker's own
directory is taken as it is, cluster id and topic ids included. Records that were durable and are missing are reported
(`losses`), or not accepted: then nothing is opened.
"""

import errno
import json
import threading
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

from muster.errors import ConfigError, LogDamaged, Malformed
from muster.log.config import LogConfig
from muster.log.partition import DiskLog
from muster.log.recovery_scan import LOST, Loss, LossRefused
from muster.log.taking_over import TakingOver
from muster.log.topic_changes import (
    DirectoryChanges,
    Logs,
    Made,
    remove_deleted_directories,
    remove_half_made,
    remove_topics,
)
from muster.log.topics import REGISTRY, Topic, TopicRegistry
from muster.segments.checkpoints import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    META_PROPERTIES,
    RECOVERY_POINTS,
    MetaProperties,
    Offsets,
    TopicPartition,
    read_offsets,
    read_partition_metadata,
    settle_meta,
    write_offsets,
    write_partition_metadata,
)
from muster.segments.files import REAL_FILES, DirectoryLocked, Files, Lock
from muster.segments.sources import OFFSETS_TOPIC, TRANSACTIONS_TOPIC

COORDINATED_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})
"""The leader of a partition of one of these begins an epoch, and durable records of theirs must not be missing."""
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
        self.losses: list[Loss] = []
        """Durable records that were missing when it was opened, and are given up."""
        self.meta = MetaProperties(None, None, None)
        self.was_clean = False
        self.is_new = False
        """Whether it was made just now: there was nothing here that a broker or muster had left."""
        self._accept_loss = True
        self.checkpoint_lock = threading.Lock()
        """Held while checkpoints are written, compaction's too: several threads do."""
        self._lock = lock
        self._config_of = config_of
        self._wall_ms = wall_ms
        self._recovery_points: Offsets = {}
        self._log_starts: Offsets = {}
        self._leaving: Logs = {}
        """Let go of, and not removed yet: checkpoints have them as before, since they may come back."""
        self._set_registry(TopicRegistry(files, path / REGISTRY, {}))
        self.was_truncated: Callable[[TopicPartition, int], None] = lambda key, end_offset: None
        """Called behind `truncate` with the log's new end: how far the log is clean must be decided anew."""

    @classmethod
    def open(
        cls,
        path: Path,
        config_of: ConfigOf | None = None,
        *,
        files: Files = REAL_FILES,
        cluster_id: str | None = None,
        node_id: int | None = None,
        wall_ms: int | None = None,
        must_exist: bool = False,
        offsets_partitions: int | None = None,
        accept_loss: bool = True,
    ) -> Self:
        """Open a directory, or make it. `config_of` gives each topic's log its settings.

        With `must_exist` a directory without data is refused instead of being made. `offsets_partitions` is the
        number of partitions of an offsets topic that the registry does not know yet. Without `accept_loss`,
        `LossRefused` if records of the offsets topic are missing that were durable; those of other topics are told.

        `ConfigError` where it cannot be used at all (locked, read-only, another cluster's), with what to do about it.
        """
        if must_exist and not files.exists(path / META_PROPERTIES):
            raise ConfigError(
                f"{path} holds no data of a broker or of muster (there is no {META_PROPERTIES} in it), and it must. Is "
                "the disk mounted, and the path right? Without muster.data.must.exist a new directory is made."
            )
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
        directory._accept_loss = accept_loss
        try:
            directory._load(cluster_id, node_id, offsets_partitions)
        except OSError as error:
            directory.abandon()
            if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
                raise _unusable(path, error) from error
            raise LogDamaged(f"{path} cannot be opened: {error}") from error
        except BaseException:
            directory.abandon()
            raise
        return directory

    def _load(self, cluster_id: str | None, node_id: int | None, offsets_partitions: int | None) -> None:
        self.is_new = not self.files.exists(self.path / META_PROPERTIES)
        self.meta = settle_meta(self.files, self.path, cluster_id, node_id)
        self.was_clean = self.files.exists(self.path / CLEAN_STOP)
        if self.was_clean:
            # For good, before anything is written: else a power cut brings the mark back, and a torn log is trusted.
            self.files.unlink(self.path / CLEAN_STOP)
            self.files.sync_directory(self.path, "opened.directory")
        self._recovery_points = self._read_checkpoint(RECOVERY_POINTS, "all logs are looked at from their start")
        self._log_starts = self._read_checkpoint(LOG_STARTS, "logs start with their first segment")
        self._set_registry(TopicRegistry.read(self.files, self.path / REGISTRY))
        self._finish_changes()
        remove_deleted_directories(self.files, self.path, self.notes)
        found = TakingOver(self.files, self.path, self.registry, self._recovery_points, offsets_partitions)
        found.run()
        self.notes += found.notes
        self.losses = self._missing_partitions()
        self.notes += [f"{LOST}{loss}" for loss in self.losses]
        missing = {loss.partition for loss in self.losses}
        self._recovery_points = {
            key: offset for key, offset in self._recovery_points.items() if str(key) not in missing
        }
        self._open_all(missing)
        if self.losses:
            self.write_checkpoints()  # what is lost is told once; this makes directories that were missing last, too

    def _set_registry(self, registry: TopicRegistry) -> None:
        self.registry = registry
        self._changes = DirectoryChanges(self.files, self.path, registry, self._open_partitions, self._forget_offsets)

    def _finish_changes(self) -> None:
        """Bring changes of topics to an end that the process before us had begun."""
        deleting = [topic for topic in self.registry.unfinished() if topic.deleting]
        half_made = [topic for topic in self.registry.unfinished() if not topic.deleting]
        if deleting:
            remove_topics(self.files, self.path, self.registry, deleting, self._forget_offsets)
        if half_made:
            remove_half_made(self.files, self.path, self.registry, half_made)
        self.notes += [f"topic {topic.name}: removed, as had been begun" for topic in deleting]
        self.notes += [
            f"topic {topic.name}: {topic.planned - topic.partitions} partitions that were being made are removed"
            for topic in half_made
        ]

    def _missing_partitions(self) -> list[Loss]:
        """Partitions that the registry has, or a recovery point, and that have no directory."""
        expected = {
            TopicPartition(topic.name, number) for topic in self.registry.topics() for number in range(topic.partitions)
        }
        expected |= {key for key, offset in self._recovery_points.items() if offset > 0}
        there = {entry.name for entry in self.files.entries(self.path) if entry.is_directory}
        return [
            Loss(str(key), self._recovery_points.get(key, 0), None) for key in sorted(expected) if str(key) not in there
        ]

    def _accepts(self, topic: str) -> bool:
        return self._accept_loss or topic not in COORDINATED_TOPICS

    def _open_all(self, missing: Container[str]) -> None:
        """Open every partition, and make those that are missing. Losses that are not accepted are refused together."""
        wanted = [
            (topic, number)
            for topic in self.registry.topics()
            for number in range(topic.partitions)
            if self._accepts(topic.name) or f"{topic.name}-{number}" not in missing
        ]
        opened = self._opened(wanted)
        refused = [loss for loss in self.losses if not self._accepts(loss.partition.rpartition("-")[0])]
        refused += [loss for one in opened.values() if isinstance(one, LossRefused) for loss in one.losses]
        errors = [one for one in opened.values() if isinstance(one, Exception)]
        logs = {key: log for key, log in opened.items() if isinstance(log, DiskLog)}
        if errors or refused:
            for log in logs.values():
                log.abandon()
            raise LossRefused(refused) if refused else errors[0]
        self.adopt(logs)
        for log in logs.values():
            self.notes += log.report.notes
            if log.report.loss is not None:
                self.losses.append(log.report.loss)

    def _read_checkpoint(self, name: str, without: str) -> Offsets:
        try:
            return read_offsets(self.files, self.path / name)
        except Malformed as error:
            self.notes.append(f"{error}: ignored, so {without}")
            return {}

    def open_again(self, key: TopicPartition) -> DiskLog:
        """A log whose disk failed, opened beside the old one, with a look at the disk. `replace_log` puts it in place.

        In any thread, as long as the files of that log are not changed meanwhile. `LogDamaged` if the disk still fails.
        """
        topic = self.registry.get(key.topic)
        if topic is None:
            raise LogDamaged(f"{key}: there is no such topic any more")
        return self._open_partition(topic, key.partition, clean=False)

    def replace_log(self, key: TopicPartition, log: DiskLog) -> DiskLog:
        """Put a log that was opened again in the place of the failed one, which the caller abandons."""
        failed = self.logs[key]
        self.adopt({key: log})
        return failed

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

    def _opened(self, partitions: list[tuple[Topic, int]]) -> dict[TopicPartition, DiskLog | Exception]:
        opened = self._each(self._open_or_error, partitions)
        keys = [TopicPartition(topic.name, number) for topic, number in partitions]
        return dict(zip(keys, opened, strict=True))

    def _open_partitions(self, topic: Topic, numbers: range) -> Logs:
        """Open them all, or none: the first error is raised when the others have been let go of."""
        opened = self._opened([(topic, number) for number in numbers])
        logs = {key: log for key, log in opened.items() if isinstance(log, DiskLog)}
        for error in opened.values():
            if isinstance(error, Exception):
                for log in logs.values():
                    log.abandon()
                raise error
        return logs

    def adopt(self, logs: Logs) -> None:
        """Make new logs part of the directory: in the thread of the logs."""
        for key, log in logs.items():
            log.lower_recovery_point = partial(self._lower_recovery_point, key)
            self.logs[key] = log
        self._leaving = {key: log for key, log in self._leaving.items() if key not in logs}

    def _open_or_error(self, which: tuple[Topic, int]) -> DiskLog | Exception:
        try:
            return self._open_partition(*which, clean=self.was_clean)
        except Exception as error:
            return error

    def _open_partition(self, topic: Topic, partition: int, *, clean: bool) -> DiskLog:
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
            clean=clean,
            new_epoch=not clean and topic.name not in COORDINATED_TOPICS,
            wall_ms=self._wall_ms,
            accept_loss=self._accepts(topic.name),
        )

    def make_topics(self, wanted: Sequence[Topic]) -> list[Made]:
        """Make topics, or more partitions of some, each wholly or not at all; `adopt` what was made then.

        May be called in another thread than that of the logs, by one at a time.
        """
        try:
            return self._changes.make(wanted)
        except OSError as error:
            return [Made(topic, {}, LogDamaged(f"topic {topic.name} could not be made: {error}")) for topic in wanted]

    def settings_changed(self, name: str) -> None:
        """Let a topic's logs go by the settings that the registry has now: in the thread of the logs."""
        topic = self.registry.get(name)
        if topic is not None:
            config = self._config_of(topic)
            for number in range(topic.partitions):
                log = self.logs.get(TopicPartition(name, number))
                if log is not None:
                    log.reconfigure(config)

    def let_go(self, names: Container[str]) -> Logs:
        """Take the logs of topics out of the directory, before they are removed: in the thread of the logs."""
        leaving = {key: log for key, log in self.logs.items() if key.topic in names}
        self._leaving |= leaving
        for key in leaving:
            del self.logs[key]
        return leaving

    def remove_topics(self, topics: Sequence[Topic], logs: Logs) -> str | None:
        """Remove topics for good, whose logs were let go; what is left of their files, if anything, as a sentence.

        `LogDamaged` if nothing was changed. May be called in another thread than that of the logs, by one at a time.
        """
        return self._changes.remove(topics, logs)

    def _forget_offsets(self, names: set[str]) -> None:
        """A new topic of that name must not inherit where the old one started, how far it was durable, or clean."""
        with self.checkpoint_lock:
            self._leaving = _without(self._leaving, names)
            self._recovery_points = _without(self._recovery_points, names)
            self._log_starts = _without(self._log_starts, names)
            write_offsets(self.files, self.path / RECOVERY_POINTS, self._recovery_points)
            write_offsets(self.files, self.path / LOG_STARTS, self._log_starts)
            try:
                clean = read_offsets(self.files, self.path / CLEANER_OFFSETS)
            except Malformed:
                return  # the cleaner ignores a damaged one
            if any(key.topic in names for key in clean):
                write_offsets(self.files, self.path / CLEANER_OFFSETS, _without(clean, names), "cleaner-offsets")

    # Checkpoints and the end.

    def write_checkpoints(self) -> None:
        """Write down how far the logs are durable, readable, and where they start. `LogDamaged` if the disk fails.

        A server gives `Flusher.flush_all(logs, then, indexes=True)` the logs before, after `taking_snapshot` of each.
        In any thread, as long as no log is cut meanwhile: it reads a few numbers of each.
        """
        try:
            with self.checkpoint_lock:
                logs = self._leaving | self.logs
                self._recovery_points = {key: log.recovery_point for key, log in logs.items()}
                write_offsets(self.files, self.path / RECOVERY_POINTS, self._recovery_points)
                high_watermarks = {key: log.high_watermark for key, log in logs.items()}
                write_offsets(self.files, self.path / HIGH_WATERMARKS, high_watermarks)
        except OSError as error:
            raise LogDamaged(f"the checkpoints of {self.path} could not be written: {error}") from error
        self.write_log_starts()

    def write_log_starts(self) -> None:
        """Make raised log start offsets last, before a client is told that records are deleted."""
        try:
            with self.checkpoint_lock:
                self._log_starts = {
                    key: log.start_offset
                    for key, log in (self._leaving | self.logs).items()
                    if log.start_offset > log.segments[0].base_offset
                }
                write_offsets(self.files, self.path / LOG_STARTS, self._log_starts)
        except OSError as error:
            raise LogDamaged(f"the log starts of {self.path} could not be written: {error}") from error

    def _lower_recovery_point(self, key: TopicPartition, offset: int) -> None:
        with self.checkpoint_lock:
            if self._recovery_points.get(key, 0) > offset:
                self._recovery_points = {**self._recovery_points, key: offset}
                write_offsets(self.files, self.path / RECOVERY_POINTS, self._recovery_points)

    def close(self) -> bool:
        """Stop in peace. False if something failed: then no mark of a clean stop is left, and recovery will look."""
        well = all(self._each(DiskLog.close, self.logs.values()))
        if self.registry.is_in_doubt:
            well = False  # logs of a topic that may be deleted were let go, and are not closed
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

    def abandon(self) -> None:
        """Close the files as they are: the directory could not be opened whole, or nothing may be written any more."""
        for log in self.logs.values():
            log.abandon()
        self._lock.release()


def _unusable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"{path} cannot be used as a data directory: {error.strerror}. "
        "It must be a directory that this user may write to."
    )


def _without(of_partitions: Mapping[TopicPartition, Item], topics: Container[str]) -> dict[TopicPartition, Item]:
    return {key: item for key, item in of_partitions.items() if key.topic not in topics}
