"""`muster findings`: what should be looked at."""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from muster.cli.options import Format
from muster.cli.output import say, write_lines_to_stdout, write_to_stdout
from muster.cli.people import shown, shown_duration, shown_moment
from muster.cli.questions.answering import Asked, ask, published_row, say_how_many_more, write_rows
from muster.cli.questions.asking import EXITS
from muster.cli.status import Status
from muster.cli.tabular import Table

if TYPE_CHECKING:
    from muster.answers.findings import Finding
    from muster.tables.reading import Tables

COLOURS = {"error": "bold red", "warning": "yellow", "info": "dim"}
INDENT = "    "
MOST_PARTITIONS = 20


def show_findings(asked: Asked, severities: Sequence[str]) -> Status:
    """The gravest first."""

    def answer(tables: "Tables") -> Status:
        from muster.answers.findings import Finding, findings, level_of_findings

        found = findings(tables, asked.groups, severities, asked.as_of_ms)
        if asked.format.is_for_people:
            _write(found[: asked.shown_rows])
            say_how_many_more(asked, len(found))
            say(_told(found))
        elif asked.format is Format.JSON:
            write_lines_to_stdout("".join(map(_json_line, found[: asked.limit])).encode("utf-8", "replace"))
            say_how_many_more(asked, len(found))
        else:
            write_rows(asked, found, Finding, lambda _: Table((), ()))
        return EXITS[level_of_findings(found)]

    return ask(asked, answer, "findings")


def _json_line(finding: "Finding") -> str:
    """An object, in which the evidence is one too."""
    evidence = None if finding.evidence is None else json.loads(finding.evidence)
    return json.dumps(published_row(finding) | {"evidence": evidence}, ensure_ascii=False) + "\n"


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
