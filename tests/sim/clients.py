"""Made-up consumers: mostly they do what a consumer does, sometimes they do what one should not.

A client is told the answers to its requests and acts on them as Kafka's own would: an unknown member begins again, a
fenced one stops. Everything it chooses comes from the world's one source of chance.
"""

from random import Random
from typing import Any

from muster.codec.error_codes import ErrorCode
from muster.core.events import (
    CommitAnswer,
    CommittedPartition,
    Event,
    Heartbeat,
    JoinAnswer,
    JoinGroup,
    LeaveGroup,
    Leaver,
    OffsetCommit,
    OffsetFetch,
    SyncAnswer,
    SyncGroup,
)

TOPICS = ("orders", "clicks", "gone")
PARTITIONS = tuple((topic, partition) for topic in TOPICS for partition in range(2))
_ORDERS = bytes.fromhex("0000 00000001 0006") + b"orders" + bytes.fromhex("ffffffff")
_BOTH = bytes.fromhex("0000 00000002 0006") + b"orders" + bytes.fromhex("0006") + b"clicks" + bytes.fromhex("ffffffff")
PROTOCOLS: tuple[tuple[tuple[str, bytes], ...], ...] = (
    (("range", _ORDERS),),
    (("range", _BOTH), ("roundrobin", _BOTH)),
    (("roundrobin", _ORDERS), ("range", _ORDERS)),
    (("sticky", b"not a subscription"), ("range", b"\x00")),
    (("sticky", _BOTH),),
)


class Client:
    """One consumer. `life` grows with every restart, so that answers to an earlier self are not heard."""

    def __init__(self, name: str, group_id: str, rng: Random) -> None:
        self.name = name
        self.group_id = group_id
        self.instance_id = name if rng.random() < 0.4 else None
        self.version = 9 if self.instance_id else rng.choice((3, 4, 9))
        self.protocols = rng.choice(PROTOCOLS[:4])
        self.session_timeout_ms = rng.choice((3_000, 6_000))
        self.rebalance_timeout_ms = rng.choice((2_000, 5_000, 10_000))
        self.is_lazy = rng.random() < 0.15
        """Heartbeats instead of syncing, until that has cost it a seat."""
        self.life = 0
        self.is_alive = True
        self._begin()

    def _begin(self) -> None:
        self.member_id = ""
        self.generation = -1
        self.phase = "out"
        self.joined: JoinAnswer | None = None
        self.waits_for: int | None = None

    def die(self) -> None:
        self.is_alive = False

    def restart(self) -> None:
        """A new process under the old name: static members keep that, and nothing else."""
        self.life += 1
        self.is_alive = True
        self._begin()

    def disconnected(self) -> None:
        """The broker went away; what was asked will not be answered."""
        self.waits_for = None
        if self.phase == "waiting":
            self.phase = "out"

    # What it asks.

    def next_request(self, world: Any) -> Event | None:
        """What a well-behaved consumer does now."""
        if self.waits_for is not None:
            return None
        if self.phase == "out":
            return self.join(world)
        if self.phase == "joined":
            return self.heartbeat(world) if self.is_lazy else self.sync(world)
        rng: Random = world.rng
        if rng.random() < 0.3:
            return self.commit(world)
        return self.heartbeat(world)

    def odd_request(self, world: Any) -> Event | None:
        """What it should not do, or only now and then."""
        rng: Random = world.rng
        match rng.randrange(12):
            case 0:
                return self.heartbeat(world, generation=self.generation + rng.choice((-1, 1)))
            case 1:
                return self.heartbeat(world, member_id=rng.choice(("nobody", "")))
            case 2:
                return self.sync(world, generation=self.generation - 1)
            case 3:
                return self.commit(world, generation=rng.choice((-1, self.generation - 1)))
            case 4:
                return self.commit(world, generation=-1, member_id="")
            case 5:  # gave up waiting, and asks again
                return self.join(world)
            case 6:
                self.protocols = rng.choice(PROTOCOLS)
                return self.join(world)
            case 7:
                return self.join(world, protocol_type="connect")
            case 8:
                return self.leave(world)
            case 9:
                return self.sync(world)
            case 10:
                return self.join(world, member_id=rng.choice(("nobody", self.member_id + "x")))
            case _:
                self.session_timeout_ms = rng.choice((3_000, 6_000, 1))
                return self.join(world)

    def join(self, world: Any, member_id: str | None = None, protocol_type: str = "consumer") -> JoinGroup:
        number = world.next_number(self)
        self._waits(number)
        return JoinGroup(
            number,
            self.version,
            self.group_id,
            self.member_id if member_id is None else member_id,
            f"uuid{number}",
            self.name,
            "/127.0.0.1",
            self.session_timeout_ms,
            self.rebalance_timeout_ms,
            protocol_type,
            self.protocols,
            self.instance_id,
        )

    def sync(self, world: Any, generation: int | None = None) -> SyncGroup:
        number = world.next_number(self)
        self._waits(number)
        plan: dict[str, bytes] = {}
        if self.joined is not None and (self.joined.members or world.rng.random() < 0.2):
            # A member now and then gets nothing, and somebody unknown something; a follower's plan is to be ignored.
            plan = {
                member.member_id: f"{number}:{member.member_id}".encode()
                for member in self.joined.members
                if world.rng.random() < 0.9
            }
            plan["nobody"] = b"%d:nobody" % number
            plan.setdefault(self.member_id, f"{number}:{self.member_id}".encode())
        return SyncGroup(
            number,
            self.group_id,
            self.generation if generation is None else generation,
            self.member_id,
            plan,
            self.instance_id,
        )

    def heartbeat(self, world: Any, generation: int | None = None, member_id: str | None = None) -> Heartbeat:
        return Heartbeat(
            world.next_number(self),
            self.group_id,
            self.generation if generation is None else generation,
            self.member_id if member_id is None else member_id,
            self.instance_id,
        )

    def commit(self, world: Any, generation: int | None = None, member_id: str | None = None) -> OffsetCommit:
        rng: Random = world.rng
        return OffsetCommit(
            world.next_number(self),
            self.group_id,
            self.generation if generation is None else generation,
            self.member_id if member_id is None else member_id,
            some_offsets(world),
            self.instance_id if member_id is None else None,
            rng.choice((-1, -1, -1, 1_000)),
        )

    def leave(self, world: Any) -> LeaveGroup:
        """By its own id, or as an administrator would remove a static member."""
        rng: Random = world.rng
        member_id = "" if self.instance_id and rng.random() < 0.5 else self.member_id
        leavers = (Leaver(member_id, self.instance_id), Leaver("nobody"))
        self.restart()
        if rng.random() < 0.5:
            self.die()
        return LeaveGroup(world.next_number(self), self.group_id, leavers)

    def fetch(self, world: Any) -> OffsetFetch:
        rng: Random = world.rng
        wanted = None if rng.random() < 0.3 else PARTITIONS
        return OffsetFetch(world.next_number(self), self.group_id, wanted, rng.random() < 0.5)

    def _waits(self, number: int) -> None:
        self.waits_for = number
        self.phase = "waiting"

    # What it is told.

    def hear(self, number: int, answer: Any) -> None:
        if isinstance(answer, ErrorCode):
            self._heard_error(answer)
        elif isinstance(answer, CommitAnswer):
            self._heard_error(ErrorCode.NONE if answer.errors is None else answer.errors[0])
        elif number == self.waits_for:
            self.waits_for = None
            self.phase = "out"
            if isinstance(answer, JoinAnswer):
                self._joined(answer)
            elif isinstance(answer, SyncAnswer) and answer.error is ErrorCode.NONE:
                self.phase = "in"
            elif isinstance(answer, SyncAnswer):
                self._heard_error(answer.error)

    def _joined(self, answer: JoinAnswer) -> None:
        if answer.error in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.member_id = answer.member_id
        if answer.error is ErrorCode.NONE:
            self.generation = answer.generation
            self.joined = answer
            self.phase = "joined"
        else:
            self._heard_error(answer.error)

    def _heard_error(self, error: ErrorCode) -> None:
        if self.waits_for is not None:
            return  # an answer to something asked on the side
        match error:
            case ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
                self.is_lazy = False
                self.phase = "out"
            case ErrorCode.REBALANCE_IN_PROGRESS | ErrorCode.ILLEGAL_GENERATION:
                self.phase = "out"
            case ErrorCode.FENCED_INSTANCE_ID | ErrorCode.GROUP_MAX_SIZE_REACHED:
                self.die()
            case ErrorCode.INCONSISTENT_GROUP_PROTOCOL | ErrorCode.INVALID_SESSION_TIMEOUT:
                self.protocols = PROTOCOLS[1]
                self.session_timeout_ms = 6_000
                self.phase = "out"


def some_offsets(world: Any) -> tuple[CommittedPartition, ...]:
    """One to three partitions, each with an offset never used before; now and then one that is refused."""
    rng: Random = world.rng
    chosen = rng.sample(PARTITIONS, rng.randint(1, 3))
    return tuple(
        CommittedPartition(topic, partition, world.next_offset(), 3, "x" * 99 if rng.random() < 0.05 else "m")
        for topic, partition in chosen
    )
