"""kill -9 of the server under three kinds of clients that read, process and write exactly once.

Each has topics of its own. Inputs come all the time; a transaction takes some, writes to several partitions and commits
the offsets of what it took. A client that cannot go on is started again with the same transactional id, as a service
would be. In the end every input is in the output once, and no transaction is open.
"""

import contextlib
import random
import threading
import time
from pathlib import Path
from typing import Protocol

import pytest
from confluent_kafka import Producer

from muster.protocol.apis import ApiKey
from tests.kit.kafka import RESTARTS_QUICKLY, dump_log, free_ports, require_kafka
from tests.server.clients.exactly_once import PARTITIONS, SILENT_S, ExactlyOnce
from tests.server.clients.places import SETTINGS, Kafka, Place, is_resolved, until
from tests.server.clients.programs import CLIENTS, Client, Refused
from tests.server.raw import Raw, ServerProcess, create_topic

KINDS = ("confluent-kafka", "aiokafka", "kafka-python")
PAUSE_S = 0.02
GIVE_UP_S = 120.0
AWAY_AT_MOST_S = 0.1
"""From the kill to the next start."""
ENDED = {"Empty", "CompleteCommit", "CompleteAbort"}


class Killable(Place, Protocol):
    def start(self) -> object: ...

    def kill(self) -> None: ...


class Muster(ServerProcess):
    def __init__(self, data: Path) -> None:
        settings = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
        super().__init__(data, *settings, port=free_ports(1)[0])
        self.data = data

    @property
    def bootstrap_servers(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"

    def close(self) -> None:
        self.__exit__()

    def create_topic(self, name: str, *, partitions: int) -> None:
        create_topic(self.address, name, partitions)


class Feeding:
    """Numbers without end for one service, by an idempotent producer that goes on through kills."""

    def __init__(self, place: Place, topic: str) -> None:
        self._topic = topic
        self._producer = Producer({
            "bootstrap.servers": place.bootstrap_servers, "enable.idempotence": True, "linger.ms": 1,
            "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 50, "retry.backoff.ms": 20, "log_level": 0,
        })  # fmt: skip
        self.sent = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over.wait(PAUSE_S):
            self._producer.produce(self._topic, str(self.sent), partition=self.sent % PARTITIONS)
            self._producer.poll(0)
            self.sent += 1

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join(GIVE_UP_S)

    def end(self) -> None:
        self.stop()
        assert self._producer.flush(GIVE_UP_S) == 0


class Service:
    """A client that processes what comes, in a thread; started again when it cannot go on."""

    def __init__(self, client: Client, place: Place, silent_s: float) -> None:
        self.name, self.acknowledged = client.name, 0
        self.problems: list[str] = []
        self._work = ExactlyOnce(client, place, "killed", session_ms=3_000, silent_s=silent_s)
        self.feeding = Feeding(place, self._work.inputs)
        self.output = self._work.output
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over.is_set():
            try:
                with self._work as work:
                    while not self._is_over.is_set():
                        self._some(work)
            except Refused as problem:
                self.problems.append(str(problem).splitlines()[0])

    def _some(self, work: ExactlyOnce) -> None:
        found = work.process()
        if found:
            work.end()
            self.acknowledged += found

    def __str__(self) -> str:
        return f"{self.name}: {self.acknowledged} of {self.feeding.sent}, started again after {self.problems}"

    def goes_on(self) -> None:
        """Wait until one more transaction of it is committed."""
        before, deadline = self.acknowledged, time.monotonic() + GIVE_UP_S
        while self.acknowledged == before:
            assert time.monotonic() < deadline, f"does not go on: {self}"
            time.sleep(0.02)

    def done(self) -> list[str]:
        return self._work.done()

    def kill(self) -> None:
        self._is_over.set()
        self.feeding.stop()
        self._work.kill()
        self._thread.join(GIVE_UP_S)

    def end(self) -> None:
        """Let it process what there is; every input must be in the output once."""
        self.feeding.end()
        wanted = sorted(f"done {number}" for number in range(self.feeding.sent))
        while len(self.done()) < len(wanted):
            before = self.acknowledged
            until(lambda: self.acknowledged > before or len(self.done()) >= len(wanted), GIVE_UP_S)  # noqa: B023
        self._is_over.set()
        self._thread.join(GIVE_UP_S)
        assert not self._thread.is_alive(), f"{self.name} does not end"
        assert self.done() == wanted


class Reader:
    """What could be read of each output so far; it must never be less, and hold nothing twice."""

    def __init__(self, services: list[Service]) -> None:
        self._seen: dict[str, set[str]] = {each.name: set() for each in services}

    def read_on(self, services: list[Service]) -> None:
        for each in services:
            acknowledged, found = each.acknowledged, each.done()
            assert len(set(found)) == len(found), f"{each.name}: twice in the output"
            assert self._seen[each.name] <= set(found), f"{each.name}: was read, and is gone"
            assert len(found) >= acknowledged, f"{each.name}: acknowledged and lost"
            self._seen[each.name] = set(found)


def story(server: Killable, rounds: int, seed: int, silent_s: float = SILENT_S) -> list[str]:
    """Kill a server so often under its clients; returns what became of each of them.

    A client that says nothing for `silent_s` is started again: on a busy machine it may only be slow.
    """
    rng = random.Random(seed)
    server.start()
    services = [Service(CLIENTS[kind], server, silent_s) for kind in KINDS]
    try:
        reader = Reader(services)
        for _ in range(rounds):
            for each in services:
                each.goes_on()
            time.sleep(rng.random() / 5)
            server.kill()
            time.sleep(rng.random() * AWAY_AT_MOST_S)
            server.start()
            reader.read_on(services)
        for each in services:
            each.end()
            until(lambda: is_resolved(server, each.output, PARTITIONS))  # noqa: B023
        until(lambda: set(states(server).values()) <= ENDED)
        return [str(each) for each in services]
    finally:
        for each in services:
            each.kill()


def states(place: Place) -> dict[str, str]:
    """Of the coordinator's transactions, by transactional id."""
    host, port = place.bootstrap_servers.split(":")
    with Raw((host, int(port))) as raw:
        answer = raw.ask(ApiKey.LIST_TRANSACTIONS, 1, stateFilters=[], producerIdFilters=[], durationFilter=-1)
    assert answer["errorCode"] == 0, answer
    return {each["transactionalId"]: each["transactionState"] for each in answer["transactionStates"]}


def test_exactly_once_through_kills(tmp_path: Path) -> None:
    through_kills(tmp_path, rounds=3, seed=1)


@pytest.mark.long
def test_exactly_once_through_fifty_kills(tmp_path: Path) -> None:
    through_kills(tmp_path, rounds=50, seed=2, silent_s=3 * SILENT_S)


def through_kills(tmp_path: Path, rounds: int, seed: int, silent_s: float = SILENT_S) -> None:
    server = Muster(tmp_path / "data")
    with contextlib.closing(server):
        print(*story(server, rounds, seed, silent_s), sep="\n")
    files = sorted(server.data.glob("*/*.log"))
    topics = {file.parent.name.rpartition("-")[0] for file in files}
    assert {"__consumer_offsets", "__transaction_state"} < topics
    dump_log([file for file in files if file.stat().st_size], "--deep-iteration", kafka=require_kafka())


@pytest.mark.matrix
def test_exactly_once_through_kills_of_kafka(tmp_path: Path) -> None:
    """Who judges muster by this story: it is so with Kafka."""
    with Kafka(require_kafka(), SETTINGS | RESTARTS_QUICKLY, tmp_path / "data") as kafka:
        kafka.stop()
        print(*story(kafka, rounds=2, seed=1), sep="\n")
