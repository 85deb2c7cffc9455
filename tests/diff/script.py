"""A script: what made-up clients ask of a coordinator, one line a step, whoever the coordinator is.

    script stable/heartbeat-of-the-follower
    # A comment, for the reader.
    a join.9 g protocols=range:t0           an id only (MEMBER_ID_REQUIRED)
    a join.9 g protocols=range:t0           with the id it was given: a generation of its own
    a sync.5 g assign=a:x01
    b heartbeat.4 g member=a generation=@a+1
    wait 1500

A line is a client, a verb with the version of the request, the group, and arguments. Nothing in it depends on whom it
is sent to: groups are names that a run puts a prefix of its own before; members go by the name of the client that was
given the id; `@a` is the generation that client `a` was last told. A request that is not answered at once is parked,
and the client's next one goes over another connection. Every step, whatever it asks, records all answers that came
until then and all requests that still wait, so that no step need say what it waits for.

Arguments, and what stands for them when they are left out:

    member      a client's name, `!id` for a literal id, nothing for none; the client's own
    generation  a number, or `@a`, `@a+1`, `@a-1`; the client's own, -1 if it was never told one
    instance    an instance id; none
    protocols   name:subscription,... where a subscription is topics with `+` between them (and `~` user data), or x and
                hex digits; range:t0
    type        a protocol type, `-` for null; consumer
    protocol    (sync) a protocol name, `-` for null; range
    session, rebalance, retention    milliseconds
    assign      member:xHEX,...
    members     (leave) member/instance,...; the client itself
    offsets     topic/partition:offset@epoch~metadata,... ; for reading only topic/partition, or `all`
    stable, operations               flags
    states, types                    filters of a list
    outcome     (end) commit or abort

`3*m` is `mmm` in metadata and user data, `3*x01` is `x010101` in an assignment, and `3*t0/1:5` is said three times. A
step that sends an argument its version has no field for is refused when it is read.
"""

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tests.diff.messages import APIS

WAIT = "wait"


@dataclass(frozen=True, slots=True)
class Verb:
    api: str
    arguments: dict[str, int]
    """What may be said, and from which version on."""
    first_version: int = 0
    many_groups: bool = False
    no_group: bool = False


VERBS = {
    "join": Verb(
        "JoinGroup",
        {"member": 0, "instance": 5, "type": 0, "protocols": 0, "session": 0, "rebalance": 1, "reason": 8},
    ),
    "sync": Verb("SyncGroup", {"member": 0, "generation": 0, "instance": 3, "type": 5, "protocol": 5, "assign": 0}),
    "heartbeat": Verb("Heartbeat", {"member": 0, "generation": 0, "instance": 3}),
    "leave": Verb("LeaveGroup", {"members": 0, "reason": 5}),
    "commit": Verb(
        "OffsetCommit", {"member": 1, "generation": 1, "instance": 7, "retention": 2, "offsets": 0}, first_version=2
    ),
    "fetch": Verb("OffsetFetch", {"offsets": 0, "stable": 7}, first_version=1, many_groups=True),
    "forget": Verb("OffsetDelete", {"offsets": 0}),
    "describe": Verb("DescribeGroups", {"operations": 3}, many_groups=True),
    "list": Verb("ListGroups", {"states": 4, "types": 5}, no_group=True),
    "delete": Verb("DeleteGroups", {}, many_groups=True),
    "init": Verb("InitProducerId", {}, no_group=True),
    "add": Verb("AddOffsetsToTxn", {}),
    "txncommit": Verb("TxnOffsetCommit", {"member": 3, "generation": 3, "instance": 3, "offsets": 0}),
    "end": Verb("EndTxn", {"outcome": 0}, no_group=True),
}
FLAGS = {"stable", "operations"}
LAST_VERSION_OF = {("commit", "retention"): 4}
FIRST_WITH_LEADER_EPOCH = {"commit": 6, "txncommit": 2}
NO_GROUP = '""'
"""The empty group id, as it is written in a script."""


class BadScript(ValueError):
    """A line that means nothing; the text quotes it."""


@dataclass(frozen=True, slots=True)
class Step:
    """One request, or with the verb `wait` the passing of time."""

    client: str
    verb: str
    version: int = 0
    groups: tuple[str, ...] = ()
    arguments: dict[str, str] = field(default_factory=dict)
    wait_ms: int = 0

    @property
    def api(self) -> str:
        return VERBS[self.verb].api

    def __str__(self) -> str:
        if self.verb == WAIT:
            return f"wait {self.wait_ms}"
        words = [self.client, f"{self.verb}.{self.version}"]
        if self.groups:
            words.append(",".join(group or NO_GROUP for group in self.groups))
        for name, value in self.arguments.items():
            words.append(name if name in FLAGS else f"{name}={shlex.quote(value) if value else ''}")
        return " ".join(words)


@dataclass(frozen=True, slots=True)
class Script:
    """`delay_ms` is the initial rebalance delay it was written for; only a coordinator that has it can play it."""

    name: str
    steps: tuple[Step, ...]
    about: str = ""
    delay_ms: int = 0

    @property
    def has_timers(self) -> bool:
        """Whether time matters in it: then a slow machine may upset it."""
        return any(step.verb == WAIT for step in self.steps)

    @property
    def groups(self) -> list[str]:
        return list(dict.fromkeys(group for step in self.steps for group in step.groups))

    def __str__(self) -> str:
        lines = [f"script {self.name}", *(f"# {line}" for line in self.about.splitlines())]
        if self.delay_ms:
            lines.append(f"delay {self.delay_ms}")
        return "\n".join([*lines, *map(str, self.steps)])


def parse_step(line: str) -> Step:
    """Read one line."""
    words = shlex.split(line)
    if words[0] == WAIT:
        return Step("", WAIT, wait_ms=int(words[1]))
    client, asked, *rest = words
    verb, _, number = asked.partition(".")
    if verb not in VERBS:
        raise BadScript(f"no such verb: {line}")
    kind = VERBS[verb]
    version = int(number) if number else APIS[kind.api].max_version
    groups: tuple[str, ...] = ()
    if not kind.no_group:
        groups = tuple(rest.pop(0).split(","))
        if len(groups) > 1 and not kind.many_groups:
            raise BadScript(f"only one group: {line}")
    arguments = {name: value for name, _, value in (word.partition("=") for word in rest)}
    step = Step(client, verb, version, groups, arguments)
    _check(step, kind, line)
    return step


def _check(step: Step, kind: Verb, line: str) -> None:
    if not kind.first_version <= step.version <= APIS[kind.api].max_version:
        raise BadScript(f"no such version: {line}")
    for name in step.arguments:
        if name not in kind.arguments:
            raise BadScript(f"{name} is not an argument: {line}")
        if not kind.arguments[name] <= step.version <= LAST_VERSION_OF.get((step.verb, name), step.version):
            raise BadScript(f"{name} has no place in this version: {line}")
    if "@" in step.arguments.get("offsets", "") and step.version < FIRST_WITH_LEADER_EPOCH.get(step.verb, 0):
        raise BadScript(f"a leader epoch has no place in this version: {line}")
    if step.verb == "fetch" and step.version < 2 and step.arguments["offsets"] == "all":
        raise BadScript(f"only from version 2 on can all be asked for: {line}")


def script(name: str, lines: Iterable[str], about: str = "", delay_ms: int = 0) -> Script:
    """A script from its steps; comments behind `#` and empty lines are left out."""
    bare = (line.partition(" # ")[0].strip() for line in lines if not line.lstrip().startswith("#"))
    return Script(name, tuple(parse_step(line) for line in bare if line), about, delay_ms)


def parse(text: str) -> Iterator[Script]:
    """All scripts of a text, each begun by a line `script NAME`."""
    for block in text.split("\nscript ")[1:]:
        heading, *lines = block.split("\n")
        about = "\n".join(line.lstrip("# ") for line in lines if line.startswith("#"))
        delay_ms = sum(int(line.split()[1]) for line in lines if line.startswith("delay "))
        steps = [line for line in lines if not line.startswith("delay ")]
        yield script(heading.strip(), steps, about, delay_ms)
