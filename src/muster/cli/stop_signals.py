"""SIGTERM and Ctrl-C for `muster serve`: the process ends within five seconds of the first, and at once at the second.

A thread waits for them, not the event loop: whatever that is busy with, or waits for, the end comes in time. Nothing
that was acknowledged is lost by an end in the middle; the next start looks through the logs, as after a crash.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn, Self

from muster.cli.status import Status

if TYPE_CHECKING:
    from muster.server.server_log import ServerLog

SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT})
END_WITHIN_S = 4.5
"""From the first signal; `server.STOP_WITHIN_S` is less, so that this is only for a server that is stuck."""
LAST_LINES_WITHIN_S = 0.3


class StopSignals:
    """In a `with`, in the main thread, best before any other is started: those inherit which signals are not for them.

    One that was started before may be given a signal all the same; the main thread then hands it on.
    """

    def __init__(self, server_log: "ServerLog") -> None:
        self._server_log = server_log
        self._stop: Callable[[], object] | None = None
        self._status = Status.DAMAGED
        self._is_over = False
        self._thread = threading.Thread(target=self._wait, name="muster-signals", daemon=True)

    def __enter__(self) -> Self:
        self._mask_before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        self._thread.start()
        self._handlers_before = {number: signal.signal(number, self._hand_on) for number in SIGNALS}
        return self

    def _hand_on(self, number: int, frame: object) -> None:
        signal.pthread_kill(self._thread.ident or 0, number)

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        if self._thread.is_alive():
            signal.pthread_kill(self._thread.ident or 0, signal.SIGTERM)  # wakes it, and nobody else
            self._thread.join()
        for number, handler in self._handlers_before.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask_before)

    def serving(self, stop: Callable[[], object]) -> None:
        """From now on there are clients to be answered: the first signal calls `stop`, in a thread of its own."""
        self._stop = stop

    def stopped(self, status: Status) -> None:
        """The server has stopped with this status; what takes longer from here on may be cut off."""
        self._status = status

    def _wait(self) -> None:
        signal.sigwait(SIGNALS)
        if self._is_over:
            return
        if self._stop is None:
            self._end("stopped while starting; no client was served yet", Status.OK)
        self._stop()
        is_second = signal.sigtimedwait(SIGNALS, END_WITHIN_S) is not None
        if self._is_over:
            return
        if is_second:
            self._end("stopped at once, as was asked for", Status.INTERRUPTED)
        self._end(
            f"stopped: the server was not done {END_WITHIN_S} s after it was asked to. What was acknowledged is on the "
            "disk; the next start looks through the logs.",
            self._status,
        )

    def _end(self, sentence: str, status: Status) -> NoReturn:
        self._server_log.say(sentence, event="stopped")
        end_at_once(status, self._server_log)


def end_at_once(status: Status, server_log: "ServerLog") -> NoReturn:
    """Without a wait for threads, which may wait for a disk that does not answer."""
    server_log.close(LAST_LINES_WITHIN_S)
    sys.stdout.flush()
    os._exit(status)


def is_anything_left() -> bool:
    """Whether a thread is still at work for which the end of the process would wait."""
    return any(thread is not threading.main_thread() and not thread.daemon for thread in threading.enumerate())
