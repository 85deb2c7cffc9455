"""A coordinator's whole surroundings from one seed: clients, clocks, timers, and a log that has bad days.

The log is a list, and takes or refuses the writes of one event before the next one, as the shell does; what is written
runs ahead of what is flushed, and answers wait for the flush. A power cut drops the unflushed tail and every answer not
yet delivered, and a new coordinator reads what is left; a move of the partition loses nothing, but ends everybody's
waiting. `writes_wait` breaks the shell's rule on purpose: writes are held back while the next events are decided.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any, NamedTuple

from muster.codec import decode_key
from muster.codec.error_codes import ErrorCode
from muster.codec.offsets_topic import OffsetKey
from muster.core.config import GroupConfig
from muster.core.coordinator import Coordinator
from muster.core.events import (
    CommitAnswer,
    DeleteGroup,
    DescribeGroup,
    EndTransaction,
    Event,
    ExpireOffsets,
    Heartbeat,
    Instant,
    JoinGroup,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    SyncAnswer,
    SyncGroup,
    TimerFired,
    TimerKey,
    TimerKind,
    TopicsDeleted,
    TxnOffsetCommit,
)
from muster.core.outcome import CommitWrite, OffsetsRecord, Outcome, Reply, SetTimer, Write
from muster.core.states import State
from tests.sim.checkers import (
    CommitModel,
    Entry,
    Generations,
    Key,
    Marker,
    Moves,
    Plans,
    check_bookkeeping,
    check_counters,
    check_refusal,
    check_sessions_are_watched,
    check_timers_have_a_use,
    waiting,
)
from tests.sim.clients import PARTITIONS, PROTOCOLS, TOPICS, Client, some_offsets

START_WALL_MS = 1_700_000_000_000
REFUSALS = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
)
MAX_SIZES = (2**31 - 1, 2**31 - 1, 2)
LAST_STEPS = 30


class Queued(NamedTuple):
    """A write on its way, with the event it came from; for an expiration, also what it was meant for."""

    write: Write | CommitWrite | Marker
    event: Event
    meant: dict[Key, int]


class Undelivered(NamedTuple):
    """An answer, how much of the log must be flushed first, and which incarnation of the group it speaks of."""

    reply: Reply
    log_end: int
    incarnation: int


class SimWorld:
    """One seed's world. `run` plays it; whatever goes wrong in it raises."""

    def __init__(self, seed: int, *, writes_wait: bool = False) -> None:
        self.rng = rng = Random(seed)
        self._steps = self._STEPS + self._STEPS_OF_WAITING_WRITES if writes_wait else self._STEPS
        self.config = GroupConfig(
            group_min_session_timeout_ms=10,
            group_initial_rebalance_delay_ms=rng.choice((0, 50, 3_000)),
            group_max_size=rng.choice(MAX_SIZES),
            offset_metadata_max_bytes=50,
            offsets_retention_minutes=rng.choice((1, 60)),
        )
        self.groups = ["g", "h"][: rng.choice((1, 2))]
        self.clients = [Client(f"c{n}", rng.choice(self.groups), rng) for n in range(rng.randint(2, 6))]
        self.producers = (1, 2, 3)
        self.is_calm = False
        self.now_ms = 0
        self.wall_ms = START_WALL_MS
        self.timers: dict[TimerKey, int] = {}
        self.transcript: deque[str] = deque(maxlen=LAST_STEPS)
        # The log.
        self.log: list[Entry | Marker] = []
        self.flushed = 0
        self.queue: deque[Queued] = deque()
        self.is_holding = False
        self.refuse_next: ErrorCode | None = None
        self.undelivered: deque[Undelivered] = deque()
        # Who asked what, and what became of it.
        self._numbers = 0
        self._offsets = 100
        self.asked: dict[int, tuple[Client, int, Event]] = {}
        self._asking: dict[int, tuple[Client, int]] = {}
        self.open: set[int] = set()
        self.replaced: set[int] = set()
        self.last_seen_ms: dict[tuple[str, str], int] = {}
        self.plans = Plans()
        self.moves = Moves()
        self._load()

    # Playing.

    def run(self, steps: int) -> None:
        with self.moves:
            for _ in range(steps):
                self.step()
            self.settle()
            self.end()

    def step(self) -> None:
        choices, weights = zip(*self._steps, strict=True)
        self.rng.choices(choices, weights)[0](self)
        self.check()

    def settle(self) -> None:
        """No more faults, and everybody behaves: within minutes every group is Stable or Empty, and nobody waits."""
        self.note("no more faults")
        self.is_calm = True
        self.refuse_next = None
        self.take_all()
        for rounds in range(150):
            for client in self.clients:
                request = client.next_request(self) if client.is_alive else None
                if request is not None:
                    self.ask(request)
            self.pass_time(700)
            self.flush()
            self.check()
            if rounds > 20 and self._is_settled():
                return
        raise AssertionError(f"not settled: {[(g.group_id, g.seats.state) for g in self.coordinator.groups.values()]}")

    def _is_settled(self) -> bool:
        if waiting(self.coordinator) or self.open:
            return False
        return all(
            group.seats.state in (State.STABLE, State.EMPTY) and not group.seats.pending_members
            for group in self.coordinator.groups.values()
        )

    def end(self) -> None:
        """Everybody falls silent, and all that could be waited for passes: nothing is left."""
        for client in self.clients:
            client.die()
        for _ in range(8):
            self.pass_time(100_000)
            self.check()
        for group in self.coordinator.groups.values():
            assert group.seats.state is State.EMPTY, f"{group.group_id} is {group.seats.state}"
            assert not group.seats.pending_members
        assert not self.timers, f"timers are left: {self.timers}"
        for producer_id in self.producers:
            self.write_marker(Marker(producer_id, commit=False))
        self.wall_ms += 10**9
        self.ask(ExpireOffsets())
        self.flush()
        self.check()
        assert not self.coordinator.groups, f"groups are left: {list(self.coordinator.groups)}"
        assert not self.open, f"never answered: {[self.asked[number] for number in self.open]}"

    # What can happen.

    def client_acts(self) -> None:
        client = self.rng.choice(self.clients)
        chance = self.rng.random()
        if not client.is_alive:
            if chance < 0.3:
                self.note(f"{client.name} comes back")
                client.restart()
            return
        if chance < 0.03:
            self.note(f"{client.name} dies")
            client.die()
        elif chance < 0.06:
            self.note(f"{client.name} restarts")
            client.restart()
            if chance < 0.045:
                client.protocols = self.rng.choice(PROTOCOLS[:4])
        else:
            request = client.odd_request(self) if chance < 0.15 else client.next_request(self)
            if request is not None:
                self.ask(request)

    def fetch(self) -> None:
        self.ask(self.rng.choice(self.clients).fetch(self))

    def look(self) -> None:
        number = self.next_number(self.rng.choice(self.clients))
        self.ask(self.rng.choice((ListGroups(number), DescribeGroup(number, self.rng.choice(self.groups)))))

    def txn_commit(self) -> None:
        client = self.rng.choice(self.clients)
        is_member = self.rng.random() < 0.5
        self.ask(
            TxnOffsetCommit(
                self.next_number(client),
                client.group_id,
                self.rng.choice(self.producers),
                0,
                some_offsets(self),
                client.generation if is_member else -1,
                client.member_id if is_member else "",
                client.instance_id if is_member else None,
            )
        )

    def end_transaction(self) -> None:
        self.write_marker(Marker(self.rng.choice(self.producers), self.rng.random() < 0.6))

    def write_marker(self, marker: Marker) -> None:
        self.note(f"marker {marker}")
        self.queue.append(Queued(marker, EndTransaction(marker.producer_id, 0, marker.commit), {}))
        self._drain()

    def expire(self) -> None:
        self.ask(ExpireOffsets())

    def delete_group(self) -> None:
        client = self.rng.choice(self.clients)
        self.ask(DeleteGroup(self.next_number(client), self.rng.choice(self.groups)))

    def delete_offsets(self) -> None:
        number = self.next_number(self.rng.choice(self.clients))
        self.ask(OffsetDelete(number, self.rng.choice(self.groups), tuple(self.rng.sample(PARTITIONS, 2))))

    def delete_topic(self) -> None:
        topic = self.rng.choice(TOPICS)
        self.ask(TopicsDeleted(tuple(partition for partition in PARTITIONS if partition[0] == topic)))

    def time_passes(self) -> None:
        self.pass_time(self.rng.choice((1, 50, 300, 300, 1_000, 3_000, 3_000, 12_000)))

    def pass_time(self, milliseconds: int) -> None:
        """Timers fire on time and in order, or all late and in no order."""
        self.note(f"{milliseconds} ms pass")
        end_ms = self.now_ms + milliseconds
        is_late = not self.is_calm and self.rng.random() < 0.3
        while True:
            due = sorted(key for key, deadline in self.timers.items() if deadline <= end_ms)
            if not due:
                break
            key = self.rng.choice(due) if is_late else min(due, key=self.timers.__getitem__)
            at_ms = end_ms if is_late else max(self.timers[key], self.now_ms)
            self._set_clock(at_ms)
            del self.timers[key]
            self.ask(TimerFired(key))
        self._set_clock(end_ms)

    def _set_clock(self, monotonic_ms: int) -> None:
        self.wall_ms += monotonic_ms - self.now_ms
        self.now_ms = monotonic_ms

    def early_timer(self) -> None:
        if self.timers:
            key = self.rng.choice(sorted(self.timers))
            del self.timers[key]
            self.ask(TimerFired(key))

    def wall_jumps(self) -> None:
        jump_ms = self.rng.choice((-3_600_000, -5_000, 90_000, 7_200_000))
        self.note(f"the wall clock jumps by {jump_ms}")
        self.wall_ms += jump_ms

    def hold(self) -> None:
        self.note("the log holds writes back")
        self.is_holding = True

    def take_some(self) -> None:
        for _ in range(self.rng.randint(1, 4)):
            if self.queue:
                self._take_one()

    def take_all(self) -> None:
        self.note(f"the log goes on, {len(self.queue)} waited")
        self.is_holding = False
        self._drain()

    def refuse(self) -> None:
        self.refuse_next = self.rng.choice(REFUSALS)

    def flush(self) -> None:
        self.flushed = len(self.log)
        while self.undelivered and self.undelivered[0].log_end <= self.flushed:
            self._deliver(self.undelivered.popleft())

    def power_cut(self) -> None:
        self.note(f"power cut: {len(self.log)} written, {self.flushed} flushed")
        del self.log[self.flushed :]
        self.queue.clear()
        self.undelivered.clear()
        self._restart()

    def move(self) -> None:
        """The partition goes to another broker: what was not written yet is refused there."""
        self.note("the partition moves")
        out = Outcome()
        self.coordinator.unload(out)
        self._carry_out(out, ExpireOffsets())
        while self.queue:
            queued = self.queue.popleft()
            if isinstance(queued.write, Write | CommitWrite):
                out = Outcome()
                self.coordinator.refused(queued.write, ErrorCode.NOT_LEADER_OR_FOLLOWER, out)
                self._carry_out(out, queued.event)
        assert not self.coordinator.groups
        assert not self.open, f"not answered when the partition moved: {[self.asked[n] for n in self.open]}"
        check_timers_have_a_use(self.coordinator, self.timers)
        self.flush()
        self._restart()

    _STEPS: tuple[tuple[Callable[["SimWorld"], None], float], ...] = (
        (client_acts, 60), (fetch, 5), (look, 1), (txn_commit, 3), (end_transaction, 2), (expire, 1.5),
        (delete_group, 1.5), (delete_offsets, 1), (delete_topic, 0.5), (time_passes, 12), (early_timer, 1),
        (wall_jumps, 0.7), (refuse, 2.5), (flush, 14), (power_cut, 0.7), (move, 0.5),
    )  # fmt: skip
    _STEPS_OF_WAITING_WRITES = ((hold, 2.0), (take_some, 4.0), (take_all, 2.0))

    # Carrying it out.

    @property
    def now(self) -> Instant:
        return Instant(self.now_ms, self.wall_ms)

    def note(self, line: str) -> None:
        self.transcript.append(f"{self.now_ms:>8}  {line}")

    def next_number(self, client: Client) -> int:
        self._numbers += 1
        self._asking[self._numbers] = (client, client.life)
        return self._numbers

    def next_offset(self) -> int:
        self._offsets += 1
        return self._offsets

    def ask(self, event: Event) -> None:
        self.note(f"{event}")
        before = self._waiter_replaced_by(event)
        meant = self._meant(event)
        number = getattr(event, "reply_to", None)
        if number is not None:
            self.asked[number] = (*self._asking.pop(number), event)
            self.open.add(number)
        if isinstance(event, SyncGroup):
            self.plans.sent(event, self.coordinator.groups.get(event.group_id))
        evicted = self._who_may_be_evicted(event)
        said, out = self.coordinator.hard_state(), Outcome()
        self.coordinator.handle(event, self.now, out)
        assert self.coordinator.hard_state() == said, "a decision has changed what only the log may change"
        if before is not None and self._took_the_place(number, before, out):
            self.open.discard(before)
            self.replaced.add(before)
        evicted()
        self._carry_out(out, event, meant)

    def _took_the_place(self, number: Any, older: int, out: Outcome) -> bool:
        """Whether a parked request gave way to a newer one, which then waits, or succeeded at once with all others."""
        parked = waiting(self.coordinator)
        answers = dict(out.replies)
        if older in parked or older in answers:
            return False
        return number in parked or (number in answers and answers[number].error is ErrorCode.NONE)

    def _waiter_replaced_by(self, event: Event) -> int | None:
        """The parked request of the same kind and member, if there is one."""
        if not isinstance(event, JoinGroup | SyncGroup):
            return None
        group = self.coordinator.groups.get(event.group_id)
        member = None if group is None else group.seats.members.get(event.member_id)
        if member is None:
            return None
        waiter = member.join_waiter if isinstance(event, JoinGroup) else member.sync_waiter
        return None if waiter is None else waiter.reply_to

    def _meant(self, event: Event) -> dict[Key, int]:
        """For an expiration: every offset it can see, and where in the log it stands."""
        if not isinstance(event, ExpireOffsets):
            return {}
        return {key: place for key, (place, _) in self.model.committed.items()}

    def _who_may_be_evicted(self, event: Event) -> Callable[[], None]:
        """A session that runs out has run its full time without a sign of life, whatever the wall clock says."""
        if not isinstance(event, TimerFired) or event.key.kind is not TimerKind.SESSION:
            return lambda: None
        group = self.coordinator.groups.get(event.key.group_id)
        member = None if group is None else group.seats.members.get(event.key.member_id)
        if group is None or member is None:
            return lambda: None
        waited = member.join_waiter is not None or member.sync_waiter is not None
        is_new, silent_ms = member.is_new, self.now_ms - self.last_seen_ms.get(event.key[1:], self.now_ms - 10**9)

        def check() -> None:
            if group.seats.members.get(event.key.member_id) is not member:
                assert is_new or not waited, f"{event.key} was evicted while it waited"
                assert silent_ms >= member.session_timeout_ms, f"{event.key} was evicted after {silent_ms} ms"

        return check

    def _carry_out(self, out: Outcome, event: Event, meant: dict[Key, int] | None = None) -> None:
        for timer in out.timers:
            if isinstance(timer, SetTimer):
                self.timers[timer.key] = timer.deadline_ms
            else:
                self.timers.pop(timer.key, None)
        for reply in out.replies:
            self._emit(Reply(*reply), event)
        self.queue.extend(Queued(write, event, meant or {}) for write in out.writes)
        self._drain()

    def _emit(self, reply: Reply, event: Event) -> None:
        number, answer = reply
        assert number not in self.replaced, f"{self.asked[number]} was replaced, but is answered"
        assert number in self.open, f"{self.asked[number]} is answered twice"
        self.open.discard(number)
        asked = self.asked[number][2]
        group_id = getattr(asked, "group_id", "")
        if isinstance(asked, OffsetFetch):
            expected = self.model.expected(asked)
            assert sorted(answer.partitions) == sorted(expected.partitions), f"{answer} is not {expected}"
        elif isinstance(answer, CommitAnswer):
            self._check_commit(asked, answer, len(self.log))
        elif isinstance(asked, Heartbeat) and answer in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            self.last_seen_ms[group_id, asked.member_id] = self.now_ms
        elif isinstance(answer, SyncAnswer) and asked is not event:
            self.last_seen_ms[group_id, asked.member_id] = self.now_ms  # type: ignore[union-attr]
        self.undelivered.append(Undelivered(reply, len(self.log), self.model.group_tombstones[group_id]))

    def _check_commit(self, asked: Any, answer: CommitAnswer, log_end: int) -> None:
        """What is answered with NONE is in the log, all else is not."""
        assert isinstance(asked, OffsetCommit | TxnOffsetCommit)
        errors = answer.errors or (ErrorCode.NONE,) * len(asked.partitions)
        for partition, error in zip(asked.partitions, errors, strict=True):
            place = self.model.place_of_offset.get(partition.offset, log_end)
            assert (place < log_end) == (error is ErrorCode.NONE), f"{partition} at {place}: {error!r}"

    def _deliver(self, undelivered: Undelivered) -> None:
        number, answer = undelivered.reply
        client, life, asked = self.asked[number]
        if isinstance(answer, CommitAnswer):
            self._check_commit(asked, answer, self.flushed)
        if isinstance(asked, SyncGroup):
            self.plans.delivered(asked, answer, undelivered.incarnation)
        if client.life == life and client.is_alive:
            self.note(f"    {client.name} <- {answer}")
            client.hear(number, answer)

    def _drain(self) -> None:
        while self.queue and not self.is_holding:
            self._take_one()

    def _take_one(self) -> None:
        """The log takes the oldest write that waits, or refuses it."""
        queued = self.queue.popleft()
        write, out = queued.write, Outcome()
        if isinstance(write, Marker):
            self._append(write)
            self.coordinator.handle(queued.event, self.now, out)
        elif self.refuse_next is not None:
            error, self.refuse_next = self.refuse_next, None
            self.note(f"    the log refuses {len(write.records)} records of {type(queued.event).__name__}: {error!r}")
            self.coordinator.refused(write, error, out)
            for number, answer in out.replies:
                if number == getattr(queued.event, "reply_to", None):
                    check_refusal(queued.event, answer, error)
            if isinstance(write, Write) and write.may_be_split:  # its halves come next, before anything else that waits
                self.queue.extendleft(queued._replace(write=half) for half in reversed(out.writes))
                out.writes.clear()
        else:
            self.note(f"    the log takes {len(write.records)} records of {type(queued.event).__name__}")
            self._check_expiration(queued)
            base_offset = len(self.log)
            for record in write.records:
                self._append(Entry(OffsetsRecord(*record), write.producer_id))
            self.coordinator.appended(write, base_offset, out)
        self._carry_out(out, ExpireOffsets())

    def _check_expiration(self, queued: Queued) -> None:
        """An expiration only ends what it looked at, not a commit that came after."""
        if not isinstance(queued.event, ExpireOffsets):
            return
        assert isinstance(queued.write, Write | CommitWrite)
        for raw_key, _ in queued.write.records:
            key = decode_key(raw_key)
            if isinstance(key, OffsetKey):
                where = (key.group_id, key.topic, key.partition)
                place, _ = self.model.committed.get(where, (None, None))
                assert place is None or queued.meant[where] == place, f"expiration takes a newer commit of {where}"
                assert not self.model.pending.get(where), f"expiration takes what a transaction holds: {where}"

    def _append(self, entry: Entry | Marker) -> None:
        _replay(self.shadow, len(self.log), entry)
        self.model.take(len(self.log), entry)
        self.log.append(entry)

    # Loading.

    def _restart(self) -> None:
        self.open.clear()
        self.timers.clear()
        self.last_seen_ms.clear()
        self.is_holding = False
        self.refuse_next = None
        self.config = replace(self.config, group_max_size=self.rng.choice(MAX_SIZES))
        for client in self.clients:
            client.disconnected()
        self._load()

    def _load(self) -> None:
        """A new coordinator reads the log; beside it one that only ever reads it, and the model of commits."""
        self.coordinator = Coordinator(self.config)
        self.shadow = Coordinator(self.config)
        self.model = CommitModel()
        self.generations = Generations()
        for place, entry in enumerate(self.log):
            _replay(self.coordinator, place, entry)
            _replay(self.shadow, place, entry)
            self.model.take(place, entry)
        out = Outcome()
        self.coordinator.table.take_seats()
        self.coordinator.activate(self.now, out)
        for group in self.coordinator.groups.values():
            self.last_seen_ms.update({(group.group_id, member_id): self.now_ms for member_id in group.seats.members})
        self._carry_out(out, ExpireOffsets())

    # Checking.

    def check(self) -> None:
        coordinator = self.coordinator
        assert coordinator.hard_state() == self.shadow.hard_state(), "the log does not explain the state"
        self.moves.check(coordinator)
        self.generations.check(coordinator)
        for group_id, group in coordinator.groups.items():
            assert group_id == group.group_id
            assert group.seats.state is not State.DEAD, f"{group_id} is dead"
            check_bookkeeping(group)
        check_counters(coordinator)
        check_sessions_are_watched(coordinator, self.timers)
        check_timers_have_a_use(coordinator, self.timers)
        on_their_way = {getattr(queued.event, "reply_to", None) for queued in self.queue}
        lost = self.open - waiting(coordinator) - on_their_way
        assert not lost, f"nobody will answer {[self.asked[number] for number in lost]}"


def _replay(coordinator: Coordinator, place: int, entry: Entry | Marker) -> None:
    if isinstance(entry, Marker):
        coordinator.table.replay_marker(entry.producer_id, entry.commit)
    else:
        coordinator.replay(entry.record, place, entry.producer_id)
