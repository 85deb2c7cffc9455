"""Why a port cannot be listened on, as a sentence; and who holds it, as far as this machine tells."""

import errno
from contextlib import suppress
from pathlib import Path

from muster.errors import ConfigError

PROC = Path("/proc")
_LISTENING = "0A"


def cannot_listen(host: str, port: int, problem: OSError) -> ConfigError:
    """What to say instead of an operating system's error."""
    place = f"{host or '*'}:{port}"
    if problem.errno == errno.EADDRINUSE:
        holder = holder_of(port)
        return ConfigError(
            f"port {port} is taken: {holder or 'another process'} listens on it already. Stop that, or listen "
            "elsewhere (`muster serve --listen HOST:PORT`, port 0 takes a free one)."
        )
    if problem.errno == errno.EACCES:
        return ConfigError(f"no permission to listen on {place}: ports below 1024 are root's. Take a higher one.")
    if problem.errno == errno.EADDRNOTAVAIL:
        return ConfigError(
            f"{place} is not an address of this machine. Listen on one it has, or on 0.0.0.0 for all of them; "
            "--advertise says what clients are told."
        )
    return ConfigError(f"cannot listen on {place}: {problem.strerror or problem}. Check the host and the port.")


def holder_of(port: int) -> str:
    """`java (process 4711)`; empty where that cannot be seen: another user's process, or not Linux."""
    sockets = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    if not sockets:
        return ""
    for process in PROC.glob("[0-9]*"):
        with suppress(OSError):
            if any(str(link.readlink()) in sockets for link in (process / "fd").iterdir()):
                return f"{(process / 'comm').read_text().strip()} (process {process.name})"
    return ""


def _listening_inodes(port: int) -> list[str]:
    inodes = []
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (PROC / "net" / table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                    inodes.append(fields[9])
    return inodes
