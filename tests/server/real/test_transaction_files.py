"""What transactions leave on disk: Kafka's own reader takes it, it is what Kafka writes, and either goes on from it.

The same conversation is held with a broker and with muster, both are stopped, and kafka-dump-log prints the logs of the
data, of the offsets topic and of `__transaction_state`, and the indexes of aborted transactions.
"""

import re
from contextlib import closing
from pathlib import Path

import pytest

from muster.broker import Broker
from tests.kit.kafka import Kafka, KafkaBroker, dump_log, require_kafka
from tests.server.cluster.kafka_messages import Messages
from tests.server.wire_diff.conftest import SETTINGS
from tests.server.wire_diff.talk import Both, Side
from tests.server.wire_diff.transactions.telling import TOPIC, Producer, Teller, wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.matrix]

PARTITIONS = 4
DECODERS = {
    TOPIC: (),
    "__transaction_state": ("--transaction-log-decoder",),
    "__consumer_offsets": ("--offsets-decoder",),
}
_NORMALS = (
    (re.compile(r"CreateTime: \d+|crc: \d+|position: \d+"), "-"),
    # Without a producer a sequence means nothing: Kafka writes 0 for groups and -1 for transactions, muster 0.
    (re.compile(r"baseSequence: -?\d+ lastSequence: -?\d+ producerId: -1|sequence: (-1|0)(?= headerKeys)"), "-"),
    (re.compile(r'("\w*(Timestamp|TimestampMs)":"?)\d+'), r"\1-"),
    (re.compile(r'"topicId":"[\w-]{22}"'), '"topicId":-'),
)
_SETS = re.compile(r'"partitionIds":\[([\d,]+)\]')


def teller(side: Side, name: str) -> Teller:
    return Teller(side, side.connect(), name, 0, 0, names={})


def transactions(side: Side) -> None:
    """Both flows, both ends, offsets, a fence, a timeout, an end of nothing; and one that is left open."""
    old = teller(side, "old")
    old.init()
    for is_commit in (True, False):
        old.add(0, 1)
        old.produce("a", partition=0)
        old.produce("b", partition=1, sequence=old.sequence - 1)
        old.add_offsets()
        old.commit_offsets({0: 5, 1: 6})
        old.end(is_commit)
        old.ended(is_commit)
    new = teller(side, "new")
    new.init(v=5)
    for is_commit in (True, False, True):
        new.produce("c", v=12, partition=2)
        new.commit_offsets({2: 7}, v=5)
        new.end(is_commit, v=5)
        new.ended(is_commit)
    new.end(is_commit=False, v=5)
    new.ended(is_commit=False)
    fenced = teller(side, "fenced")
    fenced.init()
    fenced.add(1)
    fenced.produce("d", partition=1)
    fenced.init()
    fenced.ended(is_commit=False)
    fenced.init(7_000)
    late = teller(side, "late")
    late.init(200)
    late.produce("e", v=12, partition=2)
    late.ended(is_commit=False)
    going = teller(side, "going")
    going.init(v=5)
    going.produce("f", v=12, partition=3)
    going.commit_offsets({3: 8}, v=5)


def printed(kafka: Kafka, logs: Path, suffix: str = "log") -> dict[str, list[str]]:
    """What kafka-dump-log says of every partition, without times and sums."""
    told = {}
    for topic, decoder in DECODERS.items():
        for partition in sorted(logs.glob(f"{topic}-*")):
            files = [file for file in sorted(partition.glob(f"*.{suffix}")) if file.stat().st_size]
            text = dump_log(files, *decoder, "--print-data-log", kafka=kafka) if files else ""
            told[partition.name] = [plain(line) for line in text.splitlines() if not line.startswith("Dumping")]
    return told


def plain(line: str) -> str:
    for pattern, word in _NORMALS:
        line = pattern.sub(word, line)
    return _SETS.sub(lambda match: f'"partitionIds":{sorted(match[1].split(","))}', line)


def test_the_files_are_those_that_kafka_writes(tmp_path: Path) -> None:
    kafka = require_kafka()
    ours_at = tmp_path / "muster"
    with KafkaBroker(kafka, SETTINGS, data_dir=tmp_path / "kafka") as theirs:
        with Broker(data=ours_at, settings=SETTINGS) as ours:
            host, port = theirs.bootstrap.rsplit(":", 1)
            both = Both(Messages(kafka), (host, int(port)), (ours.host, ours.port), {TOPIC: PARTITIONS})
            both.wake_transactions()
            both.same(transactions)
        theirs.stop()
        for suffix in ("log", "txnindex"):
            expected, found = printed(kafka, theirs.log_dir, suffix), printed(kafka, ours_at, suffix)
            assert found.keys() == expected.keys()
            for partition, lines in expected.items():
                assert found[partition] == lines, partition
            assert any(expected.values()), suffix


# Going on


def begun(tx: Teller) -> Producer:
    """A transaction with records and offsets, left open."""
    tx.init(v=5)
    tx.produce("begun", v=12, partition=0)
    tx.commit_offsets({0: 7}, v=5)
    return tx.producer


def gone_on(tx: Teller, producer: Producer, is_commit: bool) -> None:
    """The same producer, on another broker: another record, the end, and what readers see then."""
    wait_for(lambda: awake(tx), lambda: f"{tx.side.name} does not load its transactions")
    tx.producer, tx.sequence = producer, 1
    assert error_of(tx.produce("gone on", v=12, partition=0)) == 0
    assert tx.offsets(0)["Groups"][0]["Topics"][0]["Partitions"][0]["ErrorCode"] == 88
    assert tx.end(is_commit, v=5)["ErrorCode"] == 0
    tx.ended(is_commit)
    fetched = tx.fetch(partition=0)["Responses"][0]["Partitions"][0]
    assert fetched["LastStableOffset"] == fetched["HighWatermark"]
    assert bool(fetched["AbortedTransactions"]) == (not is_commit)
    committed = tx.offsets(0)["Groups"][0]["Topics"][0]["Partitions"][0]
    assert (committed["CommittedOffset"], committed["ErrorCode"]) == (7 if is_commit else -1, 0)


def error_of(answer: dict[str, object]) -> int:
    (topic,) = answer["Responses"]  # type: ignore[attr-defined]
    return int(topic["PartitionResponses"][0]["ErrorCode"])


def awake(tx: Teller) -> bool:
    asked = {"TransactionalIds": [tx.id]}
    told = tx.unheard("DescribeTransactions", 0, asked)["TransactionStates"][0]
    groups = [{"GroupId": tx.group, "Topics": None, "MemberId": None, "MemberEpoch": -1}]
    offsets = tx.unheard("OffsetFetch", 9, {"Groups": groups, "RequireStable": False})["Groups"][0]
    return not told["ErrorCode"] and not offsets["ErrorCode"]


def side_of(name: str, judge: Messages, bootstrap: str) -> Side:
    """A broker alone, with the ids of its topics."""
    host, port = bootstrap.rsplit(":", 1)
    side = Side(name, (host, int(port)), judge, {})
    told = teller(side, "nobody").unheard("Metadata", 12, {"Topics": None})
    side.topic_ids = {topic["Name"]: topic["TopicId"] for topic in told["Topics"]}
    return side


@pytest.mark.parametrize("is_commit", [True, False])
def test_muster_goes_on_in_kafkas_directory_and_kafka_in_musters(tmp_path: Path, is_commit: bool) -> None:
    kafka = require_kafka()
    judge = Messages(kafka)
    with KafkaBroker(kafka, SETTINGS, data_dir=tmp_path / "kafka") as theirs:
        host, port = theirs.bootstrap.rsplit(":", 1)
        Both(judge, (host, int(port)), None, {TOPIC: 1}).wake_transactions()
        with closing(side_of("Kafka", judge, theirs.bootstrap)) as side:
            producer = begun(teller(side, "theirs"))
        theirs.stop()
        with (
            Broker(data=theirs.log_dir, settings=SETTINGS) as ours,
            closing(side_of("muster", judge, ours.bootstrap_servers)) as side,
        ):
            gone_on(teller(side, "theirs"), producer, is_commit)
            producer = begun(teller(side, "ours"))
        theirs.start()
        with closing(side_of("Kafka", judge, theirs.bootstrap)) as side:
            gone_on(teller(side, "ours"), producer, is_commit)
