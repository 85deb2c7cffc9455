"""The connections that are open, and those that are refused."""

from collections import Counter
from collections.abc import Callable

from muster.config.broker import BrokerConfig
from muster.server import process
from muster.server.connection import Connection
from muster.server.server_log import ServerLog
from muster.server.stats import Stats

REFUSALS_TOLD_EVERY_S = 10.0


class Admission:
    """Keeps to `max.connections`, `max.connections.per.ip` and the files that this process may open."""

    def __init__(self, config: BrokerConfig, server_log: ServerLog, stats: Stats, time_s: Callable[[], float]) -> None:
        self._config = config
        self._server_log = server_log
        self._stats = stats
        self._time_s = time_s
        self.connections: set[Connection] = set()
        self._per_host: Counter[str] = Counter()
        self._untold, self._told_s = 0, float("-inf")
        self.is_closed = False

    def admit(self, connection: Connection) -> bool:
        problem = self._no_room_for(connection)
        if problem:
            self._stats.refused_connections += 1
            self._tell(problem)
            return False
        self.connections.add(connection)
        self._per_host[connection.client_host] += 1
        self._stats.connections = len(self.connections)
        return True

    def left(self, connection: Connection) -> None:
        if connection not in self.connections:
            return
        self.connections.discard(connection)
        self._per_host[connection.client_host] -= 1
        if not self._per_host[connection.client_host]:
            del self._per_host[connection.client_host]
        self._stats.connections = len(self.connections)

    def _no_room_for(self, connection: Connection) -> str:
        config = self._config
        if self.is_closed:
            return "the server stops"
        if len(self.connections) >= config.max_connections:
            return f"max.connections is {config.max_connections}"
        if self._per_host.get(connection.client_host, 0) >= config.max_connections_per_ip:
            return f"{connection.client_host[1:]} has max.connections.per.ip, which is {config.max_connections_per_ip}"
        most_files = process.limit()
        if connection.file_number > process.last_for_clients(most_files):
            return f"this process may open {most_files} files (ulimit -n)"
        return ""

    def _tell(self, problem: str) -> None:
        """One line for the first, and then for many at a time: a flood of clients must not become one of lines."""
        now_s = self._time_s()
        self._untold += 1
        if now_s - self._told_s >= REFUSALS_TOLD_EVERY_S:
            refused, self._untold, self._told_s = self._untold, 0, now_s
            self._server_log.say(
                f"{refused} connection{'s' if refused > 1 else ''} refused beside {len(self.connections)} open ones: "
                f"{problem}",
                event="refused", refused=refused, connections=len(self.connections),
            )  # fmt: skip
