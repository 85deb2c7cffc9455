"""A cluster as one thing to ask: its brokers and topics, where logs begin and end, how far an epoch went, records.

Questions about partitions go to their leaders, those about a group to its coordinator. Leaders change and brokers
restart, so an error that newer metadata or a moment may cure is asked about again, for a bounded time. What is still
missing then comes back as a problem of its partition: the other partitions keep their answers.
"""

import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Generic, NamedTuple, Protocol, TypeVar

from muster.codec.error_codes import ErrorCode
from muster.codec.layouts import StructData
from muster.errors import ClusterError, ClusterRefused, ClusterUnreachable
from muster.live import requests
from muster.live.connection import Connection
from muster.live.requests import (
    COORDINATOR_MOVES,
    EARLIEST,
    LAST_BY_NAME,
    LATEST,
    NO_EPOCH,
    NO_TOPIC_ID,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    RETRIABLE,
    Broker,
    DeletedOffsets,
    EpochEnd,
    Fetched,
    FetchFrom,
    ListedGroup,
    ListedOffset,
    Metadata,
    NoSuchTopic,
    Topic,
    TopicPartition,
    error_name,
    nothing_handed_out,
    partition_problem,
    shown,
    topic_problem,
)
from muster.live.settings import Address, ClientSettings, client_settings
from muster.protocol.apis import ApiKey

FIRST_CONTACT_S = 8.0
"""For all bootstrap servers together, so that a wrong address is known within ten seconds."""
PATIENCE_S = 30.0
GLANCE_S = 1.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0
ROOM_AROUND_RECORDS = 64 * 1024
MOST_PARTITIONS = 2_000
"""In one request."""
_UNKNOWN_EPOCH = EpochEnd(ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)


class HasError(Protocol):
    @property
    def error(self) -> int: ...


Wanted = TypeVar("Wanted")
Answer = TypeVar("Answer", bound=HasError)
Ask = Callable[[Connection, Mapping[TopicPartition, Wanted]], Mapping[TopicPartition, Answer]]


class Asked(NamedTuple, Generic[Answer]):
    """What the leaders answered, and why the rest is missing. An answer may be an error that no patience cures."""

    answers: dict[TopicPartition, Answer]
    problems: dict[TopicPartition, ClusterError]


class LogEnds(NamedTuple):
    """Where a log begins and ends; None throughout where that could not be found out, and `problem` says why."""

    log_start_offset: int | None
    last_stable_offset: int | None
    high_watermark: int | None
    leader_epoch: int
    problem: ClusterError | None = None


class Patience:
    """Pauses that grow, until the time is up."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self.renew()

    def renew(self) -> None:
        """Something worked: begin again."""
        self._deadline = time.monotonic() + self._patience_s
        self._pause_s = FIRST_PAUSE_S

    def wait(self) -> bool:
        """Sleep a little, if there is time left for it."""
        if time.monotonic() + self._pause_s > self._deadline:
            return False
        time.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        return True


class Cluster:
    """Connections to the brokers of one cluster, opened when first needed. Not for several threads at a time.

    The configuration is a client's, by librdkafka's or Java's names. Nothing is connected before the first question;
    that one fails within ten seconds if no broker answers.
    """

    def __init__(self, config: Mapping[str, str] | ClientSettings, patience_s: float | None = None) -> None:
        self._settings = config if isinstance(config, ClientSettings) else client_settings(config)
        self._patience_s = PATIENCE_S if patience_s is None else patience_s
        self._connections: dict[int, Connection] = {}
        self._entry: Connection | None = None
        self._known: Metadata | None = None
        self._topics: dict[str, Topic] = {}
        self._stale = True

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        if self._entry is not None:
            self._entry.close()
        self._connections.clear()
        self._entry = None

    # --- metadata ---

    def metadata(self, topics: Iterable[str] | None = None, patience_s: float | None = None) -> Metadata:
        """Brokers and topics as they are now: these topics, or all that we may see.

        A topic that does not exist, or that we may not see, is there with its error.
        """
        names = None if topics is None else sorted(set(topics))
        patience = Patience(self._patience_s if patience_s is None else patience_s)
        while True:
            try:
                found = self._asked_metadata(names)
            except ClusterUnreachable:
                if self._known is None or not patience.wait():  # the first contact fails at once
                    raise
                continue
            if found.error not in RETRIABLE or not patience.wait():
                break
        if found.error:
            raise ClusterError(f"the cluster answers Metadata with {error_name(found.error)}.")
        self._known = found
        self._topics |= found.topics
        return found

    def _asked_metadata(self, names: list[str] | None) -> Metadata:
        started = time.monotonic()
        connection = self._any_connection()
        first_contact_s = max(1.0, FIRST_CONTACT_S - (time.monotonic() - started))
        return connection.ask(
            ApiKey.METADATA,
            requests.metadata_request(names),
            requests.read_metadata,
            timeout_s=None if self._known else first_contact_s,
        )

    def topic_names(self) -> dict[str, str]:
        """Topic id, as Kafka prints it, to name, of all topics we may see."""
        topics = self.metadata().topics.values()
        return {printed_id(topic.topic_id): topic.name for topic in topics if topic.topic_id != NO_TOPIC_ID}

    def topic(self, name: str) -> Topic:
        """One topic; ClusterRefused or ClusterError with a next step where it cannot be read."""
        topic = self.metadata([name]).topics.get(name)
        if topic is None or (topic.error and topic.error not in RETRIABLE - {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}):
            raise topic_problem(name, topic.error if topic else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic

    @property
    def cluster_id(self) -> str | None:
        """As last heard."""
        return self._known.cluster_id if self._known else None

    def topic_id(self, name: str) -> bytes:
        """As last heard; zeros where the cluster has none."""
        topic = self._topics.get(name)
        return topic.topic_id if topic else NO_TOPIC_ID

    @property
    def largest_fetch_bytes(self) -> int:
        """What may be asked for at once, so that the answer around it is still accepted."""
        return self._settings.largest_answer_bytes - ROOM_AROUND_RECORDS

    # --- connections ---

    def _any_connection(self) -> Connection:
        for connection in (self._entry, *self._connections.values()):
            if connection is not None and connection.is_usable:
                return connection
        if self._entry is not None:
            self._entry.close()
        brokers = self._known.brokers.values() if self._known else ()
        known = [Address(broker.host, broker.port) for broker in brokers if 0 < broker.port < 1 << 16]
        self._entry = self._first_of([*self._settings.bootstrap, *known[:MOST_PARTITIONS]])
        return self._entry

    def _first_of(self, addresses: list[Address]) -> Connection:
        deadline = time.monotonic() + FIRST_CONTACT_S
        problems: list[str] = []
        for number, address in enumerate(addresses):
            left = deadline - time.monotonic()
            if left <= 0:
                break
            try:
                return Connection(address, self._settings, max(left / (len(addresses) - number), min(left, 1.0)))
            except ClusterUnreachable as problem:
                problems.append(str(problem))
        if len(addresses) == 1:
            raise ClusterUnreachable(problems[0])
        raise ClusterUnreachable(f"none of {len(addresses)} brokers can be reached. {' '.join(problems[:3])}")

    def _leader(self, node_id: int) -> Connection:
        broker = self._known.brokers.get(node_id) if self._known else None
        if broker is None:
            raise ClusterUnreachable(f"broker {node_id} leads partitions, and is not among the live ones.")
        return self._connection_to(broker)

    def _connection_to(self, broker: Broker) -> Connection:
        node_id, address = broker.node_id, Address(broker.host, broker.port)
        connection = self._connections.pop(node_id, None)
        if connection is not None and connection.is_usable and connection.address == address:
            self._connections[node_id] = connection
            return connection
        if connection is not None:
            connection.close()
        if not 0 < broker.port < 1 << 16:
            raise ClusterUnreachable(f"broker {node_id} gives {address} as its address, which has no such port.")
        try:
            connection = Connection(address, self._settings)
        except ClusterUnreachable as problem:
            raise ClusterUnreachable(
                f"broker {node_id} gives {address} as its address (advertised.listeners), and that does not work from "
                f"here: {problem}"
            ) from None
        self._connections[node_id] = connection
        return connection

    # --- asking leaders ---

    def at_leaders(
        self,
        wanted: Mapping[TopicPartition, Wanted],
        ask: Ask[Wanted, Answer],
        patience_s: float | None = None,
    ) -> Asked[Answer]:
        """Ask the leader of each partition, all of one leader together, and again where that may help."""
        answers: dict[TopicPartition, Answer] = {}
        problems: dict[TopicPartition, ClusterError] = {}
        left = dict(wanted)
        patience = Patience(self._patience_s if patience_s is None else patience_s)
        while left:
            for node_id, share in self._shares(left, problems, patience_s):
                try:
                    found = ask(self._leader(node_id), share)
                except ClusterUnreachable as problem:
                    problems |= dict.fromkeys(share, problem)
                    continue
                for where in share:
                    answer = found.get(where)
                    if answer is None:
                        problems[where] = ClusterError(f"broker {node_id} left {shown(where)} out of its answer.")
                    elif answer.error in RETRIABLE:
                        problems[where] = partition_problem(where, answer.error)
                    else:
                        answers[where] = answer
                        problems.pop(where, None)
            left = {
                where: what for where, what in left.items()
                if where not in answers and not isinstance(problems.get(where), ClusterRefused | NoSuchTopic)
            }  # fmt: skip
            if left:
                self._stale = True
                if not patience.wait():
                    break
        return Asked(answers, problems)

    def _shares(
        self,
        wanted: Mapping[TopicPartition, Wanted],
        problems: dict[TopicPartition, ClusterError],
        patience_s: float | None,
    ) -> Iterator[tuple[int, dict[TopicPartition, Wanted]]]:
        """Leader by leader, in requests of a bounded size. What has no leader gets its problem noted."""
        self._refresh({topic for topic, _ in wanted}, patience_s)
        shares: dict[int, dict[TopicPartition, Wanted]] = {}
        for (name, number), what in wanted.items():
            where = (name, number)
            topic = self._topics.get(name)
            if topic is None or topic.error:
                problems[where] = topic_problem(name, topic.error if topic else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            elif number not in topic.partitions:
                problems[where] = NoSuchTopic(f"{name} has no partition {number}; it has {len(topic.partitions)}.")
            elif topic.partitions[number].leader_id < 0:
                problems[where] = ClusterUnreachable(f"{shown(where)} has no leader at the moment.")
            else:
                shares.setdefault(topic.partitions[number].leader_id, {})[where] = what
        for node_id, share in shares.items():
            items = iter(share.items())
            while part := dict(islice(items, MOST_PARTITIONS)):
                yield node_id, part

    def _refresh(self, topics: set[str], patience_s: float | None) -> None:
        known = {name for name, topic in self._topics.items() if not topic.error}
        missing = topics if self._stale else topics - known
        if missing:
            for topic in missing:
                self._topics.pop(topic, None)
            self.metadata(missing, patience_s)
            self._stale = False

    # --- offsets ---

    def log_ends(
        self, partitions: Iterable[TopicPartition] | None = None, patience_s: float | None = None
    ) -> dict[TopicPartition, LogEnds]:
        """Start, last stable offset and high watermark of these partitions, or of all of all topics we may see.

        The high watermark is asked last, so it is never below the last stable offset.
        """
        if partitions is None:
            topics = self.metadata().topics
            partitions = [(name, number) for name, topic in topics.items() for number in topic.partitions]
            self._stale = False
        wanted = dict.fromkeys(partitions, None)
        starts = self.log_starts(wanted, patience_s)
        stable = self.last_stable_offsets(starts.answers, patience_s)
        high = self.high_watermarks(stable.answers, patience_s)
        problems = starts.problems | stable.problems | high.problems
        return {
            where: LogEnds(
                starts.answers[where].offset,
                stable.answers[where].offset,
                high.answers[where].offset,
                high.answers[where].leader_epoch,
            )
            if where in high.answers
            else LogEnds(None, None, None, -1, problems.get(where))
            for where in wanted
        }

    def log_starts(self, partitions: Iterable[TopicPartition], patience_s: float | None = None) -> Asked[ListedOffset]:
        return self._listed(partitions, EARLIEST, READ_UNCOMMITTED, patience_s)

    def last_stable_offsets(
        self, partitions: Iterable[TopicPartition], patience_s: float | None = None
    ) -> Asked[ListedOffset]:
        return self._listed(partitions, LATEST, READ_COMMITTED, patience_s)

    def high_watermarks(
        self, partitions: Iterable[TopicPartition], patience_s: float | None = None
    ) -> Asked[ListedOffset]:
        return self._listed(partitions, LATEST, READ_UNCOMMITTED, patience_s)

    def _listed(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int, isolation_level: int, patience_s: float | None
    ) -> Asked[ListedOffset]:
        def ask(connection: Connection, share: Mapping[TopicPartition, None]) -> dict[TopicPartition, ListedOffset]:
            body = requests.list_offsets_request(share, timestamp_ms, isolation_level)
            return connection.ask(ApiKey.LIST_OFFSETS, body, requests.read_list_offsets)

        return without_errors(self.at_leaders(dict.fromkeys(partitions, None), ask, patience_s))

    def epoch_ends(
        self, wanted: Mapping[TopicPartition, int], patience_s: float | None = None
    ) -> dict[TopicPartition, EpochEnd | ClusterError]:
        """Where the log of each partition left a leader epoch: the largest epoch up to it, and where that one ended.

        A log that was read further than that under this epoch has been truncated since, if its leader is a newer one.
        Leaders are asked under the epoch that metadata has for them, so one that has been replaced does not answer; one
        that knows of no epoch so new is asked again, and is a problem if it stays so: it says nothing about truncation.
        """

        def ask(connection: Connection, share: Mapping[TopicPartition, int]) -> dict[TopicPartition, EpochEnd]:
            body = requests.epoch_ends_request(share, {where: self.leader_epoch(where) for where in share})
            ends = connection.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, body, requests.read_epoch_ends)
            return {where: end if end.is_defined else _UNKNOWN_EPOCH for where, end in ends.items()}

        asked = without_errors(self.at_leaders(wanted, ask, patience_s))
        return {where: asked.answers[where] if where in asked.answers else asked.problems[where] for where in wanted}

    # --- records ---

    def fetch(
        self, wanted: Mapping[TopicPartition, FetchFrom], max_bytes: int, patience_s: float | None = None
    ) -> Asked[Fetched]:
        """What is in the log at these offsets. An answer may be OFFSET_OUT_OF_RANGE or another error that stays."""

        def ask(connection: Connection, share: Mapping[TopicPartition, FetchFrom]) -> dict[TopicPartition, Fetched]:
            ids = {topic: self.topic_id(topic) for topic, _ in share}
            error, partitions = connection.ask(
                ApiKey.FETCH,
                requests.fetch_request(share, ids, max_bytes),
                lambda response: requests.read_fetch(response, ids),
                version=connection.version_of(ApiKey.FETCH, LAST_BY_NAME if NO_TOPIC_ID in ids.values() else None),
            )
            if error:
                raise ClusterError(f"{connection.address} answers Fetch with {error_name(error)}.")
            return partitions

        return self.at_leaders(wanted, ask, patience_s)

    def check_hands_out(self, topic: str) -> None:
        """`ClusterError` where the partitions of a topic have records, by their ends, and Fetch brings none of them.

        A glance, without patience: a partition that does not answer is left for the real question.
        """
        partitions = [(topic, number) for number in self.topic(topic).partitions]
        filled: dict[TopicPartition, FetchFrom] = {}
        for where, ends in self.log_ends(partitions, GLANCE_S).items():
            start, end = ends.log_start_offset, ends.high_watermark
            if start is not None and end is not None and start < end:
                filled[where] = FetchFrom(start, 1)  # a leader sends the first batch it has, however large
        found = self.fetch(filled, 1, GLANCE_S).answers
        if found and not any(one.error or one.end > one.start for one in found.values()):
            where, one = next(iter(found.items()))
            raise nothing_handed_out(where, filled[where].offset, one.high_watermark)

    def leader_epoch(self, where: TopicPartition) -> int:
        """As last heard; -1 where that is not known."""
        topic = self._topics.get(where[0])
        known = topic.partitions.get(where[1]) if topic else None
        return known.leader_epoch if known else NO_EPOCH

    def broker_setting(self, name: str) -> str | None:
        """A setting of one of the brokers; None where it does not tell."""
        node_id = min(self.metadata([]).brokers)
        request = requests.broker_settings_request(node_id, [name])
        return self._leader(node_id).ask(ApiKey.DESCRIBE_CONFIGS, request, requests.read_settings).get(name)

    # --- groups ---

    def list_groups(
        self, patience_s: float | None = None
    ) -> tuple[dict[int, dict[str, ListedGroup]], list[ClusterError]]:
        """The groups of each broker that coordinates some, asked once; and why other brokers did not tell."""
        found: dict[int, dict[str, ListedGroup]] = {}
        problems: list[ClusterError] = []
        for node_id in self.metadata([], patience_s).brokers:
            try:
                error, groups = self._leader(node_id).ask(
                    ApiKey.LIST_GROUPS, requests.list_groups_request(), requests.read_list_groups
                )
            except ClusterError as problem:
                problems.append(problem)
                continue
            if error:
                problems.append(ClusterError(f"broker {node_id} answers ListGroups with {error_name(error)}."))
            else:
                found[node_id] = groups
        return found, problems

    def delete_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> DeletedOffsets:
        """Delete what a group committed for these partitions; its coordinator is asked again where that may help."""
        wanted = list(partitions)
        body = requests.offset_delete_request(group_id, wanted)
        patience = Patience(self._patience_s)
        while True:
            try:
                found = self._delete_at_coordinator(group_id, body)
            except ClusterUnreachable:
                if self._entry is None or not patience.wait():  # the first contact fails at once
                    raise
                continue
            if found.error in COORDINATOR_MOVES and patience.wait():
                continue
            left_out = [] if found.error else [where for where in wanted if where not in found.errors]
            if left_out:
                topic, partition = left_out[0]
                raise ClusterError(
                    f"the coordinator of group {group_id} leaves {topic}-{partition} out of its answer: "
                    "whether its offset is deleted is not known."
                )
            return found

    def _delete_at_coordinator(self, group_id: str, body: StructData) -> DeletedOffsets:
        coordinator = self._any_connection().ask(
            ApiKey.FIND_COORDINATOR,
            requests.find_coordinator_request(group_id),
            lambda response: requests.read_coordinator(response, group_id),
        )
        if coordinator.error:
            return DeletedOffsets(coordinator.error, {})
        connection = self._connection_to(coordinator.broker)
        return connection.ask(ApiKey.OFFSET_DELETE, body, requests.read_offset_delete)


def without_errors(asked: Asked[Answer]) -> Asked[Answer]:
    """Answers that are errors moved to the problems."""
    failed = {where: partition_problem(where, one.error) for where, one in asked.answers.items() if one.error}
    whole = {where: one for where, one in asked.answers.items() if not one.error}
    return Asked(whole, asked.problems | failed)


def printed_id(topic_id: bytes) -> str:
    """As Kafka prints it: base64 in the URL alphabet, without padding."""
    return urlsafe_b64encode(topic_id).rstrip(b"=").decode()
