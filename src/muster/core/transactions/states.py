"""The states of a transaction: where each may lead, and what a request hears in each.

Both are data. Every decision asks `LEGAL_MOVES`; replay does not, because a compacted log leaves states out. `RULES`
says what each request hears in each state; `tests/core/transactions/test_states.py` puts every one to a transaction in
every state and compares. The diagram and the table in docs/architecture.md are drawn from here.
"""

from enum import IntEnum


class TransactionState(IntEnum):
    """The number goes into the log. Kafka has two more, which its log never has: 6 (Dead) and 7 (PrepareEpochFence)."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def kafka_name(self) -> str:
        """As it goes over the wire."""
        return _NAMES[self]


_NAMES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")

_EMPTY, _ONGOING, _PREPARE_COMMIT, _PREPARE_ABORT, _COMPLETE_COMMIT, _COMPLETE_ABORT = TransactionState

LEGAL_MOVES: dict[TransactionState, tuple[TransactionState, ...]] = {
    _EMPTY: (_EMPTY, _ONGOING, _PREPARE_ABORT),
    _ONGOING: (_ONGOING, _PREPARE_COMMIT, _PREPARE_ABORT),
    _PREPARE_COMMIT: (_COMPLETE_COMMIT,),
    _PREPARE_ABORT: (_COMPLETE_ABORT,),
    _COMPLETE_COMMIT: (_EMPTY, _ONGOING, _PREPARE_ABORT),
    _COMPLETE_ABORT: (_EMPTY, _ONGOING, _PREPARE_ABORT),
}
"""From where to where; anything else is a bug. Expiration forgets what is Empty or complete."""

PREPARED = (_PREPARE_COMMIT, _PREPARE_ABORT)
AT_REST = (_EMPTY, _COMPLETE_COMMIT, _COMPLETE_ABORT)
