"""SASL PLAIN and SCRAM (RFC 5802) as generators: yield what to send, be sent what came back. No I/O.

    exchange = authenticate(sasl, nonce)
    to_send = next(exchange)
    to_send = exchange.send(answer)       # until StopIteration: the server is known to know the password too

As in Kafka, names and passwords are taken as they are, without SASLprep.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Generator

from muster.errors import Malformed
from muster.live.settings import Sasl

LEAST_ITERATIONS = 4096
"""Kafka's default, and what Java's client insists on: a server that asks for less is after a password easy to guess."""
MOST_ITERATIONS = 1_000_000
"""A second of work. Kafka's most is 16384; without a bound a hostile server keeps us busy."""

Exchange = Generator[bytes, bytes, None]


def authenticate(sasl: Sasl, nonce: str) -> Exchange:
    """Raises `Malformed` for an answer that is no answer, and for a server that does not know the password."""
    return _plain(sasl) if sasl.mechanism == "PLAIN" else _scram(sasl, nonce)


def _plain(sasl: Sasl) -> Exchange:
    yield f"\0{sasl.username}\0{sasl.password}".encode()


def _scram(sasl: Sasl, nonce: str) -> Exchange:
    digest = sasl.mechanism.removeprefix("SCRAM-").replace("-", "").lower()
    name = sasl.username.replace("=", "=3D").replace(",", "=2C")
    client_first = f"n={name},r={nonce}"
    server_first = _text((yield f"n,,{client_first}".encode()))
    offered = _attributes(server_first)
    salt, iterations = _challenge(offered, nonce)
    salted = hashlib.pbkdf2_hmac(digest, sasl.password.encode(), salt, iterations)

    client_final = f"c=biws,r={offered['r']}"
    signed = f"{client_first},{server_first},{client_final}".encode()
    client_key = hmac.digest(salted, b"Client Key", digest)
    signature = hmac.digest(hashlib.new(digest, client_key).digest(), signed, digest)
    proof = bytes(key ^ mask for key, mask in zip(client_key, signature, strict=True))
    server_final = _text((yield f"{client_final},p={base64.b64encode(proof).decode()}".encode()))

    verdict = _attributes(server_final)
    if "e" in verdict:
        raise Malformed(f"the server says {verdict['e']!r}")
    expected = hmac.digest(hmac.digest(salted, b"Server Key", digest), signed, digest)
    if not hmac.compare_digest(_decoded(verdict.get("v", "")), expected):
        raise Malformed("the server does not know the password either: it may not be the one it claims to be")


def _challenge(offered: dict[str, str], nonce: str) -> tuple[bytes, int]:
    if "e" in offered:
        raise Malformed(f"the server says {offered['e']!r}")
    if not offered.get("r", "").startswith(nonce) or offered["r"] == nonce:
        raise Malformed("the server's nonce does not begin with ours")
    salt = _decoded(offered.get("s", ""))
    count = offered.get("i", "")
    if not salt or not count.isascii() or not count.isdigit() or len(count) > 10:
        raise Malformed("the server's first answer has no salt, or no number of iterations")
    if not LEAST_ITERATIONS <= int(count) <= MOST_ITERATIONS:
        raise Malformed(
            f"the server asks for {count} iterations of SCRAM, and {LEAST_ITERATIONS} to {MOST_ITERATIONS} can be had: "
            "fewer would give the password away. Have the user's credentials made anew with 4096 iterations or more"
        )
    return salt, int(count)


def _text(answer: bytes) -> str:
    try:
        return answer.decode()
    except UnicodeDecodeError:
        raise Malformed("an answer that is not text") from None


def _attributes(text: str) -> dict[str, str]:
    return {part[0]: part[2:] for part in text.split(",") if part[1:2] == "="}


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise Malformed("a field that is not base64") from None
