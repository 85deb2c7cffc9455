"""Heartbeats, sessions and leaving: what the checklist's sections I and J say and no other test does."""

from muster.codec.error_codes import ErrorCode
from muster.core.events import Leaver
from muster.core.states import State
from tests.scenarios.world import ScenarioWorld

E = ErrorCode


def test_167_a_dead_group_has_no_pulse() -> None:
    world = ScenarioWorld()
    (a,) = world.stable("a")
    world.group().state = State.DEAD
    assert world.heartbeat(a, 1) is E.COORDINATOR_NOT_AVAILABLE


def test_168_the_heartbeat_of_a_former_member() -> None:
    """Empty is computed: a group with a member left in it is not. So the member is one that the client remembers."""
    world = ScenarioWorld()
    (a,) = world.stable("a")
    world.leave(Leaver(a))
    assert world.state() == "Empty"
    assert world.heartbeat(a, world.group().generation) is E.UNKNOWN_MEMBER_ID


def test_174_a_member_that_was_told_to_rejoin_has_a_session_again() -> None:
    world = ScenarioWorld()
    (a,) = world.stable("a", session=1_000)
    world.join_new(client="b", session=1_000)
    world.advance(900)
    assert world.heartbeat(a, 1) is E.REBALANCE_IN_PROGRESS
    world.advance(999)
    assert a in world.group().members
    world.advance(1)
    assert a not in world.group().members


def test_177_a_commit_keeps_the_session() -> None:
    world = ScenarioWorld()
    (a,) = world.stable("a", session=1_000)
    world.advance(500)
    assert world.commit(42, member=a, generation=1) is E.NONE
    world.advance(600)
    assert world.heartbeat(a, 1) is E.NONE


def test_179_a_static_member_stays_until_its_session_ends() -> None:
    world = ScenarioWorld()
    times = {"rebalance": 1_200}
    (a,) = world.stable("a", instances=True, session=1_000, **times)
    number, b = world.join_new(client="b", session=5_000, **times)
    for _ in range(3):
        world.advance(399)
        assert world.heartbeat(a, 1) is E.REBALANCE_IN_PROGRESS
    world.advance(3)
    answer = world.joined(number)
    assert (answer.generation, answer.leader) == (2, b)
    assert [each.member_id for each in answer.members] == [a, b]
    assert world.heartbeat(a, 1) is E.ILLEGAL_GENERATION
    world.sync(b, 2)
    world.advance(996)
    assert world.heartbeat(b, 2) is E.NONE
    world.advance(1)  # a thousand since the heartbeat that counted
    assert world.heartbeat(b, 2) is E.REBALANCE_IN_PROGRESS
    assert list(world.group().members) == [b]


def test_181_the_session_timer_of_a_dead_group() -> None:
    world = ScenarioWorld()
    a, b = world.stable("a", "b", session=1_000)
    group, appended = world.group(), len(world.log)
    world.move_away()
    world.advance(1_000)
    world.fire("session", "g", a)
    assert (list(group.members), group.state.value, len(world.log)) == ([a, b], "Dead", appended)


def test_182_the_session_timer_of_a_former_member() -> None:
    world = ScenarioWorld()
    a, b = world.stable("a", "b", session=1_000)
    world.leave(Leaver(b))
    world.joined(world.join(member_id=a, client="a", session=1_000))
    generation, appended = world.group().generation, len(world.log)
    world.fire("session", "g", b)
    assert (world.group().generation, list(world.group().members)) == (generation, [a])
    assert (world.state(), len(world.log)) == ("CompletingRebalance", appended)


def test_186_a_transaction_does_not_keep_the_session() -> None:
    world = ScenarioWorld()
    (a,) = world.stable("a", session=1_000)
    world.advance(900)
    assert world.txn_commit(42, member=a, generation=1) is E.NONE
    world.advance(99)
    assert a in world.group().members
    world.advance(1)
    assert a not in world.group().members


def test_193_a_static_member_is_removed_by_its_instance() -> None:
    world = ScenarioWorld()
    a, b = world.stable("a", "b", instances=True)
    (result,) = world.leave(Leaver("", "a")).members
    assert (result.member_id, result.instance_id, result.error) == ("", "a", E.NONE)
    assert list(world.group().members) == [b]
    assert world.heartbeat(a, world.group().generation) is E.UNKNOWN_MEMBER_ID


def test_194_two_are_removed_by_their_instances() -> None:
    world = ScenarioWorld()
    world.stable("a", "b", instances=True)
    generation = world.group().generation
    answer = world.leave(Leaver("", "a"), Leaver("", "b"))
    assert (answer.error, [each.error for each in answer.members]) == (E.NONE, [E.NONE] * 2)
    assert (world.state(), world.group().generation) == ("Empty", generation + 1)


def test_201_a_member_leaves_while_its_join_is_parked() -> None:
    world = ScenarioWorld()
    (a,) = world.stable("a")
    number, b = world.join_new(client="b")
    assert world.is_parked(number)
    assert world.leave(Leaver(b)).members[0].error is E.NONE
    answer = world.answer(number)
    assert (answer.error, answer.member_id) == (E.UNKNOWN_MEMBER_ID, "")
    assert list(world.group().members) == [a]


def test_202_all_parked_syncs_hear_of_the_rebalance() -> None:
    world = ScenarioWorld()
    a, b, c = world.stable("a", "b", "c")
    generation = world.rejoin_all(a, b, c)
    parked = world.sync(b, generation)
    assert world.leave(Leaver(c)).members[0].error is E.NONE
    assert world.answer(parked).error is E.REBALANCE_IN_PROGRESS
    assert (world.state(), list(world.group().members)) == ("PreparingRebalance", [a, b])
