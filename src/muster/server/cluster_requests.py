"""Requests about the cluster: topics, their settings, where logs end, records.

Most are answered here and now, from what this node knows (`cluster/`; its modules are loaded when one is first asked
for). Those that change topics wait for their turn (`TopicChanges`), and a fetch waits for records (`WaitingFetches`).
Produce and Fetch are in `records/`. ConsumerGroupHeartbeat is advertised and refused, because clients that do not find
it among the APIs wait without a word; one line of the log says what to do.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any

from muster.codec.error_codes import ErrorCode
from muster.codec.primitives import Buffer
from muster.protocol.apis import ApiKey
from muster.protocol.errors import BadBody
from muster.protocol.messages import decode_request, encode_response
from muster.segments.checkpoints import TopicPartition
from muster.server.cluster.cluster import Cluster, ClusterApi
from muster.server.cluster.topic_storage import TopicChanges
from muster.server.cluster.topics import Outcome, Plan
from muster.server.connection import Connection, PendingReply
from muster.server.connections import NotNow
from muster.server.dispatch import Handler, Request
from muster.server.long_requests import LONG_REQUEST_BYTES, MANY_PARTITIONS, LongRequests
from muster.server.records import (
    alter_replica_log_dirs,
    delete_records,
    describe_log_dirs,
    describe_producers,
    fetch,
    fetch_slices,
    produce,
    producer_ids,
)
from muster.server.records.data_partitions import DataPartitions
from muster.server.records.fetch import ParkedFetch
from muster.server.records.fetch_sessions import FetchSessions, Visit
from muster.server.records.producer_ids import ProducerIds
from muster.server.records.waiting_fetches import AsSent, WaitingFetches
from muster.server.server_log import RateLimitedLog
from muster.server.slices import Slices, finished, in_slices
from muster.server.timers import Clock
from muster.server.transactions.verification import TransactionalBatches

CLUSTER_MODULES = {
    ApiKey.METADATA: "metadata",
    ApiKey.DESCRIBE_CLUSTER: "metadata",
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: "metadata",
    ApiKey.CREATE_TOPICS: "create_topics",
    ApiKey.CREATE_PARTITIONS: "create_topics",
    ApiKey.DELETE_TOPICS: "delete_topics",
    ApiKey.DESCRIBE_CONFIGS: "describe_configs",
    ApiKey.ALTER_CONFIGS: "alter_configs",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "alter_configs",
    ApiKey.LIST_OFFSETS: "list_offsets",
    ApiKey.OFFSET_FOR_LEADER_EPOCH: "list_offsets",
    ApiKey.DESCRIBE_ACLS: "one_node",
    ApiKey.CREATE_ACLS: "one_node",
    ApiKey.DELETE_ACLS: "one_node",
    ApiKey.ELECT_LEADERS: "one_node",
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: "one_node",
    ApiKey.LIST_PARTITION_REASSIGNMENTS: "one_node",
    ApiKey.DESCRIBE_QUORUM: "one_node",
    ApiKey.LIST_CONFIG_RESOURCES: "one_node",
}
"""In `muster.server.cluster`; each module has a table `APIS` of those it knows."""
MOST_REMEMBERED = 1_000
LONGEST_ID = 200


class ClusterRequests:
    """`handlers` is the table of them, by API key."""

    def __init__(
        self,
        cluster: Cluster,
        changes: TopicChanges,
        records: DataPartitions,
        producer_ids: ProducerIds,
        fetches: WaitingFetches,
        sessions: FetchSessions,
        remarks: RateLimitedLog,
        clock: Clock,
        long_requests: LongRequests,
        batches: TransactionalBatches,
    ) -> None:
        self._cluster = cluster
        self._batches = batches
        self._changes = changes
        self._records = records
        self._producer_ids = producer_ids
        self._fetches = fetches
        self._sessions = sessions
        self._now = clock.now
        self._long = long_requests
        self._unserved = UnservedClients(remarks)
        self.handlers: dict[int, Handler] = {
            ApiKey.FETCH: self._fetch,
            ApiKey.PRODUCE: self._produce,
            ApiKey.DELETE_RECORDS: self._delete_records,
            ApiKey.DESCRIBE_PRODUCERS: self._describe_producers,
            ApiKey.DESCRIBE_LOG_DIRS: self._describe_log_dirs,
            ApiKey.ALTER_REPLICA_LOG_DIRS: self._alter_replica_log_dirs,
            ApiKey.CONSUMER_GROUP_HEARTBEAT: self._consumer_group_heartbeat,
            **{api_key: partial(self._about_cluster, api_key) for api_key in CLUSTER_MODULES},
        }

    def _about_cluster(self, api_key: ApiKey, request: Request, data: bytes, start: int, end: int) -> PendingReply:
        api: ClusterApi = import_module(f"muster.server.cluster.{CLUSTER_MODULES[api_key]}").APIS[api_key]
        decode = partial(api.decode, request.version, data, start, end)
        if end - start > LONG_REQUEST_BYTES:
            self._long.check_room()
            reply = request.reply(api_key, api.encode)
            self._long.begin(reply, end - start, self._read_later(api_key, request, decode, reply, end - start))
            return reply
        asked = decode()
        reply = request.reply(api_key, api.encode)
        if api.answer is not None:
            self._answer_cluster(api, reply, api.answer(asked, self._cluster))
            return reply
        assert api.plan is not None
        plan = api.plan(asked, self._cluster)
        if not self._changes_topics(
            plan, api_key, partial(api.plan, asked, self._cluster), request, reply, end - start
        ):
            self._answer_cluster(api, reply, plan.answer([]))
        return reply

    def _answer_cluster(self, api: ClusterApi, reply: PendingReply, answer: Any) -> None:
        if api.elements is not None and api.elements(answer) > MANY_PARTITIONS:
            self._long.begin(reply, 0, self._long.write(reply, answer))
        else:
            reply.answer(answer)

    async def _read_later(
        self, api_key: ApiKey, request: Request, decode: Callable[[], Any], reply: PendingReply, size_bytes: int
    ) -> None:
        api: ClusterApi = import_module(f"muster.server.cluster.{CLUSTER_MODULES[api_key]}").APIS[api_key]
        asked = await self._long.in_thread(decode)
        answer = api.answer or api.plan
        assert answer is not None
        if isinstance(answer, in_slices):
            found = await self._long.in_slices(answer.slices(asked, self._cluster))
        else:
            found = answer(asked, self._cluster)
        if api.plan is not None:
            decide = partial(api.plan, asked, self._cluster)
            if self._changes_topics(found, api_key, decide, request, reply, size_bytes):
                return
            found = found.answer([])
        await self._long.write(reply, found)

    def _changes_topics(
        self, plan: Plan, api_key: ApiKey, decide: Callable[[], Plan], request: Request, reply: PendingReply,
        size_bytes: int,
    ) -> bool:  # fmt: skip
        """Whether a request is answered behind a change of topics: its own, or those before it."""
        if plan.not_made:
            self._unserved.topics_not_made(request.client_id, request.connection.peer, plan.not_made)
        # Metadata tells what there is now; the others are about what there is behind the changes before them.
        waits = self._changes.is_busy and api_key is not ApiKey.METADATA
        if not plan.changes and not waits:
            return False
        if api_key is ApiKey.METADATA:
            decide = partial(self._with_failures_told, decide, request)
        self._changes.submit(decide, reply, size_bytes)
        return True

    def _with_failures_told(self, decide: Callable[[], Plan], request: Request) -> Plan:
        """A client that only asked about a topic does not hear why it could not be made; the log does."""
        plan = decide()

        def answer(outcomes: Sequence[Outcome]) -> Any:
            failed = [
                (change.topic.name, str(error).rstrip("."))
                for change, error in zip(plan.changes, outcomes, strict=True)
                if error is not None
            ]
            self._unserved.topics_not_made(request.client_id, request.connection.peer, failed)
            return plan.answer(outcomes)

        return plan._replace(answer=answer)

    def _fetch(self, request: Request, data: bytes, start: int, end: int) -> PendingReply:
        decode = partial(fetch.decode, request.version, data, start, end)
        if end - start > LONG_REQUEST_BYTES:
            self._long.check_room()
            reply = request.reply(ApiKey.FETCH, fetch.encode)
            self._long.begin(reply, end - start, self._fetch_later(decode, reply))
            return reply
        asked = decode()
        reply = request.reply(ApiKey.FETCH, fetch.encode)
        visit = self._sessions.visit(asked)
        if isinstance(visit, ErrorCode):
            reply.answer(fetch.FetchAnswer((), visit))
        elif len(visit.partitions) > MANY_PARTITIONS:
            self._long.begin(reply, 0, self._fetch_many(asked, visit, reply))
        else:
            answer = fetch.handle(asked._replace(partitions=visit.partitions), self._cluster, self._now().monotonic_ms)
            if isinstance(answer, ParkedFetch):
                self._fetches.park(answer, reply, visit.answer)
            else:
                reply.answer(visit.answer(answer))
        return reply

    async def _fetch_later(self, decode: Callable[[], fetch.FetchRequest], reply: PendingReply) -> None:
        asked = await self._long.in_thread(decode)
        visit = self._sessions.visit(asked)
        if isinstance(visit, ErrorCode):
            reply.answer(fetch.FetchAnswer((), visit))
        else:
            await self._fetch_many(asked, visit, reply)

    async def _fetch_many(self, asked: fetch.FetchRequest, visit: Visit, reply: PendingReply) -> None:
        asked = asked._replace(partitions=visit.partitions)
        with self._fetches.watched() as changed:
            answer = await self._long.in_slices(fetch_slices.handle(asked, self._cluster, self._now().monotonic_ms))
        if not isinstance(answer, ParkedFetch):
            await self._long.write(reply, visit.answer(answer))
        elif not reply.connection.is_closed:
            self._fetches.park(answer, reply, visit.answer, changed)

    def _produce(self, request: Request, data: bytes, start: int, end: int) -> PendingReply | None:
        try:
            asked = produce.decode(request.version, data, start, end, MANY_PARTITIONS)
        except BadBody:  # as far as one of few partitions goes
            return self._produce_many(request, data, start, end)
        if self._records.packing.is_full and self._records.would_be_packed(asked):
            raise NotNow(self._records.packing.when_there_is_room)
        if asked.transactional_id is not None and produce.refusal(asked) is ErrorCode.NONE:
            return self._produce_in_transaction(request, asked)
        self._records.produce(asked, self._produced(request, asked))
        return None

    def _produce_many(self, request: Request, data: bytes, start: int, end: int) -> PendingReply:
        self._long.check_room()
        if self._records.packing.is_full:
            raise NotNow(self._records.packing.when_there_is_room)
        reply = request.reply(ApiKey.PRODUCE, produce.encode)
        decode = partial(produce.decode, request.version, data, start, end)
        self._long.begin(reply, end - start, self._produce_later(decode, reply))
        return reply

    async def _produce_later(self, decode: Callable[[], produce.ProduceRequest], reply: PendingReply) -> None:
        asked = await self._long.in_thread(decode)
        refused: Mapping[TopicPartition, produce.Produced] = {}
        if asked.transactional_id is not None and produce.refusal(asked) is ErrorCode.NONE:
            prepared: asyncio.Future[Mapping[TopicPartition, produce.Produced]]
            prepared = asyncio.get_running_loop().create_future()
            self._batches.prepare(asked, prepared.set_result, prepared.set_exception)
            refused = await prepared
        produced: asyncio.Future[produce.ProduceAnswer] = asyncio.get_running_loop().create_future()
        await self._long.in_slices(self._records.produce_in_slices(asked, produced.set_result, refused))
        if asked.acks == produce.NO_ANSWER:
            _check_taken(reply.connection, await produced)
            reply.send(b"")
        else:
            await self._long.write(reply, await produced)

    def _produced(self, request: Request, asked: produce.ProduceRequest) -> Callable[[produce.ProduceAnswer], None]:
        """Where what became of a request goes."""
        if asked.acks == produce.NO_ANSWER:
            return partial(_check_taken, request.connection)
        return request.reply(ApiKey.PRODUCE, produce.encode).answer

    def _produce_in_transaction(self, request: Request, asked: produce.ProduceRequest) -> PendingReply | None:
        """The next requests wait until these batches are in their logs, or refused: nothing may come before them."""
        if not self._records.beginning(asked).partitions:
            self._records.produce(asked, self._produced(request, asked))
            return None
        connection = request.connection
        place = connection.reply(ApiKey.PRODUCE, _nothing, None)
        produced = self._produced(request, asked)

        def go_on(refused: Mapping[TopicPartition, produce.Produced]) -> None:
            try:
                self._records.produce(asked, produced, refused)
            except Exception as error:
                place.fail(error)
            else:
                connection.wait_instead(place, None)

        self._batches.prepare(asked, go_on, place.fail)
        return place

    def _delete_records(self, request: Request, data: bytes, start: int, end: int) -> PendingReply:
        asked = delete_records.decode(request.version, data, start, end)
        reply = request.reply(ApiKey.DELETE_RECORDS, delete_records.encode)
        self._records.delete(asked, reply.answer)
        return reply

    def _describe_producers(self, request: Request, data: bytes, start: int, end: int) -> PendingReply:
        asked = describe_producers.decode(request.version, data, start, end)
        reply = request.reply(ApiKey.DESCRIBE_PRODUCERS, describe_producers.encode)
        found = describe_producers.describe_producers.slices(asked, self._cluster, self._records.log_of)
        if end - start > LONG_REQUEST_BYTES:
            self._long.begin(reply, 0, self._answer_later(reply, found))
        else:
            reply.answer(finished(found))
        return reply

    async def _answer_later(self, reply: PendingReply, slices: Slices[Any]) -> None:
        await self._long.write(reply, await self._long.in_slices(slices))

    def _describe_log_dirs(self, request: Request, data: bytes, start: int, end: int) -> PendingReply:
        asked = describe_log_dirs.decode(request.version, data, start, end)
        reply = request.reply(ApiKey.DESCRIBE_LOG_DIRS, describe_log_dirs.encode)
        reply.answer(self._records.describe(asked))
        return reply

    def _alter_replica_log_dirs(self, request: Request, data: bytes, start: int, end: int) -> PendingReply:
        asked = alter_replica_log_dirs.decode(request.version, data, start, end)
        reply = request.reply(ApiKey.ALTER_REPLICA_LOG_DIRS, alter_replica_log_dirs.encode)
        reply.answer(self._records.move(asked))
        return reply

    def init_producer_id(self, request: Request, data: bytes, start: int, end: int) -> PendingReply:
        asked = producer_ids.decode(request.version, data, start, end)
        reply = request.reply(ApiKey.INIT_PRODUCER_ID, producer_ids.encode)
        self._producer_ids.hand_out(asked, reply)
        return reply

    # Not served yet.

    def _consumer_group_heartbeat(self, request: Request, data: bytes, start: int, end: int) -> PendingReply:
        newer = import_module("muster.server.cluster_requests")
        group_id = newer.decode_consumer_group_heartbeat(request.version, data, start, end)
        self._unserved.newer_consumer(request.client_id, request.connection.peer, group_id)
        reply = request.reply(ApiKey.CONSUMER_GROUP_HEARTBEAT, newer.encode_consumer_group_heartbeat)
        reply.answer(None)
        return reply


def complete_later(
    long_requests: LongRequests, cluster: Cluster, parked: ParkedFetch, reply: PendingReply, as_sent: AsSent
) -> None:
    """Answer a fetch of very many partitions, which has waited."""

    async def work() -> None:
        answer = await long_requests.in_slices(fetch_slices.complete(parked, cluster))
        await long_requests.write(reply, as_sent(answer))

    long_requests.begin(reply, 0, work())


def _nothing(context: None, answer: Any) -> bytes:
    return b""


def _check_taken(connection: Connection, answer: produce.ProduceAnswer) -> None:
    """A producer that wants no answer hears of an error by the end of its connection, as from Kafka."""
    errors = sorted({one.error.name for one in answer.produced if one.error is not ErrorCode.NONE})
    if errors:
        connection.drop(f"Produce that wants no answer, and was refused with {', '.join(errors)}")


class UnservedClients:
    """Clients that want what muster does not serve yet: one line for each client id, with what to do about it.

    Of a great many ids the older ones are forgotten, and told again.
    """

    def __init__(self, remarks: RateLimitedLog) -> None:
        self._remarks = remarks
        self._told: dict[tuple[str, str], None] = {}

    def newer_consumer(self, client_id: str, peer: str, group_id: str) -> None:
        self._say(
            "consumer", client_id, peer,
            f"joins group {group_id[:LONGEST_ID]!r} with group.protocol=consumer, and muster serves classic groups: it "
            "is refused with UNSUPPORTED_VERSION(35). Set group.protocol=classic",
        )  # fmt: skip

    def topics_not_made(self, client_id: str, peer: str, topics: Iterable[tuple[str, str]]) -> None:
        for name, why in topics:
            self._say(
                f"topic {name}", client_id, peer,
                f"asks for topic {name[:LONGEST_ID]!r}, which is not there and cannot be made: {why}",
            )  # fmt: skip

    def _say(self, kind: str, client_id: str, peer: str, what: str) -> None:
        shown_id = client_id[:LONGEST_ID]
        if (kind, shown_id) in self._told:
            return
        if len(self._told) >= MOST_REMEMBERED:
            del self._told[next(iter(self._told))]
        self._told[kind, shown_id] = None
        self._remarks.say(f"client {shown_id!r} at {peer} {what}.", peer=peer, client_id=shown_id)


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
