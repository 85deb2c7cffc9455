"""`muster history`: what happened to a group, in order."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from muster.cli.missing import about_missing
from muster.cli.output import say
from muster.cli.people import short_members, shown_duration
from muster.cli.questions.answering import Asked, ask, write_rows
from muster.cli.questions.asking import moment_of, need_history, one_group, tell_compacted
from muster.cli.status import Status
from muster.cli.tabular import Column, Kind, Table
from muster.patterns import exactly
from muster.tables.clocks import zone_name

if TYPE_CHECKING:
    from muster.answers.history import Event
    from muster.tables.reading import Tables


def show_history(asked: Asked, pattern: str, since_ms: int | None, length_ms: int) -> Status:
    """Oldest first; people see the last events. Since a moment, or for a length of time; None and 0: all."""

    def answer(tables: "Tables") -> Status:
        from muster.answers.history import Event, history

        need_history(tables)
        group_id = one_group(tables, pattern, asked.as_of_ms)
        if group_id is None:
            return Status.NOTHING_MATCHED
        from_ms = moment_of(tables, asked.as_of_ms) - length_ms if length_ms else since_ms
        events = history(tables, group_id, from_ms, as_of_ms=asked.as_of_ms)
        tell_compacted(tables, from_ms or 0, asked.as_of_ms)
        if not events:
            say(about_missing(tables, exactly(group_id)) or f"nothing is known of {group_id} in that time.")
            return Status.NOTHING_MATCHED
        most = asked.limit or len(events)
        write_rows(asked, events[-most:], Event, _table)
        if len(events) > most:
            say(f"{len(events) - most:,} earlier events. --limit 0 shows all, --since TIME those of a time.")
        return Status.OK

    return ask(asked, answer)


def _table(events: Sequence["Event"]) -> Table:
    names = short_members(name for event in events for name in (*event.joined, *event.left))
    columns = (
        Column(f"AT ({zone_name()})", "at_ms", Kind.TIME_MS),
        Column("EVENT", "kind"),
        Column("WHAT", "who"),
    )
    return Table(columns, [(event.at_ms, event.kind, in_words(event, names)) for event in events])


def in_words(event: "Event", names: dict[str, str]) -> str:
    """An event in a few words."""
    if event.kind == "commits":
        length_ms = event.until_ms - event.at_ms
        return f"{event.number:,} {'commit' if event.number == 1 else 'commits'}" + (
            f" in {shown_duration(length_ms)}" if length_ms else ""
        )
    if event.kind == "rebalance":
        return _rebalance(event, names)
    place = event.topic or ""
    place += f"-{event.partition}" if event.partition is not None else f", {event.number:,} partitions"
    if event.kind == "verdict":
        return f"{event.cause}: {place}"
    if event.offset_before is not None and event.offset_after is not None:
        back = event.offset_before - event.offset_after
        return f"{place} from {event.offset_before:,} to {event.offset_after:,}, {back:,} back"
    return place


def _rebalance(event: "Event", names: dict[str, str]) -> str:
    who = [*(f"+{names[one]}" for one in event.joined), *(f"-{names[one]}" for one in event.left)]
    words = f"{event.cause or 'cause unknown'}, {event.members or 0:,} {'member' if event.members == 1 else 'members'}"
    words += f": {' '.join(who)}" if who else ""
    return words + (f"; {shown_duration(event.commit_gap_ms)} without commits" if event.commit_gap_ms else "")
