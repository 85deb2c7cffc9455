"""Groups by themselves: what the checklist's sections A and T say and no other test does."""

import pytest

from muster.codec.error_codes import ErrorCode
from muster.codec.offsets_topic import GroupKey, GroupValue, decode_key, decode_value
from muster.core.events import JoinGroup, Leaver
from muster.core.outcome import Outcome
from muster.core.seats import Member, Seats
from muster.core.states import State
from tests.scenarios.world import ScenarioWorld

E = ErrorCode


def member(name: str, *protocols: str, instance: str | None = None) -> Member:
    return Member(name, instance, "c", "/h", 10_000, 60_000, tuple((protocol, b"") for protocol in protocols))


# A. Records.


def test_016_027_an_empty_group_as_it_is_written_and_read() -> None:
    world = ScenarioWorld()
    (a,) = world.stable("a")
    world.leave(Leaver(a))
    record, _ = world.log[-1]
    assert decode_key(record.key) == GroupKey("g")
    assert record.value is not None
    assert decode_value(2, record.value)[0] == 3
    group = world.reloaded().group()
    assert (group.state, group.generation, group.protocol_type) == (State.EMPTY, 2, "consumer")
    assert (group.leader, group.protocol, group.subscribed_topics) == (None, None, frozenset())


def test_028_a_simple_group_has_no_type_when_it_is_read() -> None:
    group = Seats.recorded(GroupValue("", 0, None, None))
    assert (group.protocol_type, group.generation, group.subscribed_topics) == (None, 0, None)
    written = group.value()
    assert (written.protocol_type, written.generation) == ("", 0)


# T. The model.


def test_357_a_dead_group_may_die_again() -> None:
    world = ScenarioWorld()
    (a,) = world.stable("a")
    group = world.coordinator.groups["g"]
    world.move_away()
    group.seats.move(State.DEAD, world.wall_ms)
    world.coordinator.rebalancing.end(group, Outcome())
    assert (group.seats.state, list(group.seats.members)) == (State.DEAD, [a])


def test_362_the_next_generation_with_members_and_without() -> None:
    world = ScenarioWorld()
    (a,) = world.stable("a")
    world.joined(world.join(member_id=a, client="a"))
    group = world.group()
    assert (group.generation, group.protocol, group.state) == (2, "range", State.COMPLETING_REBALANCE)
    world.leave(Leaver(a))
    assert (group.generation, group.protocol, group.state) == (3, None, State.EMPTY)


@pytest.mark.parametrize(("silent", "leader"), [("a", "b"), ("b", "a"), ("c", "a")])
def test_363_whoever_leads_is_there(silent: str, leader: str) -> None:
    world = ScenarioWorld()
    times = {"rebalance": 1_000, "session": 600_000}
    ids = dict(zip("abc", world.stable("a", "b", "c", instances=True, **times), strict=True))
    for name in "cba".replace(silent, ""):
        changed = (("range", b"new"),)
        number = world.join(member_id=ids[name], client=name, instance=name, protocols=changed, **times)
    world.advance(1_000)
    assert world.joined(number).leader == ids[leader] == world.group().leader


def test_364_an_id_is_of_a_member_or_handed_out() -> None:
    world = ScenarioWorld()
    (a,) = world.stable("a")
    pending = world.answer(world.join(client="b")).member_id
    group = world.group()
    assert list(group.pending_members) == [pending]
    world.join(member_id=pending, client="b")
    assert (list(group.pending_members), list(group.members)) == ([], [a, pending])
    world.join(member_id=a, client="a")
    assert group.rebalance is not None
    assert group.rebalance.pending_sync == {a, pending}
    world.leave(Leaver(pending))
    world.joined(world.join(member_id=a, client="a"))
    assert (group.rebalance.pending_sync, group.pending_members) == ({a}, {})


def test_364_a_member_is_not_handed_out_again() -> None:
    world = ScenarioWorld()
    (a,) = world.stable("a")
    range_only = (("range", b""),)
    number, fresh_uuid = world.next_number(), a.removeprefix("a-")  # as if a random number came up twice
    again = JoinGroup(number, 9, "g", "", fresh_uuid, "a", "/h", 10_000, 60_000, "consumer", range_only)
    with pytest.raises(AssertionError, match=a):
        world.ask(again)


def test_366_nobody_takes_the_seat_of_nobody() -> None:
    group = Seats()
    group.add(member("a", "range", instance="shelf"), "consumer")
    with pytest.raises(AssertionError, match="stranger"):
        group.rename(member("stranger", "range", instance="shelf"), "successor")


def test_367_a_new_generation_waits_for_its_own_members_alone() -> None:
    world = ScenarioWorld()
    a, b = world.stable("a", "b")
    generation = world.rejoin_all(a, b)
    world.sync(b, generation)
    assert world.group().rebalance.pending_sync == {a}
    for each in (a, b):
        world.join(member_id=each, client=each[0], protocols=(("range", b"new"),))
    assert world.group().generation == generation + 1
    assert world.group().rebalance.pending_sync == {a, b}


@pytest.mark.parametrize(
    ("offered", "matches"),
    [
        ((("b", b"2"), ("a", b"1")), False),
        ((("a", b"1"),), False),
        ((("a", b"9"), ("b", b"2")), False),
        ((("a", b"1"), ("b", b"2")), True),
    ],
)
def test_368_which_lists_are_the_same(offered: tuple[tuple[str, bytes], ...], matches: bool) -> None:
    world = ScenarioWorld()
    _, b = world.stable("a", "b", protocols=(("a", b"1"), ("b", b"2")))
    number = world.join(member_id=b, client="b", protocols=offered)
    assert world.is_parked(number) is not matches
    assert (world.state() == "Stable") is matches
