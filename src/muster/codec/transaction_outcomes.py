"""How transactions ended: the outcome of every transactional batch, known before its records are decoded.

A commit inside a transaction counts only once a marker of the same producer says COMMIT further down the log, which may
be gigabytes later. Buffering records until then would cost unbounded memory, so the log is read twice: a first pass
over batch headers collects the markers (a few bytes each), the second looks the answer up.

The outcome of a batch is its producer's first marker at a higher offset. Epochs need not be compared: a producer has
one transaction at a time, and a fencing producer's marker ends the fenced one's transaction too.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Longs = NDArray[np.int64]

NO_TRANSACTION = 0
COMMITTED = 1
ABORTED = 2
OPEN = 3
OUTCOME_NAMES = (None, "committed", "aborted", "open")


class Markers(NamedTuple):
    """The markers of one partition, ordered by producer and offset, for a binary search."""

    producer_ids: Longs
    offsets: Longs
    commits: Longs  # 1 COMMIT, 0 ABORT

    @classmethod
    def none(cls) -> "Markers":
        empty = np.empty(0, np.int64)
        return cls(empty, empty, empty)

    @classmethod
    def of(cls, rows: Longs) -> "Markers":
        """From rows of (producer id, offset, commit) in any order."""
        order = np.lexsort((rows[:, 1], rows[:, 0]))
        ordered = rows[order]
        return cls(*(np.ascontiguousarray(ordered[:, column]) for column in range(3)))

    def outcome(self, producer_id: int, offset: int) -> int:
        """How the transaction ended that wrote at this offset."""
        first = int(np.searchsorted(self.producer_ids, producer_id, "left"))
        last = int(np.searchsorted(self.producer_ids, producer_id, "right"))
        place = first + int(np.searchsorted(self.offsets[first:last], offset, "right"))
        if place == last:
            return OPEN
        return COMMITTED if self.commits[place] else ABORTED
