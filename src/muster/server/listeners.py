"""`listeners` and `advertised.listeners`: `NAME://HOST:PORT`, several with commas between them.

muster serves one listener, and in plain text. A file made for Kafka may have a second one for controllers, which
`controller.listener.names` tells apart. Where a port cannot be listened on, `cannot_listen` says why, and which process
holds it as far as this machine tells.
"""

import errno
import ipaddress
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from muster.config.broker import BrokerConfig
from muster.errors import ConfigError

_LISTENER = re.compile(
    r"(?P<name>[A-Za-z0-9_.-]+)://(?:\[(?P<ipv6>[^\]]*)\]|(?P<host>[^:/\[\]]*)):(?P<port>\d{1,5})", re.ASCII
)
_NOT_PLAIN = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
_EVERYWHERE = "0.0.0.0"


class Endpoint(NamedTuple):
    """An empty host is every address of this machine; port 0 is one that is free."""

    name: str
    host: str
    port: int


def client_listener(config: BrokerConfig) -> Endpoint:
    """Where clients are served. Raises `ConfigError`."""
    return _only(_parsed("listeners", config.listeners), "listeners", config)


def advertised_listener(config: BrokerConfig) -> Endpoint | None:
    """Where clients are told to connect; None if that is where we listen. Raises `ConfigError`."""
    if not config.advertised_listeners:
        return None
    endpoint = _only(_parsed("advertised.listeners", config.advertised_listeners), "advertised.listeners", config)
    if endpoint.host in ("", _EVERYWHERE):
        raise ConfigError(
            f"advertised.listeners is {','.join(config.advertised_listeners)}, which has no host that a client could "
            "connect to. Name the one by which clients reach this machine."
        )
    return endpoint


def is_listener(text: str) -> bool:
    """Whether a text is `NAME://HOST:PORT`."""
    return _match(text) is not None


def _match(listener: str) -> re.Match[str] | None:
    match = _LISTENER.fullmatch(listener)
    return None if match is None or int(match["port"]) > 65535 else match


def _parsed(setting: str, listeners: Sequence[str]) -> list[Endpoint]:
    endpoints = []
    for listener in listeners:
        match = _match(listener)
        if match is None:
            raise ConfigError(f"{setting} has {listener[:100]!r}; it must look like PLAINTEXT://127.0.0.1:9092.")
        host = match["host"] if match["ipv6"] is None else match["ipv6"]
        endpoints.append(Endpoint(match["name"].upper(), host, int(match["port"])))
    return endpoints


def _only(endpoints: list[Endpoint], setting: str, config: BrokerConfig) -> Endpoint:
    controllers = {name.upper() for name in config.controller_listener_names}
    served = [endpoint for endpoint in endpoints if endpoint.name not in controllers]
    if len(served) != 1:
        raise ConfigError(
            f"{setting} has {len(served)} listeners for clients; muster serves one. Those of controllers are left out "
            "by controller.listener.names."
        )
    if served[0].name in _NOT_PLAIN:
        raise ConfigError(
            f"{setting} has a {served[0].name} listener; muster speaks PLAINTEXT only. Make it PLAINTEXT://HOST:PORT, "
            "or give --listen HOST:PORT."
        )
    return served[0]


def open_to_others(sockets: Iterable[Any]) -> str | None:
    """A warning if a listening socket can be reached from other machines; None if all are on the loopback."""
    bound = [socket.getsockname()[:2] for socket in sockets]
    reached = [f"{host}:{port}" for host, port in bound if not ipaddress.ip_address(host.partition("%")[0]).is_loopback]
    if not reached:
        return None
    return (
        f"WARNING: {', '.join(reached)} can be reached from other machines, and muster has no authentication: any "
        "client may read, change and delete every group and topic. Listen on 127.0.0.1, or let a firewall, a private "
        "network or a proxy that authenticates keep others out."
    )


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
