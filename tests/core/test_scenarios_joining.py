"""Joining, the initial delay and rejoining: what the checklist's sections C, D and E say and no other test does."""

import pytest

from muster.codec.error_codes import ErrorCode
from muster.core.events import Leaver, TimerKey, TimerKind
from muster.core.states import State
from tests.core.world import NO_ANSWER
from tests.scenarios.world import ScenarioWorld

E = ErrorCode


def test_053_054_version_3_seats_a_new_member_at_once_and_version_4_hands_out_an_id_first() -> None:
    world = ScenarioWorld(group_initial_rebalance_delay_ms=50)
    assert world.is_parked(world.join("g", version=3))
    answer = world.answer(world.join("h", client="shop", version=4))
    assert (answer.error, answer.member_id) == (E.MEMBER_ID_REQUIRED, f"shop-uuid-{world.last_number()}")
    assert (len(world.group("g").members), len(world.group("h").members)) == (1, 0)


def test_066_a_dead_group_seats_nobody() -> None:
    world = ScenarioWorld()
    (a,) = world.stable("a")
    world.group().state = State.DEAD
    answer = world.answer(world.join(member_id=a, client="a"))
    assert (answer.error, answer.member_id) == (E.COORDINATOR_NOT_AVAILABLE, a)


def test_083_the_delay_of_a_group_that_is_no_more() -> None:
    world = ScenarioWorld(group_initial_rebalance_delay_ms=50)
    number, _ = world.join_new()
    group, appended = world.group(), len(world.log)
    world.move_away()
    assert world.answer(number).error is E.NOT_COORDINATOR
    world.advance(50)
    world.fire("join", "g")  # it was on its way already
    assert (group.state.value, group.generation, len(world.log)) == ("Dead", 0, appended)


@pytest.mark.parametrize("protocols", [(("b", b"2"), ("a", b"1")), (("a", b"9"), ("b", b"2")), (("a", b"1"),)])
def test_087_a_follower_with_another_list_or_order(protocols: tuple[tuple[str, bytes], ...]) -> None:
    world = ScenarioWorld()
    _, b = world.stable("a", "b", protocols=(("a", b"1"), ("b", b"2")))
    number = world.join(member_id=b, client="b", protocols=protocols)
    assert world.is_parked(number)
    assert world.state() == "PreparingRebalance"


def test_091_a_third_member_and_two_that_rejoin() -> None:
    world = ScenarioWorld()
    a, b = world.stable("a", "b")
    generation = world.group().generation
    third, _ = world.join_new(client="c")
    first = world.join(member_id=a, client="a")
    assert world.is_parked(first)
    second = world.join(member_id=b, client="b")
    answers = [world.joined(number) for number in (first, second, third)]
    assert {(answer.generation, answer.leader) for answer in answers} == {(generation + 1, a)}
    assert [len(answer.members) for answer in answers] == [3, 0, 0]


def test_094_the_id_of_a_former_member() -> None:
    """Empty is computed: a group with a member left in it is not. So the id that is left is the client's memory."""
    world = ScenarioWorld()
    (a,) = world.stable("a")
    world.leave(Leaver(a))
    assert world.state() == "Empty"
    answer = world.answer(world.join(member_id=a, client="a"))
    assert (answer.error, answer.member_id) == (E.UNKNOWN_MEMBER_ID, a)


def test_096_timeouts_that_a_rejoining_member_brings() -> None:
    world = ScenarioWorld()
    (a,) = world.stable("a", session=1_000, rebalance=2_000)
    world.joined(world.join(member_id=a, client="a", session=5_000, rebalance=9_000))
    world.advance(4_999)
    assert world.heartbeat(a, 2) is E.NONE
    world.advance(4_000)
    assert world.heartbeat(a, 2) is E.NONE
    world.advance(1)  # 9000 after the join nobody has synced
    assert world.heartbeat(a, 2) is E.UNKNOWN_MEMBER_ID


def test_098_nobody_rejoins_but_two_seats_are_kept() -> None:
    world = ScenarioWorld()
    times = {"rebalance": 1_000, "session": 1_000_000}
    a, b, c = world.stable("a", "b", "c", instances=True, **times)
    generation = world.group().generation
    world.leave(Leaver(c, "c"))
    for _ in range(2):
        assert world.timers[TimerKey(TimerKind.JOIN, "g")] == world.now_ms + 1_000
        world.advance(1_000)
        assert (world.state(), world.group().generation) == ("PreparingRebalance", generation)
        assert list(world.group().members) == [a, b]
    first = world.join(member_id=a, client="a", instance="a", **times)
    assert world.answer(first) is NO_ANSWER
    second = world.join(member_id=b, client="b", instance="b", **times)
    assert {world.joined(number).generation for number in (first, second)} == {generation + 1}
