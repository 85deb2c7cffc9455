"""Where the tokens of SASL's OAUTHBEARER come from. The settings are librdkafka's, and mean what they mean there.

    enable.sasl.oauthbearer.unsecure.jwt=true      made here, unsigned, from sasl.oauthbearer.config: for tests
    sasl.oauthbearer.method=oidc                   asked for at sasl.oauthbearer.token.endpoint.url,
        grant.type=client_credentials                  with a client's id and secret
        grant.type=...:jwt-bearer                      with a signed assertion, made here or read from a file
        metadata.authentication.type=azure_imds        or at the metadata service of an Azure machine

A token endpoint gets one request for a token, without redirects; its answer is bounded in size, and the caller bounds
the time. One token serves all connections for most of its life.
"""

import base64
import http.client
import json
import re
import ssl
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote_plus, urlencode, urlsplit

from muster.errors import BadInput, ClusterRefused, ClusterUnreachable

LARGEST_BYTES = 1 << 20
"""Of an answer, and of a file with a key or an assertion."""
CLIENT_CREDENTIALS, JWT_BEARER = "client_credentials", "urn:ietf:params:oauth:grant-type:jwt-bearer"
AZURE_TOKENS = "http://169.254.169.254/metadata/identity/oauth2/token"
UNKNOWN_LIFE_S = 60.0
"""How long a token is used that does not say how long it lives."""
_USED_SHARE = 0.8
_PREFIX = "sasl.oauthbearer."
_UNSECURED = "enable.sasl.oauthbearer.unsecure.jwt"
_UNSECURED_NAMES = {"principalClaimName", "principal", "scopeClaimName", "scope", "lifeSeconds"}
_TOKEN = re.compile(r"[\x21-\x7e]+")
_EXTENSION = re.compile(r"([A-Za-z]+)=([\x20-\x7e\t]*)")


class Token(NamedTuple):
    value: str
    expires: float
    """In seconds since 1970."""
    extensions: Mapping[str, str] = {}
    """What the broker is told beside the token."""


class TokenSource:
    """Tokens by a client's settings, which are checked at once: `BadInput` names what is missing or wrong."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._settings = {
            name.removeprefix(_PREFIX): value for name, value in given.items()
            if name.startswith((_PREFIX, "https.")) or name == _UNSECURED
        }  # fmt: skip
        self._kept: Token | None = None
        self._renew_at = 0.0
        self._is_oidc = self._settings.get("method", "default").lower() == "oidc"
        self._extensions = self._checked_extensions()
        if self._is_oidc:
            _check_oidc(self._settings)
        elif self._settings.get(_UNSECURED, "false").lower() == "true":
            _unsecured(self._settings.get("config", ""), time.time())
        else:
            raise BadInput(
                "sasl.mechanism=OAUTHBEARER needs sasl.oauthbearer.method=oidc, with sasl.oauthbearer.client.id, "
                "sasl.oauthbearer.client.secret and sasl.oauthbearer.token.endpoint.url. For tests, "
                f"{_UNSECURED}=true makes tokens that are not signed."
            )

    def token(self, timeout_s: float) -> Token:
        """The token in use, or a new one. `ClusterRefused` and `ClusterUnreachable` speak of the token endpoint.

        `timeout_s` is for each wait of the network: an endpoint that sends its answer drop by drop takes longer.
        """
        now = time.time()
        if self._kept is None or now >= self._renew_at:
            found = (
                _asked_for(self._settings, timeout_s) if self._is_oidc else _unsecured(self._settings["config"], now)
            )
            self._kept = found._replace(extensions=self._extensions)
            self._renew_at = now + _USED_SHARE * (found.expires - now)
        return self._kept

    def _checked_extensions(self) -> dict[str, str]:
        if self._is_oidc:
            parts = [part.strip() for part in self._settings.get("extensions", "").split(",")]
        else:
            words = self._settings.get("config", "").split()
            parts = [word.removeprefix("extension_") for word in words if word.startswith("extension_")]
        found = {}
        for part in filter(None, parts):
            match = _EXTENSION.fullmatch(part)
            if match is None or match[1] == "auth":
                raise BadInput(
                    f"{part!r} is no extension of OAUTHBEARER: letters, but not 'auth', then = and plain text."
                )
            found[match[1]] = match[2]
        return found


def _check_oidc(settings: Mapping[str, str]) -> None:
    def need(*names: str) -> None:
        missing = [_PREFIX + name for name in names if not settings.get(name)]
        if missing:
            raise BadInput(
                f"sasl.mechanism=OAUTHBEARER with sasl.oauthbearer.method=oidc needs {' and '.join(missing)}."
            )

    service = settings.get("metadata.authentication.type", "none")
    if service not in ("none", "azure_imds"):
        raise BadInput(f"sasl.oauthbearer.metadata.authentication.type={service}: azure_imds can be used here.")
    if service == "none":
        need("token.endpoint.url")
        grant = settings.get("grant.type", CLIENT_CREDENTIALS)
        if grant not in (CLIENT_CREDENTIALS, JWT_BEARER):
            raise BadInput(
                f"sasl.oauthbearer.grant.type={grant} does not exist; there are {CLIENT_CREDENTIALS} and {JWT_BEARER}."
            )
        if grant == CLIENT_CREDENTIALS:
            need("client.id", "client.secret")
        elif not settings.get("assertion.file") and not settings.get("assertion.private.key.pem"):
            need("assertion.private.key.file")
    if urlsplit(settings.get("token.endpoint.url", AZURE_TOKENS)).scheme not in ("http", "https"):
        raise BadInput("sasl.oauthbearer.token.endpoint.url is not a URL that begins with https:// or http://.")
    for name in ("exp.seconds", "nbf.seconds"):
        if not re.fullmatch(r"\d{1,10}", settings.get(f"assertion.claim.{name}", "0")):
            raise BadInput(f"sasl.oauthbearer.assertion.claim.{name} is not a number of seconds.")


def _unsecured(config: str, now: float) -> Token:
    """A token that proves nothing: brokers take it if they are told to, for tests."""
    given = dict(word.partition("=")[::2] for word in config.split() if not word.startswith("extension_"))
    odd = sorted(given.keys() - _UNSECURED_NAMES)
    life = given.get("lifeSeconds", "3600")
    if odd or not given.get("principal") or not re.fullmatch(r"[1-9]\d{0,8}", life):
        raise BadInput(
            "sasl.oauthbearer.config is not like 'principal=NAME scope=A,B lifeSeconds=600', with principalClaimName, "
            f"scopeClaimName and extension_NAME where they are needed{': ' + ', '.join(odd) if odd else ''}."
        )
    claims: dict[str, Any] = {
        given.get("principalClaimName", "sub"): given["principal"],
        "iat": int(now * 1000) / 1000,  # not a moment later than it is
        "exp": int((now + int(life)) * 1000) / 1000,
    }
    scopes = list(dict.fromkeys(filter(None, given.get("scope", "").split(","))))
    if scopes:
        claims[given.get("scopeClaimName", "scope")] = scopes
    return Token(f"{_json64({'alg': 'none'})}.{_json64(claims)}.", now + int(life))


def _json64(part: Mapping[str, Any]) -> str:
    return _base64url(json.dumps(part, separators=(",", ":")).encode())


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _asked_for(settings: Mapping[str, str], timeout_s: float) -> Token:
    request = _token_request(settings)
    where = re.sub(r"//[^/@]*@", "//", request.full_url.partition("?")[0])  # without a name and password
    try:
        status, body = _sent(request, _https_context(settings), timeout_s)
    except (OSError, ValueError, http.client.HTTPException) as problem:
        raise ClusterUnreachable(f"the token endpoint {where} cannot be asked: {_why(problem)}.") from None
    answer = _json_object(body)
    fields = ("access_token", "id_token") if settings.get("grant.type") == JWT_BEARER else ("access_token",)
    value = next((answer[name] for name in fields if isinstance(answer.get(name), str)), "")
    if status == 200 and _TOKEN.fullmatch(value):
        return Token(value, _expiry(value, answer))
    said = answer.get("error_description") or answer.get("error")
    why = f" ({str(said)[:300]})" if said else ""
    if status >= 500:
        raise ClusterUnreachable(f"the token endpoint {where} answers with HTTP {status}{why}. Try again.")
    raise ClusterRefused(
        f"the token endpoint {where} gives no token: HTTP {status}{why}. Check sasl.oauthbearer.* in the configuration."
    )


def _token_request(settings: Mapping[str, str]) -> urllib.request.Request:
    url = settings.get("token.endpoint.url") or AZURE_TOKENS
    if settings.get("metadata.authentication.type") == "azure_imds":
        parts = (part.partition("=") for part in settings.get("config", "").split(","))
        query = next((value for name, _, value in parts if name.strip() == "query"), "")
        joined = f"{url}{'&' if '?' in url else '?'}{query}" if query else url
        return urllib.request.Request(joined, headers={"Metadata": "true"})
    headers = {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded"}
    grant = settings.get("grant.type", CLIENT_CREDENTIALS)
    body = urlencode({"grant_type": grant}, safe=":")
    if grant == JWT_BEARER:
        body += f"&assertion={quote_plus(_assertion(settings))}"
    else:
        login = f"{settings['client.id']}:{settings['client.secret']}"
        headers["Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
    if settings.get("scope"):
        body += f"&scope={quote_plus(settings['scope'], safe='%')}"  # one that is escaped already stays as it is
    return urllib.request.Request(url, body.encode(), headers)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the client's secret elsewhere; it is an error like any other answer but 200."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _https_context(settings: Mapping[str, str]) -> ssl.SSLContext:
    pem, location = settings.get("https.ca.pem"), settings.get("https.ca.location")
    try:
        if pem:
            return ssl.create_default_context(cadata=pem.replace("\\n", "\n"))
        if location and location != "probe":
            if Path(location).is_dir():
                return ssl.create_default_context(capath=location)
            return ssl.create_default_context(cafile=location)
        return ssl.create_default_context()
    except (OSError, ValueError) as problem:
        name = "https.ca.pem" if pem else f"https.ca.location={location}"
        raise BadInput(f"{name} cannot be used: {_why(problem)}. It has certificates in PEM form.") from None


def _sent(request: urllib.request.Request, context: ssl.SSLContext, timeout_s: float) -> tuple[int, bytes]:
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _NoRedirects)
    try:
        with opener.open(request, timeout=timeout_s) as answer:
            return answer.status, _bounded(answer)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, _bounded(refused)


def _bounded(answer: Any) -> bytes:
    body: bytes = answer.read(LARGEST_BYTES + 1)
    if len(body) > LARGEST_BYTES:
        raise ValueError("an answer of more than 1 MB")
    return body


def _json_object(text: bytes) -> dict[str, Any]:
    """Nothing where the text is not JSON, or another kind of value."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _expiry(token: str, answer: Mapping[str, Any]) -> float:
    """From the token if it is a JWT, else from the answer it came in."""
    parts = token.split(".")
    try:
        claims = _json_object(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (IndexError, ValueError):
        claims = {}
    expires_s = _time_of(claims.get("exp"))
    if expires_s is not None:
        return expires_s
    life_s = _time_of(answer.get("expires_in"))
    return time.time() + (UNKNOWN_LIFE_S if life_s is None else life_s)


def _time_of(number: Any) -> float | None:
    """An endpoint's number, if it can be a time: JSON also has NaN, and numbers that no float holds."""
    return float(number) if isinstance(number, int | float) and 0 <= number < 1 << 40 else None


def _why(problem: BaseException) -> str:
    if isinstance(problem, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({problem.verify_message.rstrip('.')}); set https.ca.location"
    inner = getattr(problem, "reason", None)
    if isinstance(inner, BaseException):
        return _why(inner)
    return getattr(problem, "strerror", None) or str(problem) or type(problem).__name__


# --- assertions ---


def _assertion(settings: Mapping[str, str]) -> str:
    """A JWT that says who we are, signed with our key (RFC 7523)."""
    if settings.get("assertion.file"):
        return _file(settings, "assertion.file").decode("ascii", "replace").strip()
    header, claims = _template(settings)
    now = int(time.time())
    header |= {"alg": settings.get("assertion.algorithm", "RS256"), "typ": "JWT"}
    claims |= {
        "iat": now,
        "exp": now + int(settings.get("assertion.claim.exp.seconds", "300")),
        "nbf": now - int(settings.get("assertion.claim.nbf.seconds", "60")),
    }
    claims |= {name: value for name in ("sub", "iss", "aud") if (value := settings.get(f"assertion.claim.{name}"))}
    if settings.get("assertion.claim.jti.include", "false").lower() == "true":
        claims["jti"] = str(uuid.uuid4())
    signed = f"{_json64(header)}.{_json64(claims)}"
    return f"{signed}.{_base64url(_signature(settings, header['alg'], signed.encode()))}"


def _template(settings: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    name = "assertion.jwt.template.file"
    if not settings.get(name):
        return {}, {}
    found = _json_object(_file(settings, name))
    header, payload = found.get("header"), found.get("payload")
    if not isinstance(header, dict) or not isinstance(payload, dict):
        raise BadInput(f"{settings[name]} is no template of a JWT: a JSON object with a 'header' and a 'payload'.")
    return header, payload


def _signature(settings: Mapping[str, str], algorithm: str, data: bytes) -> bytes:
    from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
    from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    name = "assertion.private.key.file"
    text = settings.get("assertion.private.key.pem", "").replace("\\n", "\n").encode()
    passphrase = settings.get("assertion.private.key.passphrase")
    try:
        key = load_pem_private_key(text or _file(settings, name), passphrase.encode() if passphrase else None)
    except (ValueError, TypeError) as problem:
        raise BadInput(f"the key of {_PREFIX}assertion.private.key cannot be used: {problem}") from None
    if algorithm == "RS256" and isinstance(key, rsa.RSAPrivateKey):
        return key.sign(data, padding.PKCS1v15(), SHA256())
    if algorithm == "ES256" and isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.name == "secp256r1":
        numbers = decode_dss_signature(key.sign(data, ec.ECDSA(SHA256())))
        return b"".join(number.to_bytes(32, "big") for number in numbers)
    raise BadInput(
        f"sasl.oauthbearer.assertion.algorithm={algorithm} does not fit the key: RS256 takes a key of RSA, ES256 "
        "one of the curve P-256."
    )


def _file(settings: Mapping[str, str], name: str) -> bytes:
    try:
        with Path(settings[name]).open("rb") as file:
            return file.read(LARGEST_BYTES)
    except OSError as problem:
        raise BadInput(f"{_PREFIX}{name}={settings[name]} cannot be read: {problem.strerror}.") from None
