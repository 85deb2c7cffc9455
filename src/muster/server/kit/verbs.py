"""The verbs of the test kit, by name: one table for Python, the control socket and the HTTP port.

A request is `{"do": "commits", "group": "app"}`: the verb, and its arguments by name. An answer is `{"answer": ...}`,
or `{"error": sentence, "kind": class}`. `Kit` has what the verbs work on.
"""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from muster.errors import ConfigError, MusterError
from muster.server.assembly import Parts
from muster.server.kit.faults import Faults
from muster.server.kit.inside import Inside
from muster.server.kit.plain import check_types
from muster.server.kit.time_travel import TimeTravel
from muster.server.kit.transactions_inside import TransactionsInside

Verb = Callable[..., Any]


class Kit:
    """All methods are called in the thread of the event loop."""

    def __init__(self, parts: Parts, crash: Callable[[], None] | None = None) -> None:
        """`crash` ends the process at once; without it the power of the server's disk goes."""
        self._parts = parts
        self._loop = asyncio.get_running_loop()
        inside = self.inside = Inside(parts)
        faults = self.faults = Faults(parts, crash)
        self._transactions = TransactionsInside(parts)
        clock = self.clock = TimeTravel(parts)
        self.verbs: dict[str, Verb] = {
            "groups": inside.groups,
            "commits": inside.commits,
            "transactions": self._transactions.transactions,
            "topics": inside.topics,
            "records": inside.records,
            "wait_for_members": inside.wait_for_members,
            "wait_until_stable": inside.wait_until_stable,
            "create_topic": inside.create_topic,
            "seed_records": inside.seed_records,
            "seed_commits": inside.seed_commits,
            "expel": inside.expel,
            "fault": faults.order,
            "fault_unload": faults.unload,
            "fault_full_disk": faults.full_disk,
            "fault_crash_at": faults.crash_at,
            "faults": faults.orders,
            "fault_met": faults.met,
            "undo_fault": faults.undo,
            "undo_faults": faults.clear,
            "clock": clock.now,
            "advance": clock.advance,
            "reset": self.reset,
        }

    async def reset(self) -> dict[str, Any]:
        """Back to nothing: no fault, no topic, no group, no transaction, real time."""
        await self.faults.clear()
        self._parts.fetches.finish()
        await self._transactions.forget()
        await self.inside.forget_everything()
        self.clock.reset()
        self._parts.fetches.finish()  # a topic that stays is fetched from all the time
        await self.inside.forget_everything()  # a client that came back meanwhile had deadlines of the turned clock
        return {}

    async def do(self, request: dict[str, Any]) -> Any:
        """Raises `MusterError`."""
        arguments = dict(request)
        name = arguments.pop("do", None)
        verb = self.verbs.get(name) if isinstance(name, str) else None
        if verb is None:
            raise ConfigError(f"there is no verb {name!r}; there are {', '.join(sorted(self.verbs))}.")
        signature = inspect.signature(verb)
        try:
            signature.bind(**arguments)
        except TypeError as error:
            raise ConfigError(f"{name}: {error}.") from error
        check_types({one.name: one.annotation for one in signature.parameters.values()}, arguments, str(name))
        try:
            answer = verb(**arguments)
            return await answer if inspect.isawaitable(answer) else answer
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise ConfigError(f"{name} cannot be done with {arguments!r}: {type(error).__name__}: {error}.") from error

    async def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The same for other processes: an error is an answer too."""
        try:
            return {"answer": await self.do(request)}
        except MusterError as error:
            return {"error": str(error), "kind": type(error).__name__}
