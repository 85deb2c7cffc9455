"""Files of Java's clients and of librdkafka's, and what they come to."""

import ssl
from pathlib import Path

import pytest

from muster.config.client import librdkafka_names, read_client_properties
from muster.errors import BadInput
from muster.live.sasl import Sasl
from muster.live.settings import Address, client_settings
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
    assert read_client_properties(path) == {
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
    assert read_client_properties(path) == {
        "bootstrap.servers": "a.example.com:9093",
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "me",
        "sasl.password": "with blanks",
        "ssl.ca.location": "/etc/ca.pem",
    }


def test_a_file_is_utf8_where_it_can_be_and_latin_1_where_not(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    for encoding in ("utf-8", "latin-1"):
        path.write_bytes("sasl.password=gr\u00fc\u00df dich \\u00e9".encode(encoding))
        assert read_client_properties(path) == {"sasl.password": "gr\u00fc\u00df dich \u00e9"}


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(BadInput, match=r"cannot be read.*client\.properties"):
            read_client_properties(path)
    large = tmp_path / "large"
    large.write_bytes(b"#" * (2 << 20))
    with pytest.raises(BadInput, match="larger than 1 MB"):
        read_client_properties(large)


PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"


@pytest.mark.parametrize(
    ("java", "ours"),
    [
        ({"security.protocol": "SASL_SSL "}, {"security.protocol": "SASL_SSL"}),
        ({"sasl.password": " blanks "}, {"sasl.password": " blanks "}),
        (
            {"sasl.jaas.config": f'{PLAIN} username="alice" password="s3\\"cret;=";'},
            {"sasl.username": "alice", "sasl.password": 's3"cret;='},
        ),
        (
            {"sasl.jaas.config": f"{SCRAM} password=pw username=bob;", "sasl.mechanism": "SCRAM-SHA-512"},
            {"sasl.username": "bob", "sasl.password": "pw", "sasl.mechanism": "SCRAM-SHA-512"},
        ),
        ({"ssl.truststore.location": "/c/ca.pem"}, {"ssl.ca.location": "/c/ca.pem"}),
        ({"ssl.truststore.location": "/c/ca", "ssl.truststore.type": "PEM"}, {"ssl.ca.location": "/c/ca"}),
        (
            {"ssl.keystore.location": "/c/me.p12", "ssl.keystore.password": "pw"},
            {"ssl.keystore.location": "/c/me.p12", "ssl.keystore.password": "pw"},
        ),
        (
            {"ssl.keystore.location": "/c/me", "ssl.keystore.type": "pkcs12"},
            {"ssl.keystore.location": "/c/me", "ssl.keystore.type": "pkcs12"},
        ),
        (
            {"ssl.keystore.location": "/c/me.pem", "ssl.keystore.password": "pw"},
            {"ssl.certificate.location": "/c/me.pem", "ssl.key.location": "/c/me.pem"},
        ),
        (
            {"ssl.keystore.type": "PEM", "ssl.keystore.location": "/me"},
            {"ssl.certificate.location": "/me", "ssl.key.location": "/me"},
        ),
        ({"ssl.keystore.key": "KEY", "ssl.truststore.certificates": "CA"}, {"ssl.key.pem": "KEY", "ssl.ca.pem": "CA"}),
        ({"ssl.endpoint.identification.algorithm": ""}, {"ssl.endpoint.identification.algorithm": "none"}),
        (
            {"sasl.oauthbearer.client.credentials.client.id": "me"},
            {"sasl.oauthbearer.client.id": "me"},
        ),
    ],
)
def test_what_has_another_name(java: dict[str, str], ours: dict[str, str]) -> None:
    assert librdkafka_names(java, "f") == ours
    assert librdkafka_names(ours, "f") == ours, "a second translation changes nothing"


@pytest.mark.parametrize(
    ("properties", "way_out"),
    [
        (
            {"ssl.truststore.location": "/c/trust.jks"},
            "Java trust store, which only Java reads. Write its certificates.*keytool -list -rfc",
        ),
        ({"ssl.keystore.location": "/c/key.jks"}, r"Java key store, which only Java reads. Turn it into PKCS#12"),
        ({"sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required;"}, "PLAIN or SCRAM"),
        ({"sasl.jaas.config": 'x.OtherLoginModule required username="a" password="b";'}, "only PlainLoginModule and"),
        ({"sasl.jaas.config": "x.OAuthBearerLoginModule required;"}, r"For OAUTHBEARER set sasl\.oauthbearer\.\*"),
        ({"sasl.jaas.config": f'{PLAIN} username="alice";'}, "with a username and a password"),
    ],
)
def test_what_cannot_be_translated_is_refused_with_a_way_out(properties: dict[str, str], way_out: str) -> None:
    with pytest.raises(BadInput, match=f"^client.properties: .*{way_out}"):
        librdkafka_names(properties, "client.properties")


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
    with pytest.raises(BadInput, match="GSSAPI: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER can be used"):
        client_settings(given | {"sasl.mechanisms": "GSSAPI"})
    with pytest.raises(BadInput, match=r"\(none\)"):
        client_settings(HERE | {"security.protocol": "SASL_SSL"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("security.protocol", "TLS"),
        ("socket.timeout.ms", "soon"),
        ("request.timeout.ms", "-1"),
        ("receive.message.max.bytes", "0"),
    ],
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
    context(
        ssl_certificate_location=mine["ssl_certificate_location"], ssl_key_pem=(tmp_path / "client.plain").read_text()
    )
    store = {"ssl_keystore_location": str(tmp_path / "client.p12")}
    context(**store, ssl_keystore_password="store-password")
    context(**store, ssl_keystore_password="store-password", ssl_keystore_type="PKCS12")
    revoked = context(ssl_crl_location=str(tmp_path / "crl.pem"))
    assert revoked.verify_flags & ssl.VERIFY_CRL_CHECK_LEAF
    for wrong, what in [
        (store, r"ssl\.keystore\.password does not open it"),
        (store | {"ssl_keystore_password": "x"}, r"ssl\.keystore\.password does not open it"),
        (
            {"ssl_keystore_location": "/no/such.p12"},
            r"ssl\.keystore\.location=/no/such\.p12 cannot be read: No such file",
        ),
        ({"ssl_crl_location": "/no/such.pem"}, r"ssl\.crl\.location=/no/such\.pem cannot be used"),
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
