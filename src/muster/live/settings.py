"""What a client's configuration means for us: where to go, how to get in, how long to wait."""

import os
import re
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field

from muster.config.client import librdkafka_names, with_secrets
from muster.errors import BadInput
from muster.references import resolved

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
DEFAULT_PORT = 9092

CONNECT_TIMEOUT_MS = 5_000
REQUEST_TIMEOUT_MS = 30_000
LARGEST_ANSWER_BYTES = 100_000_000
"""librdkafka's default for `receive.message.max.bytes`; an answer can be as large as the largest batch of a topic."""

# Settings that say how to connect, and that we would have to follow. Those of other mechanisms do not matter: the
# mechanism itself is refused. What Java or OpenSSL may negotiate is left to Python's own defaults.
_TLS_SETTINGS = {
    "ssl.ca.location", "ssl.ca.pem", "ssl.certificate.location", "ssl.certificate.pem", "ssl.key.location",
    "ssl.key.pem", "ssl.key.password", "ssl.endpoint.identification.algorithm",
}  # fmt: skip
_TLS_LEFT_ALONE = re.compile(
    r"ssl\.(protocol|provider|enabled\.protocols|cipher\.suites|curves\.list|sigalgs\.list"
    r"|(key|trust)manager\.algorithm|secure\.random\.implementation|keystore\.password)$"
)
_ADDRESS = re.compile(r"(?:\w+://)?(?:\[([^\]]+)\]|([^:\[\]]+))(?::(\d{1,5}))?$")


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Sasl:
    mechanism: str
    username: str
    password: str = field(repr=False)


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
    given = resolved(librdkafka_names(with_secrets(config), "the cluster's configuration"))
    protocol = given.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise BadInput(f"security.protocol={protocol} does not exist; there are {', '.join(PROTOCOLS)}.")
    return ClientSettings(
        _addresses(given.get("bootstrap.servers", "")),
        protocol,
        tls_context(given) if protocol.endswith("SSL") else None,
        _sasl(given, protocol) if protocol.startswith("SASL") else None,
        given.get("client.id", "muster"),
        _number(given, "socket.connection.setup.timeout.ms", CONNECT_TIMEOUT_MS) / 1000,
        _number(given, "socket.timeout.ms", REQUEST_TIMEOUT_MS) / 1000,
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


def _sasl(given: Mapping[str, str], protocol: str) -> Sasl:
    mechanism = given.get("sasl.mechanism", "")
    if mechanism not in MECHANISMS:
        raise BadInput(
            f"security.protocol={protocol} with sasl.mechanism={mechanism or '(none)'}: {', '.join(MECHANISMS)} can be "
            "used here. Set sasl.mechanism to the one the cluster has."
        )
    missing = [name for name in ("sasl.username", "sasl.password") if name not in given]
    if missing:
        raise BadInput(f"sasl.mechanism={mechanism} needs {' and '.join(missing)} (or a sasl.jaas.config with both).")
    return Sasl(mechanism, given["sasl.username"], given["sasl.password"])


def tls_context(given: Mapping[str, str]) -> ssl.SSLContext:
    """Reads the certificates that the configuration names."""
    odd = [
        name for name in given
        if name.startswith("ssl.") and name not in _TLS_SETTINGS and not _TLS_LEFT_ALONE.match(name)
    ]  # fmt: skip
    if odd:
        raise BadInput(
            f"{', '.join(sorted(odd))} cannot be followed here. Certificates come from ssl.ca.location, "
            "ssl.certificate.location and ssl.key.location, all PEM."
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


def _present(context: ssl.SSLContext, given: Mapping[str, str]) -> None:
    """Our own certificate, for clusters that ask for one."""
    certificate, key = given.get("ssl.certificate.location"), given.get("ssl.key.location")
    password = given.get("ssl.key.password", "")  # an empty one rather than a question at the terminal
    chain = given.get("ssl.certificate.pem", "") + "\n" + given.get("ssl.key.pem", "")
    try:
        if chain.strip():
            with tempfile.NamedTemporaryFile("w", suffix=".pem", encoding="utf-8") as file:  # nobody else may read it
                file.write(chain.replace("\\n", "\n"))
                file.flush()
                context.load_cert_chain(file.name, password=password)
        elif certificate is not None:
            context.load_cert_chain(certificate, key, password)
        elif key is not None:
            raise BadInput("ssl.key.location without ssl.certificate.location: a key needs its certificate.")
    except (OSError, ValueError) as problem:
        name = "ssl.certificate.pem" if chain.strip() else f"ssl.certificate.location={certificate}"
        raise BadInput(
            f"{name} with its key cannot be used: {reason(problem)}. Both are PEM, they belong together, and "
            "ssl.key.password opens the key."
        ) from None


def reason(problem: BaseException) -> str:
    """What an operating system or OpenSSL says went wrong, without numbers and source files."""
    if isinstance(problem, ssl.SSLCertVerificationError):
        return problem.verify_message.rstrip(".")
    if isinstance(problem, ssl.SSLError) and problem.reason:
        return problem.reason.lower().replace("_", " ")
    if isinstance(problem, OSError) and problem.strerror:
        return problem.strerror
    return str(problem) or type(problem).__name__
