"""The short way for requests that a client repeats.

Of a consumer's heartbeats only the correlation id changes, of its commits the offsets too. So each connection remembers
the bytes of the last request of each hot API (Heartbeat, OffsetCommit, OffsetFetch) beside what they meant, and the
next one that begins with the same bytes is not decoded again. Handlers of the plain path (`groups/requests.py`) say
what to remember. It holds until a topic changes: names and ids of topics are part of the meaning.

`handle` stands before `Dispatch.handle`, which gets every request that is not recognised here.
"""

from collections.abc import Callable
from struct import Struct
from typing import Any, NamedTuple

from muster.core.events import Heartbeat, OffsetCommit, OffsetFetch
from muster.protocol.apis import ApiKey
from muster.server.cluster.topics import TopicChange
from muster.server.connection import Connection, PendingReply
from muster.server.connections import Handle
from muster.server.dispatch import CORRELATION_ID_END, Request
from muster.server.led_partitions import LedGroups
from muster.server.wire import TopicNames
from muster.server.wire.heartbeat import encode_heartbeat
from muster.server.wire.offset_commit import CommitHead, decode_partitions, encode_offset_commit

MOST_REMEMBERED, MOST_REMEMBERED_BYTES = 8, 1024
"""Of one connection: requests, and bytes of one."""
_read_start = Struct(">ii").unpack_from  # API key and version as one number, and the correlation id
# Members of an enum cost a lookup each time they are named.
_HEARTBEAT, _OFFSET_COMMIT, _OFFSET_FETCH = int(ApiKey.HEARTBEAT), int(ApiKey.OFFSET_COMMIT), int(ApiKey.OFFSET_FETCH)

Repeat = Callable[[Connection, int, Any, bytes, int, int], bool]
"""Handles a request that begins like the last one: its connection and correlation id, what the beginning means, the
data, where it goes on behind the beginning, and where it ends. False if it cannot, and the plain path has to."""


class Remembered(NamedTuple):
    said: bytes
    """Everything behind the correlation id that must be the same again."""
    topics_version: int
    repeat: Repeat
    meaning: Any


class RepeatedRequests:
    """Recognises requests that repeat an earlier one of the same connection."""

    def __init__(
        self,
        led_partitions: LedGroups,
        names: TopicNames,
        encode_fetch: Callable[[Any, Any], bytes],
    ) -> None:
        self._submit = led_partitions.submit
        self._partition_of = led_partitions.router.partition_of
        self._names = names
        self._encode_fetch = encode_fetch
        self._topics_version = 0

    def topic_changed(self, change: TopicChange) -> None:
        self._topics_version += 1

    def before(self, plain: Handle) -> Handle:
        """A function that handles repeated requests, and hands the others to `plain`."""

        def handle(connection: Connection, data: bytes, position: int, end: int) -> PendingReply | None:
            start = position + CORRELATION_ID_END
            if start <= end:
                kind, correlation_id = _read_start(data, position)
                remembered = connection.remembered.get(kind)
                if remembered is not None:
                    said, topics_version, repeat, meaning = remembered
                    if (
                        data.startswith(said, start)
                        and topics_version == self._topics_version
                        and repeat(connection, correlation_id, meaning, data, start + len(said), end)
                    ):
                        return None
            reply: PendingReply | None = plain(connection, data, position, end)
            return reply

        return handle

    # What handlers of the plain path ask to be remembered.

    def remember_heartbeat(self, request: Request, data: bytes, end: int, event: Heartbeat) -> None:
        # A heartbeat is over when it is handled, so one event serves for all that say the same.
        self._remember(request, data, end, self._heartbeat, (event, request.version, self._partition_of(event)))

    def remember_commit(
        self, request: Request, data: bytes, head_end: int, head: CommitHead, event: OffsetCommit
    ) -> None:
        self._remember(request, data, head_end, self._offset_commit, (head, self._partition_of(event)))

    def remember_fetch(self, request: Request, data: bytes, end: int, event: OffsetFetch, groups: Any) -> None:
        meaning = event, request.version, groups, self._partition_of(event)
        self._remember(request, data, end, self._offset_fetch, meaning)

    def _remember(self, request: Request, data: bytes, end: int, repeat: Repeat, meaning: Any) -> None:
        """What a request says from behind its correlation id to `end`, how to handle it again, and what it means."""
        start = request.start
        if end - start <= MOST_REMEMBERED_BYTES:
            remembered = request.connection.remembered
            if len(remembered) >= MOST_REMEMBERED:  # a client speaks one version of an API; this one tries them all
                remembered.clear()
            kind, _ = _read_start(data, start - CORRELATION_ID_END)
            remembered[kind] = Remembered(data[start:end], self._topics_version, repeat, meaning)

    # Repetitions.

    def _heartbeat(
        self,
        connection: Connection,
        correlation_id: int,
        meaning: tuple[Heartbeat, int, int],
        data: bytes,
        position: int,
        end: int,
    ) -> bool:
        if position != end:
            return False
        event, version, partition = meaning
        context = version, correlation_id
        self._submit(event, connection.reply(_HEARTBEAT, encode_heartbeat, context, event.group_id), partition)
        return True

    def _offset_commit(
        self,
        connection: Connection,
        correlation_id: int,
        meaning: tuple[CommitHead, int],
        data: bytes,
        position: int,
        end: int,
    ) -> bool:
        head, partition = meaning
        decoded = decode_partitions(head, correlation_id, data, position, end, self._names)
        if decoded is None:
            return False
        event, context = decoded
        self._submit(event, connection.reply(_OFFSET_COMMIT, encode_offset_commit, context, event.group_id), partition)
        return True

    def _offset_fetch(
        self,
        connection: Connection,
        correlation_id: int,
        meaning: tuple[OffsetFetch, int, Any, int],
        data: bytes,
        position: int,
        end: int,
    ) -> bool:
        if position != end:
            return False
        event, version, groups, partition = meaning
        context = version, correlation_id, groups
        self._submit(event, connection.reply(_OFFSET_FETCH, self._encode_fetch, context, event.group_id), partition)
        return True
