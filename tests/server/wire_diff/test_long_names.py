"""Names of every length: those that Kafka hangs up on, those that no answer can hold, and the longest that pass."""

import time
from typing import Any

import pytest

from muster.codec.primitives import Writer
from tests.server.wire_diff import bodies
from tests.server.wire_diff.talk import PATIENCE_S, Both, Link, Side, frame_of

pytestmark = pytest.mark.kafka

LONGEST = 0x7FFF
UUID_AND_DASH = 37
FLEXIBLE = (6, 9)

STANDS_FOR_LONG = "LONG"
"""Our own writer refuses what is longer than Kafka allows, so it is put into the frame behind it."""
LONG_FIELDS: dict[str, dict[str, Any]] = {
    "group": {"GroupId": STANDS_FOR_LONG},
    "protocol type": {"ProtocolType": STANDS_FOR_LONG},
    "protocol": {"Protocols": [{"Name": STANDS_FOR_LONG, "Metadata": b""}]},
    "instance": {"GroupInstanceId": STANDS_FOR_LONG},
    "member": {"MemberId": STANDS_FOR_LONG},
    "reason": {"Reason": STANDS_FOR_LONG},
}


SOON_OVER = {"SessionTimeoutMs": 100, "RebalanceTimeoutMs": 100}
GONE = (0, 69)


def delete_when_empty(link: Link, group: str) -> None:
    """Kafka gives a seat to a member that it cannot answer. Other tests compare lists of all groups: it has to go."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        link.post("DeleteGroups", 2, {"GroupsNames": [group]})
        frame = link.read()
        assert isinstance(frame, bytes)
        if link.decoded("DeleteGroups", 2, frame)["Results"][0]["ErrorCode"] in GONE:
            return
        assert time.monotonic() < deadline
        time.sleep(0.05)


def say_long(link: Link, api: str, version: int, body: dict[str, Any]) -> None:
    """Send a request of a flexible version whose short text is exchanged for one that is too long by a byte."""
    frame = link.frame(api, version, body)[4:]
    short = bytes([len(STANDS_FOR_LONG) + 1]) + STANDS_FOR_LONG.encode()
    assert frame.count(short) == 1
    long = Writer()
    long.compact_bytes(b"x" * (LONGEST + 1))
    link.say(frame_of(frame.replace(short, long.finish())))


@pytest.mark.parametrize("field", LONG_FIELDS)
@pytest.mark.parametrize("version", FLEXIBLE)
def test_a_text_of_more_than_32767_bytes_is_hung_up_on(both: Both, version: int, field: str) -> None:
    """Compact strings have room for more; Kafka's readers have not."""
    if field == "reason" and version < 8:
        return

    def story(side: Side) -> None:
        link = side.connect()
        say_long(link, "JoinGroup", version, {**bodies.join("long-names"), **LONG_FIELDS[field]})
        link.hear("JoinGroup", version)
        listed = side.connect().ask("ListGroups", 2, {})
        assert all(len(group["GroupId"]) <= LONGEST for group in listed["Groups"])

    both.same(story)


@pytest.mark.parametrize("version", [0, 3, 4, 5, 6, 9])
def test_a_client_id_that_makes_a_member_id_of_more_than_32767_bytes(both: Both, version: int) -> None:
    def story(side: Side) -> None:
        link = side.connect()
        link.ask("JoinGroup", version, bodies.join(f"long-client-{version}", **SOON_OVER), "c" * LONGEST)
        link.ask("JoinGroup", 4, bodies.join(f"long-client-{version}-ok"), "c" * (LONGEST - UUID_AND_DASH))
        delete_when_empty(link, f"long-client-{version}")

    both.same(story)


@pytest.mark.parametrize("version", [5, 9])
def test_an_instance_id_that_makes_a_member_id_of_more_than_32767_bytes(both: Both, version: int) -> None:
    def story(side: Side) -> None:
        link = side.connect()
        group = f"long-instance-{version}"
        link.ask("JoinGroup", version, bodies.join(group, instance="i" * LONGEST, **SOON_OVER))
        delete_when_empty(link, group)

    both.same(story)


@pytest.mark.parametrize(
    "api", ["Heartbeat", "OffsetCommit", "OffsetFetch", "LeaveGroup", "SyncGroup", "DescribeGroups"]
)
def test_a_group_id_of_more_than_32767_bytes_is_hung_up_on_by_every_api(both: Both, api: str) -> None:
    long = STANDS_FOR_LONG
    asked = {
        "Heartbeat": (4, bodies.heartbeat(long, 1, "m")),
        "OffsetCommit": (9, bodies.commit(long, {("orders", 0): 1})),
        "OffsetFetch": (9, bodies.fetch({long: None})),
        "LeaveGroup": (5, bodies.leave(long, "m")),
        "SyncGroup": (5, bodies.sync(long, 1, "m", {})),
        "DescribeGroups": (5, bodies.describe(long)),
    }
    version, body = asked[api]

    def story(side: Side) -> None:
        link = side.connect()
        say_long(link, api, version, body)
        link.hear(api, version)

    both.same(story)
