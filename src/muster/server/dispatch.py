"""From an API key to whoever answers, and from an answer to bytes.

Requests about groups become events for the coordinators; those about the cluster are answered here and now. Modules of
the seldom APIs are loaded when one is first asked for. A handler returns its slot if the answer has to be waited for
before the next request of the same connection is looked at (a join, a sync, a fetch).

Clients repeat themselves: of a consumer's heartbeats only the correlation id changes, of its commits the offsets too.
So each connection remembers the bytes of the last request of each hot API beside what they meant, and the next one that
begins with the same bytes is not read again (`_again`). That holds until a topic changes.
"""

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from struct import Struct
from typing import Any
from uuid import uuid4

from muster.codec.error_codes import ErrorCode
from muster.core.answers import ALL_COMMITTED, DescribeAnswer, FetchAnswer, ListAnswer
from muster.protocol.apis import APIS, ApiKey, served
from muster.protocol.errors import NotServed
from muster.protocol.header import decode_header
from muster.server.cluster.cluster import Cluster
from muster.server.cluster.topic_storage import TopicChanges
from muster.server.cluster.topics import Happened, Topic, TopicChange
from muster.server.connection import Connection, Slot
from muster.server.led_partitions import LedPartitions
from muster.server.parked import ParkedFetches
from muster.server.replies import Gather, Part, Room
from muster.server.server_log import RateLimitedLog
from muster.server.unserved import Unserved
from muster.server.wire import Topics as TopicNames
from muster.server.wire import discovery, group_admin, members
from muster.server.wire.heartbeat import decode_heartbeat, encode_heartbeat
from muster.server.wire.offset_commit import (
    CommitHead,
    decode_commit_head,
    decode_offset_commit,
    decode_partitions,
    encode_offset_commit,
)
from muster.server.wire.offset_fetch import FetchReply, decode_offset_fetch, encode_offset_fetch, offset_fetch_bytes

CHANGING_MODULES = {
    ApiKey.METADATA: "metadata",
    ApiKey.CREATE_TOPICS: "create_topics",
    ApiKey.DELETE_TOPICS: "delete_topics",
    ApiKey.CREATE_PARTITIONS: "create_partitions",
}
"""Those that may change topics: they have a `plan`."""
CLUSTER_MODULES = {
    ApiKey.DESCRIBE_CLUSTER: "describe_cluster",
    ApiKey.DESCRIBE_CONFIGS: "describe_configs",
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: "topic_partitions",
    ApiKey.LIST_OFFSETS: "list_offsets",
    ApiKey.OFFSET_FOR_LEADER_EPOCH: "offset_for_leader_epoch",
}

MAX_REMEMBERED, MAX_REMEMBERED_BYTES = 8, 1024
FEW_PARTITIONS = 256
"""Of one OffsetFetch: more may have a large answer, which has to be looked at."""
DESCRIBE_REFUSED = DescribeAnswer(
    ErrorCode.POLICY_VIOLATION, message="The answer would be larger than muster.max.response.bytes."
)
FETCH_REFUSED = FetchAnswer(ErrorCode.POLICY_VIOLATION)
LIST_REFUSED = ListAnswer(ErrorCode.POLICY_VIOLATION)
_read_kind = Struct(">ii").unpack_from  # API key and version as one number, and the correlation id
# Members of an enum cost a lookup each time they are named.
_HEARTBEAT, _OFFSET_COMMIT, _OFFSET_FETCH = int(ApiKey.HEARTBEAT), int(ApiKey.OFFSET_COMMIT), int(ApiKey.OFFSET_FETCH)

Handler = Callable[["Request", bytes, int, int], Slot | None]
"""The request's header, the data, where the body begins in it, and where it ends."""


class Request:
    """The header of a request, and who sent it."""

    __slots__ = ("client_id", "connection", "correlation_id", "kind", "start", "version")

    def __init__(
        self, connection: Connection, kind: int, version: int, correlation_id: int, client_id: str, start: int
    ) -> None:
        self.connection = connection
        self.kind = kind
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.start = start
        """Where the header goes on behind the correlation id."""

    def slot(self, api_key: int, encode: Callable[..., bytes], *more: Any) -> Slot:
        """A place for the answer; `encode(version, correlation_id, *more, answer)` will make bytes of it."""
        return self.connection.slot(api_key, _encode, (encode, self.version, self.correlation_id, *more))


def _encode(reply: tuple[Any, ...], answer: Any) -> bytes:
    frame: bytes = reply[0](*reply[1:], answer)
    return frame


class Dispatch:
    """Handlers by API key."""

    def __init__(
        self,
        shards: LedPartitions,
        cluster: Cluster,
        changes: TopicChanges,
        parked: ParkedFetches,
        remarks: RateLimitedLog,
    ) -> None:
        self._shards = shards
        self._cluster = cluster
        self._changes = changes
        self._parked = parked
        self._remarks = remarks
        self._unserved = Unserved(remarks)
        self._max_response_bytes = cluster.config.muster_max_response_bytes
        self._topics_version = 0
        self._by_name: dict[str, tuple[bytes, int]] = {}
        self._by_id: dict[bytes, str] = {}
        self._names = TopicNames(self._by_name, self._by_id)
        cluster.topics.listen(self._topics_changed)
        for topic in cluster.topics.in_order():
            self._learn(topic)
        self._handlers: dict[int, Handler] = {
            ApiKey.HEARTBEAT: self._heartbeat,
            ApiKey.OFFSET_COMMIT: self._offset_commit,
            ApiKey.OFFSET_FETCH: self._offset_fetch,
            ApiKey.JOIN_GROUP: self._join_group,
            ApiKey.SYNC_GROUP: self._sync_group,
            ApiKey.LEAVE_GROUP: self._leave_group,
            ApiKey.OFFSET_DELETE: self._offset_delete,
            ApiKey.LIST_GROUPS: self._list_groups,
            ApiKey.DESCRIBE_GROUPS: self._describe_groups,
            ApiKey.DELETE_GROUPS: self._delete_groups,
            ApiKey.FIND_COORDINATOR: self._find_coordinator,
            ApiKey.API_VERSIONS: self._api_versions,
            ApiKey.FETCH: self._fetch,
            ApiKey.PRODUCE: self._produce,
            ApiKey.CONSUMER_GROUP_HEARTBEAT: self._consumer_group_heartbeat,
            **{key: partial(self._about_cluster, key, module) for key, module in CLUSTER_MODULES.items()},
            **{key: partial(self._about_topics, key, module) for key, module in CHANGING_MODULES.items()},
        }

    def _topics_changed(self, change: TopicChange) -> None:
        self._topics_version += 1
        topic = change.topic
        if change.happened is Happened.DELETED:
            del self._by_name[topic.name], self._by_id[topic.topic_id]
        else:
            self._learn(topic)

    def _learn(self, topic: Topic) -> None:
        self._by_name[topic.name] = topic.topic_id, topic.partitions
        self._by_id[topic.topic_id] = topic.name

    def handle(self, connection: Connection, data: bytes, position: int, end: int) -> Slot | None:
        """Handle one request. `WireError` if it is not one, and the client is sent away, as Kafka does."""
        start = position + 8  # behind the correlation id
        kind, correlation_id = _read_kind(data, position) if start <= end else (-1, 0)
        remembered = connection.remembered.get(kind)
        if remembered is not None:
            said, topics_version, again, meant = remembered
            if (
                data.startswith(said, start)
                and topics_version == self._topics_version
                and again(connection, correlation_id, meant, data, start + len(said), end)
            ):
                return None
        api_key, version, correlation_id, client_id, body = decode_header(data, position, end)
        handler = self._handlers.get(api_key)
        if handler is None:
            raise NotServed(f"{APIS[api_key].name} is not served here")
        if api_key != ApiKey.API_VERSIONS:
            served(api_key, version)
        return handler(Request(connection, kind, version, correlation_id, client_id, start), data, body, end)

    def _remember(self, request: Request, data: bytes, end: int, again: Callable[..., bool], meant: Any) -> None:
        """What a request said behind its correlation id and up to some place, who is to handle the next, and how."""
        if end - request.start <= MAX_REMEMBERED_BYTES:
            remembered = request.connection.remembered
            if len(remembered) >= MAX_REMEMBERED:  # a client speaks one version of an API; this one tries them all
                remembered.clear()
            remembered[request.kind] = data[request.start : end], self._topics_version, again, meant

    # Hot. Those that came before end with `..._again`, which returns whether it has handled this one.

    def _heartbeat(self, request: Request, data: bytes, start: int, end: int) -> None:
        event = decode_heartbeat(request.version, data, start, end)
        # A heartbeat is over when it is handled, so one event serves for all that say the same.
        self._remember(request, data, end, self._heartbeat_again, (event, request.version))
        self._heartbeat_again(request.connection, request.correlation_id, (event, request.version), data, end, end)

    def _heartbeat_again(
        self, connection: Connection, correlation_id: int, meant: tuple[Any, int], data: bytes, position: int, end: int
    ) -> bool:
        if position != end:
            return False
        event, version = meant
        self._shards.ask(connection.slot(_HEARTBEAT, encode_heartbeat, (version, correlation_id), event), event)
        return True

    def _offset_commit(self, request: Request, data: bytes, start: int, end: int) -> None:
        connection, correlation_id = request.connection, request.correlation_id
        found = decode_commit_head(request.version, data, start, end, self._names)
        if found is not None:
            head, position = found
            self._remember(request, data, position, self._offset_commit_again, head)
            if self._offset_commit_again(connection, correlation_id, head, data, position, end):
                return
        event, reply = decode_offset_commit(request.version, correlation_id, data, start, end, self._names)
        slot = connection.slot(_OFFSET_COMMIT, encode_offset_commit, reply, event)
        if event is None:
            slot.answer(ALL_COMMITTED)
        else:
            self._shards.ask(slot, event)

    def _offset_commit_again(
        self, connection: Connection, correlation_id: int, head: CommitHead, data: bytes, position: int, end: int
    ) -> bool:
        decoded = decode_partitions(head, correlation_id, data, position, end, self._names)
        if decoded is None:
            return False
        event, reply = decoded
        self._shards.ask(connection.slot(_OFFSET_COMMIT, encode_offset_commit, reply, event), event)
        return True

    def _offset_fetch(self, request: Request, data: bytes, start: int, end: int) -> Slot | None:
        events, reply = decode_offset_fetch(request.version, request.correlation_id, data, start, end, self._names)
        partitions = events[0].partitions if len(events) == 1 else None
        if partitions is None or len(partitions) > FEW_PARTITIONS:
            slot = request.connection.slot(_OFFSET_FETCH, self._encode_fetches, reply)
            return self._ask_all(slot, events, offset_fetch_bytes, FETCH_REFUSED)
        meant = (events[0], request.version, reply[2])
        self._remember(request, data, end, self._offset_fetch_again, meant)
        self._offset_fetch_again(request.connection, request.correlation_id, meant, data, end, end)
        return None

    def _offset_fetch_again(
        self, connection: Connection, correlation_id: int, meant: tuple[Any, ...], data: bytes, position: int, end: int
    ) -> bool:
        if position != end:
            return False
        event, version, groups = meant
        reply = version, correlation_id, groups
        self._shards.ask(connection.slot(_OFFSET_FETCH, self._encode_fetch, reply, event), event)
        return True

    def _encode_fetch(self, reply: FetchReply, answer: Any) -> bytes:
        return encode_offset_fetch(reply, (answer,), self._names)

    def _encode_fetches(self, reply: FetchReply, answers: Any) -> bytes:
        return encode_offset_fetch(reply, answers, self._names)

    # Members.

    def _join_group(self, request: Request, data: bytes, start: int, end: int) -> Slot:
        event = members.decode_join_group(
            request.version, data, start, end,
            client_id=request.client_id, client_host=request.connection.client_host, fresh_uuid=str(uuid4()),
        )  # fmt: skip
        return self._ask_and_wait(request.slot(ApiKey.JOIN_GROUP, members.encode_join_group), event)

    def _sync_group(self, request: Request, data: bytes, start: int, end: int) -> Slot:
        event = members.decode_sync_group(request.version, data, start, end)
        slot = request.slot(ApiKey.SYNC_GROUP, members.encode_sync_group)
        refused = members.sync_refusal(event)
        if refused is not None:
            slot.answer(refused)
            return slot
        return self._ask_and_wait(slot, event)

    def _ask_and_wait(self, slot: Slot, event: Any) -> Slot:
        slot.event = event
        self._shards.ask(slot, event)
        return slot

    def _leave_group(self, request: Request, data: bytes, start: int, end: int) -> Slot:
        event = members.decode_leave_group(request.version, data, start, end)
        return self._ask_and_wait(request.slot(ApiKey.LEAVE_GROUP, members.encode_leave_group), event)

    # Groups.

    def _list_groups(self, request: Request, data: bytes, start: int, end: int) -> Slot:
        event = group_admin.decode_list_groups(request.version, data, start, end)
        slot = request.slot(ApiKey.LIST_GROUPS, group_admin.encode_list_groups)
        return self._ask_all(
            slot, (event,), group_admin.list_groups_bytes, LIST_REFUSED, lambda answers: slot.answer(answers[0])
        )

    def _offset_delete(self, request: Request, data: bytes, start: int, end: int) -> Slot:
        event, refused = group_admin.decode_offset_delete(request.version, data, start, end, self._names)
        slot = request.slot(ApiKey.OFFSET_DELETE, group_admin.encode_offset_delete, refused)
        return self._ask_and_wait(slot, event)

    def _describe_groups(self, request: Request, data: bytes, start: int, end: int) -> Slot:
        events, has_operations = group_admin.decode_describe_groups(request.version, data, start, end)
        slot = request.slot(ApiKey.DESCRIBE_GROUPS, group_admin.encode_describe_groups, events, has_operations)
        return self._ask_all(slot, events, group_admin.describe_groups_bytes, DESCRIBE_REFUSED)

    def _delete_groups(self, request: Request, data: bytes, start: int, end: int) -> Slot:
        events = group_admin.decode_delete_groups(request.version, data, start, end)
        slot = request.slot(ApiKey.DELETE_GROUPS, group_admin.encode_delete_groups, events)
        return self._ask_all(slot, events, lambda error: 0, ErrorCode.NONE)

    def _ask_all(
        self,
        slot: Slot,
        events: Sequence[Any],
        size_of: Callable[[Any], int],
        refused: Any,
        then: Callable[[list[Any]], None] | None = None,
    ) -> Slot:
        """Ask for answers that together are the slot's; one whose bytes find no room becomes `refused`."""
        if not events:
            slot.answer([])
            return slot
        room = Room(self._max_response_bytes, size_of, refused, partial(self._tell_too_large, slot))
        gather = Gather(len(events), slot.answer if then is None else then, room)
        places: dict[int, list[int]] = {}
        for place, event in enumerate(events):
            places.setdefault(id(event), []).append(place)
        for of_one in places.values():
            event = events[of_one[0]]
            self._shards.ask(Part(gather, of_one, event), event)
        return slot

    def _tell_too_large(self, slot: Slot) -> None:
        self._remarks.say(
            f"{slot.connection.peer} asked with one {APIS[slot.api_key].name} for more than an answer may hold; part "
            f"of it was refused (muster.max.response.bytes is {self._max_response_bytes})",
            peer=slot.connection.peer,
        )

    def _find_coordinator(self, request: Request, data: bytes, start: int, end: int) -> Slot:
        asked = discovery.decode_find_coordinator(request.version, data, start, end)
        slot = request.slot(ApiKey.FIND_COORDINATOR, discovery.encode_find_coordinator, asked)
        error = discovery.find_refusal(request.version, asked)
        found = discovery.FoundCoordinator(error)
        if error is ErrorCode.NONE:
            node = self._cluster.node
            found = discovery.FoundCoordinator(error, node.node_id, node.host, node.port)
        slot.answer([found] * len(asked.keys))
        return slot

    # What is not served yet, and answered so that the client knows.

    def _produce(self, request: Request, data: bytes, start: int, end: int) -> Slot:
        produce = import_module("muster.server.wire.refused")
        asked = produce.decode_produce(request.version, data, start, end)
        self._unserved.producer(request.client_id, request.connection.peer)
        if asked.acks == 0:
            raise NotServed("Produce that wants no answer, and muster keeps no records")  # as Kafka does on an error
        slot = request.slot(ApiKey.PRODUCE, produce.encode_produce)
        slot.answer(asked)
        return slot

    def _consumer_group_heartbeat(self, request: Request, data: bytes, start: int, end: int) -> Slot:
        newer = import_module("muster.server.wire.refused")
        group_id = newer.decode_consumer_group_heartbeat(request.version, data, start, end)
        self._unserved.newer_consumer(request.client_id, request.connection.peer, group_id)
        slot = request.slot(ApiKey.CONSUMER_GROUP_HEARTBEAT, newer.encode_consumer_group_heartbeat)
        slot.answer(None)
        return slot

    # The cluster.

    def _api_versions(self, request: Request, data: bytes, start: int, end: int) -> None:
        version, correlation_id = request.version, request.correlation_id
        if not discovery.is_served(version):
            frame = discovery.encode_unsupported(correlation_id)
        elif not discovery.is_proper(version, discovery.decode_api_versions(version, data, start, end)):
            frame = discovery.encode_improper(version, correlation_id)
        else:
            frame = discovery.encode_api_versions(version, correlation_id, self._handlers)
        request.connection.slot(ApiKey.API_VERSIONS, lambda frame, _: frame, frame).answer(None)

    def _about_cluster(
        self, api_key: ApiKey, module_name: str, request: Request, data: bytes, start: int, end: int
    ) -> Slot:
        module = import_module(f"muster.server.cluster.{module_name}")
        asked = module.decode(request.version, data, start, end)
        slot = request.slot(api_key, module.encode)
        slot.answer(module.handle(asked, self._cluster))
        return slot

    def _about_topics(
        self, api_key: ApiKey, module_name: str, request: Request, data: bytes, start: int, end: int
    ) -> Slot:
        module = import_module(f"muster.server.cluster.{module_name}")
        asked = module.decode(request.version, data, start, end)
        slot = request.slot(api_key, module.encode)
        plan = module.plan(asked, self._cluster)
        # Metadata tells what there is now; the others are about what there is behind the changes before them.
        waits = self._changes.is_busy and api_key is not ApiKey.METADATA
        if plan.changes or waits:
            self._changes.ask(partial(module.plan, asked, self._cluster), slot, end - start)
        else:
            slot.answer(plan.answer([]))
        return slot

    def _fetch(self, request: Request, data: bytes, start: int, end: int) -> Slot:
        fetch = import_module("muster.server.cluster.fetch")
        asked = fetch.decode(request.version, data, start, end)
        slot = request.slot(ApiKey.FETCH, fetch.encode)
        answer = fetch.handle(asked, self._cluster, self._shards.now().monotonic_ms)
        if isinstance(answer, fetch.ParkedFetch):
            self._parked.park(answer, slot)
        else:
            slot.answer(answer)
        return slot
