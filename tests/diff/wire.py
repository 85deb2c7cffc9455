"""A connection that asks one thing at a time, as Kafka's own protocol has it, and a target made of many of them."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from tests.diff.messages import decode_response, encode_request

CLOSED = {"closed": True}
"""What a client hears that is not answered but shut out."""
READS = {"DescribeGroups", "ListGroups", "OffsetFetch"}
BARRIER_CLIENT = "barrier"
NOTHING_ASKED = {"group_id": "", "generation_id": 0, "member_id": ""}
QUIET_ROUNDS = 2
QUIET_S = 0.015


@dataclass(slots=True)
class Connection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    correlation_id: int = 0

    @classmethod
    async def open(cls, address: tuple[str, int]) -> "Connection":
        """A connection that has been answered once: a new one may wait longer for its turn than older ones."""
        connection = cls(*await asyncio.open_connection(*address))
        await connection.ask("Heartbeat", 0, BARRIER_CLIENT, NOTHING_ASKED)
        return connection

    async def ask(self, api: str, version: int, client_id: str, body: dict[str, Any]) -> dict[str, Any]:
        """Send, and wait however long it takes; `CLOSED` if the other side hangs up."""
        self.correlation_id += 1
        try:
            self.writer.write(encode_request(api, version, self.correlation_id, client_id, body))
            await self.writer.drain()
            size = int.from_bytes(await self.reader.readexactly(4), "big")
            frame = await self.reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError):
            return dict(CLOSED)
        assert int.from_bytes(frame[:4], "big") == self.correlation_id
        return decode_response(api, version, frame)

    async def close(self) -> None:
        self.writer.close()


@dataclass(slots=True)
class WireTarget:
    """Whoever listens at an address. Every request that waits has a connection to itself."""

    address: tuple[str, int]
    topic_ids: dict[str, bytes]
    patience_s: float = 3.0
    _groups: set[str] = field(default_factory=set)
    """Those that were asked to change something."""
    _free: list[Connection] = field(default_factory=list)
    _asked: dict[int, tuple[asyncio.Task[dict[str, Any]], Connection, str]] = field(default_factory=dict)

    async def send(self, ticket: int, api: str, version: int, client_id: str, body: dict[str, Any]) -> None:
        if api in READS:
            await self._fence()
        elif "group_id" in body:
            self._groups.add(body["group_id"])
        connection = self._free.pop() if self._free else await Connection.open(self.address)
        task = asyncio.create_task(connection.ask(api, version, client_id, body))
        self._asked[ticket] = task, connection, body.get("group_id", "")

    async def settle(self, expected: set[int]) -> dict[int, dict[str, Any]]:
        awaited = [self._asked[ticket][0] for ticket in expected if ticket in self._asked]
        if awaited:
            await asyncio.wait(awaited, timeout=self.patience_s)
        answers = self._collect()
        quiet = 0
        while self._asked and quiet < QUIET_ROUNDS:
            await asyncio.sleep(QUIET_S)
            await self._barrier()
            heard = self._collect()
            quiet = 0 if heard else quiet + 1
            answers |= heard
        return answers

    async def _fence(self) -> None:
        """Wait until what was answered is also acknowledged by the log: reads see no more than that.

        Kafka answers some requests (MEMBER_ID_REQUIRED for one) while the record that goes with them is on its way. A
        fetch of stable offsets waits for all writes before it.
        """
        for group_id in self._groups:
            asked = [{"group_id": group_id, "topics": []}]
            await self.ask("OffsetFetch", 9, BARRIER_CLIENT, {"groups": asked, "require_stable": True})

    async def _barrier(self) -> None:
        """Ask something that changes nothing and stands in the same queue: what came before it has been dealt with."""
        for group_id in {group_id for _, _, group_id in self._asked.values()}:
            body = {"group_id": group_id, "generation_id": 0, "member_id": BARRIER_CLIENT}
            await self.ask("Heartbeat", 4, BARRIER_CLIENT, body)

    async def ask(self, api: str, version: int, client_id: str, body: dict[str, Any]) -> dict[str, Any]:
        """Ask something that is answered at once."""
        connection = self._free.pop() if self._free else await Connection.open(self.address)
        answer = await connection.ask(api, version, client_id, body)
        await self._give_back(connection, answer)
        return answer

    async def _give_back(self, connection: Connection, answer: dict[str, Any]) -> None:
        if answer == CLOSED:
            await connection.close()
        else:
            self._free.append(connection)

    def _collect(self) -> dict[int, dict[str, Any]]:
        answers = {}
        for ticket in [ticket for ticket, (task, _, _) in self._asked.items() if task.done()]:
            task, connection, _ = self._asked.pop(ticket)
            answers[ticket] = task.result()
            if answers[ticket] != CLOSED:
                self._free.append(connection)
        return answers

    async def wait(self, milliseconds: int) -> None:
        await asyncio.sleep(milliseconds / 1000)

    async def close(self) -> None:
        """Hang up, also on what was never answered."""
        for task, connection, _ in self._asked.values():
            task.cancel()
            await connection.close()
        for connection in self._free:
            await connection.close()
        await asyncio.gather(*(task for task, _, _ in self._asked.values()), return_exceptions=True)
        self._asked.clear()
        self._free.clear()
