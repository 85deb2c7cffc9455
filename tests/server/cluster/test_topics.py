"""The topics there are, without a broker to compare with."""

from collections.abc import Sequence

import pytest

from muster.errors import LogDamaged
from muster.server.cluster.topics import (
    Happened,
    Outcome,
    Topic,
    TopicChange,
    Topics,
    metric_name,
    name_problem,
)
from tests.server.cluster.asking import MemoryTopics, a_topic, delete, grow


def test_a_change_goes_to_the_storage_then_to_the_listeners() -> None:
    storage = MemoryTopics([a_topic("there", 2)])
    topics = Topics(storage)
    heard: list[tuple[TopicChange, list[Topic]]] = []
    topics.listen(lambda change: heard.append((change, storage.topics())))
    topics.create(a_topic("new", 3))
    grow(topics, "there", 5)
    delete(topics, "new")
    assert [change for change, _ in heard] == [
        (Happened.CREATED, a_topic("new", 3)),
        (Happened.GROWN, a_topic("there", 5)),
        (Happened.DELETED, a_topic("new", 3)),
    ]
    assert [len(stored) for _, stored in heard] == [2, 2, 1], "it was in the storage before anybody heard of it"
    assert heard[1][1][0].partitions == 5


def test_a_storage_that_fails_changes_nothing() -> None:
    class Broken(MemoryTopics):
        def make(self, changes: Sequence[TopicChange]) -> list[Outcome]:
            return [LogDamaged("full")] * len(changes)

    topics = Topics(Broken([a_topic("there", 2)]))
    topics.listen(lambda change: pytest.fail(f"nothing happened: {change}"))
    for attempt in (
        lambda: topics.create(a_topic("new")),
        lambda: delete(topics, "there"),
        lambda: grow(topics, "there", 4),
    ):
        with pytest.raises(LogDamaged):
            attempt()
    assert topics.in_order() == [a_topic("there", 2)]
    assert topics.partition_count == 2


def test_topics_are_found_by_name_and_by_id_as_long_as_they_are_there() -> None:
    topics = Topics(MemoryTopics([a_topic("b"), a_topic("a", 4)]))
    assert [topic.name for topic in topics.in_order()] == ["a", "b"]
    assert topics.by_id(a_topic("a").topic_id) == topics.get("a") == a_topic("a", 4)
    topics.create(a_topic("aa"))
    assert [topic.name for topic in topics.in_order()] == ["a", "aa", "b"]
    delete(topics, "a")
    assert "a" not in topics
    assert topics.get("a") is topics.by_id(a_topic("a").topic_id) is None
    assert len(topics) == topics.partition_count == 2
    grow(topics, "b", 9)
    assert topics.by_id(a_topic("b").topic_id) == a_topic("b", 9)
    assert topics.partition_count == 10


def test_names_that_look_the_same_in_metrics() -> None:
    topics = Topics(MemoryTopics([a_topic("a.b"), a_topic("plain")]))
    assert topics.clash("a_b") == "a.b"
    assert topics.clash("a-b") is topics.clash("plain") is None
    topics.create(a_topic("a_b"))
    delete(topics, "a.b")
    assert topics.clash("a.b") == "a_b"
    delete(topics, "a_b")
    assert topics.clash("a_b") is None
    assert metric_name("a.b_c") == metric_name("a_b.c") == "a_b_c"
    assert metric_name("a-b") is None


@pytest.mark.parametrize("name", ["a", "A-z_0.9", "x" * 249, "...", "__consumer_offsets"])
def test_good_names(name: str) -> None:
    assert name_problem(name) is None


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("x" * 250, "longer than the max allowed length 249"),
        ("a b", "'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("a\n", "contains one or more characters"),
        ("é", "contains one or more characters"),
        ("٣", "contains one or more characters"),
        ("\udc80", "contains one or more characters"),
    ],
)
def test_bad_names(name: str, why: str) -> None:
    problem = name_problem(name)
    assert problem is not None
    assert problem.startswith("Topic name is invalid: ")
    assert why in problem
