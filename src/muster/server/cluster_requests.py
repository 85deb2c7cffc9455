"""Requests about the cluster: topics, their settings, where logs end, records.

Most are answered here and now, from what this node knows (`cluster/`; its modules are loaded when one is first asked
for). Those that change topics wait for their turn (`TopicChanges`), and a fetch waits for records (`WaitingFetches`).
Requests that muster does not serve yet (Produce, ConsumerGroupHeartbeat) are advertised and refused, because clients
that do not find them among the APIs wait without a word; one line of the log says what to do.
"""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from muster.codec.error_codes import ErrorCode
from muster.codec.primitives import Buffer
from muster.protocol.apis import ApiKey
from muster.protocol.errors import NotServed
from muster.protocol.messages import decode_request, encode_response
from muster.server.cluster.cluster import Cluster, ClusterApi
from muster.server.cluster.topic_storage import TopicChanges
from muster.server.cluster.topics import TopicChange
from muster.server.connection import Connection, PendingReply
from muster.server.dispatch import Handler, Request
from muster.server.server_log import RateLimitedLog
from muster.server.timers import Timers, now

if TYPE_CHECKING:
    from muster.server.cluster.fetch import FetchAnswer, ParkedFetch

CLUSTER_MODULES = {
    ApiKey.METADATA: "metadata",
    ApiKey.DESCRIBE_CLUSTER: "metadata",
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: "metadata",
    ApiKey.CREATE_TOPICS: "create_topics",
    ApiKey.CREATE_PARTITIONS: "create_topics",
    ApiKey.DELETE_TOPICS: "delete_topics",
    ApiKey.DESCRIBE_CONFIGS: "describe_configs",
    ApiKey.LIST_OFFSETS: "list_offsets",
    ApiKey.OFFSET_FOR_LEADER_EPOCH: "list_offsets",
}
"""In `muster.server.cluster`; each module has a table `APIS` of those it knows."""
MOST_REMEMBERED = 1_000
LONGEST_ID = 200


class ClusterRequests:
    """`handlers` is the table of them, by API key."""

    def __init__(
        self, cluster: Cluster, changes: TopicChanges, fetches: "WaitingFetches", remarks: RateLimitedLog
    ) -> None:
        self._cluster = cluster
        self._changes = changes
        self._fetches = fetches
        self._unserved = UnservedClients(remarks)
        self.handlers: dict[int, Handler] = {
            ApiKey.FETCH: self._fetch,
            ApiKey.PRODUCE: self._produce,
            ApiKey.CONSUMER_GROUP_HEARTBEAT: self._consumer_group_heartbeat,
            **{api_key: partial(self._about_cluster, api_key) for api_key in CLUSTER_MODULES},
        }

    def _about_cluster(self, api_key: ApiKey, request: Request, data: bytes, start: int, end: int) -> PendingReply:
        api: ClusterApi = import_module(f"muster.server.cluster.{CLUSTER_MODULES[api_key]}").APIS[api_key]
        asked = api.decode(request.version, data, start, end)
        reply = request.reply(api_key, api.encode)
        if api.plan is None:
            assert api.answer is not None
            reply.answer(api.answer(asked, self._cluster))
            return reply
        plan = api.plan(asked, self._cluster)
        # Metadata tells what there is now; the others are about what there is behind the changes before them.
        waits = self._changes.is_busy and api_key is not ApiKey.METADATA
        if plan.changes or waits:
            self._changes.submit(partial(api.plan, asked, self._cluster), reply, end - start)
        else:
            reply.answer(plan.answer([]))
        return reply

    def _fetch(self, request: Request, data: bytes, start: int, end: int) -> PendingReply:
        fetch = import_module("muster.server.cluster.fetch")
        asked = fetch.decode(request.version, data, start, end)
        reply = request.reply(ApiKey.FETCH, fetch.encode)
        answer = fetch.handle(asked, self._cluster, now().monotonic_ms)
        if isinstance(answer, fetch.ParkedFetch):
            self._fetches.park(answer, reply)
        else:
            reply.answer(answer)
        return reply

    # Not served yet.

    def _produce(self, request: Request, data: bytes, start: int, end: int) -> PendingReply:
        produce = import_module("muster.server.cluster_requests")
        asked = produce.decode_produce(request.version, data, start, end)
        self._unserved.producer(request.client_id, request.connection.peer)
        if asked.acks == 0:
            raise NotServed("Produce that wants no answer, and muster keeps no records")  # as Kafka does on an error
        reply = request.reply(ApiKey.PRODUCE, produce.encode_produce)
        reply.answer(asked)
        return reply

    def _consumer_group_heartbeat(self, request: Request, data: bytes, start: int, end: int) -> PendingReply:
        newer = import_module("muster.server.cluster_requests")
        group_id = newer.decode_consumer_group_heartbeat(request.version, data, start, end)
        self._unserved.newer_consumer(request.client_id, request.connection.peer, group_id)
        reply = request.reply(ApiKey.CONSUMER_GROUP_HEARTBEAT, newer.encode_consumer_group_heartbeat)
        reply.answer(None)
        return reply


class WaitingFetches:
    """Fetches that wait for records, until their time is up or something happens to one of their topics.

    At most `max_requests` of `max_partitions` in all wait at a time; one more is answered at once. A connection has one
    at most: the requests behind it wait for it.
    """

    def __init__(
        self,
        make_timers: Callable[[Callable[[Any], None]], Timers],
        complete: Callable[["ParkedFetch"], "FetchAnswer"],
        max_requests: int,
        max_partitions: int,
    ) -> None:
        self._timers = make_timers(self.due)
        self._complete = complete
        self._max_requests = max_requests
        self._max_partitions = max_partitions
        self._waiting: dict[PendingReply, ParkedFetch] = {}
        self._by_connection: dict[Connection, PendingReply] = {}
        self._by_topic: dict[str, dict[PendingReply, None]] = {}
        self._partitions = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def park(self, parked: "ParkedFetch", reply: PendingReply) -> None:
        is_full = len(self._waiting) >= self._max_requests
        if is_full or self._partitions + parked.partitions > self._max_partitions:
            self._answer(reply, parked)
            return
        self._waiting[reply] = parked
        self._by_connection[reply.connection] = reply
        for topic in parked.topics:
            self._by_topic.setdefault(topic, {})[reply] = None
        self._partitions += parked.partitions
        self._timers.set(reply, parked.deadline_ms)

    def due(self, reply: PendingReply) -> None:
        """Time is up: answer with what there is."""
        parked = self._taken_out(reply)
        if parked is not None:
            self._answer(reply, parked)

    def _answer(self, reply: PendingReply, parked: "ParkedFetch") -> None:
        try:
            answer = self._complete(parked)
        except Exception as error:
            reply.fail(error)
        else:
            reply.answer(answer)

    def _taken_out(self, reply: PendingReply) -> "ParkedFetch | None":
        parked = self._waiting.pop(reply, None)
        if parked is None:
            return None
        self._partitions -= parked.partitions
        self._by_connection.pop(reply.connection, None)
        for topic in parked.topics:
            of_topic = self._by_topic[topic]
            del of_topic[reply]
            if not of_topic:
                del self._by_topic[topic]
        return parked

    def topic_changed(self, change: TopicChange) -> None:
        for reply in list(self._by_topic.get(change.topic.name, ())):
            self._timers.cancel(reply)
            self.due(reply)

    def forget(self, connection: Connection) -> None:
        """The client is gone."""
        reply = self._by_connection.get(connection)
        if reply is not None:
            self._timers.cancel(reply)
            self._taken_out(reply)

    def finish(self) -> None:
        """Answer all of them now."""
        for reply in list(self._waiting):
            self._timers.cancel(reply)
            self.due(reply)


class UnservedClients:
    """Clients that want what muster does not serve yet: one line for each client id, with what to do about it.

    Of a great many ids the older ones are forgotten, and told again.
    """

    def __init__(self, remarks: RateLimitedLog) -> None:
        self._remarks = remarks
        self._told: dict[tuple[str, str], None] = {}

    def producer(self, client_id: str, peer: str) -> None:
        self._say(
            "producer", client_id, peer,
            "is a producer, and muster keeps no records yet: Produce is refused with POLICY_VIOLATION(44). Produce to "
            "a Kafka cluster instead",
        )  # fmt: skip

    def newer_consumer(self, client_id: str, peer: str, group_id: str) -> None:
        self._say(
            "consumer", client_id, peer,
            f"joins group {group_id[:LONGEST_ID]!r} with group.protocol=consumer, and muster serves classic groups: it "
            "is refused with UNSUPPORTED_VERSION(35). Set group.protocol=classic",
        )  # fmt: skip

    def _say(self, kind: str, client_id: str, peer: str, what: str) -> None:
        shown_id = client_id[:LONGEST_ID]
        if (kind, shown_id) in self._told:
            return
        if len(self._told) >= MOST_REMEMBERED:
            del self._told[next(iter(self._told))]
        self._told[kind, shown_id] = None
        self._remarks.say(f"client {shown_id!r} at {peer} {what}.", peer=peer, client_id=shown_id)


# Produce, versions 3 to 13: every partition is refused.
#
# A client that does not find Produce among the APIs does not say so: librdkafka waits for `message.timeout.ms`, five
# minutes, and asks for the versions again and again.

NO_RECORDS = "muster keeps no records yet: it serves consumer groups and their offsets."
NO_OFFSET = -1


class Produce(NamedTuple):
    acks: int
    topics: tuple[tuple[str, bytes, tuple[int, ...]], ...]
    """Name and id, of which a version has one, and partitions."""


def decode_produce(version: int, data: Buffer, position: int, end: int) -> Produce:
    body = decode_request(ApiKey.PRODUCE, version, data, position, end)
    topics = [
        (topic["name"], topic["topicId"], tuple([partition["index"] for partition in topic["partitionData"]]))
        for topic in body["topicData"]
    ]
    return Produce(body["acks"], tuple(topics))


def encode_produce(version: int, correlation_id: int, asked: Produce) -> bytes:
    """The whole frame: a refusal for each partition."""
    refused: dict[str, Any] = {
        "errorCode": ErrorCode.POLICY_VIOLATION,
        "baseOffset": NO_OFFSET,
        "errorMessage": NO_RECORDS,
    }
    responses = [
        {"name": name, "topicId": topic_id, "partitionResponses": [{"index": index, **refused} for index in partitions]}
        for name, topic_id, partitions in asked.topics
    ]
    return encode_response(ApiKey.PRODUCE, version, correlation_id, {"responses": responses})


# ConsumerGroupHeartbeat, versions 0 and 1: how a member of the newer group protocol (KIP-848) joins and stays.
#
# muster answers as a Kafka broker does whose newer protocol is switched off: with UNSUPPORTED_VERSION. Where the API is
# missing, librdkafka waits for ever without a word; at this response every client stops, with an error of its own.

CLASSIC_ONLY = "muster serves classic groups only: set group.protocol=classic."


def decode_consumer_group_heartbeat(version: int, data: Buffer, position: int, end: int) -> str:
    """The group, for the log."""
    group_id: str = decode_request(ApiKey.CONSUMER_GROUP_HEARTBEAT, version, data, position, end)["groupId"]
    return group_id


def encode_consumer_group_heartbeat(version: int, correlation_id: int, answer: None) -> bytes:
    """The whole frame: always the same refusal."""
    refused = {"errorCode": ErrorCode.UNSUPPORTED_VERSION, "errorMessage": CLASSIC_ONLY}
    return encode_response(ApiKey.CONSUMER_GROUP_HEARTBEAT, version, correlation_id, refused)
