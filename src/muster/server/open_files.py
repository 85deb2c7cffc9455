"""How many files this process may have open, sockets included.

The system's soft limit is often 1,024, which is there for programs that use `select`; whoever runs a server is expected
to raise it to the hard one, and a Java machine does so by itself.
"""

import contextlib
import os
import resource

RESERVED = 128
"""Kept from clients: segments that are rolled and compacted, topics that are made, operators."""


def raise_limit() -> int:
    """Let this process open as many files as it may, if it may not already; returns how many that is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):  # some systems have a hard limit that they do not grant
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return limit()


def limit() -> int:
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 1 << 30 if soft == resource.RLIM_INFINITY else soft


def room_for_logs() -> int:
    """How many files more logs may keep open; a quarter of all is kept for clients and for work on the logs."""
    return limit() * 3 // 4 - in_use()


def in_use() -> int:
    return len(os.listdir("/dev/fd"))


def last_for_clients(most_files: int) -> int:
    """The number of the last file that may be a client's: the system gives out the lowest number that is free."""
    return most_files - min(RESERVED, most_files // 2) - 1
