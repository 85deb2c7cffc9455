"""The dashboard and the alert rules of examples/, against the page and against Prometheus' own tool."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.exporter.pages import a_page, read

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
UNPACKED = EXAMPLES.parent / ".cache" / "prometheus" / "usr" / "bin" / "promtool"
METRIC = re.compile(r"\b(?:muster|kafka|kminion|burrow)_\w+")


def expressions() -> list[str]:
    dashboard = json.loads((EXAMPLES / "grafana-dashboard.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    variables = [one["query"]["query"] for one in dashboard["templating"]["list"] if one["type"] == "query"]
    assert len(asked) > 10
    return asked + variables


def used_labels(expression: str) -> set[str]:
    selected = {
        name for text in re.findall(r"\{([^{}]*)\}", expression) for name in re.findall(r"(\w+)\s*[=!]~?", text)
    }
    grouped = {
        name for text in re.findall(r"(?:by|without) \(([^)]*)\)", expression) for name in re.findall(r"\w+", text)
    }
    return selected | grouped


def test_every_metric_of_the_dashboard_is_on_the_page() -> None:
    page = read(a_page())
    for expression in expressions():
        (name,) = METRIC.findall(expression)
        labels = {key for line in page[name] for key, _ in line}
        assert used_labels(expression) <= labels, expression


def test_every_metric_of_the_alerts_is_on_the_page() -> None:
    rules = re.findall(r"^ +expr: (.*)$", (EXAMPLES / "alerts.yml").read_text(), re.MULTILINE)
    assert len(rules) == 11
    found = {name for rule in rules for name in METRIC.findall(rule)}
    assert found <= read(a_page()).keys()


def test_panels_have_places_of_their_own() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads((EXAMPLES / "grafana-dashboard.json").read_text())["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells


def find_promtool() -> str:
    tool = shutil.which("promtool") or shutil.which(UNPACKED)
    if tool is None:
        missing = "promtool is not installed: `make promtool`, or the package `prometheus` of your system"
        if os.environ.get("CI") == "true":
            pytest.fail(missing, pytrace=False)
        pytest.skip(missing)
    return tool


def promtool(*arguments: str) -> str:
    command = [find_promtool(), *arguments]
    ran = subprocess.run(command, cwd=EXAMPLES, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_the_alert_rules_are_well_formed() -> None:
    assert "11 rules found" in promtool("check", "rules", "alerts.yml")


def test_the_alert_rules_fire_when_they_should() -> None:
    tested = (EXAMPLES / "alerts_test.yml").read_text()
    alerts = re.findall(r"- alert: (\w+)", (EXAMPLES / "alerts.yml").read_text())
    assert set(re.findall(r"alertname: (\w+)", tested)) == set(alerts)
    assert "SUCCESS" in promtool("test", "rules", "alerts_test.yml")


def test_the_page_is_well_formed() -> None:
    """By Prometheus' own reader; what it thinks of names (a gauge called `_total`) is Burrow's choice, not ours."""
    command = [find_promtool(), "check", "metrics"]
    ran = subprocess.run(command, input=a_page(), capture_output=True, timeout=60, check=False)
    complaints = ran.stderr.decode().splitlines()
    assert [line for line in complaints if not line.startswith("burrow_kafka_consumer_lag_total")] == []
