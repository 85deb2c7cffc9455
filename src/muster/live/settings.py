"""What a client's configuration means for a connection: where it goes, how it is secured, how long it waits.

`config.client` has translated the names; here they get their meaning. TLS is Python's own. A certificate of ours comes
from PEM files, from PEM text, or from a PKCS#12 store, which `cryptography` opens. Python loads a certificate from a
file only, so text goes through a file that no other user can read, and the key of a store is encrypted in it.
"""

import os
import re
import secrets
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from muster.config.client import librdkafka_names, with_secrets
from muster.errors import BadInput
from muster.live.sasl import Sasl, sasl_settings
from muster.references import resolved

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
DEFAULT_PORT = 9092

CONNECT_TIMEOUT_MS = 5_000
REQUEST_TIMEOUT_MS = 30_000
LARGEST_ANSWER_BYTES = 100_000_000
"""librdkafka's default for `receive.message.max.bytes`; an answer can be as large as the largest batch of a topic."""

# Settings of TLS that are followed. Another one is refused: without it the connection would not be the one asked for.
# What Java or OpenSSL may negotiate is left to Python's own defaults.
_TLS_SETTINGS = {
    "ssl.ca.location", "ssl.ca.pem", "ssl.crl.location", "ssl.certificate.location", "ssl.certificate.pem",
    "ssl.key.location", "ssl.key.pem", "ssl.key.password", "ssl.keystore.location", "ssl.keystore.password",
    "ssl.keystore.type", "ssl.endpoint.identification.algorithm",
}  # fmt: skip
_TLS_LEFT_ALONE = re.compile(
    r"ssl\.(protocol|provider|providers|enabled\.protocols|cipher\.suites|curves\.list|sigalgs\.list"
    r"|(key|trust)manager\.algorithm|secure\.random\.implementation|ca\.certificate\.stores)$"
)
_ADDRESS = re.compile(r"(?:\w+://)?(?:\[([^\]]+)\]|([^:\[\]]+))(?::(\d{1,5}))?$")


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class ClientSettings:
    bootstrap: tuple[Address, ...]
    protocol: str
    tls: ssl.SSLContext | None
    sasl: Sasl | None
    client_id: str
    connect_timeout_s: float
    request_timeout_s: float
    largest_answer_bytes: int


def client_settings(config: Mapping[str, str]) -> ClientSettings:
    """The settings of a configuration by Java's names or librdkafka's; BadInput where it cannot be followed.

    Settings that do not concern connections are left out, as both clients leave out what they do not know. References
    (`${env:NAME}`) are looked up, and secrets read from their file, here: a configuration on its way has neither.
    """
    return connection_settings(resolved(librdkafka_names(with_secrets(config), "the cluster's configuration")))


def connection_settings(given: Mapping[str, str]) -> ClientSettings:
    """The same for settings by librdkafka's names, references looked up."""
    protocol = given.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise BadInput(f"security.protocol={protocol} does not exist; there are {', '.join(PROTOCOLS)}.")
    timeout = "socket.timeout.ms" if "socket.timeout.ms" in given else "request.timeout.ms"
    return ClientSettings(
        _addresses(given.get("bootstrap.servers", "")),
        protocol,
        tls_context(given) if protocol.endswith("SSL") else None,
        sasl_settings(given, protocol) if protocol.startswith("SASL") else None,
        given.get("client.id", "muster"),
        _number(given, "socket.connection.setup.timeout.ms", CONNECT_TIMEOUT_MS) / 1000,
        _number(given, timeout, REQUEST_TIMEOUT_MS) / 1000,
        _number(given, "receive.message.max.bytes", LARGEST_ANSWER_BYTES),
    )


def _addresses(servers: str) -> tuple[Address, ...]:
    addresses = []
    for server in filter(None, (part.strip() for part in servers.split(","))):
        match = _ADDRESS.match(server)
        port = int(match[3] or DEFAULT_PORT) if match else 0
        if match is None or not 0 < port < 1 << 16:
            raise BadInput(f"bootstrap.servers: {server!r} is not host:port, for instance broker1.example.com:9092.")
        addresses.append(Address(match[1] or match[2], port))
    if not addresses:
        raise BadInput("bootstrap.servers is empty: name a broker of the cluster, for instance localhost:9092.")
    return tuple(addresses)


def _number(given: Mapping[str, str], name: str, default: int) -> int:
    text = given.get(name, str(default))
    if not re.fullmatch(r"\d{1,10}", text) or not 0 < int(text) < 1 << 31:
        raise BadInput(f"{name}={text!r} is not a whole number above 0.")
    return int(text)


def tls_context(given: Mapping[str, str]) -> ssl.SSLContext:
    """Reads the certificates that the configuration names."""
    odd = [
        name for name in given
        if name.startswith("ssl.") and name not in _TLS_SETTINGS and not _TLS_LEFT_ALONE.match(name)
    ]  # fmt: skip
    if odd:
        raise BadInput(
            f"{', '.join(sorted(odd))} cannot be followed here. Certificates come from ssl.ca.location, "
            "ssl.certificate.location and ssl.key.location, all PEM, or from a PKCS#12 store, ssl.keystore.location."
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    algorithm = given.get("ssl.endpoint.identification.algorithm", "https").lower()
    if given.get("enable.ssl.certificate.verification", "true").lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif algorithm == "none":
        context.check_hostname = False
    elif algorithm != "https":
        raise BadInput(f"ssl.endpoint.identification.algorithm={algorithm} does not exist; it is https or none.")
    _trust(context, given)
    _check_revocation(context, given)
    _present(context, given)
    return context


def _trust(context: ssl.SSLContext, given: Mapping[str, str]) -> None:
    location, pem = given.get("ssl.ca.location"), given.get("ssl.ca.pem")
    try:
        if pem is not None:
            context.load_verify_locations(cadata=pem.replace("\\n", "\n"))
        elif location is None or location == "probe":
            context.load_default_certs()
        elif os.path.isdir(location):
            context.load_verify_locations(capath=location)
        else:
            context.load_verify_locations(cafile=location)
    except (OSError, ValueError) as problem:
        name = "ssl.ca.pem" if pem is not None else f"ssl.ca.location={location}"
        raise BadInput(f"{name} cannot be used: {reason(problem)}. It has certificates in PEM form.") from None


def _check_revocation(context: ssl.SSLContext, given: Mapping[str, str]) -> None:
    location = given.get("ssl.crl.location")
    if not location:
        return
    try:
        context.load_verify_locations(cafile=location)
    except (OSError, ValueError) as problem:
        raise BadInput(
            f"ssl.crl.location={location} cannot be used: {reason(problem)}. It is a CRL in PEM form."
        ) from None
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _present(context: ssl.SSLContext, given: Mapping[str, str]) -> None:
    """Our own certificate, for clusters that ask for one: from a PKCS#12 store, as PEM text, or from PEM files."""
    if given.get("ssl.keystore.location"):
        _load(context, "ssl.keystore.location", *_opened_store(given))
        return
    certificate, key = given.get("ssl.certificate.location"), given.get("ssl.key.location")
    password = given.get("ssl.key.password", "")  # an empty one rather than a question at the terminal
    texts = [given[name].replace("\\n", "\n") for name in ("ssl.certificate.pem", "ssl.key.pem") if given.get(name)]
    if texts:
        texts += [_text_of(path) for path in (certificate, key) if path]
        _load(context, "ssl.certificate.pem", "\n".join(texts), password)
    elif certificate is not None:
        try:
            context.load_cert_chain(certificate, key, password)
        except (OSError, ValueError) as problem:
            raise _no_chain(f"ssl.certificate.location={certificate}", problem) from None
    elif key is not None:
        raise BadInput("ssl.key.location without ssl.certificate.location: a key needs its certificate.")


def _load(context: ssl.SSLContext, name: str, chain: str, password: str) -> None:
    """Python's TLS takes a chain from a file only: from one of ours, which no other user can read."""
    try:
        with tempfile.NamedTemporaryFile("w", suffix=".pem", encoding="utf-8") as file:
            file.write(chain)
            file.flush()
            context.load_cert_chain(file.name, password=password)
    except (OSError, ValueError) as problem:
        raise _no_chain(name, problem) from None


def _no_chain(name: str, problem: Exception) -> BadInput:
    return BadInput(
        f"{name} with its key cannot be used: {reason(problem)}. Both are PEM, they belong together, and "
        "ssl.key.password opens the key."
    )


def _text_of(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as problem:
        raise BadInput(f"{path} cannot be read: {reason(problem)}.") from None


def _opened_store(given: Mapping[str, str]) -> tuple[str, str]:
    """Certificates and key of a PKCS#12 store as PEM, and a password for the key: it is never written down in plain."""
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_key_and_certificates

    location = given["ssl.keystore.location"]
    password = given.get("ssl.keystore.password", "")
    try:
        key, own, others = load_key_and_certificates(Path(location).read_bytes(), password.encode() or None)
    except OSError as problem:
        raise BadInput(f"ssl.keystore.location={location} cannot be read: {reason(problem)}.") from None
    except ValueError:
        raise BadInput(
            f"ssl.keystore.location={location} is not a PKCS#12 store, or ssl.keystore.password does not open it."
        ) from None
    if key is None or own is None:
        raise BadInput(f"ssl.keystore.location={location} has no key with its certificate.")
    passing = secrets.token_urlsafe(32)
    encryption = BestAvailableEncryption(passing.encode())
    parts = [key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)]
    parts += [certificate.public_bytes(Encoding.PEM) for certificate in (own, *others)]
    return b"".join(parts).decode(), passing


def reason(problem: BaseException) -> str:
    """What an operating system or OpenSSL says went wrong, without numbers and source files."""
    if isinstance(problem, ssl.SSLCertVerificationError):
        return problem.verify_message.rstrip(".")
    if isinstance(problem, ssl.SSLError) and problem.reason:
        return problem.reason.lower().replace("_", " ")
    if isinstance(problem, OSError) and problem.strerror:
        return problem.strerror
    return str(problem) or type(problem).__name__
