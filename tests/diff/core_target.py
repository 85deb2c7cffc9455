"""muster's core as somebody to play a script to: a shell with a made-up clock and logs in memory.

This and `core_messages` are the only modules that know the types of `muster.core`. Transactions are handed out and
ended by a few lines that always say yes: the core only hears how they ended.
"""

import uuid
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from muster.codec.batches import ReadBatch
from muster.codec.partitioning import partition_for
from muster.core import events
from muster.core.config import GroupConfig
from muster.core.coordinator import Coordinator
from muster.core.outcome import Outcome, SetTimer
from muster.core.router import GroupRouter
from muster.core.states import State
from muster.log.validation import AppendRefused
from tests.diff.core_messages import TOPIC_IDS, Asked, Body, ReplyTo, answer_without_core, events_of, response_to
from tests.diff.messages import as_version
from tests.diff.play import Transcript, play
from tests.diff.records import LogIndex
from tests.diff.requests import Cast
from tests.diff.script import Script
from tests.kit.memory_log import MemoryLog

PARTITIONS = 4
MIN_SESSION_MS = 100
MAX_GROUP_SIZE = 4
START_WALL_MS = 1_700_000_000_000
CORE_PREFIX = "core."
ABSENT, INITIAL = "absent", "initial delay"

T = TypeVar("T")


@dataclass(slots=True)
class CoreTarget:
    delay_ms: int = 0
    topic_ids: dict[str, bytes] = field(default_factory=lambda: dict(TOPIC_IDS))
    now_ms: int = 0
    router: GroupRouter = field(default_factory=lambda: GroupRouter(PARTITIONS))
    logs: list[MemoryLog] = field(default_factory=lambda: [MemoryLog() for _ in range(PARTITIONS)])
    _timers: dict[events.TimerKey, int] = field(default_factory=dict)
    _asked: dict[int, Asked] = field(default_factory=dict)
    _answered: dict[int, Body] = field(default_factory=dict)
    _producers: dict[str, tuple[int, int]] = field(default_factory=dict)
    _touched: dict[str, set[int]] = field(default_factory=dict)
    """By transactional id, the partitions of the offsets topic that its transaction has reached."""
    _fresh: int = 0

    def __post_init__(self) -> None:
        config = GroupConfig(
            group_min_session_timeout_ms=MIN_SESSION_MS,
            group_initial_rebalance_delay_ms=self.delay_ms,
            group_max_size=MAX_GROUP_SIZE,
        )
        for partition in range(PARTITIONS):
            out = Outcome()
            self.router.elect(partition, 1)
            self.router.loaded(partition, 1, Coordinator(config), self._now, out)

    # What a player asks.

    async def send(self, ticket: int, api: str, version: int, client_id: str, body: Body) -> None:
        answer = self._of_producers(api, body) or answer_without_core(api, version, body)
        if answer is not None:
            self._answered[ticket] = as_version(api, version, answer)
            return
        self._fresh += 1
        asked = list(events_of(ticket, api, version, client_id, body, self._uuid()))
        self._asked[ticket] = Asked(api, version, body, len(asked))
        for event in asked:
            self._handle(event)
        self._fire_until(self.now_ms)

    async def settle(self, expected: set[int]) -> dict[int, Body]:
        answered, self._answered = self._answered, {}
        return answered

    async def wait(self, milliseconds: int) -> None:
        self._fire_until(self.now_ms + milliseconds)

    # What only the tests of the core ask.

    def state_of(self, group_id: str) -> str:
        """The state of a group in Kafka's words; "absent" if there is none, and the first wait for others apart."""
        group = self._coordinator(partition_for(group_id, PARTITIONS)).groups.get(group_id)
        if group is None:
            return ABSENT
        seats = group.seats
        if seats.state is State.PREPARING_REBALANCE and seats.rebalance is not None and seats.rebalance.is_initial:
            return INITIAL
        return seats.state.value

    def log_of(self, group_id: str) -> Iterator[ReadBatch]:
        """The log of the group's partition."""
        return self.logs[partition_for(group_id, PARTITIONS)].batches()

    # The shell.

    @property
    def _now(self) -> events.Instant:
        return events.Instant(self.now_ms, START_WALL_MS + self.now_ms)

    def _uuid(self) -> str:
        return str(uuid.UUID(int=self._fresh))

    def _coordinator(self, partition: int) -> Coordinator:
        coordinator = self.router.routed[partition].coordinator
        assert coordinator is not None
        return coordinator

    def _handle(self, event: events.Event) -> None:
        out = Outcome()
        partition = self.router.handle(event, self._now, out)
        self._carry_out(partition, out)

    def _carry_out(self, partition: int | None, out: Outcome) -> None:
        while out.writes or out.timers or out.replies:
            later = Outcome()
            for timer in out.timers:
                if isinstance(timer, SetTimer):
                    self._timers[timer.key] = timer.deadline_ms
                else:
                    self._timers.pop(timer.key, None)
            for reply_to, answer in out.replies:
                self._take(reply_to, answer)
            for write in out.writes:
                assert partition is not None
                coordinator = self._coordinator(partition)
                producer = (write.producer_id, write.producer_epoch)
                try:
                    base_offset = self.logs[partition].append(write.records, self._now.wall_ms, *producer)
                except AppendRefused as refused:
                    coordinator.refused(write, refused.error, later)
                else:
                    coordinator.appended(write, base_offset, later)
            out = later

    def _fire_until(self, end_ms: int) -> None:
        while self._timers and (due := min(self._timers.values())) <= end_ms:
            key = next(key for key, deadline in self._timers.items() if deadline == due)
            del self._timers[key]
            self.now_ms = max(due, self.now_ms)
            partition = partition_for(key[1], PARTITIONS)
            out = Outcome()
            self._coordinator(partition).handle(events.TimerFired(key), self._now, out)
            self._carry_out(partition, out)
        self.now_ms = end_ms

    def _take(self, reply_to: ReplyTo, answer: Any) -> None:
        ticket, part = reply_to
        asked = self._asked[ticket]
        assert part not in asked.answers, f"{asked.api} was answered twice"
        asked.answers[part] = answer
        if len(asked.answers) == asked.parts:
            del self._asked[ticket]
            given = [asked.answers[number] for number in range(asked.parts)]
            self._answered[ticket] = as_version(asked.api, asked.version, response_to(asked, given))

    # Transactions, just enough of them.

    def _of_producers(self, api: str, body: Body) -> Body | None:
        name: str = body.get("transactional_id", "")
        if api == "InitProducerId":
            producer_id, epoch = self._producers.get(name, (1000 + len(self._producers), -1))
            self._producers[name] = producer_id, epoch + 1
            return {"error_code": 0, "producer_id": producer_id, "producer_epoch": epoch + 1}
        if api in ("AddOffsetsToTxn", "TxnOffsetCommit"):
            self._touched.setdefault(name, set()).add(partition_for(body["group_id"], PARTITIONS))
            return {"error_code": 0} if api == "AddOffsetsToTxn" else None
        if api == "EndTxn":
            producer_id, epoch = self._producers[name]
            for partition in self._touched.pop(name, set()):
                self.logs[partition].append_marker(producer_id, epoch, self._now.wall_ms, commit=body["committed"])
                out = Outcome()
                ended = events.EndTransaction(producer_id, epoch, body["committed"])
                self._coordinator(partition).handle(ended, self._now, out)
                self._carry_out(partition, out)
            return {"error_code": 0}
        return None


def play_to_core(script: Script) -> Transcript:
    """A whole script, with what it left in the log, and the states its groups were in when each step began."""
    target = CoreTarget(script.delay_ms)
    states: list[dict[str, str]] = []

    def look(cast: Cast) -> None:
        states.append({group: target.state_of(cast.group_id(group)) for group in script.groups})

    transcript = at_once(play(script, target, CORE_PREFIX, before=look))
    transcript.states = states
    for group in script.groups:
        index = LogIndex(target.log_of(transcript.cast.group_id(group)))
        transcript.records[group] = index.told(group, transcript.cast)
    return transcript


def at_once(playing: Coroutine[Any, Any, T]) -> T:
    """Run what never really waits: nothing that is played to the core does."""
    try:
        playing.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    raise AssertionError("somebody waits for something outside")
