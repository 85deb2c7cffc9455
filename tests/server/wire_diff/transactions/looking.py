"""Stories about looking at transactions, and about markers from outside: what `kafka-transactions` is made of."""

from dataclasses import replace

from tests.server.wire_diff.transactions.telling import TOPIC, Producer, Teller, story

LIST, MARK = range(3), (1, 2)


@story(range(7))
def a_coordinator_is_found(tx: Teller) -> None:
    tx.find(tx.version)
    tx.find(tx.version, "")
    if tx.version > 3:
        tx.find(tx.version, "a", "b", "", "a")


@story()
def transactions_described(tx: Teller) -> None:
    tx.describe()
    tx.describe("")
    tx.ask("DescribeTransactions", 0, {"TransactionalIds": []})
    tx.init()
    tx.describe()
    tx.add(tx.here, tx.here + 1)
    tx.add_offsets()
    tx.describe()
    tx.describe(tx.id, "nobody", tx.id)
    tx.end()
    tx.ended()
    tx.describe()


@story(LIST)
def transactions_listed_by_state(tx: Teller) -> None:
    empty, going, done, gone = (tx.other(f"-{tx.version}-{name}") for name in ("empty", "open", "done", "gone"))
    for one in (empty, going, done, gone):
        one.name = f"{tx.id}-{one.name}"
        one.init()
    for one in (going, done, gone):
        one.add(tx.here)
    done.end()
    gone.end(is_commit=False)
    done.ended()
    gone.ended(is_commit=False)
    states = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead",
              "PrepareEpochFence", "Unknown", "ongoing", "ONGOING", "", "Stable")  # fmt: skip
    tx.listed(tx.version)
    for state in states:
        tx.listed(tx.version, StateFilters=[state])
    tx.listed(tx.version, StateFilters=["Empty", "Ongoing", "nonsense", "nonsense", "more"])


@story(LIST)
def transactions_listed_by_producer(tx: Teller) -> None:
    tx.init()
    tx.listed(tx.version, ProducerIdFilters=[tx.producer.id])
    tx.listed(tx.version, ProducerIdFilters=[tx.producer.id + 1_000_000, -1])
    tx.add(tx.here)
    tx.listed(tx.version, ProducerIdFilters=[tx.producer.id], StateFilters=["Ongoing"])
    tx.listed(tx.version, ProducerIdFilters=[tx.producer.id], StateFilters=["Empty"])


@story((1, 2))
def transactions_listed_by_duration(tx: Teller) -> None:
    tx.init()
    tx.listed(tx.version, DurationFilter=0)
    tx.add(tx.here)
    for duration in (-1, 0, -5, 3_600_000, 2**63 - 1):
        tx.listed(tx.version, DurationFilter=duration)
    tx.end()
    tx.ended()
    for duration in (-1, 0, 3_600_000):
        tx.listed(tx.version, DurationFilter=duration)


@story((2,))
def transactions_listed_by_pattern(tx: Teller) -> None:
    tx.init()
    patterns = (tx.id, f"{tx.id[:-3]}.*", tx.id[:-1], ".*", "", None, "[", "(?i)" + tx.id.upper(), "(", "*", "a{2,1}",
                "nobody", f"^{tx.id}$", f".*{tx.id[-6:]}", r"\Q" + tx.id + r"\E", "x*+", "(?<n>.*)")  # fmt: skip
    for pattern in patterns:
        tx.listed(tx.version, TransactionalIdPattern=pattern)
    tx.listed(tx.version, TransactionalIdPattern="[", StateFilters=["nonsense"])


@story()
def producers_described(tx: Teller) -> None:
    tx.producers()
    tx.init()
    tx.add(tx.here)
    tx.producers()
    tx.produce("a", "b")
    tx.producers()
    tx.end()
    tx.ended()
    tx.producers()
    tx.add(tx.here)
    tx.produce("c")
    tx.producers()
    tx.end(is_commit=False)
    tx.ended(is_commit=False)
    tx.producers()
    tx.producers(topic="nowhere")


# WriteTxnMarkers


@story(MARK)
def a_marker_from_outside(tx: Teller) -> None:
    """As `kafka-transactions abort` writes it: the partition forgets the transaction, the coordinator does not."""
    for is_commit in (True, False):
        tx.init()
        tx.add(tx.here)
        tx.produce("a")
        tx.mark(is_commit, v=tx.version)
        tx.fetch()
        tx.producers()
        tx.describe()
        tx.end(is_commit)
        tx.ended(is_commit)
        tx.fetch()


@story(MARK)
def a_marker_twice(tx: Teller) -> None:
    tx.init()
    tx.add(tx.here)
    tx.produce("a")
    tx.mark(False, v=tx.version)
    tx.mark(False, v=tx.version)
    tx.mark(True, v=tx.version)
    tx.fetch(isolation=0)


@story(MARK)
def a_marker_of_a_producer_that_is_not_there(tx: Teller) -> None:
    tx.mark(True, v=tx.version, producer=Producer(900_000 + tx.version, 3))
    tx.mark(False, v=tx.version, producer=Producer(900_000 + tx.version, 4))
    tx.mark(False, v=tx.version, producer=Producer(900_000 + tx.version, 2))
    tx.mark(False, v=tx.version, producer=Producer(-1, -1))
    tx.mark(False, v=tx.version, producer=Producer(900_100 + tx.version, -1))
    tx.fetch(isolation=0)


@story(MARK)
def a_marker_of_another_epoch(tx: Teller) -> None:
    tx.init()
    tx.init()
    tx.add(tx.here)
    tx.produce("a")
    tx.mark(False, v=tx.version, producer=tx.at_epoch(-1))
    tx.mark(False, v=tx.version, producer=tx.at_epoch(2))
    tx.mark(False, v=tx.version, producer=tx.at_epoch(1))
    tx.producers()
    tx.produce("b")
    tx.fetch(isolation=0)


@story(MARK)
def a_marker_of_another_coordinator(tx: Teller) -> None:
    tx.init()
    tx.add(tx.here)
    tx.produce("a")
    tx.mark(True, v=tx.version, CoordinatorEpoch=5)
    tx.mark(True, v=tx.version, CoordinatorEpoch=4)
    tx.mark(True, v=tx.version, CoordinatorEpoch=-1)
    tx.producers()
    tx.fetch(isolation=0)


@story((2,))
def a_marker_of_every_version_of_transactions(tx: Teller) -> None:
    for version in (0, 1, 2, 3, -1):
        tx.init()
        tx.add(tx.here)
        tx.produce("a")
        tx.mark(True, v=2, TransactionVersion=version)
        tx.mark(True, v=2, TransactionVersion=version, producer=tx.at_epoch(1))
        tx.producers()
        tx.name += "x"
    tx.fetch(isolation=0)


@story(MARK)
def markers_for_what_is_not_there(tx: Teller) -> None:
    tx.init()
    tx.mark(True, 0, 1, v=tx.version, topic="nowhere")
    tx.mark(True, tx.here, 100_000, v=tx.version)
    tx.ask("WriteTxnMarkers", tx.version, {"Markers": []})
    tx.fetch(isolation=0)


@story(MARK)
def a_marker_among_the_transactions(tx: Teller) -> None:
    """It is taken, and ends nothing."""
    tx.init()
    tx.add(tx.here)
    tx.mark(True, 0, 1, v=tx.version, topic="__transaction_state")
    tx.describe()
    tx.end()
    tx.ended()


@story(MARK)
def a_marker_for_pending_offsets(tx: Teller) -> None:
    tx.init()
    tx.add_offsets()
    where = next(
        topic["Partitions"][0]
        for topic in tx.describe()["TransactionStates"][0]["Topics"]
        if topic["Topic"] == "__consumer_offsets"
    )
    tx.commit_offsets({tx.here: 5})
    tx.mark(True, where, v=tx.version, topic="__consumer_offsets")
    tx.offsets(tx.here)
    tx.commit_offsets({tx.here: 6})
    tx.offsets(tx.here)
    tx.end(is_commit=False)
    tx.ended(is_commit=False)
    tx.offsets(tx.here)


@story(MARK)
def several_markers_in_one_request(tx: Teller) -> None:
    second = tx.other("-b")
    for one in (tx, second):
        one.init()
        one.add(tx.here, tx.here + 1)
        one.produce("a")
    markers = [
        {"ProducerId": one.producer.id, "ProducerEpoch": one.producer.epoch, "TransactionResult": one is tx,
         "Topics": [{"Name": TOPIC, "PartitionIndexes": [tx.here, tx.here + 1]},
                    {"Name": "nowhere", "PartitionIndexes": [0]}],
         "CoordinatorEpoch": 0}
        for one in (tx, second)
    ]  # fmt: skip
    tx.ask("WriteTxnMarkers", tx.version, {"Markers": markers})
    tx.fetch()
    tx.fetch(partition=tx.here + 1)


@story((3, 4))
def what_the_cluster_says_it_can(tx: Teller) -> None:
    asked = {"ClientSoftwareName": "a", "ClientSoftwareVersion": "1"}
    answer = tx.unheard("ApiVersions", tx.version, asked)
    features = {one["Name"]: one["MaxVersionLevel"] for one in answer.get("FinalizedFeatures", ())}
    keys = {one["ApiKey"]: (one["MinVersion"], one["MaxVersion"]) for one in answer["ApiKeys"]}
    wanted = (0, 1, 10, 22, 24, 25, 26, 27, 28, 61, 65, 66)
    tx.side.note("features", {"transaction.version": features.get("transaction.version")})
    tx.side.note("versions", {str(key): keys.get(key) for key in wanted})


@story()
def a_later_epoch_of_a_stranger_in_a_partition_that_was_added(tx: Teller) -> None:
    """The marker is refused there, and the end is not carried out."""
    for number, version in enumerate((4, 5)):
        one = replace(tx.other(f"-{number}"), here=tx.here + number)
        one.init(v=version)
        one.add(one.here, v=version - 1)
        one.produce("a stranger's", producer=one.at_epoch(5), sequence=0, id=None, is_transactional=False)
        one.end(v=version)
        one.until("PrepareCommit")
        one.init(v=version)
        one.describe()
        one.fetch()
