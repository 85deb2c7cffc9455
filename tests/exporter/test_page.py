"""Rows as a page that Prometheus can read: names and labels of the neighbours, nothing for what is not known."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from muster.exporter.families import Names, families
from muster.exporter.health import Health
from muster.exporter.labels import LONGEST, label
from muster.exporter.limits import LeftOut
from muster.exporter.log_ends import LogEnds
from muster.exporter.page import Page, rendered
from muster.exporter.view import GroupRow, Known, Owner, PartitionRow, TablesRun, View, group_rows
from muster.live.requests import ListedGroup
from muster.verdicts import Commit, Verdict
from tests.exporter.logs import GROUP, START_MS, TOPIC, Log
from tests.exporter.pages import a_page, a_view, group, read, value

ROOT = Path(__file__).parent.parent.parent

LABELS = {
    "kafka_consumergroup_group_offset": "cluster_name group topic partition member_host consumer_id client_id",
    "kafka_consumergroup_group_lag": "cluster_name group topic partition member_host consumer_id client_id",
    "kafka_consumergroup_group_lag_seconds": "cluster_name group topic partition member_host consumer_id client_id",
    "kafka_consumergroup_group_max_lag": "cluster_name group",
    "kafka_consumergroup_group_max_lag_seconds": "cluster_name group",
    "kafka_consumergroup_group_sum_lag": "cluster_name group",
    "kafka_consumergroup_group_topic_sum_lag": "cluster_name group topic",
    "kafka_partition_latest_offset": "cluster_name topic partition",
    "kafka_partition_earliest_offset": "cluster_name topic partition",
    "kminion_kafka_consumer_group_info": "group_id protocol protocol_type state coordinator_id",
    "kminion_kafka_consumer_group_members": "group_id",
    "kminion_kafka_consumer_group_topic_partition_lag": "group_id topic_name partition_id",
    "kminion_kafka_consumer_group_topic_lag": "group_id topic_name",
    "kminion_kafka_consumer_group_offset_commits_total": "group_id",
    "kminion_kafka_topic_partition_high_water_mark": "topic_name partition_id",
    "kminion_kafka_topic_partition_low_water_mark": "topic_name partition_id",
    "burrow_kafka_consumer_status": "cluster consumer_group",
    "burrow_kafka_consumer_lag_total": "cluster consumer_group",
    "burrow_kafka_consumer_partition_lag": "cluster consumer_group topic partition",
    "burrow_kafka_topic_partition_status": "cluster consumer_group topic partition",
}
"""What dashboards of the neighbours ask for."""


def test_names_and_labels_that_dashboards_use() -> None:
    page = read(a_page())
    theirs = {name: lines for name, lines in page.items() if not name.startswith("muster_")}
    found = {name: {frozenset(dict(labels)) for labels in lines} for name, lines in theirs.items()}
    assert found == {name: {frozenset(labels.split())} for name, labels in LABELS.items()}


def test_values() -> None:
    page = a_page()
    assert value(page, "kafka_consumergroup_group_lag", group="shop", partition="0", client_id="client") == 10
    assert value(page, "kafka_consumergroup_group_lag_seconds", group="shop", partition="0") == 2.5
    assert value(page, "kafka_consumergroup_group_max_lag", group="shop") == 70
    assert value(page, "kafka_consumergroup_group_sum_lag", group="shop") == 80
    assert value(page, "kafka_consumergroup_group_topic_sum_lag", group="shop", topic="orders") == 80
    assert value(page, "kafka_consumergroup_group_max_lag_seconds", group="shop") == 60
    assert value(page, "kafka_partition_earliest_offset", partition="1") == 50
    assert value(page, "muster_group_verdict", group="shop", verdict="ERR") == 1
    assert value(page, "muster_group_partition_verdict", group="shop", partition="1", verdict="LOSING") == 1
    assert value(page, "burrow_kafka_topic_partition_status", consumer_group="shop", partition="1") == 1
    assert value(page, "burrow_kafka_consumer_status", consumer_group="shop") == 2
    assert value(page, "muster_group_rebalances_total", group="shop", cause="member joined") == 3
    assert value(page, "muster_group_last_commit_timestamp_seconds", group="shop") == 1_700_000_000


def test_values_of_tables() -> None:
    page = a_page()
    assert value(page, "muster_findings", kind="stuck-partition", severity="error") == 2
    assert value(page, "muster_findings", kind="damage") == 0
    assert value(page, "muster_group_expires_timestamp_seconds", group="shop") == 1_700_000_600
    assert value(page, "muster_tables_age_seconds") == 60
    assert value(page, "muster_tables_run_timestamp_seconds") == 1_700_000_000


def test_what_only_tables_tell_is_not_there_without_them() -> None:
    of_tables = ("muster_tables", "muster_findings", "muster_group_expires")
    nothing_said = replace(a_view(), tables=TablesRun(1_700_000_000_000, None, None))
    for view in (replace(a_view(), tables=None), nothing_said):
        assert not [name for name in read(rendered(families(view, Names))) if name.startswith(of_tables)]


def test_more_committed_than_the_log_has() -> None:
    """As kafka-consumer-groups has it; sums, and the others' names, have no lags below 0."""
    page = a_page()
    assert value(page, "kafka_consumergroup_group_lag", group="beyond") == -3
    assert value(page, "kafka_consumergroup_group_sum_lag", group="beyond") == 0
    assert value(page, "kminion_kafka_consumer_group_topic_partition_lag", group_id="beyond") == 0
    assert value(page, "burrow_kafka_consumer_partition_lag", consumer_group="beyond") == 0


def test_what_is_not_known_is_not_there() -> None:
    page = a_page()
    there = {
        name for name, lines in read(page).items() for labels in lines if "unknown" in {text for _, text in labels}
    }
    assert there == {
        "kafka_consumergroup_group_offset", "muster_group_members", "muster_group_partitions_without_lag",
        "muster_group_offset_commits_total", "kminion_kafka_consumer_group_members",
        "kminion_kafka_consumer_group_offset_commits_total",
    }  # fmt: skip
    assert value(page, "muster_group_partitions_without_lag", group="unknown") == 1
    assert value(page, "muster_exporter_age_seconds", of="group_states") is None


def test_ages_are_those_of_the_scrape() -> None:
    now = 100.0
    page = Page("1", clock=lambda: now)
    assert read(page.text()).keys() & {"muster_exporter_age_seconds", "muster_exporter_round_seconds"} == set()
    assert value(page.text(), "muster_exporter_up") == 0
    page.show(Health(is_up=True, read_at={"commits": 95.0}))
    assert value(page.text(), "muster_exporter_age_seconds", of="commits") == 5
    now = 110.0
    assert value(page.text(), "muster_exporter_age_seconds", of="commits") == 15


def test_values_stay_when_a_round_brings_none() -> None:
    page = Page("1", [Names.KAFKA])
    page.show(Health(is_up=True), a_view())
    page.show(Health(is_up=False))
    assert value(page.text(), "muster_exporter_up") == 0
    assert value(page.text(), "kafka_consumergroup_group_sum_lag", group="shop") == 80


@pytest.mark.parametrize("names", [(), (Names.KMINION,), (Names.KAFKA, Names.BURROW)])
def test_only_the_names_that_are_wanted(names: tuple[Names, ...]) -> None:
    found = {name.split("_")[0] for name in read(rendered(families(a_view(), names)))}
    assert found == {"muster", *names}


HOSTILE = [
    'quo"te',
    "back\\slash",
    "line\nbreak",
    "}{",
    "\udcff\udcfe",
    "Grüße 世界 🎉",
    "\x1b[2J",
    "a" * 5000,
    "",
    "#",
    '\\"',
]


def test_hostile_names_stay_values_of_their_labels() -> None:
    rows = [
        group(name, PartitionRow(name, 0, 1, 2, 3.0, Owner(name, name, name), Verdict.OK, Verdict.OK))
        for name in HOSTILE
    ]
    page = rendered(families(View("lab", rows, LogEnds()), Names))
    lags = read(page)["kafka_consumergroup_group_lag"]
    shown = {dict(labels)["group"] for labels in lags}
    assert shown == {label(name) for name in HOSTILE}
    assert len(shown) == len(HOSTILE)
    assert len(page.decode().splitlines()) == len(re.findall(r"(?m)^(?:# |[a-z_]+\{)", page.decode()))


def test_labels() -> None:
    assert label("plain") == "plain"
    assert label("a\udcffb") == "a\\xffb"
    long = label("x" * 1000)
    assert len(long) < LONGEST + 20
    assert long != label("x" * 1001)


def test_left_out_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muster.exporter.limits.MOST_LEFT_OUT", 3)
    left_out = LeftOut()
    for number in range(10):
        left_out.note("groups", number)
    assert left_out.counts == {"groups": 3, "partitions": 0}


# From groups to rows.


def rows_of(log: Log, ends: LogEnds, **known: object) -> dict[str, GroupRow]:
    defaults = {"written_ms": {}, "listed": {}, "topic_names": {}, "now_ms": START_MS}
    rows, _ = group_rows(log.state.groups, Known(ends, **(defaults | known)))  # type: ignore[arg-type]
    return {row.group_id: row for row in rows}


def test_a_row_has_owner_lag_and_verdict() -> None:
    log, ends = Log(), LogEnds()
    log.generation(1, {"a": [0], "b": [1]})
    log.commit(90, 0)
    log.commit(40, 1)
    ends.look({(TOPIC, 0): (0, 80), (TOPIC, 1): (50, 80)}, START_MS - 10_000)
    ends.look({(TOPIC, 0): (0, 100), (TOPIC, 1): (50, 80)}, START_MS)
    row = rows_of(log, ends, listed={GROUP: (7, ListedGroup("Stable", "classic"))})[GROUP]
    assert (row.state, row.coordinator, row.members) == ("Stable", 7, 2)
    first, second = row.partitions
    assert first.owner == Owner("a", "/10.0.0.1", "client-a")
    assert (first.lag, first.lag_s) == (10, 5.0)
    assert second.owner.consumer_id == "b"
    assert (second.lag, second.lag_s) == (40, None)
    assert (second.verdict, second.burrow) == (Verdict.LOSING, Verdict.STALLED)


def test_commits_that_cannot_be_read_are_no_silence() -> None:
    log, ends = Log(), LogEnds()
    for place in range(4):
        log.commit(10 * place, at_ms=START_MS - 40_000 + 10_000 * place)
    ends.look({(TOPIC, 0): (0, 100)}, START_MS)
    later_ms = START_MS + 3_600_000
    (silent,) = rows_of(log, ends, now_ms=later_ms)[GROUP].partitions
    (unread,) = rows_of(log, ends, now_ms=later_ms, read_ms={GROUP: START_MS})[GROUP].partitions
    assert (silent.verdict, unread.verdict) == (Verdict.STOPPED, Verdict.WARN)


def test_who_falls_behind_between_two_looks_is_told() -> None:
    """Ten commits come between two looks, each a little further behind the end."""
    log, ends = Log(ends={(TOPIC, 0): 10_000}), LogEnds()
    log.state.go_live()
    ends.look({(TOPIC, 0): (0, 10_000)}, START_MS)
    for place in range(10):
        log.commit(10 * place, at_ms=START_MS + 1000 * place)
    ends.look({(TOPIC, 0): (0, 20_000)}, START_MS + 10_000)
    (row,) = rows_of(log, ends, now_ms=START_MS + 10_000)[GROUP].partitions
    assert row.verdict == Verdict.WARN


def test_a_commit_without_a_time_is_not_of_1969() -> None:
    log = Log()
    log.commit(10)
    position = log.state.groups[GROUP].positions[TOPIC, 0]
    log.state.groups[GROUP].positions[TOPIC, 0] = position._replace(window=(Commit(10, -1, None),))
    assert rows_of(log, LogEnds())[GROUP].last_commit_ms is None


def test_lag_in_time_from_the_record_itself() -> None:
    log, ends = Log(), LogEnds()
    log.commit(10)
    log.commit(80, 1)
    ends.look({(TOPIC, 0): (0, 80), (TOPIC, 1): (0, 80)}, START_MS)
    row = rows_of(log, ends, written_ms={(TOPIC, 0, 10): START_MS - 60_000})[GROUP]
    assert [one.lag_s for one in row.partitions] == [60.0, 0.0]


def test_topics_that_newer_groups_name_by_id() -> None:
    log, ends = Log(), LogEnds()
    log.commit(10)
    log.generation(1, {"a": []})
    member = log.state.groups[GROUP].members["a"]
    log.state.groups[GROUP].members["a"] = member._replace(owned_by_id=((b"id", (0,)), (b"?", (0,))))
    row = rows_of(log, ends, topic_names={b"id": TOPIC})[GROUP]
    assert row.partitions[0].owner.consumer_id == "a"


# The documents.


def test_every_metric_is_documented_and_every_documented_metric_is_there() -> None:
    text = (ROOT / "docs" / "exporter.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
    assert documented == set(read(a_page()))
    by_name = dict(re.findall(r"^\| `(\w+)` \|([^|]*)\|", text, re.MULTILINE))
    for name, lines in read(a_page()).items():
        labels = {key for line in lines for key, _ in line}
        assert set(re.findall(r"`(\w+)`", by_name[name])) == labels, name
