"""Faults by order: the next requests of an API are answered with an error, or late, or not at all.

There is one place where a request can be met by a fault: `Connections.handle`, through which all of them go. While no
fault is ordered the handlers stand there themselves. The first order puts `Faults._meet` before them, and the last one
that is used up or undone takes it away again: a server without orders pays nothing.

A fault is chosen by API, client id, group and topic; of several that fit, the one ordered first is met. A request that
waits for its delay holds up the next ones of its connection, as any request does that waits.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from muster.codec.error_codes import ErrorCode
from muster.codec.layouts import Field, StructData
from muster.codec.partitioning import partition_for
from muster.core.router import Ownership
from muster.errors import ConfigError, MusterError
from muster.protocol.apis import APIS, ApiKey
from muster.protocol.messages import REQUEST, decode_header, decode_request, message
from muster.server.assembly import Parts
from muster.server.connection import Connection, PendingReply
from muster.server.connections import Handle, NotNow
from muster.server.kit.error_answers import error_response
from muster.server.kit.files import KitFiles
from muster.server.records import fetch, produce
from muster.server.records.fetch import FetchAnswer, PartitionFetched
from muster.server.transactions.steps import Step

BACK_WITHIN_S = 10.0
LOOK_EVERY_S = 0.003
LAST_ERROR = 133
"""Of Kafka 4.3; muster itself has not all of them."""
_GROUPS = ("groupId", "groups", "groupsNames", "coordinatorKeys", "key")
_TOPICS = ("name", "topic", "topicNames", "topicName", "resourceName")


@dataclass(slots=True)
class Fault:
    number: int
    what: str
    """`error`, `delay`, `drop_connection`; `unload`, `full_disk` and `crash_at` are not about requests."""
    api_key: int | None = None
    client: str | None = None
    group: str | None = None
    topic: str | None = None
    left: int | None = None
    """How many requests more it meets; None: all."""
    skip: int = 0
    """How many it lets pass before."""
    error: int = 0
    seconds: float = 0.0
    after: bool = False
    """Whether the connection is cut when the request was handled, so that only the answer is lost."""
    partition: int = -1
    met: int = 0

    def described(self) -> dict[str, Any]:
        api = None if self.api_key is None else APIS[self.api_key].name
        return {"fault": self.number, "what": self.what, "api": api, "met": self.met, "left": self.left}


@dataclass(slots=True, eq=False)
class Held:
    """A request that waits for its delay."""

    connection: Connection
    data: bytes
    place: PendingReply


@dataclass(slots=True)
class Names:
    """What a request names."""

    groups: set[str] = field(default_factory=set)
    topics: set[str] = field(default_factory=set)


class Faults:
    """All methods are called in the thread of the event loop."""

    def __init__(self, parts: Parts, crash: Callable[[], None] | None = None) -> None:
        self._parts = parts
        self._crash = crash
        self._connections = parts.connections
        self._plain: Handle = parts.connections.handle
        self._orders: dict[int, Fault] = {}
        self._numbers = 0
        self._loop = asyncio.get_running_loop()
        self._timers = parts.clock.make_timers(self._loop, self._due, of_clients=True)

    # Orders.

    def order(
        self,
        what: str,
        api: str,
        code: int | str = 0,
        seconds: float = 0.0,
        after: bool = False,
        client: str | None = None,
        group: str | None = None,
        topic: str | None = None,
        times: int | None = 1,
        skip: int = 0,
    ) -> dict[str, Any]:
        """`error`, `delay` or `drop_connection` for the next `times` requests of an API; None: for all of them."""
        if what not in ("error", "delay", "drop_connection"):
            raise ConfigError(f"there is no fault {what!r}; there are error, delay and drop_connection.")
        if times is not None and times < 1:
            raise ConfigError(f"a fault that is met {times} times is none; leave it out, or give null for always.")
        error = _error_code(code) if what == "error" else 0
        api_key = _api_key(api)
        for kind, name, fields in (("group", group, _GROUPS), ("topic", topic, (*_TOPICS, "topicId"))):
            if name is not None and not _names_any(message(api_key, REQUEST).fields, fields):
                raise ConfigError(
                    f"a fault for {APIS[api_key].name} of {kind} {name!r} would never be met: such requests name no "
                    f"{kind}. Leave it out, or choose by client."
                )
        if what == "delay" and not 0 < seconds <= 3600:
            raise ConfigError(f"a delay of {seconds} seconds; it should be up to an hour.")
        return self._add(
            what, api_key, client, group, topic, times, skip, error, seconds, after
        ).described()  # fmt: skip

    def _add(self, what: str, *about: Any, **more: Any) -> Fault:
        self._numbers += 1
        made = self._orders[self._numbers] = Fault(self._numbers, what, *about, **more)
        self._stand()
        return made

    def unload(self, partition: int | None = None, group: str | None = None) -> dict[str, Any]:
        """Let go of a partition of the offsets topic: its groups hear NOT_COORDINATOR until the fault is undone."""
        partitions = self._parts.led_partitions.by_number
        if partition is None and group is not None:
            partition = partition_for(group, len(partitions))
        if partition not in partitions:
            raise ConfigError(f"there is no partition {partition}; there are 0 to {len(partitions) - 1}.")
        assert partition is not None
        self._say(f"partition {partition} of the offsets topic is let go")
        if partition in self._parts.led_partitions.router.routed:
            self._parts.leadership.resign(partition)
        return self._add("unload", partition=partition).described() | {"partition": partition}

    def full_disk(self) -> dict[str, Any]:
        """Nothing more can be written, until the fault is undone."""
        files = self._files()
        self._say("the disk is full from now on")
        files.is_full = True
        return self._add("full_disk").described()

    def crash_at(self, step: str) -> dict[str, Any]:
        """Crash when the end of a transaction comes to a step, once."""
        if step not in list(Step):
            raise ConfigError(f"there is no step {step!r}; there are {', '.join(Step)}.")
        fault = self._add("crash_at")
        fault.left = 1

        def crash() -> None:
            fault.met, fault.left = 1, 0
            self._say(f"a crash at {step}")
            (self._crash or self._power_cut)()

        self._parts.transactions.steps.order(Step(step), crash)
        return fault.described()

    def _power_cut(self) -> None:
        """Nothing is written or answered any more; `Broker.kill_and_restart` brings the server back."""
        self._files().power_off()
        self._connections.refuse_all(_leave_unanswered)
        for connection in list(self._connections.open):
            connection.cut()

    def _say(self, what: str) -> None:
        self._parts.server_log.say(f"{what}, as a fault that was ordered", event="fault ordered")

    def _files(self) -> KitFiles:
        files = self._parts.directory.files
        if not isinstance(files, KitFiles):
            raise ConfigError("this server's disk cannot be filled; a muster.Broker's can.")
        return files

    def orders(self) -> list[dict[str, Any]]:
        return [fault.described() for fault in self._orders.values()]

    def met(self, fault: int) -> dict[str, Any]:
        """How many requests a fault has met; one that is used up stays known until `clear`."""
        return self._found(fault).described()

    def _found(self, fault: int) -> Fault:
        if fault not in self._orders:
            raise ConfigError(f"there is no fault {fault}: it was undone.")
        return self._orders[fault]

    async def undo(self, fault: int) -> dict[str, Any]:
        if fault in self._orders:
            await self._undone([self._orders.pop(fault)])
        return {}

    async def clear(self) -> dict[str, Any]:
        """Undo all; return when everything is served again."""
        orders, self._orders = list(self._orders.values()), {}
        await self._undone(orders)
        return {}

    async def _undone(self, orders: Iterable[Fault]) -> None:
        self._stand()
        if not any(fault.what == "delay" for fault in self._orders.values()):
            for held in self._timers.take_all():
                self._due(held)
        for fault in orders:
            if fault.what == "full_disk":
                self._files().is_full = False
                self._parts.data_partitions.open_again_now()
                for leadership in self._parts.leaderships:
                    for partition, state in leadership.led_partitions.states().items():
                        if state is Ownership.FAILED:
                            leadership.elect(partition)
            elif fault.what == "crash_at":
                self._parts.transactions.steps.cancel()
            elif fault.what == "unload" and fault.partition not in self._parts.led_partitions.router.routed:
                self._parts.leadership.elect(fault.partition)
        if any(fault.what in ("full_disk", "unload") for fault in orders):
            await self._until_served()

    async def _until_served(self) -> None:
        left_out = {fault.partition for fault in self._orders.values() if fault.what == "unload"}
        is_full = any(fault.what == "full_disk" for fault in self._orders.values())
        deadline = self._loop.time() + BACK_WITHIN_S
        while not is_full:
            states = self._parts.led_partitions.states()
            behind = [number for number, state in states.items() if state is not Ownership.ACTIVE]
            of_transactions = self._parts.transactions.led.states().values()
            are_served = all(state is Ownership.ACTIVE for state in of_transactions)
            if set(behind) <= left_out and are_served and not self._parts.data_partitions.is_opening:
                return
            if self._loop.time() >= deadline:
                raise MusterError(
                    f"not everything is served again after {BACK_WITHIN_S:g} s; the server's log says why."
                )
            await asyncio.sleep(LOOK_EVERY_S)

    # Requests.

    def _stand(self) -> None:
        """Before the handlers while there is something to meet, and not otherwise."""
        is_needed = any(fault.api_key is not None and fault.left != 0 for fault in self._orders.values())
        if is_needed and self._connections.handle is self._plain:
            self._connections.handle = self._meet
        elif not is_needed and self._connections.handle == self._meet:
            self._connections.handle = self._plain

    def _meet(self, connection: Connection, data: bytes, position: int, end: int) -> PendingReply | None:
        api_key, version, correlation_id, client_id, start = decode_header(data, position, end)
        wanted = [fault for fault in self._orders.values() if fault.api_key == api_key and fault.left != 0]
        wanted = [fault for fault in wanted if fault.client in (None, client_id)]
        if wanted:
            body = decode_request(api_key, version, data, start, end)
            names = self._names(api_key, body)
            for fault in wanted:
                if not (fault.group is None or fault.group in names.groups):
                    continue
                if not (fault.topic is None or fault.topic in names.topics):
                    continue
                if fault.skip:
                    fault.skip -= 1
                    continue
                fault.met += 1
                if fault.left is not None:
                    fault.left -= 1
                    self._stand()
                return self._carry_out(fault, connection, data, position, end, (version, correlation_id, start, body))
        return self._handled(connection, data, position, end)

    def _handled(self, connection: Connection, data: bytes, position: int, end: int) -> PendingReply | None:
        reply: PendingReply | None = self._plain(connection, data, position, end)
        return reply

    def _carry_out(
        self,
        fault: Fault,
        connection: Connection,
        data: bytes,
        position: int,
        end: int,
        request: tuple[int, int, int, StructData],
    ) -> PendingReply | None:
        assert fault.api_key is not None
        name = APIS[fault.api_key].name
        self._parts.server_log.say(
            f"{connection.peer}: its {name} meets a fault that was ordered ({fault.what})", event="fault ordered"
        )
        if fault.what == "delay":
            place = connection.reply(fault.api_key, lambda context, answer: b"", None)
            held = Held(connection, data[position:end], place)
            self._timers.set(held, self._parts.led_partitions.now().monotonic_ms + int(fault.seconds * 1000))
            return place
        if fault.what == "drop_connection":
            if fault.after:
                self._handled(connection, data, position, end)
            connection.drop(f"a fault was ordered for its {name}")
            return None
        return self._refused(fault, connection, data, end, request)

    def _refused(
        self, fault: Fault, connection: Connection, data: bytes, end: int, request: tuple[int, int, int, StructData]
    ) -> PendingReply | None:
        version, correlation_id, start, body = request
        assert fault.api_key is not None
        if fault.api_key == ApiKey.PRODUCE and body["acks"] == produce.NO_ANSWER:
            connection.drop("a fault was ordered for its Produce, which wants no answer")
            return None
        if fault.api_key == ApiKey.FETCH:
            frame = self._fetch_refused(fault.error, version, correlation_id, data, start, end)
        else:
            sentence = "This error was ordered by a test."
            node = self._parts.cluster.node
            frame = error_response(fault.api_key, version, correlation_id, body, fault.error, sentence, node)
        reply = connection.reply(fault.api_key, lambda frame, answer: frame, frame)
        reply.answer(None)
        return reply

    def _fetch_refused(self, error: int, version: int, correlation_id: int, data: bytes, start: int, end: int) -> bytes:
        """Through its session, whose client counts this request."""
        visit = self._parts.sessions.visit(fetch.decode(version, data, start, end))
        if isinstance(visit, ErrorCode):
            return fetch.encode(version, correlation_id, FetchAnswer((), visit))
        refused = tuple(
            PartitionFetched(one.topic, one.topic_id, one.partition, error)  # type: ignore[arg-type]
            for one in visit.partitions
        )
        return fetch.encode(version, correlation_id, visit.answer(FetchAnswer(refused)))

    def _due(self, held: Held) -> None:
        """A request has waited long enough; what it waits for now holds up the next ones."""
        if held.connection.is_closed:
            return
        try:
            waits_for = self._handled(held.connection, held.data, 0, len(held.data))
        except NotNow as later:
            later.wait(partial(self._due, held))
            return
        except MusterError as error:
            held.connection.drop(str(error))
            return
        except Exception as error:
            held.connection.fail("its request could not be handled", error)
            return
        held.connection.wait_instead(held.place, waits_for)

    # What requests name.

    def _names(self, api_key: int, body: StructData) -> Names:
        names = Names()
        self._collect(body, names)
        if api_key == ApiKey.FETCH:
            for topic, topic_id in self._parts.sessions.topics(body["sessionId"]):
                self._add_topic(topic, topic_id, names)
        return names

    def _collect(self, body: StructData, names: Names) -> None:
        for name, value in body.items():
            if name == "topicId":
                self._add_topic("", value, names)
            elif isinstance(value, str):
                self._take(name, value, names)
            elif isinstance(value, list):
                for one in value:
                    if isinstance(one, dict):
                        self._collect(one, names)
                    elif isinstance(one, str):
                        self._take(name, one, names)

    def _take(self, name: str, value: str, names: Names) -> None:
        if name in _GROUPS:
            names.groups.add(value)
        elif name in _TOPICS:
            names.topics.add(value)

    def _add_topic(self, topic: str, topic_id: bytes, names: Names) -> None:
        found = self._parts.cluster.topics.by_id(topic_id)
        if topic or found is not None:
            names.topics.add(topic or (found.name if found else ""))


def _api_key(name: str) -> int:
    by_name = {api.name.lower(): key for key, api in APIS.items()}
    found = by_name.get(str(name).replace("_", "").lower())
    if found is None:
        raise ConfigError(
            f"there is no API {name!r}; there are {', '.join(sorted(api.name for api in APIS.values()))}."
        )
    return found


def _error_code(code: int | str) -> int:
    if isinstance(code, str):
        if code.upper() not in ErrorCode.__members__:
            raise ConfigError(f"there is no error {code!r}; give Kafka's name, as NOT_COORDINATOR, or its number.")
        return int(ErrorCode[code.upper()])
    if not -1 <= code <= LAST_ERROR or not code:
        raise ConfigError(f"{code} is not the number of an error; Kafka's are -1 and 1 to {LAST_ERROR}.")
    return code


def _names_any(fields: Iterable[Field], names: Iterable[str]) -> bool:
    return any(one.name in names or _names_any(one.fields, names) for one in fields)


def _leave_unanswered(connection: Connection, data: bytes, position: int, end: int) -> PendingReply:
    return connection.reply(ApiKey.API_VERSIONS, lambda context, answer: b"", None)
