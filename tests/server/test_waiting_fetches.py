"""Fetches that wait: how many there may be, and how they are found again."""

from collections.abc import Callable
from typing import Any, cast

from muster.server.cluster.cluster import Cluster
from muster.server.cluster.topics import Happened, TopicChange
from muster.server.connection import Connection, PendingReply
from muster.server.records.fetch import ENOUGH, FetchRequest, Key, ParkedFetch, PartitionAsked, handle
from muster.server.records.waiting_fetches import WaitingFetches
from muster.server.timers import Timers
from tests.server.cluster.asking import a_topic, memory_cluster


class FakeReply:
    def __init__(self, connection: object) -> None:
        self.connection = connection
        self.answers: list[Any] = []

    def answer(self, answer: Any) -> None:
        self.answers.append(answer)


class Parking:
    """Parked fetches over a cluster of two topics, without a loop."""

    def __init__(self, max_requests: int = 100, max_partitions: int = 100) -> None:
        self.cluster: Cluster = memory_cluster(a_topic("a", 10), a_topic("b", 10))
        self.timers = Timers(lambda: 0, lambda delay, call: NO_ALARM, lambda key: None)
        self.enough = False
        self.counted: list[Key] = []
        self._turn: list[Callable[[], None]] = []
        self.parked = WaitingFetches(
            lambda due: self.timers,
            self._count,
            lambda parked: "done",  # type: ignore
            lambda parked, reply, as_sent: reply.answer("done later"),
            self._turn.append,
            max_requests,
            max_partitions,
        )

    def park(self, topic: str, partitions: int = 1) -> FakeReply:
        asked = tuple(PartitionAsked(topic, bytes(16), partition, 0) for partition in range(partitions))
        waiting = handle(FetchRequest(12, asked, max_wait_ms=500), self.cluster, 0)
        assert isinstance(waiting, ParkedFetch)
        reply = FakeReply(object())
        self.parked.park(waiting, cast(PendingReply, reply), lambda answer: answer)
        return reply

    def grown(self, *keys: tuple[str, int]) -> None:
        """Partitions that grow in one turn of the loop."""
        for key in keys:
            self.parked.grown(*key)
        while self._turn:
            self._turn.pop()()

    def _count(self, parked: ParkedFetch, key: Key) -> None:
        self.counted.append(key)
        parked.note(key, ENOUGH if self.enough else 0)


class _NoAlarm:
    def cancel(self) -> None: ...


NO_ALARM = _NoAlarm()


def test_one_fetch_too_many_does_not_wait() -> None:
    parking = Parking(max_requests=2)
    replies = [parking.park("a") for _ in range(3)]
    assert [reply.answers for reply in replies] == [[], [], ["done"]]
    assert len(parking.parked) == 2


def test_partitions_of_all_fetches_together_are_bounded() -> None:
    parking = Parking(max_partitions=20)
    first, second, third, fourth = (parking.park("a", partitions) for partitions in (10, 9, 2, 1))
    assert [reply.answers for reply in (first, second, third, fourth)] == [[], [], ["done"], []]
    parking.parked.due(cast(PendingReply, first))
    assert parking.park("b", 10).answers == [], "there is room again"


def test_only_those_who_wait_for_a_topic_hear_that_it_changed() -> None:
    parking = Parking()
    waits_for_a, waits_for_b = parking.park("a"), parking.park("b")
    parking.parked.topic_changed(TopicChange(Happened.GROWN, a_topic("b")))
    assert (waits_for_a.answers, waits_for_b.answers) == ([], ["done"])
    assert len(parking.timers) == 1


def test_only_those_who_wait_for_a_partition_are_looked_at_when_it_has_grown() -> None:
    parking = Parking()
    waits_for_a, waits_for_b = parking.park("a", 2), parking.park("b")
    parking.grown(("a", 1))
    assert waits_for_a.answers == [], "it is not enough yet"
    parking.enough = True
    parking.grown(("a", 2))
    assert waits_for_a.answers == [], "it does not read that partition"
    parking.grown(("a", 1))
    assert (waits_for_a.answers, waits_for_b.answers) == (["done"], [])
    assert (len(parking.parked), len(parking.timers)) == (1, 1)


def test_partitions_that_grow_are_counted_once_in_a_turn_and_no_others() -> None:
    parking = Parking()
    reply = parking.park("a", 10)
    parking.grown(("a", 3), ("a", 4), ("a", 3), ("b", 5))
    assert sorted(parking.counted) == [("a", 3), ("a", 4)]
    parking.enough = True
    parking.grown(("a", 3), ("a", 4))
    assert (len(parking.counted), len(parking.parked), reply.answers) == (4, 0, ["done"])


def test_a_client_that_is_gone_is_forgotten() -> None:
    parking = Parking()
    gone, stays = parking.park("a"), parking.park("a")
    parking.parked.forget(cast(Connection, gone.connection))
    parking.parked.forget(cast(Connection, object()))
    assert (len(parking.parked), len(parking.timers)) == (1, 1)
    parking.parked.topic_changed(TopicChange(Happened.GROWN, a_topic("a")))
    assert (gone.answers, stays.answers) == ([], ["done"])
    parking.parked.finish()
    assert (len(parking.parked), len(parking.timers)) == (0, 0)
