"""`group.max.size` is 4: what the checklist's section G says and no other test does."""

from muster.codec.error_codes import ErrorCode
from tests.core.world import NO_ANSWER
from tests.scenarios.world import ScenarioWorld

E = ErrorCode


def full(**settings: int) -> ScenarioWorld:
    return ScenarioWorld(group_max_size=4, **settings)


def test_134_the_fifth_gets_no_id() -> None:
    world = full()
    world.stable(*"abcd")
    answer = world.answer(world.join(client="e"))
    assert (answer.error, answer.member_id) == (E.GROUP_MAX_SIZE_REACHED, "")
    assert not world.group().pending_members


def test_136_five_join_and_rejoin() -> None:
    world = full(group_initial_rebalance_delay_ms=50)
    ids = ["", "", "", "", ""]
    for _ in range(2):  # the second time while the assignment is awaited
        numbers = [world.join(member_id=each, client="c", version=3) for each in ids]
        world.advance(100)
        answers = [world.answer(number) for number in numbers]
        assert [answer.error for answer in answers] == [E.NONE] * 4 + [E.GROUP_MAX_SIZE_REACHED]
        ids = [answer.member_id for answer in answers]
        assert ids[4] == ""
        assert list(world.group().members) == ids[:4]


def test_137_five_static_ones() -> None:
    world = full(group_initial_rebalance_delay_ms=50)
    numbers = [world.join(client=name, instance=name) for name in "abcde"]
    world.advance(100)
    assert [world.answer(number).error for number in numbers] == [E.NONE] * 4 + [E.GROUP_MAX_SIZE_REACHED]
    assert sorted(world.group().static_members) == ["a", "b", "c", "d"]


def test_138_a_parked_member_asks_again() -> None:
    world = full(group_initial_rebalance_delay_ms=50)
    first, *_ = [world.join_new(client=name) for name in "abcd"]
    number, member_id = first
    again = world.join(member_id=member_id, client="a")
    assert world.is_parked(again)
    world.advance(100)
    world.joined(again)
    assert world.answer(number) is NO_ANSWER


def test_139_six_were_loaded_and_four_are_left() -> None:
    before = ScenarioWorld()
    ids = before.stable(*"abcdef", rebalance=1_000)
    generation = before.group().generation
    world = before.reloaded(group_max_size=4)
    assert world.state() == "PreparingRebalance"
    numbers = [world.join(member_id=each, client=each[0], rebalance=1_000) for each in ids]
    assert [world.answer(number).error for number in numbers[4:]] == [E.GROUP_MAX_SIZE_REACHED] * 2
    assert list(world.group().members) == ids[:4]
    world.advance(1_000)
    assert [world.joined(number).generation for number in numbers[:4]] == [generation + 1] * 4
