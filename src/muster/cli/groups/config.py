"""`--command-config`: the properties file of Java's clients, in the words of librdkafka.

Most settings have the same name in both. Passwords in a JAAS line, PEM files and PKCS#12 stores are translated; what
librdkafka cannot use (Java key stores, Kerberos login modules) is refused with a way out, since leaving it out would
connect in another way than the file asks for.
"""

import re
from collections.abc import Mapping

from muster.errors import BadInput

SECURITY = ("ssl.", "sasl.", "security.", "enable.ssl.")
"""Settings that must not be dropped quietly begin like this."""

JAAS_OPTION = re.compile(r"(\w+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|([^\s;\"]+))")
WITH_PASSWORD = ("PlainLoginModule", "ScramLoginModule")
JAVA_PEM = {
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}


def client_settings(properties: Mapping[str, str], name: str) -> dict[str, str]:
    """librdkafka's settings for a Java client's; BadInput where there is no way to say the same."""
    settings = dict(properties)
    _translate_jaas(settings, name)
    _translate_truststore(settings, name)
    _translate_keystore(settings, name)
    for java, ours in JAVA_PEM.items():
        if java in settings:
            settings[ours] = settings.pop(java)
    if settings.get("ssl.endpoint.identification.algorithm") == "":
        settings["ssl.endpoint.identification.algorithm"] = "none"
    return settings


def _translate_jaas(settings: dict[str, str], name: str) -> None:
    jaas = settings.pop("sasl.jaas.config", None)
    if jaas is None:
        return
    options = {match[1]: re.sub(r"\\(.)", r"\1", match[2] or match[3] or "") for match in JAAS_OPTION.finditer(jaas)}
    if not any(module in jaas for module in WITH_PASSWORD) or not {"username", "password"} <= options.keys():
        raise BadInput(
            f"{name}: only PlainLoginModule and ScramLoginModule with a username and a password can be taken from "
            "sasl.jaas.config. For others set librdkafka's own: sasl.kerberos.*, sasl.oauthbearer.*."
        )
    settings.setdefault("sasl.username", options["username"])
    settings.setdefault("sasl.password", options["password"])


def _translate_truststore(settings: dict[str, str], name: str) -> None:
    location = settings.pop("ssl.truststore.location", None)
    kind = settings.pop("ssl.truststore.type", "").upper()
    settings.pop("ssl.truststore.password", None)
    if location is None:
        return
    if kind != "PEM" and not location.endswith((".pem", ".crt", ".cer")):
        raise BadInput(
            f"{name}: {location} is a Java trust store, which only Java reads. Write its certificates as PEM "
            "(`keytool -list -rfc -keystore FILE > ca.pem`) and set ssl.ca.location=ca.pem instead."
        )
    settings.setdefault("ssl.ca.location", location)


def _translate_keystore(settings: dict[str, str], name: str) -> None:
    location = settings.get("ssl.keystore.location")
    kind = settings.pop("ssl.keystore.type", "").upper()
    if location is None:
        return
    if kind == "PEM" or location.endswith(".pem"):
        del settings["ssl.keystore.location"]
        settings.setdefault("ssl.certificate.location", location)
        settings.setdefault("ssl.key.location", location)
    elif kind != "PKCS12" and not location.endswith((".p12", ".pfx")):
        raise BadInput(
            f"{name}: {location} is a Java key store, which only Java reads. Turn it into PKCS#12 (`keytool "
            "-importkeystore -srckeystore FILE -destkeystore client.p12 -deststoretype PKCS12`) and name that."
        )
