"""Answers that are found a few elements at a time, so that a loop can do other things in between.

A function that finds one is a generator: it yields where it can be interrupted, and returns the answer. What it has
read before may have changed when it goes on; Kafka looks at partitions one after the other, too.
"""

from collections.abc import Callable, Generator
from typing import Generic, ParamSpec, TypeVar

Given = ParamSpec("Given")
Answer = TypeVar("Answer")
Slices = Generator[None, None, Answer]


def finished(slices: Slices[Answer]) -> Answer:
    """The answer, found at once."""
    while True:
        try:
            next(slices)
        except StopIteration as end:
            answer: Answer = end.value
            return answer


class in_slices(Generic[Given, Answer]):
    """A decorator: a generator that is called as a plain function; `slices` begins it, for those who have time."""

    def __init__(self, slices: Callable[Given, Slices[Answer]]) -> None:
        self.slices = slices
        self.__doc__ = slices.__doc__

    def __call__(self, *given: Given.args, **named: Given.kwargs) -> Answer:
        return finished(self.slices(*given, **named))
