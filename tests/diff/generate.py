"""Scripts by the hundred: every request variant fired into every state, and walks of made-up clients.

The systematic ones have a prelude that brings a group into a state, the request in question, a look at what came of it
(describe, heartbeats), and an attempt to go on (everybody joins again and the leader syncs), which shows what a
look cannot: who is still waited for, who leads, which generation it is.

Kafka picks a new leader by the order of a hash map when there is more than one to choose from. A script ends before
such a choice: nobody could say which answer is right.
"""

import re
import zlib
from collections.abc import Callable, Iterator

from tests.diff.core_target import CoreTarget, at_once
from tests.diff.play import Moment, play
from tests.diff.preludes import Prelude, Variant, preludes, variants
from tests.diff.script import Script, Step, script


def systematic(wanted: Callable[[str], bool] = lambda name: True) -> Iterator[Script]:
    """Every variant of every request, in every state in which there is somebody to send it; or some, by their names."""
    for prelude in preludes():
        for variant in variants():
            name = f"{prelude.name}/{variant.request}/{variant.name}"
            if variant.makes_sense_after(prelude) and wanted(name):
                yield without_arbitrary_leaders(_script(name, prelude, variant))


def _script(name: str, prelude: Prelude, variant: Variant) -> Script:
    who = {letter: prelude.says(letter) for letter in "abc"}
    lines = [*prelude.lines, *(line.format(**who) for line in variant.lines), *_look(prelude)]
    if not prelude.delay_ms:
        lines += _go_on(prelude)
    versioned = [_with_versions(line, f"{name}{number}") for number, line in enumerate(lines)]
    return script(name, versioned, delay_ms=prelude.delay_ms)


def _members(prelude: Prelude) -> list[str]:
    return [each for each in prelude.people if each in "ab"]


def _look(prelude: Prelude) -> list[str]:
    beats = [f"{each} heartbeat.3-4 g{prelude.says(each)}" for each in _members(prelude)]
    return ["z describe.4-6 g", *beats]


def _go_on(prelude: Prelude) -> list[str]:
    kind = "" if prelude.kind == "consumer" else f" type={prelude.kind}"
    joins = [f"{each} join.5-9 g{prelude.says(each)}{kind}" for each in _members(prelude)]
    syncs = [f"{each} sync.3-4 g{prelude.says(each)} assign=a:x71,b:x72" for each in _members(prelude)]
    return [*joins, *syncs, "z describe.4-6 g"]


def _with_versions(line: str, salt: str) -> str:
    def chosen(found: re.Match[str]) -> str:
        low, high = int(found[1]), int(found[2])
        return f".{low + zlib.crc32(salt.encode()) % (high - low + 1)} "

    return re.sub(r"\.(\d+)-(\d+)(?: |$)", chosen, line).strip()


def without_arbitrary_leaders(whole: Script) -> Script:
    """As much of a script as has only one right answer."""
    moments = at_once(play(whole, CoreTarget(whole.delay_ms), "x.")).moments
    watch = LeaderWatch()
    for number, moment in enumerate(moments):
        if watch.is_arbitrary(whole.steps[: number + 1], moment):
            return Script(whole.name, whole.steps[:number], whole.about, whole.delay_ms)
    return whole


class LeaderWatch:
    """Notices when a new leader had to be chosen among several."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, str]] = {}

    def is_arbitrary(self, steps: tuple[Step, ...], moment: Moment) -> bool:
        """Whether a generation began in this moment whose leader could have been another.

        The leader of the last generation stays if it has come. A generation without anybody lies between two that do
        not follow each other: then the first to join leads.
        """
        joined: dict[tuple[str, int], list[tuple[str, str]]] = {}
        for asked, answer in moment.answers.items():
            if steps[asked].verb == "join" and answer.get("error_code") == 0:
                key = steps[asked].groups[0], answer["generation_id"]
                joined.setdefault(key, []).append((answer["member_id"], answer["leader"]))
        found = False
        for (group, generation), members in sorted(joined.items()):
            last_generation, last_leader = self._last.get(group, (-1, ""))
            came = {member for member, _ in members}
            is_next = generation == last_generation + 1
            found = found or (is_next and last_leader not in came and len(came) > 1)
            self._last[group] = generation, members[0][1]
        return found
