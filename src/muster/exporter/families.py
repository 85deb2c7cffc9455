"""Rows as metrics: the names that dashboards of the neighbouring tools use, and our own. `docs/exporter.md` lists them.

A metric without a value is left out of the page altogether, as is a label's series whose value is not known.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from muster.exporter.health import Health
from muster.exporter.labels import label
from muster.exporter.view import GroupRow, TablesRun, View

STABLE = "Stable"


class Names(StrEnum):
    """Whose names are on the page beside ours."""

    KAFKA = "kafka"
    """kafka_consumergroup_* and kafka_partition_*, of kafka-lag-exporter."""
    KMINION = "kminion"
    BURROW = "burrow"


def families(view: View, names: Iterable[Names]) -> Iterator[Metric]:
    """Metrics of groups and logs."""
    wanted = set(names)
    yield from _ours(view)
    if view.tables is not None:
        yield from _of_tables(view.tables, label(view.cluster_name))
    if Names.KAFKA in wanted:
        yield from _kafka_groups(view)
        yield from _kafka_logs(view)
    if Names.KMINION in wanted:
        yield from _kminion(view)
    if Names.BURROW in wanted:
        yield from _burrow(view)


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=labels)


def _ours(view: View) -> Iterator[Metric]:
    cluster = label(view.cluster_name)
    state = _gauge("muster_group_state", "1 for the state that a group is in", "cluster_name", "group", "state", "type")
    members = _gauge("muster_group_members", "Members of a group", "cluster_name", "group")
    verdict = _gauge(
        "muster_group_verdict", "1 for the verdict on a group: OK, WARN or ERR", "cluster_name", "group", "verdict"
    )
    unknown = _gauge(
        "muster_group_partitions_without_lag", "Committed partitions whose lag is not known", "cluster_name", "group"
    )
    committed = _gauge(
        "muster_group_last_commit_timestamp_seconds", "When a group committed last", "cluster_name", "group"
    )
    commits = CounterMetricFamily(
        "muster_group_offset_commits",
        "Partitions committed since the exporter follows",
        labels=["cluster_name", "group"],
    )
    rebalances = CounterMetricFamily(
        "muster_group_rebalances", "Rebalances by cause since the exporter follows",
        labels=["cluster_name", "group", "cause"],
    )  # fmt: skip
    for row in view.groups:
        group = label(row.group_id)
        if row.state is not None:
            state.add_metric([cluster, group, label(row.state), label(row.type or "")], 1)
        members.add_metric([cluster, group], row.members)
        if row.verdict is not None:
            verdict.add_metric([cluster, group, row.verdict.value], 1)
        unknown.add_metric([cluster, group], row.without_lag)
        if row.last_commit_ms is not None:
            committed.add_metric([cluster, group], row.last_commit_ms / 1000)
        commits.add_metric([cluster, group], row.commits)
        for cause, count in row.rebalances.items():
            rebalances.add_metric([cluster, group, cause], count)
    yield from (state, members, verdict, unknown, committed, commits, rebalances)
    yield _partition_verdicts(view, cluster)


def _partition_verdicts(view: View, cluster: str) -> Metric:
    family = _gauge(
        "muster_group_partition_verdict",
        "1 for the verdict on a partition: OK, WARN, STOPPED, STALLED, REWIND or LOSING",
        "cluster_name", "group", "topic", "partition", "verdict",
    )  # fmt: skip
    for row in view.groups:
        group = label(row.group_id)
        for one in row.partitions:
            if one.verdict is not None:
                family.add_metric([cluster, group, label(one.topic), str(one.partition), one.verdict.value], 1)
    return family


def _of_tables(run: TablesRun, cluster: str) -> Iterator[Metric]:
    findings = _gauge(
        "muster_findings", "Things to look at, as of the last run of the tables", "cluster_name", "severity", "kind"
    )
    for (severity, kind), count in (run.findings or {}).items():
        findings.add_metric([cluster, severity, kind], count)
    expires = _gauge(
        "muster_group_expires_timestamp_seconds",
        "When a group, or the first of its offsets, will be deleted, as of the last run of the tables",
        "cluster_name", "group",
    )  # fmt: skip
    for group_id, expires_ms in (run.expires_ms or {}).items():
        expires.add_metric([cluster, label(group_id)], expires_ms / 1000)
    yield from (findings, expires)


def _kafka_groups(view: View) -> Iterator[Metric]:
    cluster = label(view.cluster_name)
    per_partition = ("cluster_name", "group", "topic", "partition", "member_host", "consumer_id", "client_id")
    offset = _gauge("kafka_consumergroup_group_offset", "Committed offset", *per_partition)
    lag = _gauge("kafka_consumergroup_group_lag", "Log end offset minus committed offset", *per_partition)
    lag_s = _gauge("kafka_consumergroup_group_lag_seconds", "How long the next record has been waiting", *per_partition)
    of_group = ("cluster_name", "group")
    max_lag = _gauge("kafka_consumergroup_group_max_lag", "Largest lag of a group's partitions", *of_group)
    max_lag_s = _gauge("kafka_consumergroup_group_max_lag_seconds", "Largest lag in seconds", *of_group)
    sum_lag = _gauge("kafka_consumergroup_group_sum_lag", "Lag of all partitions together", *of_group)
    topic_lag = _gauge("kafka_consumergroup_group_topic_sum_lag", "Lag in a topic", *of_group, "topic")
    for row in view.groups:
        group = label(row.group_id)
        for one in row.partitions:
            owner = [label(one.owner.host), label(one.owner.consumer_id), label(one.owner.client_id)]
            labels = [cluster, group, label(one.topic), str(one.partition), *owner]
            offset.add_metric(labels, one.offset)
            if one.lag is not None:
                lag.add_metric(labels, one.lag)
            if one.lag_s is not None:
                lag_s.add_metric(labels, one.lag_s)
        if row.lags:
            max_lag.add_metric([cluster, group], max(row.lags))
            sum_lag.add_metric([cluster, group], sum(row.lags))
        if row.lags_s:
            max_lag_s.add_metric([cluster, group], max(row.lags_s))
        for topic, total in row.topic_lags().items():
            topic_lag.add_metric([cluster, group, label(topic)], total)
    yield from (offset, lag, lag_s, max_lag, max_lag_s, sum_lag, topic_lag)


def _kafka_logs(view: View) -> Iterator[Metric]:
    labels = ("cluster_name", "topic", "partition")
    latest = _gauge("kafka_partition_latest_offset", "Log end offset", *labels)
    earliest = _gauge("kafka_partition_earliest_offset", "Log start offset", *labels)
    for (topic, partition), end in view.ends.items():
        where = [label(view.cluster_name), label(topic), str(partition)]
        latest.add_metric(where, end.end)
        if end.start is not None:
            earliest.add_metric(where, end.start)
    yield from (latest, earliest)


def _kminion(view: View) -> Iterator[Metric]:
    info = _gauge(
        "kminion_kafka_consumer_group_info", "1 if the group is stable, otherwise 0",
        "group_id", "protocol", "protocol_type", "state", "coordinator_id",
    )  # fmt: skip
    members = _gauge("kminion_kafka_consumer_group_members", "Members of a group", "group_id")
    lag = _gauge(
        "kminion_kafka_consumer_group_topic_partition_lag", "Records between commit and log end",
        "group_id", "topic_name", "partition_id",
    )  # fmt: skip
    topic_lag = _gauge("kminion_kafka_consumer_group_topic_lag", "Lag in a topic", "group_id", "topic_name")
    commits = CounterMetricFamily(
        "kminion_kafka_consumer_group_offset_commits", "Partitions committed", labels=["group_id"]
    )
    for row in view.groups:
        group = label(row.group_id)
        if row.state is not None and row.coordinator is not None:
            told = [group, label(row.protocol), label(row.protocol_type), label(row.state), str(row.coordinator)]
            info.add_metric(told, float(row.state == STABLE))
        members.add_metric([group], row.members)
        commits.add_metric([group], row.commits)
        for one in row.partitions:
            if one.lag is not None:
                lag.add_metric([group, label(one.topic), str(one.partition)], max(0, one.lag))
        for topic, total in row.topic_lags().items():
            topic_lag.add_metric([group, label(topic)], total)
    yield from (info, members, lag, topic_lag, commits)
    yield from _kminion_logs(view)


def _kminion_logs(view: View) -> Iterator[Metric]:
    labels = ("topic_name", "partition_id")
    high = _gauge("kminion_kafka_topic_partition_high_water_mark", "Log end offset", *labels)
    low = _gauge("kminion_kafka_topic_partition_low_water_mark", "Log start offset", *labels)
    for (topic, partition), end in view.ends.items():
        high.add_metric([label(topic), str(partition)], end.end)
        if end.start is not None:
            low.add_metric([label(topic), str(partition)], end.start)
    yield from (high, low)


def _burrow(view: View) -> Iterator[Metric]:
    cluster = label(view.cluster_name)
    of_group, of_partition = ("cluster", "consumer_group"), ("cluster", "consumer_group", "topic", "partition")
    status = _gauge("burrow_kafka_consumer_status", "1 OK, 2 WARN, 3 ERR", *of_group)
    total = _gauge("burrow_kafka_consumer_lag_total", "Lag of all partitions together", *of_group)
    lag = _gauge("burrow_kafka_consumer_partition_lag", "Records between commit and log end", *of_partition)
    partition = _gauge("burrow_kafka_topic_partition_status", "1 OK, 2 WARN, 4 STOP, 5 STALL, 6 REWIND", *of_partition)
    for row in view.groups:
        group = label(row.group_id)
        if row.burrow is not None:
            status.add_metric([cluster, group], row.burrow.burrow_code)
        if row.lags:
            total.add_metric([cluster, group], sum(row.lags))
        _add_burrow_partitions(row, [cluster, group], lag, partition)
    yield from (status, total, lag, partition)


def _add_burrow_partitions(
    row: GroupRow, of_group: list[str], lag: GaugeMetricFamily, status: GaugeMetricFamily
) -> None:
    for one in row.partitions:
        labels = [*of_group, label(one.topic), str(one.partition)]
        if one.lag is not None:
            lag.add_metric(labels, max(0, one.lag))
        if one.burrow is not None:
            status.add_metric(labels, one.burrow.burrow_code)


def health_families(health: Health, now: float, version: str) -> Iterator[Metric]:
    """Metrics of the exporter, as of the scrape."""
    yield GaugeMetricFamily("muster_exporter_up", "1 if the last round of questions was answered", int(health.is_up))
    yield _by_label("muster_exporter_build_info", "The release of muster", "version", {version: 1.0})
    ages = {what: now - at for what, at in health.read_at.items() if at is not None}
    yield _by_label("muster_exporter_age_seconds", "Age of the oldest value of a kind on this page", "of", ages)
    if health.tables_at is not None and health.tables_at_ms is not None:
        age_s = max(0.0, now - health.tables_at)
        yield GaugeMetricFamily("muster_tables_age_seconds", "Since the last run of the tables looked", age_s)
        yield GaugeMetricFamily(
            "muster_tables_run_timestamp_seconds", "When the last run of the tables looked", health.tables_at_ms / 1000
        )
    if health.round_s is not None:
        yield GaugeMetricFamily("muster_exporter_round_seconds", "What the last round took", health.round_s)
    for name, text, count in (
        ("muster_exporter_rounds", "Rounds of questions", health.rounds),
        ("muster_exporter_failed_rounds", "Rounds in which something was not answered", health.failed_rounds),
        ("muster_exporter_records", "Records of __consumer_offsets read", health.records),
        ("muster_exporter_unreadable_records", "Records and batches that could not be read", health.unreadable),
    ):
        yield CounterMetricFamily(name, text, count)
    yield _by_label(
        "muster_exporter_offsets_partitions", "Partitions of __consumer_offsets by how they are followed", "state",
        health.offsets_partitions,
    )  # fmt: skip
    yield _by_label("muster_exporter_left_out", "Groups and partitions there was no room for", "what", health.left_out)
    yield _by_label(
        "muster_exporter_lag_seconds_values", "Lags in seconds on this page by how they are known", "method",
        health.methods,
    )  # fmt: skip


def _by_label(name: str, text: str, label_name: str, values: "dict[str, float] | dict[str, int]") -> Metric:
    family = _gauge(name, text, label_name)
    for key, value in values.items():
        family.add_metric([key], value)
    return family
