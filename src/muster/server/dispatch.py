"""From an API key to whoever answers, and from an answer to bytes.

Requests about groups become events for the coordinators; those about the cluster are answered here and now. Modules of
the seldom APIs are loaded when one is first asked for. A handler returns its slot if the answer has to be waited for
before the next request of the same connection is looked at (a join, a sync, a fetch).
"""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any
from uuid import uuid4

from muster.codec.error_codes import ErrorCode
from muster.core.answers import ALL_COMMITTED
from muster.server.cluster.cluster import Cluster
from muster.server.cluster.topics import TopicChange
from muster.server.connection import Connection, Slot
from muster.server.parked import ParkedFetches
from muster.server.shards import Shards
from muster.server.wire import api_versions, describe_groups, find_coordinator, join_group, offset_delete, sync_group
from muster.server.wire.apis import APIS, ApiKey, served
from muster.server.wire.delete_groups import decode_delete_groups, encode_delete_groups
from muster.server.wire.errors import NotServed
from muster.server.wire.find_coordinator import FoundCoordinator
from muster.server.wire.header import decode_header
from muster.server.wire.heartbeat import decode_heartbeat, encode_heartbeat
from muster.server.wire.leave_group import decode_leave_group, encode_leave_group
from muster.server.wire.list_groups import decode_list_groups, encode_list_groups
from muster.server.wire.offset_commit import decode_offset_commit, encode_offset_commit
from muster.server.wire.offset_fetch import decode_offset_fetch
from muster.server.wire.offset_fetch_reply import encode_offset_fetch
from muster.server.wire.topics import Topics as TopicNames

CLUSTER_MODULES = {
    ApiKey.METADATA: "metadata",
    ApiKey.CREATE_TOPICS: "create_topics",
    ApiKey.DELETE_TOPICS: "delete_topics",
    ApiKey.CREATE_PARTITIONS: "create_partitions",
    ApiKey.DESCRIBE_CLUSTER: "describe_cluster",
    ApiKey.DESCRIBE_CONFIGS: "describe_configs",
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: "topic_partitions",
    ApiKey.LIST_OFFSETS: "list_offsets",
    ApiKey.OFFSET_FOR_LEADER_EPOCH: "offset_for_leader_epoch",
}

Handler = Callable[["Request", bytes, int, int], Slot | None]
"""The request's header, the data, where the body begins in it, and where it ends."""


class Request:
    """The header of a request, and who sent it."""

    __slots__ = ("client_id", "connection", "correlation_id", "since", "version")

    def __init__(self, connection: Connection, version: int, correlation_id: int, client_id: str, since: float) -> None:
        self.connection = connection
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.since = since

    def slot(self, api_key: int, encode: Callable[..., bytes], *more: Any) -> Slot:
        """A place for the answer; `encode(version, correlation_id, *more, answer)` will make bytes of it."""
        return self.connection.slot(api_key, self.since, partial(encode, self.version, self.correlation_id, *more))


class Gather:
    """Answers to several events that are one answer to the client."""

    def __init__(self, count: int, then: Callable[[list[Any]], None]) -> None:
        self._answers: list[Any] = [None] * count
        self._left = count
        self._then = then

    def put(self, place: int, answer: Any) -> None:
        self._answers[place] = answer
        self._left -= 1
        if not self._left:
            self._then(self._answers)


class Part:
    """One of several who wait for the same."""

    __slots__ = ("_gather", "_place", "event")

    def __init__(self, gather: Gather, place: int, event: Any) -> None:
        self._gather = gather
        self._place = place
        self.event = event

    def answer(self, answer: Any) -> None:
        self._gather.put(self._place, answer)


class Dispatch:
    """Handlers by API key."""

    def __init__(self, shards: Shards, cluster: Cluster, parked: ParkedFetches, loop_time: Callable[[], float]) -> None:
        self._shards = shards
        self._cluster = cluster
        self._parked = parked
        self._time = loop_time
        self._by_name: dict[str, tuple[bytes, int]] = {}
        self._by_id: dict[bytes, str] = {}
        self._names = TopicNames(self._by_name, self._by_id)
        cluster.topics.listen(self._topics_changed)
        self._learn_topics()
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
            **{key: partial(self._about_cluster, key, module) for key, module in CLUSTER_MODULES.items()},
        }

    def _topics_changed(self, change: TopicChange) -> None:
        self._learn_topics()

    def _learn_topics(self) -> None:
        self._by_name.clear()
        self._by_id.clear()
        for topic in self._cluster.topics.in_order():
            self._by_name[topic.name] = topic.topic_id, topic.partitions
            self._by_id[topic.topic_id] = topic.name

    def handle(self, connection: Connection, data: bytes, position: int, end: int) -> Slot | None:
        """Handle one request. `WireError` if it is not one, and the client is sent away, as Kafka does."""
        api_key, version, correlation_id, client_id, body = decode_header(data, position, end)
        handler = self._handlers.get(api_key)
        if handler is None:
            raise NotServed(f"{APIS[api_key].name} is not served here")
        if api_key != ApiKey.API_VERSIONS:
            served(api_key, version)
        return handler(Request(connection, version, correlation_id, client_id or "", self._time()), data, body, end)

    # Hot.

    def _heartbeat(self, request: Request, data: bytes, start: int, end: int) -> None:
        event = decode_heartbeat(request.version, data, start, end)
        slot = request.slot(ApiKey.HEARTBEAT, encode_heartbeat)
        slot.event = event
        self._shards.ask(slot, event)

    def _offset_commit(self, request: Request, data: bytes, start: int, end: int) -> None:
        event, reply = decode_offset_commit(request.version, request.correlation_id, data, start, end, self._names)
        slot = request.connection.slot(ApiKey.OFFSET_COMMIT, request.since, partial(encode_offset_commit, reply))
        if event is None:
            slot.answer(ALL_COMMITTED)
        else:
            slot.event = event
            self._shards.ask(slot, event)

    def _offset_fetch(self, request: Request, data: bytes, start: int, end: int) -> None:
        events, reply = decode_offset_fetch(request.version, request.correlation_id, data, start, end, self._names)
        slot = request.connection.slot(
            ApiKey.OFFSET_FETCH, request.since, lambda answers: encode_offset_fetch(reply, answers, self._names)
        )
        self._ask_all(slot, events)

    # Members.

    def _join_group(self, request: Request, data: bytes, start: int, end: int) -> Slot:
        event = join_group.decode_join_group(
            request.version, data, start, end,
            client_id=request.client_id, client_host=request.connection.client_host, fresh_uuid=str(uuid4()),
        )  # fmt: skip
        return self._ask_and_wait(request.slot(ApiKey.JOIN_GROUP, join_group.encode_join_group), event)

    def _sync_group(self, request: Request, data: bytes, start: int, end: int) -> Slot:
        event = sync_group.decode_sync_group(request.version, data, start, end)
        slot = request.slot(ApiKey.SYNC_GROUP, sync_group.encode_sync_group)
        refused = sync_group.sync_refusal(event)
        if refused is not None:
            slot.answer(refused)
            return slot
        return self._ask_and_wait(slot, event)

    def _ask_and_wait(self, slot: Slot, event: Any) -> Slot:
        slot.event = event
        self._shards.ask(slot, event)
        return slot

    def _leave_group(self, request: Request, data: bytes, start: int, end: int) -> Slot:
        event = decode_leave_group(request.version, data, start, end)
        return self._ask_and_wait(request.slot(ApiKey.LEAVE_GROUP, encode_leave_group), event)

    # Groups.

    def _list_groups(self, request: Request, data: bytes, start: int, end: int) -> Slot:
        event = decode_list_groups(request.version, data, start, end)
        return self._ask_and_wait(request.slot(ApiKey.LIST_GROUPS, encode_list_groups), event)

    def _offset_delete(self, request: Request, data: bytes, start: int, end: int) -> Slot:
        event, refused = offset_delete.decode_offset_delete(request.version, data, start, end, self._names)
        slot = request.slot(ApiKey.OFFSET_DELETE, offset_delete.encode_offset_delete, refused)
        return self._ask_and_wait(slot, event)

    def _describe_groups(self, request: Request, data: bytes, start: int, end: int) -> Slot:
        events, has_operations = describe_groups.decode_describe_groups(request.version, data, start, end)
        slot = request.slot(ApiKey.DESCRIBE_GROUPS, describe_groups.encode_describe_groups, events, has_operations)
        return self._ask_all(slot, events)

    def _delete_groups(self, request: Request, data: bytes, start: int, end: int) -> Slot:
        events = decode_delete_groups(request.version, data, start, end)
        return self._ask_all(request.slot(ApiKey.DELETE_GROUPS, encode_delete_groups, events), events)

    def _ask_all(self, slot: Slot, events: Any) -> Slot:
        if not events:
            slot.answer([])
            return slot
        gather = Gather(len(events), slot.answer)
        for place, event in enumerate(events):
            self._shards.ask(Part(gather, place, event), event)
        return slot

    def _find_coordinator(self, request: Request, data: bytes, start: int, end: int) -> Slot:
        asked = find_coordinator.decode_find_coordinator(request.version, data, start, end)
        slot = request.slot(ApiKey.FIND_COORDINATOR, find_coordinator.encode_find_coordinator, asked)
        error = find_coordinator.find_refusal(request.version, asked)
        found = FoundCoordinator(error)
        if error is ErrorCode.NONE:
            node = self._cluster.node
            found = FoundCoordinator(error, node.node_id, node.host, node.port)
        slot.answer([found] * len(asked.keys))
        return slot

    # The cluster.

    def _api_versions(self, request: Request, data: bytes, start: int, end: int) -> None:
        version, correlation_id = request.version, request.correlation_id
        if not api_versions.is_served(version):
            frame = api_versions.encode_unsupported(correlation_id)
        elif not api_versions.is_proper(version, api_versions.decode_api_versions(version, data, start, end)):
            frame = api_versions.encode_improper(version, correlation_id)
        else:
            frame = api_versions.encode_api_versions(version, correlation_id, self._handlers)
        request.connection.slot(ApiKey.API_VERSIONS, request.since, lambda frame: frame).answer(frame)

    def _about_cluster(
        self, api_key: ApiKey, module_name: str, request: Request, data: bytes, start: int, end: int
    ) -> None:
        module = import_module(f"muster.server.cluster.{module_name}")
        asked = module.decode(request.version, data, start, end)
        slot = request.slot(api_key, module.encode)
        slot.answer(module.handle(asked, self._cluster))

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
