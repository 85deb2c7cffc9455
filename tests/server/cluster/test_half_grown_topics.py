"""A topic whose growth failed, and could not be taken back either: the registry remembers what may lie about of it."""

import errno
from pathlib import Path

from muster.log.directory import LogDirectory
from muster.server.cluster.topic_storage import DirectoryTopics, fresh_topic_id
from muster.server.cluster.topics import Happened, Topic, TopicChange, Topics
from tests.log.disk.faults import FaultyFiles

ROOT = Path("/data")
TOPIC = Topic("orders", fresh_topic_id(), 1)


def changed(topics: Topics, happened: Happened, topic: Topic) -> object:
    changes = [TopicChange(happened, topic)]
    topics.begin(changes)
    outcomes = topics.make(changes)
    topics.finish(changes, outcomes)
    return outcomes[0]


def half_grown() -> tuple[FaultyFiles, Topics]:
    """One partition, and two directories that the disk would not let go of."""
    files = FaultyFiles()
    topics = Topics(DirectoryTopics(LogDirectory.open(ROOT, files=files), lambda: 1000))
    assert changed(topics, Happened.CREATED, TOPIC) is None
    files.fail = lambda operation, path: (
        errno.EIO if operation == "rmdir" or (operation == "create" and path.parent.name == "orders-2") else None
    )
    assert changed(topics, Happened.GROWN, TOPIC._replace(partitions=3)) is not None
    files.fail = lambda operation, path: None  # the disk is well again
    assert left_in(files) == ["orders-0", "orders-1", "orders-2"]
    return files, topics


def left_in(files: FaultyFiles) -> list[str]:
    return sorted(entry.name for entry in files.entries(ROOT) if entry.is_directory)


def test_it_grows_behind_a_change_of_its_settings() -> None:
    _, topics = half_grown()
    assert changed(topics, Happened.CONFIGURED, TOPIC._replace(configs={"retention.ms": "5"})) is None
    assert changed(topics, Happened.GROWN, TOPIC._replace(partitions=3)) is None


def test_its_deletion_leaves_nothing() -> None:
    files, topics = half_grown()
    assert changed(topics, Happened.DELETED, TOPIC) is None
    assert left_in(files) == []
