"""Tokens of OAUTHBEARER: made here, or asked for at an endpoint that may be slow, hostile, or not there."""

import base64
import json
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat

from muster.errors import BadInput, ClusterRefused, ClusterUnreachable
from muster.live import tokens
from muster.live.tokens import JWT_BEARER, UNKNOWN_LIFE_S, TokenSource
from tests.live.broker import make_certificates
from tests.live.endpoint import CLIENT, OIDC, Endpoint, jwt

BEARER = OIDC | {"sasl.oauthbearer.grant.type": JWT_BEARER}
UNSECURED = {"enable.sasl.oauthbearer.unsecure.jwt": "true"}


def decoded(part: str) -> Any:
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    one = Endpoint()
    yield one
    one.close()


def test_an_unsecured_token() -> None:
    config = "principal=me scope=a,,b,a lifeSeconds=600 principalClaimName=user scopeClaimName=roles extension_x=y"
    before = time.time()
    token = TokenSource(UNSECURED | {"sasl.oauthbearer.config": config}).token(1)
    header, claims, signature = token.value.split(".")
    assert (header, signature) == ("eyJhbGciOiJub25lIn0", "")
    found = decoded(claims)
    assert found.keys() == {"user", "iat", "exp", "roles"}
    assert (found["user"], found["roles"], token.extensions) == ("me", ["a", "b"], {"x": "y"})
    assert before - 1 <= found["iat"] <= time.time()
    assert found["exp"] == pytest.approx(found["iat"] + 600)
    assert token.expires == pytest.approx(found["exp"], abs=0.01)
    plain = decoded(TokenSource(UNSECURED | {"sasl.oauthbearer.config": "principal=me"}).token(1).value.split(".")[1])
    assert plain.keys() == {"sub", "iat", "exp"}
    assert plain["exp"] == pytest.approx(plain["iat"] + 3600)


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({}, r"needs sasl\.oauthbearer\.method=oidc"),
        (UNSECURED, "sasl.oauthbearer.config is not like"),
        (UNSECURED | {"sasl.oauthbearer.config": "principal=me color=red"}, "needed: color"),
        (UNSECURED | {"sasl.oauthbearer.config": "principal=me lifeSeconds=0"}, "is not like"),
        (UNSECURED | {"sasl.oauthbearer.config": "principal=me extension_auth=x"}, "no extension"),
        (OIDC, r"needs sasl\.oauthbearer\.token\.endpoint\.url"),
        (
            OIDC | {"sasl.oauthbearer.token.endpoint.url": "http://x"},
            r"needs sasl\.oauthbearer\.client\.id and .*secret",
        ),
        (CLIENT | {"sasl.oauthbearer.token.endpoint.url": "file:///etc/passwd"}, "begins with https://"),
        (CLIENT | {"sasl.oauthbearer.extensions": "a=\x01b"}, "no extension"),
        (BEARER | {"sasl.oauthbearer.token.endpoint.url": "http://x"}, r"assertion\.private\.key\.file"),
        (
            CLIENT | {"sasl.oauthbearer.token.endpoint.url": "http://x", "sasl.oauthbearer.grant.type": "password"},
            "grant.type=password does not exist",
        ),
        (OIDC | {"sasl.oauthbearer.metadata.authentication.type": "aws_iam"}, "azure_imds can be used"),
    ],
)
def test_settings_that_cannot_work_are_refused_at_once(given: dict[str, str], what: str) -> None:
    with pytest.raises(BadInput, match=what):
        TokenSource(given)


def test_client_credentials(endpoint: Endpoint) -> None:
    value = jwt(sub="me", exp=int(time.time()) + 1000)
    endpoint.will_say(access_token=value, token_type="Bearer")
    source = TokenSource(
        endpoint.settings() | {"sasl.oauthbearer.scope": "a b", "sasl.oauthbearer.extensions": "one=1, two=2"}
    )
    token = source.token(5)
    assert (token.value, token.extensions) == (value, {"one": "1", "two": "2"})
    assert endpoint.bodies == [{"grant_type": ["client_credentials"], "scope": ["a b"]}]
    assert endpoint.headers[0]["authorization"] == "Basic " + base64.b64encode(b"me:s:ecret").decode()
    assert endpoint.headers[0]["content-type"] == "application/x-www-form-urlencoded"
    assert source.token(5) is token, "one token serves all connections"


def test_a_token_is_renewed_before_it_expires(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000_000.0
    monkeypatch.setattr(time, "time", lambda: now)
    endpoint.will_say(access_token=jwt(exp=now + 100))
    endpoint.will_say(access_token="opaque", expires_in=50)
    endpoint.will_say(access_token="endless")
    endpoint.will_say(access_token="last")
    source = TokenSource(endpoint.settings())
    source.token(5)
    now += 79
    assert source.token(5).value.count(".") == 2
    for later, value in ((2, "opaque"), (39, "opaque"), (2, "endless"), (47, "endless"), (2, "last")):
        now += later
        assert source.token(5).value == value


@pytest.mark.parametrize("life", [10**400, float("nan"), float("inf"), -1, "50", None])
def test_a_life_that_is_no_time_is_a_short_one(endpoint: Endpoint, life: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000_000.0
    monkeypatch.setattr(time, "time", lambda: now)
    endpoint.will_say(access_token="odd", expires_in=life)
    endpoint.will_say(access_token="next")
    source = TokenSource(endpoint.settings())
    assert source.token(5).value == "odd"
    now += UNKNOWN_LIFE_S
    assert source.token(5).value == "next"


def test_an_endpoint_that_gives_no_token(endpoint: Endpoint) -> None:
    source = TokenSource(endpoint.settings())
    endpoint.will_say(401, error="invalid_client", error_description="No such client")
    with pytest.raises(ClusterRefused, match=r"token gives no token: HTTP 401 \(No such client\)\. Check"):
        source.token(5)
    endpoint.will_say(302)
    with pytest.raises(ClusterRefused, match="HTTP 302"):
        source.token(5)
    assert endpoint.paths == ["/token", "/token"], "a redirect is not followed"
    endpoint.will_say(503)
    with pytest.raises(ClusterUnreachable, match=r"answers with HTTP 503\. Try again"):
        source.token(5)
    for odd in (b"", b"<html>", b"[]", b"{}", b'{"access_token": 5}', b'{"access_token": "a\\u0001b"}', b"[" * 100_000):
        endpoint.answers.append((200, odd))
        with pytest.raises(ClusterRefused, match="HTTP 200"):
            source.token(5)
    endpoint.answers.append((200, bytes(tokens.LARGEST_BYTES + 1)))
    with pytest.raises(ClusterUnreachable, match="more than 1 MB"):
        source.token(5)
    endpoint.close()
    with pytest.raises(ClusterUnreachable, match="cannot be asked: Connection refused"):
        source.token(5)
    named = endpoint.url.replace("//", "//me:my-secret@")
    with pytest.raises(ClusterUnreachable) as raised:
        TokenSource(endpoint.settings() | {"sasl.oauthbearer.token.endpoint.url": named}).token(5)
    assert "my-secret" not in str(raised.value)


def test_an_endpoint_over_tls(tmp_path: Path) -> None:
    make_certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")
    endpoint = Endpoint(context)
    try:
        with pytest.raises(ClusterUnreachable, match=r"certificate is not trusted .*set https\.ca\.location"):
            TokenSource(endpoint.settings()).token(5)
        ca = tmp_path / "ca.pem"
        for trust in ({"https.ca.location": str(ca)}, {"https.ca.pem": ca.read_text()}):
            endpoint.will_say(access_token="one")
            assert TokenSource(endpoint.settings() | trust).token(5).value == "one"
        with pytest.raises(BadInput, match=r"https\.ca\.location=/no/such cannot be used: No such file"):
            TokenSource(endpoint.settings() | {"https.ca.location": "/no/such"}).token(5)
    finally:
        endpoint.close()


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_a_signed_assertion(endpoint: Endpoint, algorithm: str, tmp_path: Path) -> None:
    rsa_key, ec_key = rsa.generate_private_key(65537, 2048), ec.generate_private_key(ec.SECP256R1())
    key = rsa_key if algorithm == "RS256" else ec_key
    path, template = tmp_path / "key.pem", tmp_path / "template.json"
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"open")))
    template.write_text('{"header": {"kid": "7"}, "payload": {"sub": "old", "more": 1}}')
    claim = "sasl.oauthbearer.assertion.claim."
    given = BEARER | {
        "sasl.oauthbearer.token.endpoint.url": endpoint.url,
        "sasl.oauthbearer.assertion.algorithm": algorithm,
        "sasl.oauthbearer.assertion.private.key.file": str(path),
        "sasl.oauthbearer.assertion.private.key.passphrase": "open",
        "sasl.oauthbearer.assertion.jwt.template.file": str(template),
        claim + "sub": "me", claim + "aud": "them", claim + "jti.include": "true", claim + "exp.seconds": "9",
    }  # fmt: skip
    endpoint.will_say(id_token="one")
    assert TokenSource(given).token(5).value == "one"
    (body,) = endpoint.bodies
    assert body["grant_type"] == [JWT_BEARER]
    assert "authorization" not in endpoint.headers[0]
    header, claims, signature = body["assertion"][0].split(".")
    signed, proof = f"{header}.{claims}".encode(), base64.urlsafe_b64decode(signature + "==")
    if algorithm == "RS256":
        rsa_key.public_key().verify(proof, signed, padding.PKCS1v15(), SHA256())
    else:
        numbers = int.from_bytes(proof[:32], "big"), int.from_bytes(proof[32:], "big")
        ec_key.public_key().verify(encode_dss_signature(*numbers), signed, ec.ECDSA(SHA256()))
    assert decoded(header) == {"kid": "7", "alg": algorithm, "typ": "JWT"}
    found = decoded(claims)
    assert (found["sub"], found["aud"], found["more"]) == ("me", "them", 1)
    assert (found["exp"] - found["iat"], found["iat"] - found["nbf"]) == (9, 60)
    assert found["jti"]

    other = ec_key if algorithm == "RS256" else rsa_key
    pem = other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    without = {name: value for name, value in given.items() if "private.key" not in name}
    with pytest.raises(BadInput, match="does not fit the key"):
        TokenSource(without | {"sasl.oauthbearer.assertion.private.key.pem": pem}).token(5)
    with pytest.raises(BadInput, match="cannot be used"):
        TokenSource(given | {"sasl.oauthbearer.assertion.private.key.passphrase": "wrong"}).token(5)


def test_an_assertion_from_a_file(endpoint: Endpoint, tmp_path: Path) -> None:
    (tmp_path / "assertion").write_text("a.b.c\n")
    given = BEARER | {
        "sasl.oauthbearer.token.endpoint.url": endpoint.url,
        "sasl.oauthbearer.assertion.file": str(tmp_path / "assertion"),
    }
    endpoint.will_say(access_token="one")
    assert TokenSource(given).token(5).value == "one"
    assert endpoint.bodies[0]["assertion"] == ["a.b.c"]
    (tmp_path / "assertion").unlink()
    with pytest.raises(BadInput, match=r"assertion\.file=.* cannot be read: No such file"):
        TokenSource(given).token(5)


def test_the_metadata_service_of_azure(endpoint: Endpoint) -> None:
    given = OIDC | {
        "sasl.oauthbearer.metadata.authentication.type": "azure_imds",
        "sasl.oauthbearer.token.endpoint.url": endpoint.url,
        "sasl.oauthbearer.config": "query=resource=api://x&api-version=2018-02-01",
    }
    endpoint.will_say(access_token="one")
    assert TokenSource(given).token(5).value == "one"
    assert endpoint.paths == ["/token?resource=api://x&api-version=2018-02-01"]
    assert endpoint.headers[0]["metadata"] == "true"
