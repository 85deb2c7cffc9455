"""Play a script against somebody, and write down what was seen.

A `Target` takes requests and says later what came back; it knows nothing of scripts. `play` turns steps into requests,
remembers what each client was told, and keeps a `Moment` for every step: the answers that came, and who still waits.
Nothing is put into words before the end: raw answers are kept, and told in names when they are compared.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.diff.requests import Cast, body_of, told
from tests.diff.script import WAIT, Script, Step

TRANSACTION_VERBS = {"init", "add", "end"}
COMING_UP = {14, 15, 16, 51}
"""What a transaction coordinator says that is not ready: loading, not available, not here, still ending the last."""
MOST_RETRIES = 200

Body = dict[str, Any]


class Target(Protocol):
    """Whom a script is played to. Tickets are the caller's names for requests; all at once share a clock."""

    topic_ids: dict[str, bytes]

    async def send(self, ticket: int, api: str, version: int, client_id: str, body: Body) -> None:
        """Ask; the answer is for `settle` to bring."""

    async def settle(self, expected: set[int]) -> dict[int, Body]:
        """The answers that came since, once nothing more is to be heard for now.

        `expected` only says for whom to have patience: an answer counts whether or not it is in there.
        """

    async def wait(self, milliseconds: int) -> None:
        """Let time pass."""


@dataclass(slots=True)
class Moment:
    """What was seen in one step: answers by the number of the step that asked, and whose requests still wait."""

    answers: dict[int, Body] = field(default_factory=dict)
    parked: tuple[int, ...] = ()


@dataclass(slots=True)
class Transcript:
    """A script as it was played; `records` by group, once somebody has read the log."""

    script: Script
    cast: Cast
    moments: list[Moment] = field(default_factory=list)
    records: dict[str, list[Body]] = field(default_factory=dict)
    end_offsets: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By group: its partition of the offsets topic, and where the log ended when the script did."""
    states: list[dict[str, str]] = field(default_factory=list)
    """By step and group, the state it began in; only known of the core."""

    def told(self, number: int) -> Moment:
        """One step in the words of the script."""
        seen, cast, steps = self.moments[number], self.cast.as_of(number), self.script.steps
        return Moment({asked: told(steps[asked], answer, cast) for asked, answer in seen.answers.items()}, seen.parked)


class Player:
    """One run of a script, step by step; for those who decide on the next step by what came of the last."""

    def __init__(self, target: Target, prefix: str) -> None:
        self.target = target
        self.cast = Cast(prefix, target.topic_ids)
        self.steps: list[Step] = []
        self._outstanding: set[int] = set()

    async def step(self, step: Step, expected: set[int] | None = None) -> Moment:
        """Play one step; without `expected` its own answer is."""
        ticket = len(self.steps)
        self.steps.append(step)
        if step.verb == WAIT:
            await self.target.wait(step.wait_ms)
        elif step.verb in TRANSACTION_VERBS:
            return Moment({ticket: await self._transaction(ticket, step)}, tuple(sorted(self._outstanding)))
        else:
            await self._send(ticket, step)
        answers = await self.target.settle({ticket} if expected is None else expected)
        self._take(answers)
        return Moment(answers, tuple(sorted(self._outstanding)))

    async def _send(self, ticket: int, step: Step) -> None:
        self._outstanding.add(ticket)
        await self.target.send(ticket, step.api, step.version, step.client, body_of(step, self.cast))

    def _take(self, answers: dict[int, Body]) -> None:
        for asked, answer in sorted(answers.items()):
            self._outstanding.discard(asked)
            self.cast.learn(self.steps[asked], answer, len(self.steps) - 1)

    async def _transaction(self, ticket: int, step: Step) -> Body:
        """Ask until the transaction coordinator is ready; the end of a transaction is over when all have heard of it.

        Markers are written behind the answer to EndTxn. A new epoch is given out only once they are all there, so
        asking for one is a way to wait that every coordinator understands.
        """
        answer = await self._ask_until_ready(ticket, step)
        if step.verb == "end" and answer.get("error_code") == 0:
            self.steps[ticket] = fresh = Step(step.client, "init", 4)
            await self._ask_until_ready(ticket, fresh)
            self.steps[ticket] = step
        return answer

    async def _ask_until_ready(self, ticket: int, step: Step) -> Body:
        for _ in range(MOST_RETRIES):
            await self._send(ticket, step)
            answers = await self.target.settle({ticket})
            self._take(answers)
            answer = answers.get(ticket, {"error_code": None})
            if answer.get("error_code") not in COMING_UP:
                return answer
            await self.target.wait(20)
        raise AssertionError(f"{step}: the transaction coordinator is not ready ({answer})")


async def play(
    script: Script,
    target: Target,
    prefix: str,
    expected: list[Moment] | None = None,
    before: Callable[[Cast], None] | None = None,
) -> Transcript:
    """Play a whole script, calling `before` before each step.

    `expected` are somebody else's moments: for whose answers to have patience.
    """
    player = Player(target, prefix)
    transcript = Transcript(script, player.cast)
    for number, step in enumerate(script.steps):
        if before is not None:
            before(player.cast)
        awaited = set(expected[number].answers) if expected is not None else None
        transcript.moments.append(await player.step(step, awaited))
    return transcript
