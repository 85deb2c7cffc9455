"""A coordinator with a made-up clock, a log that is a list, and timers that fire when the test says so.

world = World(group_initial_rebalance_delay_ms=0)
asked = world.join("g", client="a")          # answers come back by what was asked
world.answer(asked)
world.advance(50)                            # fires what is due, in order
"""

from collections.abc import Sequence
from typing import Any

from muster.codec import decode_key, decode_value
from muster.codec.error_codes import ErrorCode
from muster.core.config import GroupConfig
from muster.core.coordinator import Coordinator
from muster.core.events import Event, Heartbeat, Instant, JoinGroup, LeaveGroup, Leaver, SyncGroup, TimerFired, TimerKey
from muster.core.outcome import CancelTimer, OffsetsRecord, Outcome, SetTimer
from muster.core.seats import Seats

NO_ANSWER = object()
START_WALL_MS = 1_700_000_000_000


class World:
    """One partition's coordinator and everything round it."""

    def __init__(self, **settings: Any) -> None:
        settings.setdefault("group_initial_rebalance_delay_ms", 0)
        settings.setdefault("group_min_session_timeout_ms", 10)
        self.config = GroupConfig(**settings)
        self.coordinator = Coordinator(self.config)
        self.now_ms = 0
        self.wall_ms = START_WALL_MS
        self.log: list[tuple[OffsetsRecord, int]] = []
        self.timers: dict[TimerKey, int] = {}
        self.answers: dict[int, Any] = {}
        self.held: list[Any] = []
        self.hold_appends = False
        self.refuse_with: ErrorCode | None = None
        self._asked = 0
        out = Outcome()
        self.coordinator.activate(self.now, out)
        self._carry_out(out)

    @property
    def now(self) -> Instant:
        return Instant(self.now_ms, self.wall_ms)

    def ask(self, event: Event) -> int:
        """Let something happen; returns the number under which the answer will be found."""
        out = Outcome()
        self.coordinator.handle(event, self.now, out)
        self._carry_out(out)
        return getattr(event, "reply_to", -1)

    def next_number(self) -> int:
        self._asked += 1
        return self._asked

    def answer(self, number: int) -> Any:
        return self.answers.get(number, NO_ANSWER)

    def is_parked(self, number: int) -> bool:
        return number not in self.answers

    def _carry_out(self, out: Outcome) -> None:
        while out.writes or out.timers or out.replies:
            later = Outcome()
            for timer in out.timers:
                if isinstance(timer, SetTimer):
                    self.timers[timer.key] = timer.deadline_ms
                else:
                    assert isinstance(timer, CancelTimer)
                    self.timers.pop(timer.key, None)
            for number, answer in out.replies:
                assert number not in self.answers, f"{number} answered twice"
                self.answers[number] = answer
            for write in out.writes:
                if self.hold_appends:
                    self.held.append(write)
                else:
                    self._append(write, later)
            out = later

    def _append(self, write: Any, later: Outcome) -> None:
        if self.refuse_with is not None:
            error, self.refuse_with = self.refuse_with, None
            self.coordinator.refused(write, error, later)
            return
        base_offset = len(self.log)
        self.log.extend((OffsetsRecord(*record), write.producer_id) for record in write.records)
        self.coordinator.appended(write, base_offset, later)

    def release_appends(self) -> None:
        """Let the log take what was held back."""
        held, self.held, self.hold_appends = self.held, [], False
        for write in held:
            later = Outcome()
            self._append(write, later)
            self._carry_out(later)

    def advance(self, milliseconds: int) -> None:
        """Let time pass, firing timers as they come due; both clocks go on."""
        end = self.now_ms + milliseconds
        while self.timers and (due := min(self.timers.values())) <= end:
            key = next(key for key, deadline in self.timers.items() if deadline == due)
            del self.timers[key]
            self.wall_ms += max(due - self.now_ms, 0)
            self.now_ms = max(due, self.now_ms)
            self.ask(TimerFired(key))
        self.wall_ms += end - self.now_ms
        self.now_ms = end

    def records(self) -> list[tuple[Any, Any]]:
        """The log, decoded."""
        decoded = []
        for record, _ in self.log:
            key = decode_key(record.key)
            value = None if record.value is None else decode_value(key.record_type, record.value)[1]
            decoded.append((key, value))
        return decoded

    def replayed(self) -> Coordinator:
        """A coordinator that knows nothing but the log."""
        other = Coordinator(self.config)
        for offset, (record, producer_id) in enumerate(self.log):
            other.replay(record, offset, producer_id)
        return other

    def group(self, group_id: str = "g") -> Seats:
        """Its seats: what clients see of its members."""
        return self.coordinator.groups[group_id].seats

    def state(self, group_id: str = "g") -> str:
        group = self.coordinator.groups.get(group_id)
        return "Dead" if group is None else group.seats.state.value

    # Shorthand for requests.

    def join(
        self,
        group_id: str = "g",
        member_id: str = "",
        *,
        client: str = "c",
        instance: str | None = None,
        protocols: Sequence[tuple[str, bytes]] = (("range", b""),),
        protocol_type: str = "consumer",
        session: int = 10_000,
        rebalance: int = 60_000,
        version: int = 9,
    ) -> int:
        number = self.next_number()
        return self.ask(
            JoinGroup(
                number,
                version,
                group_id,
                member_id,
                f"uuid-{number}",
                client,
                "/127.0.0.1",
                session,
                rebalance,
                protocol_type,
                tuple(protocols),
                instance,
            )
        )

    def join_new(self, group_id: str = "g", **more: Any) -> tuple[int, str]:
        """A dynamic member's way in: an id first, then the join with it."""
        member_id = self.answer(self.join(group_id, **more)).member_id
        return self.join(group_id, member_id, **more), member_id

    def sync(self, member_id: str, generation: int, assignments: dict[str, bytes] | None = None, **more: Any) -> int:
        number = self.next_number()
        group_id = more.pop("group_id", "g")
        return self.ask(SyncGroup(number, group_id, generation, member_id, assignments or {}, **more))

    def heartbeat(self, member_id: str, generation: int, group_id: str = "g", instance: str | None = None) -> Any:
        return self.answer(self.ask(Heartbeat(self.next_number(), group_id, generation, member_id, instance)))

    def leave(self, *members: Leaver, group_id: str = "g") -> Any:
        return self.answer(self.ask(LeaveGroup(self.next_number(), group_id, members)))

    def stable(self, *clients: str, instances: bool = False, group_id: str = "g", **more: Any) -> list[str]:
        """A stable group of these members, the first of them its leader."""
        for number, client in enumerate(clients):
            instance = client if instances else None
            if instances:
                self.join(group_id, client=client, instance=instance, **more)
            else:
                self.join_new(group_id, client=client, **more)
            for earlier, member_id in zip(clients[:number], list(self.group(group_id).members), strict=False):
                self.join(group_id, member_id, client=earlier, instance=earlier if instances else None, **more)
            self.advance(0)
        group = self.group(group_id)
        ids = list(group.members)
        for member_id in reversed(ids):
            self.sync(member_id, group.generation, {each: each.encode() for each in ids}, group_id=group_id)
        assert self.state(group_id) == "Stable"
        return ids
