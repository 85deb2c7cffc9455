"""kafka-transactions against a real broker and against muster: the same output, before and after what it changes.

Both verify no partitions, so that older clients can leave transactions hanging: open in a partition, and unknown to the
coordinator. Their records are an hour old.
"""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from muster.broker import Broker
from tests.kit.java.compiled import compiled, start
from tests.kit.kafka import Kafka, KafkaBroker, require_kafka
from tests.server.cluster.kafka_messages import Messages
from tests.server.real.java_groups import Pair
from tests.server.wire_diff.conftest import SETTINGS
from tests.server.wire_diff.talk import Both, Side
from tests.server.wire_diff.transactions.telling import NOW_MS, TOPIC, Teller

pytestmark = [pytest.mark.kafka, pytest.mark.matrix]

TOOL = "org.apache.kafka.tools.TransactionsCommand --bootstrap-server @"
TIMEOUT_S = 280
HOUR_MS = 3_600_000
HANGING, OPEN, DONE = 0, 1, 2
"""Partitions."""
COMMANDS = """\
list
list --transactional-id-pattern jt-o.*
list --transactional-id-pattern [
list --duration-filter 3600000
list --duration-filter -5
describe --transactional-id jt-open-0
describe --transactional-id jt-done-0
describe --transactional-id jt-empty-0
describe --transactional-id nobody
describe-producers --topic transactions --partition 0
describe-producers --topic transactions --partition 1
describe-producers --topic transactions --partition 2
describe-producers --broker-id 1 --topic transactions --partition 1
find-hanging --broker-id 1
find-hanging --broker-id 1 --max-transaction-timeout 15
find-hanging --broker-id 1 --topic transactions
find-hanging --topic transactions --partition 0 --max-transaction-timeout 900
find-hanging --topic nowhere
find-hanging
abort --topic transactions --partition 0 --start-offset 99
abort --topic transactions --partition 0
abort --topic transactions --partition 0 --start-offset 0
describe-producers --topic transactions --partition 0
find-hanging --broker-id 1
abort --topic transactions --partition 1 --start-offset 0
describe-producers --topic transactions --partition 1
describe --transactional-id jt-open-0
forceTerminateTransaction --transactionalId jt-open-0
describe --transactional-id jt-open-0
forceTerminateTransaction --transactionalId nobody
list --transactional-id-pattern jt-.*
"""
_NORMALS = (
    (re.compile(r"\b1\d{12}\b"), "<time>"),
    (re.compile(r"\d{4}-\d\d-\d\d[ T][\d:,.]+"), "<time>"),
    (re.compile(r"(Ongoing|Commit|Abort)(.*<time>\s*\t)\d+(?=\s*\t)"), r"\1\2<duration>"),
    (re.compile(r"^(transactions.*<time>\s*\t)\d+(?=\s*\t)"), r"\1<duration>"),
    (re.compile(r" {2,}"), " "),
)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    kafka = require_kafka()
    settings = SETTINGS | {"transaction.partition.verification.enable": "false"}
    with KafkaBroker(kafka, settings) as theirs, Broker(data=tmp_path / "data", settings=settings) as ours:
        host, port = theirs.bootstrap.rsplit(":", 1)
        both = Both(Messages(kafka), (host, int(port)), (ours.host, ours.port), {TOPIC: 3})
        both.wake_transactions()
        yield Pair(kafka, both, {"Kafka": theirs.bootstrap, "muster": ours.bootstrap_servers})


def leave_transactions(side: Side) -> None:
    """One that hangs, one that is open, one that has ended, and an id that was never used."""
    names: dict[int, str] = {}
    hanging, going, done, empty = (
        Teller(side, side.connect(), f"jt-{name}", 0, 0, names=names) for name in ("hanging", "open", "done", "empty")
    )
    for one in (hanging, going, done, empty):
        one.init(HOUR_MS // 4)
    hanging.produce("a", partition=HANGING, written_ms=NOW_MS - HOUR_MS)
    going.add(OPEN)
    going.produce("a", partition=OPEN, written_ms=NOW_MS - HOUR_MS)
    done.add(DONE)
    done.produce("a", partition=DONE)
    done.end()
    done.ended()


def said(kafka: Kafka, bootstrap: str) -> list[list[str]]:
    """What the tool printed, command by command; lines come from hash maps."""
    lines = COMMANDS.splitlines()
    with start(kafka, "Tools", bootstrap) as process:
        try:
            given = "".join(f"{TOOL} {line}\n" for line in lines)
            out, errors = process.communicate(given, timeout=TIMEOUT_S)
        finally:
            process.kill()
    assert "== done" in out, (bootstrap, out[-3000:], errors[-3000:])
    told = out.split("== org.apache.kafka.tools")[1:]
    assert len(told) == len(lines)
    return [sorted(plain(line, bootstrap) for line in each.splitlines()[1:]) for each in told]


def plain(line: str, bootstrap: str) -> str:
    line = line.replace(bootstrap, "<broker>")
    for pattern, word in _NORMALS:
        line = pattern.sub(word, line)
    return line


def test_kafka_transactions(pair: Pair) -> None:
    pair.both.same(leave_transactions)
    compiled(pair.kafka, "Tools")
    with ThreadPoolExecutor(2) as threads:
        theirs, ours = threads.map(lambda bootstrap: said(pair.kafka, bootstrap), pair.bootstraps.values())
    lines = COMMANDS.splitlines()
    for number, (line, kafka, muster) in enumerate(zip(lines, theirs, ours, strict=True)):
        assert muster == kafka, f"{number}: {line}"
    hanging = lines.index("find-hanging --broker-id 1")
    assert len([line for line in theirs[hanging] if line.startswith(TOPIC)]) == 1, theirs[hanging]
