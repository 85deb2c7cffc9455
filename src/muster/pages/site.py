"""What each page shows, as one JSON value: the page draws it, and its `.json` twin is it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from muster.answers.expiring import Expiring, expiring
from muster.answers.findings import Finding, findings
from muster.answers.group import group_facts, known_now
from muster.answers.overview import GroupLine, overview
from muster.answers.partitions import PartitionLine, partitions
from muster.answers.series import group_series
from muster.answers.timeline import Rebalance, timeline
from muster.answers.topic import Reader, TopicPartition, readers, topic_partitions
from muster.answers.totals import DAY_MS, Totals
from muster.errors import BadInput
from muster.patterns import exactly
from muster.tables.clocks import parse_time, shown
from muster.tables.reading import Tables

Query = Mapping[str, str]
RANGES_MS = {"1h": DAY_MS // 24, "6h": DAY_MS // 4, "24h": DAY_MS, "7d": 7 * DAY_MS, "all": 1 << 50}
USUAL_RANGE = "24h"
FOREVER_MS = 1 << 62


class NotThere(BadInput):
    """There is no such page, group or topic."""


class NotAsked(BadInput):
    """What was asked makes no sense, or is of a time of which nothing is known."""


def page(name: str, tables: Tables, totals: Totals | None, query: Query) -> dict[str, Any]:
    """The content of a page. `BadInput` is a sentence for the reader of the page.

    As of a moment, findings are on their own page alone: they are derived from history, which takes its time.
    """
    made = {"overview": _overview, "group": _group, "topic": _topic, "findings": _findings}.get(name)
    if made is None:
        raise NotThere(f"there is no page called '{name}'.")
    at_ms = moment(tables, query)
    if totals is not None:
        totals.recall(tables, tables.manifest.now_ms if at_ms is None else at_ms)
        totals = totals.so_far()
    return {"page": name, **_head(tables, totals, at_ms), **made(tables, totals, query, at_ms)}


def is_derived(name: str, query: Query) -> bool:
    """Whether this takes seconds where history is long."""
    return name == "findings" and bool(query.get("at"))


def moment(tables: Tables, query: Query) -> int | None:
    """The moment asked for, None for now."""
    text = query.get("at", "")
    if not text:
        return None
    try:
        at_ms = parse_time(text, tables.manifest.now_ms)
    except ValueError as error:
        raise NotAsked(f"{error}.") from None
    try:
        tables.check_moment(at_ms)
    except BadInput as error:
        raise NotAsked(str(error)) from None
    return at_ms


def listed(kind: type, rows: Sequence[Any]) -> dict[str, Any]:
    """Rows with the names of their columns said once: thousands of them are to be quick."""
    return {"columns": list(kind._fields), "rows": rows}  # type: ignore[attr-defined]


def _head(tables: Tables, totals: Totals | None, at_ms: int | None) -> dict[str, Any]:
    manifest = tables.manifest
    known = totals is not None and totals.first_ms is not None
    return {
        "at_ms": manifest.now_ms if at_ms is None else at_ms,
        "is_now": at_ms is None,
        "run": {
            "run_id": manifest.run_id,
            "cluster_id": manifest.source.get("cluster_id"),
            "observed_at_ms": manifest.observed_at_ms,
            "first_ms": totals.first_ms if totals is not None and known else None,
            "last_ms": manifest.now_ms,
            "step_ms": totals.interval_ms if totals is not None and known else None,
        },
        "findings_by_severity": _counts(tables) if at_ms is None else None,
        "history_days": list(totals.done) if totals is not None else None,
    }


def _counts(tables: Tables) -> dict[str, int]:
    return dict(tables.asked(f"SELECT severity, count(*) FROM {tables.relation('findings')} f GROUP BY severity"))


def _overview(tables: Tables, totals: Totals | None, query: Query, at_ms: int | None) -> dict[str, Any]:
    return {"groups": listed(GroupLine, overview(tables, totals, at_ms))}


def _group(tables: Tables, totals: Totals | None, query: Query, at_ms: int | None) -> dict[str, Any]:
    group_id = _asked_for(query, "id", "group")
    until_ms = tables.manifest.now_ms if at_ms is None else at_ms
    begin_ms = until_ms - RANGES_MS["1h"] if totals is None else min(totals.begin_ms(until_ms), until_ms)
    span = query.get("range") or _range_of(until_ms - begin_ms)
    if span not in RANGES_MS:
        raise NotAsked(f"'{span}' is no range. There are: {', '.join(RANGES_MS)}.")
    since_ms = max(until_ms - RANGES_MS[span], begin_ms)
    lines = partitions(tables, group_id, at_ms)
    drawn = timeline(tables, group_id, since_ms, until_ms)
    known = known_now(tables, group_id).get(group_id) if at_ms is None else None
    facts = group_facts(group_id, lines, drawn, known)
    if not lines and not drawn.members and facts.state is None:
        raise NotThere(_gone(tables, group_id, until_ms))
    return {
        "group": facts._asdict(),
        "range": span,
        "since_ms": since_ms,
        "series": group_series(tables, group_id, since_ms, until_ms)._asdict(),
        "timeline": {
            "members": [
                member._asdict() | {"bars": [bar._asdict() for bar in member.bars]} for member in drawn.members
            ],
            "rebalances": listed(Rebalance, drawn.rebalances),
            "left_out": drawn.left_out,
        },
        "partitions": listed(PartitionLine, lines),
        "findings": _findings_where(tables, "group_id = ?", [group_id]) if at_ms is None else None,
    }


def _range_of(known_ms: int) -> str:
    """The shortest range that has all that is known, if it is less than a day."""
    shorter = (name for name, length_ms in RANGES_MS.items() if known_ms <= length_ms < RANGES_MS[USUAL_RANGE])
    return next(shorter, USUAL_RANGE)


def _gone(tables: Tables, group_id: str, until_ms: int) -> str:
    end = tables.end_of_group(group_id)
    if end is None:
        return f"no group called '{group_id}' at {shown(until_ms)}."
    when = "between two runs" if end.deleted_at_ms is None else f"at {shown(end.deleted_at_ms)}"
    return f"the group '{group_id}' was {end.kind} {when}; choose an earlier moment to see it."


def _topic(tables: Tables, totals: Totals | None, query: Query, at_ms: int | None) -> dict[str, Any]:
    name = _asked_for(query, "name", "topic")
    found, logs = readers(tables, totals, name, at_ms), topic_partitions(tables, name, at_ms)
    if not found and not logs:
        raise NotThere(f"no topic called '{name}' that a group has read or a run has looked at.")
    return {
        "topic": name,
        "readers": listed(Reader, found),
        "partitions": listed(TopicPartition, logs),
        "findings": _findings_where(tables, "topic = ?", [name]) if at_ms is None else None,
    }


def _findings(tables: Tables, totals: Totals | None, query: Query, at_ms: int | None) -> dict[str, Any]:
    """Of all groups; of one, with what expires of it."""
    groups = [exactly(query["id"])] if "id" in query else []
    found = findings(tables, groups, as_of_ms=at_ms)
    if at_ms is not None and not found:
        _refuse_unknown(tables, at_ms)
    content: dict[str, Any] = {
        "findings": listed(Finding, found),
        "findings_by_severity": Counter(each.severity for each in found),
    }
    if groups:
        now_ms = tables.manifest.now_ms if at_ms is None else at_ms
        content["expiry"] = listed(Expiring, expiring(tables, FOREVER_MS, now_ms, groups, at_ms))
    return content


def _refuse_unknown(tables: Tables, at_ms: int) -> None:
    try:
        tables.refuse_unknown(at_ms)
    except BadInput as error:
        raise NotAsked(str(error)) from None


def _findings_where(tables: Tables, condition: str, values: list[str]) -> dict[str, Any]:
    """Those of now."""
    order = "CASE severity WHEN 'error' THEN 0 WHEN 'warning' THEN 1 ELSE 2 END, since_ms DESC NULLS LAST, kind"
    rows = tables.asked(
        f"SELECT {', '.join(Finding._fields)} FROM {tables.relation('findings')} f WHERE {condition} "
        f"ORDER BY {order}, group_id, topic, partition",
        values,
    )
    return listed(Finding, rows)


def _asked_for(query: Query, name: str, what: str) -> str:
    if name not in query:
        raise NotThere(f"which {what}? Add ?{name}=NAME.")
    return query[name]
