"""A local directory of tables: one run at a time in it, and what a manifest names is on the disk.

The kernel forgets the lock when its holder dies, however it dies. Object stores have no such lock; there the version of
each commit decides, and the later of two runs ends with an error.
"""

import fcntl
import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from muster.errors import NotThereYet
from muster.tables.clocks import shown

LOCK_FILE = "_lock"


@contextmanager
def locked(root: Path, now_ms: int, is_whole: Callable[[], bool]) -> Iterator[bool]:
    """Hold the tables in `root` for one run; a second taker fails at once and is told who has them.

    Gives whether the last holder did not get to its end: its name is still there. It stays there until the tables are
    whole: who clears up behind a killed first run publishes nothing.
    """
    path = root / LOCK_FILE
    # Never removed: who unlinks a locked file lets two others lock two files of one name.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _taken(root) from None
        was_cut_short = os.fstat(descriptor).st_size > 0
        holder = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since_ms": now_ms}).encode()
        os.pwrite(descriptor, holder, 0)  # over the last holder's: a full disk must not leave the file empty
        os.ftruncate(descriptor, len(holder))
        yield was_cut_short
        if is_whole():
            os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def check_free(root: Path) -> None:
    """Refuse tables that a run is writing to now, as `locked` does; nothing is held, or written."""
    path = root / LOCK_FILE
    with suppress(FileNotFoundError, PermissionError), path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _taken(root) from None


def _taken(root: Path) -> NotThereYet:
    return NotThereYet(
        f"another run is writing to the tables in {root}{_holder(root / LOCK_FILE)}. Wait for it to end, or stop it; "
        "reading them is possible all the while."
    )


def was_cut_short(root: Path) -> bool:
    """Whether the last run in `root` did not get to its end, or is still under way."""
    path = root / LOCK_FILE
    return path.exists() and path.stat().st_size > 0


def _holder(path: Path) -> str:
    """Who wrote its name into the lock file; nothing where it cannot be told."""
    try:
        holder = json.loads(path.read_bytes())
        return f" (process {holder['pid']} on {holder['host']}, since {shown(holder['since_ms'])})"
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return ""


def sync(path: str | Path) -> None:
    """Wait until a file is on the disk; of a directory, until the names in it are."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
