"""Time over the wire: sessions, rebalances and members that never sync, at the same moment on either side."""

import time
from collections.abc import Callable

import pytest

from tests.server.wire_diff import bodies
from tests.server.wire_diff.talk import Both, Link, Side

pytestmark = pytest.mark.kafka

EARLY_MS, LATE_MS, TOLERANCE_MS = 30, 1500, 500
"""A busy machine makes both of them late, and seldom one alone."""
PATIENCE_S = 20.0
UNKNOWN_MEMBER_ID = 25


def stable(side: Side, group: str, **more: int) -> tuple[Link, str]:
    link = side.connect()
    member: str = link.ask("JoinGroup", 9, bodies.join(group, **more))["MemberId"]
    link.ask("JoinGroup", 9, bodies.join(group, member, **more))
    link.ask("SyncGroup", 5, bodies.sync(group, 1, member, {member: b"mine"}))
    return link, member


def quiet_ask(link: Link, api: str, version: int, message: bodies.Message) -> bodies.Message:
    """Asked as often as it takes, so not recorded."""
    link.post(api, version, message)
    frame = link.read()
    assert isinstance(frame, bytes)
    return link.decoded(api, version, frame)


def state_of(link: Link, group: str) -> str:
    state: str = quiet_ask(link, "DescribeGroups", 5, bodies.describe(group))["Groups"][0]["GroupState"]
    return state


def passed_ms(until: Callable[[], bool], since: float, every_s: float = 0.02) -> float:
    while not until():
        assert time.monotonic() - since < PATIENCE_S
        time.sleep(every_s)
    return (time.monotonic() - since) * 1000


def compare(both: Both, story: Callable[[Side], float], expected_ms: float) -> None:
    """Either side takes the time that it should, and says the same in it."""
    took: dict[str, float] = {}

    def timed(side: Side) -> None:
        took[side.name] = story(side)

    both.same(timed)
    assert min(took.values()) >= expected_ms - EARLY_MS, took
    assert max(took.values()) < expected_ms + LATE_MS, took
    assert max(took.values()) - min(took.values()) < TOLERANCE_MS, took


def test_a_session_runs_out(both: Both) -> None:
    def story(side: Side) -> float:
        link, member = stable(side, "session", SessionTimeoutMs=900)
        time.sleep(0.5)
        since = time.monotonic()
        link.ask("Heartbeat", 4, bodies.heartbeat("session", 1, member))
        watcher = side.connect()
        took_ms = passed_ms(lambda: state_of(watcher, "session") == "Empty", since)
        link.ask("Heartbeat", 4, bodies.heartbeat("session", 1, member))
        link.ask("DescribeGroups", 6, bodies.describe("session"))
        return took_ms

    compare(both, story, 900)


def test_a_commit_renews_the_session(both: Both) -> None:
    def story(side: Side) -> float:
        link, member = stable(side, "renewed", SessionTimeoutMs=900)
        mine = {"MemberId": member, "GenerationIdOrMemberEpoch": 1}
        time.sleep(0.5)
        since = time.monotonic()
        link.ask("OffsetCommit", 8, bodies.commit("renewed", {("orders", 0): 1}, **mine))
        return passed_ms(lambda: state_of(link, "renewed") == "Empty", since)

    compare(both, story, 900)


def test_one_that_does_not_rejoin_is_waited_for(both: Both) -> None:
    """For its rebalance timeout, although it is alive; then the others go on without it."""

    def story(side: Side) -> float:
        slow, member = stable(side, "slow", RebalanceTimeoutMs=1200)
        link = side.connect()
        second = link.ask("JoinGroup", 9, bodies.join("slow"))["MemberId"]
        since = time.monotonic()
        link.post("JoinGroup", 9, bodies.join("slow", second, RebalanceTimeoutMs=500))
        for _ in range(4):
            time.sleep(0.2)
            slow.ask("Heartbeat", 4, bodies.heartbeat("slow", 1, member))
        link.hear("JoinGroup", 9)
        took_ms = (time.monotonic() - since) * 1000
        slow.ask("Heartbeat", 4, bodies.heartbeat("slow", 1, member))
        link.ask("DescribeGroups", 6, bodies.describe("slow"))
        return took_ms

    compare(both, story, 1200)


def test_one_that_never_syncs_loses_its_seat(both: Both) -> None:
    def story(side: Side) -> float:
        link = side.connect()
        member = link.ask("JoinGroup", 9, bodies.join("never-syncs"))["MemberId"]
        since = time.monotonic()
        link.ask("JoinGroup", 9, bodies.join("never-syncs", member, RebalanceTimeoutMs=800))
        beat = bodies.heartbeat("never-syncs", 1, member)
        other = side.connect()
        took_ms = passed_ms(lambda: quiet_ask(other, "Heartbeat", 4, beat)["ErrorCode"] == UNKNOWN_MEMBER_ID, since)
        link.ask("DescribeGroups", 6, bodies.describe("never-syncs"))
        return took_ms

    compare(both, story, 800)


def test_the_session_of_one_that_waits_does_not_run_out(both: Both) -> None:
    """Nor does that of one who is waited for, as long as it says that it is alive."""

    def story(side: Side) -> float:
        first, leader = stable(side, "waits", RebalanceTimeoutMs=1500)
        link = side.connect()
        second = link.ask("JoinGroup", 9, bodies.join("waits", SessionTimeoutMs=400))["MemberId"]
        since = time.monotonic()
        link.post("JoinGroup", 9, bodies.join("waits", second, SessionTimeoutMs=400))
        time.sleep(1.0)
        first.ask("Heartbeat", 4, bodies.heartbeat("waits", 1, leader))
        first.ask("JoinGroup", 9, bodies.join("waits", leader))
        link.hear("JoinGroup", 9)
        took_ms = (time.monotonic() - since) * 1000
        for member in leader, second:  # or the group is on its way for half a minute, in lists of other stories
            quiet_ask(link, "LeaveGroup", 4, bodies.leave("waits", member))
        return took_ms

    compare(both, story, 1000)
