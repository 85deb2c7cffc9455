"""Killed under load, a server comes back with every record that it acknowledged, and with none of them twice."""

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from muster.protocol.apis import ApiKey
from tests.server.raw import Raw, ServerProcess, create_topic, running
from tests.server.records.talking import PRODUCE, all_values, batch, produce_body

PRODUCERS, PARTITIONS, IN_FLIGHT = 3, 2, 4


class Producing:
    """An idempotent producer: batches in a row, several in flight; what was not acknowledged it sends again."""

    def __init__(self, number: int, producer_id: int) -> None:
        self.partition = number % PARTITIONS
        self.producer_id = producer_id
        self.name = f"producer-{number}"
        self.acknowledged = 0
        self._thread = threading.Thread()
        self._is_over = False

    def values(self, sequence: int) -> list[str]:
        return [f"{self.name}:{sequence}:{part}" for part in ("a", "b")]

    def resume(self, address: tuple[str, int]) -> None:
        """Produce in a thread until the server is gone, or `end` is called."""
        self._thread = threading.Thread(target=self._run, args=(address,), daemon=True)
        self._thread.start()

    def wait(self) -> None:
        self._thread.join(30)
        assert not self._thread.is_alive()

    def end(self) -> None:
        self._is_over = True
        self.wait()

    def _run(self, address: tuple[str, int]) -> None:
        try:
            with Raw(address) as raw:
                next_sequence = self.acknowledged
                waiting: list[tuple[int, int]] = []
                while waiting or not self._is_over:
                    while len(waiting) < IN_FLIGHT and not self._is_over:
                        data = batch(
                            *self.values(next_sequence), producer_id=self.producer_id, producer_epoch=0,
                            base_sequence=2 * next_sequence,
                        )  # fmt: skip
                        body = produce_body("orders", {self.partition: data})
                        waiting.append((raw.send(ApiKey.PRODUCE, PRODUCE, **body), next_sequence))
                        next_sequence += 1
                    heard, answer = raw.hear(ApiKey.PRODUCE, PRODUCE)
                    number, sequence = waiting.pop(0)
                    assert heard == number
                    error = answer["responses"][0]["partitionResponses"][0]["errorCode"]
                    assert error == 0, f"{self.name} {sequence}: {error}"
                    self.acknowledged = sequence + 1
        except (EOFError, OSError):
            return


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def story(data: Path, rounds: int, seed: int) -> None:
    rng = random.Random(seed)
    producers: list[Producing] = []
    for number in range(rounds + 1):
        with running(data) as server:
            with Raw(server.address) as raw:
                if not number:
                    create_topic(server.address, "orders", PARTITIONS)
                    producers = [Producing(n, raw_id(raw)) for n in range(PRODUCERS)]
                    assert len({producer.producer_id for producer in producers}) == PRODUCERS
                else:
                    check(raw, producers)
            if number == rounds:
                finish(server, producers)
                return
            before = [producer.acknowledged for producer in producers]
            for producer in producers:
                producer.resume(server.address)
            until(lambda: all(p.acknowledged > b for p, b in zip(producers, before, strict=True)))  # noqa: B023
            time.sleep(rng.random() / 10)
            server.kill()
            for producer in producers:
                producer.wait()


def raw_id(raw: Raw) -> int:
    answer = raw.ask(ApiKey.INIT_PRODUCER_ID, 4, transactionalId=None, transactionTimeoutMs=1_000)
    assert answer["errorCode"] == 0
    producer_id: int = answer["producerId"]
    return producer_id


def check(raw: Raw, producers: list[Producing]) -> None:
    """Every record of a producer in its row, once, at least as far as was acknowledged."""
    for partition in range(PARTITIONS):
        values = all_values(raw, "orders", partition)
        for producer in producers:
            if producer.partition == partition:
                own = [value for value in values if value.startswith(f"{producer.name}:")]
                expected = [value for number in range(len(own) // 2) for value in producer.values(number)]
                assert own == expected
                assert len(own) >= 2 * producer.acknowledged, f"{producer.name} lost records"


def finish(server: ServerProcess, producers: list[Producing]) -> None:
    """What was sent and not acknowledged is sent again, and is there once."""
    for producer in producers:
        producer.resume(server.address)
    for producer in producers:
        producer.end()
    with Raw(server.address) as raw:
        check(raw, producers)


def test_killed_and_killed_again(tmp_path: Path) -> None:
    story(tmp_path / "data", rounds=3, seed=1)


@pytest.mark.long
def test_killed_fifty_times(tmp_path: Path) -> None:
    story(tmp_path / "data", rounds=50, seed=2)
