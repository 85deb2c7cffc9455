"""`World` with the words that offsets, moves of a partition and late timers need, so that no test looks inside answers.

world = ScenarioWorld()
world.commit(42)                        # the error of a commit to t-0; None while the log holds it back
world.fetch(0, stable=True)             # {0: 42}: offsets by partition of the topic t, the error where there is one
later = world.reloaded(group_max_size=4)
"""

from typing import Any

from muster.codec.error_codes import ErrorCode
from muster.core.events import (
    CommitAnswer,
    CommittedPartition,
    DeleteGroup,
    DescribeGroup,
    EndTransaction,
    ExpireOffsets,
    OffsetCommit,
    OffsetFetch,
    TimerFired,
    TimerKey,
    TimerKind,
    TxnOffsetCommit,
)
from muster.core.outcome import Outcome
from tests.core.world import NO_ANSWER, World

TOPIC = "t"


class ScenarioWorld(World):
    """One partition's coordinator; offsets are those of partitions of the topic t."""

    def joined(self, number: int) -> Any:
        """The answer to a join that went well."""
        answer = self.answer(number)
        assert answer is not NO_ANSWER, "still parked"
        assert answer.error is ErrorCode.NONE, answer
        return answer

    def rejoin_all(self, *member_ids: str, **more: Any) -> int:
        """Everybody joins again, whose client (and instance) has the name before the dash; the new generation."""
        for member_id in member_ids:
            name = member_id.split("-")[0]
            instance = name if self.group().members[member_id].is_static else None
            self.join(member_id=member_id, client=name, instance=instance, **more)
        assert self.state() == "CompletingRebalance"
        generation: int = self.group().generation
        return generation

    def commit(self, offset: int, partition: int = 0, *, member: str = "", generation: int = -1, **more: Any) -> Any:
        asked = (CommittedPartition(TOPIC, partition, offset),)
        group_id = more.pop("group_id", "g")
        event = OffsetCommit(self.next_number(), group_id, generation, member, asked, more.pop("instance", None))
        return self.error_of(self.ask(event))

    def txn_commit(self, offset: int, producer_id: int = 9, *, member: str = "", generation: int = -1) -> Any:
        asked = (CommittedPartition(TOPIC, 0, offset),)
        event = TxnOffsetCommit(self.next_number(), "g", producer_id, 0, asked, generation, member)
        return self.error_of(self.ask(event))

    def end_transaction(self, commit: bool, producer_id: int = 9) -> None:
        self.ask(EndTransaction(producer_id, 0, commit))

    def error_of(self, number: int) -> ErrorCode | None:
        """The one error of a commit of one partition; None while it waits for the log."""
        answer = self.answer(number)
        return None if answer is NO_ANSWER else errors_of(answer, 1)[0]

    def last_number(self) -> int:
        return self._asked

    def fetch(self, *partitions: int, stable: bool = False, group_id: str = "g") -> dict[int, Any]:
        wanted = tuple((TOPIC, partition) for partition in partitions) or None
        answer = self.answer(self.ask(OffsetFetch(self.next_number(), group_id, wanted, stable)))
        assert answer.error is ErrorCode.NONE
        return {
            each.partition: each.offset if each.error is ErrorCode.NONE else each.error for each in answer.partitions
        }

    def describe(self, group_id: str = "g", version: int = 6) -> Any:
        return self.answer(self.ask(DescribeGroup(self.next_number(), group_id, version)))

    def delete_group(self, group_id: str = "g") -> Any:
        return self.answer(self.ask(DeleteGroup(self.next_number(), group_id)))

    def expire(self) -> None:
        self.ask(ExpireOffsets())

    def fire(self, kind: str, group_id: str, member_id: str = "") -> None:
        """A timer fires that should not, or no longer: it was on its way when it was cancelled."""
        self.ask(TimerFired(TimerKey(TimerKind(kind), group_id, member_id)))

    def move_away(self) -> None:
        """The partition is somebody else's now."""
        out = Outcome()
        self.coordinator.unload(out)
        self._carry_out(out)

    def reloaded(self, **settings: Any) -> "ScenarioWorld":
        """Another world whose coordinator has read this one's log, at the same time by the clock."""
        other = ScenarioWorld(**settings)
        other.now_ms, other.wall_ms, other.log = self.now_ms, self.wall_ms, list(self.log)
        for log_offset, (record, producer_id) in enumerate(self.log):
            other.coordinator.replay(record, log_offset, producer_id)
        other.coordinator.table.take_seats()
        out = Outcome()
        other.coordinator.activate(other.now, out)
        other._carry_out(out)
        return other


def errors_of(answer: CommitAnswer, count: int) -> list[ErrorCode]:
    """One error for each of the partitions that were asked for."""
    if answer.errors is None:
        return [ErrorCode.NONE] * count
    assert len(answer.errors) == count
    return list(answer.errors)
