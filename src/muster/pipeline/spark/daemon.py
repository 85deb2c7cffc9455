"""The process that Spark on one machine forks its Python workers from, with everything imported that tasks need.

Spark's own (`pyspark.daemon`) imports nothing of ours, so that every worker would do it again: 1.2 CPU seconds each.
What is imported here starts no threads but those that their libraries take care of when a process forks. It is kept
from the garbage collector (`gc.freeze`): Spark's workers collect after every task, which takes 80 ms otherwise.

Spark starts it when its first task comes, and the run would wait until everything is imported. So the driver starts one
beside Java, which takes as long. What Spark starts later gives that one its pipes and its environment, and stays as
long as it does, for Spark to look after:

    driver ──> python -m ….daemon --early FD       imports, waits at a socket, is Spark's daemon from then on
       └────> java ──> python -m ….daemon          gives what it has from Spark, and waits

Where nobody waits at the socket (a second session), Spark's own child imports by itself.
"""

import atexit
import gc
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

EARLY = "--early"
PLACE = "MUSTER_WORKERS"
"""Java's environment has the address under this name."""
HASH_SEED = "PYTHONHASHSEED"
PIPES = (0, 1, 2)
ENOUGH_S = 60.0
"""How long Spark's child waits for the imports of the other one, before it does them itself."""

_started: list["subprocess.Popen[bytes]"] = []
"""Kept, or their stdin would be closed. Until Spark's child comes a daemon ends with this process; then with Java."""


# In the driver.


@contextmanager
def started_early() -> Iterator[None]:
    """Java that is started in here finds a daemon that has begun to import. Without it Spark starts one itself."""
    folder = Path(tempfile.mkdtemp(prefix="muster-workers-"))  # only this user may enter
    place = folder / "socket"
    try:
        process = _started_at(place)
    except (OSError, AttributeError):  # too long a path, no more processes; no such sockets
        shutil.rmtree(folder, ignore_errors=True)
        yield
        return
    _started.append(process)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)  # it does that itself, unless it was killed
    os.environ[PLACE] = str(place)
    try:
        yield
    except BaseException:
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        del os.environ[PLACE]


def _started_at(place: Path) -> "subprocess.Popen[bytes]":
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place))
        listener.listen(1)
        return subprocess.Popen(
            [sys.executable, "-m", "muster.pipeline.spark.daemon", EARLY, str(listener.fileno())],
            env=os.environ | {HASH_SEED: os.environ.get(HASH_SEED, "0"), "PYTHONUNBUFFERED": "YES"},  # as Spark does
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,  # Spark's child, which would say the same, has a reader
            pass_fds=[listener.fileno()],
            process_group=0,  # a Ctrl-C is for the driver
        )


# In the process that the driver has started.


def wait_for_spark(descriptor: int) -> None:
    """Import, then be the daemon of whoever comes to the socket. Ends when the driver does before that."""
    listener = socket.socket(fileno=descriptor)
    place = Path(listener.getsockname())
    import_all()
    ready, _, _ = select.select([sys.stdin, descriptor], [], [])
    shutil.rmtree(place.parent, ignore_errors=True)
    if descriptor not in ready:
        return
    connection, _ = listener.accept()
    listener.close()
    try:
        take_over(connection)
    except (OSError, ValueError):  # whoever came has gone again
        return
    be_the_daemon()


def take_over(connection: socket.socket) -> None:
    """Take pipes and environment from the child of Spark."""
    _, pipes, _, _ = socket.recv_fds(connection, 1, len(PIPES))
    told = json.loads(connection.makefile("rb").readline())
    connection.sendall(b".")
    for ours, pipe in zip(PIPES, pipes, strict=True):
        os.dup2(pipe, ours)
        os.close(pipe)
    os.environ.clear()
    os.environ.update(told["environ"])
    sys.argv[1:], sys.path[:] = told["argv"], told["path"]


# In the child of Spark.


def hand_over() -> bool:
    """Whether a process that was started early is the daemon now; returns when that has ended."""
    place = os.environ.pop(PLACE, None)
    if place is None:
        return False
    os.setpgid(0, 0)  # as the daemon does: a Ctrl-C is for the driver
    told = {"environ": dict(os.environ), "argv": sys.argv[1:], "path": sys.path}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(ENOUGH_S)
        try:
            connection.connect(place)
            socket.send_fds(connection, [b"."], PIPES)
            connection.sendall(json.dumps(told).encode() + b"\n")
            if not connection.recv(1):
                return False
        except OSError:
            return False
        connection.settimeout(None)
        with suppress(OSError):
            connection.recv(1)
    return True


def import_all() -> None:
    import pyarrow.dataset  # noqa: F401
    import pyspark.daemon  # noqa: F401

    import muster.pipeline.extract.partition
    import muster.pipeline.interval_task
    import muster.pipeline.merge  # noqa: F401


def be_the_daemon() -> None:
    from pyspark.daemon import manager

    gc.freeze()
    manager()


def main(arguments: list[str]) -> None:
    if arguments[:1] == [EARLY]:
        wait_for_spark(int(arguments[1]))
    elif not hand_over():
        import_all()
        be_the_daemon()


if __name__ == "__main__":
    main(sys.argv[1:])
