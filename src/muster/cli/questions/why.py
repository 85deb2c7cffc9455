"""`muster why GROUP`: one page in words about a group."""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from muster.cli.missing import about_missing
from muster.cli.options import Format
from muster.cli.output import say, write_lines_to_stdout, write_to_stdout
from muster.cli.people import counted, short_members, shown, shown_duration, shown_moment, shown_time
from muster.cli.questions.answering import Asked, ask
from muster.cli.questions.asking import EXITS, are_or_is, moment_of, one_group, tell_compacted
from muster.cli.status import Status
from muster.patterns import exactly
from muster.tables.clocks import iso_time

if TYPE_CHECKING:
    from muster.answers.why import Event, Why
    from muster.tables.reading import Tables

MOST_TOLD = 15
"""Events for people: the newest."""
NO_NAME = "''"
SHORTEST_GAP_MS = 50
"""Without commits, that is told: less is shown as 0.0 s."""
VERDICTS = {
    "OK": "It keeps up",
    "WARN": "It reads, and falls behind: the lag has not shrunk from one commit to the next",
    "STALLED": "It goes on committing, always the same offset: it does not get past a record",
    "STOPPED": "It has ceased to commit, and records wait",
    "REWIND": "It went back to an earlier offset, and has not caught up",
    "LOSING": "Records were deleted before it had read them",
    "EXPIRING": "Its offsets will be deleted soon if nothing is committed",
}
OK_BEHIND = "It reads on; nothing says yet that it falls behind"
ADVICE = {
    "WARN": "Give it more members, up to one for each partition, or look at what takes it so long for a record.",
    "STALLED": "Look at the log of its consumers: the record at the committed offset is read again and again.",
    "STOPPED": "See whether its consumers run, and what they log: they commit nothing.",
    "REWIND": "Find out who reset the offset: these records are read a second time.",
}
"""Where no finding says more."""


def show_why(asked: Asked, pattern: str, since_ms: int | None, length_ms: int) -> Status:
    """What happened is told since a moment, or for a length of time before the moment of the answer."""

    def answer(tables: "Tables") -> Status:
        from muster.answers.status import level_of
        from muster.answers.why import why

        group = one_group(tables, pattern, asked.as_of_ms)
        if group is None:
            return Status.NOTHING_MATCHED
        from_ms = moment_of(tables, asked.as_of_ms) - length_ms if since_ms is None else since_ms
        told = why(tables, group, from_ms, asked.as_of_ms)
        if told is None:
            say(about_missing(tables, exactly(group)) or f"the group '{group}' was not there then.")
            return Status.NOTHING_MATCHED
        tell_compacted(tables, from_ms, asked.as_of_ms)
        if asked.format is Format.JSON:
            write_lines_to_stdout(_object(told).encode("utf-8", "replace"))
        else:
            _write(paragraphs(told, from_ms))
        return EXITS[level_of([told.status.verdict])]

    return ask(asked, answer, "status", "expiry", "verdicts", "findings")


def paragraphs(told: "Why", from_ms: int) -> list[tuple[str, list[str]]]:
    """The page: a heading and lines each."""
    page = [("", [_what_it_is(told)]), ("How it does", _how_it_does(told))]
    page.append((f"What happened since {shown_moment(from_ms)}", _what_happened(told)))
    page.append(("What will happen", [_what_will_happen(told)]))
    page.append(("What to do", _what_to_do(told)))
    return page


def _what_it_is(told: "Why") -> str:
    group = told.group
    members = counted(group.members, "member")
    by = f", assigned by {shown(group.protocol)}" if group.protocol else ""
    generation = "" if group.generation is None else f", generation {group.generation}"
    topics = _listed(group.topics) or "nothing"
    return (
        f"{shown(group.group_id) or NO_NAME} is a {group.type} group, {group.state}{generation}, with {members}{by}. "
        f"It has committed for {counted(group.committed_partitions, 'partition')} of {topics}."
    )


def _how_it_does(told: "Why") -> list[str]:
    status = told.status
    if status.verdict is None:
        return ["Nobody can tell: the ends of its topics were not seen, or it has committed nothing."]
    since = "" if status.verdict_since_ms is None else f", since {shown_moment(status.verdict_since_ms)}"
    where = "" if status.where is None else f" in {shown(status.where)}"
    said = OK_BEHIND if status.verdict == "OK" and status.lag else VERDICTS[status.verdict]
    lines = [f"{status.verdict}{since}. {said}{where}."]
    if status.partitions_not_ok:
        lines.append(f"{are_or_is(status.partitions_not_ok, status.partitions, 'partition')} not OK.")
    if status.lag is not None:
        behind = "" if status.lag_ms is None else f"; the oldest has waited {shown_duration(status.lag_ms)}"
        lines.append("Nothing waits to be read." if not status.lag else f"{_waiting(status.lag)}{behind}.")
    if status.last_commit_ms is not None:
        lines.append(f"Its last commit was at {shown_moment(status.last_commit_ms)}.")
    return lines


def _waiting(records: int) -> str:
    return "1 record waits" if records == 1 else f"{records:,} records wait"


def _what_happened(told: "Why") -> list[str]:
    if not told.events:
        return [f"Nothing but {counted(told.commits, 'commit')}." if told.commits else "Nothing, and no commit either."]
    names = short_members(who[1:] for event in told.events for who in event.who)
    lines = [f"{shown_time(event.at_ms)}  {_told(event, names)}" for event in told.events[-MOST_TOLD:]]
    earlier = told.events_before + max(len(told.events) - MOST_TOLD, 0)
    return [*([f"({earlier:,} earlier; --json has more)"] if earlier else []), *lines]


def _told(event: "Event", names: dict[str, str]) -> str:
    match event.kind:
        case "rebalance" | "return":
            return _moved(event, names)
        case "verdict":
            return f"{event.what} on {counted(event.number or 0, 'partition')}"
        case "rewind":
            within = shown_duration(event.length_ms or 0)
            return f"went back {counted(event.number or 0, 'record')} ({event.what} within {within})"
        case _:
            return f"{counted(event.number or 0, 'offset')} {event.what}"


def _moved(event: "Event", names: dict[str, str]) -> str:
    told = " ".join(f"{each[0]}{names[each[1:]]}" for each in event.who)
    who = f"  {shown(told)}" if told else ""
    if event.kind == "return":
        return f"no rebalance: a {event.what}{who}"
    gap_ms = event.length_ms or 0
    gap = f", nobody committed for {shown_duration(gap_ms)}" if gap_ms >= SHORTEST_GAP_MS else ""
    return f"rebalance: {event.what}, {counted(event.number or 0, 'member')} now{gap}{who}"


def _what_will_happen(told: "Why") -> str:
    expires_ms = told.status.expires_at_ms
    if expires_ms is None:
        return "No offset of it expires as things are."
    return f"Its first offset will be deleted at {shown_moment(expires_ms)} if nothing more is committed."


def _what_to_do(told: "Why") -> list[str]:
    if not told.findings:
        return [ADVICE.get(told.status.verdict or "", "Nothing that muster knows of.")]
    lines = []
    for finding in told.findings:
        lines += [f"{finding.severity}: {shown(finding.sentence)}", f"  {shown(finding.what_to_do)}"]
    return list(dict.fromkeys(lines))


def _listed(names: Sequence[str], most: int = 5) -> str:
    told = [shown(name) for name in names[:most]]
    return ", ".join(told) + (f" and {len(names) - most:,} more topics" if len(names) > most else "")


def _write(page: Iterable[tuple[str, list[str]]]) -> None:
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    console = Console(file=sys.stdout, highlight=False, soft_wrap=not sys.stdout.isatty())
    with console.capture() as written:
        for heading, lines in page:
            if heading:
                console.print(Text(heading, style="bold"))
            for line in lines:
                console.print(Padding(Text(line), (0, 0, 0, 2 if heading else 0)) if sys.stdout.isatty() else Text(
                    f"{'  ' if heading else ''}{line}"
                ))  # fmt: skip
            console.print()
    write_to_stdout(written.get().encode("utf-8", "replace"))


def _object(told: "Why") -> str:
    """The facts, with moments as text."""

    def plain(row: dict[str, object]) -> dict[str, object]:
        lengths = ("lag_ms", "length_ms")
        return {
            name.removesuffix("_ms") if name.endswith("_ms") and name not in lengths else name:
            iso_time(value) if name.endswith("_ms") and name not in lengths and isinstance(value, int) else value
            for name, value in row.items()
        }  # fmt: skip

    whole = {
        "group": told.group._asdict(),
        "status": plain(told.status._asdict()),
        "events": [plain(event._asdict()) for event in told.events],
        "events_before": told.events_before,
        "commits": told.commits,
        "findings": [
            plain(each._asdict()) | {"evidence": None if each.evidence is None else json.loads(each.evidence)}
            for each in told.findings
        ],
    }
    return json.dumps(whole, ensure_ascii=False) + "\n"
