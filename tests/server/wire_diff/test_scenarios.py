"""Numbered behaviours that only a server has: what it hears before it has started, and what it is asked of old."""

import asyncio
import io
import socket
from pathlib import Path

import pytest

from muster.broker import Broker
from muster.core.router import Ownership
from muster.protocol.apis import ApiKey
from muster.protocol.messages import encode_request
from muster.server.server import Server
from muster.server.server_log import ServerLog
from muster.server.settings import settings_from
from muster.server.wire.members import decode_join_group
from tests.kit.kafka import free_ports
from tests.server.raw import Raw, commit_body
from tests.server.real.test_moves import in_loop

NOT_COORDINATOR = 16
OFFSETS_TOPIC = "__consumer_offsets"


def test_047_nobody_is_heard_before_the_coordinator_has_started(tmp_path: Path) -> None:
    """Kafka's socket is open a moment earlier, and says COORDINATOR_NOT_AVAILABLE; ours is not, so nobody can ask."""
    (port,) = free_ports(1)
    settings = settings_from({"listeners": f"PLAINTEXT://127.0.0.1:{port}", "offsets.topic.num.partitions": "3"})

    async def story() -> None:
        server = Server(tmp_path / "data", settings.groups, settings.broker, ServerLog(io.StringIO()))
        listen = server._listen

        async def look_first(host: str, at: int) -> None:
            start_control = server.parts.control.start  # the last step before the port is open

            async def look() -> None:
                with pytest.raises(ConnectionRefusedError):
                    socket.create_connection(("127.0.0.1", port), 5)
                routed = server.parts.led_partitions.router.routed
                assert {each.ownership for each in routed.values()} == {Ownership.ACTIVE}
                assert sorted(routed) == [0, 1, 2]
                await start_control()

            server.parts.control.start = look  # type: ignore[method-assign]
            await listen(host, at)

        server._listen = look_first  # type: ignore[method-assign]
        await server.start()
        try:
            heard = await asyncio.to_thread(heartbeat, port)
        finally:
            await server.stop()
        assert heard == 25  # of a member that nobody knows, and not an excuse

    asyncio.run(story())


def heartbeat(port: int) -> int:
    with Raw(("127.0.0.1", port)) as raw:
        answer = raw.ask(ApiKey.HEARTBEAT, 4, groupId="g", generationId=1, memberId="m", groupInstanceId=None)
    error: int = answer["errorCode"]
    return error


@pytest.mark.parametrize(("version", "rebalance_timeout_ms"), [(0, 6_000), (1, 60_000)])
def test_069_joingroup_v0_has_no_rebalance_timeout(version: int, rebalance_timeout_ms: int) -> None:
    body = {
        "groupId": "g", "sessionTimeoutMs": 6_000, "rebalanceTimeoutMs": 60_000, "memberId": "",
        "protocolType": "consumer", "protocols": [{"name": "range", "metadata": b""}],
    }  # fmt: skip
    frame = encode_request(ApiKey.JOIN_GROUP, version, 1, "c", body)
    header_size = 4 + 2 + 2 + 4 + 3
    event = decode_join_group(
        version, frame, header_size, len(frame), client_id="c", client_host="/127.0.0.1", fresh_uuid="u"
    )
    assert (event.session_timeout_ms, event.rebalance_timeout_ms) == (6_000, rebalance_timeout_ms)


def test_273_v1_repeats_the_error_on_each_partition() -> None:
    with Broker(settings={"offsets.topic.num.partitions": "1"}) as broker:
        broker.create_topic("orders", 3)
        wanted = [{"name": "orders", "partitionIndexes": [0, 2]}, {"name": "other", "partitionIndexes": [1]}]
        with Raw((broker.host, broker.port)) as raw:
            assert not raw.ask(ApiKey.OFFSET_COMMIT, 8, **commit_body("g", "orders", {0: 5}))["topics"][0][
                "partitions"
            ][0]["errorCode"]
            in_loop(broker, lambda server: server.parts.leadership.resign(0))
            old = raw.ask(ApiKey.OFFSET_FETCH, 1, groupId="g", topics=wanted)
            newer = raw.ask(ApiKey.OFFSET_FETCH, 2, groupId="g", topics=wanted)
    partitions = [each for topic in old["topics"] for each in topic["partitions"]]
    assert [each["partitionIndex"] for each in partitions] == [0, 2, 1]
    assert [(each["errorCode"], each["committedOffset"]) for each in partitions] == [(NOT_COORDINATOR, -1)] * 3
    assert old["errorCode"] == 0, "version 1 has no room for it"
    assert newer["errorCode"] == NOT_COORDINATOR


def test_298_the_offsets_topic_is_there_before_anybody_asks(tmp_path: Path) -> None:
    """Kafka makes it when it is first asked for a coordinator, and says COORDINATOR_NOT_AVAILABLE until it is there."""
    with Broker(data=tmp_path / "data", settings={"offsets.topic.num.partitions": "5"}) as broker:
        with Raw((broker.host, broker.port)) as raw:
            first = raw.ask(ApiKey.FIND_COORDINATOR, 3, key="g", keyType=0)
            (topic,) = raw.ask(ApiKey.METADATA, 12, topics=None)["topics"]
            again = raw.ask(ApiKey.FIND_COORDINATOR, 3, key="g", keyType=0)
        assert (first["errorCode"], first["nodeId"], first["host"], first["port"]) == (0, 1, broker.host, broker.port)
        assert again == first
    assert (topic["name"], len(topic["partitions"]), topic["isInternal"]) == (OFFSETS_TOPIC, 5, True)


def test_299_three_keys_in_one_findcoordinator() -> None:
    with Broker() as broker, Raw((broker.host, broker.port)) as raw:
        for version in (4, 5, 6):
            keys = ["one", "two", "three"]
            found = raw.ask(ApiKey.FIND_COORDINATOR, version, keyType=0, coordinatorKeys=keys)["coordinators"]
            here = {"nodeId": 1, "host": broker.host, "port": broker.port, "errorCode": 0, "errorMessage": ""}
            assert found == [{"key": key, **here} for key in keys]
            refused = raw.ask(ApiKey.FIND_COORDINATOR, version, keyType=99, coordinatorKeys=keys)["coordinators"]
            assert [(each["key"], each["errorCode"], each["nodeId"]) for each in refused] == [
                (key, 42, -1) for key in keys
            ]
