"""Which answers were given in which states: the cells that the scripts together have reached.

    python -m tests.diff.cells docs/differential.md

writes the tables into that page. A cell is the state a group was in when a request arrived, the request, and what
became of it: an error code, or `waits` and the code that it was answered with in the end. The states are read off the
core, which shows them; that the answers are the broker's is what the comparison is for.
"""

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from muster.codec.error_codes import ErrorCode
from tests.diff.core_target import ABSENT, INITIAL, play_to_core
from tests.diff.play import Transcript
from tests.diff.script import VERBS, WAIT, Script

NO_GROUP_ID = "no group id"
STATES = {
    "n": NO_GROUP_ID,
    "a": ABSENT,
    "e": "Empty",
    "i": INITIAL,
    "p": "PreparingRebalance",
    "c": "CompletingRebalance",
    "s": "Stable",
}

# Every answer that a client can get from outside, and in which states (by their letters). An answer that is not in here
# is a surprise; one that is and was not given is a gap. Both fail the test.
POSSIBLE = {
    "join": {
        "-1": "eipcs", "0": "aepcs", "23": "aeipcs", "24": "n", "25": "aeipcs", "26": "aeipcs", "79": "aeipcs",
        "81": "ipcs", "82": "ipcs", "waits, 0": "aeipcs", "waits, 25": "aeipcs", "waits, 82": "aeipcs",
        "waits, no answer": "aeipcs",
    },
    "sync": {
        "-1": "c", "0": "cs", "22": "ipcs", "23": "nipcs", "24": "n", "25": "aeipcs", "27": "ip", "82": "ipcs",
        "waits, -1": "c", "waits, 0": "c", "waits, 25": "c", "waits, 27": "c", "waits, 82": "c",
        "waits, no answer": "c",
    },
    "heartbeat": {"0": "cs", "22": "ipcs", "24": "n", "25": "aeipcs", "27": "ip", "82": "ipcs"},
    "leave": {"0": "eipcs", "24": "n", "25": "aeipcs", "82": "ipcs"},
    "commit": {
        "-1": "aeips", "0": "naeips", "12": "aeips", "22": "aipcs", "25": "eipcs", "27": "c", "69": "a", "82": "ipcs",
    },
    "txncommit": {"-1": "aeipcs", "0": "aeipcs", "12": "aeipcs", "22": "aipcs", "24": "n", "25": "eipcs", "82": "ipcs"},
    "fetch": {"0": "naeipcs", "88": "eipcs"},
    "forget": {"0": "eipcs", "24": "n", "68": "ipcs", "69": "a", "86": "ipcs"},
    "describe": {"0": "naeipcs", "69": "na"},
    "delete": {"0": "ne", "68": "ipcs", "69": "na"},
}  # fmt: skip


class Cell(NamedTuple):
    request: str
    outcome: str
    state: str


def possible() -> set[Cell]:
    return {
        Cell(request, outcome, STATES[letter])
        for request, outcomes in POSSIBLE.items()
        for outcome, letters in outcomes.items()
        for letter in letters
    }


def reached(scripts: Iterable[Script]) -> set[Cell]:
    return {cell for script in scripts for cell in cells(play_to_core(script))}


def cells(transcript: Transcript) -> set[Cell]:
    """Those of one script."""
    found: set[Cell] = set()
    script = transcript.script
    answered = {
        asked: (seen, answer)
        for seen, moment in enumerate(transcript.moments)
        for asked, answer in moment.answers.items()
    }
    for number, step in enumerate(script.steps):
        if step.verb == WAIT or step.verb not in POSSIBLE:
            continue
        seen, answer = answered.get(number, (None, None))
        for group in step.groups:
            state = transcript.states[number][group] if group else NO_GROUP_ID
            group_id = transcript.cast.group_id(group)
            outcomes = {"no answer"} if answer is None else _outcomes(step.verb, answer, group_id)
            waits = "" if seen == number else "waits, "
            found.update(Cell(step.verb, f"{waits}{outcome}", state) for outcome in outcomes)
    return found


def _outcomes(verb: str, answer: dict[str, Any], group_id: str) -> set[str]:
    """Every error that an answer tells of a group, in whatever place."""
    match verb:
        case "join" | "sync" | "heartbeat":
            return {str(answer["error_code"])}
        case "leave":
            return {str(each["error_code"]) for each in answer.get("members", ())} or {str(answer["error_code"])}
        case "commit" | "txncommit":
            return _of_partitions(answer)
        case "forget":
            return _of_partitions(answer) or {str(answer["error_code"])}
        case "fetch":
            of_group = next((each for each in answer.get("groups", ()) if each["group_id"] == group_id), answer)
            return _of_partitions(of_group) or {str(of_group.get("error_code", 0))}
        case "describe":
            of_group = next(each for each in answer["groups"] if each["group_id"] == group_id)
            return {str(of_group["error_code"])}
        case "delete":
            return {str(each["error_code"]) for each in answer["results"] if each["group_id"] == group_id}
    raise AssertionError(VERBS[verb])


def _of_partitions(answer: dict[str, Any]) -> set[str]:
    return {str(each["error_code"]) for topic in answer["topics"] for each in topic["partitions"]}


# The page.

BEGIN, END = "<!-- cells: begin -->\n", "<!-- cells: end -->\n"


def tables(found: set[Cell]) -> str:
    """What can be answered to each request in each state, and whether it was."""
    lines: list[str] = []
    for request, outcomes in POSSIBLE.items():
        lines += [f"| {VERBS[request].api} | {' | '.join(STATES.values())} |", "|---" * (len(STATES) + 1) + "|"]
        for outcome in outcomes:
            marks = [_mark(Cell(request, outcome, state), found) for state in STATES.values()]
            lines.append(f"| {_named(outcome)} | {' | '.join(marks)} |")
        lines.append("")
    return "\n".join(lines)


def _mark(cell: Cell, found: set[Cell]) -> str:
    return "yes" if cell in found else "**no**" if cell in possible() else ""


def _named(outcome: str) -> str:
    return re.sub(r"-?\d+$", lambda code: f"{ErrorCode(int(code[0])).name}({code[0]})", outcome)


def with_tables(page: str, found: set[Cell]) -> str:
    """The page with its tables made anew."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n{tables(found)}\n{END}{rest.partition(END)[2]}"


def main(path: Path) -> None:
    from tests.diff.collection import daily

    page = path.read_text(encoding="utf-8")
    path.write_text(with_tables(page, reached(daily())), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
