"""Connections of duckdb to work with for a while. What they make is TEMP, and goes with them.

To start a duckdb takes 20 ms, which is much of what a question or a task of a small cluster costs. So a process keeps
those that it has started, and hands out connections to them. Not for ever: whatever a duckdb keeps of what it has done,
after some hundred connections each takes a third longer (runs of one process: 1.65 CPU s at first, and 2.1 after
thirty). A forked process starts its own: threads are not forked.
"""

import atexit
import errno
import os
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb

from muster.errors import MusterError

MOST_USES = 50


def connect() -> duckdb.DuckDBPyConnection:
    """A connection for questions, to the one duckdb of this process that uses all of the machine. Close it.

    One that was replaced lives on as long as its connections.
    """
    kept = _of_process.get(os.getpid())  # never one of a parent: what is let go of here is closed here
    if kept is None or kept.uses >= MOST_USES:
        started = duckdb.connect(config={"temp_directory": tempfile.gettempdir()})
        kept = _of_process[os.getpid()] = _Kept(started)
    kept.uses += 1
    return kept.duckdb.cursor()


@dataclass(slots=True)
class _Kept:
    duckdb: duckdb.DuckDBPyConnection
    uses: int = 0


@dataclass(slots=True)
class _Limited(_Kept):
    spill: Path = Path()
    """Made by duckdb with the first file in it, and removed when it is closed."""


_of_process: dict[int, _Kept] = {}


_idle: defaultdict[tuple[int, int], list[_Limited]] = defaultdict(list)
"""By process and memory; one more than were ever used at once there is not."""


@contextmanager
def limited_duckdb(memory_mb: int) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection to a duckdb of its own: with one thread, and files where its memory ends.

    What the machine does to it (files that cannot be read, a disk that is full) is raised as what it is.
    """
    idle = _idle[os.getpid(), memory_mb]
    limited = idle.pop() if idle else _started(memory_mb)
    try:
        with limited.duckdb.cursor() as connection:
            yield connection
    except (duckdb.IOException, duckdb.OutOfMemoryException, duckdb.InvalidInputException) as error:
        limited.duckdb.close()
        raise _told(error, memory_mb) from error
    except BaseException:
        limited.duckdb.close()
        raise
    limited.uses += 1
    if limited.spill.exists() or limited.uses >= MOST_USES:
        limited.duckdb.close()
    else:
        idle.append(limited)


def _told(error: duckdb.Error, memory_mb: int) -> MusterError | OSError:
    """A sentence for people; a full disk is the error that it is, since time and hands heal it."""
    said = str(error).strip().splitlines()[0].rstrip(".")
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
        if os.strerror(number) in said:
            return OSError(number, os.strerror(number), tempfile.gettempdir())
    if isinstance(error, duckdb.OutOfMemoryException):
        return MusterError(
            f"{memory_mb} MB are not enough for a task, nor is the room for its files in {tempfile.gettempdir()}: "
            f"{said}. Make room there, or give executors more memory (spark.executor.memoryOverhead)."
        )
    return MusterError(
        f"a file cannot be read or written: {said}. If it is of the tables, and lost or damaged, restore it, or build "
        "the tables anew in another place."
    )


@atexit.register
def _forget() -> None:
    """What is left when the interpreter ends, duckdb complains of."""
    _of_process.clear()
    _idle.clear()


def _started(memory_mb: int) -> _Limited:
    spill = Path(tempfile.gettempdir(), f"muster-{uuid4()}")
    config: dict[str, Any] = {
        "temp_directory": str(spill),
        "threads": 1,
        "memory_limit": f"{memory_mb}MiB",
        "preserve_insertion_order": "false",
    }
    return _Limited(duckdb.connect(config=config), spill=spill)
