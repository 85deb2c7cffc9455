"""The server's own log: one line for everything an operator may want to read, as text or as JSON."""

import json
import re
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

from muster.core.notices import Cause, Notice, What

LONGEST_TEXT = 2_000
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def shown(text: str) -> str:
    """A text as one line: names and reasons are the clients' own, and may hold anything at any length."""
    if len(text) > LONGEST_TEXT:
        text = f"{text[:LONGEST_TEXT]}... ({len(text)} characters)"
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def sentence(notice: Notice) -> str:
    """What happened to a group, in words."""
    why = f" ({notice.cause.value})" if notice.cause is not Cause.NONE else ""
    said = f", saying: {notice.reason}" if notice.reason else ""
    match notice.what:
        case What.CREATED:
            return "created"
        case What.JOINED:
            return f"member {notice.member_id} joined{said}"
        case What.REPLACED:
            return f"a static member restarted as {notice.member_id}{said}"
        case What.LEFT:
            return f"member {notice.member_id} left{why}{said}"
        case What.EXPIRED:
            return f"member {notice.member_id} was removed{why}"
        case What.REBALANCING:
            return f"rebalances from generation {notice.generation}{why}"
        case What.STABLE:
            members = "1 member" if notice.size == 1 else f"{notice.size} members"
            return f"rebalanced in {notice.duration_ms} ms to generation {notice.generation} with {members}{why}"
        case What.EMPTY:
            return f"empty since generation {notice.generation}"
        case What.OFFSETS_EXPIRED | What.OFFSETS_DELETED:
            offsets = "1 offset" if notice.size == 1 else f"{notice.size} offsets"
            return f"{offsets} {'expired' if notice.what is What.OFFSETS_EXPIRED else 'deleted'}{why}"
        case What.REMOVED:
            return f"removed{why}"
        case What.MIXED_COMMITS:
            return "commits both in transactions and without; offsets will jump between the two"
        case What.TOO_LARGE:
            return f"a member was refused: its protocols have {notice.size} bytes (muster.max.member.bytes)"
        case What.NOT_WRITTEN:
            return f"nothing was changed, because the log refused the record of it ({notice.reason})"


class Journal:
    """Writes lines; `--log-json` makes each an object."""

    def __init__(
        self, stream: TextIO | None = None, *, as_json: bool = False, wall: Callable[[], float] = time.time
    ) -> None:
        self._stream = stream
        self._as_json = as_json
        self._wall = wall
        self.lost_lines = 0

    def group(self, partition: int, notice: Notice) -> None:
        details = {"member": notice.member_id, "cause": notice.cause.value, "reason": notice.reason}
        numbers = {"generation": notice.generation, "size": notice.size, "duration_ms": notice.duration_ms}
        self._line(
            f"group {notice.group_id}: {sentence(notice)}",
            event=notice.what.value,
            group=notice.group_id,
            partition=partition,
            **{name: value for name, value in details.items() if value},
            **{name: value for name, value in numbers.items() if value > 0},
        )

    def say(self, text: str, **fields: Any) -> None:
        """Anything else; `fields` are for machines."""
        self._line(text, **fields)

    def _line(self, text: str, **fields: Any) -> None:
        now_ms = int(self._wall() * 1000)
        if self._as_json:
            line = json.dumps({"time_ms": now_ms, "text": shown(text), **fields})
        else:
            stamp = time.strftime("%H:%M:%S", time.localtime(now_ms // 1000))
            line = f"{stamp}.{now_ms % 1000:03} {shown(text)}"
        stream = sys.stderr if self._stream is None else self._stream
        try:
            print(line, file=stream, flush=True)
        except (OSError, ValueError):
            self.lost_lines += 1  # nobody reads any more, or the disk is full: groups are served all the same
