"""All pages in one file: what they show is packed into it, of now and of some moments of the past.

The file is one JSON value for the first page, and blocks that the page unpacks when they are looked at: one for each
moment (all groups, and who reads which topic), one for each group, and one for everything else. A block is JSON, packed
by gzip and written as base64, which browsers undo by themselves.
"""

import base64
import gzip
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from muster.answers.findings import Finding
from muster.answers.group import group_facts, known_now
from muster.answers.moments import Moments, Past, moments_of, past
from muster.answers.overview import GroupLine, overview
from muster.answers.partitions import PartitionLine, partitions_by_group
from muster.answers.series import Series, all_series
from muster.answers.status import verdicts_at, worst_of
from muster.answers.timeline import EMPTY_TIMELINE, Rebalance, Timeline, timelines
from muster.answers.topic import Reader, TopicPartition, topic_partitions_by_topic
from muster.answers.totals import UNKNOWN, Totals
from muster.pages.shell import as_json, report_page
from muster.pages.site import listed, page
from muster.tables.reading import Tables
from muster.tables.sql.queries import added_up


def report(tables: Tables, moments: int) -> bytes:
    """The file. `moments` of the past are in it, beside now."""
    totals = Totals(tables, most_bytes=1 << 62)
    totals.bring_up(tables)
    until_ms = tables.manifest.now_ms
    times = moments_of(totals, until_ms, moments)
    first = page("overview", tables, totals, {})
    group_ids = [row[0] for row in first["groups"]["rows"]]
    blocks = [_everything_else(tables, totals)]
    blocks += [_at_moment(tables, totals, at_ms) for at_ms in [*times.all_ms, None]]
    groups = _Groups(tables, totals, times)
    blocks += [_packed(groups.block(group_id)) for group_id in group_ids]
    index = {"moments_ms": [*times.all_ms, until_ms], "groups": group_ids}
    return report_page(as_json(first | {"report": index}), blocks)


def _packed(value: Any) -> str:
    return base64.b64encode(gzip.compress(as_json(value), 6, mtime=0)).decode()


def _at_moment(tables: Tables, totals: Totals, at_ms: int | None) -> str:
    """All groups at a moment, and what each had of each topic."""
    return _packed({
        "groups": listed(GroupLine, overview(tables, totals, at_ms)),
        "readers": {"columns": ["topic", *Reader._fields], "rows": _readers(tables, totals, at_ms)},
    })  # fmt: skip


def _readers(tables: Tables, totals: Totals, at_ms: int | None) -> list[Any]:
    behind = _lines_now(tables) if at_ms is None else _lines_at(totals, at_ms)
    said: dict[tuple[str, str], list[tuple[str | None, int | None]]] = defaultdict(list)
    asked = (
        f"SELECT group_id, topic, verdict, verdict_since_ms FROM {tables.relation('status')} s"
        if at_ms is None
        else verdicts_at(tables, "group_id, topic, nullif(verdict, ''), since_ms", at_ms)
    )
    for group_id, topic, word, since_ms in tables.asked(asked):
        said[group_id, topic].append((word, since_ms))
    found = []
    for key in {*behind, *said}:
        lag, lag_ms, count = behind.get(key, (None, None, 0))
        found.append([key[1], *Reader(key[0], *worst_of(said[key]), lag, lag_ms, count)])
    return sorted(found, key=lambda row: (row[0], -(row[6] or 0), -(row[5] or 0), row[1]))


def _lines_now(tables: Tables) -> dict[tuple[str, str], tuple[int | None, int | None, int]]:
    rows = tables.asked(f"""SELECT group_id, topic, {added_up("lag")}, max(lag_ms), count(*)
        FROM {tables.relation("lag")} l GROUP BY group_id, topic""")
    return {(group_id, topic): (lag, lag_ms, count) for group_id, topic, lag, lag_ms, count in rows}


def _lines_at(totals: Totals, at_ms: int) -> dict[tuple[str, str], tuple[int | None, int | None, int]]:
    found = totals.at(at_ms)
    if found is None:
        return {}
    each = zip(totals.lines, found[0].tolist(), found[1].tolist(), strict=True)
    return {line: (lag, None if lag_ms == UNKNOWN else lag_ms, 0) for line, lag, lag_ms in each if lag != UNKNOWN}


def _everything_else(tables: Tables, totals: Totals) -> str:
    """Findings, and the partitions of all topics, as they are now."""
    found = page("findings", tables, totals, {})["findings"]
    return _packed({
        "findings": found,
        "topics": topic_partitions_by_topic(tables),
        "topic_columns": list(TopicPartition._fields),
    })  # fmt: skip


class _Groups:
    """What is shown of each group, from questions that were asked of all of them at once."""

    def __init__(self, tables: Tables, totals: Totals, moments: Moments) -> None:
        until_ms = tables.manifest.now_ms
        self._tables = tables
        self._since_ms = min(totals.begin_ms(until_ms), until_ms)
        self._series: dict[str, Series] = all_series(tables, totals, self._since_ms, until_ms) if totals.lines else {}
        self._timelines: dict[str, Timeline] = timelines(tables, self._since_ms, until_ms)
        self._now = partitions_by_group(tables)
        self._known = known_now(tables)
        self._findings = self._by_group(page("findings", tables, totals, {})["findings"]["rows"])
        self._past = self._past_by_group(past(tables, moments)) if moments.number else {}
        self._said = self._verdicts()

    def block(self, group_id: str) -> dict[str, Any]:
        """The page of now, and what is needed to draw it as of the other moments."""
        drawn, lines = self._timelines.get(group_id, EMPTY_TIMELINE), self._now.get(group_id, [])
        series = self._series.get(group_id)
        return {
            "group": group_facts(group_id, lines, drawn, self._known.get(group_id))._asdict(),
            "since_ms": self._since_ms,
            "series": None if series is None else series._asdict(),
            "timeline": {
                "members": [
                    member._asdict() | {"bars": [bar._asdict() for bar in member.bars]} for member in drawn.members
                ],
                "rebalances": listed(Rebalance, drawn.rebalances),
                "left_out": drawn.left_out,
            },
            "partitions": listed(PartitionLine, lines),
            "findings": listed(Finding, self._findings.get(group_id, [])),
            "past": self._past.get(group_id),
            "said": self._said.get(group_id, []),
        }

    @staticmethod
    def _by_group(findings: Sequence[Sequence[Any]]) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = defaultdict(list)
        for row in findings:
            found[row[Finding._fields.index("group_id")]].append(row)
        return found

    @staticmethod
    def _past_by_group(found: Past) -> dict[str, Any]:
        groups: dict[str, Any] = {}
        lists = {name: values.tolist() for name, values in found.values.items()}
        for number, (group_id, topic, partition) in enumerate(found.keys):
            keys = groups.setdefault(group_id, {"keys": [], **{name: [] for name in lists}})
            keys["keys"].append([topic, partition])
            for name, values in lists.items():
                keys[name].append(_steps(values[number]))
        return groups

    def _verdicts(self) -> dict[str, list[Any]]:
        """Of each group, what was said when: topic, partition, moment, word."""
        groups: dict[str, list[Any]] = defaultdict(list)
        for group_id, *row in self._tables.asked(f"""SELECT group_id, topic, partition, at_ms, verdict
                FROM {self._tables.relation("verdicts")} v ORDER BY at_ms, run_number"""):
            groups[group_id].append(row)
        return groups


def _steps(values: list[int]) -> list[int]:
    """Each value as its distance from the one before: these are short, and often the same."""
    return [value - before for value, before in zip(values, [0, *values], strict=False)]
