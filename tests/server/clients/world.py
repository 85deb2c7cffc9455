"""A client and a broker, and which clients a behaviour is tried with."""

import time
from collections.abc import Callable
from itertools import chain
from typing import Any

import pytest

from muster.broker import Broker
from tests.server.clients.programs import CLIENTS, Client, Program

WAIT_S = 60.0
PARTITIONS = 6
VALUES = [f"{number}: " + "a value that can be compressed, " * 8 for number in range(20)]


class World:
    """A client, the broker, and names for a topic and a group that no other test has."""

    def __init__(self, client: Client, program: Program, broker: Broker, about: str) -> None:
        self.client, self.program, self.broker = client, program, broker
        self.topic = self.group = f"{client.name}-{about}".replace(" ", "-")
        broker.create_topic(self.topic, partitions=PARTITIONS)

    def join(
        self, member: str, assignor: str | None = None, instance: str | None = None, session_ms: int = 10_000,
        program: Program | None = None, max_poll_ms: int | None = None,
    ) -> None:  # fmt: skip
        about: dict[str, Any] = {"group": self.group, "topic": self.topic, "session_ms": session_ms}
        about |= {"max_poll_ms": max_poll_ms} if max_poll_ms else {}
        (program or self.program).ask("join", member=member, assignor=assignor, instance=instance, **about)

    def poll_until(self, is_so: Callable[[Any], bool], *members: str, **elsewhere: Program) -> Any:
        """Poll until the members are as they should be; members of other programs by name."""
        deadline = time.monotonic() + WAIT_S
        while True:
            state = self.program.ask("poll", members=list(members))
            for member, program in elsewhere.items():
                state |= program.ask("poll", members=[member])
            if is_so(state):
                return state
            assert time.monotonic() < deadline, state

    def produce(self, values: list[str], codec: str = "none") -> None:
        self.program.ask("produce", topic=self.topic, values=values, codec=codec)
        deadline = time.monotonic() + WAIT_S
        while len(self.stored()) < len(values):  # kcat does not say when they are delivered
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def stored(self) -> list[str]:
        return [bytes(record.value or b"").decode() for record in self.broker.records(self.topic, 0)]


def are_shared(state: Any) -> bool:
    """Every partition has one member, and nobody has more than another by more than one."""
    shares = [each["assigned"] for each in state.values()]
    sizes = [len(share) for share in shares]
    return sorted(chain(*shares)) == list(range(PARTITIONS)) and max(sizes) - min(sizes) <= 1


def has_all(state: Any) -> bool:
    return all(sorted(each["assigned"]) == list(range(PARTITIONS)) for each in state.values())


def of_all_clients(behaviours: Callable[[Client], tuple[str, ...]]) -> Any:
    """Client by behaviour: those that take long to start are for `make real`."""
    return pytest.mark.parametrize(
        ("client", "what"),
        [
            pytest.param(client, what, id=f"{client.name}-{what}", marks=() if client.is_quick else pytest.mark.matrix)
            for client in CLIENTS.values()
            for what in behaviours(client)
        ],
    )


def of_those_that_can(behaviour: str, *every_day: str) -> Any:
    """In `make real` all of them; in `make test` those that are quick, or only some that are named."""
    able = [client for client in CLIENTS.values() if behaviour not in client.cannot]
    daily = every_day or [client.name for client in able if client.is_quick]
    return pytest.mark.parametrize(
        "client",
        [
            pytest.param(client, id=client.name, marks=() if client.name in daily else pytest.mark.matrix)
            for client in able
        ],
    )
