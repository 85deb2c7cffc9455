"""What a server wrote while clients used it: kafka-dump-log takes it, and reads from it what the server says."""

import json
import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from muster.protocol.apis import ApiKey
from tests.kit.kafka import dump_log, require_kafka
from tests.server.raw import Raw, ServerProcess, commit_body, create_topic, fetch_offsets

pytestmark = pytest.mark.kafka

WAIT_S = 30.0
RECORD = re.compile(r"^\| offset: (\d+) .*? key: (\{.*?\}) payload: (<DELETE>|\{.*\})$")
Offsets = dict[tuple[str, str, int], tuple[int, str]]


def use(address: tuple[str, int]) -> Consumer:
    """Groups that are made, rebalanced, committed to, emptied and deleted; the consumer that is still there."""
    bootstrap = f"{address[0]}:{address[1]}"
    common = {"bootstrap.servers": bootstrap, "enable.auto.commit": False, "session.timeout.ms": 30_000}
    consumers = []
    for number in range(2):
        consumer = Consumer({**common, "group.id": "shared", "client.id": f"c{number}"})
        consumer.subscribe(["orders"])
        consumers.append(consumer)
    deadline = time.monotonic() + WAIT_S
    while sorted(len(each.assignment()) for each in consumers) != [2, 2]:
        assert time.monotonic() < deadline
        for each in consumers:
            each.poll(0.05)
    for each in consumers:
        each.commit(offsets=[TopicPartition(p.topic, p.partition, 7) for p in each.assignment()], asynchronous=False)
    consumers[1].close()
    while len(consumers[0].assignment()) != 4:
        assert time.monotonic() < deadline
        consumers[0].poll(0.05)
    consumers[0].commit(offsets=[TopicPartition("orders", 2, 9, "Grüße, 世界")], asynchronous=False)
    with Raw(address) as raw:
        for group in range(20):
            for commit in range(30):
                body = commit_body(f"simple-{group}", "orders", {commit % 4: commit, (commit + 1) % 4: commit})
                answer = raw.ask(ApiKey.OFFSET_COMMIT, 8, **body)
                assert answer["topics"][0]["partitions"][0]["errorCode"] == 0
        topics = [{"name": "orders", "partitions": [{"partitionIndex": 1}]}]
        assert raw.ask(ApiKey.OFFSET_DELETE, 0, groupId="simple-3", topics=topics)["errorCode"] == 0
        deleted = raw.ask(ApiKey.DELETE_GROUPS, 2, groupsNames=["simple-4", "simple-5"])
        assert [each["errorCode"] for each in deleted["results"]] == [0, 0]
    return consumers[0]


def served(address: tuple[str, int]) -> tuple[Offsets, dict[str, tuple[str, list[str]]]]:
    """All offsets, and state and members of all groups, as a client sees them."""
    offsets: Offsets = {}
    groups = {}
    with Raw(address) as raw:
        for listed in raw.ask(ApiKey.LIST_GROUPS, 4)["groups"]:
            group = listed["groupId"]
            asked = [{"groupId": group, "memberId": None, "memberEpoch": -1, "topics": None}]
            (found,) = raw.ask(ApiKey.OFFSET_FETCH, 9, groups=asked, requireStable=True)["groups"]
            for topic in found["topics"]:
                for each in topic["partitions"]:
                    offsets[group, topic["name"], each["partitionIndex"]] = each["committedOffset"], each["metadata"]
            (described,) = raw.ask(ApiKey.DESCRIBE_GROUPS, 5, groups=[group])["groups"]
            members = sorted(member["memberId"] for member in described["members"])
            groups[group] = described["protocolType"], members
        assert fetch_offsets(raw, "simple-4")[1] == {}
    return offsets, groups


def decoded(text: str) -> tuple[Offsets, dict[str, tuple[str, list[str]]]]:
    """The same out of what kafka-dump-log printed, by the last word on every key."""
    offsets: Offsets = {}
    groups: dict[str, tuple[str, list[str]]] = {}
    for line in text.splitlines():
        match = RECORD.match(line)
        if match is None:
            continue
        key: dict[str, Any] = json.loads(match[2])
        value: dict[str, Any] | None = None if match[3] == "<DELETE>" else json.loads(match[3])["data"]
        of = key["data"]
        if key["type"] == "2":
            if value is None:
                groups.pop(of["group"], None)
            else:
                groups[of["group"]] = value["protocolType"], sorted(each["memberId"] for each in value["members"])
        elif value is None:
            offsets.pop((of["group"], of["topic"], of["partition"]), None)
        else:
            offsets[of["group"], of["topic"], of["partition"]] = value["offset"], value["metadata"]
    return offsets, groups


def test_the_log_says_what_the_server_says(tmp_path: Path) -> None:
    kafka = require_kafka()
    small = ("--set", "offsets.topic.segment.bytes=16384", "--set", "log.index.interval.bytes=512")
    with ServerProcess(tmp_path / "data", *small) as server:
        create_topic(server.address, "orders", 4)
        consumer = use(server.address)
        offsets, groups = served(server.address)
        # While it runs: what was answered is in the files.
        shutil.copytree(tmp_path / "data", tmp_path / "copy", ignore=shutil.ignore_patterns("muster-control"))
        assert served(server.address) == (offsets, groups)
        consumer.close()
        assert server.stop() == 0
    segments = sorted((tmp_path / "copy").glob("__consumer_offsets-*/*.log"))
    assert len(segments) > 4, "more than one in a partition"
    text = dump_log(segments, kafka=kafka)
    assert "isvalid: false" not in text
    told_offsets, told_groups = decoded(text)
    assert told_offsets == offsets
    assert offsets["shared", "orders", 2] == (9, "Grüße, 世界\x00"), "confluent-kafka counts the end of a C string"
    assert {group: told for group, told in groups.items() if told[0]} == told_groups
    assert len(told_groups["shared"][1]) == 1
    # The indexes of a server that has stopped point to where they should.
    indexes = sorted((tmp_path / "data").glob("__consumer_offsets-*/*.index"))
    times = sorted((tmp_path / "data").glob("__consumer_offsets-*/*.timeindex"))
    said = dump_log([*indexes, *times], "--deep-iteration", kafka=kafka)
    assert said.count("Dumping ") == len(indexes) + len(times)
    assert "Mismatches" not in said
    assert "Found " not in said
