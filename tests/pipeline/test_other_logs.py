"""A source that has less than the tables, or another log altogether: history is never withdrawn in silence."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.errors import BadInput
from tests.pipeline.test_life import KEYS, Life, offsets_of
from tests.pipeline.world import rows_of, run_here

HISTORY = ("commits", "markers", "group_records")


def grown(life: Life, commits: int, first: int = 0) -> Life:
    for number in range(first, first + commits):
        life.commit(KEYS[number % len(KEYS)], number)
    return life


def everything(tables: Path) -> dict[str, list[str]]:
    return {name: sorted(map(repr, rows)) for name, rows in rows_of(tables, *HISTORY, "offsets").items()}


def assert_as_from_scratch(tables: Path, log: Path) -> None:
    scratch = tables.parent / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    run_here(scratch, log)
    assert everything(tables) == everything(scratch)


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    return tmp_path / "tables"


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    made = grown(Life(tmp_path / "log"), 20)
    yield made
    made.log.close()


def test_an_older_copy_of_the_same_disk_withdraws_nothing(life: Life, tables: Path, tmp_path: Path) -> None:
    shutil.copytree(life.root, tmp_path / "copy")
    grown(life, 10, first=20)
    run_here(tables, life.root)
    before = everything(tables)
    summary = run_here(tables, tmp_path / "copy")
    (note,) = summary.notes
    assert "less than what was read of 1 partition (0 ends at offset 20, read up to 30)" in note
    assert "left as it was. --accept-truncation takes the shorter log for the truth." in note
    assert (summary.records, everything(tables)) == (0, before)
    grown(life, 5, first=30)
    assert run_here(tables, life.root).notes == []
    assert_as_from_scratch(tables, life.root)


@pytest.mark.parametrize("with_checkpoint", [True, False])
def test_a_lost_tail_is_a_truncation_as_soon_as_a_newer_leader_says_so(
    with_checkpoint: bool, life: Life, tables: Path
) -> None:
    run_here(tables, life.root)
    before = everything(tables)
    life.log.truncate_to(14)  # a power cut took what was not on the disk yet
    assert "left as it was" in run_here(tables, life.root).notes[0]
    assert everything(tables) == before
    life.log.leader_epoch += 1
    grown(life, 3, first=50)
    if not with_checkpoint:
        (life.root / "__consumer_offsets-0" / "leader-epoch-checkpoint").unlink()
    (note,) = run_here(tables, life.root).notes
    assert note.startswith("partition 0 was truncated at offset 14 under a newer leader: 6 rows of what it had held")
    assert_as_from_scratch(tables, life.root)


def test_a_shorter_log_is_taken_for_the_truth_on_request(life: Life, tables: Path) -> None:
    run_here(tables, life.root)
    life.log.truncate_to(14)
    (note,) = run_here(tables, life.root, accept_truncation=True).notes
    assert note.startswith("partition 0 was truncated at offset 14 by --accept-truncation: 6 rows")
    assert_as_from_scratch(tables, life.root)
    grown(life, 9, first=70)
    assert run_here(tables, life.root).notes == []
    assert_as_from_scratch(tables, life.root)


@pytest.mark.parametrize("commits", [12, 25])
@pytest.mark.parametrize("epoch", [0, 3])
def test_the_log_of_another_cluster_is_refused_and_nothing_changes(
    commits: int, epoch: int, life: Life, tables: Path, tmp_path: Path
) -> None:
    run_here(tables, life.root)
    before = everything(tables)
    other = Life(tmp_path / "other", now_ms=life.now_ms + 123)
    grown(other, 10)
    other.log.leader_epoch = epoch
    grown(other, commits - 10, first=10)
    with pytest.raises(BadInput, match=r"log of partition 0 .* another record than was read.*Nothing was changed"):
        run_here(tables, other.root)
    other.log.close()
    assert everything(tables) == before
    assert run_here(tables, life.root).notes == []


def test_a_backup_that_was_restored_and_went_on_by_itself(life: Life, tables: Path, tmp_path: Path) -> None:
    grown(life, 44, first=20)
    shutil.copytree(life.root, tmp_path / "backup")
    run_here(tables, life.root)
    grown(life, 30, first=70)
    run_here(tables, life.root)
    before = everything(tables)
    restored = Life(tmp_path / "backup", now_ms=life.now_ms + 1)
    grown(restored, 60, first=200)
    with pytest.raises(
        BadInput, match="--accept-truncation withdraws what was read behind the last record known to both"
    ):
        run_here(tables, restored.root)
    assert everything(tables) == before
    (note,) = run_here(tables, restored.root, accept_truncation=True).notes
    assert "by --accept-truncation" in note
    assert_as_from_scratch(tables, restored.root)
    assert run_here(tables, restored.root).notes == []
    restored.log.close()


def test_a_partition_that_is_gone_from_the_source_is_noted_and_stays(life: Life, tables: Path) -> None:
    grown(life, 1)
    shutil.copytree(life.root / "__consumer_offsets-0", life.root / "__consumer_offsets-7")
    run_here(tables, life.root)
    before = everything(tables)
    shutil.rmtree(life.root / "__consumer_offsets-7")
    assert run_here(tables, life.root).notes == [
        "the source does not have 1 partition (7) any more; what was read of it stays."
    ]
    assert everything(tables) == before


def test_a_topic_of_another_id_is_another_topic(life: Life, tables: Path) -> None:
    metadata = life.root / "__consumer_offsets-0" / "partition.metadata"
    metadata.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    run_here(tables, life.root)
    before = everything(tables)
    metadata.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAg\n")
    grown(life, 1)
    with pytest.raises(
        BadInput, match="with the id AAAAAAAAAAAAAAAAAAAAAQ, the source's has the id AAAAAAAAAAAAAAAAAAAAAg"
    ):
        run_here(tables, life.root)
    assert everything(tables) == before


def test_what_the_cleaner_took_tells_nothing_about_the_log(life: Life, tables: Path) -> None:
    life.close_segment()
    run_here(tables, life.root)
    grown(life, 20, first=40)
    life.close_segment()
    life.clean()
    summary = run_here(tables, life.root)
    assert not any("truncated" in note or "left as" in note for note in summary.notes)
    assert offsets_of(tables) == {key: committed for key, (committed, _) in life.in_force.items()}
