"""A broker in a process of its own: the same verbs, a real kill -9, and an HTTP port for other languages."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from muster.broker import Broker
from muster.errors import ConfigError, NotInTime
from muster.server.kit.control_port import TOKEN_FILE
from tests.server.raw import ServerProcess


def test_a_process_is_killed_and_what_was_acknowledged_is_there() -> None:
    with Broker(process=True) as broker:
        port = broker.port
        broker.seed_records("orders", ("k", b"\xff\xfe"), "two")
        broker.seed_commits("app", {("orders", 0): 1})
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": "all", "log_level": 0})
        producer.produce("orders", b"three")
        assert producer.flush(10) == 0
        with pytest.raises(NotInTime, match=r"group app is Empty with 0 members after 0.01 s"):
            broker.wait_for_members("app", 1, within=0.01)
        broker.faults.error("OffsetCommit", 16)

        broker.kill_and_restart()

        assert broker.port == port
        assert broker.do("faults") == []
        assert [record.value for record in broker.records("orders")] == [b"\xff\xfe", b"two", b"three"]
        assert broker.committed("app") == {("orders", 0): 1}
        broker.clock.advance("8 days")
        assert broker.committed("app") == {}
        broker.reset()
        assert (broker.topics(), broker.groups()) == ({}, {})
        assert "topic orders: created" in broker.log_text
        with pytest.raises(ConfigError, match="there is no API 'Nonsense'"):
            broker.faults.error("Nonsense", 16)


def test_a_process_that_does_not_start_says_why(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listeners = f"PLAINTEXT://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigError, match=r"ended with status 3: muster: port \d+ is taken"):
            Broker(process=True, listeners=listeners).start()


def test_a_process_ends_with_the_one_that_started_it() -> None:
    """Which may be killed itself."""
    script = (
        "import muster, os, time; broker = muster.Broker(process=True).start();"
        "print(broker._running._process.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    started = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    pid = int(started.stdout)
    for _ in range(1000):
        if not Path(f"/proc/{pid}").exists():
            return
        time.sleep(0.01)
    os.kill(pid, 9)
    raise AssertionError("it is still there")


# HTTP.


class Port:
    """The control port of a server, as a program in another language uses it."""

    def __init__(self, url: str, token: str) -> None:
        self.url, self.token = url, token

    def ask(
        self, path: str, body: bytes | None = b"{}", *, host: str = "", token: str | None = None, method: str = "POST"
    ) -> tuple[int, Any]:
        request = urllib.request.Request(f"{self.url}/{path}", body, method=method)
        if token != "":
            request.add_header("Authorization", f"Bearer {token or self.token}")
        if host:
            request.add_header("Host", host)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def do(self, verb: str, **arguments: Any) -> Any:
        status, answer = self.ask(verb, json.dumps(arguments).encode())
        assert status == 200, answer
        return answer["answer"]


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Port]:
    data = tmp_path_factory.mktemp("control") / "data"
    server = ServerProcess(data, "--control-port", "0").start()
    try:
        line = next(line for line in server.log.read_text().splitlines() if "control at http" in line)
        token = data / TOKEN_FILE
        assert token.stat().st_mode & 0o777 == 0o600
        yield Port(line.split("control at ")[1].split(",")[0], token.read_text())
    finally:
        server.stop()
    assert not token.exists()


def test_verbs_over_http_are_those_of_python(port: Port) -> None:
    assert port.do("seed_records", topic="orders", records=[{"value": "x"}, {"value": {"base64": "//4="}}]) == [
        {"partition": 0, "offset": 0}, {"partition": 0, "offset": 1},
    ]  # fmt: skip
    assert [record["value"] for record in port.do("records", topic="orders")] == ["x", {"base64": "//4="}]
    port.do("seed_commits", group="app", commits=[{"topic": "orders", "partition": 0, "offset": 1}])
    port.do("advance", duration="1 day")
    assert port.do("commits", group="app")[0]["offset"] == 1
    port.do("fault", what="error", api="OffsetCommit", code="NOT_COORDINATOR", times=None)
    port.do("reset")
    assert (port.do("groups"), port.do("topics"), port.do("faults")) == ([], [], [])
    with Broker() as broker:
        assert broker._kit is not None
        assert port.ask("", None, method="GET") == (200, {"answer": sorted(broker._kit.verbs)})
    status, answer = port.ask("records", b'{"topic": "nosuch"}')
    assert (status, answer["kind"]) == (400, "ConfigError")
    assert answer["error"].startswith("there is no topic nosuch")


@pytest.mark.parametrize(
    ("asked", "status", "said"),
    [
        ({"path": "reset", "token": ""}, 401, "the token is missing or wrong"),
        ({"path": "reset", "token": "guess"}, 401, "the token is missing or wrong"),
        ({"path": "reset", "host": "evil.example"}, 403, "Host is 'evil.example'; it must be 127.0.0.1:"),
        ({"path": "nonsense"}, 404, "there is no verb 'nonsense'"),
        ({"path": "reset", "body": None, "method": "GET"}, 405, "POST /reset does it"),
        ({"path": "reset", "body": b"{"}, 400, "are not JSON"),
        ({"path": "reset", "body": b"[]"}, 400, "should be a JSON object"),
        ({"path": "commits", "body": b'{"grup": "x"}'}, 400, "commits: missing a required argument: 'group'"),
        ({"path": "seed_records", "body": b'{"topic": "survivor", "records": [3]}'}, 400, "to be seeded is 3; it"),
        ({"path": "create_topic", "body": b'{"topic": "x", "partitions": "3"}'}, 400, "is '3'; it should be a whole"),
    ],
)  # fmt: skip
def test_what_is_refused_over_http(port: Port, asked: dict[str, Any], status: int, said: str) -> None:
    port.do("create_topic", topic="survivor")
    got, answer = port.ask(**asked)
    assert (got, said in answer["error"]) == (status, True), answer
    assert [topic["topic"] for topic in port.do("topics")] == ["survivor"]
    port.do("reset")


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("nonsense", 400),
        ("POST /reset HTTP/1.1\r\nHost: {host}\r\nHost: {host}\r\nAuthorization: Bearer {token}", 400),
        ("POST /reset HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nTransfer-Encoding: chunked", 400),
        ("POST /reset HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nContent-Length: -1", 400),
        ("POST /reset HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nContent-Length: 16777217", 413),
        ("POST /reset HTTP/1.1\r\nX: " + "x" * 40_000, 413),
    ],
    ids=range(6),
)  # fmt: skip
def test_what_is_no_request(port: Port, head: str, status: int) -> None:
    host = port.url.removeprefix("http://")
    with socket.create_connection(("127.0.0.1", int(host.rpartition(":")[2])), 10) as raw:
        raw.sendall(head.format(host=host, token=port.token).encode() + b"\r\n\r\n")
        assert raw.recv(1000).startswith(f"HTTP/1.1 {status} ".encode())


def test_a_server_without_a_control_port_takes_no_verbs(tmp_path: Path) -> None:
    from muster.server.control import ADDRESS_FILE

    server = ServerProcess(tmp_path / "data").start()
    try:
        with socket.socket(socket.AF_UNIX) as asked:
            asked.connect((tmp_path / "data" / ADDRESS_FILE).read_text())
            asked.sendall(b'{"do": "reset"}\n')
            assert json.loads(asked.recv(1000))["error"] == (
                "there is no command reset; those of the test kit need --control-port"
            )
    finally:
        server.stop()
