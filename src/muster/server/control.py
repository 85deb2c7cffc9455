"""Commands of an operator to a running server: a socket that only this machine and this user can open.

The data directory has the path of the socket (`muster-control`), because a path to a socket must be short and a data
directory's need not be. A request is one line, and so is its answer: `{"do": "list"}`, or
`{"do": "unload", "partition": 3}`, or `{"do": "load", ...}`. A server that was started for tests takes the verbs of the
test kit here, too (`kit/verbs.py`).
"""

import asyncio
import json
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muster.core.router import Ownership
from muster.errors import BadInput

if TYPE_CHECKING:  # commands that ask a server do not need one
    from muster.core.coordinator import Coordinator
    from muster.server.leadership import Leadership
    from muster.server.led_partitions import LedGroups

ADDRESS_FILE = "muster-control"
LONGEST_LINE = 1 << 24

Verb = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
"""Takes a request, and gives its answer."""


class Control:
    """Answers questions about the partitions of the offsets topic."""

    def __init__(self, led_partitions: "LedGroups", leadership: "Leadership[Coordinator]", data: Path) -> None:
        self._led_partitions = led_partitions
        self._leadership = leadership
        self._address = data / ADDRESS_FILE
        self._folder: Path | None = None
        self._listener: asyncio.Server | None = None
        self.verbs_for_tests: dict[str, Verb] = {}
        """Those of the test kit, by name, in a server that was started for tests."""

    async def start(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="muster-"))  # for this user only
        path = self._folder / "control"
        self._listener = await asyncio.start_unix_server(self._serve, path, limit=LONGEST_LINE)
        self._address.write_text(str(path), encoding="utf-8")

    async def stop(self) -> None:
        if self._listener is not None:
            self._listener.close()
        self._address.unlink(missing_ok=True)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = json.loads(await reader.readline())
            verb = self.verbs_for_tests.get(request["do"])
            answer = self.answer(request) if verb is None else await verb(request)
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            answer = {"error": f"not a request: {error}"}
        writer.write(json.dumps(answer).encode() + b"\n")
        writer.close()

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        what, partitions = request["do"], self._led_partitions.by_number
        if what not in ("list", "unload", "load"):
            for_tests = "" if self.verbs_for_tests else "; those of the test kit need --control-port"
            return {"error": f"there is no command {what}{for_tests}"}
        if what == "list":
            return {"partitions": [self._described(partition) for partition in sorted(partitions)]}
        partition = int(request["partition"])
        if partition not in partitions:
            return {"error": f"there is no partition {partition}; there are 0 to {len(partitions) - 1}"}
        found = self._led_partitions.router.routed.get(partition)
        is_ours = found is not None
        if what == "unload":
            groups, offsets = self._leadership.resign(partition) if is_ours else (0, 0)
            return {"partition": partition, "was_loaded": is_ours, "groups": groups, "offsets": offsets}
        was_loaded = found is not None and found.ownership is not Ownership.FAILED
        if not was_loaded:
            self._leadership.elect(partition)
        return {"partition": partition, "was_loaded": was_loaded, **self._described(partition)}

    def _described(self, partition: int) -> dict[str, Any]:
        led = self._led_partitions.by_number[partition]
        found = self._led_partitions.router.routed.get(partition)
        coordinator = led.coordinator
        groups = list(coordinator.groups.values()) if coordinator is not None else []
        return {
            "partition": partition,
            "state": "unloaded" if found is None else found.ownership.value,
            "epoch": led.epoch,
            "groups": len(groups) + (len(coordinator.newer.kinds) if coordinator is not None else 0),
            "members": sum(len(group.seats.members) for group in groups),
            "offsets": sum(len(group.offsets) for group in groups),
            "records": led.log.end_offset - led.log.start_offset,
            "bytes": led.log.size_bytes,
            "load_ms": round(led.load_seconds * 1000, 1),
        }


async def ask(data: Path, request: dict[str, Any], timeout_s: float = 10.0) -> dict[str, Any]:
    """Ask the server that has a data directory open; `BadInput` if there is none."""
    try:
        path = (data / ADDRESS_FILE).read_text(encoding="utf-8")
        reader, writer = await asyncio.wait_for(asyncio.open_unix_connection(path, limit=1 << 24), timeout_s)
    except (OSError, TimeoutError) as error:
        problem = f"no server has {data} open" if data.is_dir() else f"there is no directory {data}"
        if isinstance(error, PermissionError):
            problem = f"the server that has {data} open is another user's"
        raise BadInput(f"{problem}. Give the directory that `muster serve --data` was given.") from error
    writer.write(json.dumps(request).encode() + b"\n")
    answer: dict[str, Any] = json.loads(await asyncio.wait_for(reader.readline(), timeout_s))
    writer.close()
    if "error" in answer:
        raise BadInput(f"The server says: {answer['error']}.")
    return answer
