"""One connection to one broker: TCP, TLS, the versions it speaks, SASL; then one question and one answer at a time.

Everything waits for a bounded time and for a bounded size. What goes wrong is a `ClusterUnreachable` (no answer: try
again, or elsewhere), a `ClusterRefused` (an answer, and it is no), or a `ClusterError` (an answer that makes no sense).
A connection that failed is closed and of no further use.
"""

import queue
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from muster.codec.layouts import StructData
from muster.errors import ClusterError, ClusterRefused, ClusterUnreachable, CodecError, Malformed
from muster.live.requests import SPOKEN, Response, error_name
from muster.live.sasl import Sasl, authenticate
from muster.live.settings import Address, ClientSettings, reason
from muster.live.tokens import Token
from muster.protocol.apis import APIS, ApiKey
from muster.protocol.errors import WireError
from muster.protocol.messages import decode_response_body, decode_response_header, encode_request

SLACK_BYTES = 64
"""Spare bytes behind every answer (in the object of its memoryview), which the kernels of `codec/columns` ask for."""
LONGEST_THROTTLE_S = 30.0
_SESSION_SHARE = 0.8
_TLS_ALERT = b"\x15\x03"
_HTTP = b"HTTP"
_UNSUPPORTED_SASL_MECHANISM, _ILLEGAL_SASL_STATE = 33, 34

Answer = TypeVar("Answer")


class Connection:
    """Connected, authenticated, and told which versions the broker speaks, or an exception of the families above."""

    def __init__(self, address: Address, settings: ClientSettings, timeout_s: float | None = None) -> None:
        """`timeout_s` is for all of it: the name, TCP, TLS, SASL."""
        self.address = address
        self._settings = settings
        self._correlation_id = 0
        self._answered = 0
        self._not_before = 0.0
        self._expires = float("inf")
        self._versions: dict[int, tuple[int, int]] = {}
        deadline = time.monotonic() + (settings.request_timeout_s if timeout_s is None else timeout_s)
        self._socket = self._connected(deadline)
        try:
            self._negotiate(deadline)
            if settings.sasl is not None:
                self._authenticate(deadline)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    @property
    def is_usable(self) -> bool:
        """Not closed, and not about to be: a broker ends sessions whose time is over."""
        return self._socket.fileno() >= 0 and time.monotonic() < self._expires

    # --- opening ---

    def _connected(self, deadline: float) -> socket.socket:
        plain = self._connected_plain(deadline)
        context = self._settings.tls
        if context is None:
            return plain
        try:
            plain.settimeout(self._left(deadline))
            return context.wrap_socket(plain, server_hostname=self.address.host)
        except (OSError, ValueError) as problem:
            plain.close()
            raise self._tls_failed(problem) from None

    def _connected_plain(self, deadline: float) -> socket.socket:
        host, port = self.address.host, self.address.port
        limit = min(deadline, time.monotonic() + self._settings.connect_timeout_s)
        problem: OSError | None = None
        for family, kind, protocol, _, place in _resolved(host, port, limit - time.monotonic(), self.address):
            candidate = socket.socket(family, kind, protocol)
            try:
                candidate.settimeout(self._left(limit))
                candidate.connect(place)
                candidate.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return candidate
            except OSError as failed:
                candidate.close()
                problem = failed
        what = "no answer" if isinstance(problem, TimeoutError) else reason(problem or OSError("no address"))
        raise ClusterUnreachable(
            f"cannot connect to {self.address}: {what}. Is the broker up, and are host and port right?"
        )

    def _tls_failed(self, problem: Exception) -> ClusterError:
        where = f"the TLS handshake with {self.address}"
        if isinstance(problem, ssl.SSLCertVerificationError):
            return ClusterRefused(
                f"{where} failed: the broker's certificate is not trusted ({reason(problem)}). Set ssl.ca.location to "
                "the certificates of the cluster's CA; a broker known by another name than its certificate's needs "
                "ssl.endpoint.identification.algorithm=none."
            )
        if isinstance(problem, TimeoutError):
            return ClusterUnreachable(
                f"{where} was not answered. If that port does not speak TLS, set security.protocol=PLAINTEXT or "
                "SASL_PLAINTEXT."
            )
        if isinstance(problem, ssl.SSLEOFError | ConnectionError) or "wrong version" in reason(problem):
            return ClusterUnreachable(
                f"{where} failed: {reason(problem)}. That port probably does not speak TLS: set "
                "security.protocol=PLAINTEXT or SASL_PLAINTEXT, or take the port of the TLS listener."
            )
        return ClusterRefused(f"{where} failed: {reason(problem)}. See ssl.* in the configuration.")

    def _negotiate(self, deadline: float) -> None:
        body = self._asked(ApiKey.API_VERSIONS, 0, {}, _body, deadline)
        error = body["errorCode"]
        if error:
            raise ClusterError(
                f"{self.address} answers ApiVersions with {error_name(error)}; it may not be a Kafka broker."
            )
        self._versions = {one["apiKey"]: (one["minVersion"], one["maxVersion"]) for one in body["apiKeys"]}

    def _authenticate(self, deadline: float) -> None:
        sasl = self._settings.sasl
        assert sasl is not None
        handshake = self._asked(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": sasl.mechanism}, _body, deadline)
        error = handshake["errorCode"]
        if error == _UNSUPPORTED_SASL_MECHANISM:
            raise ClusterRefused(
                f"{self.address} does not take sasl.mechanism={sasl.mechanism}; it has "
                f"{', '.join(handshake['mechanisms']) or 'none'}."
            )
        if error == _ILLEGAL_SASL_STATE:
            raise ClusterRefused(
                f"{self.address} wants no SASL: set security.protocol=PLAINTEXT or SSL, or take another port."
            )
        if error:
            raise ClusterError(f"{self.address} answers SaslHandshake with {error_name(error)}.")
        version = self.version_of(ApiKey.SASL_AUTHENTICATE)
        exchange = authenticate(sasl, secrets.token_urlsafe(24), self._token(sasl, deadline))
        started = time.monotonic()
        token = next(exchange)
        while True:
            reply = self._asked(ApiKey.SASL_AUTHENTICATE, version, {"authBytes": token}, _body, deadline)
            if reply["errorCode"]:
                said = f" ({reply['errorMessage']})" if reply["errorMessage"] else ""
                who, what = (
                    (repr(sasl.username), "sasl.username, sasl.password")
                    if sasl.tokens is None
                    else ("us", "sasl.oauthbearer.*")
                )
                raise ClusterRefused(
                    f"{self.address} does not let {who} in: authentication failed{said}. Check {what} and "
                    f"sasl.mechanism={sasl.mechanism}."
                )
            try:
                token = exchange.send(reply["authBytes"])
            except StopIteration:
                break
            except Malformed as problem:
                raise ClusterRefused(f"authentication at {self.address} failed: {problem}.") from None
        if reply["sessionLifetimeMs"] > 0:
            self._expires = started + _SESSION_SHARE * reply["sessionLifetimeMs"] / 1000

    def _token(self, sasl: Sasl, deadline: float) -> Token | None:
        if sasl.tokens is None:
            return None
        left_s = max(deadline - time.monotonic(), 0.001)
        token = _in_time(partial(sasl.tokens.token, left_s), left_s)
        if token is None:
            raise ClusterUnreachable(
                "the token endpoint (sasl.oauthbearer.token.endpoint.url) does not answer in time."
            )
        return token

    # --- asking ---

    def version_of(self, api: ApiKey, most: int | None = None) -> int:
        """The newest version that both sides speak."""
        low, high = SPOKEN[api]
        there = self._versions.get(api)
        if there is None:
            raise ClusterError(f"{self.address} does not serve {_shown(api)}. Is it a broker, and not a controller?")
        chosen = min(high if most is None else min(high, most), there[1])
        if chosen < max(low, there[0]):
            raise ClusterError(
                f"{self.address} speaks {_shown(api)} {there[0]} to {there[1]}, and this release {low} to {high}."
            )
        return chosen

    def ask(
        self,
        api: ApiKey,
        body: StructData,
        read: Callable[[Response], Answer],
        *,
        version: int | None = None,
        timeout_s: float | None = None,
    ) -> Answer:
        """Send a request, and return what `read` makes of its answer; the version is the newest unless it is given.

        Waits first if the broker asked for that in an earlier answer: it would not answer before anyway.
        """
        time.sleep(max(0.0, self._not_before - time.monotonic()))
        limit_s = self._settings.request_timeout_s if timeout_s is None else timeout_s
        chosen = self.version_of(api) if version is None else version
        return self._asked(api, chosen, body, read, time.monotonic() + limit_s)

    def _asked(
        self, api: ApiKey, version: int, asked: StructData, read: Callable[[Response], Answer], deadline: float
    ) -> Answer:
        self._correlation_id += 1
        request = encode_request(api, version, self._correlation_id, self._settings.client_id, asked)
        try:
            self._socket.settimeout(self._left(deadline))
            self._socket.sendall(request)
            frame = self._received(deadline)
        except TimeoutError:
            self.close()
            raise ClusterUnreachable(f"{self.address} does not answer {_shown(api)}. {self._silence_hint()}") from None
        except OSError as problem:
            self.close()
            raise self._hung_up(api, problem) from None
        except ClusterError:
            self.close()
            raise
        try:
            correlation_id, position = decode_response_header(api, version, frame)
            if correlation_id != self._correlation_id:
                raise Malformed(f"answer {correlation_id} to request {self._correlation_id}")
            body = decode_response_body(api, version, frame, position, leaves_records=True)
            response = Response(frame, body, version)
            answer = read(response)
        except (CodecError, WireError) as problem:
            self.close()
            raise ClusterError(
                f"{self.address} answers {_shown(api)} with what cannot be read: {problem}. Is it a Kafka broker?"
            ) from None
        self._answered += 1
        throttle_ms = response.body.get("throttleTimeMs", 0)
        self._not_before = time.monotonic() + min(throttle_ms / 1000, LONGEST_THROTTLE_S)
        return answer

    def _received(self, deadline: float) -> memoryview:
        head = bytearray(4)
        self._fill(memoryview(head), deadline)
        size = int.from_bytes(head, "big", signed=True)
        if not 4 <= size <= self._settings.largest_answer_bytes:
            raise self._not_kafka(bytes(head), size)
        frame = bytearray(size + SLACK_BYTES)
        self._fill(memoryview(frame)[:size], deadline)
        return memoryview(frame)[:size]

    def _fill(self, room: memoryview, deadline: float) -> None:
        while room:
            self._socket.settimeout(self._left(deadline))
            read = self._socket.recv_into(room)
            if not read:
                raise ConnectionResetError("hung up")
            room = room[read:]

    def _left(self, deadline: float) -> float:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    # --- sentences ---

    def _not_kafka(self, head: bytes, size: int) -> ClusterError:
        if head.startswith(_TLS_ALERT):
            return ClusterUnreachable(f"{self.address} speaks TLS: set security.protocol=SSL or SASL_SSL.")
        if head == _HTTP:
            return ClusterError(f"{self.address} is a web server, not a Kafka broker: check the port.")
        if size > self._settings.largest_answer_bytes and self._answered:
            return ClusterError(
                f"{self.address} has an answer of {size} bytes, and receive.message.max.bytes is "
                f"{self._settings.largest_answer_bytes}. Set it higher if a topic has batches that large."
            )
        return ClusterError(f"{self.address} begins its answer with {head!r}, which no Kafka broker does.")

    def _silence_hint(self) -> str:
        if self._answered:
            return "It may be overloaded; try again, or set socket.timeout.ms higher."
        return "Is it a Kafka broker? A TLS port needs security.protocol=SSL or SASL_SSL."

    def _hung_up(self, api: ApiKey, problem: OSError) -> ClusterError:
        if self._answered == 0:
            return ClusterUnreachable(
                f"{self.address} hangs up at the first request ({reason(problem)}). A port that speaks TLS needs "
                "security.protocol=SSL or SASL_SSL; with client certificates, ssl.certificate.location too."
            )
        if self._answered == 1 and self._settings.sasl is None and api is ApiKey.METADATA:
            return ClusterUnreachable(
                f"{self.address} hangs up after ApiVersions ({reason(problem)}). A port that wants SASL needs "
                "security.protocol=SASL_SSL or SASL_PLAINTEXT, sasl.mechanism, sasl.username and sasl.password."
            )
        return ClusterUnreachable(f"{self.address} hung up on {_shown(api)}: {reason(problem)}. Try again.")


def _shown(api: ApiKey) -> str:
    return APIS[api].name


def _body(response: Response) -> StructData:
    return response.body


def _resolved(host: str, port: int, timeout_s: float, address: Address) -> list[tuple[Any, Any, int, str, Any]]:
    """The addresses of a name."""
    why = "no answer"
    places = None
    try:
        places = _in_time(lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM), timeout_s)
    except (OSError, UnicodeError) as problem:
        why = reason(problem)
    if places is None:
        raise ClusterUnreachable(f"the name of {address} cannot be resolved: {why}. Is it spelled right?")
    return places


def _in_time(work: Callable[[], Answer], timeout_s: float) -> Answer | None:
    """What some work returns or raises; None if that takes longer. In a thread, for work that cannot be interrupted."""
    done: queue.SimpleQueue[tuple[Answer | None, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            done.put((work(), None))
        except BaseException as problem:
            done.put((None, problem))

    threading.Thread(target=run, name="muster-waits", daemon=True).start()
    try:
        result, problem = done.get(timeout=max(timeout_s, 0.001))
    except queue.Empty:
        return None
    if problem is not None:
        raise problem
    return result
