"""Keyed timers on a made-up loop."""

from collections.abc import Callable, Hashable

from hypothesis import given
from hypothesis import strategies as st

from muster.server.timers import SWEEP_FROM, Timers


class Loop:
    """Time that passes when told; remembers at most the alarms that were armed."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.alarms: list[LoopAlarm] = []
        self.fired: list[tuple[int, Hashable]] = []
        self.timers = Timers(lambda: self.now_ms, self.arm, lambda key: self.fired.append((self.now_ms, key)))

    def arm(self, delay_ms: int, call: Callable[[], None]) -> "LoopAlarm":
        alarm = LoopAlarm(self.now_ms + delay_ms, call)
        self.alarms.append(alarm)
        return alarm

    def advance(self, milliseconds: int) -> None:
        end = self.now_ms + milliseconds
        while due := [alarm for alarm in self.alarms if not alarm.cancelled and alarm.at_ms <= end]:
            alarm = min(due, key=lambda alarm: alarm.at_ms)
            self.alarms.remove(alarm)
            self.now_ms = max(self.now_ms, alarm.at_ms)
            alarm.call()
        self.now_ms = end


class LoopAlarm:
    def __init__(self, at_ms: int, call: Callable[[], None]) -> None:
        self.at_ms, self.call, self.cancelled = at_ms, call, False

    def cancel(self) -> None:
        self.cancelled = True


def test_fires_once_at_its_time() -> None:
    loop = Loop()
    loop.timers.set("a", 50)
    loop.timers.set("b", 20)
    loop.advance(100)
    assert loop.fired == [(20, "b"), (50, "a")]
    assert len(loop.timers) == 0


def test_the_same_key_again_replaces_it() -> None:
    loop = Loop()
    loop.timers.set("a", 50)
    loop.timers.set("a", 80)
    loop.timers.set("a", 60)
    loop.advance(100)
    assert loop.fired == [(60, "a")]


def test_a_cancelled_one_does_not_fire() -> None:
    loop = Loop()
    loop.timers.set("a", 50)
    loop.timers.cancel("a")
    loop.timers.cancel("never set")
    loop.advance(100)
    assert loop.fired == []


def test_one_set_while_another_fires() -> None:
    loop = Loop()

    def fire(key: Hashable) -> None:
        loop.fired.append((loop.now_ms, key))
        if key == "first":
            loop.timers.set("next", loop.now_ms + 5)

    loop.timers._fire = fire
    loop.timers.set("first", 10)
    loop.advance(100)
    assert loop.fired == [(10, "first"), (15, "next")]


def test_one_that_is_set_again_to_the_same_time_does_not_ring_for_ever() -> None:
    loop = Loop()
    rings = 0

    def fire(key: Hashable) -> None:
        nonlocal rings
        rings += 1
        if rings < 5:  # as the core does when it is told of an earlier time than the timer's
            loop.timers.set(key, 10)

    loop.timers._fire = fire
    loop.timers.set("a", 10)
    loop.now_ms = 10
    loop.timers._ring()
    assert rings == 1
    loop.advance(0)
    assert rings == 5


def test_one_that_fails_keeps_no_other_from_firing() -> None:
    loop, problems = Loop(), []

    def fire(key: Hashable) -> None:
        if str(key).startswith("bad"):
            raise ValueError(key)
        loop.fired.append((loop.now_ms, key))

    loop.timers._fire = fire
    for key in ("a", "bad 1", "b", "bad 2", "c"):
        loop.timers.set(key, 10)
    loop.timers.set("d", 20)
    for _ in range(10):
        try:
            loop.advance(10)
        except ValueError as error:  # an event loop tells of it, and goes on
            problems.append(str(error))
    assert [key for _, key in loop.fired] == ["a", "b", "c", "d"]
    assert problems == ["bad 1", "bad 2"]
    assert len(loop.timers) == 0


def test_a_hundred_thousand_that_are_moved_again_and_again_stay_few() -> None:
    loop = Loop()
    for turn in range(20):
        for key in range(SWEEP_FROM):
            loop.timers.set(key, 1_000 + turn)
    assert len(loop.timers._heap) <= 2 * SWEEP_FROM + 1
    assert len([alarm for alarm in loop.alarms if not alarm.cancelled]) == 1
    loop.advance(2_000)
    assert {key for _, key in loop.fired} == set(range(SWEEP_FROM))
    assert len(loop.fired) == SWEEP_FROM


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 50), st.booleans(), st.integers(0, 10))))
def test_like_a_dict_of_deadlines(steps: list[tuple[str, int, bool, int]]) -> None:
    loop = Loop()
    model: dict[str, int] = {}
    expected: list[tuple[int, str]] = []
    for key, delay_ms, cancels, wait_ms in steps:
        if cancels:
            loop.timers.cancel(key)
            model.pop(key, None)
        else:
            loop.timers.set(key, loop.now_ms + delay_ms)
            model[key] = loop.now_ms + delay_ms
        end = loop.now_ms + wait_ms
        due = sorted((deadline, each) for each, deadline in model.items() if deadline <= end)
        expected += due
        for _, each in due:
            del model[each]
        loop.advance(wait_ms)
    assert sorted(map(str, loop.fired)) == sorted(map(str, expected))
