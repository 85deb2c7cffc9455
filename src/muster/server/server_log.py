"""What the server reports of itself: its log, and its counters.

The log has one line for everything an operator may want to read, as text or as JSON. A line is one line and of bounded
length, whatever names clients use. The server never waits for the reader of its log. Lines that clients can cause go
through `RateLimitedLog`: a flood of bad requests must not become a flood of lines.

The counters (`Stats`) are cheap; `metrics.py` shows them to Prometheus when it asks.
"""

import io
import json
import re
import sys
import threading
import time
import traceback
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TextIO

from muster.core.outcome import Notice, NoticeKind
from muster.core.states import Cause

LONGEST_TEXT = 2_000
"""Characters of a text, or of a field of an object."""
LONGEST_LINE = 8_000
MOST_WAITING_CHARS = 1 << 20
"""Lines that wait to be written; as many again may be in the hands of the thread that writes."""
CLOSE_WITHIN_S = 1.0
WINDOW_S = 60.0
LINES_IN_A_WINDOW = 100
BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
"""Of the latencies that are counted."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def shown(text: str, longest: int = LONGEST_TEXT) -> str:
    """A text as one line: names and reasons are the clients' own, and may hold anything at any length."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), _cut(text, longest))


def sentence(notice: Notice) -> str:
    """What happened to a group, in words."""
    why = f" ({notice.cause.value})" if notice.cause is not Cause.NONE else ""
    said = f", saying: {notice.reason}" if notice.reason else ""
    match notice.kind:
        case NoticeKind.CREATED:
            return "created"
        case NoticeKind.JOINED:
            return f"member {notice.member_id} joined{said}"
        case NoticeKind.REPLACED:
            return f"a static member restarted as {notice.member_id}{said}"
        case NoticeKind.LEFT:
            return f"member {notice.member_id} left{why}{said}"
        case NoticeKind.EXPIRED:
            return f"member {notice.member_id} was removed{why}"
        case NoticeKind.REBALANCING:
            return f"rebalances from generation {notice.generation}{why}"
        case NoticeKind.STABLE:
            members = "1 member" if notice.size == 1 else f"{notice.size} members"
            return f"rebalanced in {notice.duration_ms} ms to generation {notice.generation} with {members}{why}"
        case NoticeKind.EMPTY:
            return f"empty since generation {notice.generation}"
        case NoticeKind.OFFSETS_EXPIRED | NoticeKind.OFFSETS_DELETED:
            offsets = "1 offset" if notice.size == 1 else f"{notice.size} offsets"
            return f"{offsets} {'expired' if notice.kind is NoticeKind.OFFSETS_EXPIRED else 'deleted'}{why}"
        case NoticeKind.REMOVED:
            return f"removed{why}"
        case NoticeKind.MIXED_COMMITS:
            return "commits both in transactions and without; offsets will jump between the two"
        case NoticeKind.TOO_LARGE:
            return f"a member was refused: its protocols have {notice.size} bytes (muster.max.member.bytes)"
        case NoticeKind.NOT_WRITTEN:
            return f"nothing was changed, because the log refused the record of it ({notice.reason})"


class ServerLog:
    """Writes lines; `as_json` makes each an object, `debug` adds tracebacks.

    A thread writes them, so that the server does not wait for their reader: a pipe that is not read, a terminal that
    was stopped. At most `MOST_WAITING_CHARS` wait to be written; further lines are lost, and a line says how many when
    writing goes on. `close` gives the last lines some time to get out. A `StringIO` never waits: it has each line at
    once.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        as_json: bool = False,
        debug: bool = False,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._stream = stream
        self._as_json = as_json
        self._debug = debug
        self._wall = wall
        self.lost_lines = 0
        self._changed = threading.Condition()
        self._lines: deque[str] = deque()
        self._waiting_chars = 0
        self._dropped = 0
        """Lines lost behind those that wait, because there are too many."""
        self._unwritten = 0
        """Lines lost since the last one that could be written."""
        self._is_writing = False
        self._is_closing = False
        self._writer: threading.Thread | None = None

    def group(self, partition: int, notice: Notice) -> None:
        details = {"member": notice.member_id, "cause": notice.cause.value, "reason": notice.reason}
        numbers = {"generation": notice.generation, "size": notice.size, "duration_ms": notice.duration_ms}
        self.say(
            f"group {notice.group_id}: {sentence(notice)}",
            event=notice.kind.value,
            group=notice.group_id,
            partition=partition,
            **{name: value for name, value in details.items() if value},
            **{name: value for name, value in numbers.items() if value > 0},
        )

    def traceback(self, error: BaseException) -> None:
        """Where an error came from, for those who look for mistakes in muster."""
        if self._debug:
            for line in "".join(traceback.format_exception(error)).splitlines():
                self.say(line, event="traceback")

    def say(self, text: str, **fields: Any) -> None:
        """Anything else; `fields` are for machines."""
        line = self._line(text, fields)
        if isinstance(self._stream, io.StringIO):
            self._write(line)
            return
        with self._changed:
            if self._dropped or self._waiting_chars + len(line) > MOST_WAITING_CHARS:
                self._dropped += 1  # and so are all that follow until those that wait are taken: one gap, not many
                self.lost_lines += 1
                return
            self._lines.append(line)
            self._waiting_chars += len(line)
            if self._writer is None:
                self._start_writer()
            self._changed.notify_all()

    def close(self, within_s: float = CLOSE_WITHIN_S) -> bool:
        """Wait until everything is written; False if it is not in time. Another line would begin anew."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
            return self._changed.wait_for(lambda: not self._lines and not self._is_writing, within_s)

    def _line(self, text: str, fields: dict[str, Any]) -> str:
        now_ms = int(self._wall() * 1000)
        longest = LONGEST_TEXT
        while len(line := self._formatted(now_ms, text, fields, longest)) > LONGEST_LINE and longest > 1:
            longest //= 2
        return line

    def _formatted(self, now_ms: int, text: str, fields: dict[str, Any], longest: int) -> str:
        if not self._as_json:
            stamp = time.strftime("%H:%M:%S", time.localtime(now_ms // 1000))
            return f"{stamp}.{now_ms % 1000:03} {shown(text, longest)}"
        cut = {name: _cut(value, longest) if isinstance(value, str) else value for name, value in fields.items()}
        return json.dumps({"time_ms": now_ms, "text": shown(text, longest), **cut}, default=repr)

    # The thread that writes.

    def _start_writer(self) -> None:
        self._is_closing = False
        self._writer = threading.Thread(target=self._write_on, name="muster-log", daemon=True)
        try:
            self._writer.start()
        except RuntimeError:  # no more threads just now; the next line tries again
            self._writer = None

    def _write_on(self) -> None:
        while True:
            with self._changed:
                self._is_writing = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._lines or self._is_closing)
                if not self._lines:
                    self._writer = None
                    return
                lines, dropped = self._lines, self._dropped
                self._lines, self._waiting_chars, self._dropped, self._is_writing = deque(), 0, 0, True
            if dropped:
                lines.append(self._lost(dropped))
            for line in lines:
                self._write(line)

    def _write(self, line: str) -> None:
        stream = sys.stderr if self._stream is None else self._stream
        try:
            print(f"{self._lost(self._unwritten)}\n{line}" if self._unwritten else line, file=stream, flush=True)
        except Exception:  # the reader is gone, or the disk is full: groups are served all the same
            self._unwritten += 1
            with self._changed:
                self.lost_lines += 1
        else:
            self._unwritten = 0

    def _lost(self, count: int) -> str:
        lines = "1 line was" if count == 1 else f"{count} lines were"
        return self._line(f"{lines} lost here: the log could not be written", {"event": "lines lost", "lines": count})


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]}... ({len(text)} characters)"


class RateLimitedLog:
    """Lines of one kind (`event`): the first of every minute are written, the rest are counted and told together."""

    def __init__(self, server_log: ServerLog, event: str, time_s: Callable[[], float]) -> None:
        self._server_log = server_log
        self._event = event
        self._time_s = time_s
        self._since_s = float("-inf")
        self._lines = self._untold = 0
        self._last = ""

    def say(self, text: str, **fields: Any) -> None:
        self.summarize()
        if not self._lines:
            self._since_s = self._time_s()
        self._lines += 1
        if self._lines <= LINES_IN_A_WINDOW:
            self._server_log.say(text, event=self._event, **fields)
        else:
            self._untold += 1
            self._last = text

    def summarize(self) -> None:
        """Called every second: tell what was not told, once its minute is over."""
        if self._lines and self._time_s() - self._since_s >= WINDOW_S:
            if self._untold:
                self._server_log.say(
                    f"{self._untold} more like this in {WINDOW_S:.0f} s, the last: {self._last}",
                    event=self._event,
                    untold=self._untold,
                )
            self._lines = self._untold = 0
            self._last = ""


class FaultLog:
    """Mistakes of the server itself: counted, one line each, and a traceback where those are wanted."""

    def __init__(self, server_log: ServerLog, stats: "Stats", time_s: Callable[[], float]) -> None:
        self._server_log = server_log
        self._stats = stats
        self._lines = RateLimitedLog(server_log, "fault", time_s)
        self.summarize = self._lines.summarize

    def report(self, what: str, error: BaseException, **fields: Any) -> None:
        self._stats.faults += 1
        kind = type(error).__name__
        self._lines.say(f"{what} ({kind}: {error})", error=kind, **fields)
        self._server_log.traceback(error)


@dataclass(slots=True)
class Latency:
    """Counts by upper bound; the last is for everything above."""

    buckets: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    total_s: float = 0.0

    def observe(self, seconds: float, count: int = 1) -> None:
        self.buckets[bisect_left(BOUNDS_S, seconds)] += count
        self.total_s += seconds * count

    @property
    def count(self) -> int:
        return sum(self.buckets)


COMMITTED, ABORTED = "committed", "aborted"
"""How a transaction ends."""


class Stats:
    def __init__(self) -> None:
        self.requests: dict[int, Latency] = {}
        """By API key, from the first byte handled to the answer made; parked ones included."""
        self.flush = Latency()
        self.commits = 0
        self.rebalances: Counter[Cause] = Counter()
        self.expired_offsets = 0
        self.deleted_offsets = 0
        self.removed_groups = 0
        self.expired_members = 0
        self.ended_transactions: Counter[str] = Counter()
        """By outcome: those whose markers are all there."""
        self.timed_out_transactions = 0
        self.connections = 0
        self.refused_connections = 0
        self.bad_requests = 0
        self.faults = 0
        self.compactions = 0
        self.compacted_bytes = 0
        self.compaction_s = 0.0

    def request(self, api_key: int, seconds: float, count: int = 1) -> None:
        latency = self.requests.get(api_key)
        if latency is None:
            latency = self.requests[api_key] = Latency()
        latency.observe(seconds, count)

    def note(self, notice: Notice) -> None:
        match notice.kind:
            case NoticeKind.STABLE:
                self.rebalances[notice.cause] += 1
            case NoticeKind.OFFSETS_EXPIRED:
                self.expired_offsets += notice.size
            case NoticeKind.OFFSETS_DELETED:
                self.deleted_offsets += notice.size
            case NoticeKind.REMOVED:
                self.removed_groups += 1
            case NoticeKind.EXPIRED:
                self.expired_members += 1
