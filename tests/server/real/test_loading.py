"""What clients hear while a coordinator loads: a broker that takes long for it, and muster, whose load is held.

docs/protocol.md has the table; `tests/server/transactions/test_loading.py` has muster's part of it.

A broker reads its logs in pieces as small as it is told (`*.load.buffer.size`), and looks up where the next one is.
Batches that are put behind a log while nobody has it open are in no index, so each is looked for from the log's first
byte on: some thousand of them keep a broker loading for as long as all the questions take.
"""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from muster.broker import Broker
from muster.codec.batches import read_header
from tests.kit.kafka import KafkaBroker, require_kafka
from tests.server.cluster.kafka_messages import Messages
from tests.server.transactions.inside import loading
from tests.server.wire_diff import bodies
from tests.server.wire_diff.conftest import SETTINGS
from tests.server.wire_diff.talk import Both, Side
from tests.server.wire_diff.transactions.telling import COMMIT, END, INIT, NOBODY, TOPIC, Producer, Teller, wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.matrix]

GROUPS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
SLOW = SETTINGS | {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "offsets.load.buffer.size": "1",
    "transaction.state.log.load.buffer.size": "1",
}
BATCHES = 5_000
LOADING = 14
GROUP = "members"
WITH_OFFSETS, WITHOUT = "with-offsets", "without"
PARTITIONS_OF_EACH = 10


def begin(tx: Teller) -> None:
    """An open transaction with records, perhaps with offsets. The first batch of each log may be there many times."""
    tx.other("-before").init()
    tx.link.ask("OffsetCommit", 9, bodies.commit("before", {(TOPIC, 0): 1}))
    tx.init(v=5)
    tx.produce("begun", v=12)
    if tx.name == WITH_OFFSETS:
        tx.commit_offsets({0: 7}, v=5)


def lengthen(log: Path) -> None:
    """Put a log's first batch behind its last one, many times."""
    data = log.read_bytes()
    first = data[: read_header(data, 0).size_bytes]
    position, last = 0, read_header(data, 0)
    while position < len(data):
        last = read_header(data, position)
        position += last.size_bytes
    with log.open("ab") as file:
        for offset in range(last.last_offset + 1, last.last_offset + 1 + BATCHES):
            file.write(offset.to_bytes(8, "big") + first[8:])


def about_transactions(tx: Teller) -> None:
    """Every question about transactions, in every version; those that change the most come last."""
    for version in tx.side.judge.served("FindCoordinator"):
        tx.find(version)
    for version in tx.side.judge.served("ListTransactions"):
        tx.listed(version)
    tx.describe()
    for version in range(4):
        tx.add(tx.here + 1, v=version)
    for version in (4, 5):
        tx.add(tx.here, v=version, verify_only=True)
        tx.add(tx.here + 1, v=version)
    for version in range(5):
        tx.add_offsets(version)
    for version in COMMIT:
        tx.commit_offsets({0: 8}, version)
    tx.produce("it goes on", v=12)
    for partition, version in enumerate(range(9, 14), tx.here + 2):
        tx.produce("it begins", v=version, partition=partition, sequence=0)
    for version in END:
        tx.end(is_commit=True, v=version)
    for version in INIT:
        tx.init(v=version)


def about_groups(tx: Teller) -> None:
    """Every question about groups, in every version."""
    asked = {
        "FindCoordinator": bodies.find(GROUP),
        "JoinGroup": bodies.join(GROUP),
        "SyncGroup": bodies.sync(GROUP, 1, "member", {}),
        "Heartbeat": bodies.heartbeat(GROUP, 1, "member"),
        "LeaveGroup": bodies.leave(GROUP, "member"),
        "OffsetCommit": bodies.commit(GROUP, {(TOPIC, 0): 1}, tx.side.topic_ids),
        "OffsetFetch": bodies.fetch({GROUP: {TOPIC: [0]}}, tx.side.topic_ids),
        "DescribeGroups": bodies.describe(GROUP),
        "ListGroups": bodies.list_groups(),
        "DeleteGroups": {"GroupsNames": [GROUP]},
        "OffsetDelete": bodies.offset_delete(GROUP, {TOPIC: [0]}),
    }
    for api, message in asked.items():
        for version in tx.side.judge.served(api):
            tx.link.ask(api, version, message)


def errors(tx: Teller) -> dict[str, int]:
    """What the two coordinators say of themselves."""
    told = tx.unheard("DescribeTransactions", 0, {"TransactionalIds": [tx.id]})
    groups = [{"GroupId": GROUP, "Topics": None, "MemberId": None, "MemberEpoch": -1}]
    offsets = tx.unheard("OffsetFetch", 9, {"Groups": groups, "RequireStable": False})
    return {TRANSACTIONS: told["TransactionStates"][0]["ErrorCode"], GROUPS: offsets["Groups"][0]["ErrorCode"]}


class Tellers:
    """Two producers on each side, who remember what they are between two stories."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[Producer, int]] = {}

    def telling(self, tell: Callable[[Teller], None]) -> Callable[[Side], None]:
        def play(side: Side) -> None:
            for here, name in enumerate((WITH_OFFSETS, WITHOUT)):
                producer, sequence = self._known.get((side.name, name), (NOBODY, 0))
                where = PARTITIONS_OF_EACH * here
                tx = Teller(side, side.connect(), name, 0, where, producer, sequence, names={})
                tell(tx)
                self._known[side.name, name] = tx.producer, tx.sequence

        return play


@pytest.mark.parametrize("topics", [(TRANSACTIONS,), (GROUPS,), (TRANSACTIONS, GROUPS)], ids=" and ".join)
def test_what_clients_hear_while_it_loads(tmp_path: Path, topics: tuple[str, ...]) -> None:
    kafka = require_kafka()
    expected = {topic: LOADING if topic in topics else 0 for topic in (TRANSACTIONS, GROUPS)}

    def questions(tx: Teller) -> None:
        wait_for(lambda: errors(tx) == expected, lambda: f"{tx.side.name}: {errors(tx)}, not {expected}")
        about_transactions(tx)
        if GROUPS in topics:
            about_groups(tx)
        assert errors(tx) == expected, f"{tx.side.name} was not asked in time"

    with (
        KafkaBroker(kafka, SLOW, data_dir=tmp_path / "kafka") as theirs,
        Broker(data=tmp_path / "muster", settings=SLOW) as ours,
        ExitStack() as held,
    ):
        host, port = theirs.bootstrap.rsplit(":", 1)
        both = Both(Messages(kafka), (host, int(port)), (ours.host, ours.port), {TOPIC: 2 * PARTITIONS_OF_EACH})
        both.wake_transactions()
        tellers = Tellers()
        both.same(tellers.telling(begin))
        theirs.stop()
        for topic in topics:
            lengthen(theirs.log_dir / f"{topic}-0" / f"{0:020}.log")
            held.enter_context(loading(ours, topic))
        theirs.start()
        both.same(tellers.telling(questions))
