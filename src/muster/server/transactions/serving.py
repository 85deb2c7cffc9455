"""Requests about transactions that may name very many things: read and answered at once, or beside all others."""

from collections.abc import Callable
from functools import partial
from typing import Any

from muster.protocol.apis import ApiKey
from muster.server.connection import PendingReply
from muster.server.dispatch import Request
from muster.server.groups.requests import GatheredReply
from muster.server.long_requests import LONG_REQUEST_BYTES, LongRequests
from muster.server.slices import Slices, finished

Decode = Callable[[int, bytes, int, int], Any]
Encode = Callable[[int, int, Any, Any], bytes]
Act = Callable[[Request, Any, PendingReply], Slices[None]]
"""Does what was asked for, in slices, and gives the reply its answer, perhaps later."""


class Serving:
    """Everything here runs in the thread of the event loop; what is long is read and written in another one."""

    def __init__(self, long_requests: LongRequests) -> None:
        self._long = long_requests

    def handler(self, api_key: ApiKey, decode: Decode, act: Act, encode: Encode) -> Callable[..., PendingReply]:
        """A handler of requests, in the table of all."""
        return partial(self._serve, api_key, decode, act, encode)

    def _serve(
        self, api_key: ApiKey, decode: Decode, act: Act, encode: Encode,
        request: Request, data: bytes, start: int, end: int,
    ) -> PendingReply:  # fmt: skip
        read = partial(decode, request.version, data, start, end)
        if end - start > LONG_REQUEST_BYTES:
            self._long.check_room()
            reply = request.reply(api_key, _written_elsewhere)
            self._long.begin(reply, end - start, self._serve_later(request, read, act, encode, reply))
            return reply
        asked = read()
        reply = request.reply(api_key, encode, asked)
        finished(act(request, asked, reply))
        return reply

    async def _serve_later(
        self, request: Request, read: Callable[[], Any], act: Act, encode: Encode, reply: PendingReply
    ) -> None:
        asked = await self._long.in_thread(read)
        gathered = GatheredReply(reply)
        await self._long.in_slices(act(request, asked, gathered))
        answer = await gathered.answers
        frame = partial(encode, request.version, request.correlation_id, asked, answer)
        reply.send(await self._long.in_thread(frame))


def _written_elsewhere(*_: Any) -> bytes:
    raise AssertionError("a long reply is sent as it was written")
