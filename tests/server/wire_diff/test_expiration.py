"""What takes a broker of its own: the initial rebalance delay, and offsets that expire after a minute."""

import time
from collections.abc import Iterator

import pytest

from muster.broker import Broker
from tests.kit.kafka import KafkaBroker, require_kafka
from tests.server.cluster.kafka_messages import Messages
from tests.server.wire_diff import bodies
from tests.server.wire_diff.conftest import SETTINGS, TOPICS
from tests.server.wire_diff.talk import Both, Link, Side
from tests.server.wire_diff.test_timers import compare, quiet_ask, stable
from tests.server.wire_diff.transactions.telling import Teller

pytestmark = [pytest.mark.kafka, pytest.mark.long]

DELAY_MS, RETENTION_S = 700, 60
OTHER_SETTINGS = SETTINGS | {
    "group.initial.rebalance.delay.ms": str(DELAY_MS),
    "offsets.retention.minutes": "1",
    "offsets.retention.check.interval.ms": "500",
}
MOST_BETWEEN_S = 2.5
"""The check comes every half second, and tells after its tombstones are written."""


@pytest.fixture(scope="module")
def expiring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    kafka = require_kafka()
    data = tmp_path_factory.mktemp("expiring") / "data"
    with KafkaBroker(kafka, OTHER_SETTINGS) as theirs, Broker(data=data, settings=OTHER_SETTINGS) as ours:
        host, port = theirs.bootstrap.rsplit(":", 1)
        yield Both(Messages(kafka), (host, int(port)), (ours.host, ours.port), TOPICS)


def test_the_initial_delay(expiring: Both) -> None:
    def story(side: Side) -> float:
        link = side.connect()
        since = time.monotonic()
        link.ask("JoinGroup", 3, bodies.join("delayed"))
        return (time.monotonic() - since) * 1000

    compare(expiring, story, DELAY_MS)


def test_the_initial_delay_is_extended_by_whoever_comes(expiring: Both) -> None:
    """Once per delay that begins, so two who come in the first one make it twice as long."""

    def story(side: Side) -> float:
        first, second = side.connect(), side.connect()
        member = second.ask("JoinGroup", 9, bodies.join("extended"))["MemberId"]
        since = time.monotonic()
        first.post("JoinGroup", 3, bodies.join("extended"))
        time.sleep(0.35)
        second.post("JoinGroup", 9, bodies.join("extended", member))
        first.read()
        took_ms = (time.monotonic() - since) * 1000
        second.read()
        return took_ms

    compare(expiring, story, 2 * DELAY_MS)


def test_offsets_expire(expiring: Both) -> None:
    """A minute after the last commit of a group that nobody joined, and after the last member left; never before."""
    gone: dict[str, dict[str, float]] = {"Kafka": {}, "muster": {}}

    def story(side: Side) -> None:
        link, watcher = side.connect(), side.connect()
        began = time.monotonic()
        link.ask("OffsetCommit", 8, bodies.commit("simple", {("orders", 0): 1}))
        link.ask("OffsetCommit", 4, bodies.commit("short", {("orders", 0): 1}, RetentionTimeMs=20_000))
        link.ask("OffsetCommit", 4, bodies.commit("long", {("orders", 0): 1}, RetentionTimeMs=3_600_000))
        kept, keeper = stable(side, "kept")
        mine = {"MemberId": keeper, "GenerationIdOrMemberEpoch": 1}
        kept.ask("OffsetCommit", 8, bodies.commit("kept", {("orders", 0): 1, ("payments", 0): 1}, **mine))
        left, leaver = stable(side, "left")
        mine = {"MemberId": leaver, "GenerationIdOrMemberEpoch": 1}
        left.ask("OffsetCommit", 8, bodies.commit("left", {("orders", 0): 1}, **mine))
        time.sleep(max(0.0, began + 12 - time.monotonic()))
        left.ask("LeaveGroup", 4, bodies.leave("left", leaver))
        kept.ask("Heartbeat", 4, bodies.heartbeat("kept", 1, keeper))
        while time.monotonic() - began < RETENTION_S + 16:
            for group in "simple", "short", "long", "kept", "left":
                if group not in gone[side.name] and not offsets_of(watcher, group):
                    gone[side.name][group] = time.monotonic() - began
            if "payments" not in gone[side.name] and not {t for t, _ in offsets_of(watcher, "kept")} - {"orders"}:
                gone[side.name]["payments"] = time.monotonic() - began
            assert quiet_ask(watcher, "Heartbeat", 4, bodies.heartbeat("kept", 1, keeper))["ErrorCode"] == 0
            time.sleep(max(0.0, began + (int((time.monotonic() - began) / 0.5) + 1) * 0.5 - time.monotonic()))
        for group in "simple", "short", "long", "kept", "left":
            link.ask("OffsetFetch", 8, bodies.fetch({group: None}))
            link.ask("DescribeGroups", 6, bodies.describe(group))
        link.ask("ListGroups", 5, bodies.list_groups(("Empty", "Dead", "Stable")))

    expiring.same(story)
    print(gone)
    theirs, ours = gone["Kafka"], gone["muster"]
    assert theirs.keys() == ours.keys() == {"simple", "short", "left", "payments"}
    for group, expected_s in {"simple": 60, "short": 20, "left": 72, "payments": 60}.items():
        for side in theirs, ours:
            assert expected_s - 0.5 <= side[group] < expected_s + MOST_BETWEEN_S, (group, gone)


def test_offsets_stay_while_a_transaction_has_others_for_their_partition(expiring: Both) -> None:
    """The offset of another partition expires meanwhile, and the group stays for what is pending."""
    gone: dict[str, dict[int, float]] = {"Kafka": {}, "muster": {}}
    expiring.wake_transactions()

    def story(side: Side) -> None:
        link, watcher = side.connect(), side.connect()
        tx = Teller(side, link, "expiring", 0, 0, names={})
        tx.init(600_000)
        began = time.monotonic()
        for group in "beside", "alone":
            tx.add_offsets(group=group)
        link.ask("OffsetCommit", 8, bodies.commit("beside", {("orders", 0): 1, ("orders", 1): 1}))
        tx.commit_offsets({0: 5}, topic="orders", group="beside")
        tx.commit_offsets({0: 6}, topic="orders", group="alone")
        while time.monotonic() - began < RETENTION_S + 6:
            there = {partition for _, partition in offsets_of(watcher, "beside")}
            for partition in {0, 1} - there - gone[side.name].keys():
                gone[side.name][partition] = time.monotonic() - began
            time.sleep(0.25)
        for is_stable in (True, False):
            for group in "beside", "alone":
                link.ask("OffsetFetch", 8, bodies.fetch({group: {"orders": [0, 1]}}, is_stable=is_stable))
        link.ask("DescribeGroups", 6, bodies.describe("beside", "alone"))
        for group in "beside", "alone":  # the first ones would expire as soon as they count
            tx.commit_offsets({0: 7}, topic="orders", group=group)
        tx.end()
        tx.ended()
        for group in "beside", "alone":
            link.ask("OffsetFetch", 8, bodies.fetch({group: None}))

    expiring.same(story)
    for side in gone.values():
        assert side.keys() == {1}, gone
        assert RETENTION_S - 0.5 <= side[1] < RETENTION_S + MOST_BETWEEN_S, gone


def offsets_of(link: Link, group: str) -> set[tuple[str, int]]:
    (told,) = quiet_ask(link, "OffsetFetch", 8, bodies.fetch({group: None}))["Groups"]
    return {(topic["Name"], each["PartitionIndex"]) for topic in told["Topics"] for each in topic["Partitions"]}
