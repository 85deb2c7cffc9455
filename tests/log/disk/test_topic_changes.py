"""Topics are made and removed wholly or not at all, whatever the disk does meanwhile."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from muster.codec.batches import encode_batch
from muster.codec.error_codes import ErrorCode
from muster.codec.records import Record
from muster.errors import LogDamaged, MusterError
from muster.log.directory import LogDirectory
from muster.log.topics import ChangeUnsettled, Topic, TopicRefused
from muster.segments.checkpoints import TopicPartition, new_topic_id
from tests.log.disk.changes import add_partitions, create_topic, delete_topic, set_configs
from tests.log.disk.faults import FaultyFiles
from tests.log.disk.model import NOTHING

ROOT = Path("/data")
MOST_OPERATIONS = 80
CONFIGS = {"retention.ms": "1000"}


def opened(files: FaultyFiles) -> LogDirectory:
    return LogDirectory.open(ROOT, files=files)


def failing(files: FaultyFiles, after: int, number: int, *, times: int = 1 << 30) -> None:
    """Let every operation that changes something fail after so many, so many times."""
    done = 0

    def fail(operation: str, path: Path) -> int | None:
        nonlocal done
        if operation in ("pread", "close"):
            return None
        done += 1
        return number if after < done <= after + times else None

    files.fail = fail


def healed(files: FaultyFiles) -> None:
    files.fail = lambda operation, path: None


def names_of(directory: LogDirectory) -> list[str]:
    return [entry.name for entry in directory.files.entries(ROOT) if entry.is_directory]


def is_consistent(directory: LogDirectory) -> None:
    """Every topic has all its partitions, open, and nothing else is there."""
    expected = [f"{topic.name}-{number}" for topic in directory.registry.topics() for number in range(topic.partitions)]
    assert sorted(map(str, directory.logs)) == sorted(expected) == sorted(names_of(directory))
    assert all(log.failure is None for log in directory.logs.values())


def configure(directory: LogDirectory) -> None:
    try:
        set_configs(directory, "a", CONFIGS)
    except OSError as error:
        raise LogDamaged(str(error)) from error


def configs_of(directory: LogDirectory) -> object:
    topic = directory.registry.get("a")
    return topic and topic.configs


Change = Callable[[LogDirectory], object]
CHANGES: dict[str, tuple[Change, set[str], set[str]]] = {
    "create": (lambda directory: create_topic(directory, "b", 3), {"a-0", "a-1"}, {"a-0", "a-1", "b-0", "b-1", "b-2"}),
    "grow": (lambda directory: add_partitions(directory, "a", 4), {"a-0", "a-1"}, {"a-0", "a-1", "a-2", "a-3"}),
    "delete": (lambda directory: delete_topic(directory, "a"), {"a-0", "a-1"}, set()),
    "configure": (configure, {"a-0", "a-1"}, {"a-0", "a-1"}),
}


@pytest.mark.parametrize("times", [1, 1 << 30], ids=["once", "for good"])
@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOSPC])
@pytest.mark.parametrize("what", CHANGES)
def test_a_change_that_fails_anywhere_has_not_happened_and_can_be_made_again(
    what: str, number: int, times: int
) -> None:
    change, before, after = CHANGES[what]
    succeeded = False
    for step in range(MOST_OPERATIONS):
        files = FaultyFiles()
        directory = opened(files)
        create_topic(directory, "a", 2)
        failing(files, step, number, times=times)
        succeeded, is_known = False, True
        try:
            change(directory)
            succeeded = True
        except LogDamaged:
            pass
        except ChangeUnsettled:
            is_known = False
        healed(files)
        there = after if succeeded else before
        assert set(map(str, directory.logs)) == there, f"step {step}"
        assert is_known or times > 1, "a disk that fails once leaves no doubt"
        for left in (files.killed(), files.cut(NOTHING)):
            found = opened(left)
            is_consistent(found)
            if is_known:
                assert set(map(str, found.logs)) == there, f"step {step}: after a restart"
                assert what != "configure" or configs_of(found) == (CONFIGS if succeeded else {})
            else:
                assert set(map(str, found.logs)) in (before, after), f"step {step}: after a restart"
        if not succeeded:
            change(directory)  # now it works
            is_consistent(directory)
            assert set(map(str, directory.logs)) == after
        if not succeeded or what == "delete":
            create_topic(directory, "c", 1)
            delete_topic(directory, "c")
        if succeeded and times > 1 and what != "delete":
            assert step >= {"configure": 5}.get(what, 9)
            return
    assert succeeded


def test_a_topic_that_could_not_be_removed_wholly_can_be_made_again() -> None:
    files = FaultyFiles()
    directory = opened(files)
    old = create_topic(directory, "a", 2)
    files.fail = lambda operation, path: errno.EIO if operation == "rename" and path.name.startswith("a-1") else None
    delete_topic(directory, "a")
    assert directory.registry.topics() == []
    with pytest.raises(MusterError, match="cannot be removed wholly"):
        create_topic(directory, "a", 1)
    healed(files)
    assert create_topic(directory, "a", 1).topic_id != old.topic_id
    assert list(directory.logs) == [TopicPartition("a", 0)]
    is_consistent(opened(files.killed()))


def test_many_topics_cost_as_many_writes_of_the_registry_as_one() -> None:
    files = FaultyFiles()
    directory = opened(files)
    files.operations.clear()
    made = directory.make_topics([Topic(f"t{number}", new_topic_id(), 1) for number in range(40)])
    assert all(one.error is None for one in made)
    assert files.operations.count("rename muster-topics.json") == 2
    for one in made:
        directory.adopt(one.logs)
    files.operations.clear()
    logs = directory.let_go({one.topic.name for one in made})
    assert directory.remove_topics([one.topic for one in made], logs) is None
    assert files.operations.count("rename muster-topics.json") == 2
    is_consistent(directory)


def test_of_many_topics_each_is_made_or_refused_on_its_own() -> None:
    files = FaultyFiles()
    directory = opened(files)
    create_topic(directory, "there", 1)
    files.fail = lambda operation, path: errno.EMFILE if path.name == "bad-1" else None
    wanted = [Topic(name, new_topic_id(), 2) for name in ("good", "bad", "there", "no name", "better")]
    made = directory.make_topics(wanted)
    for one in made:
        directory.adopt(one.logs)
    assert [type(one.error) for one in made] == [type(None), LogDamaged, TopicRefused, TopicRefused, type(None)]
    assert isinstance(made[2].error, TopicRefused)
    assert made[2].error.error is ErrorCode.TOPIC_ALREADY_EXISTS
    is_consistent(directory)
    assert TopicPartition("better", 1) in directory.logs


def test_a_checkpoint_taken_while_a_deletion_is_under_way_still_knows_where_the_logs_start() -> None:
    """They may come back: the deletion can fail yet, or the process be killed before it has begun."""
    files = FaultyFiles()
    directory = opened(files)
    create_topic(directory, "a", 1)
    log = directory.logs[TopicPartition("a", 0)]
    for _ in range(3):
        log.append_batch(encode_batch([Record(0, 1_000, b"k", b"v")]), 1_000)
    log.flush()
    log.increase_start_offset(2)
    directory.write_checkpoints()
    logs = directory.let_go({"a"})
    directory.write_checkpoints()
    assert opened(files.killed()).logs[TopicPartition("a", 0)].start_offset == 2
    topic = directory.registry.get("a")
    assert topic is not None
    assert directory.remove_topics([topic], logs) is None
    create_topic(directory, "a", 1)
    directory.write_checkpoints()
    assert opened(files.killed()).logs[TopicPartition("a", 0)].start_offset == 0
