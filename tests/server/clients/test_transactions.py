"""Clients of all kinds and their transactions, with muster, and in `make real` with Kafka too."""

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.broker import Broker
from muster.server.transactions.steps import Step
from tests.server.clients.exactly_once import ExactlyOnce
from tests.server.clients.places import (
    SETTINGS,
    UNSTABLE_OFFSET_COMMIT,
    WAIT_S,
    Place,
    committed,
    is_resolved,
    members_of,
    remove_members,
    running,
    until,
    until_or_later,
    values,
)
from tests.server.clients.programs import Client, Program
from tests.server.clients.world import of_those_that_can
from tests.server.transactions.inside import one_marker_held, stopped_at

PARTITIONS = 3
JOINS_AGAIN_S = 1.0
INPUTS = [f"input {number}" for number in range(60)]


@pytest.fixture(scope="module", params=["on-muster", pytest.param("on-kafka", marks=pytest.mark.matrix)])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with running(request.param, tmp_path_factory.mktemp("transactions") / "data") as broker:
        yield broker


@pytest.fixture(scope="module")
def programs(place: Place) -> Iterator[Callable[[Client], Program]]:
    started: dict[str, Program] = {}

    def program(client: Client) -> Program:
        if client.name not in started:
            started[client.name] = client.start(place.bootstrap_servers)
        return started[client.name]

    yield program
    for each in started.values():
        each.kill()


class World:
    """A client and a topic of its own; `clean` reads what is committed, `dirty` everything."""

    def __init__(self, client: Client, place: Place, program: Program, about: str) -> None:
        self.client, self.place, self.program = client, place, program
        self.topic = self.group = self.id = f"{client.name}-{about}".replace(" ", "-")
        place.create_topic(self.topic, partitions=PARTITIONS)

    def readers(self) -> None:
        for member, isolation in (("clean", "read_committed"), ("dirty", "read_uncommitted")):
            about = {"group": f"{self.group}-{member}", "topic": self.topic, "session_ms": 10_000}
            self.program.ask("join", member=member, assignor=None, instance=None, isolation=isolation, **about)

    def poll_until(self, is_so: Callable[[Any], bool], *members: str) -> Any:
        deadline = time.monotonic() + WAIT_S
        while True:
            state = self.program.ask("poll", members=list(members))
            if is_so(state):
                return state
            assert time.monotonic() < deadline, state

    def are_read(self, clean: list[str], dirty: list[str]) -> None:
        """Poll until `dirty` has read these; `clean` must then have read those, and nothing else."""
        wanted = {"clean": sorted(clean), "dirty": sorted(dirty)}
        self.poll_until(lambda state: {name: sorted(each["values"]) for name, each in state.items()} == wanted, *wanted)

    def leave(self, *members: str) -> None:
        for member in members:
            self.program.ask("leave", member=member)

    def transactional(self, producer: str, timeout_ms: int = 60_000) -> None:
        self.program.ask("transactional", producer=producer, id=self.id, timeout_ms=timeout_ms)

    def begin(self, producer: str, values: list[str]) -> None:
        self.program.ask("begin", producer=producer)
        self.program.ask("send", producer=producer, topic=self.topic, values=values, partitions=PARTITIONS)


@of_those_that_can("committed transaction")
def test_a_transaction_is_seen_once_it_is_committed(client: Client, place: Place, programs: Any) -> None:
    world = World(client, place, programs(client), "committed")
    world.readers()
    world.transactional("one")
    for number in range(2):  # the second goes on with the epoch, or with the one after it
        first, more = INPUTS[: 8 * number], INPUTS[: 8 * (number + 1)]
        world.begin("one", INPUTS[8 * number : 8 * (number + 1)])
        world.are_read(clean=first, dirty=more)
        world.program.ask("commit_transaction", producer="one")
        world.are_read(clean=more, dirty=more)
    world.leave("clean", "dirty")


@of_those_that_can("aborted transaction")
def test_a_transaction_that_is_aborted_is_never_seen(client: Client, place: Place, programs: Any) -> None:
    world = World(client, place, programs(client), "aborted")
    world.readers()
    world.transactional("one")
    world.begin("one", INPUTS[:8])
    world.are_read(clean=[], dirty=INPUTS[:8])
    world.program.ask("abort_transaction", producer="one")
    world.begin("one", INPUTS[8:12])
    world.program.ask("commit_transaction", producer="one")
    world.are_read(clean=INPUTS[8:12], dirty=INPUTS[:12])
    world.leave("clean", "dirty")


@of_those_that_can("fenced producer")
def test_a_producer_is_fenced_by_its_successor(client: Client, place: Place, programs: Any) -> None:
    world = World(client, place, programs(client), "fenced")
    world.readers()
    world.transactional("old")
    world.begin("old", INPUTS[:8])
    world.transactional("new")
    world.begin("new", INPUTS[8:12])
    problem = world.program.refusal("commit_transaction", producer="old")
    assert re.search(r"(?i)fenced|epoch", problem), problem
    world.program.ask("commit_transaction", producer="new")
    world.are_read(clean=INPUTS[8:12], dirty=INPUTS[:12])
    world.leave("clean", "dirty")


@of_those_that_can("slow transaction")
def test_a_transaction_that_takes_too_long_is_aborted(client: Client, place: Place, programs: Any) -> None:
    world = World(client, place, programs(client), "slow")
    world.transactional("slow", timeout_ms=1_000)
    world.begin("slow", INPUTS[:8])
    until(lambda: is_resolved(place, world.topic, PARTITIONS))
    problem = world.program.refusal("commit_transaction", producer="slow")
    assert re.search(r"(?i)fenced|epoch|state", problem), problem
    world.transactional("next")
    world.begin("next", INPUTS[8:12])
    world.program.ask("commit_transaction", producer="next")
    assert values(place, world.topic, PARTITIONS) == sorted(INPUTS[8:12])


@of_those_that_can("offsets in a transaction")
def test_offsets_in_a_transaction_are_pending_until_it_ends(client: Client, place: Place, programs: Any) -> None:
    world = World(client, place, programs(client), "offsets")
    about = {"group": world.group, "topic": world.topic, "session_ms": 10_000}
    world.program.ask("join", member="reader", assignor=None, instance=None, **about)
    world.poll_until(lambda state: len(state["reader"]["assigned"]) == PARTITIONS, "reader")
    world.transactional("one")
    for order, offset, kept in (("commit", 3, 3), ("abort", 5, 3), ("commit", 7, 7)):
        world.begin("one", INPUTS[:3])
        before = committed(place, world.group, world.topic)
        world.program.ask("send_offset", producer="one", member="reader", topic=world.topic, offset=offset)
        assert committed(place, world.group, world.topic) == before
        assert committed(place, world.group, world.topic, require_stable=True) == UNSTABLE_OFFSET_COMMIT
        world.program.ask(f"{order}_transaction", producer="one")
        until(lambda: committed(place, world.group, world.topic, require_stable=True) != UNSTABLE_OFFSET_COMMIT)
        assert committed(place, world.group, world.topic) == ("offset", kept)
    world.leave("reader")


@of_those_that_can("exactly once", "confluent-kafka")
def test_every_input_is_in_the_output_once_although_the_client_dies(client: Client, place: Place) -> None:
    with ExactlyOnce(client, place, "client-dies") as work:
        work.give(INPUTS)
        work.process_some()
        work.end()
        work.process_some()
        work.kill()  # before it could end its transaction
        work.restart()
        work.process_some()
        work.program.tell("commit_transaction", producer="worker")
        work.kill()  # before or after the coordinator has heard of it
        work.restart()
        work.finish(INPUTS)


@pytest.mark.matrix
@of_those_that_can("exactly once")
def test_every_input_is_in_the_output_once_although_the_group_is_rebalanced(client: Client, place: Place) -> None:
    """In the midst of a transaction; some clients join again by themselves, some when they are polled."""
    with ExactlyOnce(client, place, "rebalanced") as work:
        work.give(INPUTS)
        work.process_some()
        members = remove_members(place, work.group)
        until_or_later(lambda: members_of(place, work.group) not in ([], members), JOINS_AGAIN_S)
        work.program.tell("commit_transaction", producer="worker")
        work.is_told_of_the_end()
        work.finish(INPUTS)


@of_those_that_can("exactly once", "aiokafka")
def test_every_input_is_in_the_output_once_wherever_the_server_crashes(client: Client, tmp_path: Path) -> None:
    through_crashes(client, tmp_path, *Step)


@pytest.mark.matrix
@of_those_that_can("exactly once")
def test_every_input_is_in_the_output_once_wherever_the_client_dies(client: Client, tmp_path: Path) -> None:
    """In the midst of a transaction's end; the server goes on with it, or is started again too."""
    inputs = [f"input {number}" for number in range(120)]
    with (
        Broker(data=tmp_path / "data", settings=SETTINGS | {"muster.flush": "always"}) as broker,
        ExactlyOnce(client, broker, "client-dies", session_ms=3_000) as work,
    ):
        work.give(inputs)
        work.process_some()
        with stopped_at(broker, Step.PREPARED) as is_there:
            work.program.tell("commit_transaction", producer="worker")
            assert is_there.wait(WAIT_S)
            work.kill()
        work.restart().process_some()
        with one_marker_held(broker, work.output) as all_others_are_safe:
            work.program.tell("commit_transaction", producer="worker")
            until(all_others_are_safe)
            assert broker.transactions()[work.id].state == "PrepareCommit"
            work.kill()
        for step in (Step.PREPARED, Step.FIRST_MARKER):
            work.restart().process_some()
            crash = broker.faults.crash_at(step)
            work.program.tell("commit_transaction", producer="worker")
            until(lambda: crash.met > 0)  # noqa: B023
            work.kill()
            broker.kill_and_restart()
        work.restart().finish(inputs)


def through_crashes(client: Client, tmp_path: Path, *steps: Step) -> None:
    """Crashes at steps of a transaction's end, and one before it; in a thread a crash is a power cut."""
    settings = SETTINGS | {"muster.flush": "always"}
    inputs = [f"input {number}" for number in range(20 * (len(steps) + 1))]
    with (
        Broker(data=tmp_path / "data", settings=settings) as broker,
        ExactlyOnce(client, broker, "server-crashes", session_ms=3_000) as work,
    ):
        work.give(inputs)
        work.process_some()
        broker.kill_and_restart()  # the transaction is open, and its client goes on
        work.program.tell("commit_transaction", producer="worker")
        work.is_told_of_the_end()
        for step in steps:
            work.process_some()
            crash = broker.faults.crash_at(step)
            work.program.tell("commit_transaction", producer="worker")
            until(lambda: crash.met > 0)  # noqa: B023
            broker.kill_and_restart()
            work.is_told_of_the_end()
        work.finish(inputs)
