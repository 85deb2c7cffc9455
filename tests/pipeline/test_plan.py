"""What a run reads: progress against what the source has now."""

from itertools import pairwise

import pytest

from muster.pipeline import plan as plans
from muster.pipeline.model import PartitionReport, SegmentFiles
from muster.pipeline.plan import (
    Behind,
    Conflict,
    Cut,
    Parting,
    PartitionState,
    Plan,
    advanced,
    packed,
    plan,
    remembered_topics,
    spread,
    task_bytes,
    thinned,
    withdrawn,
)
from muster.tables.storage.manifest import PartitionProgress as Progress

FILES = SegmentFiles(("somewhere",), ())


def state(start: int, end: int, epochs: tuple[tuple[int, int], ...] = ((0, 0),), partition: int = 3) -> PartitionState:
    return PartitionState(partition, FILES, start, end, epochs, 1000)


def known(next_offset: int, epoch: int = 0) -> dict[int, Progress]:
    return {3: Progress(next_offset, epoch, 0, 0, None, 50)}


def report(**changes: object) -> PartitionReport:
    base = PartitionReport(3, 0, 120, 1, 20, 0, 100, 7000, 9000, 0, (), 10)
    return base._replace(**changes)  # type: ignore[arg-type]


def test_the_first_run_reads_from_the_start_of_the_log() -> None:
    (work,), cuts, *_ = plan([state(40, 100)], {})
    assert (work.from_offset, work.to_offset, work.state_from_scratch, cuts) == (40, 100, False, ())


def test_a_later_run_reads_on() -> None:
    (work,), cuts, *_ = plan([state(0, 100)], known(60))
    assert (work.from_offset, work.to_offset, cuts) == (60, 100, ())
    assert work.size_bytes == 400  # two fifths are new


def test_nothing_new_is_nothing_to_do() -> None:
    assert plan([state(0, 60)], known(60)) == Plan(())


def test_an_empty_partition_is_read_once_so_that_it_is_known() -> None:
    (work,) = plan([state(0, 0)], {}).works
    assert work.from_offset == 0


@pytest.mark.parametrize("epochs", [((0, 0),), ()])
def test_a_log_that_merely_ends_before_what_was_read_is_left_alone(epochs: tuple[tuple[int, int], ...]) -> None:
    assert plan([state(0, 50, epochs)], known(60)) == Plan((), behind=(Behind(3, 50, 60),))
    assert plan([state(0, 0, epochs)], known(60, epoch=-1)) == Plan((), behind=(Behind(3, 0, 60),))


def test_a_shorter_log_is_the_truth_where_the_user_says_so() -> None:
    (work,), cuts, behind, *_ = plan([state(0, 50)], known(60), accept_truncation=True)
    assert (cuts, behind) == ((Cut(3, 50, True),), ())
    assert (work.from_offset, work.state_from_scratch) == (50, True)


@pytest.mark.parametrize(("first", "end", "cut"), [(45, 50, 45), (50, 50, 50), (58, 59, 58)])
def test_a_shorter_log_was_truncated_if_a_newer_epoch_begins_in_what_was_read(first: int, end: int, cut: int) -> None:
    (work,), cuts, behind, *_ = plan([state(0, end, ((0, 0), (1, first)))], known(60))
    assert (cuts, behind, work.from_offset) == ((Cut(3, cut),), (), cut)


def test_another_record_at_an_offset_that_was_read_is_a_conflict() -> None:
    other = state(0, 100)._replace(parting=Parting(57, 30))
    assert plan([other], known(60)) == Plan((), conflicts=(Conflict(3, 57),))
    (work,), cuts, *_ = plan([other], known(60), accept_truncation=True)
    assert (cuts, work.from_offset, work.state_from_scratch) == ((Cut(3, 30, True),), 30, True)


def test_another_record_behind_the_begin_of_a_newer_epoch_is_what_the_newer_leader_wrote() -> None:
    cut = state(0, 100, ((0, 0), (1, 55)))
    assert plan([cut._replace(parting=Parting(57, 30))], known(60)).cuts == (Cut(3, 55),)
    assert plan([cut._replace(parting=Parting(54, 30))], known(60)).conflicts == (Conflict(3, 54),)


def test_partitions_that_the_source_has_no_longer() -> None:
    assert plan([], known(60)) == Plan((), missing=(3,))
    assert plan([state(0, 60)], known(60)).missing == ()


def test_landmarks_grow_rarer_the_older_they_are() -> None:
    assert spread(0) == []
    assert spread(1) == [0]
    assert spread(100) == [0, 36, 68, 84, 92, 96, 98, 99]
    found = thinned([(offset, offset) for offset in range(1000)])
    assert [999 - offset for offset, _ in found] == [999, 511, 255, 127, 63, 31, 15, 7, 3, 1, 0]
    for newer in range(1000, 3000):  # one run for each record
        found = thinned([*found, (newer, newer)])
    distances = [2999 - offset for offset, _ in found]
    assert (distances[0], distances[-1]) == (2999, 0)
    assert all(farther <= 4 * nearer for farther, nearer in pairwise(distances[:-1]))
    assert len(found) < 15
    before = known(60)[3]._replace(landmarks=((10, 1), (50, 2), (59, 3)))
    after = advanced(withdrawn(before, Cut(3, 50)), report(landmarks=((55, 7), (90, 8))))
    assert after.landmarks == ((10, 1), (55, 7), (90, 8))


def test_a_newer_epoch_that_begins_before_what_was_read_replaced_it() -> None:
    (work,), cuts, *_ = plan([state(0, 100, ((0, 0), (2, 55)))], known(60, epoch=1))
    assert cuts == (Cut(3, 55),)
    assert (work.from_offset, work.state_from_scratch) == (55, True)


def test_a_newer_epoch_that_begins_where_reading_stopped_is_no_truncation() -> None:
    (work,), cuts, *_ = plan([state(0, 100, ((0, 0), (2, 60)))], known(60, epoch=1))
    assert (work.from_offset, cuts) == (60, ())


def test_a_log_without_epochs_is_judged_by_its_end_alone() -> None:
    (work,), cuts, *_ = plan([state(0, 100, ())], known(60, epoch=-1))
    assert (work.from_offset, cuts) == (60, ())


def test_a_log_cut_to_nothing_is_still_worked_on_to_rebuild_its_state() -> None:
    (work,), cuts, *_ = plan([state(0, 0, ((0, 0), (1, 0)))], known(60))
    assert cuts == (Cut(3, 0),)
    assert work.state_from_scratch


def test_topics_that_are_gone_are_remembered_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "MOST_TOPICS_GONE", 2)
    before = {"a": "oldest", "b": "orders", "c": "old", "d": "older"}
    assert remembered_topics(before, {"b": "orders", "e": "new"}) == {
        "c": "old", "d": "older", "b": "orders", "e": "new"
    }  # fmt: skip


def test_works_are_packed_by_size() -> None:
    works, *_ = plan([PartitionState(number, FILES, 0, 10, (), size) for number, size in enumerate([9, 1, 5, 4])], {})
    bins = packed(works, 10)  # bytes: two tasks have room for all
    assert sorted(sum(work.size_bytes for work in each) for each in bins) == [9, 10]
    assert [len(each) for each in packed(works, 1)] == [1, 1, 1, 1]
    assert [len(each) for each in packed(works, task_bytes(works))] == [4]
    assert packed([], 1) == []


@pytest.mark.parametrize(("megabytes", "tasks"), [(1, 1), (640, 10), (2_048, 16), (4_096, 16), (16_384, 64)])
def test_tasks_of_a_large_log_are_larger(megabytes: int, tasks: int) -> None:
    works, *_ = plan([PartitionState(n, FILES, 0, 10, (), megabytes << 14) for n in range(64)], {})
    assert len(packed(works, task_bytes(works))) == tasks


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
