"""`muster findings`: what should be looked at."""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from muster.cli.options import (
    CSV,
    CSV_EXACT,
    DEBUG,
    STORAGE_OPTION,
    TABLES,
    Format,
    chosen_format,
    option,
    storage_options,
)
from muster.cli.output import say, write_lines_to_stdout, write_to_stdout
from muster.cli.people import iso_time, shown, shown_duration, shown_moment
from muster.cli.questions.asking import (
    AS_JSON,
    AS_OF,
    EXITS,
    LIMIT,
    check_groups,
    check_known,
    first,
    moment,
    need_tables,
    opened,
    tell_moment,
    view,
)
from muster.cli.questions.completion import complete_group
from muster.cli.questions.watching import WATCH, again, rows_on_screen, watch_s
from muster.cli.status import Status
from muster.cli.tabular import show

if TYPE_CHECKING:
    from muster.answers.findings import Finding
    from muster.tables.reading import Tables

EPILOG = """
[bold]Examples[/bold]

What should be looked at, and what is to be done? Exit code 0 nothing, 10 a warning, 11 an error.
  [cyan]muster findings --tables tables[/cyan]

Errors alone, of some groups, for a program:
  [cyan]muster findings 'orders-*' --tables tables --severity error --json[/cyan]
"""

GROUPS = typer.Argument(
    metavar="GROUP",
    autocompletion=complete_group,
    help="Groups; * and ? are wildcards. Default: all.",
    show_default=False,
)
COLOURS = {"error": "bold red", "warning": "yellow", "info": "dim"}
INDENT = "    "
MOST_PARTITIONS = 20
LINES_OF_A_FINDING = 4


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


SEVERITY = option("--severity", "-s", metavar="SEVERITY", help="error, warning or info; repeatable. Default: all.")


def findings(
    group: Annotated[list[str] | None, GROUPS] = None,
    tables: Annotated[str, TABLES] = ...,  # type: ignore[assignment]  # typer's way to say that it is needed
    storage_option: Annotated[list[str] | None, STORAGE_OPTION] = None,
    severity: Annotated[list[Severity] | None, SEVERITY] = None,
    as_of: Annotated[str | None, AS_OF] = None,
    limit: Annotated[int | None, LIMIT] = None,
    as_json: Annotated[bool, AS_JSON] = False,
    as_csv: Annotated[bool, CSV] = False,
    csv_exact: Annotated[bool, CSV_EXACT] = False,
    watch: Annotated[str | None, WATCH] = None,
    debug: Annotated[bool, DEBUG] = False,
) -> Status:
    """What should be looked at: stuck, rewound and flapping groups, lost records, damage; each with what to do."""
    format, every_s = chosen_format(as_json, as_csv, csv_exact, False), watch_s(watch, as_of)
    limit = rows_on_screen(limit, every_s, LINES_OF_A_FINDING)
    groups, as_of_ms, options = group or [], moment(as_of), storage_options(storage_option)
    severities = [each.value for each in severity or Severity]

    def answer() -> Status:
        with opened(tables, options) as found:
            return _answer(found, groups, severities, as_of_ms, limit, format)

    return again(every_s, answer)


def _answer(
    tables: "Tables", groups: list[str], severities: list[str], as_of_ms: int | None, limit: int | None, format: Format
) -> Status:
    from muster.answers.findings import Finding, findings, level_of_findings

    need_tables(tables, "findings")
    check_known(tables, as_of_ms)
    found = findings(tables, groups, severities, as_of_ms)
    if not found and groups and not _are_known(tables, groups, as_of_ms):
        check_groups(tables, groups, found, as_of_ms)
        return Status.NOTHING_MATCHED
    tell_moment(tables, as_of_ms)
    chosen = first(found, limit, is_for_people=format.is_for_people)
    if format.is_for_people:
        _write(chosen)
        say(_told(found))
    elif format is Format.JSON:
        write_lines_to_stdout("".join(map(_json_line, chosen)).encode("utf-8", "replace"))
    else:
        show(view(chosen, Finding._fields, (), format), format)
    return EXITS[level_of_findings(found)]


def _are_known(tables: Any, groups: Sequence[str], as_of_ms: int | None) -> bool:
    return bool(tables.asked(f"SELECT 1 FROM {tables.relation('groups', as_of_ms, groups)} g LIMIT 1"))


def _json_line(finding: "Finding") -> str:
    """An object, in which the evidence is one too."""
    told = finding._asdict()
    evidence = told.pop("evidence")
    for name in ("since_ms", "at_ms"):
        value = told.pop(name)
        told[name.removesuffix("_ms")] = None if value is None else iso_time(value)
    told["evidence"] = None if evidence is None else json.loads(evidence)
    return json.dumps(told, ensure_ascii=False) + "\n"


def _write(found: Sequence["Finding"]) -> None:
    """Each as a few lines: what it is about, what is the matter, what to do."""
    from rich.console import Console
    from rich.text import Text

    console = Console(file=sys.stdout, highlight=False, soft_wrap=not sys.stdout.isatty())
    with console.capture() as written:
        for each, like_it in alike(found):
            head = Text(each.severity.upper(), style=COLOURS.get(each.severity, ""))
            head.append(f"  {shown(each.kind)}{_about(each)}", style="bold")
            head.append(_since(each), style="dim")
            console.print(head)
            console.print(Text(f"{INDENT}{shown(each.sentence)}"))
            if like_it:
                console.print(Text(f"{INDENT}So it is with {_partitions(like_it)}."))
            console.print(Text(f"{INDENT}To do: {shown(each.what_to_do)}"))
            console.print()
    write_to_stdout(written.get().encode("utf-8", "replace"))


def alike(found: Sequence["Finding"]) -> list[tuple["Finding", list["Finding"]]]:
    """Findings, each with those that say the same of other partitions of a topic: people read that once."""
    by_subject: dict[Any, list[Finding]] = {}
    for each in found:
        place = id(each) if each.partition is None else None
        subject = each.severity, each.kind, each.group_id, each.topic, each.member_id, each.what_to_do, place
        by_subject.setdefault(subject, []).append(each)
    return [(each[0], each[1:]) for each in by_subject.values()]


def _partitions(found: Sequence["Finding"]) -> str:
    numbers = [str(each.partition) for each in found[:MOST_PARTITIONS]]
    more = f" and {len(found) - MOST_PARTITIONS:,} more" if len(found) > MOST_PARTITIONS else ""
    return f"partition{'s' if len(found) > 1 else ''} {', '.join(numbers)}{more}"


def _about(finding: "Finding") -> str:
    place = None if finding.topic is None else finding.topic
    if place is not None and finding.partition is not None:
        place = f"{place}-{finding.partition}"
    names = [shown(name) for name in (finding.group_id, place, finding.member_id) if name is not None]
    return f"  {'  '.join(names)}" if names else ""


def _since(finding: "Finding") -> str:
    if finding.since_ms is None:
        return ""
    lasted = finding.at_ms - finding.since_ms
    ago = f", for {shown_duration(lasted)}" if lasted > 0 else ""
    return f"  since {shown_moment(finding.since_ms)}{ago}"


def _told(found: Sequence["Finding"]) -> str:
    if not found:
        return "nothing to look at."
    counts = Counter(each.severity for each in found)
    words = {"error": ("error", "errors"), "warning": ("warning", "warnings"), "info": ("note", "notes")}
    return ", ".join(f"{counts[name]:,} {words[name][counts[name] > 1]}" for name in words if counts[name]) + "."
