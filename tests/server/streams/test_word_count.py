"""Kafka Streams counts words, and is killed and started again: with exactly_once_v2 the counts are exact.

The cache of its store is off, so that it writes every count: for a word that comes n times 1, 2, ..., n, each once.
"""

import random
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest
from confluent_kafka import Producer

from tests.kit.kafka import Kafka
from tests.server.clients.places import Place, records, running, until
from tests.server.streams.jars import require_streams, word_count

WAIT_S = 120.0
PARTITIONS = 2
WORDS = ("one", "two", "three", "four", "five", "six")


@pytest.fixture(scope="module")
def streams() -> Kafka:
    return require_streams()


@pytest.fixture(params=["on-muster", "on-kafka"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with running(request.param, tmp_path / "data") as broker:
        yield broker


class Counting:
    """A process of the program; whoever starts the next one gives it the same folder."""

    def __init__(self, streams: Kafka, place: Place, guarantee: str, state: Path) -> None:
        command = word_count(streams, place.bootstrap_servers, guarantee, str(state))
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Self:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "running\n"
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.mark.matrix
@pytest.mark.kafka
@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_words_are_counted_through_kills(place: Place, streams: Kafka, guarantee: str, tmp_path: Path) -> None:
    output = f"counts-{guarantee}"
    for topic in ("words", output):
        place.create_topic(topic, partitions=PARTITIONS)
    rng, total, state = random.Random(1), Counter[str](), tmp_path / "state"
    for _ in range(3):
        total += give(place, rng, lines=300)
        some = len(counts(place, output)) + 100
        with Counting(streams, place, guarantee, state):  # killed in the midst of its work
            until(lambda: len(counts(place, output)) >= some, WAIT_S)  # noqa: B023
    with Counting(streams, place, guarantee, state):
        until(lambda: final(counts(place, output)) >= total, WAIT_S)
    if guarantee == "exactly_once_v2":
        wanted = sorted((word, number) for word, count in total.items() for number in range(1, count + 1))
        assert sorted(counts(place, output)) == wanted


def give(place: Place, rng: random.Random, lines: int) -> Counter[str]:
    producer, given = Producer({"bootstrap.servers": place.bootstrap_servers}), Counter[str]()
    for number in range(lines):
        words = rng.choices(WORDS, k=3)
        given.update(words)
        producer.produce("words", " ".join(words), partition=number % PARTITIONS)
    assert producer.flush(WAIT_S) == 0
    return given


def counts(place: Place, output: str) -> list[tuple[str, int]]:
    return [(word, int(count)) for word, count in records(place, output, PARTITIONS)]


def final(counts: list[tuple[str, int]]) -> Counter[str]:
    last = Counter[str]()
    for word, count in counts:
        last[word] = max(last[word], count)
    return last
