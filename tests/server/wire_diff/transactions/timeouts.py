"""Stories about transactions that are open for longer than their producer wanted."""

from tests.server.wire_diff.transactions.telling import ADD, ADD_OFFSETS, COMMIT, END, Teller, story

SHORT_MS = 300
"""Long enough to open a transaction on a busy machine before it is aborted."""


def timed_out(tx: Teller, is_new: bool) -> None:
    tx.init(SHORT_MS)
    if is_new:
        tx.produce("a", v=12)
    else:
        tx.add(tx.here)
        tx.produce("a")
    tx.ended(is_commit=False)


@story((0, 1))
def a_transaction_that_times_out(tx: Teller) -> None:
    timed_out(tx, is_new=bool(tx.version))
    tx.describe()
    tx.fetch()
    tx.producers()
    tx.init()
    tx.describe()


@story((0, 1))
def ended_too_late(tx: Teller) -> None:
    timed_out(tx, is_new=bool(tx.version))
    for version in END:
        tx.other().end(v=version)
        tx.other().end(is_commit=False, v=version)
    tx.describe()


@story((0, 1))
def written_too_late(tx: Teller) -> None:
    timed_out(tx, is_new=bool(tx.version))
    for version in range(3, 14):
        tx.produce("late", v=version)
    for version in ADD:
        tx.add(tx.here, v=version)
    for version in ADD_OFFSETS:
        tx.add_offsets(v=version)
    for version in COMMIT:
        tx.commit_offsets({tx.here: 1}, v=version)
    tx.describe()


@story(range(3, 6))
def a_client_that_goes_on_after_a_timeout(tx: Teller) -> None:
    timed_out(tx, is_new=False)
    tx.init(producer=tx.producer, v=tx.version)
    tx.describe()
    tx.init(producer=tx.producer, v=tx.version)
    tx.add(tx.here)
    tx.produce("b")
    tx.end()
    tx.ended()
    tx.fetch()


@story((0, 1))
def offsets_that_time_out(tx: Teller) -> None:
    tx.init(SHORT_MS)
    if tx.version:
        tx.commit_offsets({tx.here: 5}, v=5)
    else:
        tx.add_offsets()
        tx.commit_offsets({tx.here: 5})
    tx.ended(is_commit=False)
    tx.offsets(tx.here)
    tx.describe()


@story()
def an_id_that_is_empty_does_not_time_out(tx: Teller) -> None:
    tx.init(1)
    waited = tx.other("-b")
    timed_out(waited, is_new=False)
    tx.describe()


@story((0, 1))
def a_timeout_after_the_newer_end(tx: Teller) -> None:
    tx.init(SHORT_MS, v=5)
    tx.produce("a", v=12)
    tx.end(v=5)
    tx.ended()
    tx.produce("b", v=12)
    tx.ended(is_commit=False)
    tx.describe()
    tx.end(v=5)
    tx.end(is_commit=False, v=5)
    tx.until("CompleteAbort", "CompleteCommit")
    tx.init(producer=tx.producer, v=5)
    tx.describe()
