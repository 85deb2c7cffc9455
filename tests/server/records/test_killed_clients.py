"""Real producers of three kinds go on through kill -9 of their server: what they were told is there, and once.

Each has a partition of its own, numbers its records, and sends the next ones while the server is away. After every
kill the log must begin with what could be read before it, hold every record that was acknowledged, and each number once
and in its place.
"""

import asyncio
import random
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer
from kafka import KafkaProducer

from tests.server.raw import Raw, ServerProcess, create_topic
from tests.server.records.talking import fetch, records_in

TOPIC = "orders"
IN_FLIGHT = 20
PAUSE_S = 0.002
GIVE_UP_S = 60
AWAY_AT_MOST_S = 0.1
"""From the kill to the next start."""


class Sending(Protocol):
    """A client's producer. `send` returns at once; `told` hears of the end, None if the record is acknowledged."""

    def send(self, partition: int, value: bytes, told: Callable[[Any], None]) -> None: ...

    def close(self) -> None: ...


class Librdkafka:
    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({
            "bootstrap.servers": bootstrap, "enable.idempotence": True, "acks": "all", "linger.ms": 1,
            "message.timeout.ms": GIVE_UP_S * 1000, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 50,
            "retry.backoff.ms": 20, "log_level": 0,
        })  # fmt: skip

    def send(self, partition: int, value: bytes, told: Callable[[Any], None]) -> None:
        self._producer.produce(TOPIC, value, partition=partition, on_delivery=lambda error, record: told(error))
        self._producer.poll(0)

    def close(self) -> None:
        assert self._producer.flush(GIVE_UP_S) == 0


class KafkaPython:
    def __init__(self, bootstrap: str) -> None:
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap, enable_idempotence=True, acks="all", linger_ms=1,
            delivery_timeout_ms=GIVE_UP_S * 1000, request_timeout_ms=10_000, reconnect_backoff_ms=20,
            reconnect_backoff_max_ms=50, retry_backoff_ms=20,
        )  # fmt: skip

    def send(self, partition: int, value: bytes, told: Callable[[Any], None]) -> None:
        sent = self._producer.send(TOPIC, value, partition=partition)
        sent.add_callback(lambda record: told(None))
        sent.add_errback(told)

    def close(self) -> None:
        self._producer.flush(GIVE_UP_S)
        self._producer.close(GIVE_UP_S)


class AioKafka:
    """Its loop has a thread."""

    def __init__(self, bootstrap: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._call(self._start(bootstrap))

    def _call(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(GIVE_UP_S)

    async def _start(self, bootstrap: str) -> None:
        self._producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap, enable_idempotence=True, linger_ms=1, retry_backoff_ms=20,
            request_timeout_ms=GIVE_UP_S * 1000,
        )  # fmt: skip
        await self._producer.start()

    def send(self, partition: int, value: bytes, told: Callable[[Any], None]) -> None:
        sent = self._call(self._producer.send(TOPIC, value, partition=partition))
        self._loop.call_soon_threadsafe(sent.add_done_callback, lambda done: told(done.exception()))

    def close(self) -> None:
        self._call(self._producer.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(GIVE_UP_S)
        self._loop.close()


KINDS: tuple[Callable[[str], Sending], ...] = (Librdkafka, KafkaPython, AioKafka)


class Producing:
    """One client that numbers its records, with some of them in flight, until it is told to end."""

    def __init__(self, kind: Callable[[str], Sending], partition: int, bootstrap: str) -> None:
        self.partition = partition
        self.name = kind.__name__  # type: ignore[attr-defined]
        self.acknowledged: set[int] = set()
        self.sent = 0
        self.problems: list[str] = []
        self._kind, self._bootstrap = kind, bootstrap
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def value(self, number: int) -> str:
        return f"{self.name}:{number}"

    def _told(self, number: int, error: Any) -> None:
        if error is None:
            self.acknowledged.add(number)
        else:
            self.problems.append(f"{self.value(number)}: {error!r}")

    def _run(self) -> None:
        try:
            client = self._kind(self._bootstrap)
            while not self._is_over.wait(PAUSE_S):
                if self.sent - len(self.acknowledged) < IN_FLIGHT:
                    number, self.sent = self.sent, self.sent + 1
                    client.send(self.partition, self.value(number).encode(), self._teller(number))
                elif isinstance(client, Librdkafka):
                    client._producer.poll(0)
            client.close()
        except Exception as error:
            self.problems.append(f"{self.name}: {error!r}")

    def _teller(self, number: int) -> Callable[[Any], None]:
        return lambda error: self._told(number, error)

    def end(self) -> None:
        self._is_over.set()
        self._thread.join(GIVE_UP_S)
        assert not self._thread.is_alive(), f"{self.name} does not end"


class Log:
    """What could be read of each partition so far; it must never be less, nor different."""

    def __init__(self) -> None:
        self.values: dict[int, list[str]] = {partition: [] for partition in range(len(KINDS))}

    def read_on(self, raw: Raw) -> None:
        for partition, values in self.values.items():
            while True:
                told = fetch(raw, TOPIC, partition, len(values))
                assert told["errorCode"] == 0, f"of {len(values)} records that were read some are gone: {told}"
                found = [one for one in records_in(told["records"]) if one.offset >= len(values)]
                if not found:
                    break
                values += [(one.value or b"").decode() for one in found]

    def check(self, producer: Producing, acknowledged: set[int]) -> None:
        values = self.values[producer.partition]
        assert values == [producer.value(number) for number in range(len(values))], f"{producer.name}: out of place"
        lost = sorted(number for number in acknowledged if number >= len(values))
        assert not lost, f"{producer.name}: acknowledged and lost: {lost}"


def until(condition: Callable[[], bool], producers: list[Producing]) -> None:
    deadline = time.monotonic() + GIVE_UP_S
    while not condition():
        problems = [problem for producer in producers for problem in producer.problems]
        assert not problems, problems
        assert time.monotonic() < deadline, {one.name: (one.sent, len(one.acknowledged)) for one in producers}
        time.sleep(0.005)


def story(data: Path, rounds: int, seed: int) -> dict[str, int]:
    """Kill a server so often under its clients; returns how many records of each were acknowledged."""
    rng = random.Random(seed)
    log, producers = Log(), []
    with socket.create_server(("127.0.0.1", 0)) as free:  # clients look for it where it was
        port = free.getsockname()[1]
    server = ServerProcess(data, port=port)
    try:
        for number in range(rounds + 1):
            server.start()
            if not number:
                create_topic(server.address, TOPIC, len(KINDS))
                bootstrap = f"{server.address[0]}:{port}"
                producers = [Producing(kind, partition, bootstrap) for partition, kind in enumerate(KINDS)]
            with Raw(server.address) as raw:
                acknowledged = [producer.acknowledged.copy() for producer in producers]
                log.read_on(raw)
                for producer, theirs in zip(producers, acknowledged, strict=True):
                    log.check(producer, theirs)
                before = [len(producer.acknowledged) for producer in producers]
                until(lambda: all(len(p.acknowledged) > b for p, b in zip(producers, before, strict=True)), producers)  # noqa: B023
                if number == rounds:
                    break
                time.sleep(rng.random() / 10)
                log.read_on(raw)
            server.kill()
            time.sleep(rng.random() * AWAY_AT_MOST_S)
        for producer in producers:
            producer.end()
            assert not producer.problems
            assert len(producer.acknowledged) == producer.sent
        with Raw(server.address) as raw:
            log.read_on(raw)
        for producer in producers:
            log.check(producer, producer.acknowledged)
            assert len(log.values[producer.partition]) == producer.sent, "each record is there, and once"
        return {producer.name: producer.sent for producer in producers}
    finally:
        server.__exit__()


def test_three_clients_through_kills(tmp_path: Path) -> None:
    assert min(story(tmp_path / "data", rounds=3, seed=1).values()) > 0


@pytest.mark.long
def test_three_clients_through_fifty_kills(tmp_path: Path) -> None:
    print(story(tmp_path / "data", rounds=50, seed=2))
