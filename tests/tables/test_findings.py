"""Findings: each kind on rows that raise it and on rows that must not, and what all of them have in common."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import duckdb
import pytest

from muster.tables.findings.finding import Asked
from muster.tables.findings.kinds import KINDS, LOOKED_BACK, NEEDED, findings
from muster.tables.schemas import TABLES
from muster.tables.sql.dialects import DUCKDB
from tests.tables.finding_rows import CASES, HEALTHY, NOW_MS, ODD, PLACE, Case, Row, look, plain, tables_of
from tests.tables.findings_page import kinds_of

CONNECTION = duckdb.connect(config={"threads": 1})
NAMES = TABLES["findings"].names
RAISED = [case for case in CASES if case.found is not None]


def found_in(
    rows: Mapping[str, Sequence[Row]], lists_all_topics: bool = False, tables: Iterable[str] = NEEDED
) -> list[Row]:
    """What is found in rows of tables, if no others are there."""
    relations, made = {name: f"r_{name}" for name in tables}, tables_of(rows)
    for name, relation in relations.items():
        CONNECTION.register(relation, made[name])
    asked = Asked(NOW_MS, lists_all_topics, DUCKDB)
    found = CONNECTION.execute(findings(relations, asked)).fetchall()
    return [plain(dict(zip(NAMES, row, strict=True))) for row in found]


def found_by(case: Case) -> list[Row]:
    found = found_in(case.rows, tables=KINDS[case.kind].needs)
    return [row for row in found if row["kind"] == case.kind]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.kind}: {case.name}")
def test_a_kind_is_raised_by_its_rows_alone(case: Case) -> None:
    found = found_by(case)
    if case.found is None:
        assert found == []
        return
    (finding,) = found
    assert {name: finding[name] for name in case.found} == case.found
    kind = KINDS[case.kind]
    assert finding["severity"] in kind.severities
    assert (finding["at_ms"], finding["what_to_do"]) == (NOW_MS, kind.what_to_do)
    assert finding["sentence"].endswith(".")


def test_every_kind_has_rows_for_it_and_against_it() -> None:
    for kind in KINDS:
        assert {case.found is None for case in CASES if case.kind == kind} == {True, False}, kind


def test_every_severity_of_a_kind_is_seen() -> None:
    for kind in KINDS.values():
        seen = {row["severity"] for case in RAISED if case.kind == kind.name for row in found_by(case)}
        assert seen == set(kind.severities), kind.name


def test_nothing_is_found_where_all_is_well() -> None:
    assert found_in(HEALTHY) == []
    assert found_in({}) == []


def test_a_live_cluster_tells_of_all_topics() -> None:
    rows = {"offsets": [PLACE], "log_ends": [look("other", 8)]}
    (finding,) = found_in(rows, lists_all_topics=True)
    assert (
        finding["sentence"] == "payments has offsets of 1 partition of orders, a topic that the source does not have."
    )
    assert finding["since_ms"] is None
    assert found_in({"offsets": [PLACE]}, lists_all_topics=True) == []
    offsets_topic = {**PLACE, "topic": "__consumer_offsets"}
    assert found_in({"offsets": [offsets_topic], "log_ends": [look("other", 8)]}, lists_all_topics=True) == []


def test_any_name_is_data() -> None:
    """In sentences as it is, in evidence escaped, in what to do not at all."""
    for case in RAISED:
        for name, shown in ((ODD, ODD), ("", "the group with the empty name")):
            renamed = json.loads(json.dumps(case.rows).replace(json.dumps("payments"), json.dumps(name)))
            for finding in found_by(case._replace(rows=renamed)):
                assert finding["what_to_do"] == KINDS[case.kind].what_to_do
                if finding["group_id"] is not None:
                    assert finding["group_id"] == name
                    assert shown in finding["sentence"]


def test_a_kind_whose_tables_are_not_there_is_left_out() -> None:
    rows = next(case.rows for case in CASES if case.kind == "hanging-transaction")
    assert [row["kind"] for row in found_in(rows, tables=("open_commits", "lag"))] == ["hanging-transaction"]
    assert found_in(rows, tables=("lag",)) == []


def test_the_page_has_every_kind_with_its_thresholds() -> None:
    page = (Path(__file__).parents[2] / "docs" / "findings.md").read_text(encoding="utf-8")
    assert kinds_of(page) == page, "python -m tests.tables.findings_page docs/findings.md"


def test_text_of_ours_is_plain_to_both_engines() -> None:
    for kind in KINDS.values():
        assert not set("'\\") & set(kind.name + kind.what_to_do + "".join(kind.severities))


def test_history_is_looked_at_by_time() -> None:
    """What is not among these is state: one row for each group, member or offset."""
    history = {"commits", "rates", "group_hours", "lag_history", "rebalances", "group_records", "markers", "log_ends"}
    assert set(LOOKED_BACK) == history & set(NEEDED)
