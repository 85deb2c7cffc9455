"""`client.properties`, as Java's clients or librdkafka's users write it, to settings by librdkafka's names.

Most settings have the same name in both. A JAAS line and PEM stores are translated; what we cannot use (Java key
stores, Kerberos) is refused with a way out, since leaving it out would connect in another way than the file asks for.
A file is read by Java's rules: a backslash begins an escape, and joins lines at the end of one.
"""

import re
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

from muster.errors import BadInput
from muster.references import is_secret, literal_secrets

LARGEST_FILE_BYTES = 1 << 20
SECRETS_FILE = "muster.config.file"
"""A setting of our own: the properties file from which secrets are taken, on whichever machine they are needed."""

_BLANKS = " \t\f"
_PAIR = re.compile(r"((?:[^\\=: \t\f]|\\.)*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_JAAS_OPTION = re.compile(r"(\w+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|([^\s;\"]+))")
_WITH_PASSWORD = ("PlainLoginModule", "ScramLoginModule")
_OTHER_NAMES = {
    "metadata.broker.list": "bootstrap.servers",
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "request.timeout.ms": "socket.timeout.ms",
}


def read_properties(path: Path) -> dict[str, str]:
    """The settings of a file, by librdkafka's names; BadInput with a next step where they cannot be had."""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE_BYTES + 1)
    except OSError as problem:
        raise BadInput(
            f"{path} cannot be read: {problem.strerror}. Name a file such as client.properties, with lines like "
            "security.protocol=SSL."
        ) from None
    if len(data) > LARGEST_FILE_BYTES:
        raise BadInput(f"{path} is larger than 1 MB, and hardly a properties file.")
    return librdkafka_names(parse_properties(data.decode("utf-8", "surrogateescape")), str(path))


def without_secrets(config: Mapping[str, str], path: Path) -> dict[str, str]:
    """The settings of a file without its passwords and keys, which `with_secrets` reads from it again."""
    secrets = literal_secrets(config)
    if not secrets:
        return dict(config)
    return {name: value for name, value in config.items() if name not in secrets} | {SECRETS_FILE: str(path.absolute())}


def with_secrets(config: Mapping[str, str]) -> dict[str, str]:
    """The settings with what `without_secrets` left in the file."""
    path = config.get(SECRETS_FILE)
    if path is None:
        return dict(config)
    try:
        found = read_properties(Path(path))
    except BadInput:
        raise BadInput(
            f"{path} cannot be read on {socket.gethostname()}. Passwords do not travel with tasks: put the file in the "
            "same place on every worker, or write ${env:NAME} for a password in it, and set the variable there."
        ) from None
    secrets = {name: value for name, value in found.items() if is_secret(name)}
    return secrets | {name: value for name, value in config.items() if name != SECRETS_FILE}


def parse_properties(text: str) -> dict[str, str]:
    """Names and values; of a name that comes twice the last one counts."""
    pairs: dict[str, str] = {}
    for line in _logical_lines(text):
        match = _PAIR.match(line)
        assert match is not None, "it matches anything"
        pairs[_unescaped(match[1])] = _unescaped(match[2])
    return pairs


def _logical_lines(text: str) -> Iterator[str]:
    begun = ""
    for natural in re.split(r"\r\n|[\r\n]", text):
        line = natural.lstrip(_BLANKS)
        if not begun and (not line or line[0] in "#!"):
            continue
        goes_on = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        begun += line[:-1] if goes_on else line
        if not goes_on:
            yield begun
            begun = ""
    if begun:
        yield begun


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)) if found[1] else _LETTERS.get(found[2], found[2]), text)


def librdkafka_names(properties: Mapping[str, str], where: str) -> dict[str, str]:
    """The same settings in one vocabulary; `where` is how sentences name the place they are from."""
    settings = {name: value.strip() if "password" not in name else value for name, value in properties.items()}
    for other, name in _OTHER_NAMES.items():
        if other in settings:
            settings.setdefault(name, settings[other])
            del settings[other]
    _translate_jaas(settings, where)
    _translate_truststore(settings, where)
    _translate_keystore(settings, where)
    if settings.get("ssl.endpoint.identification.algorithm") == "":
        settings["ssl.endpoint.identification.algorithm"] = "none"
    return settings


def _translate_jaas(settings: dict[str, str], where: str) -> None:
    jaas = settings.pop("sasl.jaas.config", None)
    if jaas is None:
        return
    options = {match[1]: re.sub(r"\\(.)", r"\1", match[2] or match[3] or "") for match in _JAAS_OPTION.finditer(jaas)}
    if not any(module in jaas for module in _WITH_PASSWORD) or not {"username", "password"} <= options.keys():
        raise BadInput(
            f"{where}: sasl.jaas.config is not a PlainLoginModule or ScramLoginModule with a username and a password, "
            "and no other can be used here. Ask the cluster's owner for a user of SASL PLAIN or SCRAM."
        )
    settings.setdefault("sasl.username", options["username"])
    settings.setdefault("sasl.password", options["password"])


def _translate_truststore(settings: dict[str, str], where: str) -> None:
    location = settings.pop("ssl.truststore.location", None)
    kind = settings.pop("ssl.truststore.type", "").upper()
    settings.pop("ssl.truststore.password", None)
    if location is None:
        return
    if kind != "PEM" and not location.endswith((".pem", ".crt", ".cer")):
        raise BadInput(
            f"{where}: {location} is a Java trust store, which only Java reads. Write its certificates as PEM "
            "(`keytool -list -rfc -keystore FILE > ca.pem`) and set ssl.ca.location=ca.pem instead."
        )
    settings.setdefault("ssl.ca.location", location)


def _translate_keystore(settings: dict[str, str], where: str) -> None:
    location = settings.pop("ssl.keystore.location", None)
    kind = settings.pop("ssl.keystore.type", "").upper()
    settings.pop("ssl.keystore.password", None)
    if location is None:
        return
    if kind != "PEM" and not location.endswith(".pem"):
        raise BadInput(
            f"{where}: {location} is a key store that cannot be read here. Write it as PEM (`openssl pkcs12 -in "
            "client.p12 -out client.pem`, after `keytool -importkeystore ... -deststoretype PKCS12` if Java made it) "
            "and set ssl.certificate.location=client.pem and ssl.key.location=client.pem instead."
        )
    settings.setdefault("ssl.certificate.location", location)
    settings.setdefault("ssl.key.location", location)
