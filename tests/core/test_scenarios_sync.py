"""Syncing, ids handed out and the sync timeout: what the checklist's sections H and K say and no other test does."""

import pytest

from muster.codec.error_codes import ErrorCode
from muster.core.events import SyncAnswer
from muster.core.states import State
from tests.scenarios.world import ScenarioWorld

E = ErrorCode
RIGHT = {"protocol_type": "consumer", "protocol_name": "range"}


def awaiting() -> tuple[ScenarioWorld, str, str, int]:
    """Leader and follower of a generation that has no assignment yet."""
    world = ScenarioWorld()
    a, b = world.stable("a", "b")
    return world, a, b, world.rejoin_all(a, b)


def test_146_a_dead_group_has_no_assignments() -> None:
    world = ScenarioWorld()
    (a,) = world.stable("a")
    world.group().state = State.DEAD
    assert world.answer(world.sync(a, 1)).error is E.COORDINATOR_NOT_AVAILABLE


def test_151_leader_and_follower_name_the_right_protocol() -> None:
    world, a, b, generation = awaiting()
    follower = world.sync(b, generation, version=5, **RIGHT)
    leader = world.sync(a, generation, {a: b"0", b: b"1"}, version=5, **RIGHT)
    assert world.answer(leader) == SyncAnswer(E.NONE, b"0", "consumer", "range")
    assert world.answer(follower) == SyncAnswer(E.NONE, b"1", "consumer", "range")


@pytest.mark.parametrize("is_stable", [False, True])
@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({**RIGHT, "protocol_type": "connect"}, id="152"),
        pytest.param({**RIGHT, "protocol_name": "roundrobin"}, id="153"),
    ],
)
def test_152_153_a_wrong_protocol_type_or_name(wrong: dict[str, str], is_stable: bool) -> None:
    world, a, b, generation = awaiting()
    if is_stable:
        world.sync(a, generation)
    appended = len(world.log)
    for member_id in (a, b):
        assert world.answer(world.sync(member_id, generation, **wrong)) == SyncAnswer(E.INCONSISTENT_GROUP_PROTOCOL)
    assert len(world.log) == appended


def test_154_older_clients_do_not_name_it_and_are_told_it() -> None:
    world, a, b, generation = awaiting()
    leader = world.sync(a, generation, {a: b"0", b: b"1"}, version=3)
    follower = world.sync(b, generation, version=3)
    assert world.answer(leader) == SyncAnswer(E.NONE, b"0", "consumer", "range")
    assert world.answer(follower) == SyncAnswer(E.NONE, b"1", "consumer", "range")


@pytest.mark.parametrize(
    ("refusal", "error"),
    [
        pytest.param(E.UNKNOWN_TOPIC_OR_PARTITION, E.COORDINATOR_NOT_AVAILABLE, id="158-3"),
        pytest.param(E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE, id="158-19"),
        pytest.param(E.NOT_ENOUGH_REPLICAS_AFTER_APPEND, E.NOT_ENOUGH_REPLICAS_AFTER_APPEND, id="158-20"),
        pytest.param(E.REQUEST_TIMED_OUT, E.COORDINATOR_NOT_AVAILABLE, id="159"),
        pytest.param(E.CORRUPT_MESSAGE, E.CORRUPT_MESSAGE, id="161"),
        pytest.param(E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR, id="162-not-the-leader"),
        pytest.param(E.NOT_COORDINATOR, E.NOT_COORDINATOR, id="162-no-log"),
    ],
)
def test_158_159_161_162_what_members_hear_when_the_log_refuses(refusal: ErrorCode, error: ErrorCode) -> None:
    world, a, b, generation = awaiting()
    follower, appended = world.sync(b, generation), len(world.log)
    world.refuse_with = refusal
    leader = world.sync(a, generation, {a: b"0", b: b"1"})
    assert [world.answer(number) for number in (leader, follower)] == [SyncAnswer(error)] * 2
    assert (world.state(), len(world.log)) == ("PreparingRebalance", appended)


def test_206_whoever_was_not_waited_for_may_join_later() -> None:
    world = ScenarioWorld()
    (a,) = world.stable("a", rebalance=1_000, session=600_000)
    pending = world.answer(world.join(client="c", session=600_000)).member_id
    parked = world.join(member_id=a, client="a", rebalance=1_000, session=600_000)
    world.advance(999)
    assert world.is_parked(parked)
    world.advance(1)
    assert [each.member_id for each in world.joined(parked).members] == [a]
    world.sync(a, 2)
    number = world.join(member_id=pending, client="c", rebalance=1_000, session=600_000)
    assert (world.is_parked(number), world.state()) == (True, "PreparingRebalance")
    again = world.join(member_id=a, client="a", rebalance=1_000, session=600_000)
    assert [world.joined(each).generation for each in (number, again)] == [3, 3]


def test_209_the_leader_does_not_sync() -> None:
    world = ScenarioWorld()
    times = {"rebalance": 1_000, "session": 600_000}
    a, b, c = world.stable("a", "b", "c", **times)
    generation = world.rejoin_all(a, b, c, **times)
    parked = [world.sync(each, generation) for each in (b, c)]
    world.advance(999)
    assert all(world.is_parked(number) for number in parked)
    world.advance(1)
    assert [world.answer(number) for number in parked] == [SyncAnswer(E.REBALANCE_IN_PROGRESS)] * 2
    assert world.heartbeat(a, generation) is E.UNKNOWN_MEMBER_ID
    assert list(world.group().members) == [b, c]


def test_211_the_sync_timer_of_an_older_generation() -> None:
    world = ScenarioWorld()
    times = {"rebalance": 1_000, "session": 600_000}
    a, b = world.stable("a", "b", **times)
    world.rejoin_all(a, b, **times)
    world.advance(600)
    changed = (("range", b"new"),)
    for name, each in (("a", a), ("b", b)):
        world.join(member_id=each, client=name, protocols=changed, **times)
    assert world.state() == "CompletingRebalance"
    world.advance(400)
    world.fire("sync", "g")  # of the generation before
    assert list(world.group().members) == [a, b]
    assert world.state() == "CompletingRebalance"
    world.advance(599)
    assert list(world.group().members) == [a, b]
    world.advance(1)
    assert world.state() == "Empty"
