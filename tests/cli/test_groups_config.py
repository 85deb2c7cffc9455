"""A Java client's properties in the words of librdkafka."""

from pathlib import Path

import pytest

from muster.cli.groups.config import client_settings
from muster.cli.groups.connect import DEFAULTS, Asked, settings_of
from muster.cli.options import Format
from muster.cli.status import Status
from muster.errors import BadInput
from tests.cli import run

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "client.properties"


@pytest.mark.parametrize(
    ("java", "ours"),
    [
        ({"security.protocol": "SASL_SSL"}, {"security.protocol": "SASL_SSL"}),
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
            {"ssl.keystore.location": "/c/me.p12", "ssl.keystore.password": "pw", "ssl.keystore.type": "PKCS12"},
            {"ssl.keystore.location": "/c/me.p12", "ssl.keystore.password": "pw"},
        ),
        (
            {"ssl.keystore.location": "/c/me", "ssl.keystore.type": "pkcs12"},
            {"ssl.keystore.location": "/c/me"},
        ),
        (
            {"ssl.keystore.location": "/c/me.pem"},
            {"ssl.certificate.location": "/c/me.pem", "ssl.key.location": "/c/me.pem"},
        ),
        ({"ssl.truststore.certificates": "-----BEGIN"}, {"ssl.ca.pem": "-----BEGIN"}),
        (
            {"ssl.endpoint.identification.algorithm": ""},
            {"ssl.endpoint.identification.algorithm": "none"},
        ),
    ],
)
def test_what_has_another_name(java: dict[str, str], ours: dict[str, str]) -> None:
    assert client_settings(java, "f") == ours


@pytest.mark.parametrize(
    ("java", "words"),
    [
        (
            {"ssl.truststore.location": "/c/trust.jks"},
            "Java trust store, which only Java reads. Write its certificates",
        ),
        ({"ssl.keystore.location": "/c/key.jks"}, r"Java key store, which only Java reads. Turn it into PKCS#12"),
        ({"sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required;"}, "sasl.kerberos"),
        ({"sasl.jaas.config": 'x.OtherLoginModule required username="a" password="b";'}, "only PlainLoginModule and"),
        ({"sasl.jaas.config": f'{PLAIN} username="alice";'}, "with a username and a password"),
    ],
)
def test_what_cannot_be_said_is_refused_with_a_way_out(java: dict[str, str], words: str) -> None:
    with pytest.raises(BadInput, match=f"^client.properties: .*{words}"):
        client_settings(java, "client.properties")


def asked(bootstrap: str | None, config: Path | None) -> Asked:
    return Asked(bootstrap, config, 1000, Format.TEXT, False)


def test_the_command_line_wins_over_the_file_and_the_file_over_our_defaults(config: Path) -> None:
    config.write_text("# comment\nbootstrap.servers = there:1\nclient.id: me\nsasl.password=\\u00fc\\\n  x\n")
    assert settings_of(asked(None, config)) == DEFAULTS | {
        "bootstrap.servers": "there:1",
        "client.id": "me",
        "sasl.password": "üx",
    }
    assert settings_of(asked("here:2", config))["bootstrap.servers"] == "here:2"


class TestOnTheCommandLine:
    def refused(self, *arguments: str | Path) -> str:
        ran = run("groups", "list", "-b", "127.0.0.1:1", *arguments)
        assert (ran.status, ran.out) == (Status.BAD_INPUT, "")
        return ran.err

    def test_a_file_that_is_not_there_and_a_directory(self, tmp_path: Path) -> None:
        assert "none.properties does not exist. --command-config names a file" in self.refused(
            "--command-config", tmp_path / "none.properties"
        )
        assert "is a directory" in self.refused("--command-config", tmp_path)

    def test_a_damaged_and_a_huge_file(self, config: Path) -> None:
        config.write_text("a=\\u12")
        assert "client.properties: line 1 has a \\u without" in self.refused("--command-config", config)
        config.write_bytes(bytes(2 << 20))
        assert "larger than 1 MB" in self.refused("--command-config", config)

    def test_a_security_setting_that_does_not_exist_is_not_left_out(self, config: Path) -> None:
        config.write_text("sasl.mechansim=PLAIN\n")
        assert 'No such configuration property: "sasl.mechansim"' in self.refused("--command-config", config)

    def test_a_value_that_is_none(self, config: Path) -> None:
        config.write_text("security.protocol=TLS\n")
        assert 'Invalid value "TLS" for configuration property "security.protocol"' in self.refused(
            "--command-config", config
        )
