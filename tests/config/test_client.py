"""Files of Java's clients and of librdkafka's, and what they come to."""

import ssl
from pathlib import Path

import pytest

from muster.config.client import librdkafka_names, parse_properties, read_properties
from muster.config.properties import parse_properties as parse_server_properties
from muster.errors import BadInput
from muster.live.settings import Address, Sasl, client_settings
from tests.live.broker import make_certificates

JAVA = r"""
# a comment
! and another
bootstrap.servers = a.example.com:9093,b.example.com:9093
security.protocol=SASL_SSL
sasl.mechanism: SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \
    username="some one" \
    password="p\\"w\\\\;=";
ssl.truststore.type=PEM
ssl.truststore.location=/etc/ca.pem
ssl.endpoint.identification.algorithm=
key.deserializer=x
"""
RDKAFKA = """
metadata.broker.list=a.example.com:9093
security.protocol=sasl_ssl
sasl.mechanisms=PLAIN
sasl.username=me
sasl.password= with blanks
ssl.ca.location=/etc/ca.pem
"""
HERE = {"bootstrap.servers": "h:1"}


def test_a_java_clients_file(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(JAVA)
    assert read_properties(path) == {
        "bootstrap.servers": "a.example.com:9093,b.example.com:9093",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "some one",
        "sasl.password": 'p"w\\;=',
        "ssl.ca.location": "/etc/ca.pem",
        "ssl.endpoint.identification.algorithm": "none",
        "key.deserializer": "x",
    }


def test_librdkafkas_file(tmp_path: Path) -> None:
    path = tmp_path / "rdkafka.conf"
    path.write_text(RDKAFKA)
    assert read_properties(path) == {
        "bootstrap.servers": "a.example.com:9093",
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "me",
        "sasl.password": "with blanks",
        "ssl.ca.location": "/etc/ca.pem",
    }


@pytest.mark.parametrize(
    "text",
    [JAVA, "a\\=b=c", "a\\:b : c\\\n  d", "a b", "a", "=", "a=\\u00e9\\t\\x", "a=b\\\\\nc=d", "a=\\\n\\\nb", "\\ a=b"],
)
def test_lines_are_read_as_the_servers_own_are(text: str) -> None:
    assert parse_properties(text) == dict(parse_server_properties(text))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(BadInput, match=r"cannot be read.*client\.properties"):
            read_properties(path)
    large = tmp_path / "large"
    large.write_bytes(b"#" * (2 << 20))
    with pytest.raises(BadInput, match="larger than 1 MB"):
        read_properties(large)


@pytest.mark.parametrize(
    ("properties", "way_out"),
    [
        ({"sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required;"}, "PLAIN or SCRAM"),
        ({"ssl.truststore.location": "/x.jks"}, "keytool -list -rfc"),
        ({"ssl.keystore.location": "/x.jks"}, "openssl pkcs12"),
        ({"ssl.keystore.location": "/x.p12"}, "openssl pkcs12"),
    ],
)
def test_what_only_java_can_use_is_refused_with_a_way_out(properties: dict[str, str], way_out: str) -> None:
    with pytest.raises(BadInput, match=way_out):
        librdkafka_names(properties, "client.properties")


def test_pem_stores_of_java() -> None:
    assert librdkafka_names({"ssl.keystore.type": "PEM", "ssl.keystore.location": "/me"}, "") == {
        "ssl.certificate.location": "/me", "ssl.key.location": "/me",
    }  # fmt: skip
    assert librdkafka_names({"ssl.keystore.key": "KEY", "ssl.truststore.certificates": "CA"}, "") == {
        "ssl.key.pem": "KEY", "ssl.ca.pem": "CA",
    }  # fmt: skip


def test_addresses() -> None:
    servers = "a, b:1 ,SSL://c:2,[::1]:3,[::2]"
    found = client_settings({"bootstrap.servers": servers}).bootstrap
    assert found == (Address("a", 9092), Address("b", 1), Address("c", 2), Address("::1", 3), Address("::2", 9092))
    assert str(found[3]) == "[::1]:3"
    for wrong in ("", ",", "a:b", "a:70000", "a:0", "::1:3", "a b:x"):
        with pytest.raises(BadInput, match=r"bootstrap\.servers"):
            client_settings({"bootstrap.servers": wrong})


def test_sasl() -> None:
    config = HERE | {"security.protocol": "sasl_plaintext", "sasl.mechanisms": "PLAIN"}
    given = config | {"sasl.username": "me", "sasl.password": "pw"}
    assert client_settings(given).sasl == Sasl("PLAIN", "me", "pw")
    assert client_settings(given | {"security.protocol": "PLAINTEXT"}).sasl is None
    with pytest.raises(BadInput, match=r"needs sasl\.username and sasl\.password"):
        client_settings(config)
    with pytest.raises(BadInput, match="GSSAPI: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 can be used"):
        client_settings(given | {"sasl.mechanisms": "GSSAPI"})
    with pytest.raises(BadInput, match=r"\(none\)"):
        client_settings(HERE | {"security.protocol": "SASL_SSL"})


@pytest.mark.parametrize(
    ("name", "value"),
    [("security.protocol", "TLS"), ("socket.timeout.ms", "soon"), ("receive.message.max.bytes", "0")],
)
def test_values_that_make_no_sense_are_named(name: str, value: str) -> None:
    with pytest.raises(BadInput, match=name):
        client_settings(HERE | {name: value})


def test_tls(tmp_path: Path) -> None:
    make_certificates(tmp_path)
    secure = HERE | {"security.protocol": "SSL", "ssl.ca.location": str(tmp_path / "ca.pem")}

    def context(**more: str) -> ssl.SSLContext:
        tls = client_settings(secure | {name.replace("_", "."): value for name, value in more.items()}).tls
        assert tls is not None
        return tls

    assert (context().check_hostname, context().verify_mode) == (True, ssl.CERT_REQUIRED)
    unnamed = context(ssl_endpoint_identification_algorithm="none")
    assert (unnamed.check_hostname, unnamed.verify_mode) == (False, ssl.CERT_REQUIRED)
    assert context(enable_ssl_certificate_verification="false").verify_mode == ssl.CERT_NONE
    assert len(context().get_ca_certs()) == 1
    del secure["ssl.ca.location"]
    assert len(context(ssl_ca_pem=(tmp_path / "ca.pem").read_text()).get_ca_certs()) == 1

    mine = {"ssl_certificate_location": str(tmp_path / "client.crt"), "ssl_key_location": str(tmp_path / "client.key")}
    context(**mine, ssl_key_password="key-password")
    chain = {"ssl_certificate_pem": (tmp_path / "client.crt").read_text()}
    context(**chain, ssl_key_pem=(tmp_path / "client.key").read_text(), ssl_key_password="key-password")
    for wrong, what in [
        (mine, r"ssl\.key\.password opens the key"),
        (mine | {"ssl_key_location": str(tmp_path / "server.plain")}, "belong together"),
        ({"ssl_key_location": "x"}, "a key needs its certificate"),
        ({"ssl_ca_location": "/no/such/file"}, r"ssl\.ca\.location=/no/such/file cannot be used: No such file"),
        ({"ssl_ca_location": str(tmp_path / "client.key")}, "certificates in PEM form"),
        ({"ssl_ca_pem": "?"}, r"ssl\.ca\.pem cannot be used"),
        ({"ssl_engine_id": "x"}, r"ssl\.engine\.id cannot be followed"),
        ({"ssl_endpoint_identification_algorithm": "dns"}, "https or none"),
    ]:
        with pytest.raises(BadInput, match=what):
            context(**wrong)
