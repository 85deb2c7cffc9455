"""Clients of all kinds do the same things with muster. docs/clients.md has the table."""

import re
import struct
import time
from pathlib import Path
from typing import Any

import pytest

from muster.broker import Broker
from tests.kit.kafka import REPOSITORY
from tests.server.clients.programs import CLIENTS, CODECS, EVERYTHING, Client, table
from tests.server.clients.world import (
    VALUES,
    WAIT_S,
    World,
    are_shared,
    has_all,
    of_all_clients,
    of_those_that_can,
)


@of_all_clients(lambda client: client.codecs)
def test_a_group_reads_what_was_produced(client: Client, what: str, broker: Broker, programs: Any, data: Path) -> None:
    world = World(client, programs(client), broker, what)
    world.produce(VALUES, codec=what)
    assert codecs_in(data, world.topic) == {what}
    world.join("reader")
    world.poll_until(lambda state: state["reader"]["values"] == VALUES, "reader")
    world.program.ask("leave", member="reader")


def codecs_in(data: Path, topic: str) -> set[str]:
    """How the batches of a topic's first partition are compressed on disk."""
    (log,) = data.glob(f"**/{topic}-0/*.log")
    stored, at, found = log.read_bytes(), 0, set()
    while at < len(stored):
        found.add(CODECS[stored[at + 22] & 7])
        at += 12 + struct.unpack_from(">i", stored, at + 8)[0]
    return found


@of_all_clients(lambda client: client.assignors)
def test_members_come_and_go(client: Client, what: str, broker: Broker, programs: Any) -> None:
    come_and_go(World(client, programs(client), broker, what), what, 2)


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("client", "assignor"), [(client, assignor) for client in CLIENTS.values() for assignor in client.assignors],
    ids=lambda each: each if isinstance(each, str) else each.name,
)  # fmt: skip
def test_five_members_come_and_go(client: Client, assignor: str, broker: Broker, programs: Any) -> None:
    come_and_go(World(client, programs(client), broker, f"five-{assignor}"), assignor, 5)


def come_and_go(world: World, assignor: str, size: int) -> None:
    members: list[str] = []
    for number in range(size):
        members.append(f"member-{number}")
        world.join(members[-1], assignor)
        world.poll_until(are_shared, *members)
    assert world.broker.groups()[world.group].protocol == assignor
    while members:
        world.program.ask("leave", member=members.pop(0))
        if members:
            world.poll_until(are_shared, *members)
    assert world.broker.wait_for_members(world.group, 0).state == "Empty"


@of_those_that_can("static member")
def test_a_static_member_comes_back_without_a_rebalance(client: Client, broker: Broker, programs: Any) -> None:
    world = World(client, programs(client), broker, "static")
    world.join("one", instance="one")  # the leader: a leader that comes back may ask for a rebalance itself (franz-go)
    world.poll_until(lambda state: bool(state["one"]["assigned"]), "one")
    world.join("two", instance="two")
    before = world.poll_until(are_shared, "one", "two")
    generation = broker.groups()[world.group].generation
    world.program.ask("leave", member="two")
    world.join("again", instance="two")
    after = world.poll_until(lambda state: bool(state["again"]["assigned"]), "one", "again")
    assert sorted(after["again"]["assigned"]) == sorted(before["two"]["assigned"])
    assert broker.groups()[world.group].generation == generation
    for member in ("one", "again"):
        world.program.ask("leave", member=member)


@of_those_that_can("commit with metadata")
def test_the_next_member_begins_at_a_commit_with_metadata(client: Client, broker: Broker, programs: Any) -> None:
    world = World(client, programs(client), broker, "commit")
    world.produce(VALUES)
    world.join("first")
    world.poll_until(lambda state: state["first"]["values"] == VALUES, "first")
    world.program.ask("commit", member="first", topic=world.topic, offset=15, metadata="so far: ünï")
    world.program.ask("leave", member="first")
    (kept,) = broker.commits(world.group)
    zero_byte = "\0" if client.name == "confluent-kafka" else ""  # it sends what ends its strings, and that is kept
    assert (kept.offset, kept.metadata) == (15, "so far: ünï" + zero_byte)
    assert [0, 15, "so far: ünï"] in world.program.ask("committed", group=world.group)
    world.join("second")
    world.poll_until(lambda state: state["second"]["values"] == VALUES[15:], "second")
    world.program.ask("leave", member="second")


@of_those_that_can("seek")
def test_a_consumer_goes_back_to_the_beginning(client: Client, broker: Broker, programs: Any) -> None:
    world = World(client, programs(client), broker, "seek")
    world.produce(VALUES)
    world.join("reader")
    world.poll_until(lambda state: state["reader"]["values"] == VALUES, "reader")
    world.program.ask("seek", member="reader", topic=world.topic)
    world.poll_until(lambda state: state["reader"]["values"] == VALUES + VALUES, "reader")
    world.program.ask("leave", member="reader")


@of_those_that_can("a member dies")
def test_another_has_the_partitions_of_one_that_dies(client: Client, broker: Broker, programs: Any) -> None:
    world = World(client, programs(client), broker, "dies")
    victim = client.start(broker.bootstrap_servers)
    try:
        world.join("survivor", session_ms=3_000)
        world.join("victim", session_ms=3_000, program=victim)
        world.poll_until(are_shared, "survivor", victim=victim)
    finally:
        victim.kill()
    world.poll_until(has_all, "survivor")
    world.program.ask("leave", member="survivor")


@of_those_that_can("a member stalls")
def test_a_member_that_stalls_is_removed_and_comes_back(client: Client, broker: Broker, programs: Any) -> None:
    world = World(client, programs(client), broker, "stalls")
    sleeper = client.start(broker.bootstrap_servers)
    try:
        world.join("other", session_ms=3_000)
        limit = {"max_poll_ms": 3_000} if client.has_poll_interval else {}
        world.join("sleeper", session_ms=3_000, program=sleeper, **limit)
        world.poll_until(are_shared, "other", sleeper=sleeper)
        if not client.has_poll_interval:
            sleeper.pause()
        world.poll_until(has_all, "other")
        broker.wait_for_members(world.group, 1)
        sleeper.resume()
        world.poll_until(are_shared, "other", sleeper=sleeper)
    finally:
        sleeper.kill()
    world.program.ask("leave", member="other")


@of_those_that_can("server restart")
def test_an_idempotent_producer_goes_on_after_a_restart(client: Client, broker: Broker, programs: Any) -> None:
    world = World(client, programs(client), broker, "restart")
    world.produce(VALUES[:10])
    # What comes now is stored, and the client does not hear so before the server is gone: it has to send it again.
    unanswered = broker.faults.drop_connection("Produce", after=True, times=None)
    world.program.tell("produce", topic=world.topic, values=VALUES[10:], codec="none")
    deadline = time.monotonic() + WAIT_S
    while not unanswered.met:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    broker.stop()
    broker.start()
    world.program.hear()
    assert world.stored() == VALUES


@of_those_that_can("groups")
def test_groups_are_listed_and_described(client: Client, broker: Broker, programs: Any) -> None:
    world = World(client, programs(client), broker, "groups")
    world.join("seen")
    world.poll_until(has_all, "seen")
    assert world.group in world.program.ask("groups")
    state, (member,) = world.program.ask("describe", group=world.group)
    assert (state, member.startswith("seen")) == ("Stable", True)
    world.program.ask("leave", member="seen")
    broker.wait_for_members(world.group, 0)
    assert world.program.ask("describe", group=world.group) == ["Empty", []]


@of_those_that_can("alter offsets")
def test_a_committed_offset_is_altered(client: Client, broker: Broker, programs: Any) -> None:
    world = World(client, programs(client), broker, "altered")
    broker.seed_commits(world.group, {(world.topic, 0): 3, (world.topic, 1): 4})
    world.program.ask("alter_offsets", group=world.group, topic=world.topic, offset=7)
    assert broker.committed(world.group) == {(world.topic, 0): 7, (world.topic, 1): 4}


@of_those_that_can("delete offsets")
def test_a_committed_offset_is_deleted(client: Client, broker: Broker, programs: Any) -> None:
    world = World(client, programs(client), broker, "offsets")
    broker.seed_commits(world.group, {(world.topic, 0): 3, (world.topic, 1): 4})
    world.program.ask("delete_offsets", group=world.group, topic=world.topic)
    assert broker.committed(world.group) == {(world.topic, 1): 4}


@of_those_that_can("delete group")
def test_a_group_is_deleted(client: Client, broker: Broker, programs: Any) -> None:
    world = World(client, programs(client), broker, "group")
    broker.seed_commits(world.group, {(world.topic, 0): 3})
    world.program.ask("delete_group", group=world.group)
    assert world.group not in broker.groups()


@of_those_that_can("delete topic")
def test_a_topic_is_deleted_with_what_was_committed_for_it(client: Client, broker: Broker, programs: Any) -> None:
    world = World(client, programs(client), broker, "topic")
    broker.create_topic(f"{world.topic}-kept")
    broker.seed_commits(world.group, {(world.topic, 0): 3, (f"{world.topic}-kept", 0): 4})
    world.program.ask("delete_topic", topic=world.topic)
    assert world.topic not in broker.topics()
    assert broker.committed(world.group) == {(f"{world.topic}-kept", 0): 4}


def test_the_table_in_the_docs_is_up_to_date() -> None:
    page = (REPOSITORY / "docs" / "clients.md").read_text(encoding="utf-8")
    assert table() in page, f"docs/clients.md should have this table:\n{table()}"


def test_every_behaviour_of_the_table_has_a_test() -> None:
    sources = [each.read_text(encoding="utf-8") for each in sorted(Path(__file__).parent.glob("test_*.py"))]
    tested = set(re.findall(r'^@of_those_that_can\("([^"]*)"', "\n".join(sources), re.M)) | {"members come and go"}
    assert tested == set(EVERYTHING)
