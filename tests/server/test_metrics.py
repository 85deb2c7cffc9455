"""Metrics of a running server, as Prometheus reads them, after clients have done what they count."""

import re
import socket
import time
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from muster.protocol.apis import ApiKey
from tests.server.raw import Raw, ServerProcess, commit_body, create_topic, running
from tests.server.test_abuse import JOIN
from tests.server.transactions.talking import Producer

DOCS = Path(__file__).parents[2] / "docs" / "operating.md"
NO_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))
Metrics = dict[tuple[str, frozenset[tuple[str, str]]], float]


def url_of(server: ServerProcess) -> str:
    return str(re.findall(r"metrics at (http://\S+)", server.log.read_text())[-1])


def fetched(url: str) -> str:
    with NO_PROXY.open(url, timeout=20) as answer:
        return str(answer.read().decode())


def scraped(server: ServerProcess) -> Metrics:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(fetched(url_of(server)))
        for sample in family.samples
    }


def value(metrics: Metrics, name: str, **labels: str) -> float:
    return metrics.get((name, frozenset(labels.items())), 0.0)


def wait_for(server: ServerProcess, name: str, wanted: float, **labels: str) -> Metrics:
    deadline = time.monotonic() + 20
    while value(metrics := scraped(server), name, **labels) != wanted:
        assert time.monotonic() < deadline, (name, labels, value(metrics, name, **labels), wanted)
        time.sleep(0.05)
    return metrics


def wait_for_line(server: ServerProcess, text: str) -> None:
    """A thread writes the log, perhaps after the answer that a client has already."""
    deadline = time.monotonic() + 20
    while text not in server.log.read_text():
        assert time.monotonic() < deadline, server.log.read_text()[-2_000:]
        time.sleep(0.02)


def sit_down(raw: Raw, group: str, **more: object) -> str:
    """Join and sync alone; the member's id."""
    joined = raw.ask(ApiKey.JOIN_GROUP, 3, groupId=group, **(JOIN | more))
    assert joined["errorCode"] == 0
    me = {"groupId": group, "generationId": joined["generationId"], "memberId": joined["memberId"]}
    assigned = [{"memberId": joined["memberId"], "assignment": b"x"}]
    assert raw.ask(ApiKey.SYNC_GROUP, 3, groupInstanceId=None, assignments=assigned, **me)["errorCode"] == 0
    return str(joined["memberId"])


def transactions_are_counted(server: ServerProcess, raw: Raw) -> None:
    producer = Producer(raw, "worker-1", 2).begin()
    for commit in (True, True, False):
        producer.send("orders", 0, "a")
        assert value(scraped(server), "muster_transactional_ids", state="Ongoing") == 1
        assert producer.end(commit=commit) == 0
    metrics = wait_for(server, "muster_transactional_ids", 1, state="CompleteAbort")
    assert value(metrics, "muster_transactions_total", outcome="committed") == 2
    assert value(metrics, "muster_transactions_total", outcome="aborted") == 1
    assert value(metrics, "muster_timed_out_transactions_total") == 0
    assert Producer(raw, "slow", 0).begin(timeout_ms=1).add("orders", 1) == [0]
    wait_for(server, "muster_timed_out_transactions_total", 1)
    wait_for(server, "muster_transactions_total", 2, outcome="aborted")
    wait_for_line(server, "transactional id 'slow': its transaction is open for longer")
    fenced = Producer(raw, "worker-1", 2).begin()
    fenced.send("orders", 0, "c")
    assert "was open when another producer began" not in server.log.read_text()
    Producer(raw, "worker-1", 2).begin()
    wait_for_line(server, "transactional id 'worker-1': its transaction was open when another producer")


def test_what_clients_do_is_counted(tmp_path: Path) -> None:
    settings = (
        "offsets.retention.check.interval.ms=100", "offsets.topic.segment.bytes=20000", "log.cleaner.backoff.ms=50",
        "log.cleaner.min.cleanable.ratio=0.01", "transaction.state.log.num.partitions=1",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms=50",
    )  # fmt: skip
    arguments = [part for setting in settings for part in ("--set", setting)]
    with running(tmp_path / "data", "--metrics-port", "0", *arguments) as server, Raw(server.address) as raw:
        create_topic(server.address, "orders", 4)
        before = scraped(server)
        assert value(before, "muster_groups", state="Stable", type="classic") == 0
        assert ("muster_groups", frozenset({("state", "Empty"), ("type", "classic")})) in before
        for partition in range(4):
            assert value(before, "muster_partition_active", partition=str(partition)) == 1

        member = sit_down(raw, "seated")
        metrics = wait_for(server, "muster_groups", 1, state="Stable", type="classic")
        assert value(metrics, "muster_members") == 1
        assert value(metrics, "muster_rebalances_total", cause="member joined") == 1
        assert value(metrics, "muster_request_seconds_count", api="JoinGroup") == 1
        assert value(metrics, "muster_request_seconds_bucket", api="JoinGroup", le="+Inf") == 1
        assert 0 < value(metrics, "muster_request_seconds_sum", api="JoinGroup") < 60
        assert value(metrics, "muster_flush_seconds_count") >= 1

        for number in range(5):
            raw.ask(ApiKey.OFFSET_COMMIT, 8, **commit_body("commits", "orders", {0: number, 1: number}))
        metrics = scraped(server)
        assert value(metrics, "muster_offset_commits_total") == 10
        assert value(metrics, "muster_offsets") == 2
        assert value(metrics, "muster_request_seconds_count", api="OffsetCommit") == 5

        with Raw(server.address) as second:  # waits for the first to join again, which it does not
            second.send(ApiKey.JOIN_GROUP, 3, groupId="seated", **JOIN)
            metrics = wait_for(server, "muster_parked_requests", 1, **{"for": "rebalance"})
            assert value(metrics, "muster_groups", state="PreparingRebalance", type="classic") == 1
            assert value(metrics, "muster_connections") >= 2
            raw.ask(ApiKey.LEAVE_GROUP, 1, groupId="seated", memberId=member)
            assert second.hear(ApiKey.JOIN_GROUP, 3)[1]["errorCode"] == 0

        transactions_are_counted(server, raw)

        gone = [{"name": "orders", "partitions": [{"partitionIndex": 0}]}]
        assert raw.ask(ApiKey.OFFSET_DELETE, 0, groupId="commits", topics=gone)["errorCode"] == 0
        wait_for(server, "muster_deleted_offsets_total", 1)
        raw.ask(ApiKey.DELETE_GROUPS, 1, groupsNames=["commits"])
        metrics = scraped(server)
        assert value(metrics, "muster_removed_groups_total") == 1
        assert value(metrics, "muster_offsets") == 0

        sit_down(raw, "sleepy", sessionTimeoutMs=1_500)
        wait_for(server, "muster_expired_members_total", 1)

        old = commit_body("old", "orders", {0: 1}) | {"retentionTimeMs": 1}
        raw.ask(ApiKey.OFFSET_COMMIT, 2, **old)
        wait_for(server, "muster_expired_offsets_total", 1)

        with socket.create_connection(server.address) as bad:
            bad.sendall(b"\xff" * 100)
            bad.recv(1)
        assert value(scraped(server), "muster_bad_requests_total") == 1

        for number in range(2_000):
            raw.send(ApiKey.OFFSET_COMMIT, 8, **commit_body("compacted", "orders", {0: number}))
        for _ in range(2_000):
            raw.frame()
        deadline = time.monotonic() + 30
        while not value(metrics := scraped(server), "muster_compacted_bytes_total"):
            assert time.monotonic() < deadline, server.log.read_text()[-2_000:]
            time.sleep(0.1)
        assert value(metrics, "muster_compactions_total") >= 1
        assert value(metrics, "muster_compaction_seconds_total") > 0
        assert server.stop() == 0
    with running(tmp_path / "data", "--metrics-port", "0") as server:
        metrics = scraped(server)
        loads = [number for (name, _), number in metrics.items() if name == "muster_partition_load_seconds"]
        assert len(loads) == 4
        assert max(loads) > 0


def test_connections_there_is_no_room_for(tmp_path: Path) -> None:
    with running(tmp_path / "data", "--metrics-port", "0", "--set", "max.connections=1") as server:
        with Raw(server.address) as first, socket.create_connection(server.address) as second:
            assert first.ask(ApiKey.API_VERSIONS, 0)["errorCode"] == 0
            assert second.recv(1) == b""
            wait_for(server, "muster_refused_connections_total", 1)
        wait_for_line(server, "1 connection refused beside 1 open ones: max.connections is 1")


def test_every_metric_is_documented_and_served(tmp_path: Path) -> None:
    section = DOCS.read_text(encoding="utf-8").split("## Metrics")[1].split("\n## ")[0]
    documented = dict(re.findall(r"^\| `(muster_\w+)` \| (\w+)", section, re.MULTILINE))
    with running(tmp_path / "data", "--metrics-port", "0") as server:
        served = {
            family.name: family.type
            for family in text_string_to_metric_families(fetched(url_of(server)))
            if family.name.startswith("muster_")
        }
    assert served == documented


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = ServerProcess(tmp_path / "data", "--metrics-port", str(taken.getsockname()[1]))
        with pytest.raises(AssertionError, match="Metrics cannot be served on port"):
            server.start()
        assert server.process is not None
        assert server.process.wait(10) == 3
    with running(tmp_path / "data"):
        pass  # the directory was let go of
