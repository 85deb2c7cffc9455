"""The part that talks to a cluster, through confluent-kafka's AdminClient. Answers come back as plain values.

One request is sent over a connection of `muster.live`, with the same settings: confluent-kafka cannot delete offsets.

Speed. librdkafka asks about one group at a time: three requests to describe it, two for its offsets. Its oldest call,
`list_groups`, asks each broker once about all its groups; where many groups are wanted that is tried first, and what it
cannot tell (groups of the newer protocol, a broker that did not answer) is asked one by one. Offsets have no such call:
they are fetched group by group, many in flight.

Waiting. librdkafka never gives up on a broker by itself, so we do: `Unreachable` after a moment when every broker is
known to be down, after `FIRST_ANSWER_S` when none answers at all, and after the timeout of a request later on.
"""

import re
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from typing import Any, TypeVar

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient, OffsetSpec

from muster.cli.groups.model import (
    MANY_GROUPS,
    Committed,
    Group,
    GroupListing,
    GroupType,
    LogOffsets,
    Member,
    Node,
    Refusal,
    State,
    TopicPartition,
)
from muster.errors import ClusterError, ClusterRefused, ClusterUnreachable, CodecError

FIRST_ANSWER_S = 8.0
"""How long the first answer may take; connecting to a machine that swallows packets would take minutes."""
DOWN_S = 2.0
"""How long all brokers may be down; a name with two addresses is down for a moment when the first does not answer."""
LOOK_S = 0.02
GROUPS_IN_FLIGHT = 500
GROUPS_A_CALL = 50
"""librdkafka searches a list for every group of a call: one call for a thousand takes twice the time of twenty."""

Answer = TypeVar("Answer")
Advance = Callable[[int], object]

STATES = {
    ck.ConsumerGroupState.PREPARING_REBALANCING: State.PREPARING_REBALANCE,
    ck.ConsumerGroupState.COMPLETING_REBALANCING: State.COMPLETING_REBALANCE,
    ck.ConsumerGroupState.STABLE: State.STABLE,
    ck.ConsumerGroupState.DEAD: State.DEAD,
    ck.ConsumerGroupState.EMPTY: State.EMPTY,
}
TYPES = {ck.ConsumerGroupType.CONSUMER: GroupType.CONSUMER, ck.ConsumerGroupType.CLASSIC: GroupType.CLASSIC}
NO_ANSWER = {"_TIMED_OUT", "_TIMED_OUT_QUEUE", "_TRANSPORT", "_ALL_BROKERS_DOWN", "REQUEST_TIMED_OUT"}
UNKNOWN_GROUP = "GROUP_ID_NOT_FOUND"
TOLD_TWICE = re.compile(r"^\S+/\w+: | \(after \d+ms in state \w+.*\)")
"""In what librdkafka says of a connection: whose it is, which is in the sentence again, and how far it came."""


NOT_TRUSTED = "certificate verify failed"


class Unreachable(ClusterUnreachable):
    """No broker answers; the text says which were asked, and what went wrong as far as that is known."""


class Cluster:
    """One cluster, and how to ask it. Every method blocks, and raises Unreachable rather than wait for ever."""

    def __init__(self, settings: Mapping[str, str], timeout_ms: int) -> None:
        self.settings = dict(settings)
        self._servers = settings.get("bootstrap.servers", "")
        self._timeout_s = timeout_ms / 1000
        self._started = time.monotonic()
        self._has_answered = False
        self._down_since: float | None = None
        self._trouble = ""
        self._is_refused = False
        self._admin = AdminClient(self.settings | {"error_cb": self._notice})

    def _notice(self, error: Any) -> None:
        if error.code() == ck.KafkaError._ALL_BROKERS_DOWN:
            self._down_since = self._down_since or time.monotonic()
        else:
            self._trouble = TOLD_TWICE.sub("", error.str()).strip().rstrip(":")
            self._is_refused = error.code() == ck.KafkaError._AUTHENTICATION or NOT_TRUSTED in self._trouble

    # --- waiting ---

    def _wait(self, future: "Future[Answer]") -> Answer:
        """The answer; KafkaException if it is an error, Unreachable if it does not come."""
        while True:
            try:
                answer = future.result(LOOK_S)
            except NotYet:
                self._admin.poll(0)  # hear of connections that fail
                self._give_up_if_unreachable()
                continue
            except ck.KafkaException as problem:
                if refusal_of(problem).code in NO_ANSWER:
                    self._admin.poll(0)
                    raise self._no_answer() from problem
                self._has_answered = True
                raise
            self._has_answered = True
            return answer

    def _give_up_if_unreachable(self) -> None:
        if self._has_answered:
            return  # the request's own timeout decides
        now = time.monotonic()
        if self._down_since is not None and now - self._down_since > DOWN_S:
            raise self._no_answer()
        if now - self._started > min(FIRST_ANSWER_S, self._timeout_s):
            raise self._no_answer()

    def _no_answer(self) -> ClusterError:
        waited = f"{time.monotonic() - self._started:.0f} s"
        why = f" ({self._trouble})" if self._trouble else ""
        if self._is_refused:
            return ClusterRefused(
                f"{self._servers} does not let us in{why}. Check login and certificates (--command-config FILE)."
            )
        if self._has_answered:
            return Unreachable(
                f"{self._servers} stopped answering{why}. Try again, or give it longer with --timeout MS."
            )
        return Unreachable(
            f"no answer from {self._servers} within {waited}{why}. Is a broker listening there, and does it want other "
            "security settings? (--command-config FILE)"
        )

    def _each(self, futures: "Iterable[tuple[str, Future[Answer]]]") -> Iterator[tuple[str, Answer | Refusal]]:
        """Answers in order; `futures` is drawn on only as far as GROUPS_IN_FLIGHT allows."""
        waiting: deque[tuple[str, Future[Answer]]] = deque()
        source = iter(futures)
        while True:
            for one in source:
                waiting.append(one)
                if len(waiting) >= GROUPS_IN_FLIGHT:
                    break
            if not waiting:
                return
            key, future = waiting.popleft()
            try:
                yield key, self._wait(future)
            except ck.KafkaException as problem:
                yield key, refusal_of(problem)

    # --- groups ---

    def listings(self) -> tuple[list[GroupListing], list[Refusal]]:
        """All consumer groups, and what brokers that could not be asked have said."""
        try:
            answer = self._wait(self._admin.list_consumer_groups(request_timeout=self._timeout_s))
        except ck.KafkaException as problem:
            return [], [refusal_of(problem)]
        refusals = [refusal_of(problem) for problem in answer.errors or ()]
        if not answer.valid and refusals and refusals[0].code in NO_ANSWER:
            raise self._no_answer()
        groups = [
            GroupListing(each.group_id, TYPES.get(each.type, GroupType.UNKNOWN), STATES.get(each.state, State.UNKNOWN))
            for each in answer.valid or ()
        ]
        return groups, refusals

    def describe(self, group_ids: Iterable[str]) -> dict[str, Group | Refusal]:
        """Every group with its members; one that does not exist is Dead. Three requests a group."""
        wanted = list(dict.fromkeys(group_ids))
        calls = (wanted[start : start + GROUPS_A_CALL] for start in range(0, len(wanted), GROUPS_A_CALL))
        futures = (one for call in calls for one in self._describe_call(call).items())
        answers = dict(self._each(futures))
        return {group_id: _described(group_id, answer) for group_id, answer in answers.items()}

    def _describe_call(self, group_ids: list[str]) -> "dict[str, Future[Any]]":
        return dict(self._admin.describe_consumer_groups(group_ids, request_timeout=self._timeout_s))

    def describe_many(self, group_ids: Iterable[str], types: Mapping[str, GroupType]) -> dict[str, Group | Refusal]:
        """The same in a few requests, without instance ids; `types` are those of the listings."""
        wanted = list(dict.fromkeys(group_ids))
        found: dict[str, Group | Refusal] = {}
        if len(wanted) >= MANY_GROUPS:
            found.update(from_list_groups(self._list_groups(), set(wanted), types))
        found.update(self.describe(group_id for group_id in wanted if group_id not in found))
        return found

    def _list_groups(self) -> list[Any]:
        """What librdkafka's oldest call says of all groups; nothing where it fails or is gone."""
        ask = getattr(self._admin, "list_groups", None)
        if ask is None:
            return []
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # what it recommends takes fifty times as long
                return list(ask(timeout=self._timeout_s))
        except ck.KafkaException:
            return []

    def committed(
        self, group_ids: Iterable[str], advance: Advance | None = None
    ) -> dict[str, dict[TopicPartition, Committed] | Refusal]:
        """The offsets in force for each group, and nothing for partitions that it never committed."""
        futures = ((group_id, self._offsets_call(group_id)) for group_id in dict.fromkeys(group_ids))
        answers: dict[str, dict[TopicPartition, Committed] | Refusal] = {}
        for group_id, answer in self._each(futures):
            answers[group_id] = answer if isinstance(answer, Refusal) else _committed(answer.topic_partitions)
            if advance is not None:
                advance(1)
        return answers

    def _offsets_call(self, group_id: str) -> "Future[Any]":
        request = [ck.ConsumerGroupTopicPartitions(group_id)]
        future: Future[Any] = self._admin.list_consumer_group_offsets(request, request_timeout=self._timeout_s)[
            group_id
        ]
        return future

    def delete(self, group_ids: Iterable[str]) -> dict[str, Refusal | None]:
        wanted = list(dict.fromkeys(group_ids))
        futures = self._admin.delete_consumer_groups(wanted, request_timeout=self._timeout_s)
        return dict(self._each(futures.items()))

    def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Refusal | None] | Refusal:
        """Delete what a group committed for these partitions. A Refusal is about all of them.

        confluent-kafka has no call for it, so the request goes over a connection of our own, with the same settings.
        """
        from muster.live.cluster import Cluster as LiveCluster
        from muster.live.settings import connection_settings

        given = self.settings | {"socket.timeout.ms": str(round(self._timeout_s * 1000))}
        with LiveCluster(connection_settings(given), patience_s=self._timeout_s) as cluster:
            answer = cluster.delete_offsets(group_id, partitions)
        if answer.error:
            return _refusal(ck.KafkaError(answer.error))
        return {
            TopicPartition(*where): _refusal(ck.KafkaError(error)) if error else None
            for where, error in answer.errors.items()
        }

    def alter(
        self, new_offsets: Mapping[str, Mapping[TopicPartition, int]]
    ) -> dict[str, dict[TopicPartition, Refusal]]:
        """Write offsets; returns only what was refused."""
        futures = ((group_id, self._alter_call(group_id, offsets)) for group_id, offsets in new_offsets.items())
        refused: dict[str, dict[TopicPartition, Refusal]] = {}
        for group_id, answer in self._each(futures):
            if isinstance(answer, Refusal):
                refused[group_id] = dict.fromkeys(new_offsets[group_id], answer)
                continue
            problems = {
                TopicPartition(one.topic, one.partition): _refusal(one.error)
                for one in answer.topic_partitions
                if one.error is not None
            }
            if problems:
                refused[group_id] = problems
        return refused

    def _alter_call(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> "Future[Any]":
        wanted = [ck.TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
        request = [ck.ConsumerGroupTopicPartitions(group_id, wanted)]
        future: Future[Any] = self._admin.alter_consumer_group_offsets(request, request_timeout=self._timeout_s)[
            group_id
        ]
        return future

    # --- partitions ---

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> LogOffsets:
        """The high watermark: behind the newest record that consumers may see, if they read uncommitted ones."""
        return self._log_offsets(partitions, OffsetSpec.latest())

    def start_offsets(self, partitions: Iterable[TopicPartition]) -> LogOffsets:
        return self._log_offsets(partitions, OffsetSpec.earliest())

    def offsets_at(self, partitions: Iterable[TopicPartition], timestamp_ms: int) -> LogOffsets:
        """The first record of that time or later; -1 where there is none."""
        return self._log_offsets(partitions, OffsetSpec.for_timestamp(timestamp_ms))

    def _log_offsets(self, partitions: Iterable[TopicPartition], spec: OffsetSpec) -> LogOffsets:
        wanted = {ck.TopicPartition(*partition): spec for partition in dict.fromkeys(partitions)}
        answers = LogOffsets({}, {})
        futures = self._admin.list_offsets(wanted, request_timeout=self._timeout_s) if wanted else {}
        for partition, future in futures.items():
            place = TopicPartition(partition.topic, partition.partition)
            try:
                answers.known[place] = self._wait(future).offset
            except ck.KafkaException as problem:
                answers.refused[place] = refusal_of(problem)
        return answers

    def partitions_of(self, topics: Iterable[str]) -> dict[str, list[TopicPartition] | Refusal]:
        wanted = list(dict.fromkeys(topics))
        if not wanted:
            return {}
        futures = self._admin.describe_topics(ck.TopicCollection(wanted), request_timeout=self._timeout_s)
        answers: dict[str, list[TopicPartition] | Refusal] = {}
        for topic, answer in self._each(futures.items()):
            if isinstance(answer, Refusal):
                answers[topic] = answer
            else:
                answers[topic] = [TopicPartition(topic, one.id) for one in answer.partitions]
        return answers


def refusal_of(problem: Any) -> Refusal:
    """What a KafkaException is about."""
    first = problem.args[0] if problem.args else None
    return _refusal(first) if isinstance(first, ck.KafkaError) else Refusal("UNKNOWN", str(problem))


def _refusal(error: Any) -> Refusal:
    return Refusal(error.name(), error.str().removeprefix("Broker: ").removeprefix("Local: "))


def _described(group_id: str, answer: Any) -> Group | Refusal:
    if isinstance(answer, Refusal):
        # Kafka 4 says so when asked in its newest version; before, and here, such a group is Dead.
        return Group(group_id, GroupType.UNKNOWN, State.DEAD) if answer.code == UNKNOWN_GROUP else answer
    node = answer.coordinator
    return Group(
        group_id,
        TYPES.get(answer.type, GroupType.UNKNOWN),
        STATES.get(answer.state, State.UNKNOWN),
        answer.partition_assignor or "",
        None if node is None else Node(node.id, node.host, node.port),
        tuple(_member(member) for member in answer.members),
    )


def _member(member: Any) -> Member:
    target = member.target_assignment
    return Member(
        member.member_id,
        member.client_id,
        member.host,
        member.group_instance_id or None,
        _partitions(member.assignment.topic_partitions),
        None if target is None else _partitions(target.topic_partitions),
    )


def _partitions(partitions: Iterable[Any]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(one.topic, one.partition) for one in partitions)


def _committed(partitions: Iterable[Any]) -> dict[TopicPartition, Committed]:
    return {
        TopicPartition(one.topic, one.partition): Committed(one.offset, one.leader_epoch)
        for one in partitions
        if one.error is None and one.offset >= 0
    }


# --- list_groups ---
# librdkafka's oldest call: one answer of each broker for all the groups it coordinates. It speaks DescribeGroups in
# version 0, which has no instance ids, hands on assignments as the bytes that members gave, and takes groups of the
# newer protocol for Dead. What is not certain is left out, and asked about properly.

CONSUMER_PROTOCOL = "consumer"
NAMED_STATES = {state.value: state for state in State if state not in (State.DEAD, State.UNKNOWN)}


def from_list_groups(described: Iterable[Any], wanted: set[str], types: Mapping[str, GroupType]) -> dict[str, Group]:
    """The groups among `wanted` that are described beyond doubt."""
    groups: dict[str, Group] = {}
    for one in described:
        if one.id not in wanted or one.error is not None or one.state not in NAMED_STATES:
            continue
        if one.protocol_type not in ("", CONSUMER_PROTOCOL):
            continue
        try:
            members = tuple(_listed_member(member) for member in one.members)
        except CodecError:  # librdkafka has a reader of its own; let it try
            continue
        node = Node(one.broker.id, one.broker.host, one.broker.port)
        kind = types.get(one.id, GroupType.UNKNOWN)
        groups[one.id] = Group(one.id, kind, NAMED_STATES[one.state], one.protocol, node, members)
    return groups


def _listed_member(member: Any) -> Member:
    from muster.codec.consumer_protocol import decode_assignment  # the codec takes a while, and many groups are empty

    assignment = decode_assignment(member.assignment or b"")
    partitions = () if assignment is None else tuple(
        TopicPartition(topic, partition)
        for topic, numbers in assignment.assigned_partitions
        for partition in numbers
    )  # fmt: skip
    return Member(member.id, member.client_id, member.client_host, None, partitions)
