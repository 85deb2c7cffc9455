"""One partition on several brokers: the copy that leads, and what the others still have of the same log."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from muster.codec.batches import encode_batch, encode_marker
from muster.codec.records import TRANSACTIONAL, Record
from muster.errors import BadInput
from muster.pipeline.model import PartitionWork
from muster.pipeline.plan import Parting
from muster.pipeline.sources.replicas import DescribedPartition, agreeing, describe_partition, epochs_at, parting
from muster.segments.checkpoints import LeaderEpochs, write_epochs
from muster.segments.files import RealFiles
from muster.segments.reader import record_batches
from tests.pipeline.extracting import Found, context_in, run
from tests.pipeline.world import unpacked
from tests.segments import commit, tombstone, write_segment

LINEAGE = ((0, 0), (3, 4), (5, 10))


def replica(folder: Path, *batches: bytes, epochs: tuple[tuple[int, int], ...] = ()) -> Path:
    write_segment(folder, b"".join(batches))
    directory = folder / "__consumer_offsets-0"
    if epochs:
        write_epochs(RealFiles(), directory, LeaderEpochs(list(epochs)))
    return directory


def written(epoch: int, *records: Record) -> bytes:
    return encode_batch(list(records), leader_epoch=epoch)


def extracted(described: DescribedPartition, tmp_path: Path, **changes: object) -> Found:
    work = PartitionWork(0, described.source, 0, described.end_offset, False, 0)._replace(**changes)  # type: ignore[arg-type]
    return run([work], context_in(tmp_path / "out"))


class TestWhoLeads:
    def test_the_newest_epoch_and_not_the_longest_log(self, tmp_path: Path) -> None:
        old = replica(tmp_path / "1", written(1, *map(commit, range(9))), epochs=((1, 0),))
        new = replica(tmp_path / "2", written(1, commit(0)), written(2, commit(1)), epochs=((1, 0), (2, 1)))
        found = describe_partition([old, new])
        assert found.source.directories == (str(new), str(old))
        assert found.source.epochs == ((1, 0), (2, 1))
        assert (found.log_start_offset, found.end_offset, found.last_epoch) == (0, 2, 2)

    def test_of_the_same_epoch_the_longest_log(self, tmp_path: Path) -> None:
        behind = replica(tmp_path / "1", written(1, commit(0)), epochs=((1, 0),))
        ahead = replica(tmp_path / "2", written(1, commit(0), commit(1)), epochs=((1, 0),))
        assert describe_partition([behind, ahead]).source.directories == (str(ahead), str(behind))

    def test_without_checkpoints_the_headers_tell(self, tmp_path: Path) -> None:
        old = replica(tmp_path / "1", written(1, commit(0), commit(1), commit(2)))
        new = replica(tmp_path / "2", written(1, commit(0)), written(2, commit(1)))
        found = describe_partition([old, new])
        assert found.source.directories[0] == str(new)
        assert (found.source.epochs, found.last_epoch) == ((), 2)

    def test_a_checkpoint_that_is_damaged_is_as_good_as_none(self, tmp_path: Path) -> None:
        only = replica(tmp_path / "1", written(4, commit(0)))
        (only / "leader-epoch-checkpoint").write_text("0\n7\nnonsense\n")
        assert describe_partition([only])[1:] == (0, 1, 4)

    def test_an_epoch_without_records_counts(self, tmp_path: Path) -> None:
        replica(tmp_path / "1", written(1, commit(0)), epochs=((1, 0), (6, 1)))
        assert describe_partition([tmp_path / "1" / "__consumer_offsets-0"]).last_epoch == 6

    def test_a_segment_that_was_just_rolled(self, tmp_path: Path) -> None:
        directory = replica(tmp_path / "1", written(2, commit(0), commit(1)))
        write_segment(tmp_path / "1", b"", 2)
        assert describe_partition([directory])[1:] == (0, 2, 2)

    def test_an_unfinished_batch_is_not_the_end(self, tmp_path: Path) -> None:
        directory = replica(tmp_path / "1", written(2, commit(0)), written(2, commit(1))[:-3])
        assert describe_partition([directory]).end_offset == 1

    def test_directories_without_segments(self, tmp_path: Path) -> None:
        (tmp_path / "empty").mkdir()
        directory = replica(tmp_path / "1", written(2, commit(0)))
        assert describe_partition([tmp_path / "empty", directory]).source.directories == (str(directory),)
        with pytest.raises(BadInput, match="has no segment in it"):
            describe_partition([tmp_path / "empty"])


class TestLineage:
    def test_epochs_of_offsets(self) -> None:
        offsets = np.array([0, 3, 4, 9, 10, 50])
        assert epochs_at(LINEAGE, offsets).tolist() == [0, 0, 3, 3, 5, 5]
        assert epochs_at(LINEAGE[1:], offsets).tolist() == [-1, -1, 3, 3, 5, 5]
        assert epochs_at((), offsets).tolist() == [-1] * 6
        assert agreeing(LINEAGE, offsets, np.array([0, 3, 3, 4, -1, 5])).tolist() == [
            True,
            False,
            True,
            False,
            True,
            True,
        ]
        assert agreeing((), offsets, offsets).all()


class TestWhatOthersHave:
    def test_records_that_the_cleaner_of_the_leader_has_removed(self, tmp_path: Path) -> None:
        every = [commit(number, partition=number % 2) for number in range(6)]
        leader = replica(tmp_path / "1", written(1, every[4], every[5]), epochs=((1, 0),))
        first = replica(tmp_path / "2", written(1, every[1], every[2], every[4]), epochs=((1, 0),))
        second = replica(tmp_path / "3", written(1, every[2], every[3], every[5]), epochs=((1, 0),))
        described = describe_partition([first, second, leader])
        assert described.source.directories[0] in (str(leader), str(second))
        source = described.source._replace(directories=(str(leader), str(first), str(second)))
        found = extracted(described._replace(source=source), tmp_path)
        assert found.offsets("commits") == [1, 2, 3, 4, 5]
        assert (found.report.records, found.report.gaps) == (5, 1)
        assert (found.report.complete_since_offset, found.report.complete_since_ms) == (1, every[1].timestamp_ms)
        assert found.offsets("winners_commits") == [4, 5]

    @pytest.mark.parametrize("with_checkpoint", [True, False])
    def test_what_was_never_part_of_the_log_is_left_out(self, with_checkpoint: bool, tmp_path: Path) -> None:
        """The old leader wrote 2 and 3 under epoch 1; the new one did not have them and wrote its own."""
        epochs = ((1, 0), (2, 2)) if with_checkpoint else ()
        leader = replica(
            tmp_path / "1", written(1, commit(0)), written(2, commit(2, topic="new"), commit(5)), epochs=epochs
        )
        stale = replica(tmp_path / "2", written(1, commit(0), commit(1)), written(1, commit(2), commit(3)))
        found = extracted(describe_partition([stale, leader]), tmp_path)
        assert [(row["log_offset"], row["topic"]) for row in found.tables["commits"]] == [
            (0, "orders"),
            (1, "orders"),
            (2, "new"),
            (5, "orders"),
        ]
        assert found.report.gaps == 2

    def test_a_transaction_that_only_another_replica_still_has(self, tmp_path: Path) -> None:
        transactional = encode_batch(
            [commit(0)], attributes=TRANSACTIONAL, producer_id=7, producer_epoch=0, leader_epoch=1
        )
        marker = encode_marker(1, 5, 7, 0, commit=True, coordinator_epoch=0)
        follower = replica(tmp_path / "2", transactional, marker, written(1, commit(2)))
        leader = replica(tmp_path / "1", written(1, commit(2)), written(1, commit(3)), epochs=((1, 0),))
        found = extracted(describe_partition([leader, follower]), tmp_path)
        assert [(row["log_offset"], row["txn_marker_offset"]) for row in found.tables["commits"]] == [
            (0, 1),
            (2, None),
            (3, None),
        ]
        assert found.offsets("markers") == [1]
        assert (found.report.gaps, found.tables["open_commits"]) == (0, [])

    def test_a_deletion_only_another_replica_has_knows_its_past(self, tmp_path: Path) -> None:
        follower = replica(tmp_path / "2", written(1, commit(0), tombstone(1), commit(2)))
        leader = replica(tmp_path / "1", written(1, commit(2), commit(3)), epochs=((1, 0),))
        found = extracted(describe_partition([leader, follower]), tmp_path)
        deletion = found.tables["commits"][1]
        assert (deletion["kind"], deletion["previous_commit_timestamp_ms"]) == ("deleted", commit(0).timestamp_ms)

    def test_only_what_is_in_the_range(self, tmp_path: Path) -> None:
        follower = replica(tmp_path / "2", *(written(1, commit(number)) for number in range(8)))
        leader = replica(tmp_path / "1", written(1, commit(7), commit(8)), epochs=((1, 0),))
        described = describe_partition([leader, follower])
        found = extracted(described, tmp_path, from_offset=4)
        assert found.offsets("commits") == [4, 5, 6, 7, 8]
        assert (found.report.records, found.report.gaps) == (5, 0)


@pytest.mark.parametrize("name", ["k08-to-26", "k26-formats", "k36-gzip", "k43-full", "mini-snappy-26", "mini-zstd-43"])
@pytest.mark.parametrize("with_index", [True, False])
def test_landmarks_of_real_logs_are_found_where_they_were_read(name: str, with_index: bool, tmp_path: Path) -> None:
    """Every record, and offsets that compaction has emptied: those that are not there contradict nothing."""
    seen = 0
    for directory in sorted(unpacked(name, tmp_path).glob("__consumer_offsets-*")):
        if not with_index:
            for index in directory.glob("*.index"):
                index.unlink()
        table = pa.Table.from_batches(record_batches(directory)) if any(directory.glob("*.log")) else pa.table({})
        if not table.num_rows:
            continue
        rows = table.select(["log_offset", "timestamp_ms", "control"]).to_pylist()
        there = {row["log_offset"]: row["timestamp_ms"] for row in rows if row["control"] is None}
        gone = set(range(max(there, default=0))) - there.keys()
        dated = [(offset, time_ms) for offset, time_ms in there.items() if time_ms is not None]  # magic 0 has no times
        for offset, time_ms in dated[-40:]:
            seen += 1
            assert parting(str(directory), [(offset, time_ms)]) is None
            assert parting(str(directory), [(offset, time_ms + 1)]) == Parting(offset, 0)
        for offset in sorted(gone)[:20]:
            assert parting(str(directory), [(offset, 5)]) is None
    assert seen
