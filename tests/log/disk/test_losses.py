"""Durable records that are gone, disks that are not mounted, and directories that are nobody's: told, never guessed."""

import shutil
from pathlib import Path

import pytest

from muster.errors import ConfigError
from muster.log.config import LogConfig
from muster.log.directory import LogDirectory
from muster.log.segment import LOG
from muster.log.topic_changes import remove_directory
from muster.log.topics import REGISTRY, TopicRefused, decode_topics
from muster.segments.checkpoints import RECOVERY_POINTS, TopicPartition, read_offsets
from tests.log.disk.changes import checkpoint, create_topic
from tests.log.disk.faults import FaultyFiles
from tests.log.disk.unsynced import UNSYNCED

ROOT = Path("/data")
START_MS = 1_800_000_000_000
SMALL = LogConfig(segment_bytes=700, index_interval_bytes=100)
OFFSETS = "__consumer_offsets"


def opened(files: FaultyFiles, **how: object) -> LogDirectory:
    return LogDirectory.open(ROOT, lambda topic: SMALL, files=files, **how)  # type: ignore[arg-type]


def used(topic: str, partitions: int = 2, records: int = 20, *, clean: bool = False) -> FaultyFiles:
    """A directory whose topic has so many durable records in each partition, after a crash or a clean stop."""
    files = FaultyFiles()
    directory = opened(files)
    create_topic(directory, topic, partitions)
    for log in directory.logs.values():
        for number in range(records):
            log.append([(b"k", b"%d" % number * 20)], START_MS + number)
            log.write()
    checkpoint(directory)
    if clean:
        assert directory.close()
    return files.killed()


def cut(files: FaultyFiles, partition: str, offset: int) -> None:
    """Leave a log that ends at an offset, between two batches: as a copy that was broken off might."""
    directory = opened(files.killed())
    log = directory.logs[TopicPartition(*split(partition))]
    keep = max(segment.base_offset for segment in log.segments if segment.base_offset <= offset)
    for segment in log.segments:
        if segment.base_offset == keep:
            place = segment.batch_at(offset)
            assert place is not None
            files.open(segment.path(LOG), write=True).truncate(place[0])
        if segment.base_offset > keep:
            for entry in files.entries(ROOT / partition):
                if entry.name.startswith(f"{segment.base_offset:020}"):
                    files.unlink(ROOT / partition / entry.name)


def split(partition: str) -> tuple[str, int]:
    topic, _, number = partition.rpartition("-")
    return topic, int(number)


def bytes_of(files: FaultyFiles, partition: str) -> dict[str, bytes]:
    return {
        entry.name: files.open(ROOT / partition / entry.name).pread(1 << 20, 0)
        for entry in files.entries(ROOT / partition)
        if entry.name.endswith(LOG)
    }


class TestLosses:
    @pytest.mark.parametrize("clean", [True, False])
    def test_a_log_that_ends_before_what_was_durable_is_told_with_what_is_lost(self, clean: bool) -> None:
        files = used("a", clean=clean)
        cut(files, "a-1", 13)
        again = opened(files.killed())
        assert any("a-1: durable up to 20, found up to 13, so offsets 13 to 19 are lost" in one for one in again.notes)
        assert [log.end_offset for log in again.logs.values()] == [20, 13]
        assert [loss.partition for loss in again.losses] == ["a-1"]

    def test_a_partition_without_its_directory_is_told(self) -> None:
        files = used("a")
        remove_directory(files, ROOT / "a-0")
        again = opened(files)
        assert any("a-0: durable up to 20, its directory is missing, so offsets 0 to 19" in one for one in again.notes)
        assert [log.end_offset for log in again.logs.values()] == [0, 20]

    def test_a_topic_without_any_directory_is_told_as_long_as_a_recovery_point_names_it(self) -> None:
        files = used("a")
        for partition in ("a-0", "a-1"):
            remove_directory(files, ROOT / partition)
        again = opened(files)
        assert sum("its directory is missing" in note for note in again.notes) == 2
        assert [topic.partitions for topic in again.registry.topics()] == [2]

    def test_without_the_registry_the_recovery_points_still_tell(self) -> None:
        files = used(OFFSETS)
        files.unlink(ROOT / REGISTRY)
        for partition in (0, 1):
            remove_directory(files, ROOT / f"{OFFSETS}-{partition}")
        again = opened(files, offsets_partitions=2)
        assert [loss.durable_up_to for loss in again.losses] == [20, 20]

    def test_what_was_told_and_accepted_is_not_told_again(self) -> None:
        files = used("a")
        cut(files, "a-1", 13)
        remove_directory(files, ROOT / "a-0")
        assert len(opened(files).losses) == 2
        again = files.killed()
        assert opened(again).losses == []
        assert read_offsets(again, ROOT / RECOVERY_POINTS) == {TopicPartition("a", 0): 0, TopicPartition("a", 1): 13}

    def test_losses_of_the_offsets_topic_are_refused_together_and_nothing_changes(self) -> None:
        files = used(OFFSETS, 4)
        cut(files, f"{OFFSETS}-1", 13)
        remove_directory(files, ROOT / f"{OFFSETS}-2")
        before = bytes_of(files, f"{OFFSETS}-1")
        for _ in range(2):
            with pytest.raises(Exception, match="are lost") as refused:
                opened(files, accept_loss=False, offsets_partitions=4)
            assert f"{OFFSETS}-1: durable up to 20, found up to 13" in str(refused.value)
            assert f"{OFFSETS}-2: durable up to 20, its directory is missing" in str(refused.value)
            assert not files.exists(ROOT / f"{OFFSETS}-2"), "a new one would look as if nothing was lost"
            assert bytes_of(files, f"{OFFSETS}-1") == before
        directory = opened(files, accept_loss=True, offsets_partitions=4)
        assert [log.end_offset for log in directory.logs.values()] == [20, 13, 0, 20]
        assert directory.close()
        assert opened(files, accept_loss=False).losses == []

    def test_damage_below_the_recovery_point_is_not_cut_off_before_somebody_has_decided(self) -> None:
        files = used(OFFSETS, 1)
        log = opened(files.killed()).logs[TopicPartition(OFFSETS, 0)]
        last = log.segments[-1]
        place = last.batch_at(19)
        assert place is not None
        files.open(last.path(LOG), write=True).pwrite(b"XX", place[0] + 30)
        before = bytes_of(files, f"{OFFSETS}-0")
        with pytest.raises(Exception, match="durable up to 20, found up to 19, so offsets 19 to 19 are lost"):
            opened(files, accept_loss=False, offsets_partitions=1)
        assert bytes_of(files, f"{OFFSETS}-0") == before
        assert opened(files, accept_loss=True).logs[TopicPartition(OFFSETS, 0)].end_offset == 19

    def test_other_topics_do_not_keep_a_directory_from_being_opened(self) -> None:
        files = used("a")
        cut(files, "a-1", 13)
        assert len(opened(files, accept_loss=False).losses) == 1

    def test_a_log_cut_on_purpose_is_no_loss(self) -> None:
        """Its end may lie before the offset that was named: batches are cut whole."""
        files = FaultyFiles()
        directory = opened(files)
        create_topic(directory, "a", 1)
        log = directory.logs[TopicPartition("a", 0)]
        log.append([(b"k", b"%d" % number) for number in range(10)], START_MS)
        checkpoint(directory)
        directory.truncate(TopicPartition("a", 0), 5)
        assert log.end_offset == 0
        assert opened(files.killed()).losses == []


class TestMustExist:
    @pytest.mark.parametrize("made", [True, False])
    def test_a_directory_without_data_is_refused_and_stays_as_it_is(self, tmp_path: Path, made: bool) -> None:
        path = tmp_path / "data"
        if made:
            path.mkdir()
        with pytest.raises(ConfigError, match=r"holds no data .* Is the disk mounted"):
            LogDirectory.open(path, files=UNSYNCED, must_exist=True)
        assert path.exists() == made
        assert not made or list(path.iterdir()) == []

    def test_one_with_data_is_opened(self) -> None:
        files = FaultyFiles()
        first = opened(files)
        assert first.is_new
        assert first.close()
        assert not opened(files, must_exist=True).is_new


class TestStrays:
    @pytest.mark.parametrize("with_registry", [True, False])
    @pytest.mark.parametrize("name", ["backup-300", "backup-0", "b-7"])
    def test_a_directory_that_only_looks_like_a_partition(self, name: str, with_registry: bool) -> None:
        files = used("a", clean=True)
        files.mkdir(ROOT / name)
        files.open(ROOT / name / "notes.txt", create=True)
        if not with_registry:
            files.unlink(ROOT / REGISTRY)
        again = opened(files)
        assert sorted(map(str, again.logs)) == ["a-0", "a-1"]
        assert [entry.name for entry in files.entries(ROOT) if entry.is_directory] == sorted(["a-0", "a-1", name])
        assert [entry.name for entry in files.entries(ROOT / name)] == ["notes.txt"]
        assert any(f"left alone, since no topic has them: {name}." in note for note in again.notes)

    def test_a_copy_of_a_partition_under_another_name(self, tmp_path: Path) -> None:
        directory = LogDirectory.open(tmp_path, files=UNSYNCED)
        create_topic(directory, "a", 1)
        directory.close()
        shutil.copytree(tmp_path / "a-0", tmp_path / "copy-0")
        shutil.copytree(tmp_path / "a-0", tmp_path / "a-300")
        again = LogDirectory.open(tmp_path, files=UNSYNCED)
        assert list(again.logs) == [TopicPartition("a", 0)]
        assert any("no topic has them: a-300, copy-0." in note for note in again.notes)

    def test_a_directory_whose_name_ends_in_delete_is_not_removed(self) -> None:
        files = used("a", clean=True)
        for name in ("do-not-delete", "a-0.to-delete"):
            files.mkdir(ROOT / name)
        opened(files)
        assert files.exists(ROOT / "do-not-delete")
        assert files.exists(ROOT / "a-0.to-delete")

    def test_one_disk_of_a_larger_cluster_has_gaps_and_its_topics_are_left_alone(self) -> None:
        files = used("a", 6, clean=True)
        files.unlink(ROOT / REGISTRY)
        for number in (0, 1, 3, 4):
            remove_directory(files, ROOT / f"a-{number}")
        again = opened(files)
        assert again.registry.topics() == []
        assert any("no topic has them: a-2, a-5" in note for note in again.notes)
        assert files.exists(ROOT / "a-2" / "partition.metadata")

    def test_a_topic_that_a_broker_made_is_taken_over_beside_ours(self) -> None:
        files = used("a", clean=True)
        ours = decode_topics(files.open(ROOT / REGISTRY).pread(1 << 20, 0))
        directory = opened(files)
        theirs = create_topic(directory, "b", 2)
        assert directory.close()
        registry = {name: topic for name, topic in ours.items() if name == "a"}
        directory.registry.change(registry.values(), ["b"])
        again = opened(files)
        assert [(topic.name, topic.topic_id) for topic in again.registry.topics()] == [
            ("a", ours["a"].topic_id),
            ("b", theirs.topic_id),
        ]

    def test_a_topic_is_not_made_over_a_stray(self) -> None:
        files = used("a", clean=True)
        files.mkdir(ROOT / "b-1")
        files.open(ROOT / "b-1" / "precious", create=True)
        directory = opened(files)
        with pytest.raises(TopicRefused, match=r"/data/b-1 is there already, and is no topic's. Move it away"):
            create_topic(directory, "b", 2)
        assert not files.exists(ROOT / "b-0")
        assert files.exists(ROOT / "b-1" / "precious")
        assert directory.registry.get("b") is None


class TestTheNumberOfOffsetsPartitions:
    def left_by_a_broker(self, partitions: int, *missing: int) -> FaultyFiles:
        files = used(OFFSETS, partitions, records=2, clean=True)
        files.unlink(ROOT / REGISTRY)
        files.unlink(ROOT / RECOVERY_POINTS)
        for number in missing:
            remove_directory(files, ROOT / f"{OFFSETS}-{number}")
        return files

    def test_all_of_them_are_taken_over(self) -> None:
        directory = opened(self.left_by_a_broker(5), offsets_partitions=5, accept_loss=False)
        assert len(directory.logs) == 5
        assert directory.losses == []

    def test_the_registry_knows_better_than_a_setting(self) -> None:
        files = used(OFFSETS, 5, clean=True)
        assert len(opened(files, offsets_partitions=50, accept_loss=False).logs) == 5

    def test_a_larger_one_than_said_is_refused(self) -> None:
        files = self.left_by_a_broker(10, 7, 8)
        with pytest.raises(ConfigError, match=r"has partitions 0-6, 9 of __consumer_offsets, .*partitions is 8\."):
            opened(files, offsets_partitions=8)
        assert not files.exists(ROOT / f"{OFFSETS}-7")
        assert not files.exists(ROOT / REGISTRY)

    def test_fewer_than_said_are_a_loss(self) -> None:
        """One broker's disk of a larger cluster: the groups of the other partitions are on other disks."""
        files = self.left_by_a_broker(10, 8, 9)
        with pytest.raises(Exception, match="__consumer_offsets-8: its directory is missing, and how much was in it"):
            opened(files, offsets_partitions=10, accept_loss=False)
        assert not files.exists(ROOT / f"{OFFSETS}-8")
        directory = opened(files, offsets_partitions=10, accept_loss=True)
        assert len(directory.logs) == 10
        assert [loss.partition for loss in directory.losses] == [f"{OFFSETS}-8", f"{OFFSETS}-9"]
        assert directory.close()
        assert opened(files, accept_loss=False).losses == []

    def test_a_stray_does_not_make_it_larger(self) -> None:
        files = used(OFFSETS, 3, clean=True)
        files.mkdir(ROOT / f"{OFFSETS}-47")
        directory = opened(files, offsets_partitions=3, accept_loss=False)
        assert len(directory.logs) == 3
        assert any(f"no topic has them: {OFFSETS}-47" in note for note in directory.notes)
