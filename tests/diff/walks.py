"""Walks: a few made-up clients that mostly behave, sometimes do not, and now and then are looked at by somebody.

A walk is made up step by step by playing it to the core, so that a client that was told to join again does so, and one
that lost its seat forgets its id. What comes out is an ordinary script. The same seed gives the same walk as long as
the core gives the same answers.
"""

import random
from dataclasses import dataclass, field
from typing import Any

from tests.diff.core_target import CoreTarget, at_once
from tests.diff.generate import LeaderWatch
from tests.diff.messages import APIS
from tests.diff.play import Player
from tests.diff.script import VERBS, Script, Step, parse_step

PROTOCOLS = (
    "range:t0",
    "range:t0",
    "range:t0,roundrobin:t0",
    "roundrobin:t0,range:t0",
    "range:t0+t1,cooperative-sticky:t1",
    "cooperative-sticky:t1,range:t0+t1",
    "range:t1~more",
)
STEPS = (14, 34)
LOST = {22, 25, 81, 82}
REBALANCING = {27}


@dataclass(slots=True)
class Walker:
    """One client and what it believes."""

    name: str
    instance: str | None
    protocols: str
    wants: str = "join"
    lives: int = 1
    led: list[str] = field(default_factory=list)
    """The names of those it was told to assign something to, when it led."""
    synced: str = "range"

    @property
    def who(self) -> str:
        """The name of its present life: an id that was lost stays with the last one."""
        return self.name if self.lives == 1 else f"{self.name}{self.lives}"


class Walk:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.seed = seed
        self.target = CoreTarget()
        self.player = Player(self.target, "walk.")
        self.watch = LeaderWatch()
        pick = self.random
        kinds = pick.choice(("dynamic", "static", "mixed"))
        self.walkers = [
            Walker(
                name,
                f"i{name}" if kinds == "static" or (kinds == "mixed" and pick.random() < 0.5) else None,
                pick.choice(PROTOCOLS) if pick.random() < 0.4 else PROTOCOLS[0],
            )
            for name in "abcde"[: pick.choice((2, 3, 3, 4, 5))]
        ]
        self.waiting: dict[int, Walker] = {}
        self.producing = False

    def script(self) -> Script:
        """Walk until it is long enough, or until Kafka itself would have to guess."""
        steps: list[Step] = []
        for _ in range(self.random.randint(*STEPS)):
            step = parse_step(self._line())
            moment = at_once(self.player.step(step))
            steps.append(step)
            if self.watch.is_arbitrary(tuple(steps), moment):
                steps.pop()
                break
            for asked, answer in sorted(moment.answers.items()):
                self._heard(asked, steps[asked], answer)
            number = len(steps) - 1
            if number in moment.parked:
                self.waiting[number] = self._walker(step.client)
        look = ["z describe.5 g", "z fetch.8 g offsets=all", "z list.5"]
        return Script(f"walk/{self.seed}", (*steps, *map(parse_step, look)))

    def _walker(self, who: str) -> Walker:
        return next((each for each in self.walkers if each.who == who), self.walkers[0])

    def _heard(self, asked: int, step: Step, answer: dict[str, Any]) -> None:
        waiting = self.waiting.pop(asked, None)
        walker = waiting or next((each for each in self.walkers if each.who == step.client), None)
        if walker is None or walker.who != step.client:
            return
        error = answer.get("error_code")
        if error in LOST:
            walker.lives += 1
            walker.wants = "join"
        elif error in REBALANCING:
            walker.wants = "join"
        elif step.verb == "join" and error == 0:
            walker.wants = "sync"
            walker.synced = answer["protocol_name"] or "range"
            names = {self.player.cast.member_name(each["member_id"]) for each in answer["members"]}
            walker.led = sorted(name for name in names if "?" not in name and "#" not in name)
        elif step.verb == "sync" and error == 0:
            walker.wants = "live"

    # What happens next.

    def _line(self) -> str:
        roll = self.random.random()
        free = [each for each in self.walkers if each not in self.waiting.values()]
        if roll < 0.70 and free:
            return self._behave(self.random.choice(free))
        if roll < 0.86:
            return self._misbehave(self.random.choice(self.walkers))
        if roll < 0.92:
            return self._look()
        return self._transact()

    def _version(self, verb: str, least: int = 0) -> str:
        kind = VERBS[verb]
        first = max(least, kind.first_version)
        last = {"commit": 9, "txncommit": 4, "end": 3}.get(verb)
        return f"{verb}.{self.random.randint(first, APIS[kind.api].max_version if last is None else last)}"

    def _named(self, verb: str, walker: Walker) -> str:
        """The verb in a version in which this client can say who it is, and its saying so."""
        if walker.instance is None:
            return f"{walker.who} {self._version(verb)} g"
        return f"{walker.who} {self._version(verb, VERBS[verb].arguments['instance'])} g instance={walker.instance}"

    def _behave(self, walker: Walker) -> str:
        if walker.wants == "join":
            return f"{self._named('join', walker)} protocols={walker.protocols}"
        if walker.wants == "sync":
            line = self._named("sync", walker)
            if ".5 " in line:
                line += f" protocol={walker.synced}"
            return f"{line} assign={','.join(f'{name}:x{self._byte()}' for name in walker.led)}" if walker.led else line
        roll = self.random.random()
        if roll < 0.45:
            return self._named("heartbeat", walker)
        if roll < 0.75:
            return f"{self._named('commit', walker)} offsets={self._offsets()}"
        if roll < 0.85:
            walker.wants = "join"
            walker.protocols = self.random.choice(PROTOCOLS)
            return self._behave(walker)
        if roll < 0.93:
            line = f"{walker.who} {self._version('leave')} g"
            walker.lives += 1
            walker.wants = "join"
            return line
        walker.lives += 1  # it crashed, and starts anew
        walker.wants = "join"
        return self._behave(walker)

    def _byte(self) -> str:
        return f"{self.random.randrange(256):02x}"

    def _offsets(self) -> str:
        topic, partition = self.random.choice(("t0", "t1")), self.random.randrange(4)
        return f"{topic}/{partition}:{self.random.randrange(1000)}~m{self._byte()}"

    def _misbehave(self, walker: Walker) -> str:
        pick = self.random.choice
        others = [each.who for each in self.walkers]
        member = pick([f" member={pick(others)}", " member=!ghost", " member=", ""])
        generation = pick([f" generation=@{walker.who}+1", f" generation=@{walker.who}-1", " generation=-1", ""])
        instance = pick([f" instance={pick([each.instance or 'ix' for each in self.walkers])}", " instance=ix", "", ""])
        verb = pick(("join", "sync", "heartbeat", "commit", "leave", "leave", "delete"))
        if verb == "delete":
            return f"x {self._version('delete')} g"
        if verb == "leave":
            leavers = [pick([pick(others), "!ghost", f"/{walker.instance or 'ix'}"]) for _ in range(pick((1, 1, 2)))]
            return f"x {self._version('leave', 3)} g members={','.join(leavers)}"
        line = f"{walker.who} {self._version(verb, VERBS[verb].arguments['instance'])} g{member}{instance}"
        if verb == "join":
            return f"{line} protocols={pick((*PROTOCOLS, 'roundrobin:t0', ''))}"
        return f"{line}{generation} offsets={self._offsets()}" if verb == "commit" else f"{line}{generation}"

    def _look(self) -> str:
        return self.random.choice(
            (
                f"z {self._version('describe')} g",
                f"z {self._version('list')}",
                f"z {self._version('fetch', 2)} g offsets=all",
                f"z {self._version('fetch', 7)} g offsets=t0/0,t0/1,t1/0 stable",
                f"z forget.0 g offsets={self.random.choice(('t0', 't1'))}/{self.random.randrange(4)}",
            )
        )

    def _transact(self) -> str:
        if not self.producing:
            self.producing = True
            return f"p {self._version('init')}"
        roll = self.random.random()
        if not any(step.verb == "add" for step in self._since_the_end()):
            return f"p {self._version('add')} g"
        if roll < 0.6:
            return f"p {self._version('txncommit', 3)} g offsets={self._offsets()}"
        return f"p {self._version('end')} outcome={self.random.choice(('commit', 'commit', 'abort'))}"

    def _since_the_end(self) -> list[Step]:
        found: list[Step] = []
        for step in self.player.steps:
            found = [] if step.verb == "end" else [*found, step]
        return found


def walks(count: int, first_seed: int = 0) -> list[Script]:
    return [Walk(seed).script() for seed in range(first_seed, first_seed + count)]
