"""Who waits and who gives way when there is no room for requests or answers."""

from muster.server import connections
from muster.server.connections import GIVE_WAY_S, RESERVE_BYTES, Intake, Unread

LIMIT = 8 << 20
MEGABYTE = 1 << 20


class Fake:
    """A connection as far as the pool knows it."""

    def __init__(self, world: "World", name: str) -> None:
        self._world = world
        self.name = name
        self.unfinished_since: float | None = None
        self.is_muted = False

    def holds(self, held_bytes: int) -> None:
        if self.unfinished_since is None:
            self.unfinished_since = self._world.now_s
        self.is_muted = not self._world.intake.borrow(self, held_bytes + RESERVE_BYTES)

    def piles_up(self, held_bytes: int) -> None:
        """Whole requests behind one that waits."""
        self.is_muted = not self._world.intake.borrow(self, held_bytes + RESERVE_BYTES)

    def finishes(self) -> None:
        self.unfinished_since = None
        self._world.intake.give_back(self)

    def unmute(self) -> None:
        self.is_muted = False

    def drop(self, problem: str) -> None:
        self._world.dropped.append(self.name)
        self._world.intake.give_back(self)


class World:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.intake = Intake(LIMIT, 60_000, lambda: self.now_s)
        self.dropped: list[str] = []
        self.all: list[Fake] = []

    def connect(self, name: str) -> Fake:
        self.all.append(Fake(self, name))
        return self.all[-1]

    def pass_s(self, seconds: float) -> None:
        self.now_s += seconds
        self.intake.check([one for one in self.all if one.name not in self.dropped])


def test_one_who_would_borrow_too_much_waits_until_another_has_finished() -> None:
    world = World()
    first, second = world.connect("first"), world.connect("second")
    first.holds(LIMIT)
    assert not first.is_muted
    second.holds(MEGABYTE)
    assert second.is_muted
    world.pass_s(1)
    assert second.is_muted
    first.finishes()
    assert not second.is_muted
    assert world.dropped == []
    second.finishes()
    assert (world.intake.borrowed_bytes, world.intake.muted) == (0, 0)


def test_there_is_room_for_everybody_in_turn() -> None:
    """However many wait, they are not all let in for one byte of room."""
    world = World()
    holder = world.connect("holder")
    holder.holds(LIMIT - connections.READ_BYTES)
    crowd = [world.connect(str(number)) for number in range(20)]
    for one in crowd:
        one.holds(connections.READ_BYTES)
    assert sum(one.is_muted for one in crowd) == 19
    holder.finishes()
    assert 0 < sum(one.is_muted for one in crowd) < 19
    for one in crowd:
        one.finishes()
    assert (world.intake.borrowed_bytes, world.intake.muted) == (0, 0)


def test_when_nobody_comes_to_an_end_those_who_send_nothing_give_way_first() -> None:
    world = World()
    silent = [world.connect(f"silent {number}") for number in range(4)]
    for number, one in enumerate(silent):
        one.holds(MEGABYTE - 3 + number)
    large = world.connect("large, and sends on")
    large.holds(5 * MEGABYTE)
    assert large.is_muted
    world.pass_s(GIVE_WAY_S - 1)
    assert world.dropped == []
    world.pass_s(1)
    assert world.dropped == ["silent 3", "silent 2"], "the largest first, and not more than are needed for an eighth"
    world.pass_s(1)
    assert not large.is_muted


def test_requests_that_have_only_begun_do_not_give_way() -> None:
    world = World()
    holders = [world.connect(str(number)) for number in range(12)]
    for one in holders:
        one.holds(MEGABYTE)
    for _ in range(20):
        world.pass_s(GIVE_WAY_S - 1)
        for one in holders:
            one.finishes()
            one.holds(MEGABYTE)
    assert world.dropped == []


def test_one_who_was_not_read_from_has_all_its_time_when_it_is() -> None:
    world = World()
    holder, honest, next_one = world.connect("holder"), world.connect("honest"), world.connect("next")
    honest.holds(10)
    world.pass_s(1)
    for _ in range(30):
        holder.holds(LIMIT)
        honest.holds(10)
        world.pass_s(GIVE_WAY_S - 1)
        holder.finishes()
    assert not honest.is_muted
    holder.holds(LIMIT)
    next_one.holds(MEGABYTE)
    world.pass_s(GIVE_WAY_S - 1)
    assert world.dropped == [], "two minutes have gone by, and it could not have sent more in any of them"


def test_what_is_piled_up_behind_a_request_that_waits_gives_way_too() -> None:
    world = World()
    waiting = [world.connect(f"waits {number}") for number in range(8)]
    for one in waiting:
        one.piles_up(MEGABYTE)
    honest = world.connect("honest")
    honest.holds(MEGABYTE)
    assert honest.is_muted
    world.pass_s(GIVE_WAY_S)
    world.pass_s(1)
    assert not honest.is_muted
    assert world.dropped == ["waits 0", "waits 1"]


def test_a_request_has_its_time() -> None:
    world = World()
    slow, quick = world.connect("slow"), world.connect("quick")
    slow.holds(10)
    world.pass_s(59)
    quick.holds(10)
    assert world.dropped == []
    world.pass_s(2)
    assert world.dropped == ["slow"]


def test_answers_that_nobody_reads() -> None:
    world = World()
    unread = Unread(10 * MEGABYTE)
    first, second, third = (world.connect(name) for name in ("first", "second", "third"))
    unread.full(first, 4 * MEGABYTE)
    unread.full(second, 4 * MEGABYTE)
    unread.drained(first)
    unread.full(first, 4 * MEGABYTE)
    assert world.dropped == []
    unread.full(third, 4 * MEGABYTE)
    assert world.dropped == ["second"], "the one that has not read for longest"
