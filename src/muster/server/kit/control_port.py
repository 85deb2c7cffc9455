"""The verbs over HTTP, for tests in other languages: `POST /commits` with the arguments as a JSON object.

The answer is `{"answer": ...}`, or with status 400 `{"error": sentence, "kind": class}`. `GET /` lists the verbs. One
request for each connection.

A verb can delete everything, so the port is off by default and on the loopback only. A request must have the token
(`Authorization: Bearer ...`), which no other user of the machine can read; and `Host` must name the loopback, so that
no page in a browser reaches it by a name of its own.
"""

import asyncio
import hmac
import json
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muster.errors import ConfigError

if TYPE_CHECKING:
    from muster.server.kit.verbs import Kit

TOKEN_FILE = "muster-control-token"
TOKEN_VARIABLE = "MUSTER_CONTROL_TOKEN"
HOST = "127.0.0.1"
MOST_HEADER_BYTES = 16 << 10
MOST_BODY_BYTES = 16 << 20
READ_WITHIN_S = 10.0
_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found",
            405: "Method Not Allowed", 413: "Content Too Large", 500: "Internal Server Error"}  # fmt: skip


class Refused(Exception):
    """A request that is not one of ours: its status, and a sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class ControlPort:
    """In the thread of the event loop. `url` is there once it has started."""

    def __init__(self, kit: "Kit", data: Path) -> None:
        self._kit = kit
        self._token_file = data / TOKEN_FILE
        self._token = os.environ.get(TOKEN_VARIABLE) or secrets.token_urlsafe(24)
        self._listener: asyncio.Server | None = None
        self.url = ""
        self._hosts: set[str] = set()

    async def start(self, port: int) -> None:
        """Raises `ConfigError` where the port cannot be had."""
        try:
            self._listener = await asyncio.start_server(self._serve, HOST, port, limit=MOST_HEADER_BYTES)
        except (OSError, OverflowError) as error:
            why = error.strerror if isinstance(error, OSError) else "ports are numbers from 0 to 65535"
            raise ConfigError(
                f"The control port {port} cannot be served: {why}. Choose another --control-port."
            ) from error
        port = self._listener.sockets[0].getsockname()[1]
        self.url = f"http://{HOST}:{port}"
        self._hosts = {f"{host}:{port}" for host in (HOST, "localhost")}
        with os.fdopen(os.open(self._token_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(self._token)

    def stop(self) -> None:
        if self._listener is not None:
            self._listener.close()
        self._token_file.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            status, answer = await self._answered(reader)
        except Refused as refused:
            status, answer = refused.status, {"error": str(refused), "kind": "Refused"}
        except (OSError, EOFError, TimeoutError):
            writer.close()
            return
        except Exception as error:
            status, answer = (
                500,
                {"error": f"a mistake in muster: {type(error).__name__}: {error}", "kind": "Unexpected"},
            )
        body = json.dumps(answer).encode()
        head = f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
        writer.close()

    async def _answered(self, reader: asyncio.StreamReader) -> tuple[int, dict[str, Any]]:
        async with asyncio.timeout(READ_WITHIN_S):
            method, path, headers = await _head(reader)
            self._check(headers)
            body = await _body(reader, headers)
        verb = path.strip("/")
        if not verb:
            if method != "GET":
                raise Refused(405, "GET / lists the verbs; POST /VERB does one.")
            return 200, {"answer": sorted(self._kit.verbs)}
        if verb not in self._kit.verbs:
            raise Refused(404, f"there is no verb {verb!r}; GET / lists them.")
        if method != "POST":
            raise Refused(405, f"POST /{verb} does it, with its arguments as a JSON object.")
        try:
            arguments = json.loads(body or b"{}")
        except (ValueError, RecursionError) as error:
            raise Refused(400, f"the arguments of {verb} are not JSON: {error}.") from error
        if not isinstance(arguments, dict):
            raise Refused(400, f"the arguments of {verb} should be a JSON object, by name.")
        answer = await self._kit.answer({**arguments, "do": verb})
        return (400 if "error" in answer else 200), answer

    def _check(self, headers: dict[str, str]) -> None:
        if headers.get("host", "").lower() not in self._hosts:
            raise Refused(
                403, f"Host is {headers.get('host', 'missing')!r}; it must be {self.url.removeprefix('http://')}."
            )
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not hmac.compare_digest(token.strip().encode(), self._token.encode()):
            raise Refused(
                401, f"the token is missing or wrong; send `Authorization: Bearer ...` with that of {TOKEN_FILE}."
            )


async def _head(reader: asyncio.StreamReader) -> tuple[str, str, dict[str, str]]:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.LimitOverrunError as error:
        raise Refused(413, f"more than {MOST_HEADER_BYTES} bytes of headers.") from error
    first, *lines = head[:-4].split("\r\n")
    parts = first.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        raise Refused(400, "not a request of HTTP/1.1.")
    pairs = [line.partition(":") for line in lines]
    names = [name.strip().lower() for name, _, _ in pairs]
    if len(set(names) & {"host", "authorization", "content-length"}) != sum(
        names.count(name) for name in ("host", "authorization", "content-length")
    ):
        raise Refused(400, "Host, Authorization or Content-Length is there twice.")
    return (
        parts[0],
        parts[1].partition("?")[0],
        {name: pair[2].strip() for name, pair in zip(names, pairs, strict=True)},
    )


async def _body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if "transfer-encoding" in headers:
        raise Refused(400, "the body must come in one piece, with its Content-Length.")
    length = headers.get("content-length", "0")
    if not length.isascii() or not length.isdigit():
        raise Refused(400, f"Content-Length is {length!r}.")
    if int(length) > MOST_BODY_BYTES:
        raise Refused(413, f"a body of {length} bytes; {MOST_BODY_BYTES} are allowed.")
    return await reader.readexactly(int(length))
