"""Patterns of transactional ids, in a time that grows with the pattern and the id and with nothing else.

Kafka matches with RE2, which never goes back; Python's `re` does, and a client could have it go back for hours. So a
pattern is read by Python's own parser and matched here, by a walk over the states that it can be in. What RE2 does not
know (references back, looks ahead) is refused, and so is a pattern that becomes very large.

Where a character leads from a set of states is found once and remembered, as far as there is room. What has to be found
anew is counted: a pattern made for a great many sets (`(a|b)*a(a|b){400}`) is given up, as `TooCostly`.
"""

import re
import warnings
from collections.abc import Callable, Iterable
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

from muster.server.slices import Slices, finished

MOST_STATES = 1_000
MOST_REMEMBERED = 10_000
MOST_LOOKED_AT = 1_000_000
"""States, of all sets that are found; about a second."""
_FOR_EVER = codes.MAXREPEAT
Test = Callable[[str], bool]


class BadPattern(Exception):
    """It means nothing, or nothing that is served."""


class TooCostly(Exception):
    """Whether ids match is too much work to find out."""


def matcher(pattern: str) -> "Matcher":
    """Says whether a whole id matches a pattern. Raises `BadPattern`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            parsed = parser.parse(_as_python_has_it(pattern))
    except (re.error, RecursionError, OverflowError, Warning) as error:
        raise BadPattern(str(error)) from error
    automaton = _Automaton(bool(parsed.state.flags & re.IGNORECASE))
    try:
        end = automaton.add_all(parsed, 0)
    except RecursionError as error:
        raise BadPattern("it is too deep") from error
    return Matcher(automaton, end)


def _as_python_has_it(pattern: str) -> str:
    """RE2 quotes with \\Q and \\E, and may leave the P out of a named group."""
    quoted = re.sub(r"\\Q(.*?)(?:\\E|$)", lambda found: re.escape(found[1]), pattern, flags=re.DOTALL)
    return re.sub(r"\(\?<(?![=!])", "(?P<", quoted)


class _Automaton:
    """States by number. From each one goes on freely, or by a character that passes a test."""

    def __init__(self, ignores_case: bool) -> None:
        self._ignores_case = ignores_case
        self._free: list[list[int]] = [[]]
        self._steps: list[tuple[Test, int] | None] = [None]
        self._at: dict[int, tuple[Any, int]] = {}

    def _new(self) -> int:
        if len(self._free) >= MOST_STATES:
            raise BadPattern("it is too large")
        self._free.append([])
        self._steps.append(None)
        return len(self._free) - 1

    def add_all(self, items: Any, start: int) -> int:
        for item in items:
            start = self._add(item, start)
        return start

    def _add(self, item: Any, start: int) -> int:
        """States for one item behind `start`; returns where it ends."""
        code, about = item
        if code is codes.BRANCH:
            end = self._new()
            for branch in about[1]:
                begin = self._new()
                self._free[start].append(begin)
                self._free[self.add_all(branch, begin)].append(end)
            return end
        if code is codes.SUBPATTERN:
            _, added, removed, items = about
            before = self._ignores_case
            self._ignores_case = (before or bool(added & re.IGNORECASE)) and not removed & re.IGNORECASE
            end = self.add_all(items, start)
            self._ignores_case = before
            return end
        if code in (codes.MAX_REPEAT, codes.MIN_REPEAT):
            least, most, items = about
            return self._repeat(least, most, items, start)
        end = self._new()
        if code is codes.AT and about in (codes.AT_BEGINNING, codes.AT_END):
            self._at[start] = about, end
        else:
            test = _test(code, about, self._ignores_case)
            if self._steps[start] is not None or start in self._at:
                begin = self._new()
                self._free[start].append(begin)
                start = begin
            self._steps[start] = test, end
        return end

    def _repeat(self, least: int, most: int, items: Any, start: int) -> int:
        for _ in range(least):
            start = self.add_all(items, self._behind(start))
        if most is _FOR_EVER:
            loop, end = self._behind(start), self._new()
            self._free[self.add_all(items, loop)].append(loop)
            self._free[loop].append(end)
            return end
        end = self._new()
        for _ in range(most - least):
            start = self._behind(start)
            self._free[start].append(end)
            start = self.add_all(items, start)
        self._free[start].append(end)
        return end

    def _behind(self, start: int) -> int:
        state = self._new()
        self._free[start].append(state)
        return state

    def reached(self, states: Iterable[int], is_begin: bool, is_end: bool) -> list[int]:
        """These states, and those to which one gets from them without a character."""
        found = dict.fromkeys(states)
        for state in (left := list(found)):
            following = list(self._free[state])
            if state in self._at:
                where, end = self._at[state]
                if is_begin if where is codes.AT_BEGINNING else is_end:
                    following.append(end)
            for one in following:
                if one not in found:
                    found[one] = None
                    left.append(one)
        return left

    def behind(self, states: Iterable[int], character: str) -> list[int]:
        """Where a character leads from these states."""
        moved = {step[1]: None for one in states if (step := self._steps[one]) is not None and step[0](character)}
        return self.reached(moved, False, False)


class _Node:
    """A set of states, and where characters lead from it as far as is known; None is nowhere."""

    __slots__ = ("moves", "states")

    def __init__(self, states: frozenset[int]) -> None:
        self.states = states
        self.moves: dict[str, _Node | None] = {}


class Matcher:
    """Called with an id; `slices` is the same for those who have other things to do. Raises `TooCostly`."""

    def __init__(self, automaton: _Automaton, end: int) -> None:
        self._automaton = automaton
        self._end = end
        self._looked_at = 0
        self._forget()

    def _forget(self) -> None:
        self._remembered = 0
        self._nodes: dict[frozenset[int], _Node] = {}
        self._first = _Node(frozenset(self._automaton.reached([0], True, False)))

    def __call__(self, text: str) -> bool:
        return finished(self.slices(text))

    def slices(self, text: str) -> Slices[bool]:
        node = self._first
        for character in text:
            if character in node.moves:
                following = node.moves[character]
            else:
                following = self._move(node, character)
                yield
            if following is None:
                return False
            node = following
        return self._end in self._automaton.reached(node.states, not text, True)

    def _move(self, node: _Node, character: str) -> _Node | None:
        self._looked_at += len(node.states)
        if self._looked_at > MOST_LOOKED_AT:
            raise TooCostly
        if self._remembered >= MOST_REMEMBERED:
            self._forget()
        self._remembered += 1
        states = frozenset(self._automaton.behind(node.states, character))
        following = self._nodes.setdefault(states, _Node(states)) if states else None
        node.moves[character] = following
        return following


def _test(code: Any, about: Any, ignores_case: bool) -> Test:
    if code is codes.ANY:
        return "\n".__ne__
    if code is codes.NOT_LITERAL:
        is_it = _test(codes.LITERAL, about, ignores_case)
        return lambda character: not is_it(character)
    if code is codes.IN:
        is_other = about[0][0] is codes.NEGATE
        tests = [_test(kind, of_it, ignores_case) for kind, of_it in about[is_other:]]
        return lambda character: any(test(character) for test in tests) is not is_other
    if code is codes.CATEGORY and about in _KINDS:
        compiled = re.compile(_KINDS[about], re.ASCII)
        return lambda character: compiled.match(character) is not None
    if code not in (codes.LITERAL, codes.RANGE):
        raise BadPattern(f"{code} is not served")
    low, high = (about, about) if code is codes.LITERAL else about
    first, last = chr(low), chr(high)
    if not ignores_case:
        return lambda character: first <= character <= last
    return lambda character: any(first <= one <= last for one in (character, character.lower(), character.upper()))


_KINDS = {
    codes.CATEGORY_DIGIT: r"\d", codes.CATEGORY_NOT_DIGIT: r"\D", codes.CATEGORY_WORD: r"\w",
    codes.CATEGORY_NOT_WORD: r"\W", codes.CATEGORY_SPACE: r"\s", codes.CATEGORY_NOT_SPACE: r"\S",
}  # fmt: skip
