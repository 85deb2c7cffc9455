"""One client: frames in, answers out in the order of the requests, and limits on everything in between.

Requests are handled as they come, many in one turn; an answer waits for those before it. A request that waits (a
join, a sync, a fetch that waits for data) holds up all that follow it on its connection, as in Kafka, which handles one
at a time; behind a commit that only waits for the disk the next ones go on.

While a client does not read its answers, or holds up its own requests, nothing more is read from it: its requests stay
in its own socket buffer. The same holds while there is no memory for a large request (`connections.py`). A client that
sends a great many requests at once has them handled a few milliseconds' worth at a time, so that others get their turn
in between. If a turn of the loop has been a long one already, requests wait for a later one, but for small ones of
group members (`OF_MEMBERS`): a request of few bytes may ask for much, such as a fetch of a session of all partitions.
"""

import asyncio
import socket
import sys
from collections import deque
from collections.abc import Callable
from struct import Struct
from time import monotonic
from typing import Any, cast

from muster.errors import MusterError
from muster.protocol.apis import APIS, ApiKey
from muster.server.connections import RESERVE_BYTES, TURN_S, Connections, NotNow

_read_size = Struct(">i").unpack_from
WRITE_HIGH_BYTES = 256 << 10
LARGE_ANSWER_BYTES = 64 << 10
MAX_WAITING_BYTES = 4 << 20
"""Of requests whose answers are awaited, and of large answers that wait for those before them."""
_ENDED_BY_PEER = (7, 8)
"""States of a socket as Linux counts them: closed, and waiting to be closed here."""
LOOK_AT_THE_CLOCK_EVERY = 16
"""Requests of the hot APIs; after any other, and after a large one, always."""
LARGE_REQUEST_BYTES = 1 << 10
OF_MEMBERS = frozenset(
    api_key.to_bytes(2, "big")
    for api_key in (
        ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.FIND_COORDINATOR, ApiKey.JOIN_GROUP, ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP, ApiKey.SYNC_GROUP, ApiKey.API_VERSIONS,
    )
)  # fmt: skip
"""APIs whose small requests never wait for others: a member that is not heard in time is expelled."""
LARGE_PIECE_BYTES = 16 << 10
"""Of a request that comes in pieces, those that are kept as they come; smaller ones are gathered, or a client that
sends byte by byte would have an object kept for each."""
"""One below that has a few hundred elements at most."""


def _can_wait(data: bytes, start: int, size: int) -> bool:
    return size > LARGE_REQUEST_BYTES or data[start : start + 2] not in OF_MEMBERS


class PendingReply:
    """A reply that will be made, and its place in the order of its connection.

    `encode(context, answer)` makes the frame. One object is made for each request, so it has a function and what to
    call it with, where a closure would be one object more. The event of a request knows its pending reply; the reply
    does not know the event, so the two are freed without a search for cycles.
    """

    __slots__ = ("api_key", "connection", "context", "encode", "frame", "group_id", "since")

    def __init__(
        self,
        connection: "Connection",
        api_key: int,
        encode: Callable[[Any, Any], bytes],
        context: Any,
        group_id: str | None = None,
    ) -> None:
        self.connection = connection
        self.api_key = api_key
        self.since = connection.taken_at
        self.encode = encode
        self.context = context
        self.group_id = group_id
        self.frame: bytes | None = None

    def answer(self, answer: Any) -> None:
        """Never raises: an answer that cannot be encoded ends its own connection, and no other."""
        try:
            self.frame = self.encode(self.context, answer)
        except Exception as error:
            self.fail(error)
            return
        connection = self.connection
        if not connection.is_sending_soon:
            connection.is_sending_soon = True
            connection.host.send_soon(connection)

    def send(self, frame: bytes) -> None:
        """The reply as it was made elsewhere."""
        self.encode = _as_it_is
        self.answer(frame)

    def fail(self, error: Exception) -> None:
        """The reply cannot be made. Those behind it would wait for it for ever, so the connection ends."""
        api, group_id = APIS[self.api_key].name, self.group_id
        about = "" if group_id is None else f" about group {group_id}"
        self.connection.fail(f"the answer to its {api}{about} could not be made", error, api=api, group=group_id or "")


def _as_it_is(context: Any, frame: bytes) -> bytes:
    return frame


class Connection(asyncio.Protocol):
    def __init__(self, host: Connections, loop: asyncio.AbstractEventLoop) -> None:
        self.host = host
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self.peer = ""
        self.client_host = "/"
        self.last_heard = 0.0
        self.taken_at = 0.0
        """When the requests that are being handled were taken from the buffer, by the loop's clock."""
        self.member: tuple[str, str] | None = None
        """The group and member id of the last SyncGroup."""
        self.remembered: dict[int, Any] = {}
        """What the last request of each hot API looked like: see `repeated_requests.py`."""
        self._held: list[bytes | bytearray] = []
        """What has come and is not handled yet: part of a request, or requests that are held up."""
        self._held_bytes = 0
        self._needed = 4
        self.unfinished_since: float | None = None
        self._replies: deque[PendingReply] = deque()
        self._waiting_bytes = 0
        self._out: list[bytes] = []
        self._blocked: PendingReply | None = None
        self.is_sending_soon = False
        """Whether what is answered will be sent in this turn anyway."""
        self._is_yielding = False
        self._has_turn = False
        """Whether it has waited for this turn of the loop: its next request is handled in it."""
        self.had_s, self.had_in = 0.0, 0
        self._is_full = False
        self._is_muted = False
        self._is_paused = False
        """Whether nothing is read, because of any of those; `_settle_reading` sees to it."""
        self.full_since: float | None = None
        """Since when the client has not read what we wrote; None while it does."""

    # The loop's calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are not a subclass of it
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        peer = transport.get_extra_info("peername")
        self.peer = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else str(peer or "")
        self.client_host = f"/{peer[0]}" if isinstance(peer, tuple) else "/"
        self.last_heard = self._loop.time()
        if not self.host.opened(self):
            self._transport.abort()
            self._transport = None

    def tune(self, send_bytes: int, receive_bytes: int) -> None:
        """The system's buffers; -1 leaves a size to the system."""
        assert self._transport is not None
        connected = self._transport.get_extra_info("socket")
        for option, size_bytes in ((socket.SO_SNDBUF, send_bytes), (socket.SO_RCVBUF, receive_bytes)):
            if connected is not None and size_bytes != -1:
                connected.setsockopt(socket.SOL_SOCKET, option, size_bytes)

    @property
    def file_number(self) -> int:
        """The system's; -1 if it is not known."""
        connected = None if self._transport is None else self._transport.get_extra_info("socket")
        return -1 if connected is None else int(connected.fileno())

    @property
    def has_left(self) -> bool:
        """Whether the client has hung up while one of its requests waits. Nothing is read then, not even the end."""
        if self._blocked is None or self.file_number < 0 or sys.platform != "linux":
            return False
        assert self._transport is not None
        connected = self._transport.get_extra_info("socket")
        return connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] in _ENDED_BY_PEER

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._forget()
        self.host.unread.drained(self)
        self._replies.clear()
        self._out.clear()
        self.remembered.clear()
        self.host.closed(self)

    def data_received(self, data: bytes) -> None:
        self.last_heard = self._loop.time()
        if self._held or self._is_paused:
            self._hold(data)
            if self._held_bytes < self._needed or self._is_held_up:
                return
            data = self._let_go()
        self._take(data)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._is_full = True
        self.full_since = self._loop.time()
        self._settle_reading()
        if self._transport is not None:
            self.host.unread.full(self, self._transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._is_full = False
        self.full_since = None
        self.host.unread.drained(self)
        self._go_on()

    # Requests.

    def _take(self, data: bytes) -> None:
        """Handle every whole frame, until one has to be waited for."""
        position, end = 0, len(data)
        handle, replies = self.host.handle, self._replies
        max_bytes, max_waiting = self.host.max_request_bytes, self.host.max_waiting
        turns, began = self.host.turns, monotonic()
        taken, enough, gives_way, is_late = 0, began + TURN_S, False, turns.is_long
        is_sending_soon, self.is_sending_soon = self.is_sending_soon, True  # at the end of this
        self.taken_at = self._loop.time()
        self._needed = 4
        while end - position >= 4 and self._transport is not None:
            (size,) = _read_size(data, position)
            if not 0 <= size <= max_bytes:
                self.drop(f"a request of {size} bytes; {max_bytes} are allowed")
                return
            after = position + 4 + size
            if after > end:
                self._needed = 4 + size
                break
            if is_late and not (self._has_turn and not taken) and _can_wait(data, position + 4, size):
                gives_way = True
                break
            try:
                waits_for = handle(self, data, position + 4, after)
            except NotNow as later:
                self._is_yielding = True
                later.wait(self.take_turn)
                break
            except MusterError as error:
                turns.spend(monotonic() - began, self)
                self.drop(str(error))
                return
            except Exception as error:
                turns.spend(monotonic() - began, self)
                self.fail("its request could not be handled", error)
                return
            position = after
            if waits_for is not None:
                frame = waits_for.frame
                if frame is None:
                    self._blocked = waits_for
                    break
                if len(frame) > LARGE_ANSWER_BYTES:
                    self._waiting_bytes += len(frame)
                    self._send()
                    if self._is_held_up:
                        break
            if len(replies) >= max_waiting:
                self._collect()
                if len(replies) >= max_waiting:
                    break
            taken += 1
            is_time_to_look = waits_for is not None or not taken % LOOK_AT_THE_CLOCK_EVERY or size > LARGE_REQUEST_BYTES
            if is_time_to_look and position < end and monotonic() > enough:
                gives_way = True
                break
        turns.spend(monotonic() - began, self)
        if gives_way:
            self._is_yielding = True
            turns.wait(self)
        self.is_sending_soon = is_sending_soon
        self._waiting_bytes += position
        if not replies:  # all were answered and sent on the way: nothing waits
            self._waiting_bytes = 0
        if self._out or (replies and replies[0].frame is not None):
            self._send()
        self.unfinished_since = None
        if position < end and self._transport is not None:
            if not self._is_held_up:
                self.unfinished_since = self.taken_at
            self._hold(data[position:] if position else data)
        self._settle_reading()

    def take_turn(self) -> None:
        """It has waited for this turn of the loop."""
        self._is_yielding, self._has_turn = False, True
        self._go_on()
        self._has_turn = False

    def _hold(self, data: bytes) -> None:
        """Keep bytes that cannot be handled yet."""
        if len(data) >= LARGE_PIECE_BYTES:
            self._held.append(data)
        elif self._held and type(self._held[-1]) is bytearray:
            self._held[-1] += data
        else:
            self._held.append(bytearray(data))
        self._held_bytes += len(data)
        if self._held_bytes > RESERVE_BYTES and not self.host.intake.borrow(self, self._held_bytes):
            self._is_muted = True
            self._settle_reading()

    def _let_go(self) -> bytes:
        """What was held, to be handled now."""
        data = b"".join(self._held)
        self._forget()
        return data

    def _forget(self) -> None:
        if self._held_bytes > RESERVE_BYTES:
            self.host.intake.give_back(self)
            self._is_muted = False
        self._held, self._held_bytes = [], 0
        self.unfinished_since = None

    def unmute(self) -> None:
        """There is room for more of a large request."""
        self._is_muted = False
        self._settle_reading()

    @property
    def _is_held_up(self) -> bool:
        if self._is_full or self._is_yielding or self._blocked is not None:
            return True
        return len(self._replies) >= self.host.max_waiting or self._waiting_bytes > MAX_WAITING_BYTES

    def _settle_reading(self) -> None:
        """Read on while the client is there, nothing holds the next request up, and there is room for it."""
        if self._transport is None:
            return
        waits = self._is_muted or self._is_held_up
        if waits and not self._is_paused:
            self._transport.pause_reading()
        elif not waits and self._is_paused:
            self._transport.resume_reading()
        self._is_paused = waits

    def _go_on(self) -> None:
        """The request that held up the next ones may be answered: handle them."""
        is_reading_already = not self._is_paused and not self._held
        if is_reading_already or self._transport is None or self._is_held_up:
            return
        if self._held and self._held_bytes >= self._needed:
            self._take(self._let_go())
        else:
            if self._held and self.unfinished_since is None:
                self.unfinished_since = self._loop.time()
            self._settle_reading()

    # Answers.

    def reply(
        self, api_key: int, encode: Callable[[Any, Any], bytes], context: Any, group_id: str | None = None
    ) -> PendingReply:
        """A place for the reply to the request at hand."""
        reply = PendingReply(self, api_key, encode, context, group_id)
        self._replies.append(reply)
        return reply

    def wait_instead(self, place: PendingReply, waits_for: PendingReply | None) -> None:
        """A reply that held a place is empty; the connection waits for another one, if for any, before it goes on."""
        if waits_for is not None and waits_for.frame is None and self._blocked is place:
            self._blocked = waits_for
        place.answer(None)

    def send_answers(self) -> None:
        """Send all that is answered by now, in one go, and handle the requests that waited for it."""
        self.is_sending_soon = False
        if self._blocked is not None and self._blocked.frame is not None:
            self._blocked = None
        self._send()
        self._go_on()

    def _collect(self) -> None:
        """Take the answers from the front of the row. Requests that were taken together are measured together."""
        replies, out = self._replies, self._out
        api_key, since, count = -1, 0.0, 0
        while replies:
            reply = replies[0]
            frame = reply.frame
            if frame is None:
                break
            del replies[0]
            out.append(frame)
            if reply.api_key == api_key and reply.since == since:
                count += 1
                continue
            if count:
                self.host.stats.request(api_key, self._loop.time() - since, count)
            api_key, since, count = reply.api_key, reply.since, 1
        if count:
            self.host.stats.request(api_key, self._loop.time() - since, count)
        if not replies:
            self._waiting_bytes = 0

    def _send(self) -> None:
        self._collect()
        if self._out and self._transport is not None:
            out, self._out = self._out, []
            was_full = self._is_full  # one answer may be as large as it is, if those before it have been read
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))
            if was_full and self._transport.get_write_buffer_size() > self.host.max_unsent_bytes:
                self.drop(f"it has not read {self.host.max_unsent_bytes} bytes of answers")

    # The end.

    def drop(self, problem: str) -> None:
        """Send a client away that misbehaves."""
        if self._transport is not None:
            self.host.complain(self, problem)
            self._transport.abort()
            self._transport = None
            self._forget()

    def cut(self) -> None:
        """End it without a word."""
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    def fail(self, problem: str, error: Exception, **fields: str) -> None:
        """Send a client away because of a mistake that is not its own."""
        if self._transport is not None:
            self.host.fault(f"{self.peer} was sent away: {problem}", error, peer=self.peer, **fields)
            self._transport.abort()
            self._transport = None

    def close(self) -> None:
        """Send what is answered, then hang up."""
        if self._transport is not None:
            self._send()
            self._transport.close()

    @property
    def is_closed(self) -> bool:
        return self._transport is None

    @property
    def is_waiting(self) -> bool:
        return bool(self._replies)
