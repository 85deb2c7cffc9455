"""Durable records that are not there any more.

The recovery point of a log is written down only when everything below it is on the disk. A crash, a kill or a power cut
therefore never leaves a log that ends before it: a log that does has lost a file, or part of one, to something else (a
disk that is not mounted, a backup put back in part, somebody's hand).
"""

from collections.abc import Sequence
from typing import NamedTuple

from muster.errors import DataLost

LOST = "DATA LOST: "
"""Begins every note of a loss that was accepted."""
MOST_NAMED = 20


class Loss(NamedTuple):
    """What one partition has lost."""

    partition: str
    durable_up_to: int
    """The end that was written down; 0 where nothing was."""
    found_up_to: int | None
    """The end that was found; None where the whole directory is missing."""

    def __str__(self) -> str:
        if self.found_up_to is None and not self.durable_up_to:
            return f"{self.partition}: its directory is missing, and how much was in it is not known"
        found = "its directory is missing" if self.found_up_to is None else f"found up to {self.found_up_to}"
        return (
            f"{self.partition}: durable up to {self.durable_up_to}, {found}, so offsets {self.found_up_to or 0} to "
            f"{self.durable_up_to - 1} are lost"
        )


class LossRefused(DataLost):
    """Losses that were not accepted. Nothing was changed."""

    def __init__(self, losses: Sequence[Loss]) -> None:
        named = "; ".join(map(str, losses[:MOST_NAMED]))
        more = f"; and {len(losses) - MOST_NAMED} more" if len(losses) > MOST_NAMED else ""
        super().__init__(f"{named}{more}.")
        self.losses = list(losses)
