"""The demo runs, and its own checks hold; and they can fail."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from muster.answers.totals import Totals
from muster.pages.site import page
from muster.tables.reading import open_tables

EXAMPLES = Path(__file__).parent.parent / "examples"
EXPECTED = Path(__file__).parent / "corpus" / "k43-all" / "expected" / "groups.json"
PATIENCE_S = 540  # alone on two cores it takes less than one minute


def test_the_demo_agrees_with_both_brokers(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, str(EXAMPLES / "demo.py")],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
        cwd=tmp_path,
        env=os.environ | {"DURATION": "12"},
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "✓ 6 committed offsets, 3 members with assignments, the state: as the server tells" in run.stdout
    assert "✓ the state as of just before the kill" in run.stdout
    assert "✓ all 93 committed offsets of 28 groups, 15 members, 32 states" in run.stdout
    assert "static member returned" in run.stdout
    assert "✓ tills is OK, ledger is OK, reports is STALLED, search was REWIND" in run.stdout
    assert "exactly once, through the kill" in run.stdout
    assert "tills is a classic group, Stable, generation 4, with 3 members" in run.stdout
    assert "Traceback" not in run.stdout + run.stderr
    report = (tmp_path / "muster-demo-report.html").read_text(encoding="utf-8")
    assert "tills" in report
    assert "export MUSTER_TABLES=muster-demo-tables" in run.stdout
    assert "http://127.0.0.1" not in run.stdout  # it would be dead by now
    check_that_plots_live(tmp_path / "muster-demo-tables")


def check_that_plots_live(path: Path) -> None:
    with open_tables(path) as tables:
        totals = Totals(tables)
        totals.bring_up(tables)
        content = page("group", tables, totals, {"id": "tills"})
        groups = page("overview", tables, totals, {})["groups"]
    assert content["range"] == "1h"
    for name in ("lag", "lag_ms", "commits", "consumed"):
        assert sum(value is not None for value in content["series"][name]) > 2, name
    trends = [row[groups["columns"].index("trend")].strip() for row in groups["rows"]]
    assert all(len(trend) > 2 for trend in trends)


@pytest.fixture(scope="module")
def demo_tables() -> Any:
    spec = importlib.util.spec_from_file_location("demo_tables", EXAMPLES / "demo_tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["demo_tables"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MEMBER = {"member_id": "a-1", "instance_id": "a", "client_id": "c", "client_host": "/127.0.0.1"}
TABLES = {
    "groups": [{"state": "Stable", "protocol": "range"}],
    "offsets": [{"topic": "orders", "partition": 0, "committed_offset": 7}],
    "members": [{**MEMBER, "assignment": [{"topic": "orders", "partitions": [0]}]}],
}


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("offsets", "committed_offset", 8),
        ("offsets", "partition", 1),
        ("members", "member_id", "a-2"),
        ("members", "assignment", []),
        ("groups", "state", "Empty"),
    ],
)
def test_tables_that_differ_from_the_server_are_told(demo_tables: Any, table: str, column: str, value: Any) -> None:
    told = demo_tables.as_told(TABLES)
    demo_tables.check_now(told, TABLES)
    other = TABLES | {table: [TABLES[table][0] | {column: value}]}
    with pytest.raises(demo_tables.Disagreement, match="not what the server says"):
        demo_tables.check_now(told, other)


def test_a_moment_lies_between_the_states_around_the_question(demo_tables: Any) -> None:
    story = demo_tables.Story(1, demo_tables.as_told(TABLES), 2, demo_tables.as_told(TABLES))
    place = ("orders", 0)
    demo_tables.check_moment(story, {place: 6}, TABLES)
    for earlier in ({place: 8}, {}):
        with pytest.raises(demo_tables.Disagreement, match="not what the server said then"):
            demo_tables.check_moment(story, earlier, TABLES)
    behind = TABLES | {"offsets": [TABLES["offsets"][0] | {"committed_offset": 6}]}
    with pytest.raises(demo_tables.Disagreement, match="not what the server said then"):
        demo_tables.check_moment(story, {place: 5}, behind)


def test_a_bundled_log_that_differs_from_its_broker_is_told(demo_tables: Any) -> None:
    groups = [
        {"group_id": one["groupId"], "state": one["listed"]["state"]}
        for one in json.loads(EXPECTED.read_text())["groups"]
    ]
    with pytest.raises(demo_tables.Disagreement, match="not what its broker said"):
        demo_tables.check_bundled(EXPECTED, [], groups, [])


def test_an_invoice_that_is_missing_or_twice_is_told(demo_tables: Any) -> None:
    demo_tables.check_invoices(["a", "b"], 2)
    for keys in (["a"], ["a", "a"], ["a", "b", "b"]):
        with pytest.raises(demo_tables.Disagreement, match="2 orders have"):
            demo_tables.check_invoices(keys, 2)


def test_a_cause_that_is_missing_is_told(demo_tables: Any) -> None:
    causes = ["first members", "member joined", "static member returned", "member left"]
    demo_tables.check_causes([{"cause": cause} for cause in causes])
    with pytest.raises(demo_tables.Disagreement, match="the cause member left"):
        demo_tables.check_causes([{"cause": cause} for cause in causes[:3]])
