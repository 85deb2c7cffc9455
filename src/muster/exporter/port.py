"""Answers `GET /metrics` in threads of its own."""

import gzip
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from muster.errors import ConfigError
from muster.exporter.page import CONTENT_TYPE

PATHS = ("/metrics", "/")
GZIP_LEVEL = 1
"""Names repeat: a page of 10 MB becomes a few hundred KB, and even this level costs most of a scrape."""
SLOWEST_CLIENT_S = 30.0


class MetricsPort:
    """A port, 0 for a free one. `ConfigError` if it cannot be had."""

    def __init__(self, host: str, port: int, text: Callable[[], bytes]) -> None:
        try:
            self._http = _Server((host, port), _handler(text))
        except (OSError, OverflowError) as error:
            why = error.strerror if isinstance(error, OSError) else "ports are numbers from 0 to 65535"
            raise ConfigError(f"Nobody can be served at {host}:{port}: {why}. Choose another --listen.") from error
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._http.server_port}/metrics"
        self._thread = threading.Thread(target=self._http.serve_forever, name="muster-metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False


def _handler(text: Callable[[], bytes]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = SLOWEST_CLIENT_S

        def do_GET(self) -> None:
            if self.path.partition("?")[0] not in PATHS:
                self.send_error(404)
                return
            body = text()
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            if "gzip" in self.headers.get("Accept-Encoding", ""):
                body = gzip.compress(body, GZIP_LEVEL)
                self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Scrapes are nobody's news."""

    return Handler
