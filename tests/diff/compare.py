"""Two transcripts of one script: the first place where they differ, and the script up to it.

The oracle is on the left in everything that is printed.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from muster.codec.error_codes import ErrorCode
from tests.diff.on_purpose import Rule, forgiving_rule
from tests.diff.play import Moment, Transcript
from tests.diff.script import Script

ERROR_NAMES = {int(code): code.name for code in ErrorCode}


@dataclass(frozen=True, slots=True)
class Difference:
    """`steps` is how many steps it takes to see it; `where` and the two sides tell what is seen."""

    script: Script
    steps: int
    where: str
    oracle: Any
    ours: Any

    def report(self, oracle_name: str = "kafka", our_name: str = "core") -> str:
        """The script up to the place, and both answers, field by field where they differ."""
        lines = [f"script {self.script.name}", *(f"# {line}" for line in self.script.about.splitlines())]
        lines += [f"{number:>3}  {step}" for number, step in enumerate(self.script.steps[: self.steps])]
        lines.append(f"  -> {self.where}")
        width = max(len(oracle_name), len(our_name))
        for path, left, right in differing(self.oracle, self.ours):
            lines.append(f"     {path or 'all of it'}")
            lines.append(f"       {oracle_name:>{width}}  {_shown(path, left)}")
            lines.append(f"       {our_name:>{width}}  {_shown(path, right)}")
        return "\n".join(lines)


def compare(oracle: Transcript, ours: Transcript, forgiven: set[str] | None = None) -> Difference | None:
    """None if everything that was seen is the same; the names of the rules that were needed join `forgiven`."""
    script = oracle.script
    pardoned: set[int] = set()
    for number in range(len(script.steps)):
        left, right = oracle.told(number), ours.told(number)
        for asked in sorted(right.answers):
            rule = _pardon(script, number, asked, left, right)
            if rule is not None:
                pardoned.add(asked)
                left.answers.pop(asked, None)
                del right.answers[asked]
                if forgiven is not None:
                    forgiven.add(rule.name)
        waiting = tuple(asked for asked in left.parked if asked not in pardoned)
        if left.answers != right.answers or waiting != right.parked:
            return _difference_in(script, number, Moment(left.answers, waiting), right)
    for group in filter(None, script.groups):  # the group without a name is everybody's
        before, after = oracle.records.get(group, []), ours.records.get(group, [])
        if before != after:
            where = f"the records of group {group}"
            return Difference(script, len(script.steps), where, _numbered(before), _numbered(after))
    return None


def _pardon(script: Script, seen: int, asked: int, left: Moment, right: Moment) -> Rule | None:
    """The rule, if there is one, by which this answer of ours may be another than Kafka's, or be there at all."""
    theirs = left.answers.get(asked)
    ours = right.answers[asked]
    if theirs == ours or (theirs is None and asked not in left.parked):
        return None
    error = None if theirs is None else theirs.get("error_code")
    return forgiving_rule(script.steps[seen], script.steps[asked], error, ours.get("error_code"))


def _difference_in(script: Script, number: int, left: Moment, right: Moment) -> Difference:
    asked = sorted(left.answers.keys() | right.answers.keys())
    first = next((each for each in asked if left.answers.get(each) != right.answers.get(each)), None)
    if first is None:
        return Difference(script, number + 1, f"after step {number}, who still waits", left.parked, right.parked)
    where = f"after step {number}, the answer to step {first}: {script.steps[first]}"
    nothing = "no answer"
    one, other = left.answers.get(first, nothing), right.answers.get(first, nothing)
    return Difference(script, number + 1, where, one, other)


def _numbered(records: list[Any]) -> dict[str, Any]:
    return {f"record {number}": record for number, record in enumerate(records)}


NOTHING = object()


def differing(left: Any, right: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The innermost values that differ, with the way to them."""
    if isinstance(left, dict) and isinstance(right, dict):
        for key in dict.fromkeys([*left, *right]):
            yield from differing(left.get(key, NOTHING), right.get(key, NOTHING), f"{path}.{key}".lstrip("."))
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for number, (one, other) in enumerate(zip(left, right, strict=True)):
            yield from differing(one, other, f"{path}[{number}]")
    elif left != right:
        yield path, left, right


def _shown(path: str, value: Any) -> str:
    if value is NOTHING:
        return "nothing"
    if path.endswith("error_code") and value in ERROR_NAMES:
        return f"{ERROR_NAMES[value]}({value})"
    return value if isinstance(value, str) and " " in value else json.dumps(value, default=str)
