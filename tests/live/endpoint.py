"""A token endpoint of OpenID Connect, in a few lines."""

import base64
import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import parse_qs

OIDC = {"sasl.oauthbearer.method": "oidc"}
CLIENT = OIDC | {"sasl.oauthbearer.client.id": "me", "sasl.oauthbearer.client.secret": "s:ecret"}


def jwt(**claims: Any) -> str:
    """A token that is not signed."""
    parts = [json.dumps(part).encode() for part in ({"alg": "none"}, claims)]
    return ".".join([base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts] + [""])


class Endpoint:
    """Notes what it is asked, and answers what a test wants: the next of `answers`, or what is `usual`."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.usual: tuple[int, bytes] = (500, b"")
        self.answers: list[tuple[int, bytes]] = []
        self.headers: list[dict[str, str]] = []
        self.bodies: list[dict[str, list[str]]] = []
        self.paths: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                outer.headers.append({name.lower(): value for name, value in self.headers.items()})
                outer.bodies.append(parse_qs(body.decode(), strict_parsing=bool(body)))
                outer.paths.append(self.path)
                status, answer = outer.answers.pop(0) if outer.answers else outer.usual
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_POST

            def log_message(self, *_: Any) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        scheme = "http" if context is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_port}/token"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def will_say(self, status: int = 200, **answer: Any) -> None:
        self.answers.append((status, json.dumps(answer).encode()))

    def settings(self, **more: str) -> dict[str, str]:
        return CLIENT | {"sasl.oauthbearer.token.endpoint.url": self.url} | more

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
