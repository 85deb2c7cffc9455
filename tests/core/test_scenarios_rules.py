"""Rules between the numbered behaviours: easy to get nearly right, and seen by somebody if they are not."""

import pytest

from muster.codec.error_codes import ErrorCode
from muster.codec.offsets_topic import GroupValue, MemberValue
from muster.core.events import Leaver, SyncAnswer, TimerKey, TimerKind
from muster.core.seats import Seats
from muster.core.states import State
from tests.scenarios.world import ScenarioWorld

E = ErrorCode


def test_the_first_member_brings_a_protocol_type() -> None:
    world = ScenarioWorld()
    assert world.answer(world.join(protocol_type="")).error is E.INCONSISTENT_GROUP_PROTOCOL


def test_an_old_member_without_a_rebalance_timeout_has_that_of_its_session() -> None:
    old = MemberValue("m", None, "c", "/h", -1, 10_000, b"", b"")
    group = Seats.recorded(GroupValue("consumer", 1, "range", "m", 5, (old,)))
    assert group.rebalance_timeout_ms == 10_000


def test_a_rebalance_ends_when_the_id_it_waits_for_runs_out() -> None:
    world = ScenarioWorld()
    (a,) = world.stable("a")
    world.join(client="b", session=1_000)
    number = world.join(member_id=a, client="a")
    world.advance(999)
    assert world.is_parked(number)
    world.advance(1)
    assert [each.member_id for each in world.joined(number).members] == [a]


def test_a_join_timer_that_is_early_ends_nothing() -> None:
    world = ScenarioWorld()
    (a,) = world.stable("a", rebalance=1_000)
    number, _ = world.join_new(client="b", rebalance=1_000)
    world.advance(999)
    world.fire("join", "g")  # of the rebalance before, on its way when that ended
    assert world.is_parked(number)
    assert world.timers[TimerKey(TimerKind.JOIN, "g")] == world.now_ms + 1
    world.advance(1)
    world.joined(number)
    assert a not in world.group().members


def test_a_loaded_group_of_the_largest_size_is_left_alone() -> None:
    before = ScenarioWorld()
    before.stable("a", "b")
    assert before.reloaded(group_max_size=2).state() == "Stable"
    assert before.reloaded(group_max_size=1).state() == "PreparingRebalance"


def test_a_parked_join_keeps_its_id_when_the_partition_moves() -> None:
    world = ScenarioWorld()
    world.stable("a")
    number, b = world.join_new(client="b")
    world.move_away()
    answer = world.answer(number)
    assert (answer.error, answer.member_id) == (E.NOT_COORDINATOR, b)


def test_assignments_are_forgotten_by_a_rebalance_that_comes_before_the_next_ones() -> None:
    world = ScenarioWorld()
    a, b = world.stable("a", "b")
    generation = world.rejoin_all(a, b)
    assert [each.assignment for each in world.describe().members] == [a.encode(), b.encode()]
    world.sync(b, generation)
    world.join_new(client="c")
    assert [each.assignment for each in world.describe().members] == [b"", b"", b""]


@pytest.mark.parametrize(("member_id", "error"), [("wrong", E.FENCED_INSTANCE_ID), ("", E.FENCED_INSTANCE_ID)])
def test_who_somebody_is_comes_before_of_which_generation(member_id: str, error: ErrorCode) -> None:
    world = ScenarioWorld()
    (a,) = world.stable("a", instances=True)
    for of, instance, expected in ((member_id, "a", error), ("ghost", None, E.UNKNOWN_MEMBER_ID)):
        assert world.answer(world.sync(of, 7, instance_id=instance)).error is expected
        assert world.heartbeat(of, 7, instance=instance) is expected
        assert world.commit(42, member=of, generation=7, instance=instance) is expected
    assert world.answer(world.sync(a, 7, instance_id="a")).error is E.ILLEGAL_GENERATION
    assert world.heartbeat(a, 7, instance="a") is E.ILLEGAL_GENERATION
    assert world.commit(42, member=a, generation=7, instance="a") is E.ILLEGAL_GENERATION


def test_an_assignment_is_for_its_own_generation() -> None:
    world = ScenarioWorld()
    a, b = world.stable("a", "b")
    generation = world.rejoin_all(a, b)
    world.hold_appends = True
    late = world.sync(a, generation, {a: b"late", b: b"late"})
    for each in (a, b):
        world.join(member_id=each, client=each[0], protocols=(("range", b"new"),))
    assert world.answer(late).error is E.REBALANCE_IN_PROGRESS
    assert (world.state(), world.group().generation) == ("CompletingRebalance", generation + 1)
    parked = world.sync(b, generation + 1)
    world.release_appends()
    assert world.is_parked(parked)
    leader = world.sync(a, generation + 1, {a: b"0", b: b"1"})
    assert [world.answer(number).assignment for number in (leader, parked)] == [b"0", b"1"]


def test_an_assignment_of_a_follower_is_not_looked_at() -> None:
    world = ScenarioWorld()
    a, b = world.stable("a", "b")
    generation = world.rejoin_all(a, b)
    follower, appended = world.sync(b, generation, {a: b"mine", b: b"mine"}), len(world.log)
    assert world.is_parked(follower)
    leader = world.sync(a, generation, {})
    assert [world.answer(number) for number in (leader, follower)] == [SyncAnswer(E.NONE, b"", "consumer", "range")] * 2
    assert len(world.log) == appended + 1


def test_nobody_leaves_a_dead_group() -> None:
    world = ScenarioWorld()
    (a,) = world.stable("a")
    world.group().state = State.DEAD
    answer = world.leave(Leaver(a))
    assert (answer.error, answer.members) == (E.COORDINATOR_NOT_AVAILABLE, ())


def test_leaving_with_an_id_that_was_only_handed_out_moves_no_empty_group() -> None:
    world = ScenarioWorld()
    pending = world.answer(world.join(client="a")).member_id
    appended = len(world.log)
    assert world.leave(Leaver(pending)).members[0].error is E.NONE
    assert (world.state(), world.group().generation, len(world.log)) == ("Empty", 0, appended)
