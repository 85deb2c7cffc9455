"""Looking inside a server, and putting things into it, without a client.

What is read is what the coordinators and logs hold now. What is put in goes the way of a client's request: a seeded
record is produced, a seeded commit is an OffsetCommit from outside the group, an expelled member leaves. All values are
plain ones that JSON can hold (`plain.py`).
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from muster.codec.batches import encode_batch
from muster.codec.consumer_protocol import decode_assignment, decode_subscription
from muster.codec.error_codes import ErrorCode
from muster.codec.partition_state import decode_commit
from muster.codec.records import Record
from muster.core.events import (
    CommittedPartition,
    DeleteGroup,
    Event,
    LeaveGroup,
    Leaver,
    OffsetCommit,
)
from muster.core.groups import Group
from muster.core.seats import CONSUMER_PROTOCOL, Member
from muster.core.states import State
from muster.errors import CodecError, ConfigError, LogDamaged, MusterError, NotInTime
from muster.segments.checkpoints import TopicPartition
from muster.server.assembly import Parts
from muster.server.cluster.topics import INTERNAL_TOPICS, Happened, Plan, Topic, TopicChange
from muster.server.kit.plain import COMMIT_KEYS, RECORD_KEYS, check_keys, packed, pairs, unpacked, whole
from muster.server.records.produce import ALL, PartitionData, ProduceAnswer, ProduceRequest
from muster.server.waiting_replies import Callback

LOOK_EVERY_S = 0.003
SEED_TIMEOUT_MS = 30_000
SEED_VERSION = 9
"""Of the Produce that a seeded record is: the last one that names topics."""
_NO_MEMBER, _NO_GENERATION = "", -1


class Inside:
    """Everything here runs in the thread of the event loop."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._loop = asyncio.get_running_loop()
        self._next_keyless = 0

    # Groups.

    def _groups(self) -> Iterator[Group]:
        for led in self._parts.led_partitions.by_number.values():
            if led.coordinator is not None:
                yield from led.coordinator.groups.values()

    def _group(self, group: str) -> Group | None:
        return next((one for one in self._groups() if one.group_id == group), None)

    def groups(self) -> list[dict[str, Any]]:
        return [_described(group) for group in sorted(self._groups(), key=lambda group: group.group_id)]

    def commits(self, group: str) -> list[dict[str, Any]]:
        """Empty for a group that does not exist: it has committed nothing."""
        found = self._group(group)
        offsets = {} if found is None else found.offsets
        return [_commit(*key, commit_bytes) for key, commit_bytes in sorted(offsets.items())]

    async def wait_for_members(self, group: str, members: int, within_s: float = 10.0) -> dict[str, Any]:
        """Until the group is Stable with so many members; 0: until it is Empty."""
        state = State.STABLE if members else State.EMPTY
        wanted = f"{state.value} with {_counted(members, 'member')}"

        def is_there() -> bool:
            found = self._group(group)
            if found is None:
                return not members
            return found.seats.state is state and len(found.seats.members) == members

        return await self._wait(group, is_there, wanted, within_s)

    async def wait_until_stable(self, group: str, within_s: float = 10.0) -> dict[str, Any]:
        def is_there() -> bool:
            found = self._group(group)
            return found is not None and found.seats.state is State.STABLE

        return await self._wait(group, is_there, State.STABLE.value, within_s)

    async def _wait(self, group: str, is_there: Callable[[], bool], wanted: str, within_s: float) -> dict[str, Any]:
        deadline = self._loop.time() + within_s
        while not is_there():
            if self._loop.time() >= deadline:
                raise NotInTime(f"{self._seen(group)} after {within_s:g} s; it was to be {wanted}.")
            await asyncio.sleep(LOOK_EVERY_S)
        found = self._group(group)
        return _described(Group(group) if found is None else found)

    def _seen(self, group: str) -> str:
        found = self._group(group)
        if found is None:
            there = ", ".join(sorted(one.group_id for one in self._groups())) or "none at all"
            return f"there is no group {group} (there is {there})"
        names = ", ".join(f"{one.client_id} {one.member_id}" for one in found.seats.members.values())
        members = _counted(len(found.seats.members), "member")
        return f"group {group} is {found.seats.state.value} with {members}{f' ({names})' if names else ''}"

    async def expel(self, group: str, member: str) -> dict[str, Any]:
        """Take a member's seat away; it hears of it with its next heartbeat. By its id, instance id or client id."""
        found = self._group(group)
        seated = [] if found is None else list(found.seats.members.values())
        named = [one for one in seated if member in (one.member_id, one.instance_id, one.client_id)]
        if len(named) != 1:
            problem = "no member is called that" if not named else f"{len(named)} members are called that"
            raise ConfigError(f"member {member} cannot be expelled, as {problem}: {self._seen(group)}.")
        leaver = Leaver(named[0].member_id, reason="expelled by a test")
        answer = await self._submit(LeaveGroup(None, group, (leaver,)))
        error = answer.error or answer.members[0].error
        if error is not ErrorCode.NONE:
            raise ConfigError(f"member {member} of group {group} cannot be expelled: {error.name}({error.value}).")
        return {"member": named[0].member_id}

    async def seed_commits(self, group: str, commits: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        """Commit offsets for a group that has no members, as an admin client does."""
        commits = list(commits)
        for one in commits:
            check_keys(one, COMMIT_KEYS, ("topic", "partition", "offset"), "a commit to be seeded")
        partitions = tuple(map(self._committed, commits))
        answer = await self._submit(OffsetCommit(None, group, _NO_GENERATION, _NO_MEMBER, partitions))
        errors = answer.errors if isinstance(answer.errors, tuple) else (answer.errors,) if answer.errors else ()
        for error in errors:
            if error is not None and error is not ErrorCode.NONE:
                hint = " It has members: only they may commit." if error is ErrorCode.UNKNOWN_MEMBER_ID else ""
                raise ConfigError(f"offsets of group {group} cannot be seeded: {error.name}({error.value}).{hint}")
        return {"committed": len(partitions)}

    def _committed(self, one: Mapping[str, Any]) -> CommittedPartition:
        """A client could not commit for a partition that is not there either. Any offset will do."""
        topic = self._named(one["topic"])
        partition = self._partition_of(topic, one["partition"], None)
        offset = whole(one["offset"], f"the offset of {topic.name}-{partition}")
        metadata = one.get("metadata")
        if metadata is not None and not isinstance(metadata, str):
            raise ConfigError(f"the metadata of {topic.name}-{partition} is {metadata!r}; it should be text.")
        return CommittedPartition(topic.name, partition, offset, metadata=metadata, topic_id=topic.topic_id)

    async def _submit(self, event: Event) -> Any:
        answered: asyncio.Future[Any] = self._loop.create_future()

        def take(answer: Any) -> None:
            if not answered.done():
                answered.set_result(answer)

        def fail(error: Exception) -> None:
            if not answered.done():
                answered.set_exception(error)

        self._parts.led_partitions.submit(event, Callback(take, fail))
        return await answered

    # Topics and records.

    def _topics(self) -> list[Topic]:
        return [topic for topic in self._parts.cluster.topics.in_order() if topic.name not in INTERNAL_TOPICS]

    def topics(self) -> list[dict[str, Any]]:
        return [
            {
                "topic": topic.name,
                "partitions": topic.partitions,
                "starts": [self._bounds(topic, number)[0] for number in range(topic.partitions)],
                "ends": [self._bounds(topic, number)[1] for number in range(topic.partitions)],
                "configs": dict(topic.configs),
            }
            for topic in self._topics()
        ]

    def _bounds(self, topic: Topic, partition: int) -> tuple[int, int]:
        log = self._parts.cluster.partition_of(topic, partition)
        return log.start_offset, log.high_watermark

    def records(self, topic: str, partition: int | None = None) -> list[dict[str, Any]]:
        """All that a consumer would see, partition by partition."""
        found = self._named(topic)
        numbers = range(found.partitions) if partition is None else [partition]
        return [record for number in numbers for record in self._records(found, number)]

    def _named(self, name: Any) -> Topic:
        found = self._parts.cluster.topics.get(name) if isinstance(name, str) else None
        if found is None:
            there = ", ".join(topic.name for topic in self._topics()) or "none"
            raise ConfigError(f"there is no topic {name} (there is {there}); create_topic or seed_records makes one.")
        return found

    def _records(self, topic: Topic, partition: int) -> Iterator[dict[str, Any]]:
        log = self._parts.directory.logs.get(TopicPartition(topic.name, partition))
        if log is None:
            raise ConfigError(f"topic {topic.name} has partitions 0 to {topic.partitions - 1}, and no {partition}.")
        start, end = self._bounds(topic, partition)
        for batch in log.batches():
            if batch.header.is_control or batch.header.last_offset < start or batch.header.base_offset >= end:
                continue
            if batch.problem is not None:
                raise LogDamaged(
                    f"{topic.name}-{partition}: the batch at offset {batch.header.base_offset} cannot be read: "
                    f"{batch.problem}"
                )
            for record in batch.records:
                if start <= record.offset < end:
                    yield _record(partition, record)

    async def create_topic(
        self, topic: str, partitions: int = 1, configs: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        await self._parts.topic_changes.create_topic(self._parts.cluster, topic, partitions, configs or {})
        return {"topic": topic, "partitions": partitions}

    async def seed_records(self, topic: str, records: Iterable[Mapping[str, Any]]) -> list[dict[str, int]]:
        """Append records, one batch for each partition; the topic is made if there is none. Where each one went."""
        records = list(records)
        for given in records:
            check_keys(given, RECORD_KEYS, (), "a record to be seeded")
            if given.get("timestamp_ms") is not None:
                whole(given["timestamp_ms"], "the timestamp_ms of a record")
            if given.get("partition") is not None:
                whole(given["partition"], "the partition of a record")
            pairs(given.get("headers") or ())
        if self._parts.cluster.topics.get(topic) is None:
            await self.create_topic(topic, self._parts.cluster.config.num_partitions)
        found = self._named(topic)
        wall_ms = self._parts.led_partitions.now().wall_ms
        by_partition: dict[int, list[Record]] = {}
        places: list[tuple[int, int]] = []
        for given in records:
            key = unpacked(given.get("key"), "the key of a record")
            partition = self._partition_of(found, given.get("partition"), key)
            batch = by_partition.setdefault(partition, [])
            headers = tuple((name, unpacked(value, "a header")) for name, value in pairs(given.get("headers") or ()))
            timestamp_ms = int(given.get("timestamp_ms") or wall_ms)
            value = unpacked(given.get("value"), "the value of a record")
            batch.append(Record(len(batch), timestamp_ms, key, value, headers))
            places.append((partition, len(batch) - 1))
        base_offsets = await self._produce(found, by_partition) if by_partition else {}
        return [{"partition": partition, "offset": base_offsets[partition] + number} for partition, number in places]

    def _partition_of(self, topic: Topic, partition: Any, key: bytes | None) -> int:
        if partition is not None:
            if isinstance(partition, bool) or partition not in range(topic.partitions):
                raise ConfigError(
                    f"topic {topic.name} has partitions 0 to {topic.partitions - 1}, and no {partition!r}."
                )
            return int(partition)
        if key is None:
            self._next_keyless += 1
            return (self._next_keyless - 1) % topic.partitions
        return (murmur2(key) & 0x7FFFFFFF) % topic.partitions

    async def _produce(self, topic: Topic, by_partition: dict[int, list[Record]]) -> dict[int, int]:
        answered: asyncio.Future[ProduceAnswer] = self._loop.create_future()
        partitions = tuple(
            PartitionData(topic.name, topic.topic_id, number, memoryview(encode_batch(batch)))
            for number, batch in by_partition.items()
        )
        request = ProduceRequest(SEED_VERSION, ALL, SEED_TIMEOUT_MS, None, partitions)
        self._parts.data_partitions.produce(request, answered.set_result)
        answer = await answered
        for asked, produced in zip(partitions, answer.produced, strict=True):
            if produced.error is not ErrorCode.NONE:
                raise ConfigError(
                    f"records for {topic.name}-{asked.partition} were not taken: {produced.error.name}"
                    f"({produced.error.value}) {produced.message or ''}".rstrip()
                    + "."
                )
        return {
            asked.partition: produced.base_offset for asked, produced in zip(partitions, answer.produced, strict=True)
        }

    # Back to nothing.

    async def forget_everything(self) -> None:
        """Every topic, then every group; members hear that they are unknown. The log keeps their tombstones."""
        outcomes = await self._parts.topic_changes.carry_out(self._without_topics)
        problem = next((error for error in outcomes if error is not None), None)
        if problem is not None:
            raise MusterError(f"the topics could not all be deleted: {problem}")
        deletions = []
        for group in list(self._groups()):
            leavers = tuple(Leaver(member_id) for member_id in (*group.seats.members, *group.seats.pending_members))
            if leavers:
                deletions.append(self._loop.create_task(self._submit(LeaveGroup(None, group.group_id, leavers))))
            deletions.append(self._loop.create_task(self._submit(DeleteGroup(None, group.group_id))))
        if deletions:
            await asyncio.wait(deletions)

    def _without_topics(self) -> Plan:
        """By the topics that there are when its turn has come: changes before it may have made some, or larger."""
        return Plan([TopicChange(Happened.DELETED, topic) for topic in self._topics()], lambda outcomes: outcomes)


def _described(group: Group) -> dict[str, Any]:
    seats = group.seats
    return {
        "group": group.group_id,
        "state": seats.state.value,
        "generation": seats.generation,
        "protocol_type": seats.protocol_type or "",
        "protocol": seats.protocol or "",
        "leader": seats.leader or "",
        "members": [_member(member, seats.protocol, seats.protocol_type) for member in seats.members.values()],
    }


def _member(member: Member, protocol: str | None, protocol_type: str | None) -> dict[str, Any]:
    topics: tuple[str, ...] = ()
    assigned: dict[str, list[int]] = {}
    if protocol_type == CONSUMER_PROTOCOL:
        try:
            subscription, assignment = (
                decode_subscription(member.metadata(protocol)),
                decode_assignment(member.assignment),
            )
        except CodecError:  # a client may put anything there
            subscription = assignment = None
        topics = () if subscription is None else subscription.topics
        assigned = (
            {} if assignment is None else {one.topic: list(one.partitions) for one in assignment.assigned_partitions}
        )
    return {
        "member": member.member_id,
        "instance": member.instance_id,
        "client": member.client_id,
        "host": member.client_host,
        "subscribed": list(topics),
        "assigned": assigned,
    }


def _commit(topic: str, partition: int, commit_bytes: bytes) -> dict[str, Any]:
    value = decode_commit(commit_bytes).value
    return {
        "topic": topic,
        "partition": partition,
        "offset": value.committed_offset,
        "metadata": value.metadata,
        "leader_epoch": value.leader_epoch,
        "time_ms": value.commit_timestamp_ms,
    }


def _record(partition: int, record: Record) -> dict[str, Any]:
    return {
        "partition": partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": packed(record.key),
        "value": packed(record.value),
        "headers": [[name, packed(value)] for name, value in record.headers],
    }


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


_SEED, _MULTIPLIER, _SHIFT = 0x9747B28C, 0x5BD1E995, 24


def murmur2(data: bytes) -> int:
    """The hash by which Kafka's own producer finds the partition of a key."""
    mask, length = 0xFFFFFFFF, len(data)
    hashed = _SEED ^ length
    whole = length & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little") * _MULTIPLIER & mask
        word = (word ^ word >> _SHIFT) * _MULTIPLIER & mask
        hashed = (hashed * _MULTIPLIER & mask) ^ word
    if whole < length:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & mask
    hashed = (hashed ^ hashed >> 13) * _MULTIPLIER & mask
    return hashed ^ hashed >> 15
