"""Serves pages over HTTP: read-only, to those that call it by a name that it has.

A page of another site can make a browser ask any address. It cannot read the answers, unless its own name is pointed at
this machine (DNS rebinding): so a request must name an address, `localhost`, or a host that was allowed. Scripts and
styles come from here alone (Content-Security-Policy), and what clients have written reaches a page only as text.
"""

import gzip
import ipaddress
import json
import threading
from collections.abc import Collection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from muster.errors import ConfigError, MusterError, Unexpected
from muster.pages.runs import Runs
from muster.pages.shell import STATIC, as_json, served_page, static_file
from muster.pages.site import NotAsked, NotThere, page

TWIN = ".json"
PAGES = {"/": "overview", "/overview": "overview", "/group": "group", "/topic": "topic", "/findings": "findings"}
JSON, HTML = "application/json; charset=utf-8", "text/html; charset=utf-8"
GZIP_LEVEL, WORTH_PACKING = 1, 2000
SLOWEST_CLIENT_S = 30.0
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Reply(NamedTuple):
    status: int
    content_type: str
    body: bytes


def is_known_host(host: str, allowed: Collection[str]) -> bool:
    """Whether a request's Host header names this server: an address, `localhost`, or a name that was allowed."""
    try:
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return False
    if name == "localhost" or name in allowed:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def reply_to(runs: Runs, target: str) -> Reply:
    """What a path and its query are answered with."""
    path, _, text = target.partition("?")
    if path.startswith(STATIC):
        return _static(path)
    is_twin = path.endswith(TWIN)
    name = PAGES.get(path.removesuffix(TWIN), "")
    query = dict(parse_qsl(text, keep_blank_values=True, errors="replace"))
    status, content = _content(runs, name, query)
    if is_twin:
        return Reply(status, JSON, content)
    return Reply(status, HTML, served_page(content))


def _content(runs: Runs, name: str, query: dict[str, str]) -> tuple[int, bytes]:
    """A page as JSON. What goes wrong is a page, too: one sentence."""
    try:
        with runs.asked() as (shown, tables):
            key = name, tuple(sorted(query.items())), shown.totals and (shown.totals.run_id, shown.totals.done)
            return 200, shown.kept(key, lambda: as_json(page(name, tables, shown.totals, query)))
    except NotThere as error:
        return 404, _sentence(error)
    except NotAsked as error:
        return 400, _sentence(error)
    except (MusterError, OSError) as error:
        return 503, _sentence(error)


def _sentence(error: Exception) -> bytes:
    return json.dumps({"page": "error", "sentence": str(error)}).encode()


def _static(path: str) -> Reply:
    found = static_file(path.removeprefix(STATIC))
    if found is None:
        return Reply(404, "text/plain; charset=utf-8", b"There is no such file.\n")
    return Reply(200, *found)


class PagesPort:
    """A port, 0 for a free one. `ConfigError` if it cannot be had."""

    def __init__(self, host: str, port: int, runs: Runs, allowed: Collection[str] = ()) -> None:
        names = {name.lower() for name in (host, *allowed)}
        try:
            self._http = _Server((host, port), _handler(runs, names))
        except (OSError, OverflowError) as error:
            why = error.strerror if isinstance(error, OSError) else "ports are numbers from 0 to 65535"
            raise ConfigError(f"Nobody can be served at {host}:{port}: {why}. Choose another --port.") from error
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._http.server_port}/"
        self._thread = threading.Thread(target=self._http.serve_forever, name="muster-pages", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Until it is closed."""
        self._thread.join()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever asked has gone away."""


def _handler(runs: Runs, names: Collection[str]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = SLOWEST_CLIENT_S
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if not is_known_host(self.headers.get("Host", ""), names):
                self._send(Reply(421, JSON, _sentence(ValueError("this server is not called that."))))
                return
            try:
                reply = reply_to(runs, self.path)
            except Exception as error:  # a mistake of ours is a page, too
                reply = Reply(500, JSON, _sentence(Unexpected(f"something unexpected happened: {error!r}")))
            self._send(reply)

        do_HEAD = do_GET

        def _send(self, reply: Reply) -> None:
            body = reply.body
            self.send_response(reply.status)
            self.send_header("Content-Type", reply.content_type)
            for name, value in HEADERS.items():
                self.send_header(name, value)
            if len(body) > WORTH_PACKING and "gzip" in self.headers.get("Accept-Encoding", ""):
                body = gzip.compress(body, GZIP_LEVEL)
                self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def version_string(self) -> str:
            return "muster"

        def log_message(self, format: str, *args: object) -> None:
            """Requests are nobody's news."""

    return Handler
