"""The verbs of the test kit in Python: what they take and give. What they do is in `muster.server.kit`.

Every method may be called from any thread but the broker's own. They block; in a coroutine use `asyncio.to_thread`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, Self

from muster.errors import ConfigError
from muster.server.kit.plain import RECORD_KEYS, check_keys, packed, pairs, unpacked

Bytes = bytes | str | None


class Member(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    subscribed: tuple[str, ...]
    assigned: dict[str, list[int]]
    """Partitions by topic."""


class Group(NamedTuple):
    name: str
    state: str
    generation: int
    protocol_type: str
    protocol: str
    leader: str
    members: tuple[Member, ...]

    @property
    def assigned(self) -> dict[tuple[str, int], str]:
        """Which client has each partition, by client id."""
        return {
            (topic, partition): member.client_id
            for member in self.members
            for topic, partitions in member.assigned.items()
            for partition in partitions
        }


class Commit(NamedTuple):
    topic: str
    partition: int
    offset: int
    metadata: str
    leader_epoch: int
    time_ms: int


class Topic(NamedTuple):
    name: str
    partitions: int
    starts: list[int]
    ends: list[int]
    """By partition: the first offset that is there, and the one behind the last."""
    configs: dict[str, str]


class Transaction(NamedTuple):
    """The last transaction of a transactional id; `state` as Kafka calls it."""

    transactional_id: str
    state: str
    producer_id: int
    epoch: int
    timeout_ms: int
    started_ms: int
    partitions: tuple[tuple[str, int], ...]


class Record(NamedTuple):
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


Seed = Bytes | tuple[Bytes, Bytes] | Mapping[str, Any]
"""A value; a key and a value; or a dict of `key`, `value`, `headers`, `partition`, `timestamp_ms`."""


class Fault:
    """A fault that was ordered; in a `with`, it is undone at the end of it."""

    def __init__(self, verbs: "KitVerbs", number: int) -> None:
        self._verbs = verbs
        self._number = number

    @property
    def met(self) -> int:
        """How many requests it has met so far."""
        met: int = self._verbs.do("fault_met", fault=self._number)["met"]
        return met

    def undo(self) -> None:
        """Return when everything is as it was."""
        self._verbs.do("undo_fault", fault=self._number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()


class Faults:
    """Faults by order. `times` requests meet one (None: all), after `skip` that pass."""

    def __init__(self, verbs: "KitVerbs") -> None:
        self._verbs = verbs

    def error(self, api: str, code: int | str, *, times: int | None = 1, **chosen: Any) -> Fault:
        """Answer the next requests of an API with an error, by Kafka's name or number.

        They are chosen by `client` (id), `group`, `topic`; the request is not handled.
        """
        return self._order("error", api, code=code, times=times, **chosen)

    def delay(self, api: str, seconds: float, *, times: int | None = 1, **chosen: Any) -> Fault:
        """Handle the next requests of an API so much later."""
        return self._order("delay", api, seconds=seconds, times=times, **chosen)

    def drop_connection(self, api: str, *, times: int | None = 1, after: bool = False, **chosen: Any) -> Fault:
        """Cut the connections of the next requests; with `after` they are handled, and only the answer is lost."""
        return self._order("drop_connection", api, after=after, times=times, **chosen)

    def unload(self, partition: int | None = None, *, group: str | None = None) -> Fault:
        """Let go of a partition of the offsets topic, or of a group's: clients hear NOT_COORDINATOR."""
        return Fault(self._verbs, self._verbs.do("fault_unload", partition=partition, group=group)["fault"])

    def full_disk(self) -> Fault:
        """Nothing more can be written."""
        return Fault(self._verbs, self._verbs.do("fault_full_disk")["fault"])

    def crash_at(self, step: str) -> Fault:
        """Crash when a transaction's end comes to a step; `Broker.kill_and_restart` brings the broker back.

        `before-prepare`, `prepared`, `first-marker`, `markers` or `completed`. In a thread the power goes; a process
        is killed.
        """
        return Fault(self._verbs, self._verbs.do("fault_crash_at", step=step)["fault"])

    def clear(self) -> None:
        """Undo all of them."""
        self._verbs.do("undo_faults")

    def _order(self, what: str, api: str, **about: Any) -> Fault:
        return Fault(self._verbs, self._verbs.do("fault", what=what, api=api, **about)["fault"])


class Clock:
    """The broker's clock: real time, until it is turned."""

    def __init__(self, verbs: "KitVerbs") -> None:
        self._verbs = verbs

    def advance(self, duration: float | str | timedelta, *, keep_members: bool = False) -> None:
        """Let time pass at once: `"7 days"`, `"90 s"`, a timedelta, or seconds. What is due happens, in order.

        Members lose their sessions, as they would by real silence; with `keep_members` those that are connected do not.
        """
        given = duration.total_seconds() if isinstance(duration, timedelta) else duration
        self._verbs.do("advance", duration=given, keep_members=keep_members)

    def now(self) -> datetime:
        """The broker's time."""
        return datetime.fromtimestamp(self._verbs.do("clock")["wall_ms"] / 1000, UTC)


class KitVerbs(ABC):
    """What a `Broker` can be asked besides serving clients."""

    @abstractmethod
    def do(self, verb: str, **arguments: Any) -> Any:
        """One verb, with plain values. Raises `MusterError`."""

    @property
    def faults(self) -> Faults:
        return Faults(self)

    @property
    def clock(self) -> Clock:
        return Clock(self)

    # Looking inside.

    def groups(self) -> dict[str, Group]:
        """All groups, by name."""
        return {one["group"]: _group(one) for one in self.do("groups")}

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """Committed offsets by (topic, partition); empty for a group that has none."""
        return {(one.topic, one.partition): one.offset for one in self.commits(group)}

    def commits(self, group: str) -> list[Commit]:
        """The same with metadata, leader epoch and time."""
        return [Commit(**one) for one in self.do("commits", group=group)]

    def transactions(self) -> dict[str, Transaction]:
        """The last transaction of every transactional id, by that id."""
        return {one["transactional_id"]: _transaction(one) for one in self.do("transactions")}

    def topics(self) -> dict[str, Topic]:
        """All topics but internal ones, by name."""
        return {
            one["topic"]: Topic(one["topic"], one["partitions"], one["starts"], one["ends"], one["configs"])
            for one in self.do("topics")
        }

    def records(self, topic: str, partition: int | None = None) -> list[Record]:
        """The records of a topic, or of one partition, as a consumer with `read_uncommitted` sees them."""
        return [_record(one) for one in self.do("records", topic=topic, partition=partition)]

    def wait_for_members(self, group: str, members: int, within: float = 10.0) -> Group:
        """Return when the group is Stable with so many members (0: when it is Empty); `NotInTime`."""
        return _group(self.do("wait_for_members", group=group, members=members, within_s=within))

    def wait_until_stable(self, group: str, within: float = 10.0) -> Group:
        """Return when the group is Stable; `NotInTime`."""
        return _group(self.do("wait_until_stable", group=group, within_s=within))

    # Putting things in.

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, Any] | None = None) -> None:
        """Make a topic; `ConfigError` where that cannot be."""
        self.do("create_topic", topic=name, partitions=partitions, configs=dict(configs or {}))

    def seed_records(self, topic: str, *records: Seed, partition: int | None = None) -> list[tuple[int, int]]:
        """Append records; the topic is made if there is none. Returns partition and offset of each.

        A key finds its partition as with Kafka's own producer; without a key they take turns.
        """
        seeded = self.do("seed_records", topic=topic, records=[_seed(one, partition) for one in records])
        return [(one["partition"], one["offset"]) for one in seeded]

    def seed_commits(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Commit offsets for a group without members, by (topic, partition)."""
        commits = [
            {"topic": topic, "partition": partition, "offset": _whole(offset, topic, partition)}
            for (topic, partition), offset in ((_place(key), offset) for key, offset in offsets.items())
        ]  # fmt: skip
        self.do("seed_commits", group=group, commits=commits)

    def expel(self, group: str, member: str) -> None:
        """Take away the seat of a member, named by its member id, instance id or client id."""
        self.do("expel", group=group, member=member)

    def reset(self) -> None:
        """Back to nothing: no fault, topic, group or transaction, real time.

        Clients stay connected; close your consumers first.
        """
        self.do("reset")


def _group(one: dict[str, Any]) -> Group:
    members = tuple(
        Member(
            member["member"], member["instance"], member["client"], member["host"], tuple(member["subscribed"]),
            member["assigned"],
        )
        for member in one["members"]
    )  # fmt: skip
    return Group(
        one["group"], one["state"], one["generation"], one["protocol_type"], one["protocol"], one["leader"], members
    )


def _transaction(one: dict[str, Any]) -> Transaction:
    partitions = tuple((topic, partition) for topic, partition in one["partitions"])
    return Transaction(**{**one, "partitions": partitions})


def _record(one: dict[str, Any]) -> Record:
    headers = tuple((name, unpacked(value, name)) for name, value in one["headers"])
    key, value = unpacked(one["key"], "key"), unpacked(one["value"], "value")
    return Record(one["partition"], one["offset"], one["timestamp_ms"], key, value, headers)


def _seed(record: Seed, partition: int | None) -> dict[str, Any]:
    if isinstance(record, Mapping):
        check_keys(record, RECORD_KEYS, (), "a record to be seeded")  # here too: what is unknown may not even travel
        given = dict(record)
    elif isinstance(record, tuple):
        if len(record) != 2:
            raise ConfigError(
                f"{record!r} is no record: a tuple is a key and a value. A dict of {', '.join(RECORD_KEYS)} says more."
            )
        given = {"key": record[0], "value": record[1]}
    else:
        given = {"value": record}
    given.setdefault("partition", partition)
    given["headers"] = [[name, _plain(value)] for name, value in pairs(given.get("headers") or ())]
    return given | {name: _plain(given.get(name)) for name in ("key", "value")}


def _place(key: Any) -> tuple[str, int]:
    """A topic and a partition."""
    if isinstance(key, tuple) and len(key) == 2 and isinstance(key[0], str) and isinstance(key[1], int):
        return key[0], key[1]
    topic = next((part for part in (key if isinstance(key, tuple) else (key,)) if isinstance(part, str)), "orders")
    raise ConfigError(f"{key!r} is no topic and partition; offsets to be seeded are written {{({topic!r}, 0): 42}}.")


def _whole(offset: Any, topic: str, partition: int) -> int:
    if isinstance(offset, int):
        return offset
    raise ConfigError(f"{offset!r} is no offset; offsets to be seeded are written {{({topic!r}, {partition}): 42}}.")


def _plain(value: Bytes) -> Any:
    return packed(value) if isinstance(value, bytes) else value
