"""`muster lag`: who is behind, since when, and how that came."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from muster.cli.output import say
from muster.cli.people import counted, shown_duration
from muster.cli.questions.answering import Asked, ask, write_rows
from muster.cli.questions.asking import are_or_is, moment_of, tell_compacted
from muster.cli.status import Status
from muster.cli.tabular import Column, Kind, Shown, Table
from muster.tables.clocks import calendar_time, zone_name

if TYPE_CHECKING:
    from muster.answers.lag import GroupLag, PartitionLag, Window
    from muster.tables.reading import Tables

UNSEEN = "?"
"""In place of a moment: behind, and it is not known since when."""
LEVELS = "▁▂▃▄▅▆▇█"
MOST_TRENDS = 200
"""Groups of which history is looked through."""


def show_lag(asked: Asked, since_ms: int | None, length_ms: int, by_partition: bool) -> Status:
    """The furthest behind first: groups, or partitions where one group is named."""

    def answer(tables: "Tables") -> Status:
        from muster.answers.lag import Window

        until_ms = moment_of(tables, asked.as_of_ms)
        window = Window(min(since_ms or until_ms - length_ms, until_ms), until_ms)
        tell_compacted(tables, window.since_ms, asked.as_of_ms)
        _tell_drawn(tables, asked)
        _tell_not_kept(tables, asked)
        return _partitions(asked, tables, window) if asked.is_of_one or by_partition else _groups(asked, tables, window)

    return ask(asked, answer)


def _tell_drawn(tables: "Tables", asked: Asked) -> None:
    if asked.as_of_ms is None or not asked.format.is_for_people:
        return
    relation = tables.relation("lag", asked.as_of_ms, asked.groups)
    if tables.asked(f"SELECT 1 FROM {relation} l WHERE log_end_by = 'interpolated' LIMIT 1"):
        say("log ends are drawn between the looks before and after that moment, and lags by them.")


def _tell_not_kept(tables: "Tables", asked: Asked) -> None:
    not_kept = tables.not_kept("lag_history")
    if not_kept and asked.format.is_for_people:
        say(not_kept)


def _groups(asked: Asked, tables: "Tables", window: "Window") -> Status:
    from muster.answers.lag import GroupLag, group_lags, with_trends

    lags = group_lags(tables, asked.groups, asked.as_of_ms)
    most = asked.shown_rows if asked.format.is_for_people else asked.limit
    shown = with_trends(tables, lags[:MOST_TRENDS][:most], window, asked.as_of_ms) + lags[MOST_TRENDS:most]
    write_rows(asked, [*shown, *lags[len(shown) :]], GroupLag, lambda rows: _group_table(rows, window))
    _sum_up(asked, lags, shown)
    return Status.OK


def _partitions(asked: Asked, tables: "Tables", window: "Window") -> Status:
    from muster.answers.lag import PartitionLag, group_lags, partition_lags

    lags = partition_lags(tables, asked.groups, window, asked.as_of_ms)
    write_rows(asked, lags, PartitionLag, lambda rows: _partition_table(rows, window))
    _sum_up(asked, group_lags(tables, asked.groups, asked.as_of_ms), lags[: asked.shown_rows])
    return Status.OK


def _sum_up(asked: Asked, lags: Sequence["GroupLag"], shown: "Sequence[GroupLag | PartitionLag]") -> None:
    if not asked.format.is_for_people:
        return
    if any(each.lag and each.behind_since_ms is None for each in shown):
        say(
            f"{UNSEEN} for BEHIND-SINCE: longer than history was looked through, or nobody saw it begin; "
            "--since 7d looks further back."
        )
    if not lags:
        say("no group has committed anything, or has anything assigned.")
    elif len(lags) == 1:
        say(f"in all: {_in_words(lags[0])}.")
    elif all(each.lag is None for each in lags):
        say(f"of none of {counted(len(lags), 'group')} is the lag known; `muster lag GROUP` says why.")
    else:
        behind = are_or_is(sum(1 for each in lags if each.lag), len(lags), "group")
        unknown = sum(1 for each in lags if each.lag is None)
        more = f"; of {counted(unknown, 'group')} it is not known" if unknown else ""
        say(f"{behind} behind, by {counted(sum(each.lag or 0 for each in lags), 'record')} in all{more}.")


def _in_words(lag: "GroupLag") -> str:
    if lag.lag is None:
        return f"of none of its {counted(lag.partitions, 'partition')} is the lag known"
    words = f"{counted(lag.lag, 'record')} behind" if lag.lag else "not behind"
    words += f", {shown_duration(lag.lag_ms)}" if lag.lag and lag.lag_ms is not None else ""
    words += f", on {lag.behind:,} of {counted(lag.partitions, 'partition')}"
    words += f"; {lag.lost_records:,} were lost" if lag.lost_records else ""
    return words + (f"; of {lag.unknown:,} it is not known" if lag.unknown else "")


def _common_columns(window: "Window") -> tuple[Column, ...]:
    length = shown_duration(window.until_ms - window.since_ms)
    return (
        Column("LAG", "lag", Kind.LAG),
        Column("LOST", "lost_records", Kind.LAG, Shown.IF_ANY),
        Column("LAG-TIME", "lag_ms", Kind.LENGTH_MS, short="TIME"),
        Column(f"BEHIND-SINCE ({zone_name()})", "behind_since_ms", short=f"SINCE ({zone_name()})"),
        Column(f"LAST {length}".upper(), "trend", spare=1),
    )


def _group_table(rows: Sequence["GroupLag"], window: "Window") -> Table:
    columns = (
        Column("GROUP", "group_id"),
        *_common_columns(window),
        Column("BEHIND", "behind", spare=5),
        Column("UNKNOWN", "unknown", Kind.NUMBER, Shown.IF_ANY, spare=4),
    )
    return Table(
        columns,
        [
            (each.group_id, *_common(each), f"{each.behind:,}/{each.partitions:,}", each.unknown or None)
            for each in rows
        ],
    )


def _partition_table(rows: Sequence["PartitionLag"], window: "Window") -> Table:
    of_one = len({each.group_id for each in rows}) == 1
    columns = (
        Column("GROUP", "group_id", shown=Shown.TO_PROGRAMS if of_one else Shown.ALWAYS),
        Column("TOPIC", "topic"),
        Column("PARTITION", "partition", Kind.NUMBER, short="PART"),
        Column("COMMITTED", "committed_offset", Kind.NUMBER, spare=3),
        Column("END", "log_end_offset", Kind.NUMBER, spare=2),
        *_common_columns(window),
        Column("UNKNOWN", "lag_unknown", shown=Shown.IF_ANY, spare=6),
        Column("CONSUMER", "member_id", Kind.MEMBER, spare=5),
    )
    return Table(columns, [_partition_row(each) for each in rows])


def _partition_row(each: "PartitionLag") -> tuple[Any, ...]:
    places = (each.group_id, each.topic, each.partition, each.committed_offset, each.log_end_offset)
    return (*places, *_common(each), each.lag_unknown, each.member_id)


def _common(each: "GroupLag | PartitionLag") -> tuple[Any, ...]:
    return each.lag, each.lost_records or None, each.lag_ms, _since(each), sparkline(each.trend)


def _since(each: "GroupLag | PartitionLag") -> str | None:
    if each.behind_since_ms is None:
        return UNSEEN if each.lag else None
    return f"{'< ' if each.was_behind_before else ''}{calendar_time(each.behind_since_ms, '%m-%d %H:%M')}"


def sparkline(values: Sequence[int | None]) -> str:
    """A row of numbers as a row of blocks, the highest of them the full one; a space where nothing is known."""
    highest = max((value for value in values if value is not None), default=0) or 1
    return "".join(" " if value is None else LEVELS[value * (len(LEVELS) - 1) // highest] for value in values)
