"""From the bytes of a request to the handler of its API.

The plain path: `Dispatch.handle` reads the header, looks the API up in the table of handlers, and calls it. Requests
about groups and transactions become events for their coordinators (`groups/requests.py`, `transactions/requests.py`);
requests about the cluster and its records are answered from what this node knows (`cluster_requests.py`). A handler
makes a `PendingReply` and answers it, now or later.

Clients repeat themselves, so most requests of the hot APIs do not come this way: `repeated_requests.py` stands before
`Dispatch.handle`, and recognises those that begin with the same bytes as the last one.
"""

from collections.abc import Callable, Mapping
from typing import Any

from muster.protocol.apis import APIS, ApiKey, served
from muster.protocol.errors import NotServed
from muster.protocol.messages import decode_header
from muster.server.connection import Connection, PendingReply
from muster.server.wire import discovery

CORRELATION_ID_END = 8
"""Behind the API key, the version and the correlation id, from where a request begins."""


class Request:
    """The header of a request, and the connection it came from."""

    __slots__ = ("client_id", "connection", "correlation_id", "start", "version")

    def __init__(self, connection: Connection, version: int, correlation_id: int, client_id: str, start: int) -> None:
        self.connection = connection
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.start = start
        """Where the header goes on behind the correlation id."""

    def reply(
        self, api_key: int, encode: Callable[..., bytes], *more: Any, group_id: str | None = None
    ) -> PendingReply:
        """A place for the reply; `encode(version, correlation_id, *more, answer)` will make its bytes."""
        return self.connection.reply(api_key, _encode, (encode, self.version, self.correlation_id, *more), group_id)


def _encode(context: tuple[Any, ...], answer: Any) -> bytes:
    frame: bytes = context[0](*context[1:], answer)
    return frame


Handler = Callable[[Request, bytes, int, int], PendingReply | None]
"""The request's header, the data, where the body begins in it, and where it ends.

It returns its reply if that has to be made before the next request of the same connection is looked at (a join, a sync,
a fetch); None from the hot APIs, whose answers are small and made quickly.
"""


class Dispatch:
    """`handlers` has one for each API that is served, but for ApiVersions, which lists them."""

    def __init__(self, handlers: Mapping[int, Handler]) -> None:
        self._handlers: dict[int, Handler] = {**handlers, ApiKey.API_VERSIONS: self._api_versions}

    def handle(self, connection: Connection, data: bytes, position: int, end: int) -> PendingReply | None:
        """Handle one request. `WireError` if it is not one, and the client is sent away, as Kafka does."""
        api_key, version, correlation_id, client_id, body = decode_header(data, position, end)
        handler = self._handlers.get(api_key)
        if handler is None:
            raise NotServed(f"{APIS[api_key].name} is not served here")
        if api_key != ApiKey.API_VERSIONS:
            served(api_key, version)
        start = position + CORRELATION_ID_END
        return handler(Request(connection, version, correlation_id, client_id, start), data, body, end)

    def _api_versions(self, request: Request, data: bytes, start: int, end: int) -> None:
        version, correlation_id = request.version, request.correlation_id
        if not discovery.is_served(version):
            frame = discovery.encode_unsupported(correlation_id)
        elif not discovery.is_proper(version, discovery.decode_api_versions(version, data, start, end)):
            frame = discovery.encode_improper(version, correlation_id)
        else:
            frame = discovery.encode_api_versions(version, correlation_id, self._handlers, discovery.FEATURES)
        request.connection.reply(ApiKey.API_VERSIONS, lambda frame, _: frame, frame).answer(None)
