"""Lines that `muster serve` writes while clients come and go: plain ones for people, objects for machines."""

import json
import re
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from muster.protocol.apis import ApiKey
from tests.server.raw import Raw, ServerProcess, commit_body, create_topic, running, wait_until_loaded
from tests.server.test_abuse import JOIN

DOCS = Path(__file__).parents[2] / "docs" / "operating.md"


def settled(read: Callable[[], list[Any]], until: Callable[[list[Any]], bool]) -> list[Any]:
    deadline = time.monotonic() + 20
    while not until(lines := read()):
        assert time.monotonic() < deadline, lines
        time.sleep(0.02)
    return lines


def clients_come_and_go(server: ServerProcess) -> None:
    """Everything that can happen to a group in a short time."""
    create_topic(server.address, "orders", 2)
    create_topic(server.address, "doomed", 1)
    with Raw(server.address) as first, Raw(server.address) as second:
        joined = first.ask(ApiKey.JOIN_GROUP, 3, groupId="g", **JOIN)
        me = {"groupId": "g", "generationId": 1, "memberId": joined["memberId"], "groupInstanceId": None}
        assigned = [{"memberId": joined["memberId"], "assignment": b"x"}]
        first.ask(ApiKey.SYNC_GROUP, 3, assignments=assigned, **me)
        second.send(ApiKey.JOIN_GROUP, 8, groupId="g", groupInstanceId=None, reason="more work", **JOIN)
        other = second.hear(ApiKey.JOIN_GROUP, 8)[1]["memberId"]
        again = JOIN | {"memberId": other, "sessionTimeoutMs": 300}
        second.send(ApiKey.JOIN_GROUP, 8, groupId="g", groupInstanceId=None, reason="more work", **again)
        first.send(ApiKey.JOIN_GROUP, 3, groupId="g", **(JOIN | {"memberId": joined["memberId"]}))
        leader = first.hear(ApiKey.JOIN_GROUP, 3)[1]
        assert second.hear(ApiKey.JOIN_GROUP, 8)[1]["generationId"] == 2
        both = [{"memberId": one["memberId"], "assignment": b"x"} for one in leader["members"]]
        first.ask(ApiKey.SYNC_GROUP, 3, assignments=both, **(me | {"generationId": 2}))
        # The second one falls silent, and the first notices and goes.
        settled(lambda: server.log.read_text().splitlines(), lambda lines: "session expired" in "".join(lines))
        goes = [{"memberId": joined["memberId"], "groupInstanceId": None, "reason": "good\nnight"}]
        first.ask(ApiKey.LEAVE_GROUP, 5, groupId="g", members=goes)
        first.ask(ApiKey.OFFSET_COMMIT, 8, **commit_body("h", "orders", {0: 1, 1: 1}))
        first.ask(ApiKey.OFFSET_COMMIT, 8, **commit_body("h", "doomed", {0: 1}))
        first.ask(ApiKey.DELETE_TOPICS, 3, topicNames=["doomed"], timeoutMs=5_000)
        first.ask(ApiKey.OFFSET_COMMIT, 2, **(commit_body("old", "orders", {0: 1}) | {"retentionTimeMs": 1}))
        first.ask(ApiKey.DELETE_GROUPS, 1, groupsNames=["h"])
    with socket.create_connection(server.address) as bad:
        bad.sendall(b"\xff" * 64)
        bad.recv(1)


EXPECTED = [
    ("topic created", r"topic orders: created"),
    ("created", r"group g: created"),
    ("joined", r"group g: member raw-\S+ joined"),
    ("rebalancing", r"group g: rebalances from generation 0 \(member joined\)"),
    ("stable", r"group g: rebalanced in \d+ ms to generation 1 with 1 member \(member joined\)"),
    ("joined", r"group g: member raw-\S+ joined, saying: more work"),
    ("rebalancing", r"group g: rebalances from generation 1 \(member joined\)"),
    ("stable", r"group g: rebalanced in \d+ ms to generation 2 with 2 members \(member joined\)"),
    ("expired", r"group g: member raw-\S+ was removed \(session expired\)"),
    ("rebalancing", r"group g: rebalances from generation 2 \(session expired\)"),
    ("left", r"group g: member raw-\S+ left.*, saying: good\\nnight"),
    ("empty", r"group g: empty since generation 3"),
    ("offsets deleted", r"group h: 1 offset deleted \(topic deleted\)"),
    ("topic deleted", r"topic doomed: deleted"),
    ("removed", r"group h: removed \(group deleted\)"),
    ("offsets expired", r"group old: 1 offset expired \(retention passed\)"),
    ("removed", r"group old: removed.*"),
    ("sent away", r"127.0.0.1:\d+ was sent away: .*"),
]


def test_plain_lines(tmp_path: Path) -> None:
    with running(tmp_path / "data", "--set", "offsets.retention.check.interval.ms=100") as server:
        clients_come_and_go(server)
        lines = settled(
            lambda: server.log.read_text().splitlines(), lambda lines: "group old: removed" in "".join(lines)
        )
        assert server.stop() == 0
    for line in lines:
        assert re.match(r"\d\d:\d\d:\d\d\.\d{3} ", line), line
    for _event, words in EXPECTED:
        found = [line for line in lines if re.fullmatch(words, line[13:])]
        assert len(found) == 1, (words, found, lines)
    assert [line[13:] for line in server.log.read_text().splitlines()[-2:]] == [
        "stopping: no connection is accepted any more, requests that wait are answered", "stopped",
    ]  # fmt: skip


def test_json_lines(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running(data, "--log-json", "--set", "offsets.retention.check.interval.ms=100") as server:
        clients_come_and_go(server)
        settled(lambda: server.log.read_text().splitlines(), lambda lines: "group old: removed" in "".join(lines))
        assert server.stop() == 0
    with running(data, "--log-json", "--set", "zookeeper.connect=nowhere") as server:
        wait_until_loaded(server.address, "g")
        assert server.stop() == 0
    lines = [json.loads(line) for line in server.log.read_text().splitlines()]
    by_event: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        assert abs(line["time_ms"] / 1000 - time.time()) < 600
        by_event.setdefault(line["event"], []).append(line)
    for event, words in EXPECTED:
        assert [line for line in by_event[event] if re.fullmatch(words, line["text"])], (event, words)
    stable = by_event["stable"][-1]
    assert (stable["group"], stable["generation"], stable["size"], stable["cause"]) == ("g", 2, 2, "member joined")
    assert by_event["left"][0]["reason"] == "good\nnight"
    assert by_event["expired"][0]["member"].startswith("raw-")
    loaded = [line for line in by_event["loaded"] if line["records"]]
    assert loaded
    assert all({"partition", "groups", "offsets", "seconds"} <= set(line) for line in loaded)
    assert by_event["stopping"]
    assert by_event["stopped"]
    documented = set(re.findall(r"`([a-z ]+)`", DOCS.read_text(encoding="utf-8").split("| event |")[1].split("## ")[0]))
    assert set(by_event) <= documented


def test_a_server_whose_log_nobody_reads(tmp_path: Path) -> None:
    """Its standard error is a pipe that was closed: groups are served, and the end is a good one."""
    import os
    import subprocess
    import sys

    read, write = os.pipe()
    command = [sys.executable, "-m", "muster", "serve", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "data")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=write, text=True) as process:
        os.close(write)
        os.close(read)
        assert process.stdout is not None
        ready = re.match(r"muster is ready at ([\d.]+):(\d+)", process.stdout.readline())
        assert ready
        address = ready[1], int(ready[2])
        create_topic(address, "orders", 1)
        with Raw(address) as raw:
            for number in range(20):
                answer = raw.ask(ApiKey.OFFSET_COMMIT, 8, **commit_body(f"g-{number}", "orders", {0: 1}))
                assert answer["topics"][0]["partitions"][0]["errorCode"] == 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
