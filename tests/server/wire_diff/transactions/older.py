"""Stories of the older flow: AddPartitionsToTxn, Produce, EndTxn; in every version and state, with every error."""

from tests.server.wire_diff.transactions.telling import (
    ADD,
    END,
    OLD_END,
    TOPIC,
    Producer,
    Teller,
    story,
)

OLD_ADD, PRODUCE = range(4), range(3, 14)
STRANGER = Producer(4_711, 0)


@story(OLD_END)
def commit_of_old(tx: Teller) -> None:
    tx.init(v=min(tx.version, 4))
    tx.add(tx.here, tx.here + 1, v=min(tx.version, 3))
    tx.produce("a", "b")
    tx.produce("c")
    tx.describe()
    tx.fetch()
    tx.end(v=tx.version)
    tx.ended()
    tx.describe()
    tx.fetch()
    tx.fetch(isolation=0)
    tx.fetch(partition=tx.here + 1)
    tx.producers()


@story(OLD_END)
def abort_of_old(tx: Teller) -> None:
    tx.init(v=min(tx.version, 4))
    tx.add(tx.here, v=min(tx.version, 3))
    tx.produce("a", "b")
    tx.end(is_commit=False, v=tx.version)
    tx.ended(is_commit=False)
    tx.describe()
    tx.fetch()
    tx.fetch(isolation=0)
    tx.producers()


@story(OLD_END)
def one_transaction_after_the_other(tx: Teller) -> None:
    tx.init()
    for number, is_commit in enumerate((True, False, True)):
        tx.add(tx.here)
        tx.produce(f"{number}")
        tx.end(is_commit, v=tx.version)
        tx.ended(is_commit)
    tx.fetch()
    tx.describe()


@story(ADD)
def adding_to_an_id_that_is_not_there(tx: Teller) -> None:
    tx.add(tx.here, v=tx.version, producer=STRANGER)
    tx.add(tx.here, v=tx.version, producer=STRANGER, id="")
    tx.describe()


@story(ADD)
def adding_for_another_producer(tx: Teller) -> None:
    tx.init()
    tx.add(tx.here, v=tx.version, producer=tx.of_id(1))
    tx.add(tx.here, v=tx.version, producer=Producer(-1, 0))
    tx.describe()


@story(ADD)
def adding_with_another_epoch(tx: Teller) -> None:
    tx.init()
    tx.init()
    for difference in (-2, -1, 1):
        tx.add(tx.here, v=tx.version, producer=tx.at_epoch(difference))
    tx.add(tx.here, v=tx.version)
    for difference in (-2, -1, 1):
        tx.add(tx.here, v=tx.version, producer=tx.at_epoch(difference))
    tx.describe()


@story(ADD)
def adding_what_is_not_there(tx: Teller) -> None:
    tx.init()
    tx.add(0, v=tx.version, topic="nowhere")
    tx.add(tx.here, 100_000, -1, v=tx.version)
    both = [{"Name": TOPIC, "Partitions": [tx.here]}, {"Name": "nowhere", "Partitions": [0, 1]}]
    tx.add_topics(both, tx.version)
    tx.add_topics([{"Name": "", "Partitions": [0]}], tx.version)
    tx.describe()


@story(ADD)
def adding_nothing(tx: Teller) -> None:
    tx.init()
    tx.add_topics([], tx.version)
    tx.add(v=tx.version)
    tx.describe()
    tx.add(tx.here, v=tx.version)
    tx.add_topics([], tx.version)
    tx.describe()


@story(ADD)
def adding_twice(tx: Teller) -> None:
    tx.init()
    tx.add(tx.here, v=tx.version)
    tx.add(tx.here, v=tx.version)
    tx.add(tx.here, tx.here + 1, v=tx.version)
    tx.describe()
    tx.add(tx.here, tx.here, v=tx.version)
    twice = [{"Name": TOPIC, "Partitions": [tx.here]}, {"Name": TOPIC, "Partitions": [tx.here + 1]}]
    tx.add_topics(twice, tx.version)


@story(OLD_ADD)
def adding_partitions_of_the_brokers_own_topics(tx: Teller) -> None:
    tx.init()
    tx.add(0, v=tx.version, topic="__consumer_offsets")
    tx.add(1, v=tx.version, topic="__transaction_state")
    tx.describe()
    tx.end()


@story(ADD)
def adding_while_markers_are_awaited(tx: Teller) -> None:
    tx.init()
    tx.stalled()
    tx.add(tx.here, v=tx.version)
    tx.add(tx.here + 1, v=tx.version)
    tx.add(tx.here, v=tx.version, producer=tx.at_epoch(-1))
    tx.add(tx.here, v=tx.version, producer=tx.at_epoch(1))
    tx.add(tx.here, v=tx.version, producer=tx.of_id(1))
    if tx.version > 3:
        tx.add(tx.here + 1, v=tx.version, verify_only=True)
        tx.add(tx.here, v=tx.version, verify_only=True)


@story(ADD)
def adding_after_an_end(tx: Teller) -> None:
    tx.init()
    for is_commit in (True, False):
        tx.add(tx.here, v=tx.version)
        tx.end(is_commit)
        tx.ended(is_commit)
        tx.add(tx.here, v=tx.version, producer=tx.at_epoch(1))
        tx.add(tx.here, v=tx.version)
        tx.describe()
        tx.end()
        tx.ended()


@story((4, 5))
def several_transactions_in_one_request(tx: Teller) -> None:
    tx.init()
    second, third = tx.other("-b"), tx.other("-c")
    second.init()
    topics = [{"Name": TOPIC, "Partitions": [tx.here]}]

    def entry(one: Teller, **more: object) -> dict[str, object]:
        return {"TransactionalId": one.id, "ProducerId": one.producer.id, "ProducerEpoch": one.producer.epoch,
                "VerifyOnly": False, "Topics": topics, **more}  # fmt: skip

    for verify_only in (True, False, True):
        entries = [entry(one, VerifyOnly=verify_only) for one in (tx, second, third)]
        tx.ask("AddPartitionsToTxn", tx.version, {"Transactions": entries})
    nowhere = entry(tx, Topics=[{"Name": "nowhere", "Partitions": [0]}])
    tx.ask("AddPartitionsToTxn", tx.version, {"Transactions": [nowhere, entry(second)]})
    tx.describe(tx.id, second.id, third.id)


@story((4, 5))
def verifying(tx: Teller) -> None:
    tx.add(tx.here, v=tx.version, verify_only=True, producer=STRANGER)
    tx.init()
    tx.add(tx.here, v=tx.version, verify_only=True)
    tx.describe()
    tx.add(tx.here, v=tx.version)
    tx.add(tx.here, v=tx.version, verify_only=True)
    tx.add(tx.here, tx.here + 1, v=tx.version, verify_only=True)
    tx.add(tx.here, v=tx.version, verify_only=True, producer=tx.at_epoch(1))
    tx.add(tx.here, v=tx.version, verify_only=True, producer=tx.at_epoch(-1))
    tx.add(tx.here, v=tx.version, verify_only=True, producer=tx.of_id(1))
    tx.add(0, v=tx.version, verify_only=True, topic="nowhere")
    tx.end()
    tx.ended()
    tx.add(tx.here, v=tx.version, verify_only=True)


# Produce


@story(PRODUCE)
def producing_without_a_transaction(tx: Teller) -> None:
    """In the older versions the partition must have been added; in the newer ones it is added."""
    tx.init()
    tx.produce("a", v=tx.version)
    tx.describe()
    tx.produce("b", v=tx.version, partition=tx.here + 1, acks=1)
    tx.describe()
    tx.fetch()


@story(PRODUCE)
def producing_to_a_partition_that_was_not_added(tx: Teller) -> None:
    tx.init()
    tx.add(tx.here)
    tx.produce("a", v=tx.version)
    tx.produce("b", v=tx.version, partition=tx.here + 1, sequence=0)
    tx.describe()
    tx.end()
    tx.ended()


@story(PRODUCE)
def producing_after_the_end(tx: Teller) -> None:
    tx.init()
    for is_commit in (True, False):
        tx.add(tx.here)
        tx.produce("in it", v=tx.version)
        tx.end(is_commit)
        tx.ended(is_commit)
        tx.produce("after it", v=tx.version)
        tx.end()
        tx.until("CompleteCommit", "CompleteAbort")
    tx.fetch(isolation=0)


@story(PRODUCE)
def producing_with_another_epoch(tx: Teller) -> None:
    tx.init()
    tx.init()
    tx.produce("old", v=tx.version, producer=tx.at_epoch(-1))
    tx.produce("new", v=tx.version, producer=tx.at_epoch(1))
    tx.add(tx.here)
    tx.produce("old", v=tx.version, producer=tx.at_epoch(-1))
    tx.produce("new", v=tx.version, producer=tx.at_epoch(1))
    tx.produce("right", v=tx.version)
    tx.produce("old", v=tx.version, producer=tx.at_epoch(-1))
    tx.produce("new", v=tx.version, producer=tx.at_epoch(1), sequence=0)
    tx.end()
    tx.until("CompleteCommit")
    tx.produce("old", v=tx.version, producer=tx.at_epoch(-1))
    tx.fetch(isolation=0)


@story(PRODUCE)
def producing_for_an_id_that_is_not_there(tx: Teller) -> None:
    tx.produce("a", v=tx.version, producer=STRANGER)
    tx.init()
    tx.produce("a", v=tx.version, producer=tx.of_id(1_000_000))
    tx.describe()


@story(PRODUCE)
def producing_with_half_of_a_transaction(tx: Teller) -> None:
    """An id without the mark in the batch, the mark without an id, another's id."""
    tx.init()
    tx.add(tx.here)
    tx.produce("a", v=tx.version, id=None)
    tx.produce("a", v=tx.version, is_transactional=False)
    tx.produce("a", v=tx.version, id=None, is_transactional=False)
    tx.produce("a", v=tx.version, id=f"{tx.id}-other")
    tx.produce("a", v=tx.version, sequence=7)
    tx.describe()
    tx.end()
    tx.ended()
    tx.fetch(isolation=0)


@story(PRODUCE)
def producing_while_markers_are_awaited(tx: Teller) -> None:
    tx.init()
    tx.stalled()
    tx.produce("b", v=tx.version)
    tx.produce("b", v=tx.version, partition=tx.here + 1)
    tx.describe()


@story(PRODUCE)
def producing_the_same_batch_twice(tx: Teller) -> None:
    tx.init()
    tx.add(tx.here)
    tx.produce("a", v=tx.version)
    tx.produce("a", v=tx.version, sequence=0)
    tx.produce("a", v=tx.version, sequence=2)
    tx.end()
    tx.ended()
    tx.produce("a", v=tx.version, sequence=0)
    tx.fetch()


# EndTxn


@story(END)
def ending_an_id_that_is_not_there(tx: Teller) -> None:
    tx.end(v=tx.version, producer=STRANGER)
    tx.end(v=tx.version, producer=STRANGER, id="")
    tx.end(is_commit=False, v=tx.version, producer=Producer(-1, -1))


@story(END)
def ending_for_another_producer(tx: Teller) -> None:
    tx.init()
    tx.add(tx.here)
    tx.end(v=tx.version, producer=tx.of_id(1))
    tx.end(is_commit=False, v=tx.version, producer=tx.of_id(1))
    tx.describe()


@story(END)
def ending_with_another_epoch(tx: Teller) -> None:
    tx.init()
    tx.init()
    tx.add(tx.here)
    for difference in (-2, -1, 1, 2):
        tx.end(v=tx.version, producer=tx.at_epoch(difference))
        tx.end(is_commit=False, v=tx.version, producer=tx.at_epoch(difference))
    tx.describe()


@story(END)
def ending_what_was_not_begun(tx: Teller) -> None:
    tx.init()
    tx.end(v=tx.version)
    tx.describe()
    tx.end(is_commit=False, v=tx.version)
    tx.until("Empty", "CompleteAbort")
    tx.describe()
    tx.end(is_commit=False, v=tx.version)
    tx.until("Empty", "CompleteAbort")
    tx.describe()
    tx.end(v=tx.version)


@story(OLD_END)
def ending_twice(tx: Teller) -> None:
    for first in (True, False):
        for second in (True, False):
            tx.init()
            tx.add(tx.here)
            tx.end(first, v=tx.version)
            tx.ended(first)
            tx.end(second, v=tx.version)
            tx.describe()
            tx.end(second, v=tx.version, producer=tx.at_epoch(-1))
            tx.end(second, v=tx.version, producer=tx.at_epoch(1))


@story(OLD_END)
def ending_while_markers_are_awaited(tx: Teller) -> None:
    for first in (True, False):
        one = tx.other(f"-{first}")
        one.init()
        one.stalled(first, v=tx.version)
        one.end(first, v=tx.version)
        one.end(not first, v=tx.version)
        one.end(first, v=tx.version, producer=one.at_epoch(1))
        one.end(first, v=tx.version, producer=one.at_epoch(-1))
        one.describe()


@story(END)
def ending_in_another_version(tx: Teller) -> None:
    """Added by the older flow, ended by any."""
    tx.init()
    for is_commit in (True, False):
        tx.add(tx.here)
        tx.produce("a")
        tx.end(is_commit, v=tx.version)
        tx.ended(is_commit)
        tx.describe()
    tx.fetch()


@story(END)
def a_topic_deleted_in_a_transaction(tx: Teller) -> None:
    name = f"{tx.id}-gone"
    made = {"Topics": [{"Name": name, "NumPartitions": 1, "ReplicationFactor": 1}], "timeoutMs": 20_000}
    tx.unheard("CreateTopics", 5, made)
    tx.init()
    tx.unheard_until_led(name)
    tx.add(0, topic=name)
    tx.add(tx.here)
    tx.produce("a", topic=name, partition=0)
    tx.unheard("DeleteTopics", 4, {"TopicNames": [name], "TimeoutMs": 20_000})
    tx.unheard_until_gone(name)
    tx.describe()
    tx.produce("b", topic=name, partition=0)
    tx.end(v=tx.version)
    tx.ended()
    tx.describe()
