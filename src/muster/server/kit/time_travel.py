"""Turning the clock: from one deadline to the next, and what is due happens on the way, in order.

`advance` goes to the earliest time at which something is due, lets it happen, waits until the server is at rest, and
goes on from there: a deadline that comes up on the way (a rebalance after a lost session) has its turn too. Work at
intervals is called in its time, but at most `STOPS` times in one go, and once more at the end.

Clients live in real time. A fetch that waited when the clock was first turned is answered in its time; one that comes
meanwhile is no reason to stop, else a consumer that fetches again and again would make a week of half seconds. With
`keep_members`, the sessions of members whose connections are open are renewed before each step, and while their group
rebalances the clock waits for them, in real time.
"""

import asyncio
import re
from typing import Any

from muster.codec.partitioning import partition_for
from muster.core.events import Heartbeat, TimerKind
from muster.core.groups import Group
from muster.core.states import State
from muster.errors import ConfigError, NotInTime
from muster.server.assembly import Parts
from muster.server.waiting_replies import Callback

STOPS = 50
"""How often work at intervals is called in one `advance`, at most."""
AT_REST_WITHIN_S = 5.0
JOINED_WITHIN_S = 10.0
LOOK_EVERY_S = 0.002
LONGEST_MS = 100 * 365 * 86_400_000
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_WORDS = {
    "millisecond": "ms", "second": "s", "sec": "s", "minute": "m", "min": "m", "hour": "h", "day": "d", "week": "w",
}  # fmt: skip
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*")


def milliseconds(duration: float | str) -> int:
    """`7 days`, `1h 30m`, `250ms`, or a number of seconds. Raises `ConfigError`."""
    wrong = ConfigError(
        f"{duration!r} is not a time to go on by; write it as '7 days', '90 s', or a number of seconds."
    )
    if isinstance(duration, str):
        total, position = 0.0, 0
        while position < len(duration):
            part = _PART.match(duration.lower(), position)
            unit = None if part is None else _WORDS.get(part[2].removesuffix("s") or "s", part[2])
            if part is None or unit not in _UNITS_MS:
                raise wrong
            total += float(part[1]) * _UNITS_MS[unit]
            position = part.end()
    else:
        total = duration * 1000.0
    if not 0 < total <= LONGEST_MS:
        raise wrong
    return round(total)


class TimeTravel:
    """Everything here runs in the thread of the event loop."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._clock = parts.clock
        self._loop = asyncio.get_running_loop()
        self._turn = asyncio.Lock()

    def now(self) -> dict[str, int]:
        return {"wall_ms": self._clock.now().wall_ms, "offset_ms": self._clock.offset_ms}

    async def advance(self, duration: float | str, keep_members: bool = False) -> dict[str, int]:
        """Let so much time pass, at once."""
        by_ms = milliseconds(duration)
        async with self._turn:
            self._parts.server_log.say(f"the clock is advanced by {duration}, as ordered", event="clock advanced")
            await self._advance(by_ms, keep_members)
        return self.now()

    def reset(self) -> None:
        """Real time again. Nothing may be left whose deadline is in the future that was."""
        self._parts.sessions.forget_all()
        self._clock.offset_ms = 0

    async def _advance(self, by_ms: int, keep_members: bool) -> None:
        await self._at_rest()
        start_ms = self._clock.now().monotonic_ms
        target_ms = start_ms + by_ms
        waiting = [(timers, set(timers.deadlines())) for timers in self._clock.timers_of_clients]
        intervals = [(max(int(every * 1000), by_ms // STOPS, 1), work) for every, work in self._parts.schedule.by_clock]
        due_ms = {work: start_ms + interval_ms for interval_ms, work in intervals}
        while True:
            if keep_members:
                await self._joined()
            kept = self._kept() if keep_members else set()
            stops = [target_ms, *due_ms.values()]
            stops += [
                deadline_ms
                for timers in self._clock.timers
                for key, deadline_ms in timers.deadlines().items()
                if not (keep_members and _session_of(key) in kept)
            ]
            stops += [
                deadline_ms
                for timers, keys in waiting
                for key, deadline_ms in timers.deadlines().items()
                if key in keys
            ]  # fmt: skip
            self._go_to(min(stops))
            if keep_members:
                self._renew(kept)
            now_ms = self._clock.now().monotonic_ms
            for timers in (*self._clock.timers, *self._clock.timers_of_clients):
                timers.ring()
            for interval_ms, work in intervals:
                if due_ms[work] <= now_ms or now_ms >= target_ms:
                    due_ms[work] = now_ms + interval_ms
                    work()
            await self._at_rest()
            if now_ms >= target_ms:
                return

    def _go_to(self, monotonic_ms: int) -> None:
        """Never back: real time may have passed it."""
        self._clock.offset_ms += max(monotonic_ms - self._clock.now().monotonic_ms, 0)

    async def _at_rest(self) -> None:
        """Until all that follows from the last step has happened; a disk that does not answer is not waited for."""
        parts = self._parts
        await asyncio.sleep(0)
        deadline = self._loop.time() + AT_REST_WITHIN_S
        while self._loop.time() < deadline:
            is_busy = parts.flusher.is_busy or parts.topic_changes.is_busy or parts.compaction.is_under_way
            is_busy = is_busy or parts.expiration.is_under_way
            is_busy = is_busy or not parts.transactions.markers.is_at_rest
            all_led_are = all(led.is_at_rest for led in parts.all_led)
            if not is_busy and all_led_are and parts.data_partitions.is_at_rest:
                return
            await asyncio.sleep(LOOK_EVERY_S if is_busy else 0)

    # Members that are kept.

    def _kept(self) -> set[tuple[str, str]]:
        """Groups and ids of members whose connection is open."""
        members = (getattr(connection, "member", None) for connection in self._parts.connections.open)
        return {member for member in members if member is not None}

    def _group(self, group_id: str) -> Group | None:
        by_number = self._parts.led_partitions.by_number
        coordinator = by_number[partition_for(group_id, len(by_number))].coordinator
        return None if coordinator is None else coordinator.groups.get(group_id)

    def _renew(self, kept: set[tuple[str, str]]) -> None:
        for group_id, member_id in kept:
            group = self._group(group_id)
            member = None if group is None else group.seats.members.get(member_id)
            if group is not None and member is not None:
                heartbeat = Heartbeat(None, group_id, group.seats.generation, member_id, member.instance_id)
                self._parts.led_partitions.submit(heartbeat, Callback(_ignore, _ignore))

    async def _joined(self) -> None:
        """Until no group rebalances that has a member who is kept."""
        deadline = self._loop.time() + JOINED_WITHIN_S
        while rebalancing := {group_id for group_id, _ in self._kept() if _rebalances(self._group(group_id))}:
            if self._loop.time() >= deadline:
                raise NotInTime(
                    f"group {', '.join(sorted(rebalancing))} rebalances, and its members have not joined again within "
                    f"{JOINED_WITHIN_S:g} s of real time, for which the clock waits when it keeps members. A consumer "
                    "joins while it is polled: poll it in another thread."
                )
            await asyncio.sleep(LOOK_EVERY_S)


def _rebalances(group: Group | None) -> bool:
    return group is not None and group.seats.state in (State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE)


def _session_of(key: Any) -> tuple[str, str] | None:
    """The group and member of a session's timer."""
    _, timer = key
    return (timer.group_id, timer.member_id) if timer.kind is TimerKind.SESSION else None


def _ignore(answer: Any) -> None:
    pass
