"""Stories of the newer flow: partitions are added by what is written to them, and every end bumps the epoch."""

from tests.server.wire_diff.transactions.telling import Teller, story

NEW_PRODUCE = (12, 13)
END = 5


@story(NEW_PRODUCE)
def commit_of_new(tx: Teller) -> None:
    tx.init(v=5)
    tx.produce("a", "b", v=tx.version)
    tx.produce("c", v=tx.version)
    tx.describe()
    tx.producers()
    tx.end(v=END)
    tx.ended()
    tx.describe()
    tx.fetch()
    tx.producers()


@story(NEW_PRODUCE)
def abort_of_new(tx: Teller) -> None:
    tx.init(v=5)
    tx.produce("a", "b", v=tx.version)
    tx.end(is_commit=False, v=END)
    tx.ended(is_commit=False)
    tx.describe()
    tx.fetch()
    tx.fetch(isolation=0)
    tx.producers()


@story(NEW_PRODUCE)
def one_new_transaction_after_the_other(tx: Teller) -> None:
    tx.init(v=5)
    for number, is_commit in enumerate((True, False, False, True)):
        tx.produce(f"{number}", v=tx.version)
        tx.produce(f"{number}", v=tx.version, partition=tx.here + 1, sequence=0)
        tx.end(is_commit, v=END)
        tx.ended(is_commit)
        tx.describe()
    tx.fetch()
    tx.fetch(partition=tx.here + 1)


@story(NEW_PRODUCE)
def an_old_batch_after_a_new_end(tx: Teller) -> None:
    """What was under way when the transaction ended comes too late: the epoch is another one."""
    tx.init(v=5)
    first = tx.producer
    tx.produce("a", v=tx.version)
    tx.end(v=END)
    tx.ended()
    tx.produce("late", v=tx.version, producer=first, sequence=1)
    tx.produce("late", v=11, producer=first, sequence=1)
    tx.describe()
    tx.produce("of the next", v=tx.version)
    tx.produce("late", v=tx.version, producer=first, sequence=1)
    tx.end(v=END)
    tx.ended()
    tx.fetch(isolation=0)


@story()
def a_new_end_repeated(tx: Teller) -> None:
    """With the epoch of the transaction that ended: the answer was lost on its way."""
    for is_commit in (True, False):
        tx.init(v=5)
        before = tx.producer
        tx.produce("a", v=12)
        tx.end(is_commit, v=END)
        tx.ended(is_commit)
        again = tx.other(producer=before)
        again.end(is_commit, v=END)
        again.producer = before
        again.end(not is_commit, v=END)
        again.producer = before
        for version in range(5):
            again.end(is_commit, v=version)
        tx.describe()


@story()
def a_new_end_repeated_while_markers_are_awaited(tx: Teller) -> None:
    for number, is_commit in enumerate((True, False)):
        one = tx.other(f"-{number}")
        one.init(v=5)
        before = one.producer
        one.stalled(is_commit, v=END)
        one.describe()
        for producer in (before, one.producer, one.at_epoch(1), one.at_epoch(-2)):
            for again in (is_commit, not is_commit):
                one.other(producer=producer).end(again, v=END)
        one.other().produce("b", v=12, partition=tx.here)
        one.other().add(tx.here, v=4)
        one.other().add_offsets(v=4)
        one.other().commit_offsets({tx.here: 1}, v=5)
        one.other().init(v=5)
        one.describe()


@story()
def a_new_end_of_nothing(tx: Teller) -> None:
    tx.init(v=5)
    tx.end(v=END)
    tx.describe()
    tx.end(is_commit=False, v=END)
    tx.until("Empty", "CompleteAbort")
    tx.describe()
    tx.produce("a", v=12)
    tx.end(v=END)
    tx.ended()
    tx.end(v=END)
    tx.describe()
    tx.end(is_commit=False, v=END)
    tx.until("CompleteAbort")
    tx.describe()
    tx.end(is_commit=False, v=END)
    tx.until("CompleteAbort")
    tx.describe()
    tx.fetch(isolation=0)


@story(range(5))
def a_new_beginning_and_an_old_end(tx: Teller) -> None:
    tx.init()
    for is_commit in (True, False):
        tx.produce("a", v=12)
        tx.end(is_commit, v=tx.version)
        tx.ended(is_commit)
        tx.describe()
    tx.fetch()


@story()
def old_ends_after_new_ones(tx: Teller) -> None:
    tx.init(v=5)
    tx.produce("a", v=12)
    tx.end(v=END)
    tx.ended()
    tx.end(v=4)
    tx.end(is_commit=False, v=4)
    tx.add(tx.here)
    tx.end(v=4)
    tx.ended()
    tx.describe()
    tx.end(v=END)
    tx.end(is_commit=False, v=END)
    tx.until("CompleteCommit", "CompleteAbort")
    tx.describe()


@story(NEW_PRODUCE)
def new_batches_with_gaps(tx: Teller) -> None:
    """A partition is added even if the batch is then refused."""
    tx.init(v=5)
    tx.produce("a", v=tx.version, sequence=5)
    tx.describe()
    tx.producers()
    tx.produce("a", v=tx.version, sequence=0)
    tx.produce("a", v=tx.version, sequence=2)
    tx.end(v=END)
    tx.ended()
    tx.fetch(isolation=0)


@story(NEW_PRODUCE)
def new_batches_for_topics_that_are_not_there(tx: Teller) -> None:
    tx.init(v=5)
    tx.produce("a", v=tx.version, topic="nowhere", partition=0)
    tx.produce("a", v=tx.version, partition=100_000)
    tx.describe()


@story(NEW_PRODUCE)
def fenced_in_the_newer_flow(tx: Teller) -> None:
    tx.init(v=5)
    tx.produce("a", v=tx.version)
    second = tx.other()
    second.init(v=5)
    tx.ended(is_commit=False)
    tx.produce("b", v=tx.version)
    tx.end(v=END)
    tx.end(is_commit=False, v=END)
    tx.describe()
    second.init(v=5)
    second.sequence = 0
    second.produce("c", v=tx.version)
    tx.produce("b", v=tx.version)
    tx.end(v=END)
    second.end(v=END)
    tx.ended()
    tx.fetch()


@story()
def a_client_that_goes_on_after_it_was_fenced(tx: Teller) -> None:
    tx.init(v=5)
    second = tx.other()
    second.init(v=5)
    for version in (3, 4, 5):
        tx.other().init(producer=tx.producer, v=version)
    tx.describe()
    second.init(producer=second.producer, v=5)
    tx.describe()
