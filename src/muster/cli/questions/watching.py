"""`--watch`: the answer again and again, of the newest run each time, until Ctrl-C."""

import errno
import shutil
import sys
from collections.abc import Callable
from time import sleep

import typer

from muster.cli.options import option, parse_length_s
from muster.cli.output import say, write_to_stdout
from muster.cli.status import Status
from muster.errors import MusterError

WATCH = option("--watch", metavar="LENGTH", help="Again and again, so far apart: 10s. Ctrl-C ends it.")
SHORTEST_WATCH_S = 1.0
LINES_AROUND_ROWS = 8
"""The moment of the answer takes two lines of 80 characters, and sums and notes stand below."""
CLEARED = b"\x1b[H\x1b[2J"
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Where answers are written to: that is no better the next time."""


def watch_s(text: str | None, as_of: str | None) -> float | None:
    """How far apart answers are; None: one is enough."""
    if text is None:
        return None
    if as_of is not None:
        raise typer.BadParameter("the past does not change: it does not go with --as-of", param_hint="--watch")
    length_s = parse_length_s("--watch", text)
    if length_s < SHORTEST_WATCH_S:
        raise typer.BadParameter("once a second is often enough: --watch 1s", param_hint="--watch")
    return length_s


def again(every_s: float | None, answer: Callable[[], Status]) -> Status:
    """Answer, once or again and again; Ctrl-C is then the way to end it, and no failure."""
    if every_s is None:
        return answer()
    try:
        _clear()
        answer()
        while True:
            sleep(every_s)
            _clear()
            _try(answer)
    except KeyboardInterrupt:
        return Status.OK


def _clear() -> None:
    if sys.stdout.isatty():
        write_to_stdout(CLEARED)


def _try(answer: Callable[[], Status]) -> None:
    """What was answered once is asked again after a failure: tables are cleaned up, an object store is away."""
    try:
        answer()
    except MusterError as error:
        say(f"{error} It is asked again.")
    except OSError as error:
        if error.errno in NO_ROOM:
            raise
        say(f"{error}. It is asked again.")


def rows_on_screen(limit: int | None, every_s: float | None, lines_a_row: int = 1) -> int | None:
    """A limit of rows; where they are drawn again and again, no more than a terminal has lines for."""
    if every_s is None or not sys.stdout.isatty():
        return limit
    room = (shutil.get_terminal_size().lines - LINES_AROUND_ROWS) // lines_a_row
    return max(1, min(limit or room, room))
