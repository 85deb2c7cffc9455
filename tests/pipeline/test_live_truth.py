"""Lag of a cluster at work, beside what Kafka itself says at the same moments; now, afterwards, and across a restart.

Kafka is asked right before a run looks at the logs and right after: offsets only rise here, so the run's own must lie
between. Nothing is measured by time.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from muster.errors import ClusterUnreachable
from muster.pipeline.engine import LocalEngine, Reading
from muster.pipeline.job import Request, run
from muster.pipeline.merge import MergeAnswer
from tests.kit.kafka import KafkaBroker
from tests.pipeline.test_live import described, measured
from tests.pipeline.world import Row, rows_of
from tests.real.drive import QUIET, SETTINGS, WAIT_S

pytestmark = pytest.mark.kafka
PARTITIONS = 3
QUICK, SLOW, STUCK = "truth-quick", "truth-slow", "truth-stuck"
GROUPS = (QUICK, SLOW, STUCK)
Place = tuple[str, int]
"""A group and a partition."""


class Told(NamedTuple):
    """What Kafka says."""

    committed: dict[Place, int]
    ends: dict[int, int]


class Cluster:
    """A topic that is written all the time; one group that keeps up, one that does not, one that has stopped."""

    def __init__(self, broker: KafkaBroker, topic: str) -> None:
        self.broker, self.topic = broker, topic
        self._client = QUIET | {"bootstrap.servers": broker.bootstrap}
        admin = AdminClient(self._client)
        made = admin.create_topics([NewTopic(topic, num_partitions=PARTITIONS, replication_factor=1)])
        made[topic].result(WAIT_S)
        self._asking = {group: Consumer(self._client | SETTINGS | {"group.id": group}) for group in GROUPS}
        self._over, self._paused = threading.Event(), threading.Event()
        self._idle = threading.Barrier(4)  # the three at work, and who pauses them
        self._workers = [threading.Thread(target=self._work, args=(make,), daemon=True)
                         for make in (self._producing, self._keeping_up, self._falling_behind)]  # fmt: skip

    def __enter__(self) -> "Cluster":
        for worker in self._workers:
            worker.start()
        wait_for(lambda: {(QUICK, 0), (QUICK, 1), (QUICK, 2), (STUCK, 0)} <= self.told().committed.keys())
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._idle.abort()
        for worker in self._workers:
            worker.join(WAIT_S)
        for asking in self._asking.values():
            asking.close()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Everybody has finished what they were at."""
        self._paused.set()
        self._idle.wait(WAIT_S)
        yield
        self._paused.clear()
        self._idle.wait(WAIT_S)

    def _work(self, steps: Callable[[], Iterator[None]]) -> None:
        steps_on = steps()
        while not self._over.is_set():
            try:
                if self._paused.is_set():
                    self._idle.wait(WAIT_S)
                    self._idle.wait(WAIT_S)
                next(steps_on)
            except KafkaException:  # the broker is away, or just back: clients try again
                time.sleep(0.1)
                steps_on = steps()
            except threading.BrokenBarrierError:
                return

    def _producing(self) -> Iterator[None]:
        producer = Producer(self._client | {"linger.ms": 0, "message.timeout.ms": 120_000})
        while True:
            for partition in range(PARTITIONS):
                producer.produce(self.topic, b"x" * 50, partition=partition)
            producer.flush(0.05)
            self._over.wait(0.01)
            yield

    def _keeping_up(self) -> Iterator[None]:
        consumer = Consumer(self._client | SETTINGS | {"group.id": QUICK, "session.timeout.ms": 6000})
        try:
            consumer.subscribe([self.topic])
            while True:
                if consumer.consume(500, 0.05) and consumer.assignment():
                    consumer.commit(asynchronous=False)
                yield
        finally:
            consumer.close()

    def _falling_behind(self) -> Iterator[None]:
        """One record every now and then; and the group that has stopped, once."""
        simple = [Consumer(self._client | SETTINGS | {"group.id": group}) for group in (STUCK, SLOW)]
        try:
            simple[0].commit(offsets=[TopicPartition(self.topic, 0, 1)], asynchronous=False)
            told = self.told().committed
            offset = max((told.get((SLOW, partition), 0) for partition in range(PARTITIONS)), default=0)
            while True:
                offset += 1
                places = [TopicPartition(self.topic, partition, offset) for partition in range(PARTITIONS)]
                simple[1].commit(offsets=places, asynchronous=False)
                self._over.wait(0.05)
                yield
        finally:
            for one in simple:
                one.close()

    def told(self) -> Told:
        """Asked over connections that commit nothing: what is committed, and where the partitions end."""
        committed: dict[Place, int] = {}
        places = [TopicPartition(self.topic, partition) for partition in range(PARTITIONS)]
        for group, asking in self._asking.items():
            for one in asking.committed(places, WAIT_S):
                if one.offset >= 0:
                    committed[group, one.partition] = one.offset
        ends = {place.partition: asking.get_watermark_offsets(place, WAIT_S)[1] for place in places}
        return Told(committed, ends)


def wait_for(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 3 * WAIT_S
    while True:
        try:
            if is_so():
                return
        except KafkaException:
            pass
        assert time.monotonic() < deadline
        time.sleep(0.1)


class AskingAfterTheLook(LocalEngine):
    """Tasks run after the look: before the first of them Kafka is asked."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.told: Told | None = None

    def read(self, *arguments: Any) -> Reading:
        self.told = self.told or self._cluster.told()
        return super().read(*arguments)

    def merge(self, *arguments: Any) -> list[MergeAnswer]:
        self.told = self.told or self._cluster.told()  # there may be nothing to read
        return super().merge(*arguments)


class Observed(NamedTuple):
    """A run, and what Kafka said before and after its look."""

    before: Told
    lag: dict[Place, Row]
    after: Told

    @property
    def at_ms(self) -> int:
        (moment,) = {row["observed_at_ms"] for row in self.lag.values()}
        return int(moment)


def lag_in(tables: Path, topic: str, as_of_ms: int | None = None) -> dict[Place, Row]:
    rows = rows_of(tables, "lag", as_of_ms=as_of_ms)["lag"]
    return {(row["group_id"], row["partition"]): row for row in rows if row["topic"] == topic}


def observed(cluster: Cluster, tables: Path) -> Observed:
    before, runner = cluster.told(), AskingAfterTheLook(cluster)
    run(runner, Request([f"kafka://{cluster.broker.bootstrap}"], str(tables), analytics=False))
    assert runner.told is not None
    return Observed(before, lag_in(tables, cluster.topic), runner.told)


def check_bounds(seen: Observed, lag: dict[Place, Row]) -> None:
    """What was committed, where the log ended and so the lag were between the two times that Kafka was asked."""
    assert seen.before.committed.keys() <= lag.keys() <= seen.after.committed.keys()
    for (group, partition), row in lag.items():
        committed, end = row["committed_offset"], row["log_end_offset"]
        assert seen.before.committed.get((group, partition), 0) <= committed <= seen.after.committed[group, partition]
        assert seen.before.ends[partition] <= end <= seen.after.ends[partition]
        assert row["lag"] == row["offset_lag"] == end - committed >= 0
        assert row["lost_records"] == 0


def recorded(lag: dict[Place, Row]) -> dict[Place, Row]:
    """Without what is interpolated of a moment in the past."""
    left_out = ("lag_ms", "lag_ms_by")
    return {place: {name: row[name] for name in row if name not in left_out} for place, row in lag.items()}


def in_force(tables: Path) -> dict[tuple[str, str, int], int]:
    rows = rows_of(tables, "offsets")["offsets"]
    return {(row["group_id"], row["topic"], row["partition"]): row["committed_offset"] for row in rows}


@pytest.mark.parametrize(
    "rounds", [pytest.param(1, marks=pytest.mark.matrix), pytest.param(15, marks=pytest.mark.long)]
)
def test_lag_is_what_kafka_says_at_that_moment(ordinary: KafkaBroker, tmp_path: Path, rounds: int) -> None:
    tables = tmp_path / "tables"
    request = Request([f"kafka://{ordinary.bootstrap}"], str(tables), analytics=False)
    at_work: list[Observed] = []
    at_rest: list[Observed] = []
    with Cluster(ordinary, f"truth-{rounds}") as cluster:
        for _ in range(rounds):
            at_work.append(observed(cluster, tables))
            check_bounds(at_work[-1], at_work[-1].lag)
        with cluster.paused():
            at_rest.append(observed(cluster, tables))

        ordinary.stop()
        with pytest.raises(ClusterUnreachable):
            run(LocalEngine(), request)
        assert lag_in(tables, cluster.topic) == at_rest[-1].lag
        ordinary.start()
        ends = at_rest[-1].after.ends
        wait_for(lambda: all(end > ends[partition] for partition, end in cluster.told().ends.items()))

        for _ in range(rounds):
            at_work.append(observed(cluster, tables))
            check_bounds(at_work[-1], at_work[-1].lag)
        with cluster.paused():
            told = {row for row in described(ordinary) if row[1] == cluster.topic}
            at_rest.append(observed(cluster, tables))
            assert measured(list(at_rest[-1].lag.values())) == told
    for seen in at_rest:
        assert seen.before == seen.after
        check_bounds(seen, seen.lag)
        assert recorded(lag_in(tables, cluster.topic, seen.at_ms)) == recorded(seen.lag)
    for seen in at_work:
        check_bounds(seen, lag_in(tables, cluster.topic, seen.at_ms))
    run(LocalEngine(), replace(request, tables=str(tmp_path / "scratch")))
    assert in_force(tmp_path / "scratch") == in_force(tables)
