"""The server's counters as Prometheus metrics, made for each request of Prometheus."""

from collections import Counter
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from muster.core.states import State
from muster.core.transactions.states import TransactionState
from muster.errors import ConfigError
from muster.protocol.apis import APIS
from muster.server.assembly import Parts
from muster.server.server_log import ABORTED, BOUNDS_S, COMMITTED, Latency


class ServerCollector:
    """Reads the server's state from another thread; a number may be a moment old, never wrong."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def collect(self) -> Iterator[Metric]:
        yield from self._requests()
        yield from self._groups()
        yield from self._transactions()
        yield from self._partitions()
        yield from self._counters()

    def _requests(self) -> Iterator[Metric]:
        family = HistogramMetricFamily(
            "muster_request_seconds", "From the request to its answer, waiting included", labels=["api"]
        )
        for api_key, latency in list(self._parts.stats.requests.items()):
            family.add_metric([APIS[api_key].name], _cumulative(latency), latency.total_s)
        yield family
        flush = HistogramMetricFamily("muster_flush_seconds", "From the end of a turn to durable")
        flush.add_metric([], _cumulative(self._parts.stats.flush), self._parts.stats.flush.total_s)
        yield flush

    def _groups(self) -> Iterator[Metric]:
        groups: Counter[tuple[str, str]] = Counter({(state.value, "classic"): 0 for state in State})
        members = offsets = pending = parked = 0
        for led in list(self._parts.led_partitions.by_number.values()):
            coordinator = led.coordinator
            if coordinator is None:
                continue
            for kind in list(coordinator.newer.kinds.values()):
                groups["Unknown", kind] += 1
            for group in list(coordinator.groups.values()):
                groups[group.seats.state.value, "classic"] += 1
                offsets += len(group.offsets)
            members += coordinator.rebalancing.seat_count
            pending += coordinator.table.pending_offsets
            parked += sum(
                member.join_waiter is not None or member.sync_waiter is not None
                for group in list(coordinator.groups.values())
                for member in list(group.seats.members.values())
            )
        family = GaugeMetricFamily("muster_groups", "Groups by state and type", labels=["state", "type"])
        for (state, kind), count in groups.items():
            family.add_metric([state, kind], count)
        yield family
        yield GaugeMetricFamily("muster_members", "Members of all groups, and ids handed out", value=members)
        yield GaugeMetricFamily("muster_offsets", "Committed offsets", value=offsets)
        yield GaugeMetricFamily("muster_pending_offsets", "Offsets in open transactions", value=pending)
        parked_family = GaugeMetricFamily("muster_parked_requests", "Requests that wait", labels=["for"])
        parked_family.add_metric(["rebalance"], parked)
        parked_family.add_metric(["records"], len(self._parts.fetches))
        held = sum(len(led.replies) for led in list(self._parts.led_partitions.by_number.values()))
        parked_family.add_metric(["disk"], held)
        yield parked_family

    def _transactions(self) -> Iterator[Metric]:
        states: Counter[TransactionState] = Counter()
        for led in list(self._parts.transactions.led.by_number.values()):
            if led.coordinator is not None:
                states.update(each.state for each in list(led.coordinator.transactions.values()))
        known = GaugeMetricFamily("muster_transactional_ids", "Transactional ids by state", labels=["state"])
        for state in TransactionState:
            known.add_metric([state.kafka_name], states[state])
        ended = CounterMetricFamily("muster_transactions", "Transactions that have ended", labels=["outcome"])
        for outcome in (COMMITTED, ABORTED):
            ended.add_metric([outcome], self._parts.stats.ended_transactions[outcome])
        yield from (known, ended)

    def _partitions(self) -> Iterator[Metric]:
        load = GaugeMetricFamily("muster_partition_load_seconds", "How long the last load took", labels=["partition"])
        size = GaugeMetricFamily("muster_partition_bytes", "Size of the log on disk", labels=["partition"])
        active = GaugeMetricFamily("muster_partition_active", "1 if its groups are served", labels=["partition"])
        for partition, led in list(self._parts.led_partitions.by_number.items()):
            load.add_metric([str(partition)], led.load_seconds)
            size.add_metric([str(partition)], led.log.size_bytes)
            active.add_metric([str(partition)], float(led.coordinator is not None))
        yield from (load, size, active)

    def _counters(self) -> Iterator[Metric]:
        stats = self._parts.stats
        rebalances = CounterMetricFamily("muster_rebalances", "Completed rebalances by cause", labels=["cause"])
        for cause, count in list(stats.rebalances.items()):
            rebalances.add_metric([cause.value], count)
        yield rebalances
        for name, help_text, value in (
            ("muster_offset_commits", "Partitions committed", stats.commits),
            ("muster_expired_offsets", "Offsets past their retention", stats.expired_offsets),
            ("muster_deleted_offsets", "Offsets deleted on request or with their topic", stats.deleted_offsets),
            ("muster_removed_groups", "Groups that ended", stats.removed_groups),
            ("muster_expired_members", "Members that lost their seats", stats.expired_members),
            ("muster_timed_out_transactions", "Transactions that were open for too long", stats.timed_out_transactions),
            ("muster_refused_connections", "Connections there was no room for", stats.refused_connections),
            ("muster_bad_requests", "Clients that were sent away", stats.bad_requests),
            ("muster_faults", "Mistakes of the server that ended an answer or a partition's turn", stats.faults),
            ("muster_compactions", "Rounds of compaction", stats.compactions),
            ("muster_compacted_bytes", "Bytes given back by compaction", stats.compacted_bytes),
            ("muster_compaction_seconds", "Time spent compacting", stats.compaction_s),
            ("muster_lost_log_lines", "Log lines that could not be written", self._parts.server_log.lost_lines),
        ):
            yield CounterMetricFamily(name, help_text, value=value)
        yield GaugeMetricFamily("muster_connections", "Clients connected", value=stats.connections)
        yield GaugeMetricFamily(
            "muster_uncleanable_logs",
            "Logs that are not compacted any more",
            value=self._parts.compaction.uncleanable_logs,
        )


def _cumulative(latency: Latency) -> list[tuple[str, float]]:
    counts, total = [], 0
    for bound, count in zip([*map(str, BOUNDS_S), "+Inf"], latency.buckets, strict=True):
        total += count
        counts.append((bound, float(total)))
    return counts


def registry(parts: Parts) -> CollectorRegistry:
    made = CollectorRegistry()
    made.register(ServerCollector(parts))
    return made


class MetricsPort:
    """Answers `GET /metrics` on a port, 0 for a free one, in a thread of its own. `ConfigError` if it is taken."""

    def __init__(self, parts: Parts, port: int, host: str = "127.0.0.1") -> None:
        try:
            self._http, self._thread = start_http_server(port, addr=host, registry=registry(parts))
        except (OSError, OverflowError) as error:
            why = error.strerror if isinstance(error, OSError) else "ports are numbers from 0 to 65535"
            raise ConfigError(
                f"Metrics cannot be served on port {port}: {why}. Choose another --metrics-port."
            ) from error
        self.url = f"http://{host}:{self._http.server_port}/metrics"

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()
