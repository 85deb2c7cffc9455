"""What the server asks of its own process: open files, the search for reference cycles, memory that was freed.

Files. The system's soft limit is often 1,024, which is there for programs that use `select`; a server is expected to
raise it to the hard limit, and a Java machine does so by itself.

Cycles. Python looks for reference cycles among all objects there are; with a million groups that takes seconds each
time. Groups and offsets are not cyclic and live long. So the objects that have survived a full search are set aside and
not searched again: the next search is among those that came since. An object that is set aside is still freed when the
last reference to it goes; only cycles would stay. The one large cycle, a coordinator that gives up its partition, asks
for a search of everything.

Memory. A megabyte of records is a few blocks of a megabyte: as it came, as it is written, as it is sent. glibc gives
memory back to the system as soon as two such blocks are free, and gets it again, page by page and cleared, for the next
request; that was two thirds of all that a megabyte took. So it is told to keep up to 32 MB.

All three concern the whole process, so only `muster serve` calls them, not `muster.Broker`.
"""

import contextlib
import ctypes
import gc
import os
import resource
from typing import Any, Literal

RESERVED = 128
"""Kept from clients: segments that are rolled and compacted, topics that are made, operators."""
OLDEST = 2
"""The generation of objects that only a full search looks at."""
KEPT_BYTES, MAPPED_FROM_BYTES = 32 << 20, 16 << 20
"""Of free memory at the end of the heap; larger blocks have pages of their own, which go when the block goes."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Names of glibc's <malloc.h>."""


def raise_open_files_limit() -> int:
    """Let this process open as many files as it may, if it may not already; returns how many that is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):  # some systems have a hard limit that they do not grant
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return open_files_limit()


def open_files_limit() -> int:
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 1 << 30 if soft == resource.RLIM_INFINITY else soft


def files_left_for_logs() -> int:
    """How many files more logs may keep open; a quarter of all is kept for clients and for work on the logs."""
    return open_files_limit() * 3 // 4 - open_files()


def open_files() -> int:
    return len(os.listdir("/dev/fd"))


def last_client_file(most_files: int) -> int:
    """The number of the last file that may be a client's: the system gives out the lowest number that is free."""
    return most_files - min(RESERVED, most_files // 2) - 1


def set_aside_survivors() -> None:
    """From now on, after every full search."""
    if _full_search_ended not in gc.callbacks:
        gc.callbacks.append(_full_search_ended)


def search_everything_once() -> None:
    """The next full search is one of all objects; it comes when it would have come anyway."""
    if _full_search_ended in gc.callbacks:
        gc.unfreeze()


def _full_search_ended(phase: Literal["start", "stop"], info: dict[str, Any]) -> None:
    if phase == "stop" and info["generation"] == OLDEST:
        gc.freeze()


def keep_freed_memory() -> bool:
    """Do not give every free megabyte back to the system. False where the C library is not one that can be told."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    settings = ((_M_TRIM_THRESHOLD, KEPT_BYTES), (_M_MMAP_THRESHOLD, MAPPED_FROM_BYTES))
    return all(mallopt(name, size_bytes) == 1 for name, size_bytes in settings)
