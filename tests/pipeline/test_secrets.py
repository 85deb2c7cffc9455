"""Passwords and keys do not travel: not with tasks, not in arguments. Tasks look them up."""

import json
import stat
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle

from muster.config.client import SECRETS_FILE, read_client_properties, with_secrets, without_secrets
from muster.errors import BadInput
from muster.live.settings import client_settings
from muster.pipeline.engine import LocalEngine, Reading
from muster.pipeline.job import Request, run
from muster.pipeline.merge import MergeAnswer
from muster.pipeline.model import LiveLog
from muster.pipeline.plan import PartitionState
from muster.pipeline.sources import live_cluster as live_source
from muster.pipeline.sources import offsets_topic as sources
from muster.pipeline.spark.session import secrets_as_references
from muster.references import is_secret, resolved
from tests.cli import corpus
from tests.cli import run as run_command

PASSWORD = "correct-horse-battery"
KEY = "battery-horse-correct"
LOGIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "me"}


class Pickling(LocalEngine):
    """Tasks in this process, as the bytes that Spark would write into files and send to workers."""

    def __init__(self) -> None:
        self.sent = b""

    def read(self, task: Any, works: Sequence[Any]) -> Reading:
        return super().read(*self._sent(task, works))

    def merge(self, task: Any, works: Sequence[Any], readings: Sequence[Reading]) -> list[MergeAnswer]:
        return super().merge(*self._sent(task, works), readings)

    def _sent(self, *things: Any) -> Any:
        packed = cloudpickle.dumps(things)
        self.sent += packed
        return cloudpickle.loads(packed)


class LiveOnDisk(sources.LogDirectories):
    """A log directory behind a client's configuration: every task must be able to log in."""

    def __init__(self, config: dict[str, str]) -> None:
        super().__init__([Path(corpus("mini-zstd-43"))])
        self._config = tuple(sorted(config.items()))

    def partitions(self, epochs: Any) -> list[PartitionState]:
        states = super().partitions(epochs)
        self.directories = {state.offsets_partition: state.source for state in states}
        return [state._replace(source=LiveLog(self._config, "__consumer_offsets")) for state in states]


@pytest.fixture
def logins(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The passwords that tasks log in with; the bytes come from a directory."""
    found: list[str] = []
    opened: list[LiveOnDisk] = []

    def source(config: dict[str, str]) -> LiveOnDisk:
        found.append(client_settings(config).sasl.password)  # type: ignore[union-attr]
        opened.append(LiveOnDisk(config))
        return opened[-1]

    def download(config: dict[str, str], topic: str, number: int, start: int, end: int | None, target: Path) -> int:
        found.append(client_settings(config).sasl.password)  # type: ignore[union-attr]
        for file in Path(opened[-1].directories[number].directories[0]).glob("*.log"):  # type: ignore[union-attr]
            (target / file.name).write_bytes(file.read_bytes())
        return 0

    monkeypatch.setattr(live_source, "LiveSource", source)
    monkeypatch.setattr("muster.live.download.download", download)
    return found


@pytest.mark.parametrize("how", ["text", "a file", "the environment", "a properties file"])
def test_a_password_is_not_in_the_bytes_of_a_task_and_tasks_log_in(
    how: str, logins: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text(PASSWORD + "\n")
    monkeypatch.setenv("MY_KAFKA_PASSWORD", PASSWORD)
    config = LOGIN | {
        "sasl.password": {
            "text": PASSWORD,
            "a file": f"${{file:{tmp_path}/secret}}",
            "the environment": "${env:MY_KAFKA_PASSWORD}",
            "a properties file": PASSWORD,
        }[how]
    }
    if how == "a properties file":
        file = tmp_path / "client.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in config.items()))
        config = without_secrets(read_client_properties(file), file)
    runner = Pickling()
    request = Request(["kafka://127.0.0.1:1"], str(tmp_path / "t"), {"AWS_SECRET_ACCESS_KEY": KEY}, config)
    summary = run(runner, replace(request, analytics=how == "text"))
    assert summary.records > 0
    assert len(logins) > 1
    assert set(logins) == {PASSWORD}
    assert PASSWORD.encode() not in runner.sent
    assert KEY.encode() not in runner.sent
    assert b"sasl.username" in runner.sent


def test_a_secret_as_text_is_kept_from_other_users_and_gone_afterwards() -> None:
    with secrets_as_references(
        {"a": "1", "sasl.password": PASSWORD, "ssl.key.pem": "-----\nx\n-----"}, is_local=True
    ) as settings:
        assert settings["a"] == "1"
        place = Path(settings["sasl.password"].removeprefix("${file:").removesuffix("}"))
        assert stat.S_IMODE(place.stat().st_mode) == 0o600
        assert stat.S_IMODE(place.parent.stat().st_mode) == 0o700
        assert resolved(settings) == {"a": "1", "sasl.password": PASSWORD, "ssl.key.pem": "-----\nx\n-----"}
    assert not place.parent.exists()


def test_on_a_cluster_a_secret_as_text_is_refused(tmp_path: Path) -> None:
    runner = Pickling()
    runner.is_local = False
    with pytest.raises(BadInput, match=r"sasl\.password is given as text.*\$\{env:NAME\} or \$\{file:PATH\}"):
        run(runner, Request(["kafka://127.0.0.1:1"], str(tmp_path / "t"), {}, LOGIN | {"sasl.password": PASSWORD}))
    with pytest.raises(BadInput, match="AWS_SECRET_ACCESS_KEY is given as text"):
        run(runner, Request(["x"], str(tmp_path / "t"), {"AWS_SECRET_ACCESS_KEY": KEY}))


def test_a_worker_without_the_file_says_what_to_do(tmp_path: Path) -> None:
    config = LOGIN | {SECRETS_FILE: str(tmp_path / "client.properties")}
    with pytest.raises(BadInput, match=r"Passwords do not travel with tasks: put the file in the same place on every"):
        with_secrets(config)
    with pytest.raises(BadInput, match=r"cannot be looked up on .*: there is no variable NOBODY_SET_THIS"):
        client_settings({**LOGIN, "bootstrap.servers": "x:1", "sasl.password": "${env:NOBODY_SET_THIS}"})


def test_the_command_passes_the_place_of_the_file_and_not_what_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jaas = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="{PASSWORD}";'
    config = tmp_path / "client.properties"
    config.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={jaas}\n")
    asked: list[dict[str, str]] = []

    def opened(names: object, kafka: dict[str, str], *_: object) -> None:
        asked.append(kafka)
        raise BadInput("far enough.")

    monkeypatch.setattr(sources, "open_source", opened)
    ran = run_command("pipeline", "run", "--source", "kafka://h:1", "--out", tmp_path / "t", "--command-config", config)
    assert "far enough." in ran.err
    assert PASSWORD not in json.dumps(asked)
    assert asked[0][SECRETS_FILE] == str(config)
    assert client_settings({**asked[0], "bootstrap.servers": "h:1"}).sasl.password == PASSWORD  # type: ignore[union-attr]


@pytest.mark.parametrize("command", [("table", "offsets", "--tables"), ("pipeline", "run", "--source", "x", "--out")])
def test_a_secret_among_the_arguments_is_warned_of(command: tuple[str, ...], tmp_path: Path) -> None:
    ran = run_command(*command, tmp_path / "t", "--storage-option", f"AWS_SECRET_ACCESS_KEY={KEY}")
    assert "everybody on this machine can read that in the list of processes" in ran.err
    assert KEY not in ran.err
    quiet = run_command(*command, tmp_path / "t", "--storage-option", "AWS_SECRET_ACCESS_KEY=${env:MY_KEY}")
    assert "list of processes" not in quiet.err


@pytest.mark.parametrize(
    ("name", "expected"),
    [("sasl.password", True), ("ssl.key.password", True), ("ssl.key.pem", True), ("sasl.jaas.config", True),
     ("ssl.keystore.key", True), ("ssl.keystore.location", False),
     ("AWS_SECRET_ACCESS_KEY", True), ("aws_session_token", True), ("AZURE_STORAGE_ACCOUNT_KEY", True),
     ("account_key", True), ("azure_storage_sas_key", True), ("spark.hadoop.fs.s3a.secret.key", True),
     ("AWS_ACCESS_KEY_ID", False), ("AWS_REGION", False), ("ssl.key.location", False), ("sasl.username", False)],
)  # fmt: skip
def test_what_is_a_secret(name: str, expected: bool) -> None:
    assert is_secret(name) is expected
