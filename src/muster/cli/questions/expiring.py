"""`muster expiring`: what the broker will delete, and when."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from muster.cli.output import say
from muster.cli.people import shown_duration
from muster.cli.questions.answering import Asked, ask, write_rows
from muster.cli.questions.asking import moment_of
from muster.cli.status import Status
from muster.cli.tabular import Column, Kind, Table

if TYPE_CHECKING:
    from muster.answers.expiring import Expiring
    from muster.tables.reading import Tables

COLUMNS = (
    Column("GROUP", "group_id"),
    Column("TOPIC", "topic"),
    Column("PARTITION", "partition", Kind.NUMBER, short="PART"),
    Column("EXPIRES", "expires_at", Kind.TIME_MS),
    Column("IN", "in_ms"),
    Column("WHY", "rule", spare=2),
    Column("COMMITTED", "committed_offset", Kind.NUMBER, spare=3),
    Column("LAG", "lag", Kind.LAG, spare=1),
)


def show_expiring(asked: Asked, within_ms: int) -> Status:
    """The soonest first."""

    def answer(tables: "Tables") -> Status:
        from muster.answers.expiring import Expiring, expiring

        from_ms = moment_of(tables, asked.as_of_ms)
        rows = expiring(tables, from_ms + within_ms, from_ms, asked.groups, asked.as_of_ms)
        write_rows(asked, rows, Expiring, _table)
        if not rows and asked.format.is_for_people:
            say(f"nothing expires within {shown_duration(within_ms)}.")
        return Status.OK

    return ask(asked, answer, "expiry")


def _table(rows: "Sequence[Expiring]") -> Table:
    return Table(COLUMNS, [
        (each.group_id, each.topic, each.partition, each.expires_at_ms, _in(each.in_ms), each.rule,
         each.committed_offset, each.lag) for each in rows
    ])  # fmt: skip


def _in(length_ms: int) -> str:
    """What is due goes at the broker's next look."""
    return shown_duration(length_ms) if length_ms > 0 else "due"
