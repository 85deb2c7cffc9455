"""Which partition of the offsets topic a group belongs to, and whether it is ours to answer for.

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
class Shard:
    """One partition that we lead, or are about to."""

    epoch: int
    ownership: Ownership
    coordinator: Coordinator | None = None


class Router:
    """The partitions of the offsets topic that this node coordinates."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.shards: dict[int, Shard] = {}

    def elect(self, partition: int, epoch: int) -> bool:
        """We lead a partition now. True if its log is to be loaded; False if the news is stale."""
        shard = self.shards.get(partition)
        if shard is not None and epoch <= shard.epoch:
            return False
        self.shards[partition] = Shard(epoch, Ownership.LOADING)
        return True

    def loaded(self, partition: int, epoch: int, coordinator: Coordinator, now: Instant, out: Outcome) -> bool:
        """A load has come to its end; False (and the coordinator is dropped) if leadership has moved on meanwhile."""
        shard = self._coming(partition, epoch)
        if shard is None:
            return False
        shard.coordinator, shard.ownership = coordinator, Ownership.ACTIVE
        coordinator.activate(now, out)
        return True

    def load_failed(self, partition: int, epoch: int) -> None:
        """A load broke off: the partition answers that it is not here, until another load of it succeeds."""
        shard = self._coming(partition, epoch)
        if shard is not None:
            shard.ownership = Ownership.FAILED

    def _coming(self, partition: int, epoch: int) -> Shard | None:
        """A partition that is loaded in this epoch, or has failed to be, and is not served yet."""
        shard = self.shards.get(partition)
        if shard is None or shard.epoch != epoch or shard.ownership is Ownership.ACTIVE:
            return None
        return shard

    def resign(self, partition: int, epoch: int | None, out: Outcome) -> tuple[int, int]:
        """We lead a partition no longer; returns the groups and offsets let go. No epoch: the replica was stopped."""
        shard = self.shards.get(partition)
        if shard is None or (epoch is not None and epoch <= shard.epoch):
            return 0, 0
        del self.shards[partition]
        return (0, 0) if shard.coordinator is None else shard.coordinator.unload(out)

    def handle(self, event: Event, now: Instant, out: Outcome) -> int | None:
        """Decide a request about a group; returns its partition, or None if it was answered without one."""
        if type(event) is ListGroups:
            self._list(event, now, out)
            return None
        group_id: str = event.group_id  # type: ignore[union-attr]
        find = partition_for if len(group_id) <= LONGEST_REMEMBERED_ID else partition_for.__wrapped__
        partition = find(group_id, self.partitions)
        shard = self.shards.get(partition)
        if shard is not None and shard.coordinator is not None and shard.ownership is _ACTIVE:
            shard.coordinator.handle(event, now, out)
            return partition
        is_loading = shard is not None and shard.ownership is Ownership.LOADING
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_loading else ErrorCode.NOT_COORDINATOR
        if is_loading and isinstance(event, Heartbeat):
            error = ErrorCode.NONE  # a member that hears of loading would rejoin; it gets a full session after it
        out.replies.append(Reply(event.reply_to, refusal(event, error)))  # type: ignore[union-attr]
        return None

    def _list(self, event: ListGroups, now: Instant, out: Outcome) -> None:
        """All partitions together; while one of them loads there is no telling. Those that failed are not ours."""
        if any(shard.ownership is Ownership.LOADING for shard in self.shards.values()):
            out.replies.append(Reply(event.reply_to, ListAnswer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)))
            return
        found: list[Any] = []
        for shard in self.shards.values():
            if shard.coordinator is not None:
                part = Outcome()
                shard.coordinator.handle(event, now, part)
                found.extend(part.replies[0][1].groups)
        out.replies.append(Reply(event.reply_to, ListAnswer(ErrorCode.NONE, tuple(found))))
