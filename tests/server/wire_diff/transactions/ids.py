"""Stories about InitProducerId: new ids, bumps, expected ids and epochs, timeouts, every state of a transaction."""

from tests.server.wire_diff.transactions.telling import INIT, MINUTE_MS, Producer, Teller, story

EXPECTING = range(3, 6)
"""Versions in which a client says what it has."""


@story(INIT)
def init_of_a_new_id(tx: Teller) -> None:
    tx.describe()
    for _ in range(3):
        tx.init(v=tx.version)
    tx.describe()


@story(INIT)
def init_of_an_id_without_letters(tx: Teller) -> None:
    tx.init(v=tx.version, TransactionalId="")


@story(INIT)
def init_of_nobody(tx: Teller) -> None:
    tx.init(v=tx.version, TransactionalId=None)
    tx.init(0, v=tx.version, TransactionalId=None)
    tx.init(v=tx.version, TransactionalId=None, producer=Producer(5, 3))


@story(INIT)
def init_with_a_timeout_out_of_range(tx: Teller) -> None:
    for timeout_ms in (0, -1, 900_001, 2**31 - 1, -(2**31)):
        tx.init(timeout_ms, v=tx.version)
    tx.describe()
    tx.init(900_000, v=tx.version)
    tx.init(1, v=tx.version)
    tx.describe()


@story(INIT)
def init_changes_the_timeout(tx: Teller) -> None:
    tx.init(5_000, v=tx.version)
    tx.describe()
    tx.init(7_000, v=tx.version)
    tx.describe()


@story(EXPECTING)
def init_of_a_client_that_goes_on(tx: Teller) -> None:
    tx.init(v=tx.version)
    tx.init(producer=tx.producer, v=tx.version)
    tx.init(producer=tx.producer, v=tx.version)
    tx.describe()


@story(EXPECTING)
def init_with_half_of_what_is_expected(tx: Teller) -> None:
    tx.init(producer=Producer(7, -1), v=tx.version)
    tx.init(producer=Producer(-1, 7), v=tx.version)
    tx.init(producer=Producer(-2, -2), v=tx.version)
    tx.init(producer=Producer(7, -2), v=tx.version)
    tx.init(v=tx.version)
    tx.init(producer=Producer(tx.producer.id, -1), v=tx.version)


@story(EXPECTING)
def init_of_a_stranger(tx: Teller) -> None:
    tx.init(producer=Producer(4_711, 3), v=tx.version)
    tx.describe()
    tx.init(v=tx.version)


@story(EXPECTING)
def init_expecting_another_id(tx: Teller) -> None:
    tx.init(v=tx.version)
    tx.init(producer=tx.of_id(1), v=tx.version)
    tx.init(producer=tx.of_id(1)._replace(epoch=9), v=tx.version)
    tx.describe()


@story(EXPECTING)
def init_repeated_with_the_epoch_before(tx: Teller) -> None:
    tx.init(v=tx.version)
    first = tx.producer
    tx.init(producer=first, v=tx.version)
    tx.init(producer=first, v=tx.version)
    tx.init(producer=first, v=tx.version)
    tx.describe()
    tx.init(v=tx.version)
    tx.init(producer=first, v=tx.version)
    tx.describe()


@story(EXPECTING)
def init_expecting_an_epoch_too_old_or_too_new(tx: Teller) -> None:
    for _ in range(3):
        tx.init(v=tx.version)
    for difference in (-2, -1, 1, 2, 1000):
        tx.init(producer=tx.at_epoch(difference), v=tx.version)
    tx.describe()


@story(INIT)
def init_while_a_transaction_is_open(tx: Teller) -> None:
    tx.init(v=tx.version)
    tx.add(tx.here)
    tx.produce("lost")
    tx.describe()
    tx.init(v=tx.version)
    tx.ended(is_commit=False)
    tx.describe()
    tx.init(v=tx.version)
    tx.describe()
    tx.fetch()
    tx.producers()


@story(EXPECTING)
def init_of_a_client_that_goes_on_while_a_transaction_is_open(tx: Teller) -> None:
    tx.init(v=tx.version)
    tx.add(tx.here)
    tx.init(producer=tx.producer, v=tx.version)
    tx.ended(is_commit=False)
    tx.describe()
    tx.init(producer=tx.producer, v=tx.version)
    tx.describe()


@story(EXPECTING)
def init_of_an_old_client_while_a_transaction_is_open(tx: Teller) -> None:
    tx.init(v=tx.version)
    first = tx.producer
    tx.init(v=tx.version)
    tx.add(tx.here)
    old = tx.other(producer=first)
    old.init(producer=first, v=tx.version)
    tx.ended(is_commit=False)
    tx.describe()
    tx.end()
    old.init(producer=first, v=tx.version)
    tx.describe()


@story(INIT)
def init_after_a_commit_and_after_an_abort(tx: Teller) -> None:
    for is_commit in (True, False):
        tx.init(v=tx.version)
        tx.add(tx.here)
        tx.end(is_commit)
        tx.ended(is_commit)
        tx.describe()
    tx.init(v=tx.version)
    tx.describe()


@story(INIT)
def init_after_a_commit_and_after_an_abort_of_the_newer_flow(tx: Teller) -> None:
    for is_commit in (True, False):
        tx.init(v=tx.version)
        tx.produce("a", v=12)
        tx.end(is_commit, v=5)
        tx.ended(is_commit)
        tx.describe()
    tx.init(v=tx.version)
    tx.describe()


@story(EXPECTING)
def init_of_a_client_that_goes_on_after_the_newer_end(tx: Teller) -> None:
    tx.init(v=tx.version)
    first = tx.producer
    tx.produce("a", v=12)
    tx.end(v=5)
    tx.ended()
    tx.init(producer=first, v=tx.version)
    tx.describe()
    tx.init(producer=tx.producer, v=tx.version)
    tx.describe()


@story(INIT)
def init_while_markers_are_awaited(tx: Teller) -> None:
    tx.init(v=tx.version)
    tx.stalled()
    tx.init(v=tx.version)
    tx.init(producer=tx.producer, v=tx.version)
    tx.init(producer=tx.at_epoch(-1), v=tx.version)
    tx.init(0, v=tx.version)
    tx.describe()


@story(INIT)
def init_while_markers_of_an_abort_are_awaited(tx: Teller) -> None:
    tx.init(v=tx.version)
    tx.stalled(is_commit=False, v=5)
    tx.init(v=tx.version)
    tx.init(producer=tx.producer, v=tx.version)
    tx.describe()


@story((4, 5))
def another_client_fences(tx: Teller) -> None:
    """The second takes the id; the first hears of it whatever it asks."""
    tx.init(v=tx.version)
    tx.add(tx.here)
    tx.produce("of the first")
    second = tx.other()
    second.init(v=tx.version)
    tx.ended(is_commit=False)
    second.init(v=tx.version)
    second.sequence = 0
    for version in range(4):
        tx.add(tx.here, v=version)
    for version in range(5):
        tx.add_offsets(v=version)
    for version in range(6):
        tx.end(v=version)
    for version in range(3, 14):
        tx.produce("too late", v=version)
    for version in range(6):
        tx.commit_offsets({tx.here: 1}, v=version)
    for version in range(3, 6):
        tx.other().init(producer=tx.producer, v=version)
    second.add(tx.here)
    second.produce("of the second")
    second.end()
    tx.ended()
    tx.fetch()


@story()
def two_ids_have_two_producers(tx: Teller) -> None:
    tx.init()
    second = tx.other("-b")
    second.init()
    tx.add(tx.here)
    second.add(tx.here)
    tx.produce("a")
    second.produce("b")
    second.end()
    second.ended()
    tx.fetch()
    tx.end(is_commit=False)
    tx.ended(is_commit=False)
    tx.fetch()
    tx.add(tx.here, id=second.id)
    tx.end(id=second.id)


@story((4,), is_slow=True)
def epochs_that_are_used_up(tx: Teller) -> None:
    """32,767 bumps, many at a time: the last ones, and the id that follows."""
    tx.init(MINUTE_MS)
    asked = {"TransactionalId": tx.id, "TransactionTimeoutMs": MINUTE_MS, "ProducerId": -1, "ProducerEpoch": -1}
    for _ in range(0, 32_750, 250):
        for _ in range(250):
            tx.link.post("InitProducerId", 4, asked)
        for _ in range(250):
            frame = tx.link.read()
            assert isinstance(frame, bytes)
    for _ in range(14):
        tx.init()
    tx.describe()
    tx.add(tx.here)
    tx.end()
    tx.ended()
    tx.init(producer=tx.producer)
    tx.describe()
    for _ in range(4):
        tx.init()
        tx.describe()
