"""What one connection may have in work at a time."""

import asyncio
import struct
from collections.abc import Callable
from typing import Any, cast

import pytest

from muster.protocol.apis import ApiKey
from muster.server import connection as module
from muster.server.connection import Connection, PendingReply
from muster.server.connections import FairTurns, Intake, Unread
from muster.server.server_log import Stats


class FakeTransport(asyncio.Transport):
    """Takes everything that is written, or nothing."""

    def __init__(self, connection: Connection, is_read: bool) -> None:
        super().__init__()
        self._connection = connection
        self._is_read = is_read
        self.unsent_bytes = 0
        self.is_paused = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = high or 0

    def write(self, data: Any) -> None:
        if not self._is_read:
            self.unsent_bytes += len(data)
            if self.unsent_bytes > self._high:
                self._connection.pause_writing()

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False


class FakeHost:
    """Answers every request as the test says; counts them."""

    max_request_bytes = 100 << 20
    max_unsent_bytes = 16 << 20
    max_waiting = 500

    def __init__(self, handle: Callable[[Connection], PendingReply | None]) -> None:
        self._handle = handle
        loop = asyncio.get_running_loop()
        self.intake = Intake(1 << 20, 60_000, loop.time)
        self.unread = Unread(1 << 30)
        self.turns = FairTurns(loop)
        self.stats = Stats()
        self.handled = 0

    def handle(self, connection: Connection, data: bytes, position: int, end: int) -> PendingReply | None:
        self.handled += 1
        return self._handle(connection)

    def opened(self, connection: Connection) -> bool:
        return True

    def send_soon(self, connection: Connection) -> None:
        asyncio.get_running_loop().call_soon(connection.send_answers)


def connected(
    handle: Callable[[Connection], PendingReply | None], is_read: bool = True
) -> tuple[FakeHost, Connection, Any]:
    host = FakeHost(handle)
    made = Connection(cast(Any, host), asyncio.get_running_loop())
    transport = FakeTransport(made, is_read)
    made.connection_made(transport)
    return host, made, transport


def requests(count: int, size: int = 20, api_key: int = 0) -> bytes:
    return (struct.pack(">ih", size, api_key) + bytes(size - 2)) * count


def answered(size: int) -> Callable[[Connection], PendingReply]:
    """Every request has an answer of this size at once, and is one that is seldom asked."""

    def handle(connection: Connection) -> PendingReply:
        slot = connection.reply(3, lambda reply, answer: bytes(size), None)
        slot.answer(None)
        return slot

    return handle


@pytest.fixture(autouse=True)
def _all_the_time_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TURN_S", 600.0)


def unanswered(connection: Connection) -> None:
    connection.reply(8, lambda reply, answer: b"", None)


def test_after_a_request_that_may_take_long_it_is_the_turn_of_others(monkeypatch: Any) -> None:
    async def story() -> None:
        monkeypatch.setattr(module, "TURN_S", -1.0)  # it is over as soon as somebody looks
        host, one, _ = connected(answered(10))
        one.data_received(requests(100))
        assert host.handled == 1
        while host.handled < 100:
            await asyncio.sleep(0)

    asyncio.run(story())


@pytest.mark.parametrize(("api_key", "size"), [(ApiKey.OFFSET_COMMIT, 60_000), (ApiKey.FETCH, 70)])
def test_of_many_requests_that_take_long_one_is_handled_in_a_turn_of_the_loop_and_those_of_members_in_between(
    monkeypatch: pytest.MonkeyPatch, api_key: ApiKey, size: int
) -> None:
    """Ten clients with a request each that takes all of a turn, whatever its size, and a member of a group."""
    order: list[str] = []
    now_s = 0.0
    monkeypatch.setattr(module, "monotonic", lambda: now_s)

    def handle(connection: Connection) -> None:
        nonlocal now_s
        order.append(connection.peer)
        now_s += 0.5 if connection.peer == "greedy" else 0.0001

    async def story() -> None:
        host, small, _ = connected(handle)
        small.peer = "small"
        greedy = [Connection(cast(Any, host), asyncio.get_running_loop()) for _ in range(10)]
        for one in greedy:
            one.connection_made(cast(Any, FakeTransport(one, is_read=True)))
            one.peer = "greedy"
        for one in greedy:  # what comes in one turn of the loop
            one.data_received(requests(1, size, api_key))
        small.data_received(requests(1, api_key=ApiKey.HEARTBEAT))
        assert order == ["greedy", "small"]
        for _ in range(9):
            await asyncio.sleep(0)
            small.data_received(requests(1, api_key=ApiKey.HEARTBEAT))
        assert order == ["greedy", "small"] * 10

    asyncio.run(story())


def test_requests_that_waited_for_a_long_one_and_are_short_are_handled_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s, handled_in = 0.0, [0]
    monkeypatch.setattr(module, "monotonic", lambda: now_s)

    def handle(connection: Connection) -> None:
        nonlocal now_s
        handled_in[-1] += 1
        now_s += 0.5 if sum(handled_in) == 1 else 0.0003

    async def story() -> None:
        host, first, _ = connected(handle)
        others = [Connection(cast(Any, host), asyncio.get_running_loop()) for _ in range(20)]
        for one in others:
            one.connection_made(cast(Any, FakeTransport(one, is_read=True)))
        for one in (first, *others):
            one.data_received(requests(1, api_key=ApiKey.FETCH))
        while host.handled < 21:
            handled_in.append(0)
            await asyncio.sleep(0)
        assert handled_in[0] == 1
        assert len([count for count in handled_in if count]) <= 5, handled_in

    asyncio.run(story())


def test_a_large_answer_that_is_not_read_is_the_last_one_made() -> None:
    async def story() -> None:
        host, one, transport = connected(answered(1 << 20), is_read=False)
        one.data_received(requests(100))
        assert host.handled == 1
        assert transport.is_paused

    asyncio.run(story())


def test_large_answers_behind_one_that_is_awaited_are_few() -> None:
    async def story() -> None:
        host, one, _ = connected(answered(1 << 20))
        unanswered(one)
        one.data_received(requests(100))
        assert host.handled == 5, "four megabytes are in work, and one more made it too much"

    asyncio.run(story())


def test_large_requests_that_wait_for_their_answers_are_few() -> None:
    async def story() -> None:
        host, one, transport = connected(unanswered)
        for _ in range(100):
            if not transport.is_paused:
                one.data_received(requests(1, size=500_000))
        assert host.handled == 9

    asyncio.run(story())


def test_a_client_whose_requests_come_in_pieces_is_not_slowed_by_a_full_pool() -> None:
    async def story() -> None:
        host, one, transport = connected(unanswered)
        host.intake.borrow(cast(Any, object()), 100 << 20)
        data = requests(30, size=60_000)
        for start in range(0, len(data), 7_000):
            one.data_received(data[start : start + 7_000])
            assert not transport.is_paused
        assert host.handled == 30
        one.data_received(requests(1, size=900_000)[:70_000])
        assert transport.is_paused, "a large one waits"

    asyncio.run(story())


def test_a_large_request_with_a_large_answer_is_not_the_last_one() -> None:
    async def story() -> None:
        host, one, transport = connected(answered(1 << 20))
        one.data_received(requests(1, size=module.MAX_WAITING_BYTES + 1))
        assert not transport.is_paused, "the answer is sent, and nothing else waits"
        one.data_received(requests(1))
        assert host.handled == 2

    asyncio.run(story())
