"""Commits, transactions, fetches, deletions, expiration; `s213` is behaviour 213 of the checklist, as in Kafka 4.3."""

from collections.abc import Sequence
from typing import Any

import pytest

from muster.codec.error_codes import ErrorCode
from muster.codec.offsets_topic import (
    NO_TOPIC_ID,
    GroupKey,
    GroupValue,
    MemberValue,
    OffsetKey,
    OffsetValue,
    decode_value,
    encode_group_value,
    encode_key,
    encode_offset_value,
)
from muster.codec.primitives import Writer
from muster.core.config import GroupConfig
from muster.core.events import (
    CommittedPartition,
    DeleteGroup,
    ExpireOffsets,
    FetchedOffset,
    OffsetCommit,
    OffsetDelete,
    OffsetDeleteAnswer,
    OffsetFetch,
    PartitionError,
    TopicsDeleted,
    TxnOffsetCommit,
    commit_error,
    group_error,
)
from muster.core.groups import NO_PRODUCER, Group, TopicPartition
from muster.core.outcome import OffsetsRecord, Outcome
from muster.core.seats import Seats
from muster.core.states import State
from tests.core.shell import NO_ANSWER, START, Logged, OffsetsOnly, Shell, recorded

E = ErrorCode
NOW_MS = START.wall_ms
RETENTION_MS = GroupConfig().offsets_retention_ms
FOO_0, FOO_1, BAR_0, BAR_1 = ("foo", 0), ("foo", 1), ("bar", 0), ("bar", 1)
PRODUCER = 9
TOPIC_ID, OTHER_TOPIC_ID = bytes(range(16)), bytes(range(1, 17))
MEMBER, OTHER = "member-1", "member-2"


class Bench:
    """A shell, and short words for what is asked of it."""

    def __init__(self, **settings: Any) -> None:
        self.coordinator = OffsetsOnly(**settings)
        self.shell = Shell(self.coordinator)
        self.groups = self.coordinator.groups

    def seat(self, group: Group) -> Group:
        self.groups[group.group_id] = group
        return group

    def commit(
        self, *partitions: TopicPartition, offset: int = 42, generation: int = -1, member: str = "", group: str = "g",
        **more: Any,
    ) -> list[ErrorCode]:  # fmt: skip
        asked = tuple(CommittedPartition(*partition, offset) for partition in partitions or (FOO_0,))
        event = OffsetCommit("me", group, generation, member, more.pop("committed", asked), **more)
        return _errors(self.shell.ask(event), event.partitions)

    def txn_commit(
        self, *partitions: TopicPartition, offset: int = 77, producer: int = PRODUCER, group: str = "g", **more: Any
    ) -> list[ErrorCode]:
        asked = tuple(CommittedPartition(*partition, offset) for partition in partitions or (FOO_0,))
        event = TxnOffsetCommit("me", group, producer, 0, more.pop("committed", asked), **more)
        return _errors(self.shell.ask(event), event.partitions)

    def end(self, commit: bool, producer: int = PRODUCER) -> None:
        self.shell.end_transaction(producer, commit)

    def fetch(self, *partitions: TopicPartition, stable: bool = False, group: str = "g", **more: Any) -> Any:
        """Offset by partition; the error where there is one."""
        answer = self.shell.ask(OffsetFetch("me", group, partitions or None, stable, **more))
        assert answer.error is E.NONE
        return {each[:2]: each.offset if each.error is E.NONE else each.error for each in answer.partitions}

    def fetch_one(self, partition: TopicPartition = FOO_0, **more: Any) -> FetchedOffset:
        (fetched,) = self.shell.ask(OffsetFetch("me", "g", (partition,), **more)).partitions
        assert isinstance(fetched, FetchedOffset)
        return fetched

    def delete(self, *partitions: TopicPartition, group: str = "g") -> Any:
        return self.shell.ask(OffsetDelete("me", group, partitions))

    def delete_group(self, group: str = "g") -> Any:
        return self.shell.ask(DeleteGroup("me", group))

    def expire(self) -> list[tuple[Any, Any]]:
        """What the expiration job appended."""
        before = len(self.shell.log)
        assert self.shell.ask(ExpireOffsets()) is NO_ANSWER
        return self.shell.records_since(before)

    def keep(self, partition: TopicPartition, offset: int = 42, group: str = "g", **value: Any) -> None:
        """Append a commit as it may stand in the log."""
        value.setdefault("commit_timestamp_ms", self.shell.now.wall_ms)
        version = 1 if "expire_timestamp_ms" in value else 4
        self.append(OffsetKey(group, *partition), encode_offset_value(OffsetValue(offset, **value), version))

    def append(self, key: OffsetKey | GroupKey, value: bytes | None, producer: int = NO_PRODUCER) -> None:
        self.replay(OffsetsRecord(encode_key(key), value), producer)

    def replay(self, record: OffsetsRecord, producer: int = NO_PRODUCER) -> None:
        self.shell.log.append(Logged(record, producer))
        self.coordinator.replay(record, len(self.shell.log) - 1, producer)


def _errors(answer: Any, asked: Sequence[CommittedPartition]) -> list[ErrorCode]:
    if answer.errors is None:
        return [E.NONE] * len(asked)
    assert len(answer.errors) == len(asked)
    return list(answer.errors)


def subscription(*topics: str) -> bytes:
    writer = Writer()
    writer.int16(0)
    writer.array_count(len(topics))
    for topic in topics:
        writer.string(topic)
    writer.nullable_bytes(None)
    return writer.finish()


def member_value(member_id: str, metadata: bytes, instance_id: str | None = None) -> MemberValue:
    return MemberValue(member_id, instance_id, "client", "/127.0.0.1", 60_000, 10_000, metadata, b"mine")


def a_group(
    *topics: str,
    generation: int = 3,
    protocol_type: str = "consumer",
    metadata: bytes | None = None,
    instances: Sequence[str | None] = (None,),
    empty_since: int | None = None,
) -> Group:
    """Stable with one member for each instance; or Empty since some time."""
    if empty_since is not None:
        return recorded("g", GroupValue(protocol_type, generation, None, None, empty_since))
    metadata = subscription(*topics) if metadata is None else metadata
    members = [
        member_value(f"member-{number}", metadata, instance) for number, instance in enumerate(instances, start=1)
    ]
    return recorded("g", GroupValue(protocol_type, generation, "range", MEMBER, NOW_MS, tuple(members)))


def rebalancing(group: Group, is_joining: bool) -> Group:
    group.seats.state = State.PREPARING_REBALANCE if is_joining else State.COMPLETING_REBALANCE
    return group


def tombstone(partition: TopicPartition) -> tuple[OffsetKey, None]:
    return OffsetKey("g", *partition), None


GROUP_TOMBSTONE = (GroupKey("g"), None)


@pytest.fixture
def bench() -> Bench:
    return Bench()


# Commit.


@pytest.mark.parametrize(
    ("version", "error"), [(8, E.ILLEGAL_GENERATION), (9, E.GROUP_ID_NOT_FOUND), (10, E.GROUP_ID_NOT_FOUND)]
)
def test_s213_a_generation_of_no_group(bench: Bench, version: int, error: ErrorCode) -> None:
    assert bench.commit(generation=1, version=version) == [error]
    assert not bench.groups
    assert not bench.shell.log


def test_s214_a_commit_creates_a_simple_group(bench: Bench) -> None:
    assert bench.commit() == [E.NONE]
    group = bench.groups["g"].seats
    assert (group.state, group.protocol_type, group.generation) == (State.EMPTY, None, 0)
    assert bench.shell.records_since(0) == [(OffsetKey("g", "foo", 0), OffsetValue(42, -1, "", NOW_MS))]


def test_nothing_changes_before_the_append(bench: Bench) -> None:
    out = Outcome()
    event = OffsetCommit("me", "g", -1, "", (CommittedPartition("foo", 0, 42),))
    bench.coordinator.handle(event, START, out)
    assert not bench.groups
    assert not out.replies
    assert len(out.writes) == 1


def test_s216_a_dead_group_takes_no_commit(bench: Bench) -> None:
    bench.seat(Group("g", seats=Seats(State.DEAD)))
    assert bench.commit() == [E.COORDINATOR_NOT_AVAILABLE]
    assert bench.txn_commit() == [E.COORDINATOR_NOT_AVAILABLE]


@pytest.mark.parametrize(
    ("member", "generation", "error"),
    [
        pytest.param(MEMBER, 3, E.REBALANCE_IN_PROGRESS, id="s217"),
        pytest.param("", -1, E.UNKNOWN_MEMBER_ID, id="s218"),
        pytest.param(MEMBER, 4, E.ILLEGAL_GENERATION, id="s219"),
    ],
)
def test_s217_s218_s219_no_commit_while_the_assignment_is_awaited(
    bench: Bench, member: str, generation: int, error: ErrorCode
) -> None:
    bench.seat(rebalancing(a_group("foo"), is_joining=False))
    assert bench.commit(member=member, generation=generation) == [error]
    assert not bench.coordinator.extended
    assert not bench.shell.log


@pytest.mark.parametrize(("member", "instance"), [("unknown", None), ("", "instance"), ("unknown", "instance")])
def test_s221_an_empty_group_asks_nobody_who_they_are(bench: Bench, member: str, instance: str | None) -> None:
    bench.seat(a_group(empty_since=NOW_MS))
    assert bench.commit(member=member, instance_id=instance) == [E.NONE]


def test_an_empty_group_has_no_member_of_any_generation(bench: Bench) -> None:
    bench.seat(a_group(empty_since=NOW_MS))
    assert bench.commit(member=MEMBER, generation=3) == [E.UNKNOWN_MEMBER_ID]


@pytest.mark.parametrize("is_joining", [True, None])
def test_s222_a_member_commits_and_lives_on(bench: Bench, is_joining: bool | None) -> None:
    group = bench.seat(a_group("foo"))
    if is_joining is not None:
        rebalancing(group, is_joining)
    assert bench.commit(member=MEMBER, generation=3) == [E.NONE]
    assert bench.coordinator.extended == [MEMBER]
    assert bench.fetch(FOO_0) == {FOO_0: 42}


def test_a_member_says_its_generation(bench: Bench) -> None:
    bench.seat(a_group("foo"))
    assert bench.commit(member=MEMBER) == [E.ILLEGAL_GENERATION]
    assert bench.commit(member="nobody", generation=3) == [E.UNKNOWN_MEMBER_ID]
    assert bench.commit() == [E.UNKNOWN_MEMBER_ID]
    assert not bench.coordinator.extended


@pytest.mark.parametrize(
    ("member", "instance", "error"),
    [
        ("nobody", "one", E.FENCED_INSTANCE_ID),
        (OTHER, "one", E.FENCED_INSTANCE_ID),
        ("", "one", E.FENCED_INSTANCE_ID),
        (MEMBER, "three", E.UNKNOWN_MEMBER_ID),
        (MEMBER, "one", E.NONE),
    ],
)
def test_s223_s251_static_members_are_fenced(bench: Bench, member: str, instance: str, error: ErrorCode) -> None:
    bench.seat(a_group("foo", instances=("one", "two")))
    assert bench.commit(member=member, instance_id=instance, generation=3) == [error]
    assert bench.txn_commit(member_id=member, instance_id=instance, generation=3) == [error]


@pytest.mark.parametrize(
    ("metadata", "error"),
    [
        ("m" * 4097, E.OFFSET_METADATA_TOO_LARGE),
        ("m" * 4096, E.NONE),
        ("é" * 4096, E.NONE),
        ("é" * 4097, E.OFFSET_METADATA_TOO_LARGE),
        ("\U0001f600" * 2048, E.NONE),  # two units each
        ("\U0001f600" * 2049, E.OFFSET_METADATA_TOO_LARGE),
        ("\udcff" * 4096, E.NONE),  # bytes that were no text: one U+FFFD each
        ("\udcff" * 4097, E.OFFSET_METADATA_TOO_LARGE),
    ],
)
def test_s224_s226_metadata_is_measured_in_javas_characters(bench: Bench, metadata: str, error: ErrorCode) -> None:
    committed = (CommittedPartition("foo", 0, 42, metadata=metadata),)
    assert bench.commit(committed=committed) == [error]
    assert len(bench.shell.log) == (error is E.NONE)
    assert bench.fetch_one().metadata == (metadata if error is E.NONE else "")


def test_s224_the_rest_of_a_commit_is_accepted(bench: Bench) -> None:
    committed = tuple(
        CommittedPartition("foo", number, 42, metadata="m" * size) for number, size in ((0, 9), (1, 5000))
    )
    assert bench.commit(committed=committed) == [E.NONE, E.OFFSET_METADATA_TOO_LARGE]
    assert bench.fetch() == {FOO_0: 42}


@pytest.mark.parametrize("retention_ms", [-1, 5])
def test_no_value_has_room_for_metadata_of_more_than_32767_bytes(retention_ms: int) -> None:
    bench = Bench(offset_metadata_max_bytes=100_000)
    for metadata, error in (
        ("m" * 0x7FFF, E.NONE),
        ("m" * 0x8000, E.OFFSET_METADATA_TOO_LARGE),
        ("é" * 0x4000, E.OFFSET_METADATA_TOO_LARGE),
    ):
        committed = (CommittedPartition("foo", 0, 42, metadata=metadata),)
        assert bench.commit(committed=committed, retention_ms=retention_ms) == [error]


def test_s227_no_metadata_is_empty_metadata(bench: Bench) -> None:
    assert bench.commit(committed=(CommittedPartition("foo", 0, 42, metadata=None),)) == [E.NONE]
    assert bench.fetch_one().metadata == ""


@pytest.mark.parametrize(
    ("refusal", "error"),
    [
        pytest.param(E.UNKNOWN_TOPIC_OR_PARTITION, E.COORDINATOR_NOT_AVAILABLE, id="s228-3"),
        pytest.param(E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE, id="s228-19"),
        pytest.param(E.NOT_ENOUGH_REPLICAS_AFTER_APPEND, E.NOT_ENOUGH_REPLICAS_AFTER_APPEND, id="20"),
        pytest.param(E.REQUEST_TIMED_OUT, E.COORDINATOR_NOT_AVAILABLE, id="7"),
        pytest.param(E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR, id="s229-6"),
        pytest.param(E.KAFKA_STORAGE_ERROR, E.NOT_COORDINATOR, id="s229-56"),
        pytest.param(E.MESSAGE_TOO_LARGE, E.UNKNOWN_SERVER_ERROR, id="10"),
        pytest.param(E.RECORD_LIST_TOO_LARGE, E.UNKNOWN_SERVER_ERROR, id="18"),
        pytest.param(E.INVALID_FETCH_SIZE, E.UNKNOWN_SERVER_ERROR, id="4"),
        pytest.param(E.CORRUPT_MESSAGE, E.CORRUPT_MESSAGE, id="s231"),
        pytest.param(E.NOT_COORDINATOR, E.NOT_COORDINATOR, id="s232"),
    ],
)
def test_s228_s229_s231_s232_a_refused_append_leaves_no_trace(
    bench: Bench, refusal: ErrorCode, error: ErrorCode
) -> None:
    bench.commit(offset=41)
    bench.shell.refuse_next(refusal)
    assert bench.commit(FOO_0, FOO_1) == [error, error]
    assert bench.fetch(FOO_0, FOO_1, stable=True) == {FOO_0: 41, FOO_1: -1}
    assert len(bench.shell.log) == 1


def test_the_network_is_only_a_commits_trouble() -> None:
    assert commit_error(E.NETWORK_EXCEPTION) is E.COORDINATOR_LOAD_IN_PROGRESS
    assert group_error(E.NETWORK_EXCEPTION) is E.NETWORK_EXCEPTION
    assert group_error(E.REQUEST_TIMED_OUT) is E.COORDINATOR_NOT_AVAILABLE


def test_s236_a_commit_with_a_retention_has_an_end(bench: Bench) -> None:
    assert bench.commit(retention_ms=1234, version=3) == [E.NONE]
    version, value = _last_value(bench)
    assert (version, value.expire_timestamp_ms, value.commit_timestamp_ms) == (1, NOW_MS + 1234, NOW_MS)


def test_s237_leader_epochs(bench: Bench) -> None:
    bench.commit(committed=(CommittedPartition("foo", 0, 42, 15), CommittedPartition("foo", 1, 43)))
    assert bench.fetch_one(FOO_0) == FetchedOffset("foo", 0, 42, 15, "", E.NONE)
    assert bench.fetch_one(FOO_1) == FetchedOffset("foo", 1, 43, -1, "", E.NONE)


def test_s238_a_topic_id_is_written_down(bench: Bench) -> None:
    committed = (CommittedPartition("foo", 0, 42, topic_id=TOPIC_ID),)
    assert bench.commit(committed=committed, version=10) == [E.NONE]
    version, value = _last_value(bench)
    assert (version, value.topic_id) == (4, TOPIC_ID)
    assert bench.txn_commit(committed=committed) == [E.NONE]
    assert _last_value(bench)[1].topic_id == NO_TOPIC_ID


@pytest.mark.parametrize(("protocol", "version"), [("2.0", 1), ("2.1-IV0", 2), ("3.9", 3), ("4.1", 4), (None, 4)])
def test_an_old_cluster_gets_old_values(protocol: str | None, version: int) -> None:
    bench = Bench(inter_broker_protocol_version=protocol)
    bench.commit()
    assert _last_value(bench)[0] == version


def _last_value(bench: Bench) -> tuple[int, OffsetValue]:
    record = bench.shell.log[-1].record
    assert record is not None
    assert record.value is not None
    version, value = decode_value(1, record.value)
    assert isinstance(value, OffsetValue)
    return version, value


def test_s44_a_group_without_a_name(bench: Bench) -> None:
    assert bench.commit(group="") == [E.NONE]
    assert bench.fetch(FOO_0, group="") == {FOO_0: 42}
    assert bench.groups[""].seats.state is State.EMPTY
    assert bench.delete_group("") is E.NONE
    assert bench.fetch(FOO_0, group="") == {FOO_0: -1}


def test_s46_transactions_and_deletions_want_a_name(bench: Bench) -> None:
    bench.commit(group="")
    assert bench.txn_commit(group="") == [E.INVALID_GROUP_ID]
    assert bench.delete(FOO_0, group="") == OffsetDeleteAnswer(E.INVALID_GROUP_ID)


# Transactions.


def test_s239_an_offset_in_a_transaction_is_pending(bench: Bench) -> None:
    assert bench.txn_commit() == [E.NONE]
    assert bench.fetch(FOO_0) == {FOO_0: -1}
    assert bench.fetch(FOO_0, stable=True) == {FOO_0: E.UNSTABLE_OFFSET_COMMIT}
    assert bench.fetch_one(require_stable=True) == FetchedOffset("foo", 0, -1, -1, "", E.UNSTABLE_OFFSET_COMMIT)
    (write,) = bench.shell.writes
    assert (write.producer_id, write.producer_epoch) == (PRODUCER, 0)
    bench.end(commit=True)
    assert bench.fetch(FOO_0, stable=True) == {FOO_0: 77}


def test_s241_s242_an_aborted_offset_is_gone_for_good(bench: Bench) -> None:
    bench.txn_commit()
    bench.end(commit=False)
    assert bench.fetch(FOO_0, stable=True) == {FOO_0: -1}
    bench.end(commit=True)
    assert bench.fetch(FOO_0, stable=True) == {FOO_0: -1}


def test_s243_only_what_is_pending_is_unstable(bench: Bench) -> None:
    bench.txn_commit(FOO_0)
    assert bench.fetch(FOO_0, BAR_1, stable=True) == {FOO_0: E.UNSTABLE_OFFSET_COMMIT, BAR_1: -1}


def test_s244_each_partition_of_the_log_waits_for_its_own_marker() -> None:
    here, there = Bench(), Bench()  # one coordinator for each
    here.txn_commit()
    there.txn_commit(group="h")
    here.end(commit=True)
    assert here.fetch(FOO_0, stable=True) == {FOO_0: 77}
    assert there.fetch(FOO_0, stable=True, group="h") == {FOO_0: E.UNSTABLE_OFFSET_COMMIT}
    there.end(commit=True)
    assert there.fetch(FOO_0, stable=True, group="h") == {FOO_0: 77}


def test_one_marker_for_all_groups_of_a_partition(bench: Bench) -> None:
    bench.txn_commit(group="g")
    bench.txn_commit(group="h")
    bench.end(commit=True)
    assert bench.fetch(group="g") == bench.fetch(group="h") == {FOO_0: 77}


def test_producers_do_not_disturb_each_other(bench: Bench) -> None:
    bench.txn_commit(FOO_0, FOO_1, producer=1, offset=10)
    bench.txn_commit(FOO_1, producer=2, offset=20)
    bench.end(commit=False, producer=2)
    assert bench.fetch(FOO_1, stable=True) == {FOO_1: E.UNSTABLE_OFFSET_COMMIT}
    bench.end(commit=True, producer=1)
    assert bench.fetch(FOO_0, FOO_1, stable=True) == {FOO_0: 10, FOO_1: 10}


def test_the_place_of_the_commit_counts_and_not_that_of_the_marker(bench: Bench) -> None:
    bench.txn_commit(producer=1, offset=10)
    bench.txn_commit(producer=2, offset=20)
    bench.end(commit=True, producer=2)
    bench.end(commit=True, producer=1)
    assert bench.fetch(FOO_0) == {FOO_0: 20}


def test_s246_a_later_ordinary_commit_wins(bench: Bench) -> None:
    bench.txn_commit(offset=77)
    bench.commit(offset=42)
    bench.end(commit=True)
    assert bench.fetch(FOO_0, stable=True) == {FOO_0: 42}


def test_s247_a_later_transaction_wins(bench: Bench) -> None:
    bench.commit(offset=42)
    bench.txn_commit(offset=77)
    assert bench.fetch(FOO_0) == {FOO_0: 42}
    bench.end(commit=True)
    assert bench.fetch(FOO_0) == {FOO_0: 77}


def test_s248_an_abort_leaves_the_ordinary_commit(bench: Bench) -> None:
    bench.commit(offset=42)
    bench.txn_commit(offset=77)
    bench.end(commit=False)
    assert bench.fetch(FOO_0, stable=True) == {FOO_0: 42}


def test_s249_a_refused_transaction_leaves_no_trace(bench: Bench) -> None:
    bench.shell.refuse_next(E.NOT_ENOUGH_REPLICAS)
    assert bench.txn_commit() == [E.COORDINATOR_NOT_AVAILABLE]
    assert bench.fetch(FOO_0, stable=True) == {FOO_0: -1}
    bench.end(commit=True)
    assert bench.fetch(FOO_0, stable=True) == {FOO_0: -1}
    assert not bench.groups


@pytest.mark.parametrize(
    ("member", "generation", "error"),
    [
        pytest.param("nobody", 3, E.UNKNOWN_MEMBER_ID, id="s252"),
        pytest.param(MEMBER, 8, E.ILLEGAL_GENERATION, id="s253"),
        pytest.param(MEMBER, -1, E.ILLEGAL_GENERATION, id="a-member-without-generation"),
        pytest.param("", -1, E.NONE, id="an-old-client"),
        pytest.param(MEMBER, 3, E.NONE, id="s254"),
    ],
)
@pytest.mark.parametrize("is_joining", [True, False, None])
def test_s252_s253_s254_who_may_commit_in_a_transaction(
    bench: Bench, member: str, generation: int, error: ErrorCode, is_joining: bool | None
) -> None:
    group = bench.seat(a_group("foo"))
    if is_joining is not None:
        rebalancing(group, is_joining)
    assert bench.txn_commit(member_id=member, generation=generation) == [error]
    assert not bench.coordinator.extended


def test_an_empty_group_takes_transactions_of_anybody(bench: Bench) -> None:
    bench.seat(a_group(empty_since=NOW_MS))
    assert bench.txn_commit(member_id="unknown") == [E.NONE]
    assert bench.txn_commit(member_id="unknown", generation=3) == [E.UNKNOWN_MEMBER_ID]


def test_s256_a_generation_of_no_group_in_a_transaction(bench: Bench) -> None:
    assert bench.txn_commit(member_id="m", generation=10) == [E.ILLEGAL_GENERATION]


@pytest.mark.parametrize(
    ("verification", "error"),
    [
        pytest.param(E.INVALID_TXN_STATE, E.INVALID_TXN_STATE, id="s257-48"),
        pytest.param(E.INVALID_PRODUCER_ID_MAPPING, E.INVALID_PRODUCER_ID_MAPPING, id="s257-49"),
        pytest.param(E.TRANSACTION_ABORTABLE, E.TRANSACTION_ABORTABLE, id="s257-120"),
        pytest.param(E.INVALID_PRODUCER_EPOCH, E.INVALID_PRODUCER_EPOCH, id="s257-47"),
        pytest.param(E.NETWORK_EXCEPTION, E.COORDINATOR_LOAD_IN_PROGRESS, id="s258"),
        pytest.param(E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE, id="s259-19"),
        pytest.param(E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR, id="s259-6"),
        pytest.param(E.KAFKA_STORAGE_ERROR, E.NOT_COORDINATOR, id="s259-56"),
    ],
)
def test_s257_s258_s259_a_transaction_that_is_not_one(bench: Bench, verification: ErrorCode, error: ErrorCode) -> None:
    assert bench.txn_commit(FOO_0, FOO_1, verification_error=verification) == [error, error]
    assert not bench.shell.log


def test_s262_a_tombstone_takes_the_pending_offset_too(bench: Bench) -> None:
    bench.txn_commit(FOO_0, FOO_1)
    bench.append(OffsetKey("g", "foo", 0), None)
    bench.end(commit=True)
    assert bench.fetch(FOO_0, FOO_1, stable=True) == {FOO_0: -1, FOO_1: 77}


def test_transactions_survive_groups_put_in_place_by_hand(bench: Bench) -> None:
    bench.txn_commit()
    other = Bench()
    other.groups.update(bench.groups)
    other.coordinator.table.reindex()
    other.end(commit=True)
    assert other.fetch(FOO_0) == {FOO_0: 77}


# Fetch.


def test_s263_s264_an_unknown_group_has_no_offsets(bench: Bench) -> None:
    assert bench.fetch_one() == FetchedOffset("foo", 0, -1, -1, "", E.NONE)
    assert bench.fetch() == {}
    bench.commit()
    bench.groups["g"].seats.state = State.DEAD
    assert bench.fetch(FOO_0) == {FOO_0: -1}
    assert bench.fetch() == {}


def test_s266_all_offsets(bench: Bench) -> None:
    bench.commit(FOO_0, FOO_1, BAR_0)
    assert bench.fetch() == {FOO_0: 42, FOO_1: 42, BAR_0: 42}


def test_s267_s268_s269_all_offsets_beside_a_transaction(bench: Bench) -> None:
    bench.commit(FOO_0, FOO_1, BAR_0)
    bench.txn_commit(FOO_1, BAR_0, BAR_1)
    unstable = E.UNSTABLE_OFFSET_COMMIT
    assert bench.fetch(stable=True) == {FOO_0: 42, FOO_1: unstable, BAR_0: unstable}
    assert bench.fetch() == {FOO_0: 42, FOO_1: 42, BAR_0: 42}
    bench.end(commit=True)
    assert bench.fetch(stable=True) == {FOO_0: 42, FOO_1: 77, BAR_0: 77, BAR_1: 77}


@pytest.mark.parametrize(
    ("stored", "asked", "offset"),
    [
        (TOPIC_ID, OTHER_TOPIC_ID, -1),
        (TOPIC_ID, TOPIC_ID, 42),
        (TOPIC_ID, NO_TOPIC_ID, 42),
        (NO_TOPIC_ID, TOPIC_ID, 42),
    ],
)
def test_s271_another_topic_of_the_same_name(bench: Bench, stored: bytes, asked: bytes, offset: int) -> None:
    bench.commit(committed=(CommittedPartition("foo", 0, 42, topic_id=stored),), version=10)
    assert bench.fetch(FOO_0, topic_ids={"foo": asked}) == {FOO_0: offset}
    assert bench.fetch(FOO_0, topic_ids={"bar": OTHER_TOPIC_ID}) == {FOO_0: 42}


# Delete offsets.


def test_s274_no_offsets_of_no_group(bench: Bench) -> None:
    assert bench.delete(FOO_0) == OffsetDeleteAnswer(E.GROUP_ID_NOT_FOUND)
    bench.seat(Group("g", seats=Seats(State.DEAD)))
    assert bench.delete(FOO_0) == OffsetDeleteAnswer(E.GROUP_ID_NOT_FOUND)


def test_s276_members_that_are_no_consumers_keep_their_offsets(bench: Bench) -> None:
    bench.seat(a_group(protocol_type="My Protocol"))
    bench.keep(FOO_0)
    assert bench.delete(FOO_0) == OffsetDeleteAnswer(E.NON_EMPTY_GROUP)


def test_s277_an_empty_group_loses_what_is_asked(bench: Bench) -> None:
    bench.seat(a_group(protocol_type="My Protocol", empty_since=NOW_MS))
    bench.commit(FOO_0, BAR_0)
    assert bench.delete(FOO_0) == OffsetDeleteAnswer(E.NONE, (PartitionError("foo", 0, E.NONE),))
    assert bench.fetch() == {BAR_0: 42}
    assert bench.shell.records_since(2) == [tombstone(FOO_0)]


@pytest.mark.parametrize("is_joining", [True, False, None])
def test_s278_subscribed_topics_keep_their_offsets(bench: Bench, is_joining: bool | None) -> None:
    group = bench.seat(a_group("bar"))
    if is_joining is not None:
        rebalancing(group, is_joining)
    bench.keep(FOO_0)
    bench.keep(BAR_0)
    results = PartitionError("foo", 0, E.NONE), PartitionError("bar", 0, E.GROUP_SUBSCRIBED_TO_TOPIC)
    assert bench.delete(FOO_0, BAR_0) == OffsetDeleteAnswer(E.NONE, results)
    assert bench.fetch() == {BAR_0: 42}


def test_s279_an_unknown_subscription_is_one_to_everything(bench: Bench) -> None:
    bench.seat(a_group(metadata=b""))
    bench.keep(FOO_0)
    assert bench.delete(FOO_0).partitions == (PartitionError("foo", 0, E.GROUP_SUBSCRIBED_TO_TOPIC),)
    assert bench.fetch() == {FOO_0: 42}


def test_s281_deleting_nothing_is_no_mistake(bench: Bench) -> None:
    bench.seat(a_group(empty_since=NOW_MS))
    assert bench.delete(FOO_0) == OffsetDeleteAnswer(E.NONE, (PartitionError("foo", 0, E.NONE),))
    assert not bench.shell.log


def test_s282_a_pending_offset_can_be_deleted(bench: Bench) -> None:
    bench.txn_commit(FOO_0)
    assert bench.delete(FOO_0, FOO_0).error is E.NONE
    assert bench.shell.records_since(1) == [tombstone(FOO_0)]
    bench.end(commit=True)
    assert bench.fetch(FOO_0, stable=True) == {FOO_0: -1}


def test_s283_a_group_without_offsets_stays_until_expiration(bench: Bench) -> None:
    bench.seat(a_group(generation=5, empty_since=NOW_MS))
    bench.commit(FOO_0)
    bench.delete(FOO_0)
    assert bench.groups["g"].seats.state is State.EMPTY
    assert bench.expire() == [GROUP_TOMBSTONE]
    assert not bench.groups


def test_a_refused_deletion_deletes_nothing(bench: Bench) -> None:
    bench.commit(FOO_0)
    bench.shell.refuse_next(E.NOT_LEADER_OR_FOLLOWER)
    assert bench.delete(FOO_0) == OffsetDeleteAnswer(E.NOT_COORDINATOR)
    bench.shell.refuse_next(E.NOT_ENOUGH_REPLICAS)
    assert bench.delete_group() is E.COORDINATOR_NOT_AVAILABLE
    assert bench.fetch() == {FOO_0: 42}


# Delete groups.


@pytest.mark.parametrize("is_joining", [True, False, None])
def test_s293_a_group_with_members_is_not_deleted(bench: Bench, is_joining: bool | None) -> None:
    group = bench.seat(a_group("foo"))
    if is_joining is not None:
        rebalancing(group, is_joining)
    assert bench.delete_group() is E.NON_EMPTY_GROUP


@pytest.mark.parametrize("generation", [0, 5])
def test_s294_a_deleted_group_leaves_tombstones(bench: Bench, generation: int) -> None:
    bench.seat(a_group(generation=generation, empty_since=NOW_MS))
    bench.commit(FOO_0, BAR_0)
    bench.txn_commit(BAR_0, BAR_1)
    before = len(bench.shell.log)
    assert bench.delete_group() is E.NONE
    assert bench.shell.records_since(before) == [*map(tombstone, (FOO_0, BAR_0, BAR_1)), GROUP_TOMBSTONE]
    assert bench.fetch(FOO_0) == {FOO_0: -1}
    assert not bench.groups
    bench.end(commit=True)
    assert not bench.groups


def test_s296_an_unknown_group_is_not_deleted(bench: Bench) -> None:
    assert bench.delete_group() is E.GROUP_ID_NOT_FOUND
    bench.seat(Group("g", seats=Seats(State.DEAD)))
    assert bench.delete_group() is E.GROUP_ID_NOT_FOUND


def test_s297_groups_are_deleted_one_by_one(bench: Bench) -> None:
    bench.commit(group="a")
    bench.seat(a_group("foo"))
    bench.commit(group="z")
    assert [bench.delete_group(name) for name in "agz"] == [E.NONE, E.NON_EMPTY_GROUP, E.NONE]
    assert list(bench.groups) == ["g"]


# Loading.


def test_s301_offsets_make_a_group(bench: Bench) -> None:
    for partition in (FOO_0, FOO_1, BAR_0):
        bench.keep(partition)
    assert bench.groups["g"].seats.state is State.EMPTY
    assert bench.groups["g"].seats.protocol_type is None
    assert bench.fetch() == {FOO_0: 42, FOO_1: 42, BAR_0: 42}


def test_s302_s303_offsets_before_and_after_the_group(bench: Bench) -> None:
    bench.keep(FOO_0)
    bench.append(GroupKey("g"), encode_group_value(GroupValue("consumer", 15, None, None), 3))
    bench.keep(BAR_0)
    group = bench.groups["g"].seats
    assert (group.state, group.generation, group.protocol_type) == (State.EMPTY, 15, "consumer")
    member = member_value(MEMBER, subscription("foo"))
    value = GroupValue("consumer", 935, "range", MEMBER, NOW_MS, (member,))
    bench.append(GroupKey("g"), encode_group_value(value, 3))
    group = bench.groups["g"].seats
    assert (group.state, group.generation, group.leader) == (State.STABLE, 935, MEMBER)
    assert bench.fetch() == {FOO_0: 42, BAR_0: 42}


def test_s304_s306_s307_s308_s309_transactions_are_loaded_as_they_were(bench: Bench) -> None:
    bench.txn_commit(FOO_0, offset=1)
    bench.end(commit=True)
    bench.txn_commit(FOO_0, FOO_1, offset=2)
    bench.end(commit=False)
    bench.txn_commit(FOO_1, offset=3)
    bench.txn_commit(BAR_0, offset=4, producer=8)
    bench.end(commit=True, producer=8)
    loaded = Bench()
    bench.shell.replay_into(loaded.coordinator)
    loaded.shell.log = list(bench.shell.log)
    for each in (bench, loaded):
        assert each.fetch(stable=True) == {FOO_0: 1, BAR_0: 4}
        assert each.fetch(FOO_1, stable=True) == {FOO_1: E.UNSTABLE_OFFSET_COMMIT}
    assert loaded.groups == bench.groups
    loaded.end(commit=True)
    assert loaded.fetch(stable=True) == {FOO_0: 1, FOO_1: 3, BAR_0: 4}


def test_s306_a_transaction_without_a_marker_makes_a_group(bench: Bench) -> None:
    bench.append(OffsetKey("g", "foo", 0), encode_offset_value(OffsetValue(1), 4), producer=PRODUCER)
    assert bench.groups["g"].seats.state is State.EMPTY
    assert bench.fetch() == {}


def test_s311_the_later_record_wins(bench: Bench) -> None:
    bench.keep(FOO_0, 24)
    bench.append(OffsetKey("g", "foo", 0), encode_offset_value(OffsetValue(23), 4), producer=PRODUCER)
    bench.end(commit=True)
    assert bench.fetch() == {FOO_0: 23}


def test_s312_a_tombstone_removes_one(bench: Bench) -> None:
    for partition in (FOO_0, FOO_1, BAR_0):
        bench.keep(partition)
    bench.append(OffsetKey("g", "foo", 1, record_type=0), None)  # either type of key means the same partition
    assert bench.fetch() == {FOO_0: 42, BAR_0: 42}


def test_a_tombstone_creates_no_group(bench: Bench) -> None:
    bench.append(OffsetKey("g", "foo", 0), None)
    assert not bench.groups


def test_s313_s314_a_group_that_ended_and_came_back(bench: Bench) -> None:
    bench.append(GroupKey("g"), encode_group_value(GroupValue("consumer", 15, None, None), 3))
    bench.append(GroupKey("g"), None)
    assert not bench.groups
    bench.keep(FOO_0)
    assert (bench.groups["g"].seats.protocol_type, bench.groups["g"].seats.generation) == (None, 0)
    assert bench.fetch() == {FOO_0: 42}


# Expiration.


def test_s48_the_longest_retention() -> None:
    assert GroupConfig(offsets_retention_minutes=2**31 - 1).offsets_retention_ms == 128_849_018_820_000


def test_s334_offsets_with_an_end_of_their_own(bench: Bench) -> None:
    bench.keep(FOO_0, expire_timestamp_ms=NOW_MS + 1)
    bench.keep(FOO_1, expire_timestamp_ms=NOW_MS + 3)
    assert bench.expire() == []
    bench.shell.advance(2)
    assert bench.expire() == [tombstone(FOO_0)]
    assert bench.fetch() == {FOO_1: 42}
    bench.shell.advance(1)
    assert bench.expire() == [tombstone(FOO_1), GROUP_TOMBSTONE]
    assert not bench.groups


@pytest.mark.parametrize("generation", [0, 5])
def test_s336_an_empty_group_without_offsets_ends(bench: Bench, generation: int) -> None:
    bench.seat(a_group(generation=generation, empty_since=NOW_MS))
    assert bench.expire() == [GROUP_TOMBSTONE]
    assert not bench.groups


def test_ids_handed_out_do_not_keep_a_group(bench: Bench) -> None:
    bench.seat(Group("g", seats=Seats(pending_members={"somebody": 9000})))
    assert bench.expire() == [GROUP_TOMBSTONE]


def test_state_changes_only_once_the_tombstones_are_appended(bench: Bench) -> None:
    bench.keep(FOO_0, expire_timestamp_ms=NOW_MS)
    bench.keep(BAR_0, expire_timestamp_ms=NOW_MS, group="h")
    bench.shell.refuse_next(E.NOT_ENOUGH_REPLICAS)
    assert bench.expire() == [(OffsetKey("h", "bar", 0), None), (GroupKey("h"), None)]  # the others are not held up
    assert list(bench.groups) == ["g"]
    assert bench.fetch() == {FOO_0: 42}
    assert bench.expire() == [tombstone(FOO_0), GROUP_TOMBSTONE]


@pytest.mark.parametrize("is_joining", [True, False])
def test_s337_nothing_expires_in_a_rebalance(bench: Bench, is_joining: bool) -> None:
    bench.seat(rebalancing(a_group("foo"), is_joining))
    bench.keep(BAR_0, expire_timestamp_ms=NOW_MS - 1)
    assert bench.expire() == []


def test_s338_a_group_that_just_became_empty(bench: Bench) -> None:
    bench.seat(a_group(empty_since=NOW_MS))
    bench.keep(("a", 0), expire_timestamp_ms=NOW_MS)
    bench.keep(("b", 0), expire_timestamp_ms=NOW_MS + 2)
    bench.keep(("c", 0))
    assert bench.expire() == [tombstone(("a", 0))]
    bench.shell.advance(3)
    assert bench.expire() == [tombstone(("b", 0))]
    assert bench.fetch() == {("c", 0): 42}


def test_s339_retention_counts_from_the_day_the_group_became_empty(bench: Bench) -> None:
    bench.seat(a_group(empty_since=NOW_MS))
    bench.keep(FOO_0)
    bench.shell.advance(RETENTION_MS - 1)
    bench.keep(FOO_1)  # a commit from outside does not move it
    assert bench.expire() == []
    bench.shell.advance(1)
    assert bench.expire() == [tombstone(FOO_0), tombstone(FOO_1), GROUP_TOMBSTONE]
    assert not bench.groups


def test_s341_subscribed_topics_do_not_expire(bench: Bench) -> None:
    bench.seat(a_group("foo", "bar"))
    bench.keep(FOO_0)
    bench.keep(BAR_0, expire_timestamp_ms=NOW_MS)
    bench.shell.advance(RETENTION_MS + 1)
    assert bench.expire() == []


def test_s342_topics_that_nobody_reads_any_more(bench: Bench) -> None:
    bench.seat(a_group("foo"))
    bench.keep(FOO_0)
    bench.keep(BAR_0)
    bench.shell.advance(RETENTION_MS - 1)
    assert bench.expire() == []
    bench.shell.advance(1)
    assert bench.expire() == [tombstone(BAR_0)]
    assert bench.fetch() == {FOO_0: 42}
    assert bench.groups["g"].seats.state is State.STABLE


def test_s343_not_while_members_are_joining(bench: Bench) -> None:
    bench.seat(rebalancing(a_group("foo"), is_joining=True))
    bench.keep(BAR_0)
    bench.shell.advance(RETENTION_MS + 1)
    assert bench.expire() == []


@pytest.mark.parametrize(("protocol_type", "metadata"), [("connect", b""), ("consumer", b"")])
def test_s344_members_whose_topics_are_unknown(bench: Bench, protocol_type: str, metadata: bytes) -> None:
    bench.seat(a_group(protocol_type=protocol_type, metadata=metadata))
    bench.keep(FOO_0)
    bench.shell.advance(RETENTION_MS + 1)
    assert bench.expire() == []


def test_s346_an_old_commit_in_a_group_that_just_became_empty(bench: Bench) -> None:
    bench.seat(a_group(empty_since=NOW_MS))
    bench.keep(FOO_0, commit_timestamp_ms=NOW_MS - RETENTION_MS - 1)
    assert bench.expire() == []


def test_s347_an_old_record_does_not_say_since_when_it_is_empty(bench: Bench) -> None:
    bench.seat(a_group(empty_since=-1))
    bench.keep(FOO_0, commit_timestamp_ms=NOW_MS - RETENTION_MS)
    bench.keep(FOO_1, commit_timestamp_ms=NOW_MS - RETENTION_MS + 1)
    assert bench.expire() == [tombstone(FOO_0)]


def test_s349_a_transaction_protects_its_partitions_and_its_group(bench: Bench) -> None:
    bench.commit(FOO_0, FOO_1)
    bench.txn_commit(FOO_0)
    bench.shell.advance(RETENTION_MS)
    assert bench.expire() == [tombstone(FOO_1)]
    assert bench.expire() == []
    bench.end(commit=False)
    assert bench.expire() == [tombstone(FOO_0), GROUP_TOMBSTONE]


def test_a_transaction_alone_keeps_its_group(bench: Bench) -> None:
    bench.txn_commit(FOO_0)
    assert bench.expire() == []
    bench.end(commit=False)
    assert bench.expire() == [GROUP_TOMBSTONE]


@pytest.mark.parametrize("group", [a_group("foo", "bar"), rebalancing(a_group("foo"), True), Group("g")])
def test_s351_offsets_of_deleted_topics_go(bench: Bench, group: Group) -> None:
    bench.seat(group)
    for partition in (FOO_0, FOO_1, BAR_0):
        bench.keep(partition)
    bench.keep(FOO_1, group="h")
    bench.keep(BAR_0, group="i")
    bench.txn_commit(("foo", 2))
    before = len(bench.shell.log)
    bench.shell.ask(TopicsDeleted((FOO_0, FOO_1, ("foo", 2), ("foo", 3))))
    expected = [*map(tombstone, (FOO_0, FOO_1, ("foo", 2))), (OffsetKey("h", "foo", 1), None)]
    assert bench.shell.records_since(before) == expected
    bench.end(commit=True)
    assert bench.fetch() == {BAR_0: 42}


def test_s352_a_group_that_loses_all_stays_until_expiration(bench: Bench) -> None:
    bench.keep(FOO_0)
    bench.shell.ask(TopicsDeleted((FOO_0,)))
    assert bench.groups["g"].seats.state is State.EMPTY
    assert bench.expire() == [GROUP_TOMBSTONE]


def test_s354_nothing_expired_nothing_written(bench: Bench) -> None:
    bench.commit()
    assert bench.expire() == []
    assert len(bench.shell.writes) == 1


# Groups of newer kinds.


def test_a_newer_group_can_be_read_and_not_touched(bench: Bench) -> None:
    bench.keep(FOO_0, expire_timestamp_ms=NOW_MS)
    bench.coordinator.newer.kinds["g"] = "consumer"
    assert bench.fetch() == {FOO_0: 42}
    assert bench.commit() == [E.UNKNOWN_MEMBER_ID]
    assert bench.commit(generation=4, member=MEMBER) == [E.UNKNOWN_MEMBER_ID]
    assert bench.commit(generation=4, member=MEMBER, version=8) == [E.UNSUPPORTED_VERSION]
    assert bench.txn_commit() == [E.UNKNOWN_MEMBER_ID]
    assert bench.txn_commit(member_id=MEMBER, generation=4) == [E.ILLEGAL_GENERATION]
    assert bench.delete(FOO_0) == OffsetDeleteAnswer(E.NON_EMPTY_GROUP)
    assert bench.delete_group() is E.NON_EMPTY_GROUP
    bench.shell.ask(TopicsDeleted((FOO_0,)))
    bench.shell.advance(RETENTION_MS)
    assert bench.expire() == []
    assert len(bench.shell.log) == 1
