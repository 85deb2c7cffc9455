"""Answers GET requests over HTTP in threads of its own: read-only, and packed for those who take it."""

import gzip
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from muster.errors import ConfigError

GZIP_LEVEL, WORTH_PACKING = 1, 2000
"""Names repeat: 10 MB become a few hundred KB, and even this level costs most of an answer."""
SLOWEST_CLIENT_S = 30.0
MOST_CLIENTS = 200
"""Connections at a time, each with a thread; a browser keeps six of them open for a while."""
BUSY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 18\r\nConnection: close\r\n\r\nToo many clients.\n"


class Reply(NamedTuple):
    status: int
    content_type: str
    body: bytes
    headers: Mapping[str, str] = {}


HasLeft = Callable[[], bool]
"""Whether the client has closed the connection, and waits no more."""
Answer = Callable[[str, str, HasLeft], Reply]
"""What is answered to a path with its query, by the name that the server was called (the header Host)."""


class HttpPort:
    """A port, 0 for a free one. `ConfigError` if it cannot be had: it names the option that chooses another."""

    def __init__(self, host: str, port: int, answer: Answer, option: str) -> None:
        try:
            self._http = _Server((host, port), _handler(answer))
        except (OSError, OverflowError) as error:
            why = error.strerror if isinstance(error, OSError) else "ports are numbers from 0 to 65535"
            raise ConfigError(f"cannot listen on {host}:{port}: {why}. Choose another {option}.") from error
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._http.server_port}/"
        self._thread = threading.Thread(target=self._http.serve_forever, name="muster-http", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._room = threading.Semaphore(MOST_CLIENTS)
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """In a thread of its own, if there is room for one more."""
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
            return
        with suppress(OSError):
            request.setblocking(False)
            request.send(BUSY)
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """The client has gone away: no traceback for that."""


def _handler(answer: Answer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = SLOWEST_CLIENT_S
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send(answer(self.path, self.headers.get("Host", ""), self._has_left))

        do_HEAD = do_GET

        def _send(self, reply: Reply) -> None:
            body = reply.body
            self.send_response(reply.status)
            self.send_header("Content-Type", reply.content_type)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            if len(body) > WORTH_PACKING and "gzip" in self.headers.get("Accept-Encoding", ""):
                body = gzip.compress(body, GZIP_LEVEL)
                self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def _has_left(self) -> bool:
            self.connection.setblocking(False)
            try:
                return not self.connection.recv(1, socket.MSG_PEEK)
            except BlockingIOError:
                return False
            except OSError:
                return True
            finally:
                self.connection.settimeout(self.timeout)

        def version_string(self) -> str:
            return "muster"

        def log_message(self, format: str, *args: object) -> None:
            """Requests are not logged."""

    return Handler
