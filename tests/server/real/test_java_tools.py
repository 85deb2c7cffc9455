"""Kafka's own tools, with the same arguments against a real broker and against muster: the same output.

What a tool prints is compared line by line, in order of the alphabet, with ids, times, rates and folders left out. A
few tools run every day, all of them in `make real`.
"""

import itertools
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from muster.broker import Broker
from tests.kit.java.compiled import compiled, start
from tests.kit.kafka import Kafka, KafkaBroker, require_kafka
from tests.server.real.conftest import SETTINGS
from tests.server.real.java_groups import Pair, blocks

pytestmark = pytest.mark.kafka

TIMEOUT_S = 280
TOOLS = "org.apache.kafka.tools."
CLASSES = {
    "topics": TOOLS + "TopicCommand", "configs": "kafka.admin.ConfigCommand", "log-dirs": TOOLS + "LogDirsCommand",
    "get-offsets": TOOLS + "GetOffsetShell", "delete-records": TOOLS + "DeleteRecordsCommand",
    "console-producer": TOOLS + "ConsoleProducer", "console-consumer": TOOLS + "consumer.ConsoleConsumer",
    "verifiable-producer": TOOLS + "VerifiableProducer", "verifiable-consumer": TOOLS + "VerifiableConsumer",
    "producer-perf-test": TOOLS + "ProducerPerformance", "consumer-perf-test": TOOLS + "ConsumerPerformance",
    "consumer-groups": TOOLS + "consumer.group.ConsumerGroupCommand",
    "acls": TOOLS + "AclCommand", "client-metrics": TOOLS + "ClientMetricsCommand", "groups": TOOLS + "GroupsCommand",
    "leader-election": TOOLS + "LeaderElectionCommand",
    "reassign-partitions": TOOLS + "reassign.ReassignPartitionsCommand",
}  # fmt: skip
"""By the names of Kafka's scripts."""
SHORT = {
    "KEYED": "--reader-property parse.key=true --reader-property key.separator=:",
    "PRINTED": " ".join(f"--formatter-property print.{what}=true" for what in ("offset", "partition", "timestamp")),
    "COMMITS": "--partition 0 --offset earliest --timeout-ms 2500 --formatter",
    "FORM": TOOLS + "consumer",
}
"""For words in the commands."""
DAILY = """\
topics --create --topic jt --partitions 2 --config segment.ms=7700000
topics --create --topic jt
topics --create --topic a,b
topics --alter --topic jt --partitions 3
topics --describe --topic jt
console-producer --topic jt KEYED <<< a:one\\nb:two\\nc:three
console-consumer --topic jt --from-beginning --max-messages 3 --group cg --formatter-property print.key=true
consumer-groups --describe --group cg
get-offsets --topic jt
log-dirs --describe --topic-list jt
configs --entity-type topics --entity-name jt --alter --add-config retention.ms=5000000 --delete-config segment.ms
configs --entity-type topics --entity-name jt --describe
delete-records --offset-json-file DELETIONS
get-offsets --topic jt --time -2
"""
REST = """\
topics --create --if-not-exists --topic jt
topics --create --topic many --partitions 2 --replication-factor 2
topics --create --topic where --replica-assignment 1,1
topics --alter --topic jt --partitions 1
topics --alter --topic nowhere --partitions 2
topics --describe --topic nowhere
topics --describe --under-replicated-partitions
topics --describe --unavailable-partitions
topics --describe --topics-with-overrides --exclude-internal
topics --describe --exclude-internal
topics --list
console-producer --topic jt --compression-codec zstd KEYED <<< d:x\\ne:y\\nf:z
console-producer --topic jt --sync --command-property acks=1 KEYED <<< a:q
console-producer --topic nowhere --command-property max.block.ms=500 <<< lost
console-consumer --topic jt --from-beginning --max-messages 7 --group ch PRINTED
console-consumer --topic jt --partition 0 --offset earliest --timeout-ms 1500
console-consumer --topic jt --partition 1 --offset 99 --timeout-ms 1500
console-consumer --topic nowhere --from-beginning --timeout-ms 1500 --group cn
console-consumer --topic __consumer_offsets COMMITS FORM.OffsetsMessageFormatter
console-consumer --topic __consumer_offsets COMMITS FORM.GroupMetadataMessageFormatter
consumer-groups --list --state
consumer-groups --group cg --topic jt --reset-offsets --to-earliest --execute
consumer-groups --describe --group cg --members --verbose
consumer-groups --delete --group cg
consumer-groups --describe --group cg --offsets
get-offsets --topic jt --time -1
get-offsets --topic jt --time latest --partitions 0,1
get-offsets --topic jt --time max-timestamp
get-offsets --topic jt --time earliest-local
get-offsets --topic jt --time 5
get-offsets --topic nowhere
get-offsets --exclude-internal-topics
get-offsets --topic-partitions jt:0-2
configs --entity-type topics --entity-name jt --describe --all
configs --entity-type topics --entity-name nowhere --describe
configs --entity-type topics --entity-name jt --alter --add-config retention.ms=soon
configs --entity-type topics --entity-name jt --alter --add-config unheard.of=1
configs --entity-type topics --entity-name jt --alter --delete-config retention.ms
configs --entity-type topics --describe
configs --entity-type brokers --entity-name 1 --describe
delete-records --offset-json-file WRONG
log-dirs --describe --topic-list where
log-dirs --describe --topic-list nowhere
topics --create --topic vt
verifiable-producer --topic vt --max-messages 20 --acks -1 --value-prefix 7
verifiable-producer --topic vt --max-messages 5 --repeating-keys 3
verifiable-consumer --topic vt --group-id vg --max-messages 25 --reset-policy earliest
verifiable-consumer --topic vt --group-id vh --max-messages 25 --reset-policy earliest --group-instance-id i
topics --create --topic pt --partitions 3
producer-perf-test --topic pt --num-records 600 --record-size 100 --throughput -1 --command-property acks=all
producer-perf-test --topic pt --num-records 400 --record-size 99 --throughput 4000 --command-property linger.ms=9
consumer-perf-test --topic pt --num-records 1000 --timeout 20000
consumer-perf-test --topic pt --num-records 1000 --timeout 20000 --show-detailed-stats --reporting-interval 60000
leader-election --election-type preferred --topic jt --partition 0
leader-election --election-type unclean --all-topic-partitions
reassign-partitions --list
acls --list
acls --add --allow-principal User:a --topic jt --operation Read
client-metrics --list
groups --list
groups --list --group-type classic
"""
LAST = """\
topics --delete --topic jt
topics --delete --topic gone
topics --list --exclude-internal
"""
ALONE = "verifiable-producer"
"""Says the rest of it when its process ends."""
_NORMALS = (
    (re.compile(r"TopicId: [\w-]{22}"), "TopicId: <id>"),
    (re.compile(r"(?<=console-consumer-)\d+|(?<=perf-consumer-)\d+"), "<n>"),
    (re.compile(r'"(\w*[tT]imestamp|commitTimestampMs|timestamp)":"?-?\d{5,}"?'), r'"\1":<time>'),
    (re.compile(r"(CreateTime|LogAppendTime):\d+"), r"\1:<time>"),
    (re.compile(r'"topicId":"[\w-]{22}"'), '"topicId":<id>'),
    (re.compile(r'"logDir":"[^"]*"'), '"logDir":<folder>'),
    (re.compile(r'"size":[1-9]\d*'), '"size":<bytes>'),  # the later a record is than the first of its batch, the longer
    (re.compile(r"\d{4}-\d\d-\d\d[ T][\d:,.]+"), "<time>"),
    (re.compile(r"\b\d+\.\d+\b|\bNaN\b|\b\d+(?= ms\b)"), "<rate>"),
    (re.compile(r"(?<=, )\d+, (-?\d+), <rate>, <rate>$"), "<n>, <n>, <rate>, <rate>"),
)  # fmt: skip


class Two(NamedTuple):
    kafka: Kafka
    bootstraps: dict[str, str]
    files: dict[str, str]


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    parts = '{"topic": "jt", "partition": %d, "offset": %d}'
    (tmp_path / "deletions.json").write_text('{"version": 1, "partitions": [%s]}' % (parts % (0, 0)))
    (tmp_path / "wrong.json").write_text('{"version": 1, "partitions": [%s]}' % (parts % (0, 99)))
    return {"DELETIONS": str(tmp_path / "deletions.json"), "WRONG": str(tmp_path / "wrong.json")}


@pytest.fixture
def two(brokers: Pair, files: dict[str, str]) -> Two:
    """Others use them too: there are more topics and groups, the same on either side."""
    return Two(brokers.kafka, brokers.bootstraps, files)


@pytest.fixture
def two_fresh(files: dict[str, str], tmp_path: Path) -> Iterator[Two]:
    kafka = require_kafka()
    with KafkaBroker(kafka, SETTINGS) as theirs, Broker(data=tmp_path / "data", settings=SETTINGS) as ours:
        yield Two(kafka, {"Kafka": theirs.bootstrap, "muster": ours.bootstrap_servers}, files)


def command(line: str, files: dict[str, str]) -> str:
    tool, _, arguments = line.partition(" ")
    for word, meant in (SHORT | files).items():
        arguments = arguments.replace(word, meant)
    return f"{CLASSES[tool]} --bootstrap-server @ {arguments}"


def said(two: Two, bootstrap: str, lines: list[str]) -> dict[str, list[str]]:
    """What either tool prints, by its line."""
    told: dict[str, list[str]] = {}
    for is_alone, some in itertools.groupby(lines, lambda line: line.startswith(ALONE)):
        given = list(some)
        if is_alone:
            for line in given:
                tool, *words = command(line, two.files).replace("@", bootstrap).split(" ")
                told[line] = two.kafka.checked(tool, *words).splitlines()
        else:
            told |= in_one_process(two, bootstrap, given)
    return {line: sorted(plain(part) for each in printed for part in each.replace("}}}{", "}}}\n{").split("\n"))
            for line, printed in told.items()}  # fmt: skip


def in_one_process(two: Two, bootstrap: str, lines: list[str]) -> dict[str, list[str]]:
    commands = [command(line, two.files) for line in lines]
    with start(two.kafka, "Tools", bootstrap) as process:
        try:
            out, errors = process.communicate("".join(f"{each}\n" for each in commands), timeout=TIMEOUT_S)
        finally:
            process.kill()
    assert "== done" in out, (bootstrap, out[-3000:], errors[-3000:])
    return dict(zip(lines, blocks(out, bootstrap).values(), strict=False))


def plain(line: str) -> str:
    for pattern, word in _NORMALS:
        line = pattern.sub(word, line)
    return line


def compare(two: Two, lines: list[str]) -> None:
    assert len(set(lines)) == len(lines)
    compiled(two.kafka, "Tools")
    with ThreadPoolExecutor(2) as threads:
        theirs, ours = threads.map(lambda bootstrap: said(two, bootstrap, lines), two.bootstraps.values())
    found = [
        f"{line}\n  Kafka:  " + "\n          ".join(theirs[line]) + "\n  muster: " + "\n          ".join(ours[line])
        for line in lines
        if theirs[line] != ours[line]
    ]
    if found:
        pytest.fail("\n".join(found), pytrace=False)


def test_tools_of_every_day(two: Two) -> None:
    compare(two, (DAILY + LAST).splitlines())


@pytest.mark.matrix
def test_all_tools(two_fresh: Two) -> None:
    compare(two_fresh, (DAILY + REST + LAST).splitlines())
