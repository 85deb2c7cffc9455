"""`expiry` beside a Kafka that keeps offsets for a minute: what it said would go has gone, not before its time; what it
said would stay is there. And the retention that a run asks the broker for.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from muster.live.cluster import Cluster
from tests.kit.kafka import KafkaBroker, require_kafka
from tests.pipeline.world import Row, rows_of, run_here
from tests.real.drive import QUIET, SETTINGS, WAIT_S

pytestmark = [pytest.mark.kafka, pytest.mark.matrix]
MINUTE_MS = 60_000
TOPICS = ("read", "forgotten")


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    settings = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "500"}
    with KafkaBroker(require_kafka(), settings | {"group.initial.rebalance.delay.ms": "0"}) as kafka:
        yield kafka


def consumer(broker: KafkaBroker, group: str, **more: str) -> Consumer:
    return Consumer(QUIET | SETTINGS | {"bootstrap.servers": broker.bootstrap, "group.id": group} | more)


def committed(one: Consumer, *topics: str) -> None:
    one.commit(offsets=[TopicPartition(topic, 0, 1) for topic in topics], asynchronous=False)


def joined(broker: KafkaBroker, group: str, topic: str, **more: str) -> Consumer:
    """A member that has its partition."""
    one = consumer(broker, group, **more)
    one.subscribe([topic])
    wait_for(lambda: one.poll(0.1) is None and len(one.assignment()) == 1)
    return one


def wait_for(condition: Callable[[], bool], patience_s: float = WAIT_S) -> None:
    until = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < until, "it never came to be"
        time.sleep(0.05)


def keyed(rows: list[Row]) -> dict[tuple[str, str | None], Row]:
    return {(row["group_id"], row["topic"]): row for row in rows}


def test_the_broker_deletes_what_was_forecast_and_nothing_else(broker: KafkaBroker, tmp_path: Path) -> None:
    admin = AdminClient(QUIET | {"bootstrap.servers": broker.bootstrap})
    for made in admin.create_topics([NewTopic(topic, 1, 1) for topic in TOPICS]).values():
        made.result(WAIT_S)
    simple, newer = consumer(broker, "simple"), {"group.protocol": "consumer"}
    committed(simple, *TOPICS)
    members = []
    for group, more in (("classic", {}), ("kip-848", newer)):
        before = consumer(broker, group)  # commits for a topic that nobody is going to subscribe to
        committed(before, "forgotten")
        before.close()
        member = joined(broker, group, "read", **more)
        committed(member, "read")
        members.append(member)
    for group, more in (("emptied", {}), ("emptied-848", newer)):
        member = joined(broker, group, "read", **more)
        committed(member, *TOPICS)
        member.close()
    tables, source = tmp_path / "tables", f"kafka://{broker.bootstrap}"
    summary = run_here(tables, source, analytics=True)
    assert (summary.offsets_retention_ms, summary.offsets_retention_by) == (MINUTE_MS, "broker")
    forecast = keyed(rows_of(tables, "expiry")["expiry"])
    assert {key: row["rule"] for key, row in forecast.items()} == {
        ("simple", "read"): "since last commit", ("simple", "forgotten"): "since last commit",
        ("simple", None): "with its last offset",
        ("classic", "read"): "kept: active subscription", ("classic", "forgotten"): "not subscribed any more",
        ("classic", None): "kept: members",
        ("kip-848", "read"): "kept: active subscription", ("kip-848", "forgotten"): "not subscribed any more",
        ("kip-848", None): "kept: members",
        ("emptied", "read"): "since group became empty", ("emptied", "forgotten"): "since group became empty",
        ("emptied", None): "with its last offset",
        ("emptied-848", "read"): "since last commit", ("emptied-848", "forgotten"): "since last commit",
        ("emptied-848", None): "with its last offset",
    }  # fmt: skip
    goes = {key for key, row in forecast.items() if row["expires_at_ms"] is not None}

    with Cluster({"bootstrap.servers": broker.bootstrap}) as cluster:

        def is_over() -> bool:
            for member in members:
                member.poll(0.2)
            found, _ = cluster.list_groups()
            return {group for groups in found.values() for group in groups} == {"classic", "kip-848"}

        wait_for(is_over, patience_s=3 * MINUTE_MS / 1000)
    run_here(tables, source, analytics=True)
    assert keyed(rows_of(tables, "expiry")["expiry"]).keys() == forecast.keys() - goes
    deleted = [row for row in rows_of(tables, "commits")["commits"] if row["kind"] != "commit"]
    assert {(row["group_id"], row["topic"]) for row in deleted} == {key for key in goes if key[1] is not None}
    assert {row["kind"] for row in deleted} == {"expired"}
    late_ms = [row["timestamp_ms"] - forecast[row["group_id"], row["topic"]]["expires_at_ms"] for row in deleted]
    print("deleted so many ms after the forecast:", sorted(late_ms))
    assert min(late_ms) >= 0
    for member in members:
        member.close()
    simple.close()
