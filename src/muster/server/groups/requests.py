"""Requests about groups: each becomes an event for the coordinator of its group.

A request about several groups becomes several events, and its reply is made of their answers (`CombinedReply`), within
`muster.max.response.bytes`.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any
from uuid import uuid4

from muster.codec.error_codes import ErrorCode
from muster.core.events import ALL_COMMITTED, DescribeAnswer, FetchAnswer, ListAnswer
from muster.protocol.apis import APIS, ApiKey
from muster.server.cluster.cluster import Cluster
from muster.server.cluster.topics import Happened, Topic, TopicChange
from muster.server.connection import PendingReply
from muster.server.dispatch import Handler, Request
from muster.server.led_partitions import LedGroups
from muster.server.long_requests import LONG_REQUEST_BYTES, MANY_PARTITIONS, LongRequests
from muster.server.repeated_requests import RepeatedRequests
from muster.server.server_log import RateLimitedLog
from muster.server.slices import Slices, finished
from muster.server.wire import TopicNames, discovery, group_admin, members
from muster.server.wire.heartbeat import decode_heartbeat, encode_heartbeat
from muster.server.wire.offset_commit import decode_commit_head, decode_offset_commit, encode_offset_commit
from muster.server.wire.offset_fetch import FetchReply, decode_offset_fetch, encode_offset_fetch, offset_fetch_bytes

FEW_PARTITIONS = 256
"""Of one OffsetFetch: more may have a large answer, whose size is checked."""
DESCRIBE_REFUSED = DescribeAnswer(
    ErrorCode.POLICY_VIOLATION, message="The answer would be larger than muster.max.response.bytes."
)
FETCH_REFUSED = FetchAnswer(ErrorCode.POLICY_VIOLATION)
LIST_REFUSED = ListAnswer(ErrorCode.POLICY_VIOLATION)


class GroupRequests:
    """`handlers` is the table of them, by API key."""

    def __init__(
        self,
        led_partitions: LedGroups,
        cluster: Cluster,
        remarks: RateLimitedLog,
        long_requests: LongRequests,
        when_transactions_are_led: Callable[[Callable[[ErrorCode], None]], None],
    ) -> None:
        self._led_partitions = led_partitions
        self._cluster = cluster
        self._remarks = remarks
        self._long = long_requests
        self._when_transactions_are_led = when_transactions_are_led
        self._max_response_bytes = cluster.config.muster_max_response_bytes
        self._by_name: dict[str, tuple[bytes, int]] = {}
        self._by_id: dict[bytes, str] = {}
        self.names = TopicNames(self._by_name, self._by_id)
        for topic in cluster.topics.in_order():
            self._learn(topic)
        self.repeated = RepeatedRequests(led_partitions, self.names, self._encode_fetch)
        cluster.topics.listen(self._topic_changed)
        cluster.topics.listen(self.repeated.topic_changed)
        self.handlers: dict[int, Handler] = {
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
        }

    def _topic_changed(self, change: TopicChange) -> None:
        topic = change.topic
        if change.happened is Happened.DELETED:
            del self._by_name[topic.name], self._by_id[topic.topic_id]
        else:
            self._learn(topic)

    def _learn(self, topic: Topic) -> None:
        self._by_name[topic.name] = topic.topic_id, topic.partitions
        self._by_id[topic.topic_id] = topic.name

    # Hot. The next request of the connection need not wait for these.

    def _heartbeat(self, request: Request, data: bytes, start: int, end: int) -> None:
        event = decode_heartbeat(request.version, data, start, end)
        self.repeated.remember_heartbeat(request, data, end, event)
        context = request.version, request.correlation_id
        reply = request.connection.reply(ApiKey.HEARTBEAT, encode_heartbeat, context, event.group_id)
        self._led_partitions.submit(event, reply)

    def _offset_commit(self, request: Request, data: bytes, start: int, end: int) -> None:
        version = request.version
        event, context = decode_offset_commit(version, request.correlation_id, data, start, end, self.names)
        group_id = None if event is None else event.group_id
        reply = request.connection.reply(ApiKey.OFFSET_COMMIT, encode_offset_commit, context, group_id)
        if event is None:
            reply.answer(ALL_COMMITTED)
            return
        found = decode_commit_head(version, data, start, end, self.names)
        if found is not None:
            head, head_end = found
            self.repeated.remember_commit(request, data, head_end, head, event)
        self._led_partitions.submit(event, reply)

    def _offset_fetch(self, request: Request, data: bytes, start: int, end: int) -> PendingReply | None:
        decode = partial(decode_offset_fetch, request.version, request.correlation_id, data, start, end, self.names)
        if end - start > LONG_REQUEST_BYTES:
            return self._begin_long(request, ApiKey.OFFSET_FETCH, end - start, partial(self._fetch_later, decode))
        events, context = decode()
        partitions = events[0].partitions if len(events) == 1 else None
        if partitions is None or len(partitions) > FEW_PARTITIONS:
            reply = request.connection.reply(ApiKey.OFFSET_FETCH, self._encode_fetches, context)
            return self._submit_all(events, reply, offset_fetch_bytes, FETCH_REFUSED)
        (event,) = events
        self.repeated.remember_fetch(request, data, end, event, context[2])
        reply = request.connection.reply(ApiKey.OFFSET_FETCH, self._encode_fetch, context, event.group_id)
        self._led_partitions.submit(event, reply)
        return None

    async def _fetch_later(self, decode: Callable[[], Any], reply: PendingReply) -> None:
        events, context = await self._long.in_thread(decode)
        answers = await self._gathered(events, reply, offset_fetch_bytes, FETCH_REFUSED)
        reply.send(await self._long.in_thread(partial(encode_offset_fetch, context, answers, self.names)))

    def _encode_fetch(self, context: FetchReply, answer: Any) -> bytes:
        return encode_offset_fetch(context, (answer,), self.names)

    def _encode_fetches(self, context: FetchReply, answers: Any) -> bytes:
        return encode_offset_fetch(context, answers, self.names)

    # Members.

    def _join_group(self, request: Request, data: bytes, start: int, end: int) -> PendingReply:
        event = members.decode_join_group(
            request.version, data, start, end,
            client_id=request.client_id, client_host=request.connection.client_host, fresh_uuid=str(uuid4()),
        )  # fmt: skip
        return self._submit(event, request.reply(ApiKey.JOIN_GROUP, members.encode_join_group, group_id=event.group_id))

    def _sync_group(self, request: Request, data: bytes, start: int, end: int) -> PendingReply:
        event = members.decode_sync_group(request.version, data, start, end)
        request.connection.member = event.group_id, event.member_id
        reply = request.reply(ApiKey.SYNC_GROUP, members.encode_sync_group, group_id=event.group_id)
        refused = members.sync_refusal(event)
        if refused is not None:
            reply.answer(refused)
            return reply
        return self._submit(event, reply)

    def _leave_group(self, request: Request, data: bytes, start: int, end: int) -> PendingReply:
        event = members.decode_leave_group(request.version, data, start, end)
        return self._submit(
            event, request.reply(ApiKey.LEAVE_GROUP, members.encode_leave_group, group_id=event.group_id)
        )

    def _submit(self, event: Any, reply: PendingReply) -> PendingReply:
        self._led_partitions.submit(event, reply)
        return reply

    # Groups.

    def _offset_delete(self, request: Request, data: bytes, start: int, end: int) -> PendingReply:
        event, refused = group_admin.decode_offset_delete(request.version, data, start, end, self.names)
        encode = group_admin.encode_offset_delete
        return self._submit(event, request.reply(ApiKey.OFFSET_DELETE, encode, refused, group_id=event.group_id))

    def _list_groups(self, request: Request, data: bytes, start: int, end: int) -> PendingReply:
        event = group_admin.decode_list_groups(request.version, data, start, end)
        reply = request.reply(ApiKey.LIST_GROUPS, _encode_list)
        return self._submit_all((event,), reply, group_admin.list_groups_bytes, LIST_REFUSED)

    def _describe_groups(self, request: Request, data: bytes, start: int, end: int) -> PendingReply:
        decode = partial(group_admin.decode_describe_groups, request.version, data, start, end)
        if end - start > LONG_REQUEST_BYTES:
            work = partial(self._describe_later, request, decode)
            return self._begin_long(request, ApiKey.DESCRIBE_GROUPS, end - start, work)
        events, has_operations = decode()
        reply = request.reply(ApiKey.DESCRIBE_GROUPS, group_admin.encode_describe_groups, events, has_operations)
        return self._submit_all(events, reply, group_admin.describe_groups_bytes, DESCRIBE_REFUSED)

    async def _describe_later(self, request: Request, decode: Callable[[], Any], reply: PendingReply) -> None:
        described = await self._long.in_thread(decode)
        answers = await self._gathered(described[0], reply, group_admin.describe_groups_bytes, DESCRIBE_REFUSED)
        encode = partial(group_admin.encode_describe_groups, request.version, request.correlation_id, *described)
        reply.send(await self._long.in_thread(partial(encode, answers)))

    def _delete_groups(self, request: Request, data: bytes, start: int, end: int) -> PendingReply:
        decode = partial(group_admin.decode_delete_groups, request.version, data, start, end)
        if end - start > LONG_REQUEST_BYTES:
            work = partial(self._delete_later, request, decode)
            return self._begin_long(request, ApiKey.DELETE_GROUPS, end - start, work)
        events = decode()
        reply = request.reply(ApiKey.DELETE_GROUPS, group_admin.encode_delete_groups, events)
        return self._submit_all(events, reply, lambda error: 0, ErrorCode.NONE)

    async def _delete_later(self, request: Request, decode: Callable[[], Any], reply: PendingReply) -> None:
        events = await self._long.in_thread(decode)
        answers = await self._gathered(events, reply, lambda error: 0, ErrorCode.NONE)
        encode = partial(group_admin.encode_delete_groups, request.version, request.correlation_id, events)
        reply.send(await self._long.in_thread(partial(encode, answers)))

    # Very many at once.

    def _begin_long(
        self,
        request: Request,
        api_key: ApiKey,
        size_bytes: int,
        work: Callable[[PendingReply], Coroutine[Any, Any, None]],
    ) -> PendingReply:
        self._long.check_room()
        reply = request.reply(api_key, lambda *_: b"")  # it is sent as it is made in the end
        self._long.begin(reply, size_bytes, work(reply))
        return reply

    async def _gathered(
        self, events: Sequence[Any], reply: PendingReply, size_of: Callable[[Any], int], refused: Any
    ) -> Sequence[Any]:
        """The answers to events that are submitted in slices."""
        if not events:
            return []
        gathered = GatheredReply(reply)
        combined = CombinedReply(
            gathered, len(events), self._max_response_bytes, size_of, refused, self.report_too_large
        )
        await self._long.in_slices(self._submit_in_slices(events, combined))
        return await gathered.answers

    def _submit_in_slices(self, events: Sequence[Any], combined: "CombinedReply") -> Slices[None]:
        places: dict[int, list[int]] = {}
        for place, event in enumerate(events):
            places.setdefault(id(event), []).append(place)
        for of_one in places.values():
            self._led_partitions.submit(events[of_one[0]], PartialReply(combined, of_one))
            yield

    def _submit_all(
        self, events: Sequence[Any], reply: PendingReply, size_of: Callable[[Any], int], refused: Any
    ) -> PendingReply:
        """Submit events whose answers together are the reply's; `refused` stands for one that finds no room."""
        if not events:
            reply.answer([])
            return reply
        combined = CombinedReply(reply, len(events), self._max_response_bytes, size_of, refused, self.report_too_large)
        finished(self._submit_in_slices(events, combined))
        return reply

    def report_too_large(self, reply: PendingReply) -> None:
        self._remarks.say(
            f"{reply.connection.peer} asked with one {APIS[reply.api_key].name} for more than an answer may hold; part "
            f"of it was refused (muster.max.response.bytes is {self._max_response_bytes})",
            peer=reply.connection.peer,
        )

    def _find_coordinator(self, request: Request, data: bytes, start: int, end: int) -> PendingReply:
        asked = discovery.decode_find_coordinator(request.version, data, start, end)
        reply = request.reply(ApiKey.FIND_COORDINATOR, discovery.encode_find_coordinator, asked)
        error = discovery.find_refusal(request.version, asked)

        def answer(error: ErrorCode) -> None:
            node = self._cluster.node
            found = discovery.FoundCoordinator(error)
            if error is ErrorCode.NONE:
                found = discovery.FoundCoordinator(error, node.node_id, node.host, node.port)
            if len(asked.keys) > MANY_PARTITIONS:
                self._long.begin(reply, 0, self._long.write(reply, [found] * len(asked.keys)))
            else:
                reply.answer([found] * len(asked.keys))

        if asked.key_type == discovery.KeyType.TRANSACTION and error is ErrorCode.NONE:
            self._when_transactions_are_led(answer)
        else:
            answer(error)
        return reply


def _encode_list(version: int, correlation_id: int, answers: Sequence[ListAnswer]) -> bytes:
    return group_admin.encode_list_groups(version, correlation_id, answers[0])


class CombinedReply:
    """A reply made of the answers to several events, of `max_bytes` at most.

    A client may name a group many times, and Kafka answers each time: the event is the same then, is submitted once,
    and its answer has several places. An answer that finds no room left is replaced by `refused` before the next event
    is submitted, and `too_large` hears of it.
    """

    def __init__(
        self,
        reply: PendingReply,
        count: int,
        max_bytes: int,
        size_of: Callable[[Any], int],
        refused: Any,
        too_large: Callable[[PendingReply], None],
    ) -> None:
        self.reply = reply
        self._answers: list[Any] = [None] * count
        self._left = count
        self._left_bytes = max_bytes
        self._size_of = size_of
        self._refused = refused
        self._too_large = too_large

    def put(self, places: Sequence[int], answer: Any) -> None:
        size_bytes = self._size_of(answer) * len(places)
        if size_bytes <= self._left_bytes:
            self._left_bytes -= size_bytes
        else:
            answer = self._refused
            self._too_large(self.reply)
        for place in places:
            self._answers[place] = answer
        self._left -= len(places)
        if not self._left:
            self.reply.answer(self._answers)


class GatheredReply(PendingReply):
    """Stands for a reply whose answers are awaited, and written elsewhere."""

    def __init__(self, reply: PendingReply) -> None:
        super().__init__(reply.connection, reply.api_key, reply.encode, reply.context)
        self.answers: asyncio.Future[Sequence[Any]] = asyncio.get_running_loop().create_future()

    def answer(self, answer: Any) -> None:
        if not self.answers.done():
            self.answers.set_result(answer)

    def fail(self, error: Exception) -> None:
        if not self.answers.done():
            self.answers.set_exception(error)


class PartialReply:
    """One event's part of a combined reply. It is over with its first answer."""

    __slots__ = ("_combined", "_places")

    def __init__(self, combined: CombinedReply, places: Sequence[int]) -> None:
        self._combined: CombinedReply | None = combined
        self._places = places

    def answer(self, answer: Any) -> None:
        combined, self._combined = self._combined, None  # its reply may know the event, which knows this part
        if combined is not None:
            combined.put(self._places, answer)

    def fail(self, error: Exception) -> None:
        combined, self._combined = self._combined, None
        if combined is not None:
            combined.reply.fail(error)
