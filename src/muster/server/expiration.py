"""Offsets past their retention, looked for a little at a time.

All groups of all partitions are looked at, and that may be a million. So a few groups are looked at in one go, for a
few milliseconds in one turn of the loop, and the rest in the turns that follow; everybody else is served in between.
"""

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

from muster.core.events import ExpireOffsets

if TYPE_CHECKING:
    from muster.server.shards import Shards

GROUPS_AT_A_TIME = 50
SLICE_S = 0.002


class Expiration:
    """One walk over all groups at a time; what is asked for meanwhile is part of it."""

    def __init__(self, shards: "Shards") -> None:
        self._shards = shards
        self._loop = asyncio.get_running_loop()
        self._walk: Iterator[None] | None = None

    @property
    def is_under_way(self) -> bool:
        return self._walk is not None

    def begin(self) -> None:
        """Look at all groups, from now on and in the turns that follow."""
        if self._walk is None:
            self._walk = self._all_groups()
            self._go_on()

    def stop(self) -> None:
        self._walk = None

    def _go_on(self) -> None:
        if self._walk is None:
            return
        until = self._loop.time() + SLICE_S
        for _ in self._walk:
            if self._loop.time() >= until:
                self._loop.call_soon(self._go_on)
                return
        self._walk = None

    def _all_groups(self) -> Iterator[None]:
        for shell in list(self._shards.shells.values()):
            coordinator = shell.coordinator
            group_ids = [] if coordinator is None else list(coordinator.groups)
            for first in range(0, len(group_ids), GROUPS_AT_A_TIME):
                if shell.coordinator is not coordinator:
                    break  # let go, or loaded again; the next walk looks at it
                self._shards.happen(shell, ExpireOffsets(group_ids[first : first + GROUPS_AT_A_TIME]))
                yield
