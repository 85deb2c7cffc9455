"""Static members: what the checklist's section F says and no other test does."""

from typing import Any

import pytest

from muster.codec.error_codes import ErrorCode
from muster.core.events import Leaver
from muster.core.states import State
from tests.scenarios.world import ScenarioWorld

E = ErrorCode
LONG: dict[str, Any] = {"rebalance": 1_000, "session": 600_000}


def replaced_leader() -> tuple[ScenarioWorld, str, int]:
    """A stable pair whose leader has restarted; the leader's old id and the generation."""
    world = ScenarioWorld()
    a, _ = world.stable("a", "b", instances=True)
    world.joined(world.join(client="a", instance="a"))
    assert world.state() == "Stable"
    return world, a, world.group().generation


def test_103_a_single_member_rejoins_before_it_has_synced() -> None:
    world = ScenarioWorld()
    number = world.join(client="a", instance="a")
    world.advance(0)
    a = world.joined(number).member_id
    assert world.state() == "CompletingRebalance"
    again = world.joined(world.join(member_id=a, client="a", instance="a"))
    assert (again.member_id, again.generation, world.state()) == (a, 1, "CompletingRebalance")
    assert world.answer(world.sync(a, 1, {a: b"all"}, instance_id="a")).assignment == b"all"
    assert world.state() == "Stable"


def test_106_the_old_id_of_a_restarted_leader_is_fenced() -> None:
    world, old_id, generation = replaced_leader()
    assert world.answer(world.join(member_id=old_id, client="a", instance="a")).error is E.FENCED_INSTANCE_ID
    assert world.answer(world.sync(old_id, generation, instance_id="a")).error is E.FENCED_INSTANCE_ID


def test_107_and_unknown_where_it_does_not_say_its_instance() -> None:
    world, old_id, generation = replaced_leader()
    assert world.answer(world.sync(old_id, generation)).error is E.UNKNOWN_MEMBER_ID


def test_111_a_subset_of_protocols_and_the_old_id_afterwards() -> None:
    world = ScenarioWorld()
    _, b = world.stable("a", "b", instances=True, protocols=(("range", b""), ("roundrobin", b"")))
    generation = world.group().generation
    answer = world.joined(world.join(client="b", instance="b", protocols=(("range", b""),)))
    assert (answer.generation, world.state()) == (generation, "Stable")
    assert world.heartbeat(b, generation, instance="b") is E.FENCED_INSTANCE_ID
    assert world.heartbeat(answer.member_id, generation, instance="b") is E.NONE


def test_111_a_list_that_changes_the_choice_starts_a_rebalance() -> None:
    world = ScenarioWorld()
    world.stable("a", "b", instances=True, protocols=(("range", b""), ("roundrobin", b"")))
    number = world.join(client="b", instance="b", protocols=(("roundrobin", b""),))
    assert world.is_parked(number)
    assert world.state() == "PreparingRebalance"


def test_114_both_restart_with_doubled_timeouts() -> None:
    world = ScenarioWorld()
    world.stable("a", "b", instances=True, session=10_000, rebalance=60_000)
    generation = world.group().generation
    again: dict[str, Any] = {"session": 20_000, "rebalance": 120_000}
    b, a = (world.joined(world.join(client=name, instance=name, **again)).member_id for name in "ba")
    assert (world.group().generation, world.state()) == (generation, "Stable")
    timeouts = {(each.session_timeout_ms, each.rebalance_timeout_ms) for each in world.group().members.values()}
    assert timeouts == {(20_000, 120_000)}
    world.advance(9_999)
    assert world.heartbeat(a, generation, instance="a") is E.NONE
    world.advance(1)  # the old length, as b has not been heard of
    assert b not in world.group().members
    world.advance(19_997)
    assert a in world.group().members  # the new one, since its heartbeat
    world.advance(2)
    assert a not in world.group().members


def test_116_a_silent_follower_is_carried_over() -> None:
    world = ScenarioWorld()
    a, b = world.stable("a", "b", instances=True, **LONG)
    generation = world.group().generation
    number = world.join(member_id=a, client="a", instance="a", **LONG)
    assert world.is_parked(number)
    assert world.state() == "PreparingRebalance"
    world.advance(1_000)
    answer = world.joined(number)
    assert (answer.generation, answer.leader) == (generation + 1, a)
    assert [each.member_id for each in answer.members] == [a, b]


def test_117_a_silent_follower_with_a_short_session_is_gone() -> None:
    world = ScenarioWorld()
    a, b = world.stable("a", "b", instances=True, rebalance=1_000, session=500)
    generation = world.group().generation
    number = world.join(member_id=a, client="a", instance="a", rebalance=1_000, session=100_000)
    world.advance(499)
    assert b in world.group().members
    world.advance(501)
    answer = world.joined(number)
    assert (answer.generation, answer.leader) == (generation + 1, a)
    assert [each.member_id for each in answer.members] == [a] == list(world.group().members)


def test_118_the_follower_that_came_leads_both() -> None:
    world = ScenarioWorld()
    a, b = world.stable("a", "b", instances=True, **LONG)
    generation = world.group().generation
    number = world.join(member_id=b, client="b", instance="b", protocols=(("range", b"new"),), **LONG)
    world.advance(1_000)
    answer = world.joined(number)
    assert (answer.generation, answer.leader) == (generation + 1, b)
    assert [(each.member_id, each.instance_id, each.metadata) for each in answer.members] == [
        (a, "a", b""), (b, "b", b"new"),
    ]  # fmt: skip


def test_121_a_commit_of_a_wrong_id_is_fenced() -> None:
    world = ScenarioWorld()
    world.stable("a", "b", instances=True)
    generation = world.group().generation
    assert world.commit(42, member="wrong", generation=generation, instance="a") is E.FENCED_INSTANCE_ID
    assert world.fetch() == {}


def test_122_a_static_member_may_be_silent_about_its_instance() -> None:
    world = ScenarioWorld()
    ids = world.stable("a", "b", instances=True)
    assert {world.heartbeat(each, world.group().generation) for each in ids} == {E.NONE}


def test_123_an_instance_that_nobody_has() -> None:
    world = ScenarioWorld()
    (a,) = world.stable("a")
    assert world.heartbeat(a, 1, instance="nobody") is E.UNKNOWN_MEMBER_ID
    assert world.commit(42, member=a, generation=1, instance="nobody") is E.UNKNOWN_MEMBER_ID


def test_126_a_dead_group_seats_no_static_member_either() -> None:
    world = ScenarioWorld()
    (a,) = world.stable("a", instances=True)
    world.group().state = State.DEAD
    answer = world.answer(world.join(member_id=a, client="a", instance="a"))
    assert answer.error is E.COORDINATOR_NOT_AVAILABLE


def test_127_an_instance_without_a_member_is_our_own_mistake() -> None:
    world = ScenarioWorld()
    (a,) = world.stable("a", instances=True)
    world.leave(Leaver(a, "a"))
    world.group().static_members["shelf"] = a
    with pytest.raises(AssertionError, match=r"(?s)\bg\b.*shelf|shelf.*\bg\b"):
        world.join(client="a", instance="shelf")


@pytest.mark.parametrize("who", ["a", "b"])
def test_128_129_a_third_joins_and_one_of_two_rejoins(who: str) -> None:
    world = ScenarioWorld()
    a, b = world.stable("a", "b", instances=True, **LONG)
    generation = world.group().generation
    third = world.join(client="c", instance="c", **LONG)
    rejoined = world.join(member_id=a if who == "a" else b, client=who, instance=who, **LONG)
    assert world.is_parked(rejoined)
    world.advance(1_000)
    answers = [world.joined(number) for number in (rejoined, third)]
    assert {answer.generation for answer in answers} == {generation + 1}
    (leader,) = {answer.leader for answer in answers}
    assert leader == a if who == "a" else leader in {answer.member_id for answer in answers}
    (told,) = [answer for answer in answers if answer.members]
    assert told.member_id == leader
    assert [each.instance_id for each in told.members] == ["a", "b", "c"]


def test_132_the_session_of_the_last_silent_member_ends() -> None:
    world = ScenarioWorld()
    a, b = world.stable("a", "b", instances=True, rebalance=1_000, session=5_000)
    generation = world.group().generation
    world.leave(Leaver(a, "a"))
    world.advance(4_999)
    assert (world.state(), list(world.group().members)) == ("PreparingRebalance", [b])
    world.advance(1)
    group = world.group()
    assert (group.state.value, group.generation, group.leader, group.members) == ("Empty", generation + 1, None, {})


def test_133_a_static_member_that_shuts_down_without_a_word() -> None:
    world = ScenarioWorld()
    a, b = world.stable("a", "b", instances=True, session=5_000)
    generation = world.group().generation
    world.advance(4_999)
    assert world.heartbeat(a, generation, instance="a") is E.NONE
    assert list(world.group().members) == [a, b]
    world.advance(1)
    assert list(world.group().members) == [a]
    assert world.heartbeat(a, generation, instance="a") is E.REBALANCE_IN_PROGRESS
