"""A port for GET requests: how many it answers at a time, and whether they still wait."""

import http.client
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from muster import http_port
from muster.http_port import HasLeft, HttpPort, Reply

TIMEOUT_S = 30.0
Ask = Callable[[], http.client.HTTPResponse]


def said(text: str) -> Reply:
    return Reply(200, "text/plain", text.encode())


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpPort]:
    monkeypatch.setattr(http_port, "MOST_CLIENTS", 2)
    opened = HttpPort("127.0.0.1", 0, lambda *_: said("well"), "--port")
    yield opened
    opened.close()


def address(port: HttpPort) -> tuple[str, int]:
    host, _, number = port.url.split("/")[2].rpartition(":")
    return host, int(number)


def ask(port: HttpPort) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(*address(port), timeout=TIMEOUT_S)
    connection.request("GET", "/", headers={"Connection": "close"})
    reply = connection.getresponse()
    return reply.status, reply.read()


def test_clients_beyond_the_most_are_sent_away_until_others_have_gone(port: HttpPort) -> None:
    silent = [socket.create_connection(address(port), TIMEOUT_S) for _ in range(2)]
    assert ask(port) == (503, b"Too many clients.\n")
    for client in silent:
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")
        while client.recv(4096):
            pass
        client.close()
    answers = [ask(port) for _ in range(20)]  # the room is given back after the connection was closed
    assert answers[-1] == (200, b"well")


def test_whether_a_client_has_left() -> None:
    has_come, seen, go_on = threading.Event(), list[bool](), threading.Event()

    def answer(path: str, host: str, has_left: HasLeft) -> Reply:
        seen.append(has_left())
        has_come.set()
        while path == "/leaves" and not seen[-1] and not go_on.wait(0.01):
            seen.append(has_left())
        return said("well")

    port = HttpPort("127.0.0.1", 0, answer, "--port")
    try:
        assert ask(port) == (200, b"well")
        assert seen == [False]
        has_come.clear()
        with socket.create_connection(address(port), TIMEOUT_S) as client:
            client.sendall(b"GET /leaves HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert has_come.wait(TIMEOUT_S)
            assert not seen[-1]
        last = threading.Event()
        for _ in range(3000):
            if seen[-1]:
                break
            last.wait(0.01)
        assert seen[-1]
    finally:
        go_on.set()
        port.close()


def test_an_address_of_the_newer_kind() -> None:
    try:
        port = HttpPort("::1", 0, lambda *_: said("well"), "--port")
    except Exception as error:  # a machine without IPv6
        pytest.skip(str(error))
    try:
        assert port.url.startswith("http://[::1]:")
        connection = http.client.HTTPConnection("::1", int(port.url.rsplit(":", 1)[1].strip("/")), timeout=TIMEOUT_S)
        connection.request("GET", "/")
        assert connection.getresponse().read() == b"well"
    finally:
        port.close()
