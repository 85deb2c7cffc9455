"""The power cut after every operation of everything a log does to its files, and every sync shown to be needed."""

import ast
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import muster.log
import muster.segments
from muster.log.segment import SWAP, WritableSegment, WrittenBatch
from muster.log.steps import carry_out
from muster.log.topic_changes import remove_directory
from muster.segments.checkpoints import TopicPartition
from tests.log.disk.changes import checkpoint
from tests.log.disk.crashes import Journal, LossFound, cut_everywhere
from tests.log.disk.faults import FaultyFiles
from tests.log.disk.model import ALL
from tests.log.disk.stories import CONFIG, ON_THE_OS, ROOT, START_MS, Teller, check

Story = Callable[[FaultyFiles, Journal], None]


def a_new_directory(files: FaultyFiles, journal: Journal) -> None:
    Teller(files, journal).open()
    files.watch("opened")


def appends_and_rolls(files: FaultyFiles, journal: Journal) -> None:
    teller = Teller(files, journal)
    teller.open()
    teller.create()
    for number in range(5):
        teller.append(2)
        teller.flush()
        if number == 1:
            teller.append(1, producer_id=7)
            teller.append(1)
            teller.marker(7, commit=False)
            teller.flush()
    teller.write_checkpoints()
    teller.append(1, size=300)
    teller.append(1, size=300)
    teller.flush()


def a_roll_within_a_turn(files: FaultyFiles, journal: Journal) -> None:
    """One write fills the old segment and begins a new one."""
    teller = Teller(files, journal)
    teller.open()
    teller.create()
    teller.append(size=300)
    teller.flush()
    teller.append(size=100)
    teller.append(size=300, producer_id=7)
    teller.flush()


def a_roll_before_the_first_flush(files: FaultyFiles, journal: Journal) -> None:
    teller = Teller(files, journal)
    teller.open()
    teller.create()
    teller.append(size=300)
    teller.append(size=400, producer_id=7)
    teller.flush()


def rolls_on_the_os(files: FaultyFiles, journal: Journal) -> None:
    """Nobody syncs at a roll; a flush catches up."""
    teller = Teller(files, journal, ON_THE_OS)
    teller.open()
    teller.create()
    for _ in range(3):
        teller.append(2, size=150)
        teller.write()
    teller.flush()
    teller.files.watch("acknowledged")


def all_is_too_old(files: FaultyFiles, journal: Journal) -> None:
    """Retention removes every segment but a new one, and the log goes on at its offset."""
    teller = Teller(files, journal)
    teller.open()
    teller.create()
    for _ in range(2):
        teller.append()
        teller.flush()
    teller.note("starting", teller.log.end_offset)
    teller.log.roll()
    teller.log.delete_segments(99)
    teller.files.watch("acknowledged")
    teller.append()
    teller.flush()


def a_new_leader(files: FaultyFiles, journal: Journal) -> None:
    teller = Teller(files, journal)
    teller.open()
    teller.create()
    teller.append()
    teller.flush()
    teller.log.leader_epoch = 3
    teller.append(1, size=400)
    teller.flush()
    teller.append(1, size=400)
    teller.flush()
    teller.write_checkpoints()
    teller.append()
    teller.flush()


def checkpoints(files: FaultyFiles, journal: Journal) -> None:
    teller = Teller(files, journal)
    teller.open()
    teller.create()
    for _ in range(3):
        teller.append()
        teller.flush()
    teller.append(producer_id=7)
    teller.marker(7, commit=False)
    teller.append()
    teller.flush()
    teller.checkpoint()
    teller.append()
    teller.flush()
    teller.raise_start(2)


def a_clean_stop(files: FaultyFiles, journal: Journal) -> None:
    teller = Teller(files, journal)
    teller.open()
    teller.create()
    for _ in range(4):
        teller.append(producer_id=7)
        teller.write()
    teller.marker(7, commit=False)
    teller.append(producer_id=8)
    teller.close()
    teller.open()
    teller.log.close()


def work_after_a_clean_stop(files: FaultyFiles, journal: Journal) -> None:
    """Nothing is flushed after the second opening: whatever is torn there must not be trusted."""
    teller = Teller(files, journal, ON_THE_OS)
    teller.open()
    teller.create()
    teller.append()
    teller.close()
    teller.open()
    for _ in range(6):
        teller.append()
        teller.write()


def topics(files: FaultyFiles, journal: Journal) -> None:
    teller = Teller(files, journal)
    teller.open()
    teller.create("t", 2)
    teller.append()
    teller.flush()
    teller.create("u", 2)
    teller.fill("u")
    teller.delete("u")
    teller.create("u", 1)
    teller.configure("t", retention="short")


def a_new_topic(files: FaultyFiles, journal: Journal) -> None:
    """How `topics` begins."""
    teller = Teller(files, journal)
    teller.open()
    teller.create("t", 2)


def a_topic_of_an_old_name(files: FaultyFiles, journal: Journal) -> None:
    """The second `t` must not inherit what was written down about the first."""
    teller = Teller(files, journal)
    teller.open()
    teller.create("old")
    old = teller.directory.logs[TopicPartition("old", 0)]
    for _ in range(9):
        old.append([(b"k", b"v" * 40)], 1)
    old.flush()
    old.increase_start_offset(8)
    checkpoint(teller.directory)
    teller.delete("old")
    teller.create("old")
    again = teller.directory.logs[TopicPartition("old", 0)]
    again.append([(b"k", b"v")], 1)
    again.flush()
    teller.note("starts", 0)


def truncation(files: FaultyFiles, journal: Journal) -> None:
    teller = Teller(files, journal)
    teller.open()
    teller.create()
    for _ in range(4):
        teller.append(2, size=150)
        teller.flush()
    teller.checkpoint()
    teller.truncate(3, batch_offset=2)
    teller.append(1, size=20)
    teller.flush()


def work_after_a_truncation(files: FaultyFiles, journal: Journal) -> None:
    """New records come to lie where others were durable once. What was written down about those must be gone."""
    teller = Teller(files, journal, ON_THE_OS)
    journal.silent = True
    teller.open()
    teller.create()
    for _ in range(8):
        teller.append()
        teller.flush()
    teller.checkpoint()
    journal.silent = False
    teller.truncate(2, batch_offset=2)
    for _ in range(5):
        teller.append()
        teller.write()


def killed_and_opened_again(files: FaultyFiles, journal: Journal) -> None:
    """A process is killed with everything in the page cache; its successor shows it to readers, so it must last."""
    teller = Teller(files, journal, ON_THE_OS)
    teller.open()
    teller.create()
    teller.append()
    teller.flush()
    for number in range(3):
        teller.append(2, size=100)
        teller.append(producer_id=7)
        teller.marker(7, commit=number != 1)
        teller.write()
    dies(teller)
    teller.open()
    teller.note("acknowledged", teller.log.end_offset)
    teller.write_checkpoints()
    teller.note("checkpointed", teller.log.recovery_point, teller.log.size_bytes)


def a_roll_behind_a_checkpoint(files: FaultyFiles, journal: Journal) -> None:
    """The recovery point is the end of a segment, and the segment was closed, by its last index entry, behind it."""
    teller = Teller(files, journal)
    journal.silent = True
    teller.open()
    teller.create()
    teller.append()
    teller.checkpoint()
    teller.log.roll()
    dies(teller)
    journal.silent = False
    teller.open()
    teller.append()
    teller.flush()


def torn_in_the_middle(files: FaultyFiles, journal: Journal) -> None:
    """Three segments that were never synced, the first torn: recovery removes the others, and may itself be cut off."""
    teller = Teller(files, journal, ON_THE_OS)
    journal.silent = True
    teller.open()
    teller.create()
    teller.append()
    teller.flush()
    for _ in range(4):
        teller.append(2, size=250)
        teller.write()
    before = [fact[1:] for fact in journal.facts if isinstance(fact, tuple) and fact[0] == "appended"]
    middle = teller.log.segments[0]
    file = files.open(middle.path(".log"), write=True)
    file.pwrite(b"\xff", middle.size_bytes - 5)
    dies(teller)
    everything = files.cut(ALL).root
    files.root.names, files.root.durable, files.root.pending = everything.names, everything.durable, []
    journal.facts.clear()  # from here on, everything counts
    journal.silent = False
    teller.config = CONFIG
    teller.note("creating", "t")
    for offset, key, value in before:
        teller.note("appended", offset, key, value)
    teller.open()
    teller.note("truncating", teller.log.end_offset)
    teller.note("truncated", teller.log.end_offset)
    teller.append(2, size=250)
    teller.flush()


def three_segments(teller: Teller) -> None:
    teller.journal.silent = True
    teller.open()
    teller.create()
    for _ in range(7):
        teller.append(1, size=200)
        teller.flush()
    assert len(teller.log.segments) == 4


def a_swap(files: FaultyFiles, journal: Journal) -> None:
    """Two closed segments become one, without two of their records."""
    teller = Teller(files, journal)
    three_segments(teller)
    journal.silent = False
    superseded = {1, 2}
    teller.note("superseded", *superseded)
    old = list(teller.log.segments[:2])
    carry_out(teller.log.replacing([teller.cleaned(old, superseded)], old))
    for segment in old:
        segment.delete()
    teller.note("swapped")
    teller.append()
    teller.flush()


def a_swap_cut_off(files: FaultyFiles, journal: Journal) -> None:
    """The new segment is ready and has its `.swap` name; whoever opens the log next finishes the swap."""
    teller = Teller(files, journal)
    three_segments(teller)
    superseded = {1, 2}
    teller.note("superseded", *superseded)
    teller.cleaned(list(teller.log.segments[:2]), superseded).rename(SWAP)
    files.sync_directory(teller.log.directory, "test.directory")
    dies(teller)
    journal.silent = False
    teller.open()
    teller.note("swapped")
    teller.append()
    teller.flush()


def a_split_cut_off(files: FaultyFiles, journal: Journal) -> None:
    """One segment was to become two, as Kafka does when offsets overflow: the second is `.swap`, the first not yet."""
    teller = Teller(files, journal)
    three_segments(teller)
    old = teller.log.segments[1]
    assert old.base_offset == 2
    teller.cleaned([old], {3})
    at = old.batch_at(3)
    assert at is not None
    second = WritableSegment(files, teller.log.directory, 3, SWAP)
    second.append(old.read(at[0], old.size_bytes), [WrittenBatch(old.size_bytes - at[0], 3, 3, START_MS)])
    for kind, file in second.open_files():
        file.sync(f"test{kind}")
    second.close()
    files.sync_directory(teller.log.directory, "test.directory")
    dies(teller)
    journal.silent = False
    teller.open()
    teller.append()
    teller.flush()


def dies(teller: Teller) -> None:
    """The process is killed: what is in the page cache stays there, and its locks are gone."""
    teller.directory.abandon()


def a_partition_is_missing(files: FaultyFiles, journal: Journal) -> None:
    """The registry has two partitions, and a crash while they were made left one of the directories."""
    teller = Teller(files, journal)
    journal.silent = True
    teller.open()
    teller.create("t", 2)
    dies(teller)
    remove_directory(files, ROOT / "t-0")
    files.sync_directory(ROOT, "test.directory")
    teller.note("missing")
    journal.silent = False
    teller.open()
    teller.append()
    teller.flush()


def a_growth_cut_off(files: FaultyFiles, journal: Journal) -> None:
    """A topic was to have two partitions more, and the process was killed when one of them was there."""
    teller = Teller(files, journal)
    journal.silent = True
    teller.open()
    teller.create()
    topic = teller.directory.registry.get("t")
    assert topic is not None
    teller.directory.registry.put(replace(topic, planned=3))
    teller.directory._open_partition(replace(topic, partitions=3), 1, clean=False)
    files.sync_directory(ROOT, "test.directory")
    dies(teller)
    journal.silent = False
    teller.open()
    teller.append()
    teller.flush()


STORIES: dict[str, Story] = {
    story.__name__: story
    for story in (
        a_new_directory,
        appends_and_rolls,
        a_roll_within_a_turn,
        a_roll_before_the_first_flush,
        rolls_on_the_os,
        all_is_too_old,
        a_new_leader,
        checkpoints,
        a_clean_stop,
        work_after_a_clean_stop,
        topics,
        a_topic_of_an_old_name,
        truncation,
        work_after_a_truncation,
        killed_and_opened_again,
        a_roll_behind_a_checkpoint,
        torn_in_the_middle,
        a_swap,
        a_swap_cut_off,
        a_split_cut_off,
        a_partition_is_missing,
        a_growth_cut_off,
    )
}

POINTS = {
    "flush.log": appends_and_rolls,
    "flush.directory": appends_and_rolls,
    "roll.log": a_roll_within_a_turn,
    "roll.directory": a_roll_before_the_first_flush,
    "removal.directory": all_is_too_old,
    "closed.log": rolls_on_the_os,
    "closed.index": appends_and_rolls,
    "closed.timeindex": appends_and_rolls,
    "closed.txnindex": appends_and_rolls,
    "closed.snapshot": appends_and_rolls,
    "checkpoint.index": checkpoints,
    "checkpoint.timeindex": checkpoints,
    "checkpoint.txnindex": checkpoints,
    "close.index": a_clean_stop,
    "close.timeindex": a_clean_stop,
    "close.txnindex": a_clean_stop,
    "close.snapshot": a_clean_stop,
    "close.directory": a_clean_stop,
    "recovery.log": killed_and_opened_again,
    "recovery.index": killed_and_opened_again,
    "recovery.timeindex": killed_and_opened_again,
    "recovery.txnindex": killed_and_opened_again,
    "recovery.removed": torn_in_the_middle,
    "recovery.directory": killed_and_opened_again,
    "leftovers.unfinished": a_split_cut_off,
    "leftovers.replaced": a_swap_cut_off,
    "truncate.log": truncation,
    "truncate.directory": truncation,
    "swap.prepared": a_swap,
    "swap.removed": a_swap,
    "epochs.data": a_new_leader,
    "offsets.data": checkpoints,
    "offsets.directory": checkpoints,
    "registry.data": topics,
    "registry.directory": topics,
    "meta.data": a_new_directory,
    "meta.directory": a_new_directory,
    "clean-stop.directory": a_clean_stop,
    "made.directory": a_new_directory,
    "opened.directory": work_after_a_clean_stop,
    "topic.directories": a_new_topic,
    "topic.half-made": a_growth_cut_off,
}
"""Every sync there is, and a story that needs it."""


SHORT = ("a_new_directory", "a_roll_behind_a_checkpoint")


@pytest.mark.parametrize("name", STORIES)
def test_nothing_that_was_promised_is_lost(name: str) -> None:
    disks = cut_everywhere(STORIES[name], check, chances=3 if name in SHORT else 1)
    assert disks > (10 if name == "a_new_directory" else 50)


@pytest.mark.long
@pytest.mark.parametrize("name", STORIES)
def test_nor_with_other_luck(name: str) -> None:
    cut_everywhere(STORIES[name], check, chances=80)


def test_the_stories_meet_every_sync() -> None:
    found = set()
    for story in STORIES.values():
        files = FaultyFiles()
        story(files, Journal())
        found |= {point for point in files.points if not point.startswith("test")}
    assert found == set(POINTS)


def test_every_sync_in_the_code_is_in_the_list() -> None:
    """So that none can be added without a story that needs it."""
    found = set()
    rooms = [Path(room.__path__[0]) for room in (muster.log, muster.segments)]
    for path in sorted(path for room in rooms for path in room.glob("*.py")):  # compaction has stories of its own
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and ast.unparse(call.func).split(".")[-1] in SYNCS:
                found |= {constant for one in call.args for constant in beginnings(one)}
    unknown = [beginning for beginning in found if not any(point.startswith(beginning) for point in POINTS)]
    assert not unknown
    assert len(found) > 20


SYNCS = ("sync", "sync_directory", "write_file", "replace_file")


def beginnings(argument: ast.expr) -> Iterator[str]:
    """The text, or the first words of an f-string."""
    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
        yield argument.value
    if isinstance(argument, ast.JoinedStr) and isinstance(argument.values[0], ast.Constant):
        yield str(argument.values[0].value)


@pytest.mark.parametrize("point", POINTS)
def test_without_this_sync_something_is_lost(point: str) -> None:
    with pytest.raises(LossFound):
        cut_everywhere(POINTS[point], check, chances=10, without=frozenset({point}))
