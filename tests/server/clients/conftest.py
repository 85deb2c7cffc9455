"""A broker for each file of tests, and the programs of clients that talk to it."""

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from muster.broker import Broker
from tests.server.clients.programs import Client, Program


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("clients") / "data"


@pytest.fixture(scope="module")
def broker(data: Path) -> Iterator[Broker]:
    with socket.create_server(("127.0.0.1", 0)) as free:  # it is restarted, and clients look for it where it was
        port = free.getsockname()[1]
    with Broker(data=data, listeners=f"PLAINTEXT://127.0.0.1:{port}") as running:
        yield running


@pytest.fixture(scope="module")
def programs(broker: Broker) -> Iterator[Callable[[Client], Program]]:
    """One process for all tests of a client, started when it is first asked for."""
    running: dict[str, Program] = {}

    def program(client: Client) -> Program:
        if client.name not in running:
            running[client.name] = client.start(broker.bootstrap_servers)
        return running[client.name]

    yield program
    for each in running.values():
        each.kill()
