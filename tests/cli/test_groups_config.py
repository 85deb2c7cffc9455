"""`--command-config`: whose settings count, and what is said of a file that cannot be used."""

from pathlib import Path

import pytest

from muster.cli.groups.connect import DEFAULTS, Asked, settings_of
from muster.cli.options import Format
from muster.cli.status import Status
from tests.cli import run


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "client.properties"


def asked(bootstrap: str | None, config: Path | None) -> Asked:
    return Asked(bootstrap, config, 1000, Format.TEXT, False)


def test_the_command_line_wins_over_the_file_and_the_file_over_our_defaults(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config.write_text("# comment\nbootstrap.servers = there:1\nclient.id: me\nsasl.password=\\u00fc\\\n  x\n")
    assert settings_of(asked(None, config)) == DEFAULTS | {
        "bootstrap.servers": "there:1",
        "client.id": "me",
        "sasl.password": "üx",
    }
    assert settings_of(asked("here:2", config))["bootstrap.servers"] == "here:2"
    monkeypatch.setenv("MUSTER_BOOTSTRAP_SERVERS", "everywhere:3")
    assert settings_of(asked(None, config))["bootstrap.servers"] == "there:1"
    assert settings_of(asked(None, None))["bootstrap.servers"] == "everywhere:3"


def test_a_pkcs12_store_goes_to_librdkafka_without_its_type(config: Path) -> None:
    config.write_text("ssl.keystore.location=/c/me\nssl.keystore.type=PKCS12\nssl.keystore.password=pw\n")
    assert settings_of(asked("here:2", config)) == DEFAULTS | {
        "bootstrap.servers": "here:2",
        "ssl.keystore.location": "/c/me",
        "ssl.keystore.password": "pw",
    }


class TestOnTheCommandLine:
    def refused(self, *arguments: str | Path) -> str:
        ran = run("groups", "list", "-b", "127.0.0.1:1", *arguments)
        assert (ran.status, ran.out) == (Status.BAD_INPUT, "")
        return ran.err

    def test_a_file_that_is_not_there_and_a_directory(self, tmp_path: Path) -> None:
        assert (
            "none.properties cannot be read: No such file or directory. Name a file such as client.properties"
            in self.refused("--command-config", tmp_path / "none.properties")
        )
        assert "cannot be read: Is a directory. Name a file" in self.refused("--command-config", tmp_path)

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
