"""`muster why GROUP`: one page in words about a group."""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from muster.cli.missing import about_missing
from muster.cli.options import DEBUG, STORAGE_OPTION, TABLES, option, storage_options
from muster.cli.output import say, write_lines_to_stdout, write_to_stdout
from muster.cli.people import iso_time, short_members, shown, shown_duration, shown_moment, shown_time
from muster.cli.questions.asking import AS_OF, EXITS, check_known, moment, need_tables, now_ms, opened, tell_moment
from muster.cli.questions.completion import complete_group
from muster.cli.status import Status

if TYPE_CHECKING:
    from muster.answers.why import Event, Why

EPILOG = """
[bold]Examples[/bold]

What happened to a group, and what is to be done?
  [cyan]muster why orders-app --tables tables[/cyan]

And what would it have said yesterday, of the week before?
  [cyan]muster why orders-app --tables tables --as-of 'yesterday 14:05' --since 7d[/cyan]
"""

GROUP = typer.Argument(metavar="GROUP", autocompletion=complete_group, help="The group.", show_default=False)
SINCE = option("--since", metavar="TIME", help="From when on events are told: 6h, 14:05, yesterday. Default: 24h.")
AS_JSON = option("--json", help="One object: the facts behind the words.")
MOST_TOLD = 15
"""Events for people: the newest."""
VERDICTS = {
    "OK": "It keeps up",
    "WARN": "It reads, and falls behind: the lag has not shrunk from one commit to the next",
    "STALLED": "It goes on committing, always the same offset: it does not get past a record",
    "STOPPED": "It has ceased to commit, and records wait",
    "REWIND": "It went back to an earlier offset, and has not caught up",
    "LOSING": "Records were deleted before it had read them",
    "EXPIRING": "Its offsets will be deleted soon if nothing is committed",
}


def why(
    group: Annotated[str, GROUP],
    tables: Annotated[str, TABLES] = ...,  # type: ignore[assignment]  # typer's way to say that it is needed
    storage_option: Annotated[list[str] | None, STORAGE_OPTION] = None,
    since: Annotated[str | None, SINCE] = None,
    as_of: Annotated[str | None, AS_OF] = None,
    as_json: Annotated[bool, AS_JSON] = False,
    debug: Annotated[bool, DEBUG] = False,
) -> Status:
    """One page in words: what this group is, how it does and since when, what happened to it, and what to do.

    Exits like `muster status`: 0 all well, 10 a warning, 11 an error.
    """
    from muster.answers.status import level_of
    from muster.answers.why import why as asked_why

    as_of_ms = moment(as_of)
    from_ms = moment(since or "24h", "--since") or 0
    if as_of_ms is not None and since is None:
        from_ms = as_of_ms - (now_ms() - from_ms)
    with opened(tables, storage_options(storage_option)) as found:
        need_tables(found, "status", "expiry", "verdicts", "findings")
        check_known(found, as_of_ms)
        told = asked_why(found, group, from_ms, as_of_ms)
        if told is None:
            say(about_missing(found, group) or f"the group '{group}' was not there then.")
            return Status.NOTHING_MATCHED
        tell_moment(found, as_of_ms)
    if as_json:
        write_lines_to_stdout(_object(told).encode("utf-8", "replace"))
    else:
        _write(paragraphs(told, from_ms))
    return EXITS[level_of([told.status.verdict])]


def paragraphs(told: "Why", from_ms: int) -> list[tuple[str, list[str]]]:
    """The page: a heading and lines each."""
    page = [("", [_what_it_is(told)]), ("How it does", _how_it_does(told))]
    page.append((f"What happened since {shown_moment(from_ms)}", _what_happened(told)))
    page.append(("What will happen", [_what_will_happen(told)]))
    page.append(("What to do", _what_to_do(told)))
    return page


def _what_it_is(told: "Why") -> str:
    group = told.group
    members = _count(group.members, "member")
    by = f", assigned by {group.protocol}" if group.protocol else ""
    generation = "" if group.generation is None else f", generation {group.generation}"
    topics = _listed(group.topics) or "nothing"
    return (
        f"{shown(group.group_id)} is a {group.type} group, {group.state}{generation}, with {members}{by}. "
        f"It has committed for {_count(group.committed_partitions, 'partition')} of {topics}."
    )


def _how_it_does(told: "Why") -> list[str]:
    status = told.status
    if status.worst is None:
        return ["Nobody can tell: the ends of its topics were not seen, or it has committed nothing."]
    since = "" if status.verdict_since_ms is None else f", since {shown_moment(status.verdict_since_ms)}"
    where = "" if status.where is None else f" in {shown(status.where)}"
    lines = [f"{status.worst}{since}. {VERDICTS[status.worst]}{where}."]
    if status.partitions_not_ok:
        lines.append(f"{status.partitions_not_ok} of {_count(status.partitions, 'partition')} are not OK.")
    if status.lag is not None:
        behind = "" if status.lag_ms is None else f"; the oldest has waited {shown_duration(status.lag_ms)}"
        lines.append("Nothing waits to be read." if not status.lag else f"{status.lag:,} records wait{behind}.")
    if status.last_commit_ms is not None:
        lines.append(f"Its last commit was at {shown_moment(status.last_commit_ms)}.")
    return lines


def _what_happened(told: "Why") -> list[str]:
    if not told.events:
        return ["Nothing but commits."]
    names = short_members(who[1:] for event in told.events for who in event.who)
    lines = [f"{shown_time(event.at_ms)}  {_told(event, names)}" for event in told.events[-MOST_TOLD:]]
    earlier = told.events_before + max(len(told.events) - MOST_TOLD, 0)
    return [*([f"({earlier:,} earlier; --json has more)"] if earlier else []), *lines]


def _told(event: "Event", names: dict[str, str]) -> str:
    match event.kind:
        case "rebalance":
            who = " ".join(f"{each[0]}{names[each[1:]]}" for each in event.who)
            gap = "" if not event.length_ms else f", nobody committed for {shown_duration(event.length_ms)}"
            members = _count(event.number or 0, "member")
            return f"rebalance: {event.what}, {members} now{gap}{f'  {shown(who)}' if who else ''}"
        case "verdict":
            return f"{event.what} on {_count(event.number or 0, 'partition')}"
        case "rewind":
            return f"went back {event.number or 0:,} records ({event.what} within five minutes)"
        case _:
            return f"{_count(event.number or 0, 'offset')} {event.what}"


def _what_will_happen(told: "Why") -> str:
    expires_ms = told.status.expires_at_ms
    if expires_ms is None:
        return "No offset of it expires as things are."
    return f"Its first offset will be deleted at {shown_moment(expires_ms)} if nothing more is committed."


def _what_to_do(told: "Why") -> list[str]:
    if not told.findings:
        return ["Nothing that muster knows of."]
    lines = []
    for finding in told.findings:
        lines += [f"{finding.severity}: {shown(finding.sentence)}", f"  {shown(finding.what_to_do)}"]
    return list(dict.fromkeys(lines))


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


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
        "findings": [
            plain(each._asdict()) | {"evidence": None if each.evidence is None else json.loads(each.evidence)}
            for each in told.findings
        ],
    }
    return json.dumps(whole, ensure_ascii=False) + "\n"
