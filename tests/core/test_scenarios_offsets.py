"""Commits in flight and clean-up: what the checklist's sections L and S say and no other test does."""

from muster.codec.error_codes import ErrorCode
from muster.codec.offsets_topic import GroupKey, OffsetKey
from tests.scenarios.world import ScenarioWorld

E = ErrorCode
WEEK_MS = 7 * 86_400_000


def two_in_flight() -> tuple[ScenarioWorld, int, int]:
    """Two commits to one partition, decided and not yet taken by the log."""
    world = ScenarioWorld()
    world.commit(1)
    world.hold_appends = True
    numbers = []
    for offset in (41, 42):
        assert world.commit(offset) is None
        numbers.append(world.last_number())
    assert world.fetch(0, stable=True) == {0: 1}
    return world, numbers[0], numbers[1]


def test_222_a_commit_in_a_rebalance_keeps_the_session() -> None:
    world = ScenarioWorld()
    (a,) = world.stable("a", session=1_000)
    world.join_new(client="b")
    world.advance(900)
    assert world.commit(42, member=a, generation=1) is E.NONE
    world.advance(999)
    assert a in world.group().members
    assert world.fetch(0) == {0: 42}


def test_233_the_first_of_two_commits_in_flight_is_refused() -> None:
    world, first, second = two_in_flight()
    world.refuse_with = E.NOT_ENOUGH_REPLICAS
    world.release_appends()
    assert (world.error_of(first), world.error_of(second)) == (E.COORDINATOR_NOT_AVAILABLE, E.NONE)
    assert world.fetch(0, stable=True) == {0: 42}


def test_234_two_commits_in_flight_come_one_after_the_other() -> None:
    """As 4.x answers: a commit in flight makes nothing unstable, because whoever asks for that waits for the log."""
    world, first, second = two_in_flight()
    last = world.held.pop()
    world.release_appends()
    assert (world.error_of(first), world.error_of(second)) == (E.NONE, None)
    assert world.fetch(0, stable=True) == {0: 41}
    world.held.append(last)
    world.release_appends()
    assert world.error_of(second) is E.NONE
    assert world.fetch(0, stable=True) == {0: 42}


def test_353_a_refused_clean_up_holds_nobody_up() -> None:
    """As 4.x does: what the log refused is still there, and goes the next time."""
    world = ScenarioWorld()
    for group_id in ("g", "h"):
        assert world.commit(42, group_id=group_id) is E.NONE
    world.advance(WEEK_MS)
    world.refuse_with = E.NOT_ENOUGH_REPLICAS
    world.expire()
    assert world.records()[2:] == [(OffsetKey("h", "t", 0), None), (GroupKey("h"), None)]
    assert (world.fetch(0), world.fetch(0, group_id="h")) == ({0: 42}, {0: -1})
    world.expire()
    assert world.records()[4:] == [(OffsetKey("g", "t", 0), None), (GroupKey("g"), None)]
    assert world.fetch(0) == {0: -1}
