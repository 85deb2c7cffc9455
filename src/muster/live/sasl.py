"""SASL: PLAIN, SCRAM (RFC 5802) and OAUTHBEARER (RFC 7628) as generators without I/O.

    exchange = authenticate(sasl, nonce, token)
    to_send = next(exchange)
    to_send = exchange.send(answer)       # until StopIteration: both sides have proved themselves

As in Kafka, names and passwords are taken as they are, without SASLprep. `tokens` is where OAUTHBEARER's come from.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field

from muster.errors import BadInput, Malformed
from muster.live.tokens import Token, TokenSource

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
LEAST_ITERATIONS = 4096
"""Kafka's default, and what Java's client insists on: a server that asks for less is after a password easy to guess."""
MOST_ITERATIONS = 1_000_000
"""A second of work. Kafka's most is 16384; without a bound a hostile server keeps us busy."""

Exchange = Generator[bytes, bytes, None]


@dataclass(frozen=True, slots=True)
class Sasl:
    """How to log in: with a name and a password, or with a token."""

    mechanism: str
    username: str = ""
    password: str = field(default="", repr=False)
    tokens: TokenSource | None = None


def sasl_settings(given: Mapping[str, str], protocol: str) -> Sasl:
    """How to log in, from a client's settings. `BadInput` names what is missing."""
    mechanism = given.get("sasl.mechanism", "")
    if mechanism not in MECHANISMS:
        raise BadInput(
            f"security.protocol={protocol} with sasl.mechanism={mechanism or '(none)'}: {', '.join(MECHANISMS)} can be "
            "used here. Set sasl.mechanism to the one the cluster has."
        )
    if mechanism == "OAUTHBEARER":
        return Sasl(mechanism, tokens=TokenSource(given))
    missing = [name for name in ("sasl.username", "sasl.password") if name not in given]
    if missing:
        raise BadInput(f"sasl.mechanism={mechanism} needs {' and '.join(missing)} (or a sasl.jaas.config with both).")
    return Sasl(mechanism, given["sasl.username"], given["sasl.password"])


def authenticate(sasl: Sasl, nonce: str, token: Token | None = None) -> Exchange:
    """Raises `Malformed` for an answer that is no answer, and for a server that does not know the password."""
    match sasl.mechanism:
        case "PLAIN":
            return _plain(sasl)
        case "OAUTHBEARER":
            assert token is not None
            return _oauthbearer(token)
    return _scram(sasl, nonce)


def _plain(sasl: Sasl) -> Exchange:
    yield f"\0{sasl.username}\0{sasl.password}".encode()


def _oauthbearer(token: Token) -> Exchange:
    pairs = "".join(f"{name}={value}\x01" for name, value in token.extensions.items())
    answer = yield f"n,,\x01auth=Bearer {token.value}\x01{pairs}\x01".encode()
    if answer:  # a server that takes the token says nothing more
        raise Malformed(f"the server says {_text(answer)[:500]!r}")


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
