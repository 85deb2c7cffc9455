"""`Router`: finds the partition of a group, and answers itself where that partition is not served here.

A partition is elected (we lead it now), loads, becomes active, and is resigned. Each election has an epoch, and news of
an older one is stale: a load that was overtaken is dropped when it arrives, whatever it found.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Any

from muster.codec.error_codes import ErrorCode
from muster.codec.partitioning import LONGEST_REMEMBERED_ID, partition_for
from muster.core.coordinator import Coordinator
from muster.core.events import Event, Heartbeat, Instant, ListAnswer, ListGroups, refusal
from muster.core.outcome import Outcome, Reply


class Ownership(Enum):
    """Where a partition is in its life here."""

    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"


_ACTIVE = Ownership.ACTIVE  # members of an enum cost a lookup each time they are named


@dataclass(slots=True)
class RoutedPartition:
    """One partition that we lead, or are about to."""

    epoch: int
    ownership: Ownership
    coordinator: Coordinator | None = None


class Router:
    """The partitions of the offsets topic that this node coordinates."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.routed: dict[int, RoutedPartition] = {}

    def elect(self, partition: int, epoch: int) -> bool:
        """We lead a partition now. True if its log is to be loaded; False if the news is stale."""
        found = self.routed.get(partition)
        if found is not None and epoch <= found.epoch:
            return False
        self.routed[partition] = RoutedPartition(epoch, Ownership.LOADING)
        return True

    def loaded(self, partition: int, epoch: int, coordinator: Coordinator, now: Instant, out: Outcome) -> bool:
        """A load has come to its end; False (and the coordinator is dropped) if leadership has moved on meanwhile."""
        found = self._coming(partition, epoch)
        if found is None:
            return False
        found.coordinator, found.ownership = coordinator, Ownership.ACTIVE
        coordinator.activate(now, out)
        return True

    def load_failed(self, partition: int, epoch: int) -> None:
        """A load broke off: the partition answers that it is not here, until another load of it succeeds."""
        found = self._coming(partition, epoch)
        if found is not None:
            found.ownership = Ownership.FAILED

    def _coming(self, partition: int, epoch: int) -> RoutedPartition | None:
        """A partition that is loaded in this epoch, or has failed to be, and is not served yet."""
        found = self.routed.get(partition)
        if found is None or found.epoch != epoch or found.ownership is Ownership.ACTIVE:
            return None
        return found

    def resign(self, partition: int, epoch: int | None, out: Outcome) -> tuple[int, int]:
        """We lead a partition no longer; returns the groups and offsets let go. No epoch: the replica was stopped."""
        found = self.routed.get(partition)
        if found is None or (epoch is not None and epoch <= found.epoch):
            return 0, 0
        del self.routed[partition]
        return (0, 0) if found.coordinator is None else found.coordinator.unload(out)

    def handle(self, event: Event, now: Instant, out: Outcome) -> int | None:
        """Decide a request about a group; returns its partition, or None if it was answered without one."""
        if type(event) is ListGroups:
            self._list(event, now, out)
            return None
        group_id: str = event.group_id  # type: ignore[union-attr]
        find = partition_for if len(group_id) <= LONGEST_REMEMBERED_ID else partition_for.__wrapped__
        partition = find(group_id, self.partitions)
        found = self.routed.get(partition)
        if found is not None and found.coordinator is not None and found.ownership is _ACTIVE:
            found.coordinator.handle(event, now, out)
            return partition
        is_loading = found is not None and found.ownership is Ownership.LOADING
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_loading else ErrorCode.NOT_COORDINATOR
        if is_loading and isinstance(event, Heartbeat):
            error = ErrorCode.NONE  # a member that hears of loading would rejoin; it gets a full session after it
        out.replies.append(Reply(event.reply_to, refusal(event, error)))  # type: ignore[union-attr]
        return None

    def _list(self, event: ListGroups, now: Instant, out: Outcome) -> None:
        """All partitions together; while one of them loads there is no telling. Those that failed are not ours."""
        if any(each.ownership is Ownership.LOADING for each in self.routed.values()):
            out.replies.append(Reply(event.reply_to, ListAnswer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)))
            return
        listed: list[Any] = []
        for each in self.routed.values():
            if each.coordinator is not None:
                part = Outcome()
                each.coordinator.handle(event, now, part)
                listed.extend(part.replies[0][1].groups)
        out.replies.append(Reply(event.reply_to, ListAnswer(ErrorCode.NONE, tuple(listed))))
