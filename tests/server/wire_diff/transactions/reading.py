"""Stories about what readers see: the last stable offset, aborted transactions, ends and times by isolation."""

from tests.server.wire_diff.transactions.telling import NOW_MS, Teller, story

FETCH, LIST_OFFSETS = range(4, 19), range(2, 12)
EARLIEST, LATEST, MAX_TIMESTAMP = -2, -1, -3


def transaction(tx: Teller, *values: str, is_commit: bool = True) -> None:
    tx.add(tx.here)
    tx.produce(*values)
    tx.end(is_commit)
    tx.ended(is_commit)


@story(FETCH)
def read_committed_in_every_version(tx: Teller) -> None:
    tx.init()
    transaction(tx, "aborted", is_commit=False)
    transaction(tx, "committed")
    tx.add(tx.here)
    tx.produce("open")
    for isolation in (0, 1, 2):
        tx.fetch(isolation, v=tx.version)
    tx.end()
    tx.ended()
    tx.fetch(v=tx.version)


@story(LIST_OFFSETS)
def ends_by_isolation(tx: Teller) -> None:
    tx.init()
    tx.add(tx.here)
    tx.produce("open", "still")
    for isolation in (0, 1):
        for timestamp in (EARLIEST, LATEST, MAX_TIMESTAMP, NOW_MS, NOW_MS + 1, 0):
            tx.list_offsets(isolation, timestamp, v=tx.version)
    tx.end(is_commit=False)
    tx.ended(is_commit=False)
    for isolation in (0, 1):
        for timestamp in (EARLIEST, LATEST, NOW_MS, 0):
            tx.list_offsets(isolation, timestamp, v=tx.version)


@story()
def plain_records_behind_an_open_transaction(tx: Teller) -> None:
    tx.init()
    tx.add(tx.here)
    tx.produce("open")
    plain = tx.other("-plain")
    plain.init(TransactionalId=None)
    plain.produce("plain", id=None, is_transactional=False)
    tx.fetch()
    tx.fetch(offset=1)
    tx.fetch(offset=2)
    tx.fetch(offset=3)
    tx.fetch(isolation=0)
    tx.list_offsets()
    tx.end()
    tx.ended()
    tx.fetch()
    tx.list_offsets()


@story()
def transactions_that_overlap(tx: Teller) -> None:
    """The last stable offset is where the oldest open one began, whichever ends first."""
    many = [tx.other(f"-{number}") for number in range(4)]
    for number, one in enumerate(many):
        one.init()
        one.add(tx.here)
        one.produce(f"{number}")
    for number in (2, 0, 3, 1):
        many[number].end(is_commit=number % 2 == 0)
        many[number].ended(is_commit=number % 2 == 0)
        tx.fetch()
        tx.list_offsets()
    for offset in range(9):
        tx.fetch(offset=offset)


@story()
def a_list_of_aborted_transactions(tx: Teller) -> None:
    """Those that matter for the offsets that are read; a consumer begins anywhere."""
    second = tx.other("-b")
    tx.init()
    second.init()
    for _ in range(3):
        transaction(tx, "a", "b", is_commit=False)
        transaction(second, "c", is_commit=False)
        transaction(tx, "d")
    for offset in range(20):
        tx.fetch(offset=offset)


@story()
def added_and_never_written_to(tx: Teller) -> None:
    tx.init()
    for is_commit in (True, False):
        tx.add(tx.here)
        tx.producers()
        tx.end(is_commit)
        tx.ended(is_commit)
        tx.fetch()
        tx.fetch(isolation=0)
        tx.producers()


@story()
def one_producer_in_and_out_of_transactions(tx: Teller) -> None:
    """The same id writes plain batches too."""
    tx.init()
    tx.produce("plain", id=None, is_transactional=False)
    transaction(tx, "in it")
    tx.produce("plain", id=None, is_transactional=False)
    tx.fetch()
    tx.add(tx.here)
    tx.produce("in it")
    tx.produce("plain", id=None, is_transactional=False)
    tx.end(is_commit=False)
    tx.ended(is_commit=False)
    tx.fetch()
    tx.fetch(isolation=0)


@story()
def records_deleted_before_an_open_transaction(tx: Teller) -> None:
    tx.init()
    transaction(tx, "a", "b", is_commit=False)
    tx.add(tx.here)
    tx.produce("open")
    for offset in (1, 3, -1):
        partitions = [{"PartitionIndex": tx.here, "Offset": offset}]
        topics = [{"Name": "transactions", "Partitions": partitions}]
        tx.ask("DeleteRecords", 2, {"Topics": topics, "TimeoutMs": 10_000})
        tx.fetch()
        tx.fetch(offset=3)
        tx.list_offsets(timestamp=EARLIEST)
    tx.producers()
    tx.end()
    tx.ended()
    tx.fetch(offset=4)


@story()
def a_session_sees_an_end(tx: Teller) -> None:
    """A read-committed session gets the partition again when the last stable offset moves."""
    tx.init()
    tx.add(tx.here)
    tx.produce("a")

    def asked(session: int, epoch: int, *offsets: int) -> dict[str, object]:
        partitions = [
            {"Partition": tx.here, "CurrentLeaderEpoch": -1, "FetchOffset": offset, "LastFetchedEpoch": -1,
             "LogStartOffset": -1, "PartitionMaxBytes": 1 << 20}
            for offset in offsets
        ]  # fmt: skip
        topics = [{"Topic": "transactions", "Partitions": partitions}] if offsets else []
        return {"ReplicaId": -1, "MaxWaitMs": 0, "MinBytes": 1, "MaxBytes": 1 << 24, "IsolationLevel": 1,
                "SessionId": session, "SessionEpoch": epoch, "Topics": topics, "ForgottenTopicsData": [],
                "RackId": ""}  # fmt: skip

    session = tx.ask("Fetch", 12, asked(0, 0, 0))["SessionId"]
    tx.ask("Fetch", 12, asked(session, 1))
    tx.produce("b")
    tx.ask("Fetch", 12, asked(session, 2))
    tx.end()
    tx.ended()
    tx.ask("Fetch", 12, asked(session, 3))
    tx.ask("Fetch", 12, asked(session, 4, 3))
    tx.ask("Fetch", 12, asked(session, 5))
