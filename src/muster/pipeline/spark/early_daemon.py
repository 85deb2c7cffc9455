"""The process that Spark's workers on this machine are forked from, with what takes long to import.

Spark's own (`pyspark.daemon`) imports nothing of ours, so that every worker would do it again: 1.2 CPU seconds each.
What is imported here starts no threads but those that their libraries take care of when a process forks. It is kept
from the garbage collector (`gc.freeze`): Spark's workers collect after every task, which takes 80 ms otherwise.

Spark starts it when its first task comes, and the run would wait until everything is imported. So the driver starts one
beside Java, which takes as long. What Spark starts later gives that one its pipes and its environment, and stays as
long as it does, for Spark to look after:

    driver ──> python -m ….daemon --early FD       imports, waits at a socket, is Spark's daemon from then on
       └────> java ──> python -m ….daemon          gives what it has from Spark, and waits

Where nobody waits at the socket (a second session), or who waits was started in another environment than Spark wants,
Spark's own child imports by itself. The socket is in a folder that only this user may enter, and that stays as long as
the daemon and the driver: nobody else can listen in its place.
"""

import atexit
import gc
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

MODULE = "spark.python.daemon.module"
EARLY = "--early"
PLACE = "MUSTER_WORKERS"
"""Java's environment has the address under this name."""
PIPES = (0, 1, 2)
WAITS_S = 600.0
"""How long the early one waits for Spark's child: a session that has no tasks for Python needs none."""
ENOUGH_S = 60.0
"""How long Spark's child waits for the imports of the early one, before it does them itself."""
OF_SPARK = ("SPARK_", "PYSPARK_", "_PYSPARK_", "PYTHON", "JAVA_HOME", PLACE)
OF_SHELLS = ("_", "PWD", "OLDPWD", "SHLVL")


# In the driver.


@contextmanager
def started_early(settings: Mapping[str, str]) -> "Iterator[subprocess.Popen[bytes] | None]":
    """Java that is started in here finds a daemon that has begun to import; None: Spark will start one itself."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="muster-workers-"))  # only this user may enter
    except OSError:
        yield None
        return
    atexit.register(shutil.rmtree, folder, ignore_errors=True)  # the process does that itself, unless it was killed
    place = folder / "socket"
    try:
        process = _started_at(place, settings)
    except (OSError, AttributeError):  # too long a path, no more processes; no such sockets
        shutil.rmtree(folder, ignore_errors=True)
        yield None
        return
    threading.Thread(target=process.wait, name="muster-workers", daemon=True).start()  # or it stays a zombie
    os.environ[PLACE] = str(place)
    try:
        yield process
    except BaseException:
        process.kill()
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        os.environ.pop(PLACE, None)


def _started_at(place: Path, settings: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    as_spark_does = {
        "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0"),
        "PYTHONUNBUFFERED": "YES",
        "OMP_NUM_THREADS": settings.get("spark.task.cpus", "1"),
    }
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place))
        listener.listen(1)
        return subprocess.Popen(
            [sys.executable, "-m", settings[MODULE], EARLY, str(listener.fileno())],
            env=os.environ | as_spark_does,
            stdin=subprocess.PIPE,  # which closes with this process
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,  # Spark's child, which would say the same, has a reader
            pass_fds=[listener.fileno()],
            process_group=0,  # a Ctrl-C is for the driver
        )


# In the process that the driver has started.


def wait_for_spark(descriptor: int) -> None:
    """Import, then be the daemon of whoever comes to the socket. Ends when the driver does before that."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    started_in = dict(os.environ)
    listener = socket.socket(fileno=descriptor)
    place = Path(listener.getsockname())
    try:
        import_all()
        waiting = select.poll()
        for one in (sys.stdin.fileno(), descriptor):
            waiting.register(one, select.POLLIN)
        if descriptor not in (ready for ready, _ in waiting.poll(WAITS_S * 1000)):
            return
        connection, _ = listener.accept()
        listener.close()
        place.unlink()
        os.register_at_fork(after_in_child=connection.close)  # Spark's child sees the end of this process alone
        if take_over(connection, started_in):
            be_the_daemon()
    finally:
        shutil.rmtree(place.parent, ignore_errors=True)


def take_over(connection: socket.socket, started_in: Mapping[str, str]) -> bool:
    """Take pipes and environment from the child of Spark, if this process could be what it would have become."""
    try:
        _, pipes, _, _ = socket.recv_fds(connection, 1, len(PIPES))
        told = json.loads(connection.makefile("rb").readline())
        if not is_like(started_in, told["environ"]):
            return False
        connection.sendall(b".")
    except (OSError, ValueError):  # whoever came has gone again
        return False
    for ours, pipe in zip(PIPES, pipes, strict=True):
        os.dup2(pipe, ours)
        os.close(pipe)
    os.environ.clear()
    os.environ.update(told["environ"])
    sys.argv[1:], sys.path[:] = told["argv"], told["path"]
    return True


def is_like(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether two environments differ in nothing that libraries read when they are imported: time zone, threads, …"""
    differ = {name for name in one.keys() | other.keys() if one.get(name) != other.get(name)}
    return all(name.startswith(OF_SPARK) or name in OF_SHELLS for name in differ)


# In the child of Spark.


def hand_over(here: Sequence[str]) -> bool:
    """Whether a process that was started early is the daemon now; returns when that has ended."""
    place = os.environ.pop(PLACE, None)
    if place is None or not _is_ours(Path(place).parent):
        return False
    os.setpgid(0, 0)  # as the daemon does: a Ctrl-C is for the driver
    told = {"environ": dict(os.environ), "argv": sys.argv[1:], "path": [*here, *sys.path]}
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


def _is_ours(folder: Path) -> bool:
    """Whether nobody else can have put a socket there."""
    try:
        found = folder.stat()
    except OSError:
        return False
    return found.st_uid == os.getuid() and not found.st_mode & 0o077


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


def main(arguments: list[str], here: Sequence[str]) -> None:
    """`here` is what the path of modules began with."""
    if arguments[:1] == [EARLY]:
        wait_for_spark(int(arguments[1]))
    elif not hand_over(here):
        import_all()
        sys.path[:0] = here
        be_the_daemon()
