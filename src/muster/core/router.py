"""`Router`: finds the partition of an event, and answers itself where that partition is not served here.

A partition is elected (we lead it now), loads, becomes active, and is resigned. Each election has an epoch, and news of
an older one is stale: a load that was overtaken is dropped when it arrives, whatever it found.

Groups and transactions are routed alike. What differs is named in the two classes at the end.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from operator import attrgetter
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from muster.codec.error_codes import ErrorCode
from muster.codec.partitioning import LONGEST_REMEMBERED_ID, partition_for
from muster.core.coordinator import Coordinator
from muster.core.events import (
    DescribeGroup,
    ExpireOffsets,
    Heartbeat,
    Instant,
    ListAnswer,
    ListGroups,
    OffsetFetch,
    TimerFired,
    TopicsDeleted,
    refusal,
)
from muster.core.outcome import Outcome, Reply
from muster.core.transactions.coordinator import TransactionCoordinator
from muster.core.transactions.events import DescribeTransaction, ListTransactions, ListTransactionsAnswer
from muster.core.transactions.events import refusal as transaction_refusal


class Ownership(Enum):
    """Where a partition is in its life here."""

    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"


_ACTIVE = Ownership.ACTIVE  # members of an enum cost a lookup each time they are named


class StateMachine(Protocol):
    """A coordinator of one partition, whatever it coordinates. `core/coordinator.py` says what each method means."""

    def handle(self, event: Any, now: Instant, out: Outcome) -> None: ...

    def appended(self, write: Any, base_offset: int, out: Outcome) -> None: ...

    def refused(self, write: Any, error: ErrorCode, out: Outcome) -> None: ...

    def activate(self, now: Instant, out: Outcome) -> None: ...

    def unload(self, out: Outcome) -> tuple[int, int]: ...


Machine = TypeVar("Machine", bound=StateMachine)


@dataclass(slots=True)
class RoutedPartition(Generic[Machine]):
    """One partition that we lead, or are about to."""

    epoch: int
    ownership: Ownership
    coordinator: Machine | None = None


class Router(ABC, Generic[Machine]):
    """The partitions of a topic that this node coordinates."""

    key_of: ClassVar["attrgetter[str]"]
    """What finds the partition of an event."""
    about_all: ClassVar[type]
    """The event that has no partition, and asks all of them."""
    only_decide: ClassVar[frozenset[type]]
    """Events that change something only when the log has taken it: one that fails before has left nothing half done."""
    noun: ClassVar[str]
    counts: ClassVar[tuple[str, ...]]
    """What a coordinator says it has let go, or a load that it has found."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.routed: dict[int, RoutedPartition[Machine]] = {}

    @abstractmethod
    def refusal(self, event: Any, error: ErrorCode) -> Any:
        """The answer to a request that is refused as a whole."""

    @abstractmethod
    def gathered(self, answers: list[Any]) -> Any:
        """The answer to `about_all`, of those of all partitions."""

    def described(self, event: Any) -> str:
        """An event in the log of the server: what it is, and of what."""
        name = type(event).__name__
        if type(event) is TimerFired:
            return f"{name} {' '.join(filter(None, event.key))}"
        try:
            return f"{name} of {self.noun} {self.key_of(event)}"
        except AttributeError:
            return name

    def counted(self, *numbers: int) -> str:
        return ", ".join(f"{number} {what}" for number, what in zip(numbers, self.counts, strict=False))

    def elect(self, partition: int, epoch: int) -> bool:
        """We lead a partition now. True if its log is to be loaded; False if the news is stale."""
        found = self.routed.get(partition)
        if found is not None and epoch <= found.epoch:
            return False
        self.routed[partition] = RoutedPartition(epoch, Ownership.LOADING)
        return True

    def loaded(self, partition: int, epoch: int, coordinator: Machine, now: Instant, out: Outcome) -> bool:
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

    def _coming(self, partition: int, epoch: int) -> RoutedPartition[Machine] | None:
        """A partition that is loaded in this epoch, or has failed to be, and is not served yet."""
        found = self.routed.get(partition)
        if found is None or found.epoch != epoch or found.ownership is Ownership.ACTIVE:
            return None
        return found

    def resign(self, partition: int, epoch: int | None, out: Outcome) -> tuple[int, int]:
        """We lead a partition no longer; returns what the coordinator let go. No epoch: the replica was stopped."""
        found = self.routed.get(partition)
        if found is None or (epoch is not None and epoch <= found.epoch):
            return 0, 0
        del self.routed[partition]
        return (0, 0) if found.coordinator is None else found.coordinator.unload(out)

    def partition_of(self, event: Any) -> int:
        key = self.key_of(event)
        find = partition_for if len(key) <= LONGEST_REMEMBERED_ID else partition_for.__wrapped__
        return find(key, self.partitions)

    def handle(self, event: Any, now: Instant, out: Outcome, partition: int | None = None) -> int | None:
        """Decide a request; returns its partition, or None if it was answered without one.

        A caller that knows the partition passes it: finding it is a good part of the work for a heartbeat.
        """
        if partition is None:
            if type(event) is self.about_all:
                self._ask_all(event, now, out)
                return None
            partition = self.partition_of(event)
        found = self.routed.get(partition)
        if found is not None and found.coordinator is not None and found.ownership is _ACTIVE:
            found.coordinator.handle(event, now, out)
            return partition
        is_loading = found is not None and found.ownership is Ownership.LOADING
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_loading else ErrorCode.NOT_COORDINATOR
        out.replies.append(Reply(event.reply_to, self.refusal(event, error)))
        return None

    def _ask_all(self, event: Any, now: Instant, out: Outcome) -> None:
        """All partitions together; while one of them loads there is no telling. Those that failed are not ours."""
        if any(each.ownership is Ownership.LOADING for each in self.routed.values()):
            out.replies.append(Reply(event.reply_to, self.refusal(event, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)))
            return
        answers: list[Any] = []
        for each in self.routed.values():
            if each.coordinator is not None:
                part = Outcome()
                each.coordinator.handle(event, now, part)
                answers.append(part.replies[0][1])
        out.replies.append(Reply(event.reply_to, self.gathered(answers)))


class GroupRouter(Router[Coordinator]):
    """Groups, in the partitions of the offsets topic."""

    key_of = attrgetter("group_id")
    about_all = ListGroups
    only_decide = frozenset({OffsetFetch, DescribeGroup, ListGroups, ExpireOffsets, TopicsDeleted})
    noun = "group"
    counts = "groups", "offsets"

    def refusal(self, event: Any, error: ErrorCode) -> Any:
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and type(event) is Heartbeat:
            error = ErrorCode.NONE  # a member that hears of loading would rejoin; it gets a full session after it
        return refusal(event, error)

    def gathered(self, answers: list[ListAnswer]) -> ListAnswer:
        return ListAnswer(ErrorCode.NONE, tuple(group for answer in answers for group in answer.groups))


class TransactionRouter(Router[TransactionCoordinator]):
    """Transactions, in the partitions of `__transaction_state`."""

    key_of = attrgetter("transactional_id")
    about_all = ListTransactions
    only_decide = frozenset({DescribeTransaction, ListTransactions})
    noun = "transactional id"
    counts = ("transactional ids",)

    def refusal(self, event: Any, error: ErrorCode) -> Any:
        if type(event) is not ListTransactions and not event.transactional_id:
            error = ErrorCode.INVALID_REQUEST  # of any coordinator
        return transaction_refusal(event, error)

    def gathered(self, answers: list[ListTransactionsAnswer]) -> ListTransactionsAnswer:
        unknown = answers[0].unknown_states if answers else ()
        listed = tuple(one for answer in answers for one in answer.transactions)
        return ListTransactionsAnswer(ErrorCode.NONE, unknown, listed)
