"""The settings of a Kafka client, as Java's clients or librdkafka's users write them, in one vocabulary: librdkafka's.

`kafka://` sources and `muster groups` read the same files through this module. Most settings have the same name in both
worlds. A JAAS line with a password, PEM stores and PKCS#12 key stores are translated. A setting that has no translation
(a Java key store, a login module other than PLAIN's and SCRAM's) is refused with a way out: without it the connection
would be another than the file asks for.

Secrets. A configuration travels to Spark's workers without its passwords and keys: `without_secrets` replaces them by
the path of the file, and `with_secrets` reads them from it again, on the machine that needs them.
"""

import re
import socket
from collections.abc import Mapping
from pathlib import Path

from muster.config import properties
from muster.errors import BadInput
from muster.references import is_secret, literal_secrets

SECRETS_FILE = "muster.config.file"
"""A setting of our own: the properties file from which secrets are taken."""

_HINT = "Name a file such as client.properties, with lines like security.protocol=SSL."
_JAAS_OPTION = re.compile(r"(\w+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|([^\s;\"]+))")
_WITH_PASSWORD = ("PlainLoginModule", "ScramLoginModule")
_OTHER_NAMES = {
    "metadata.broker.list": "bootstrap.servers",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}


def read_client_properties(path: Path) -> dict[str, str]:
    """The settings of a file, by librdkafka's names. `BadInput` where they cannot be read or translated."""
    return librdkafka_names(dict(properties.read_properties(path, _HINT)), str(path))


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
        found = read_client_properties(Path(path))
    except BadInput:
        raise BadInput(
            f"{path} cannot be read on {socket.gethostname()}. Passwords do not travel with tasks: put the file in the "
            "same place on every worker, or write ${env:NAME} for a password in it, and set the variable there."
        ) from None
    secrets = {name: value for name, value in found.items() if is_secret(name)}
    return secrets | {name: value for name, value in config.items() if name != SECRETS_FILE}


def librdkafka_names(given: Mapping[str, str], where: str) -> dict[str, str]:
    """The same settings in librdkafka's vocabulary; `where` is how an error names the place they are from."""
    settings = {name: value.strip() if "password" not in name else value for name, value in given.items()}
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
            f"{where}: only PlainLoginModule and ScramLoginModule with a username and a password can be taken from "
            "sasl.jaas.config. For OAUTHBEARER set sasl.oauthbearer.* as librdkafka has them; for a login of another "
            "kind ask the cluster's owner for a user of SASL PLAIN or SCRAM."
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
    """A PEM store becomes certificate and key. A PKCS#12 store stays, with its type: a second translation needs it."""
    location = settings.get("ssl.keystore.location")
    kind = settings.get("ssl.keystore.type", "").upper()
    if location is not None and kind != "PEM" and not location.endswith(".pem"):
        if kind != "PKCS12" and not location.endswith((".p12", ".pfx")):
            raise BadInput(
                f"{where}: {location} is a Java key store, which only Java reads. Turn it into PKCS#12 (`keytool "
                "-importkeystore -srckeystore FILE -destkeystore client.p12 -deststoretype PKCS12`) and name that."
            )
        return
    for name in ("ssl.keystore.location", "ssl.keystore.type", "ssl.keystore.password"):
        settings.pop(name, None)
    if location is not None:
        settings.setdefault("ssl.certificate.location", location)
        settings.setdefault("ssl.key.location", location)
