"""The coordinator's core alone, one thread: events a second, and a rebalance of a thousand members."""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.core.world import World

from muster.codec.offsets_topic import NO_TOPIC_ID
from muster.core.events import Heartbeat, Instant, OffsetCommit, OffsetFetch
from muster.core.outcome import Outcome

EVENTS = 100_000


def rate(work: Callable[[], None], events: int, rounds: int = 5) -> float:
    """Events a second in the best of several rounds."""
    best = float("inf")
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - started)
    return events / best


def heartbeats(world: World, member_id: str) -> Callable[[], None]:
    coordinator = world.coordinator
    event = Heartbeat(0, "g", 1, member_id)

    def work() -> None:
        out = Outcome()
        for now_ms in range(EVENTS):
            coordinator.handle(event, Instant(now_ms, now_ms), out)
            out.replies.clear()

    return work


def commits(world: World, member_id: str) -> Callable[[], None]:
    """Decide, append (to nothing), replay, answer."""
    coordinator = world.coordinator

    def work() -> None:
        out = Outcome()
        now = Instant(0, 1_700_000_000_000)
        for number in range(EVENTS):
            event = OffsetCommit(0, "g", 1, member_id, (("orders", number & 63, number, 0, "", NO_TOPIC_ID),))
            coordinator.handle(event, now, out)
            write = out.writes.pop()
            coordinator.appended(write, number, out)
            out.replies.clear()

    return work


def fetches(world: World) -> Callable[[], None]:
    coordinator = world.coordinator

    def work() -> None:
        out = Outcome()
        now = Instant(0, 0)
        for number in range(EVENTS):
            coordinator.handle(OffsetFetch(0, "g", (("orders", number & 63),)), now, out)
            out.replies.clear()

    return work


def rebalance(members: int) -> float:
    """Milliseconds for one more member to join a stable group and everybody to sync."""
    world = World(group_initial_rebalance_delay_ms=0)
    first = [world.join(client=f"c{number}", version=3) for number in range(members)]
    world.advance(0)
    ids = [world.answer(number).member_id for number in first]
    for member_id in reversed(ids):
        world.sync(member_id, 1, {})
    started = time.perf_counter()
    newcomer = world.join(client="new", version=3)
    for member_id in ids:
        world.join(member_id=member_id, version=3)
    for member_id in [*ids[1:], world.answer(newcomer).member_id, ids[0]]:
        world.sync(member_id, 2, {})
    assert world.state() == "Stable"
    return (time.perf_counter() - started) * 1000


def main() -> None:
    world = World()
    (member_id,) = world.stable("a")
    results = {
        "heartbeats/s": rate(heartbeats(world, member_id), EVENTS),
        "commits/s": rate(commits(world, member_id), EVENTS),
        "fetches/s": rate(fetches(world), EVENTS),
        "one more of 100, ms": rebalance(100),
        "one more of 1,000, ms": rebalance(1_000),
    }
    print(json.dumps({name: round(value, 1) for name, value in results.items()}))


if __name__ == "__main__":
    main()
