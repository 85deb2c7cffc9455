"""From `--bootstrap-server` and `--command-config` to a cluster that can be asked; and what happens when it cannot."""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from muster.cli.options import Format, bootstrap_servers
from muster.cli.output import say
from muster.cli.status import Status
from muster.config.client import read_client_properties
from muster.errors import BadInput
from muster.extras import GROUPS, need
from muster.references import resolved

if TYPE_CHECKING:
    from muster.cli.groups.cluster import Cluster

# Quiet, since librdkafka would log every attempt to connect; and quick to try again: we give up before it does.
DEFAULTS = {
    "client.id": "muster",
    "log_level": "0",
    "reconnect.backoff.max.ms": "1000",
    "socket.connection.setup.timeout.ms": "5000",
    "socket.nagle.disable": "true",
}
NO_SUCH_SETTING = re.compile(r"No such configuration property: \"([^\"]+)\"")
SECURITY = ("ssl.", "sasl.", "security.", "enable.ssl.", "enable.sasl.", "https.")
"""Settings that must not be dropped quietly begin like this."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What all commands are told: whom to ask, how long to wait, and how to answer."""

    bootstrap_server: str | None
    command_config: Path | None
    timeout_ms: int
    format: Format
    quiet: bool

    def tell(self, *sentences: str) -> None:
        """Sentences on stderr, unless they are not wanted. Refusals are always said."""
        if not self.quiet:
            for sentence in sentences:
                say(sentence)


def settings_of(asked: Asked) -> dict[str, str]:
    """librdkafka's settings: ours, then the file's, then the command line's."""
    settings = dict(DEFAULTS)
    if asked.command_config is not None:
        settings |= resolved(read_client_properties(asked.command_config))
        settings.pop("ssl.keystore.type", None)  # librdkafka has PKCS#12 stores only, and no setting that says so
    return settings | {"bootstrap.servers": bootstrap_servers(asked.bootstrap_server, settings)}


def run(asked: Asked, work: "Callable[[Cluster], Status]") -> Status:
    """Do some work with the cluster. Raises `ClusterUnreachable` when no broker answers."""
    settings = settings_of(asked)
    need(GROUPS, "`muster groups`")
    return work(_opened(settings, asked))


def _opened(settings: dict[str, str], asked: Asked) -> "Cluster":
    """A client with these settings. Those that only Java has are left out, as Java leaves out what it does not know."""
    from confluent_kafka import KafkaException

    from muster.cli.groups.cluster import Cluster

    unknown: list[str] = []
    while True:
        try:
            cluster = Cluster(settings, asked.timeout_ms)
        except KafkaException as problem:
            text = problem.args[0].str() if problem.args else str(problem)
            where = asked.command_config or "--bootstrap-server"
            match = NO_SUCH_SETTING.search(text)
            if match is None or match[1].startswith(SECURITY) or match[1] not in settings:
                raise BadInput(f"{where}: {text}. CONFIGURATION.md of librdkafka lists what there is.") from None
            unknown.append(match[1])
            del settings[match[1]]
            continue
        if unknown:
            asked.tell(f"{asked.command_config}: left out what librdkafka does not know: {', '.join(unknown)}.")
        return cluster


@contextmanager
def counting(title: str, total: int, asked: Asked) -> Iterator[Callable[[int], object] | None]:
    """A bar on stderr for what takes seconds, and how to move it; None, and no bar, where a program may be reading."""
    if asked.quiet or total < 2000 or not (sys.stderr.isatty() and sys.stdout.isatty()):
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn(f"[bold]{title}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=total)
        yield lambda advanced: progress.advance(task, advanced)
