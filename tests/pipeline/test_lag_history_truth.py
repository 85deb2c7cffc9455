"""`lag_history` of a cluster at work, beside what kafka-consumer-groups said about every second meanwhile.

Four groups: one keeps up, one falls behind and catches up, one stops, one stands still. While the pipeline follows,
Kafka's tool is asked on and on (in one process: to start it takes longer than to ask), and its answers are kept with
the times before and after. Offsets only rise here. So what a row says of a moment lies between the last answer before
it and the first answer one interval after it; a log's end, between the answers around the two runs that it is
interpolated between.
"""

import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from muster.tables.sql.intervals import INTERVAL_MS
from tests.cli import command
from tests.kit.java.compiled import ConsumerGroups
from tests.kit.kafka import KafkaBroker
from tests.pipeline.world import Row, rows_of, run_here
from tests.real.drive import QUIET, SETTINGS, WAIT_S

pytestmark = pytest.mark.kafka
PARTITIONS = 2
QUICK, WAVES, STOPS, STANDS = "history-quick", "history-waves", "history-stops", "history-stands"
Place = tuple[str, int]
"""A group and a partition."""


class Answer(NamedTuple):
    """What Kafka's tool said, asked after the first time and answered before the second."""

    asked_ms: int
    told_ms: int
    committed: dict[Place, int]
    ends: dict[int, int]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Load:
    """A topic that is written all the time, and its groups."""

    def __init__(self, broker: KafkaBroker, topic: str, wave_s: float) -> None:
        self.broker, self.topic, self._wave_s = broker, topic, wave_s
        self._client = QUIET | {"bootstrap.servers": broker.bootstrap}
        admin = AdminClient(self._client)
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(WAIT_S)
        self._ends = dict.fromkeys(range(PARTITIONS), 0)
        self.is_over, self.has_stopped, self._is_on = threading.Event(), threading.Event(), threading.Event()
        self._threads = [
            threading.Thread(target=each, daemon=True) for each in (self._produce, self._keep_up, self._lag)
        ]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        assert self._is_on.wait(3 * WAIT_S)
        return self

    def __exit__(self, *_: object) -> None:
        self.is_over.set()
        for thread in self._threads:
            thread.join(WAIT_S)

    def _produce(self) -> None:
        """In bursts; one partition gets four times as much as the other."""
        producer = Producer(self._client | {"linger.ms": 0})
        burst = 0
        while not self.is_over.wait(0.05 if burst % 10 else 0.3):
            burst += 1
            for partition, count in enumerate((4, 1)):
                for _ in range(count):
                    producer.produce(self.topic, b"x" * 20, partition=partition)
            assert producer.flush(WAIT_S) == 0
            self._ends = {0: 4 * burst, 1: burst}

    def _keep_up(self) -> None:
        consumer = Consumer(self._client | SETTINGS | {"group.id": QUICK, "session.timeout.ms": 6000})
        consumer.subscribe([self.topic])
        while not self.is_over.is_set():
            if consumer.consume(500, 0.05) and consumer.assignment():
                consumer.commit(asynchronous=False)
        consumer.close()

    def _lag(self) -> None:
        """The others, by hand: in waves; until told to stop; once."""
        waves, stops, stands = (
            Consumer(self._client | SETTINGS | {"group.id": group}) for group in (WAVES, STOPS, STANDS)
        )
        self._commit(stands, dict.fromkeys(range(PARTITIONS), 1))
        began = time.monotonic()
        self._is_on.set()
        while not self.is_over.wait(0.05):
            if int((time.monotonic() - began) / self._wave_s) % 2:
                self._commit(waves, self._ends)
            if not self.has_stopped.is_set():
                self._commit(stops, self._ends)
        for each in (waves, stops, stands):
            each.close()

    def _commit(self, consumer: Consumer, offsets: dict[int, int]) -> None:
        places = [TopicPartition(self.topic, partition, offset) for partition, offset in offsets.items()]
        while not self.is_over.is_set():
            try:
                consumer.commit(offsets=places, asynchronous=False)
                return
            except KafkaException:  # the coordinator is not there yet
                time.sleep(0.1)


class Recorder:
    """Asks Kafka's tool in a thread of its own."""

    def __init__(self, load: Load, tool: ConsumerGroups, every_s: float) -> None:
        self._load, self._tool, self._every_s = load, tool, every_s
        self.answers: list[Answer] = []

    @contextmanager
    def recording(self) -> Iterator[None]:
        is_over = threading.Event()

        def record() -> None:
            while not is_over.wait(self._every_s):
                self.ask()

        thread = threading.Thread(target=record, daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join(3 * WAIT_S)
            assert not thread.is_alive()

    def ask(self) -> Answer:
        asked_ms = now_ms()
        text = self._tool.ask("--describe", "--all-groups")
        told_ms = now_ms()
        committed, ends = {}, {}
        for words in map(str.split, text.splitlines()):
            if len(words) > 5 and words[1] == self._load.topic and words[3].isdigit():
                group, partition = words[0], int(words[2])
                committed[group, partition] = int(words[3])
                ends[partition] = max(int(words[4]), ends.get(partition, 0))
        self.answers.append(Answer(asked_ms, told_ms, committed, ends))
        return self.answers[-1]


class Told(NamedTuple):
    """The published tables, and the answers of Kafka's tool."""

    rows: dict[Place, list[Row]]
    """In order of time."""
    looks: dict[int, list[int]]
    """When each partition's end was observed."""
    answers: Sequence[Answer]
    interval_ms: int

    def check(self) -> None:
        for place, rows in self.rows.items():
            for row in rows:
                self.check_committed(place, row)
                self._check_end(place, row)
                self._check_lag(place, row)
            self._check_between(place, rows)

    def _last(self, until_ms: int) -> Answer | None:
        return next((each for each in reversed(self.answers) if each.told_ms <= until_ms), None)

    def _first(self, since_ms: int) -> Answer | None:
        return next((each for each in self.answers if each.asked_ms >= since_ms), None)

    def check_committed(self, place: Place, row: Row) -> None:
        before, after = self._last(row["at_ms"]), self._first(row["at_ms"] + self.interval_ms)
        if before is not None:
            assert before.committed.get(place, 0) <= row["committed_offset"], (place, row, before)
        if after is not None:
            assert row["committed_offset"] <= after.committed[place], (place, row, after)

    def _around(self, partition: int, at_ms: int) -> tuple[int, int]:
        """The runs before and after a moment: a line goes from one to the other."""
        looks = self.looks[partition]
        return max((look for look in looks if look <= at_ms), default=0), min(look for look in looks if look >= at_ms)

    def _check_end(self, place: Place, row: Row) -> None:
        if row["log_end_offset"] is None:
            assert row["at_ms"] < self.looks[place[1]][0] + self.interval_ms, (place, row)
            return
        left_ms, right_ms = self._around(place[1], row["at_ms"])
        before, after = self._last(left_ms), self._first(right_ms)
        if before is not None:
            assert before.ends.get(place[1], 0) <= row["log_end_offset"], (place, row, before)
        if after is not None:
            assert row["log_end_offset"] <= after.ends[place[1]], (place, row, after)

    def _check_lag(self, place: Place, row: Row) -> None:
        if row["lag"] is not None:
            assert row["lag"] == max(row["log_end_offset"] - row["committed_offset"], 0)
        if row["behind_since_ms"] is None:
            return
        committed, end = row["committed_offset"], place[1]
        reached = [each for each in self.answers if each.ends.get(end, 0) <= committed]
        passed = [each for each in self.answers if each.ends.get(end, 0) > committed]
        if reached and passed:
            left_ms, right_ms = self._around(end, reached[-1].asked_ms)[0], self._around(end, passed[0].told_ms)[1]
            assert left_ms <= row["behind_since_ms"] <= right_ms, (place, row)

    def _check_between(self, place: Place, rows: Sequence[Row]) -> None:
        """Between rows nothing changed: an answer is between the row before it and the one of its interval."""
        for answer in self.answers:
            earlier = [row for row in rows if row["interval_start_ms"] + self.interval_ms <= answer.asked_ms]
            own = [row for row in rows if row["interval_start_ms"] <= answer.told_ms and row not in earlier]
            if place in answer.committed:
                least = earlier[-1]["committed_offset"] if earlier else 0
                most = own[-1]["committed_offset"] if own else least
                assert least <= answer.committed[place] <= most, (place, answer, earlier[-1:], own)


def told_by(tables: Path, topic: str, answers: Sequence[Answer], interval_ms: int) -> Told:
    found = rows_of(tables, "lag_history", "log_ends")
    rows: dict[Place, list[Row]] = {}
    for row in sorted(found["lag_history"], key=lambda row: int(row["interval_start_ms"])):
        if row["topic"] == topic:
            rows.setdefault((row["group_id"], row["partition"]), []).append(row)
    looks = {
        partition: sorted(
            row["observed_at_ms"]
            for row in found["log_ends"]
            if (row["topic"], row["partition"]) == (topic, partition) and row["log_end_offset"] is not None
        )
        for partition in range(PARTITIONS)
    }
    return Told(rows, looks, answers, interval_ms)


def check_story(told: Told) -> None:
    """The load was what it was meant to be, and the table tells it."""
    for partition in range(PARTITIONS):
        quick, waves, stops, stands = (told.rows[group, partition] for group in (QUICK, WAVES, STOPS, STANDS))
        assert len({row["committed_offset"] for row in quick}) > 2
        assert max(row["lag"] or 0 for row in waves) > 3 * max(row["lag"] or 0 for row in quick[-3:])
        assert stops[-1]["lag"] > max(row["lag"] or 0 for row in stops[:2])
        assert {row["committed_offset"] for row in stands} == {1}
        assert stands[-1]["lag"] == stands[-1]["log_end_offset"] - 1
        assert {row["behind_since_ms"] for row in stops[-2:]} != {None}


def check_as_of(tables: Path, told: Told) -> None:
    """Asked for at a moment between two looks, lag is what `lag_history` has of that moment."""
    known = {place: {row["at_ms"]: row for row in rows} for place, rows in told.rows.items()}
    moments = sorted({at_ms for rows in known.values() for at_ms, row in rows.items() if is_drawn(row)})
    compared = 0
    for moment_ms in {moments[0], moments[len(moments) // 2], moments[-1]}:
        for row in rows_of(tables, "lag", as_of_ms=moment_ms)["lag"]:
            remembered = known.get((row["group_id"], row["partition"]), {}).get(moment_ms)
            if remembered is None or not is_drawn(remembered):
                continue
            assert row["observed_at_ms"] == moment_ms
            assert row["log_end_offset"] == max(remembered["log_end_offset"], row["committed_offset"])
            assert row["lag"] == max(row["log_end_offset"] - row["committed_offset"], 0)  # never unknown
            since = remembered["behind_since_ms"]
            if since is not None and row["committed_offset"] == remembered["committed_offset"]:
                assert abs(moment_ms - row["lag_ms"] - since) <= 1
            told.check_committed((row["group_id"], row["partition"]), row | {"at_ms": moment_ms})
            compared += 1
    assert compared >= 4


def is_drawn(row: Row) -> bool:
    return bool(row["log_end_by"] == "interpolated")


def check_at_rest(told: Told, answer: Answer) -> None:
    """Nothing moves any more: the newest rows are what the tool says."""
    newest = {place: rows[-1] for place, rows in told.rows.items()}
    assert {place: row["committed_offset"] for place, row in newest.items()} == answer.committed
    assert {place: row["lag"] for place, row in newest.items()} == {
        (group, partition): answer.ends[partition] - offset for (group, partition), offset in answer.committed.items()
    }


def test_lag_by_the_second_is_what_kafka_said_meanwhile(ordinary: KafkaBroker, tmp_path: Path) -> None:
    """With intervals of a second, and runs one after the other."""
    interval_ms, tables, cluster = 1000, tmp_path / "tables", f"kafka://{ordinary.bootstrap}"
    with ConsumerGroups(ordinary.kafka, ordinary.bootstrap) as tool:
        with Load(ordinary, "history-seconds", wave_s=1.5) as load:
            recorder = Recorder(load, tool, every_s=0.2)
            with recorder.recording():
                for number in range(4):
                    run_here(tables, cluster, analytics=True, interval_ms=interval_ms)
                    if number == 1:
                        load.has_stopped.set()
        answer = recorder.ask()
        run_here(tables, cluster, analytics=True)  # which keeps the length that the tables have
        assert recorder.ask()[2:] == answer[2:]
    told = told_by(tables, load.topic, recorder.answers, interval_ms)
    told.check()
    check_story(told)
    check_as_of(tables, told)
    check_at_rest(told, answer)


@pytest.mark.long
def test_lag_history_is_what_kafka_said_every_second(ordinary: KafkaBroker, tmp_path: Path) -> None:
    """As it is published, in intervals of five minutes, by a pipeline on Spark that follows the cluster."""
    tables, log = tmp_path / "tables", tmp_path / "log"
    arguments = (
        "--source",
        f"kafka://{ordinary.bootstrap}",
        "--out",
        tables,
        "--master",
        "local[2]",
        "--follow",
        "10s",
    )
    with (
        ConsumerGroups(ordinary.kafka, ordinary.bootstrap) as tool,
        log.open("wb") as out,
        Load(ordinary, "history-minutes", wave_s=150) as load,
    ):
        recorder = Recorder(load, tool, every_s=1.0)
        began = time.monotonic()
        following = subprocess.Popen(command("pipeline", "run", *arguments), stdout=out, stderr=out)
        try:
            with recorder.recording():
                wait_until(lambda: time.monotonic() - began > 4 * 60, following)
                load.has_stopped.set()
                wait_until(lambda: time.monotonic() - began > 690, following)
                load.is_over.set()
            time.sleep(1)
            answer = recorder.ask()
            wait_until(lambda: looked_after(tables, load.topic, answer.told_ms), following)
        finally:
            following.send_signal(signal.SIGINT)
            following.wait(120)
        assert recorder.ask()[2:] == answer[2:]
    told = told_by(tables, load.topic, recorder.answers, INTERVAL_MS)
    for looks in told.looks.values():
        assert max(two - one for one, two in pairwise(looks)) < INTERVAL_MS
    told.check()
    check_story(told)
    check_at_rest(told, answer)
    assert len(recorder.answers) > 100


def wait_until(is_so: Callable[[], bool], following: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 30 * 60
    while not is_so():
        assert following.poll() is None
        assert time.monotonic() < deadline
        time.sleep(1)


def looked_after(tables: Path, topic: str, moment_ms: int) -> bool:
    """Whether the published rows are of a look after a moment."""
    rows = rows_of(tables, "lag_history")["lag_history"]
    return max((row["at_ms"] for row in rows if row["topic"] == topic), default=0) > moment_ms
