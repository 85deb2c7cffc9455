"""What a server makes in its daily work is freed without a search for cycles, so a search need not be long."""

import gc
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from muster.broker import Broker
from muster.protocol.apis import ApiKey
from tests.server.raw import Raw, commit_body, fetch_offsets
from tests.server.test_abuse import JOIN


@pytest.fixture
def no_search() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def a_day(address: tuple[str, int], number: int) -> None:
    """Everything that a client does, also those who leave in the middle of something."""
    group, other = f"members-{number}", f"offsets-{number}"
    with Raw(address) as raw, Raw(address) as parked, Raw(address) as bad:
        joined = raw.ask(ApiKey.JOIN_GROUP, 3, groupId=group, **JOIN)
        me = {"groupId": group, "generationId": 1, "memberId": joined["memberId"], "groupInstanceId": None}
        assigned = [{"memberId": joined["memberId"], "assignment": b"x"}]
        assert raw.ask(ApiKey.SYNC_GROUP, 3, assignments=assigned, **me)["errorCode"] == 0
        assert raw.ask(ApiKey.HEARTBEAT, 3, **me)["errorCode"] == 0
        raw.ask(ApiKey.OFFSET_COMMIT, 8, **commit_body(other, "orders", {0: 1}))
        fetch_offsets(raw, other)
        raw.ask(ApiKey.DESCRIBE_GROUPS, 3, groups=[group, other, "nobody"], includeAuthorizedOperations=False)
        raw.ask(ApiKey.LIST_GROUPS, 3)
        raw.ask(ApiKey.METADATA, 1, topics=None)
        parked.send(ApiKey.JOIN_GROUP, 3, groupId=group, **(JOIN | {"sessionTimeoutMs": 10, "rebalanceTimeoutMs": 10}))
        bad.socket.sendall(b"\xff" * 100)
        raw.ask(ApiKey.LEAVE_GROUP, 1, groupId=group, memberId=joined["memberId"])
        raw.ask(ApiKey.DELETE_GROUPS, 1, groupsNames=[group, other])


def test_no_cycles_are_made(no_search: None) -> None:
    with Broker() as broker:
        broker.create_topic("orders", 4)
        address = broker.host, broker.port
        a_day(address, 0)
        time.sleep(0.3)
        gc.collect()
        for number in range(1, 6):
            a_day(address, number)
        time.sleep(0.3)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = Counter(type(one).__name__ for one in gc.garbage if type(one).__module__.startswith("muster"))
        assert not left


def test_survivors_are_set_aside() -> None:
    code = """
import gc
from muster.server import process
process.search_everything_once()
gc.collect()
assert gc.get_freeze_count() == 0, "nobody asked for it"
process.set_aside_survivors()
process.set_aside_survivors()
kept = [[] for _ in range(1000)]
gc.collect(0)
assert gc.get_freeze_count() == 0, "only after a full search"
gc.collect()
assert gc.get_freeze_count() > 1000
before = gc.get_freeze_count()
del kept
assert gc.get_freeze_count() <= before - 1000, "set aside, and still freed"
cycle = []
cycle.append(cycle)
gc.collect()
del cycle
assert gc.collect() == 0
process.search_everything_once()
assert gc.collect() == 1
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
