"""The newest offset of each key, as kernels have it: `offset_map.py` in 24 bytes a slot."""

import secrets

import numpy as np

from muster.codec.columns.chunks import Longs
from muster.codec.columns.compaction import SLOT_COLUMNS, move_slots
from muster.errors import ConfigError

BYTES_PER_SLOT = 8 * SLOT_COLUMNS
FEWEST_SLOTS = 1 << 12
LOAD_FACTOR = 0.75


class KeyTable:
    """The newest offset of each key in a flat table that grows up to a limit; the old and the new one count together
    while it does."""

    def __init__(self, memory_bytes: int) -> None:
        self._most_slots = memory_bytes * 2 // 3 // BYTES_PER_SLOT
        if self._most_slots * LOAD_FACTOR < 1:
            raise ConfigError(
                f"log.cleaner.dedupe.buffer.size is {memory_bytes}: not enough for a single key, so compaction would "
                f"never get anywhere"
            )
        self.slots: Longs = np.zeros((min(FEWEST_SLOTS, self._most_slots), SLOT_COLUMNS), np.int64)
        self.seeds = np.array([secrets.randbits(64) | 1 for _ in range(4)], np.uint64)

    @property
    def capacity(self) -> int:
        """Keys that fit before the table has to grow (or is full)."""
        return int(len(self.slots) * LOAD_FACTOR)

    def grow(self) -> bool:
        """Double the table, or fill the rest of its memory; False if it has all of it."""
        if len(self.slots) == self._most_slots:
            return False
        larger = np.zeros((min(2 * len(self.slots), self._most_slots), SLOT_COLUMNS), np.int64)
        move_slots(self.slots, larger)
        self.slots = larger
        return True
