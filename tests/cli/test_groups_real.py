"""`muster groups` beside Kafka's own kafka-consumer-groups, on one broker: the same groups, the same columns.

Kafka's tool takes seconds to start, so one process of it answers all questions.
"""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupTopicPartitions, Producer
from confluent_kafka import TopicPartition as Offset
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from muster.cli.groups import cluster as asking
from muster.cli.groups.cluster import Cluster
from muster.cli.groups.connect import DEFAULTS
from muster.cli.groups.model import TopicPartition
from muster.cli.status import Status
from tests.cli import Ran, run
from tests.kit.java.compiled import ConsumerGroups
from tests.kit.kafka import KafkaBroker
from tests.real.drive import QUIET, SETTINGS, WAIT_S, check, consumer, names, poll_until, transactional

pytestmark = pytest.mark.kafka

ORDERS, PAY = "groups-orders", "groups-pay"
ORDERS_PARTITIONS, PAY_PARTITIONS = 3, 2
HOUR_MS = 3_600_000
LASTS = {"session.timeout.ms": 120_000, "heartbeat.interval.ms": 1000, "max.poll.interval.ms": 900_000}
GROUPS = [f"groups-{name}" for name in ("stable", "static", "newer", "crowd", "simple", "left", "txn", "mixed")]
"""Two members; a static one; KIP-848; more members than partitions and no commit; commits and nobody; nobody any more
and no commit; a transaction committed and one open; a member of one topic and commits of another."""


@dataclass(slots=True)
class Stage:
    """The groups on the broker, and what Kafka's tool says of them."""

    broker: KafkaBroker
    produced_ms: int
    tool: ConsumerGroups

    def judge(self, *arguments: str) -> str:
        """What Kafka's tool prints to its standard output."""
        return self.tool.ask(*arguments)


def group_options(*groups: str) -> tuple[str, ...]:
    return tuple(word for group in groups or GROUPS for word in ("--group", group))


@pytest.fixture(scope="module")
def stage(kafka: KafkaBroker) -> Iterator[Stage]:
    with ConsumerGroups(kafka.kafka, kafka.bootstrap) as tool, ExitStack() as members:
        produced_ms = prepare_topics(kafka)
        join_groups(kafka, members)
        yield Stage(kafka, produced_ms, tool)


def prepare_topics(kafka: KafkaBroker) -> int:
    """Ten records a partition of the one topic, an hour apart, from 15 hours ago; a few in one of the other."""
    admin = AdminClient(QUIET | {"bootstrap.servers": kafka.bootstrap})
    topics = [NewTopic(ORDERS, ORDERS_PARTITIONS, 1), NewTopic(PAY, PAY_PARTITIONS, 1)]
    for created in admin.create_topics(topics).values():
        created.result(WAIT_S)
    producer = Producer(QUIET | {"bootstrap.servers": kafka.bootstrap, "linger.ms": 0})
    start_ms = int(time.time() * 1000) - 15 * HOUR_MS
    for number in range(30):
        producer.produce(ORDERS, b"x", partition=number % 3, timestamp=start_ms + number // 3 * HOUR_MS)
    for _ in range(4):
        producer.produce(PAY, b"x", partition=0)
    assert producer.flush(WAIT_S) == 0
    return start_ms


def join_groups(kafka: KafkaBroker, stack: ExitStack) -> None:
    def member(group: str, client_id: str, **settings: object) -> Consumer:
        return stack.enter_context(consumer(kafka, group, **LASTS, **{"client.id": client_id}, **settings))

    one, two = (member("groups-stable", name) for name in ("one", "two"))
    for each in (one, two):
        each.subscribe([ORDERS])
    poll_until(lambda: sorted(len(each.assignment()) for each in (one, two)) == [1, 2], one, two)
    check(one.commit(offsets=[Offset(ORDERS, each.partition, 4) for each in one.assignment()], asynchronous=False))

    seat = member("groups-static", "seated", **{"group.instance.id": "seat-1"})
    seat.subscribe([PAY])
    poll_until(lambda: len(seat.assignment()) == PAY_PARTITIONS, seat)
    check(seat.commit(offsets=[Offset(PAY, 0, 2)], asynchronous=False))

    newer = stack.enter_context(
        closing(Consumer(SETTINGS | names(kafka, "groups-newer") | {"group.protocol": "consumer", "client.id": "new"}))
    )
    newer.subscribe([PAY, ORDERS])
    poll_until(lambda: len(newer.assignment()) == ORDERS_PARTITIONS + PAY_PARTITIONS, newer)
    check(newer.commit(offsets=[Offset(PAY, 1, 0), Offset(ORDERS, 2, 7)], asynchronous=False))

    crowd = [member("groups-crowd", f"crowd-{number}") for number in range(3)]
    for each in crowd:
        each.subscribe([PAY])
    # One has no partitions: by that alone it looks as if it had not joined yet.
    poll_until(
        lambda: is_settled(kafka, "groups-crowd", 3) and sorted(len(each.assignment()) for each in crowd) == [0, 1, 1],
        *crowd,
    )

    commit(kafka, "groups-simple", Offset(ORDERS, 0, 3, "noted", 0), Offset(ORDERS, 1, 100), Offset(PAY, 1, 0))
    with consumer(kafka, "groups-left") as gone:
        gone.subscribe([ORDERS])
        poll_until(lambda: len(gone.assignment()) == ORDERS_PARTITIONS, gone)
    commit_in_transactions(kafka, stack)

    commit(kafka, "groups-mixed", Offset(ORDERS, 1, 9))
    mixed = member("groups-mixed", "mixed")
    mixed.subscribe([PAY])
    poll_until(lambda: len(mixed.assignment()) == PAY_PARTITIONS, mixed)


def is_settled(kafka: KafkaBroker, group: str, members: int) -> bool:
    """Whether the broker has that many members of a group, and waits for none of them."""
    admin = AdminClient(QUIET | {"bootstrap.servers": kafka.bootstrap})
    found = admin.describe_consumer_groups([group])[group].result(WAIT_S)
    return found.state is ConsumerGroupState.STABLE and len(found.members) == members


def commit(kafka: KafkaBroker, group: str, *offsets: Offset) -> None:
    with consumer(kafka, group) as simple:
        check(simple.commit(offsets=list(offsets), asynchronous=False))


def commit_in_transactions(kafka: KafkaBroker, stack: ExitStack) -> None:
    with consumer(kafka, "groups-txn") as reader:
        metadata = reader.consumer_group_metadata()
    done, left_open = (transactional(kafka, f"groups-txn-{number}") for number in (1, 2))
    for producer, offset in ((done, Offset(ORDERS, 0, 6)), (left_open, Offset(ORDERS, 1, 8))):
        producer.begin_transaction()
        producer.send_offsets_to_transaction([offset], metadata, WAIT_S)
    done.commit_transaction(WAIT_S)
    stack.callback(left_open.abort_transaction, WAIT_S)


def kafkas_rows(text: str) -> list[dict[str, str]]:
    """The tables of Kafka's tool, cell by cell; those of all groups in one list."""
    rows: list[dict[str, str]] = []
    titles: list[str] = []
    for line in text.replace("COORDINATOR (ID)", "COORDINATOR(ID)").replace("  (", "(").splitlines():
        cells = line.split()
        if cells[:1] in (["GROUP"], ["TOPIC"]):
            titles = cells
        elif cells:
            assert len(cells) == len(titles), line
            rows.append(dict(zip(titles, cells, strict=True)))
    return rows


def muster_rows(stage: Stage, *arguments: str | Path, status: Status = Status.OK) -> list[dict[str, str]]:
    """Ours, in text with whole ids, read the same way."""
    ran = muster(stage, *arguments, "--wide")
    assert ran.status == status, ran.err
    return kafkas_rows(ran.out)


def muster(stage: Stage, *arguments: str | Path) -> Ran:
    return run("groups", *arguments, "--bootstrap-server", stage.broker.bootstrap)


def in_order(rows: list[dict[str, str]]) -> list[tuple[tuple[str, str], ...]]:
    return sorted(tuple(row.items()) for row in rows)


class TestLooking:
    def test_describe(self, stage: Stage) -> None:
        theirs = kafkas_rows(stage.judge("--describe", *group_options()))
        assert {row["GROUP"] for row in theirs} == set(GROUPS) - {"groups-left"}
        assert in_order(muster_rows(stage, "describe", *group_options())) == in_order(theirs)

    def test_describe_verbose(self, stage: Stage) -> None:
        theirs = kafkas_rows(stage.judge("--describe", "--verbose", *group_options()))
        assert {row["LEADER-EPOCH"] for row in theirs} == {"0", "-"}
        assert in_order(muster_rows(stage, "describe", "--verbose", *group_options())) == in_order(theirs)

    def test_members(self, stage: Stage) -> None:
        """But for the epochs of the newer protocol, which the client library does not hand on."""
        theirs = kafkas_rows(stage.judge("--describe", "--members", "--verbose", *group_options()))
        assert len(theirs) == 8
        for row in theirs:
            row.setdefault("GROUP-INSTANCE-ID", "-")
            del row["CURRENT-EPOCH"], row["TARGET-EPOCH"]
        ours = muster_rows(stage, "members", "--verbose", *group_options())
        assert {row["CURRENT-ASSIGNMENT"] for row in ours} >= {f"{ORDERS}:0,1,2;{PAY}:0,1", f"{PAY}:0,1", "-"}
        assert sorted(map(sorted, map(dict.items, ours))) == sorted(map(sorted, map(dict.items, theirs)))

    def test_state(self, stage: Stage) -> None:
        theirs = kafkas_rows(stage.judge("--describe", "--state", *group_options()))
        assert {row["STATE"] for row in theirs} == {"Stable", "Empty"}
        assert in_order(muster_rows(stage, "state", *group_options())) == in_order(theirs)

    def test_list(self, stage: Stage) -> None:
        theirs = in_order(kafkas_rows(stage.judge("--list", "--state", "--type")))
        assert in_order(muster_rows(stage, "list")) == theirs
        assert {dict(row)["TYPE"] for row in theirs} == {"Classic", "Consumer"}
        stable = [row for row in theirs if dict(row)["STATE"] == "Stable"]
        assert in_order(muster_rows(stage, "list", "--state", "stable")) == stable

    def test_a_group_that_is_not_there(self, stage: Stage) -> None:
        ran = muster(stage, "describe", "--group", "groups-stabel")
        assert ran.status == Status.NOTHING_MATCHED
        assert ran.err.startswith("muster: no group called 'groups-stabel'. Did you mean 'groups-stable'?")


class TestMany:
    """The same answers when all groups are asked about together."""

    @pytest.fixture
    def calls(self, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
        """How often each call of the admin client is made; and twenty groups are many from one on."""
        counted: dict[str, int] = {}

        class Counting(AdminClient):
            def __getattribute__(self, name: str) -> Any:
                counted[name] = counted.get(name, 0) + 1
                return super().__getattribute__(name)

        monkeypatch.setattr(asking, "AdminClient", Counting)
        monkeypatch.setattr(asking, "MANY_GROUPS", 1)
        return counted

    @pytest.mark.parametrize("view", ["describe", "state"])
    def test_as_one_by_one(
        self, stage: Stage, view: str, calls: dict[str, int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        together = in_order(muster_rows(stage, view, *group_options()))
        assert (calls["list_groups"], calls["describe_consumer_groups"]) == (1, 1)  # the second for KIP-848
        calls.clear()
        monkeypatch.setattr(asking, "MANY_GROUPS", 1000)
        assert in_order(muster_rows(stage, view, *group_options())) == together
        assert "list_groups" not in calls

    def test_when_the_old_call_fails_or_is_gone(
        self, stage: Stage, calls: dict[str, int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        together = in_order(muster_rows(stage, "describe", *group_options()))
        monkeypatch.setattr(Cluster, "_list_groups", lambda self: [])
        assert in_order(muster_rows(stage, "describe", *group_options())) == together

    def test_a_thousand_groups_of_ten_partitions(self, stage: Stage, calls: dict[str, int]) -> None:
        """One question for all groups, one for all ends, and one for the offsets of each."""
        admin = AdminClient(QUIET | {"bootstrap.servers": stage.broker.bootstrap})
        for created in admin.create_topics([NewTopic("groups-many", 10, 1)]).values():
            created.result(WAIT_S)
        wanted = [f"many-{number:04}" for number in range(1000)]
        offsets = [Offset("groups-many", partition, 0) for partition in range(10)]
        futures = [
            admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, offsets)])[group]
            for group in wanted
        ]
        for future in futures:
            future.result(60)
        try:
            calls.clear()
            ran = muster(stage, "describe", "--json", "--quiet", *group_options(*wanted))
            assert ran.status == Status.OK, ran.err
            rows = [json.loads(line) for line in ran.out.splitlines()]
            assert [(row["group_id"], row["partition"], row["lag"]) for row in rows] == [
                (group, partition, 0) for group in wanted for partition in range(10)
            ]
            assert calls["list_consumer_group_offsets"] == 1000
            assert (calls["list_groups"], calls["list_offsets"], calls.get("describe_consumer_groups")) == (1, 1, None)
        finally:
            for deleted in admin.delete_consumer_groups(wanted).values():
                deleted.result(60)


class TestReset:
    SPECS = (
        ("--to-earliest",),
        ("--to-latest",),
        ("--to-current",),
        ("--to-offset", "5"),
        ("--to-offset=-1",),
        ("--shift-by=-2",),
        ("--shift-by=2",),
        ("--to-datetime",),
        ("--by-duration", "PT10H30M"),
        ("--from-file",),
    )

    @staticmethod
    def complete(stage: Stage, spec: tuple[str, ...], folder: Path) -> tuple[str, ...]:
        """The specification with the value that depends on the stage."""
        if spec == ("--to-datetime",):
            middle = datetime.fromtimestamp((stage.produced_ms + 9 * HOUR_MS // 2) / 1000, UTC)
            return (*spec, middle.strftime("%Y-%m-%dT%H:%M:%S.000"))
        if spec == ("--from-file",):
            plan = folder / "plan.csv"
            plan.write_text(f"{ORDERS},0,2\n{ORDERS},2,1000\n{PAY},0,4\n")
            return (*spec, str(plan))
        return spec

    @pytest.fixture(scope="class")
    @classmethod
    def planned(cls, stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, ...], tuple[str, ...]]:
        """What to ask both tools."""
        folder = tmp_path_factory.mktemp("plans")
        return {spec: cls.arguments(cls.complete(stage, spec, folder)) for spec in cls.SPECS}

    @staticmethod
    def arguments(spec: tuple[str, ...]) -> tuple[str, ...]:
        scope: tuple[str, ...] = ("--topic", ORDERS, "--topic", f"{PAY}:0")
        if spec[0].startswith("--shift-by"):
            scope = ("--all-topics",)  # elsewhere there is nothing to shift
        elif spec[0] == "--from-file":
            scope = ()
        return ("--group", "groups-simple", *scope, *spec, "--dry-run")

    @pytest.mark.parametrize("spec", SPECS, ids="".join)
    def test_the_same_new_offsets(
        self, stage: Stage, planned: dict[tuple[str, ...], tuple[str, ...]], spec: tuple[str, ...]
    ) -> None:
        arguments = planned[spec]
        theirs = kafkas_rows(_only_table(stage.judge("--reset-offsets", *arguments)))
        assert theirs
        assert in_order(muster_rows(stage, "reset-offsets", *arguments)) == in_order(theirs)

    def test_times_have_found_something(self, stage: Stage, planned: dict[tuple[str, ...], tuple[str, ...]]) -> None:
        for spec in (("--to-datetime",), ("--by-duration", "PT10H30M")):
            rows = muster_rows(stage, "reset-offsets", *planned[spec])
            assert {row["NEW-OFFSET"] for row in rows if row["TOPIC"] == ORDERS} == {"5"}

    def test_export(self, stage: Stage) -> None:
        arguments = ("--group", "groups-simple", "--all-topics", "--to-latest", "--export", "--dry-run")
        theirs = stage.judge("--reset-offsets", *arguments).split()
        ours = muster(stage, "reset-offsets", *arguments).out.split()
        assert sorted(ours) == sorted(theirs)
        assert len(ours) == 3

    def test_a_group_in_use(self, stage: Stage) -> None:
        arguments = ("--group", "groups-stable", "--all-topics", "--to-latest", "--dry-run")
        assert "Assignments can only be reset if the group 'groups-stable' is inactive" in stage.judge(
            "--reset-offsets", *arguments
        )
        ran = muster(stage, "reset-offsets", *arguments)
        assert (ran.status, ran.out) == (Status.REFUSED, "")
        assert "'groups-stable' is Stable with 2 members" in ran.err

    def test_a_partition_that_is_not_there(self, stage: Stage) -> None:
        ran = muster(stage, "reset-offsets", "-g", "groups-simple", "-t", f"{ORDERS}:0,9", "--to-latest", "--execute")
        assert (ran.status, ran.out) == (Status.REFUSED, "")
        assert f"cannot find {ORDERS}-9" in ran.err

    def test_really(self, stage: Stage) -> None:
        """Ours and Kafka's, each on a group of its own, leave the same behind; both create the group."""
        arguments = ("--topic", ORDERS, "--topic", f"{PAY}:0", "--to-offset", "5", "--execute")
        mine, theirs = "groups-reset-by-us", "groups-reset-by-kafka"
        stage.judge("--reset-offsets", "--group", theirs, *arguments)
        ran = muster(stage, "reset-offsets", "--group", mine, *arguments)
        assert (ran.status, ran.err.splitlines()[-1]) == (Status.OK, "muster: 4 offsets reset.")
        rows = kafkas_rows(stage.judge("--describe", "--verbose", *group_options(mine, theirs)))
        by_group = {
            group: in_order([row | {"GROUP": ""} for row in rows if row["GROUP"] == group]) for group in (mine, theirs)
        }
        assert len(by_group[mine]) == 4
        assert by_group[mine] == by_group[theirs]


def _only_table(text: str) -> str:
    """Without the warnings that Kafka's tool prints above it."""
    lines = text.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("GROUP"))
    return "\n".join(lines[start:])


class TestDeleting:
    def test_offsets(self, stage: Stage) -> None:
        group = "groups-forgets"
        commit(stage.broker, group, Offset(ORDERS, 0, 1), Offset(ORDERS, 1, 1), Offset(PAY, 0, 1))
        ran = muster(stage, "delete-offsets", "--group", group, "--topic", f"{ORDERS}:1,9", "--topic", PAY, "--json")
        assert ran.status == Status.REFUSED
        assert [
            (row["topic"], row["partition"], row["error_code"]) for row in map(json.loads, ran.out.splitlines())
        ] == [
            (ORDERS, 1, None),
            (ORDERS, 9, "UNKNOWN_TOPIC_OR_PART"),
            (PAY, 0, None),
            (PAY, 1, None),
        ]
        left = kafkas_rows(stage.judge("--describe", *group_options(group)))
        assert [(row["TOPIC"], row["PARTITION"]) for row in left] == [(ORDERS, "0")]

    def test_not_while_a_member_is_subscribed(self, stage: Stage) -> None:
        arguments = ("--group", "groups-stable", "--topic", f"{ORDERS}:0", "--topic", "groups-nowhere")
        theirs = stage.judge("--delete-offsets", *arguments)
        assert "GroupSubscribedToTopicException" in theirs
        ran = muster(stage, "delete-offsets", *arguments)
        assert ran.status == Status.REFUSED
        assert "its members are subscribed to the topic. Stop them first." in ran.err
        assert "topic 'groups-nowhere': there is no such topic" in ran.err

    def test_groups(self, stage: Stage) -> None:
        for group in ("groups-goes-1", "groups-goes-2"):
            commit(stage.broker, group, Offset(ORDERS, 0, 1))
        chosen = group_options("groups-goes-1", "groups-goes-2", "groups-static", "groups-nobody")
        ran = muster(stage, "delete", *chosen, "--json")
        assert ran.status == Status.REFUSED
        assert {row["group_id"]: row["error_code"] for row in map(json.loads, ran.out.splitlines())} == {
            "groups-goes-1": None,
            "groups-goes-2": None,
            "groups-nobody": "GROUP_ID_NOT_FOUND",
            "groups-static": "NON_EMPTY_GROUP",
        }
        assert "'groups-static' was not deleted: it still has members." in ran.err
        left, _ = Cluster(DEFAULTS | {"bootstrap.servers": stage.broker.bootstrap}, 30_000).listings()
        assert not {"groups-goes-1", "groups-goes-2"} & {each.group_id for each in left}
        assert muster(stage, "delete", *group_options("groups-goes-1")).status == Status.NOTHING_MATCHED


class TestCluster:
    def test_a_properties_file_of_javas_clients(self, stage: Stage, tmp_path: Path) -> None:
        config = tmp_path / "client.properties"
        config.write_text(
            f"bootstrap.servers={stage.broker.bootstrap}\nsecurity.protocol=PLAINTEXT\nretry.backoff.max.ms=1000\n"
            "default.api.timeout.ms=60000\nmetric.reporters=\n"
        )
        ran = run("groups", "list", "--command-config", config)
        assert ran.status == Status.OK
        assert "groups-stable" in ran.out
        assert "left out what librdkafka does not know: default.api.timeout.ms, metric.reporters." in ran.err

    def test_offsets_that_are_refused_one_by_one(self, stage: Stage) -> None:
        cluster = Cluster(DEFAULTS | {"bootstrap.servers": stage.broker.bootstrap}, 30_000)
        there, elsewhere = TopicPartition(ORDERS, 0), TopicPartition(ORDERS, 9)
        refused = cluster.alter({group: {there: 1, elsewhere: 1} for group in ("groups-stable", "groups-altered")})
        assert {group: {place: why.code for place, why in problems.items()} for group, problems in refused.items()} == {
            "groups-stable": {there: "UNKNOWN_MEMBER_ID", elsewhere: "UNKNOWN_TOPIC_OR_PART"},
            "groups-altered": {elsewhere: "UNKNOWN_TOPIC_OR_PART"},
        }
        assert cluster.committed(["groups-altered"])["groups-altered"] == {there: (1, None)}

    def test_the_ends_of_partitions_that_are_there_and_that_are_not(self, stage: Stage) -> None:
        cluster = Cluster(DEFAULTS | {"bootstrap.servers": stage.broker.bootstrap}, 30_000)
        there, elsewhere = TopicPartition(ORDERS, 0), [TopicPartition(ORDERS, 9), TopicPartition("groups-nowhere", 0)]
        answers = cluster.end_offsets([there, *elsewhere])
        assert (answers.known, sorted(answers.refused)) == ({there: 10}, sorted(elsewhere))
