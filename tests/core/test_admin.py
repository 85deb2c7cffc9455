"""Describing and listing groups; `s284` is behaviour 284 of the checklist, as in Kafka 4.3."""

from typing import Any

import pytest

from muster.codec.error_codes import ErrorCode
from muster.core.events import DescribeAnswer, DescribedMember, DescribeGroup, ListAnswer, ListedGroup, ListGroups
from muster.core.groups import Group
from muster.core.seats import Seats
from muster.core.states import State
from tests.core.shell import START, OffsetsOnly, Shell
from tests.core.test_offsets import a_group, rebalancing, subscription

CLASSIC = "classic"


class Desk:
    def __init__(self) -> None:
        self.coordinator = OffsetsOnly()
        self.groups = self.coordinator.groups
        self.shell = Shell(self.coordinator)

    def describe(self, group_id: str = "g", version: int = 6) -> Any:
        return self.shell.ask(DescribeGroup("me", group_id, version))

    def listed(self, *, states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> list[str]:
        answer = self.shell.ask(ListGroups("me", states, types))
        assert answer.error is ErrorCode.NONE
        return [group.group_id for group in answer.groups]


@pytest.fixture
def desk() -> Desk:
    return Desk()


def in_state(state: State, group_id: str = "g") -> Group:
    group = a_group(empty_since=START.wall_ms) if state is State.EMPTY else a_group("foo")
    group.group_id = group_id
    if state is State.PREPARING_REBALANCE or state is State.COMPLETING_REBALANCE:
        rebalancing(group, is_joining=state is State.PREPARING_REBALANCE)
    assert group.seats.state is state
    return group


def test_s38_s284_a_group_that_does_not_exist(desk: Desk) -> None:
    assert desk.describe(version=5) == DescribeAnswer(ErrorCode.NONE, "Dead")
    expected = DescribeAnswer(ErrorCode.GROUP_ID_NOT_FOUND, "Dead", message="Group g not found.")
    assert desk.describe(version=6) == expected
    desk.groups["g"] = Group("g", seats=Seats(State.DEAD))
    assert desk.describe(version=6) == expected
    assert desk.listed() == []


def test_s286_a_stable_group_tells_all(desk: Desk) -> None:
    desk.groups["g"] = a_group("foo", instances=("one",))
    member = DescribedMember("member-1", "one", "client", "/127.0.0.1", subscription("foo"), b"mine")
    assert desk.describe() == DescribeAnswer(ErrorCode.NONE, "Stable", "consumer", "range", (member,))


@pytest.mark.parametrize("state", [State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE])
def test_s287_a_rebalancing_group_tells_less(desk: Desk, state: State) -> None:
    desk.groups["g"] = in_state(state)
    member = DescribedMember("member-1", None, "client", "/127.0.0.1", b"", b"mine")
    assert desk.describe() == DescribeAnswer(ErrorCode.NONE, state.value, "consumer", "", (member,))


def test_empty_groups(desk: Desk) -> None:
    desk.groups["g"] = in_state(State.EMPTY)
    desk.groups[""] = Group("")
    assert desk.describe() == DescribeAnswer(ErrorCode.NONE, "Empty", "consumer")
    assert desk.describe("") == DescribeAnswer(ErrorCode.NONE, "Empty")


def test_s288_groups_are_listed_with_type_and_state(desk: Desk) -> None:
    desk.groups["a"] = in_state(State.STABLE, "a")
    desk.groups["b"] = in_state(State.COMPLETING_REBALANCE, "b")
    desk.groups["c"] = Group("c")
    assert desk.shell.ask(ListGroups("me")) == ListAnswer(
        ErrorCode.NONE,
        (
            ListedGroup("a", "consumer", "Stable", CLASSIC),
            ListedGroup("b", "consumer", "CompletingRebalance", CLASSIC),
            ListedGroup("c", "", "Empty", CLASSIC),
        ),
    )


@pytest.mark.parametrize("state", [each for each in State if each is not State.DEAD])
def test_s289_a_filter_of_states(desk: Desk, state: State) -> None:
    desk.groups["g"] = in_state(state)
    assert desk.listed(states=(state.value,)) == ["g"]
    assert desk.listed(states=(f" {state.value.upper()} ",)) == ["g"]
    assert desk.listed(states=tuple(each.value for each in State if each is not state)) == []


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        (("classic",), ["g"]),
        (("Classic",), ["g"]),
        (("consumer",), []),
        (("Invalid",), []),
        (("Invalid", "CLASSIC"), ["g"]),
        (("",), []),
    ],
)
def test_s291_a_filter_of_types(desk: Desk, types: tuple[str, ...], expected: list[str]) -> None:
    desk.groups["g"] = in_state(State.STABLE)
    assert desk.listed(types=types) == expected


def test_s292_no_group_is_in_a_state_that_is_none(desk: Desk) -> None:
    desk.groups["g"] = in_state(State.STABLE)
    assert desk.listed(states=("Invalid",)) == []
    assert desk.listed(states=("Stable",), types=("consumer",)) == []


def test_newer_groups_are_listed_and_not_described(desk: Desk) -> None:
    desk.groups["new"] = Group("new")  # its offsets live here
    desk.coordinator.newer.kinds.update({"new": "consumer", "shared": "share"})
    assert desk.shell.ask(ListGroups("me")).groups == (
        ListedGroup("new", "consumer", "Unknown", "consumer"),
        ListedGroup("shared", "share", "Unknown", "share"),
    )
    assert desk.listed(types=("share", "classic")) == ["shared"]
    expected = DescribeAnswer(ErrorCode.GROUP_ID_NOT_FOUND, "Dead", message="Group new is not a classic group.")
    assert desk.describe("new") == expected
    assert desk.describe("new", version=5) == DescribeAnswer(ErrorCode.NONE, "Dead")
