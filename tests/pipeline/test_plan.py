"""What a run reads: progress against what the source has now."""

import pytest

from muster.pipeline.model import PartitionReport, SegmentFiles
from muster.pipeline.plan import Cut, PartitionState, advanced, packed, plan
from muster.tables.manifest import PartitionProgress as Progress

FILES = SegmentFiles(("somewhere",), ())


def state(start: int, end: int, epochs: tuple[tuple[int, int], ...] = ((0, 0),), partition: int = 3) -> PartitionState:
    return PartitionState(partition, FILES, start, end, epochs, 1000)


def known(next_offset: int, epoch: int = 0) -> dict[int, Progress]:
    return {3: Progress(next_offset, epoch, 0, 0, None, 50)}


def report(**changes: object) -> PartitionReport:
    base = PartitionReport(3, 0, 120, 1, 20, 0, 100, 7000, 9000, 0, (), 10)
    return base._replace(**changes)  # type: ignore[arg-type]


def test_the_first_run_reads_from_the_start_of_the_log() -> None:
    (work,), cuts = plan([state(40, 100)], {})
    assert (work.from_offset, work.to_offset, work.state_from_scratch, cuts) == (40, 100, False, ())


def test_a_later_run_reads_on() -> None:
    (work,), cuts = plan([state(0, 100)], known(60))
    assert (work.from_offset, work.to_offset, cuts) == (60, 100, ())
    assert work.size_bytes == 400  # two fifths are new


def test_nothing_new_is_nothing_to_do() -> None:
    assert plan([state(0, 60)], known(60)) == ((), ())


def test_an_empty_partition_is_read_once_so_that_it_is_known() -> None:
    (work,), _ = plan([state(0, 0)], {})
    assert work.from_offset == 0


def test_a_log_that_ends_before_what_was_read_was_truncated() -> None:
    (work,), cuts = plan([state(0, 50)], known(60))
    assert cuts == (Cut(3, 50),)
    assert (work.from_offset, work.state_from_scratch) == (50, True)


def test_a_newer_epoch_that_begins_before_what_was_read_replaced_it() -> None:
    (work,), cuts = plan([state(0, 100, ((0, 0), (2, 55)))], known(60, epoch=1))
    assert cuts == (Cut(3, 55),)
    assert (work.from_offset, work.state_from_scratch) == (55, True)


def test_a_newer_epoch_that_begins_where_reading_stopped_is_no_truncation() -> None:
    (work,), cuts = plan([state(0, 100, ((0, 0), (2, 60)))], known(60, epoch=1))
    assert (work.from_offset, cuts) == (60, ())


def test_a_log_without_epochs_is_judged_by_its_end_alone() -> None:
    (work,), cuts = plan([state(0, 100, ())], known(60, epoch=-1))
    assert (work.from_offset, cuts) == (60, ())


def test_a_log_cut_to_nothing_is_still_worked_on_to_rebuild_its_state() -> None:
    (work,), cuts = plan([state(0, 0)], known(60))
    assert cuts == (Cut(3, 0),)
    assert work.state_from_scratch


def test_works_are_packed_by_size() -> None:
    works, _ = plan([PartitionState(number, FILES, 0, 10, (), size) for number, size in enumerate([9, 1, 5, 4])], {})
    bins = packed(works, 2)
    assert sorted(sum(work.size_bytes for work in each) for each in bins) == [9, 10]
    assert [len(each) for each in packed(works, 100)] == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("before", "changes", "expected"),
    [
        (None, {}, (120, 1, 100, 7000)),
        (known(100)[3], {}, (120, 1, 0, None)),  # nothing was missing in between: complete as before
        (known(100)[3], {"gaps": 2}, (120, 1, 100, 7000)),
        (known(100, 5)[3], {"records": 0, "leader_epoch": -1}, (120, 5, 0, None)),
    ],
)
def test_progress_after_a_run(
    before: Progress | None, changes: dict[str, object], expected: tuple[int, int, int, int | None]
) -> None:
    after = advanced(before, report(**changes))
    assert (after.next_offset, after.leader_epoch, after.complete_since_offset, after.complete_since_ms) == expected
    assert after.newest_timestamp_ms == 9000
