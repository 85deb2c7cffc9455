"""What each state answers is what the table says: every request is put to a group in every state."""

from typing import Any

import pytest

from muster.codec.error_codes import ErrorCode
from muster.core.events import (
    CommitAnswer,
    CommittedPartition,
    DeleteGroup,
    DescribeGroup,
    Event,
    Heartbeat,
    JoinGroup,
    LeaveAnswer,
    LeaveGroup,
    Leaver,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    SyncGroup,
    TxnOffsetCommit,
)
from muster.core.states import LEADER, LEGAL_MOVES, MEMBER, NEW_MEMBER, RULES, Rule, Served, State
from tests.core.test_offsets import subscription
from tests.core.world import NO_ANSWER, World

PROTOCOLS = (("range", subscription("orders")),)
OFFSETS = (CommittedPartition("clicks", 0, 42),)
REQUESTS = (
    JoinGroup, SyncGroup, Heartbeat, LeaveGroup, OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetDelete,
    DescribeGroup, DeleteGroup,
)  # fmt: skip


class GroupIn:
    """A group of a leader and a follower, with an offset of a topic that they do not read, in some state."""

    def __init__(self, state: State) -> None:
        self.world = world = World()
        world.ask(OffsetCommit(world.next_number(), "g", -1, "", OFFSETS))
        self.leader, self.member = world.stable("leader", "member", protocols=PROTOCOLS)
        match state:
            case State.EMPTY:
                world.leave(Leaver(self.leader), Leaver(self.member))
            case State.PREPARING_REBALANCE:
                world.join_new(client="third", protocols=PROTOCOLS)
            case State.COMPLETING_REBALANCE:
                world.join(member_id=self.leader, client="leader", protocols=PROTOCOLS)
                world.join(member_id=self.member, client="member", protocols=PROTOCOLS)
            case State.DEAD:
                world.group().state = State.DEAD
        assert world.group().state is state

    def event(self, request: type, who: str) -> Event:
        world, generation = self.world, self.world.group().generation
        number = world.next_number()
        member_id = self.leader if who == LEADER else self.member if who == MEMBER else ""
        if not member_id:
            generation = -1
        events: dict[type, Event] = {
            JoinGroup: JoinGroup(
                number, 3, "g", member_id, "uuid", "c", "/h", 10_000, 60_000, "consumer", PROTOCOLS
            ),
            SyncGroup: SyncGroup(number, "g", generation, member_id),
            Heartbeat: Heartbeat(number, "g", generation, member_id),
            LeaveGroup: LeaveGroup(number, "g", (Leaver(member_id),)),
            OffsetCommit: OffsetCommit(number, "g", generation, member_id, OFFSETS),
            TxnOffsetCommit: TxnOffsetCommit(number, "g", 7, 0, OFFSETS, generation, member_id),
            OffsetFetch: OffsetFetch(number, "g"),
            OffsetDelete: OffsetDelete(number, "g", (("clicks", 0),)),
            DescribeGroup: DescribeGroup(number, "g"),
            DeleteGroup: DeleteGroup(number, "g"),
        }  # fmt: skip
        return events[request]

    def answer_to(self, event: Event) -> ErrorCode | Served:
        """How a request is served, or the error that it hears."""
        world, before = self.world, self.world.group()
        state, log_end = before.state, len(world.log)
        answer = world.answer(world.ask(event))
        if answer is NO_ANSWER:
            has_begun = state is not State.PREPARING_REBALANCE and before.state is State.PREPARING_REBALANCE
            return Served.REBALANCES if has_begun else Served.PARKED
        error = error_of(answer)
        if error is not ErrorCode.NONE:
            return error
        return Served.WRITTEN if len(world.log) > log_end else Served.AT_ONCE


def error_of(answer: Any) -> ErrorCode:
    if isinstance(answer, ErrorCode):
        return answer
    if isinstance(answer, CommitAnswer):
        return answer.errors[0] if answer.errors else ErrorCode.NONE
    if isinstance(answer, LeaveAnswer) and answer.error is ErrorCode.NONE:
        return answer.members[0].error
    error = answer.error
    assert isinstance(error, ErrorCode)
    return error


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize(("request_type", "rule"), RULES, ids=[f"{asked.__name__} {rule.who}" for asked, rule in RULES])
def test_every_state_answers_as_the_table_says(request_type: type, rule: Rule, state: State) -> None:
    group = GroupIn(state)
    event = group.event(request_type, rule.who)
    assert group.answer_to(event) == rule.by_state()[state]


def test_the_table_has_every_request_about_a_group() -> None:
    assert {asked for asked, _ in RULES} == set(REQUESTS)
    assert len({(asked, rule.who) for asked, rule in RULES}) == len(RULES)


def test_a_new_member_of_a_newer_version_gets_its_id_first() -> None:
    group = GroupIn(State.STABLE)
    event = group.event(JoinGroup, NEW_MEMBER)
    assert isinstance(event, JoinGroup)
    event.version = 4
    assert group.answer_to(event) is ErrorCode.MEMBER_ID_REQUIRED


def test_every_state_is_reached_and_can_end() -> None:
    assert set(LEGAL_MOVES) == set(State)
    assert {to for moves in LEGAL_MOVES.values() for to in moves} == set(State)
    assert all(State.DEAD in moves for moves in LEGAL_MOVES.values())
