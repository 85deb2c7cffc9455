"""Bytes from the network: whatever they are, an answer or a `WireError`, and nothing that costs much."""

import subprocess
import sys
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.protocol.apis import APIS, ApiKey
from muster.protocol.errors import WireError
from muster.protocol.messages import decode_request, decode_response, encode_request
from muster.server.cluster import describe_configs, topic_configs
from muster.server.cluster.metadata import decode_metadata
from muster.server.records import fetch
from tests.protocol.strategies import versions_of
from tests.server.cluster.asking import APIS as CLUSTER_APIS
from tests.server.cluster.asking import MODULES, a_topic, answered, memory_cluster

BODIES: dict[int, dict[str, Any]] = {
    ApiKey.METADATA: {"topics": [{"name": "a"}, {"name": "new"}]},
    ApiKey.CREATE_TOPICS: {
        "topics": [
            {"name": "b", "numPartitions": 2, "replicationFactor": 1,
             "configs": [{"name": "retention.ms", "value": "1"}]},
            {"name": "c", "numPartitions": -1, "replicationFactor": -1,
             "assignments": [{"partitionIndex": 0, "brokerIds": [1]}]},
        ]
    },
    ApiKey.DELETE_TOPICS: {"topicNames": ["a"], "topics": [{"name": "a"}]},
    ApiKey.CREATE_PARTITIONS: {"topics": [{"name": "a", "count": 5, "assignments": None}]},
    ApiKey.DESCRIBE_CLUSTER: {},
    ApiKey.DESCRIBE_CONFIGS: {"resources": [{"resourceType": 2, "resourceName": "a"}], "includeSynonyms": True},
    ApiKey.ALTER_CONFIGS: {
        "resources": [{"resourceType": 2, "resourceName": "a", "configs": [{"name": "retention.ms", "value": "5"}]}]
    },
    ApiKey.INCREMENTAL_ALTER_CONFIGS: {
        "resources": [{"resourceType": 2, "resourceName": "a", "configs": [{"name": "retention.ms", "value": "5"}]}]
    },
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: {"topics": [], "cursor": {"topicName": "a", "partitionIndex": 1}},
    ApiKey.LIST_OFFSETS: {"topics": [{"name": "a", "partitions": [{"partitionIndex": 0, "timestamp": -1}]}]},
    ApiKey.OFFSET_FOR_LEADER_EPOCH: {"topics": [{"topic": "a", "partitions": [{"partition": 0, "leaderEpoch": 0}]}]},
    ApiKey.FETCH: {
        "maxWaitMs": 5,
        "topics": [{"topic": "a", "topicId": a_topic("a").topic_id, "partitions": [{"partition": 0}]}],
    },
}  # fmt: skip
KEYS = (*CLUSTER_APIS, ApiKey.FETCH)
CASES = [(key, version) for key in KEYS for version in versions_of(APIS[key])]


def body_of(api_key: int, version: int) -> bytes:
    frame = encode_request(api_key, version, 7, None, BODIES[api_key])
    return frame[14 + (1 if APIS[api_key].is_flexible(version) else 0) :]


@pytest.mark.parametrize("api_key", KEYS)
def test_every_version_is_answered_in_that_version(api_key: int) -> None:
    for version in versions_of(APIS[api_key]):
        frame, _ = answered(api_key, version, body_of(api_key, version), 0, None, memory_cluster(a_topic("a", 2)))
        correlation_id, answer = decode_response(api_key, version, frame)
        assert correlation_id == 7
        assert answer.get("errorCode", 0) == 0, version
        some = next((value for value in answer.values() if isinstance(value, list)), [])
        assert some, f"there is something in it, in version {version}"
        errors = {one.get("errorCode", 0) for one in some}
        assert errors <= ({0, 3} if api_key == ApiKey.METADATA else {0}), version


@pytest.mark.parametrize("api_key", KEYS)
def test_a_request_cut_short_is_never_taken(api_key: int) -> None:
    for version in versions_of(APIS[api_key]):
        body = body_of(api_key, version)
        cluster = memory_cluster(a_topic("a", 2))
        for cut in range(len(body)):
            with pytest.raises(WireError):
                answered(api_key, version, body[:cut], 0, None, cluster)
        assert [topic.name for topic in cluster.topics.in_order()] == ["a"], "and nothing came of it"


@settings(max_examples=300, deadline=None)
@given(case=st.sampled_from(CASES), data=st.data())
def test_damaged_requests(case: tuple[int, int], data: st.DataObject) -> None:
    api_key, version = case
    body = bytearray(body_of(api_key, version))
    for _ in range(data.draw(st.integers(1, 4))):
        if body:
            body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    with suppress(WireError):
        answered(api_key, version, bytes(body), 0, None, memory_cluster(a_topic("a", 2)))


@settings(max_examples=200, deadline=None)
@given(case=st.sampled_from(CASES), body=st.binary(max_size=200))
def test_noise(case: tuple[int, int], body: bytes) -> None:
    with suppress(WireError):
        answered(*case, body, 0, None, memory_cluster(a_topic("a", 2)))


@settings(max_examples=150, deadline=None)
@given(
    names=st.lists(st.text(max_size=12), max_size=5),
    name=st.sampled_from(sorted(topic_configs.TOPIC_SETTINGS)) | st.text(max_size=10),
    value=st.text(max_size=12) | st.from_regex(r"[-+]?[0-9.eE]{1,30}", fullmatch=True),
    count=st.integers(-(2**31), 2**31 - 1),
)
def test_any_words_and_numbers_make_an_answer(names: list[str], name: str, value: str, count: int) -> None:
    cluster = memory_cluster(a_topic("a", 2))
    topics = [
        {"name": one, "numPartitions": count, "replicationFactor": 1, "configs": [{"name": name, "value": value}]}
        for one in names
    ]
    for body in ({"topics": topics, "validateOnly": True}, {"topics": topics}):
        request = encode_request(ApiKey.CREATE_TOPICS, 7, 7, None, body)
        answered(ApiKey.CREATE_TOPICS, 7, request, 15, None, cluster)
    for topic in cluster.topics.in_order():
        described = describe_configs.topic_configs(topic, cluster.config)
        assert len(described) == len(topic_configs.TOPIC_SETTINGS)


def test_decode_starts_and_ends_where_it_is_told() -> None:
    body = body_of(ApiKey.METADATA, 12)
    framed = b"before" + body + b"after"
    request = decode_metadata(12, framed, 6, 6 + len(body))
    assert request == decode_metadata(12, body)
    assert decode_request(ApiKey.METADATA, 12, body)["topics"][0]["name"] == "a"


def test_nothing_heavy_is_imported() -> None:
    """Starting a server must not cost the third of a second that these take."""
    modules = ", ".join(f"{module.__name__}" for module in (*MODULES, fetch))
    script = (
        f"import sys, {modules}, muster.server.settings, muster.config.properties, muster.server.listeners\n"
        "import muster.server.cluster.cluster\n"
        "print([name for name in ('numpy', 'numba', 'pyarrow', 'kio', 'asyncio') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
