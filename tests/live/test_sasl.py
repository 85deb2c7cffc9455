"""SCRAM against the example of its RFC, and against servers that do not keep to it."""

import pytest

from muster.errors import Malformed
from muster.live.sasl import MOST_ITERATIONS, Sasl, authenticate
from muster.live.tokens import Token

# RFC 7677, section 3.
NONCE = "rOprNGfwEbeRWgbNEkqO"
BOTH = NONCE + "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SERVER_FIRST = f"r={BOTH},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = f"c=biws,r={BOTH},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
USER = Sasl("SCRAM-SHA-256", "user", "pencil")


def test_the_example_of_the_rfc() -> None:
    exchange = authenticate(USER, NONCE)
    assert next(exchange) == f"n,,n=user,r={NONCE}".encode()
    assert exchange.send(SERVER_FIRST.encode()) == CLIENT_FINAL
    with pytest.raises(StopIteration):
        exchange.send(SERVER_FINAL)


def test_names_with_commas_and_equals_signs() -> None:
    assert next(authenticate(Sasl("SCRAM-SHA-512", "a,b=c", "x"), "n")) == b"n,,n=a=2Cb=3Dc,r=n"


def test_a_server_that_does_not_know_the_password() -> None:
    exchange = authenticate(USER, NONCE)
    next(exchange)
    exchange.send(SERVER_FIRST.encode())
    with pytest.raises(Malformed, match="does not know the password"):
        exchange.send(SERVER_FINAL.replace(b"6rri", b"7rri"))


@pytest.mark.parametrize(
    ("first", "what"),
    [
        ("e=unknown-user", "unknown-user"),
        (SERVER_FIRST.replace("rOpr", "xOpr"), "nonce"),
        (f"r={NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "nonce"),
        (f"r={BOTH},s=,i=4096", "no salt"),
        (f"r={BOTH},s=W22Z!,i=4096", "base64"),
        (f"r={BOTH},s=W22Z", "iterations"),
        (f"r={BOTH},s=W22Z,i=x", "iterations"),
        (f"r={BOTH},s=W22Z,i=0", "iterations"),
        (f"r={BOTH},s=W22Z,i=1", "fewer would give the password away"),
        (f"r={BOTH},s=W22Z,i=4095", "the server asks for 4095 iterations of SCRAM"),
        (f"r={BOTH},s=W22Z,i={MOST_ITERATIONS + 1}", "iterations"),
        ("", "nonce"),
        ("\udcff", "not text"),
    ],
)
def test_answers_that_are_none(first: str, what: str) -> None:
    exchange = authenticate(USER, NONCE)
    next(exchange)
    with pytest.raises(Malformed, match=what):
        exchange.send(first.encode("utf-8", "surrogateescape"))


def test_plain() -> None:
    exchange = authenticate(Sasl("PLAIN", "me", "pass\u00e9"), "n")
    assert next(exchange) == b"\0me\0pass\xc3\xa9"
    with pytest.raises(StopIteration):
        exchange.send(b"")


def test_a_password_is_not_shown() -> None:
    assert "pencil" not in repr(USER)


def test_oauthbearer() -> None:
    """The client's message of RFC 7628, section 4.1, with extensions as Kafka's KIP-342 has them."""
    token = Token("vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==", 0.0, {"host": "h", "port": "1"})
    for answer in (b"", b'{"status":"invalid_token"}', b"\xff"):
        exchange = authenticate(Sasl("OAUTHBEARER"), "", token)
        expected = b"n,,\x01auth=Bearer vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==\x01host=h\x01port=1\x01\x01"
        assert next(exchange) == expected
        with pytest.raises(Malformed if answer else StopIteration, match=r"invalid_token|not text|^$"):
            exchange.send(answer)
