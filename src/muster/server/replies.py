"""Answers about several groups that become one answer to a client, within a limit."""

from collections.abc import Callable
from typing import Any


class Gather:
    """Answers to several events that are one answer to the client, and within a limit.

    A client may name a group many times, and Kafka answers each time: the event is the same then, is asked once, and
    its answer has several places. One that finds no room left is replaced by a refusal before the next is asked for.
    """

    def __init__(self, count: int, then: Callable[[list[Any]], None], room: "Room") -> None:
        self._answers: list[Any] = [None] * count
        self._left = count
        self._waiting: tuple[Callable[[list[Any]], None], Room] | None = (then, room)

    def put(self, places: list[int], answer: Any) -> None:
        if self._waiting is None:
            return
        then, room = self._waiting
        answer = room.taken(answer, len(places))
        for place in places:
            self._answers[place] = answer
        self._left -= len(places)
        if not self._left:
            self._waiting = None  # whoever waits may know the parts, and those know us
            then(self._answers)


class Room:
    """How much of an answer there may still be: `refused` stands for what is too large."""

    def __init__(self, max_bytes: int, size_of: Callable[[Any], int], refused: Any, tell: Callable[[], None]) -> None:
        self._left_bytes = max_bytes
        self._size_of = size_of
        self._refused = refused
        self._tell = tell

    def taken(self, answer: Any, times: int = 1) -> Any:
        """The answer, if there is room to give it so many times."""
        size_bytes = self._size_of(answer) * times
        if size_bytes <= self._left_bytes:
            self._left_bytes -= size_bytes
            return answer
        self._tell()
        return self._refused


class Part:
    """One of several who wait for the same."""

    __slots__ = ("_gather", "_places", "event")

    def __init__(self, gather: Gather, places: list[int], event: Any) -> None:
        self._gather = gather
        self._places = places
        self.event = event

    def answer(self, answer: Any) -> None:
        self.event = None  # which knows us
        self._gather.put(self._places, answer)
