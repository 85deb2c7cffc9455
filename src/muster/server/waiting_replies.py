"""Answers that wait for the log of their partition.

An answer could reveal anything that its partition had appended before it, so it leaves when all of that is durable. The
answers of one turn wait together, behind everything that the turn appended; they leave in the order in which they were
made. An answer that must not leave (the partition is given up, or its log takes too long) goes out as an error instead.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from muster.codec.error_codes import ErrorCode
from muster.core.events import failed, timed_out


class ReplyPlace(Protocol):
    """Where an answer goes: `connection.PendingReply`, one part of it, or a call."""

    def answer(self, answer: Any) -> None:
        """Never raises: a reply that cannot be made ends its own connection."""

    def fail(self, error: Exception) -> None:
        """There is no answer, because of a mistake of ours."""


class Callback:
    """Waits in the place of a reply: `answer` is any function that takes the answer.

    `fail` is that of the reply on whose behalf it waits, or the same function with an error.
    """

    __slots__ = ("answer", "fail")

    def __init__(self, answer: Callable[[Any], None], fail: Callable[[Exception], None]) -> None:
        self.answer = answer
        self.fail = fail


def fail_reply(reply: ReplyPlace, make_answer: Callable[..., Any], *about: Any) -> None:
    """Answer with an error that `make_answer(*about)` makes."""
    try:
        reply.answer(make_answer(*about))
    except Exception as problem:
        reply.fail(problem)


@dataclass(slots=True)
class HeldAnswers:
    """Replies with their answers, which wait until the log is durable up to an offset."""

    end_offset: int
    since_ms: int
    answered: list[tuple[Any, Any]]


class WaitingReplies:
    """Those of one partition."""

    __slots__ = ("_batches", "of_turn")

    def __init__(self) -> None:
        self._batches: deque[HeldAnswers] = deque()
        self.of_turn: list[tuple[Any, Any]] = []
        """Replies with their answers that become a batch at the end of this turn."""

    def __len__(self) -> int:
        return len(self.of_turn) + sum(len(batch.answered) for batch in list(self._batches))

    def wait(self, answered: list[tuple[Any, Any]], end_offset: int, now_ms: int) -> None:
        self._batches.append(HeldAnswers(end_offset, now_ms, answered))

    def end_turn(self, end_offset: int, now_ms: int) -> None:
        if self.of_turn:
            self._batches.append(HeldAnswers(end_offset, now_ms, self.of_turn))
            self.of_turn = []

    def release(self, safe_offset: int) -> None:
        """Let the answers go that reveal nothing from this offset on."""
        batches = self._batches
        while batches and batches[0].end_offset <= safe_offset:
            for reply, answer in batches.popleft().answered:
                reply.answer(answer)

    def fail(self, error: ErrorCode) -> None:
        """Let all go, with an error instead of their answers."""
        answered = [one for batch in self._batches for one in batch.answered] + self.of_turn
        self._batches, self.of_turn = deque(), []
        for reply, answer in answered:
            fail_reply(reply, failed, answer, error)

    def time_out(self, before_ms: int) -> None:
        """Let those go, as errors, that wait since this time or longer."""
        batches = self._batches
        while batches and batches[0].since_ms <= before_ms:
            for reply, answer in batches.popleft().answered:
                fail_reply(reply, timed_out, answer)
