"""A data directory: whose it is, what is in it, who has it open."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from muster.codec.error_codes import ErrorCode
from muster.errors import ConfigError, LogDamaged, Malformed
from muster.log.config import LogConfig
from muster.log.directory import CLEAN_STOP, LogDirectory
from muster.log.partition import DiskLog
from muster.log.topics import REGISTRY, Topic, TopicRefused, decode_topics, encode_topics
from muster.segments.checkpoints import (
    LOG_STARTS,
    RECOVERY_POINTS,
    LeaderEpochs,
    MetaProperties,
    TopicPartition,
    decode_lines,
    decode_meta,
    encode_meta,
    new_topic_id,
    read_offsets,
    write_offsets,
)
from muster.segments.files import REAL_FILES
from tests.log.disk.changes import add_partitions, checkpoint, create_topic, delete_topic, set_configs
from tests.log.disk.faults import FaultyFiles
from tests.log.disk.unsynced import UNSYNCED

ROOT = Path("/data")
START_MS = 1_800_000_000_000
SMALL = LogConfig(segment_bytes=500, index_interval_bytes=100)


def opened(files: FaultyFiles, **how: object) -> LogDirectory:
    return LogDirectory.open(ROOT, lambda topic: SMALL, files=files, **how)  # type: ignore[arg-type]


def fill(directory: LogDirectory, topic: str, count: int, partition: int = 0) -> None:
    log = directory.logs[TopicPartition(topic, partition)]
    for number in range(count):
        log.append([(b"k", b"%d" % number * 50)], START_MS + number)
        log.write()


class TestTheFiles:
    def test_what_a_clean_stop_leaves(self, tmp_path: Path) -> None:
        directory = LogDirectory.open(tmp_path / "data", files=UNSYNCED, cluster_id="c" * 22, node_id=3)
        topic = create_topic(directory, "orders", 2, {"cleanup.policy": "compact"})
        fill(directory, "orders", 3)
        assert directory.close()
        names = sorted(path.name for path in (tmp_path / "data").iterdir())
        assert names == [
            ".kafka_cleanshutdown", ".lock", "log-start-offset-checkpoint", "meta.properties", "muster-topics.json",
            "orders-0", "orders-1", "recovery-point-offset-checkpoint", "replication-offset-checkpoint",
        ]  # fmt: skip
        assert sorted(path.name for path in (tmp_path / "data" / "orders-0").iterdir()) == [
            "00000000000000000000.index", "00000000000000000000.log", "00000000000000000000.timeindex",
            "00000000000000000003.snapshot", "leader-epoch-checkpoint", "partition.metadata",
        ]  # fmt: skip

        def read(*name: str) -> str:
            return (tmp_path / "data").joinpath(*name).read_text()

        meta = read("meta.properties").splitlines()
        assert meta[:3] == ["version=1", "cluster.id=" + "c" * 22, "node.id=3"]
        assert meta[3].startswith("directory.id=")
        assert read("recovery-point-offset-checkpoint") == "0\n2\norders 0 3\norders 1 0\n"
        assert read("replication-offset-checkpoint") == "0\n2\norders 0 3\norders 1 0\n"
        assert read("log-start-offset-checkpoint") == "0\n0\n"
        assert read("orders-0", "leader-epoch-checkpoint") == "0\n1\n0 0\n"
        assert read("orders-0", "partition.metadata") == f"version: 0\ntopic_id: {topic.topic_id}"
        assert json.loads(read(CLEAN_STOP)) == {"version": 0, "brokerEpoch": -1}

    def test_the_mark_of_a_clean_stop_goes_when_work_begins(self, tmp_path: Path) -> None:
        LogDirectory.open(tmp_path, files=UNSYNCED).close()
        assert (tmp_path / CLEAN_STOP).exists()
        directory = LogDirectory.open(tmp_path, files=UNSYNCED)
        assert directory.was_clean
        assert not (tmp_path / CLEAN_STOP).exists()
        directory.abandon()
        assert not LogDirectory.open(tmp_path, files=UNSYNCED).was_clean


class TestTopics:
    def test_made_grown_configured_and_deleted(self) -> None:
        files = FaultyFiles()
        directory = opened(files)
        topic = create_topic(directory, "a", 2, {"x": "1"})
        assert sorted(directory.logs) == [TopicPartition("a", 0), TopicPartition("a", 1)]
        fill(directory, "a", 3, partition=1)
        assert add_partitions(directory, "a", 4).topic_id == topic.topic_id
        assert set_configs(directory, "a", {"y": "2"}).partitions == 4
        create_topic(directory, "b", 1)
        directory.close()
        again = opened(files)
        assert [(one.name, one.partitions, one.configs) for one in again.registry.topics()] == [
            ("a", 4, {"y": "2"}), ("b", 1, {}),
        ]  # fmt: skip
        assert again.logs[TopicPartition("a", 1)].end_offset == 3
        delete_topic(again, "a")
        assert list(again.logs) == [TopicPartition("b", 0)]
        assert [entry.name for entry in files.entries(ROOT) if entry.is_directory] == ["b-0"]
        with pytest.raises(TopicRefused) as refused:
            delete_topic(again, "a")
        assert refused.value.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    @pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ä", "x" * 250, "a\n"])
    def test_illegal_names(self, name: str) -> None:
        directory = opened(FaultyFiles())
        with pytest.raises(TopicRefused) as refused:
            create_topic(directory, name, 1)
        assert refused.value.error is ErrorCode.INVALID_TOPIC_EXCEPTION

    def test_other_refusals(self) -> None:
        directory = opened(FaultyFiles())
        create_topic(directory, "x" * 249, 1)
        for count in (0, -1):
            with pytest.raises(TopicRefused) as refused:
                create_topic(directory, "b", count)
            assert refused.value.error is ErrorCode.INVALID_PARTITIONS
        with pytest.raises(TopicRefused) as refused:
            create_topic(directory, "x" * 249, 1)
        assert refused.value.error is ErrorCode.TOPIC_ALREADY_EXISTS
        with pytest.raises(TopicRefused) as refused:
            add_partitions(directory, "x" * 249, 1)
        assert refused.value.error is ErrorCode.INVALID_PARTITIONS
        delete_topic(directory, "x" * 249)  # its directories' names are cut to what a file system takes

    def test_a_new_topic_of_an_old_name_starts_anew(self) -> None:
        files = FaultyFiles()
        directory = opened(files)
        create_topic(directory, "a", 1)
        fill(directory, "a", 8)
        directory.logs[TopicPartition("a", 0)].increase_start_offset(6)
        checkpoint(directory)
        delete_topic(directory, "a")
        create_topic(directory, "a", 1)
        fill(directory, "a", 2)
        directory.logs[TopicPartition("a", 0)].write()
        again = opened(FaultyFiles(files.killed().root))
        log = again.logs[TopicPartition("a", 0)]
        assert (log.start_offset, log.end_offset) == (0, 2)

    def test_directories_without_a_registry_are_taken_as_they_are(self) -> None:
        files = FaultyFiles()
        directory = opened(files)
        ids = {name: create_topic(directory, name, 2).topic_id for name in ("a", "b-c-1")}
        fill(directory, "a", 3)
        directory.close()
        files.unlink(ROOT / REGISTRY)
        files.unlink(ROOT / "a-1" / "partition.metadata")
        for name in ("a-2.0123456789abcdef-delete", "b-0.0123-stray", "x-0.0123-future", "remote-log-index-cache"):
            files.mkdir(ROOT / name)
        files.mkdir(ROOT / "__cluster_metadata-0")
        again = opened(files)
        assert {topic.name: topic.topic_id for topic in again.registry.topics()} == ids
        assert again.logs[TopicPartition("a", 0)].end_offset == 3
        assert len(again.logs) == 4
        names = {entry.name for entry in files.entries(ROOT)}
        assert "a-2.0123456789abcdef-delete" not in names
        assert {"b-0.0123-stray", "x-0.0123-future", "__cluster_metadata-0"} <= names

    def test_partitions_of_two_topics_of_one_name(self) -> None:
        files = FaultyFiles()
        directory = opened(files)
        create_topic(directory, "a", 2)
        directory.close()
        other = new_topic_id()
        files.open(ROOT / "a-1" / "partition.metadata", write=True).pwrite(f"version: 0\ntopic_id: {other}".encode(), 0)
        with pytest.raises(LogDamaged, match=r"the partitions of a have different topic ids: .* move those of one"):
            opened(files)

    def test_a_registry_that_cannot_be_read(self) -> None:
        files = FaultyFiles()
        directory = opened(files)
        create_topic(directory, "a", 1)
        directory.close()
        for text in (
            "",
            "{",
            "[]",
            '{"version": 9, "topics": []}',
            '{"version": 1, "topics": [{"name": "a"}]}',
            "\xff",
        ):
            file = files.open(ROOT / REGISTRY, write=True)
            file.truncate(0)
            file.pwrite(text.encode("latin-1"), 0)
            with pytest.raises(LogDamaged, match=r"muster-topics.json cannot be read.* move the file away"):
                opened(files)
        files.unlink(ROOT / REGISTRY)
        assert TopicPartition("a", 0) in opened(files).logs

    def test_the_registry_round_trips(self) -> None:
        topics = [
            Topic("a", new_topic_id(), 3, {"k": "v", "umlaut": "ä"}),
            Topic("b", new_topic_id(), 1, {}, deleting=True),
        ]
        assert decode_topics(encode_topics(topics)) == {topic.name: topic for topic in topics}

    def test_ids(self) -> None:
        ids = {new_topic_id() for _ in range(2000)}
        assert len(ids) == 2000
        assert all(len(one) == 22 and not one.startswith("-") for one in ids)


class TestWhoseItIs:
    def test_two_clusters_do_not_mix(self) -> None:
        files = FaultyFiles()
        opened(files, cluster_id="A" * 22).close()
        assert opened(files).meta.cluster_id == "A" * 22
        files._locks.clear()
        with pytest.raises(ConfigError, match=rf"/data belongs to cluster {'A' * 22}, and cluster {'B' * 22} was"):
            opened(files, cluster_id="B" * 22)
        opened(files, cluster_id="A" * 22)

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("version=1\ncluster.id=abc\nnode.id=1\ndirectory.id=xyz\n", MetaProperties("abc", 1, "xyz", 1)),
            (
                "#\n#Thu Jan 01 00:00:00 UTC 2024\ncluster.id=abc\nversion=0\nbroker.id=7\n",
                MetaProperties("abc", 7, None, 0),
            ),
            ("version: 1\n cluster.id  a\\:b\nnode.id = 2\n", MetaProperties("a:b", 2, None, 1)),
            ("version=1\ncluster.id=a\\u0062c \nnode.id=1\n", MetaProperties("abc", 1, None, 1)),
            ("", MetaProperties(None, None, None, 0)),
        ],
    )
    def test_meta_properties(self, text: str, expected: MetaProperties) -> None:
        assert decode_meta(text, Path("m")) == expected
        assert decode_meta(encode_meta(expected).decode(), Path("m")) == expected

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("version=2\n", "version '2'; 0 and 1 are known"),
            ("version=1\nnode.id=1\n", "has no cluster.id"),
            ("version=1\ncluster.id=a\n", "has no node.id"),
            ("version=1\ncluster.id=a\nnode.id=one\n", "no number"),
            ("version=1\ncluster.id=\\u00g0\nnode.id=1\n", r"/data/meta\.properties: line 2 has a \\u without"),
        ],
    )
    def test_wrong_meta_properties(self, text: str, words: str) -> None:
        files = FaultyFiles()
        files.mkdir(ROOT)
        files.open(ROOT / "meta.properties", create=True).pwrite(text.encode(), 0)
        with pytest.raises(ConfigError, match=words):
            opened(files)


class TestTheLock:
    def test_held_by_this_process(self, tmp_path: Path) -> None:
        first = LogDirectory.open(tmp_path, files=UNSYNCED)
        with pytest.raises(ConfigError, match=r"is in use: .* Stop the broker or muster"):
            LogDirectory.open(tmp_path, files=UNSYNCED)
        assert lock_is_free(tmp_path) is False  # the attempt has not taken it away from the first
        first.close()
        assert lock_is_free(tmp_path)
        LogDirectory.open(tmp_path, files=UNSYNCED).close()

    def test_held_by_another_process(self, tmp_path: Path) -> None:
        script = (
            "import sys; from pathlib import Path; from muster.log.directory import LogDirectory\n"
            "LogDirectory.open(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
        )
        command = [sys.executable, "-c", script, str(tmp_path)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"held\n"
            with pytest.raises(ConfigError, match="is in use"):
                LogDirectory.open(tmp_path)
            holder.kill()
        LogDirectory.open(tmp_path).close()

    def test_given_up_when_opening_fails(self, tmp_path: Path) -> None:
        (tmp_path / "meta.properties").write_text("version=9\n")
        with pytest.raises(ConfigError):
            LogDirectory.open(tmp_path)
        assert lock_is_free(tmp_path)


def lock_is_free(path: Path) -> bool:
    script = "import fcntl, sys\nfcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    return (
        subprocess.run([sys.executable, "-c", script, str(path / ".lock")], stderr=subprocess.DEVNULL).returncode == 0
    )


class TestCheckpoints:
    def test_they_say_where_to_look(self) -> None:
        files = FaultyFiles()
        directory = opened(files)
        create_topic(directory, "a", 1)
        fill(directory, "a", 20)
        checkpoint(directory)
        fill(directory, "a", 2)
        log = opened(files.killed()).logs[TopicPartition("a", 0)]
        assert log.end_offset == 22
        assert log.report.checked_bytes < 500
        assert log.report.replayed_bytes == 0

    def test_a_raised_start_lasts(self) -> None:
        files = FaultyFiles()
        directory = opened(files)
        create_topic(directory, "a", 1)
        fill(directory, "a", 20)
        log = directory.logs[TopicPartition("a", 0)]
        log.increase_start_offset(5)
        directory.write_log_starts()
        assert read_offsets(files, ROOT / LOG_STARTS) == {TopicPartition("a", 0): 5}
        assert opened(files.killed()).logs[TopicPartition("a", 0)].start_offset == 5

    @pytest.mark.parametrize(
        "text", ["1\n0\n", "x\n", "0\n2\na 0 1\n", "0\n1\na 0\n", "0\n1\na 0 x\n", "0\nx\na 0 1\n"]
    )
    def test_damaged_ones_are_ignored_and_told(self, text: str) -> None:
        files = FaultyFiles()
        directory = opened(files)
        create_topic(directory, "a", 1)
        fill(directory, "a", 3)
        checkpoint(directory)
        for name in (RECOVERY_POINTS, LOG_STARTS):
            file = files.open(ROOT / name, write=True)
            file.truncate(0)
            file.pwrite(text.encode(), 0)
        again = opened(files.killed())
        assert sum("ignored, so" in note for note in again.notes) == 2
        assert again.logs[TopicPartition("a", 0)].end_offset == 3

    def test_round_trip(self) -> None:
        files = FaultyFiles()
        offsets = {TopicPartition("b-1", 3): 1 << 60, TopicPartition("a", 0): 0}
        write_offsets(files, Path("/x"), offsets)
        assert read_offsets(files, Path("/x")) == offsets
        assert read_offsets(files, Path("/nothing")) == {}

    def test_what_kafka_leaves_before_it_has_anything_to_say(self) -> None:
        assert decode_lines(b"", "x") == decode_lines(b"0\n", "x") == decode_lines(b"0\n0\n", "x") == []
        with pytest.raises(Malformed):
            decode_lines(b"7\n0\n", "x")

    def test_leader_epochs(self) -> None:
        epochs = LeaderEpochs()
        assert epochs.assign(0, 0)
        assert not epochs.assign(0, 5)
        assert epochs.assign(2, 10)
        assert epochs.assign(4, 20)
        assert epochs.assign(3, 15)  # contradicts what was there: that is forgotten
        assert epochs.entries == [(0, 0), (2, 10), (3, 15)]
        assert epochs.truncate_from_start(12)
        assert epochs.entries == [(2, 12), (3, 15)]
        assert not epochs.truncate_from_start(12)
        assert epochs.truncate_from_end(15)
        assert epochs.entries == [(2, 12)]


class LookedUp(dict[TopicPartition, DiskLog]):
    """Logs that are found by their key, and never walked over."""

    def __init__(self, logs: dict[TopicPartition, DiskLog]) -> None:
        super().__init__(logs)
        self.keys_asked: list[TopicPartition] = []

    def get(self, key: TopicPartition, default: Any = None) -> Any:
        self.keys_asked.append(key)
        return super().get(key, default)

    def walked(self, *_: object) -> Any:
        raise AssertionError("all logs are walked over")

    __iter__ = items = keys = values = copy = walked


def test_other_settings_of_a_topic_are_brought_to_its_own_logs_alone() -> None:
    directory = LogDirectory.open(
        ROOT, lambda topic: LogConfig(max_message_bytes=int(topic.configs.get("max.message.bytes", 1_000))),
        files=FaultyFiles(),
    )  # fmt: skip
    for name in ("a", "b", "c"):
        create_topic(directory, name, 2)
    set_configs(directory, "b", {"max.message.bytes": "77"})
    logs = directory.logs
    directory.logs = looked_up = LookedUp(logs)
    directory.settings_changed("b")
    assert looked_up.keys_asked == [TopicPartition("b", 0), TopicPartition("b", 1)]
    assert [log.config.max_message_bytes for _, log in sorted(logs.items())] == [1_000, 1_000, 77, 77, 1_000, 1_000]


def test_no_numpy_to_open_a_directory(tmp_path: Path) -> None:
    """A server starts without what decodes logs in bulk."""
    script = (
        "import sys; from pathlib import Path; from muster.log.directory import LogDirectory\n"
        "from muster.log.flush import Flusher; from muster.log.compaction.manager import LogCleaner\n"
        "LogDirectory.open(Path(sys.argv[1])).close()\n"
        "print([name for name in ('numpy', 'numba', 'pyarrow') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_real_files(tmp_path: Path) -> None:
    file = REAL_FILES.open(tmp_path / "f", create=True)
    file.pwrite(b"hello", 3)
    assert (file.size(), file.pread(100, 0), file.pread(2, 4), file.pread(5, 100)) == (8, b"\0\0\0hello", b"el", b"")
    file.truncate(4)
    file.sync("point")
    file.close()
    file.close()
    file.sync("point")  # nothing to do, and no other file's descriptor to hit
    with pytest.raises(OSError):
        file.pread(1, 0)
    with pytest.raises(OSError):
        REAL_FILES.open(tmp_path / "f").pwrite(b"x", 0)
    with pytest.raises(FileNotFoundError):
        REAL_FILES.open(tmp_path / "g", write=True)
    REAL_FILES.mkdir(tmp_path / "d")
    REAL_FILES.mkdir(tmp_path / "d")
    with pytest.raises(FileExistsError):
        REAL_FILES.mkdir(tmp_path / "f")
    REAL_FILES.rename(tmp_path / "f", tmp_path / "d" / "f")
    REAL_FILES.unlink(tmp_path / "f")
    REAL_FILES.sync_directory(tmp_path / "d", "point")
    assert [tuple(entry) for entry in REAL_FILES.entries(tmp_path)] == [("d", True, 0)]
    assert [tuple(entry) for entry in REAL_FILES.entries(tmp_path / "d")] == [("f", False, 4)]
    assert REAL_FILES.exists(tmp_path / "d" / "f")
    assert len(os.listdir("/proc/self/fd")) < 200


def test_a_sync_that_failed_has_failed_for_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel reports it once. Of two threads that sync a file, the second must not take silence for success."""
    file = REAL_FILES.open(tmp_path / "f", create=True)

    def fail(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as broken:
        broken.setattr(os, "fdatasync", fail)
        with pytest.raises(OSError, match="Input/output error"):
            file.sync("point")
    with pytest.raises(OSError, match="Input/output error"):
        file.sync("point")
    file.close()
