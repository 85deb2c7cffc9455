"""`muster serve` over files that fail when told to: `python -m tests.server.campaign.serve [--in-columns] ...`.

Orders come as lines of JSON on standard input, each is answered with a line on standard output once it holds:
`{"fail": {...}}` (an `Order`), `{"heal": true}`. SIGUSR1 makes it tell in its log
where its tasks are, SIGUSR2 where its threads are.
"""

import asyncio
import faulthandler
import functools
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict
from typing import IO, Any

from tests.server.campaign.failing_files import FailingFiles, Order

IN_COLUMNS = "--in-columns"


def obey(files: FailingFiles, lines: IO[str]) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})  # those are for the server's own threads
    for line in lines:
        order: dict[str, Any] = json.loads(line)
        if "fail" in order:
            files.order(Order(**order["fail"]))
        failed = files.heal() if "heal" in order else files.failed
        print(json.dumps({"failed": failed}), flush=True)
    os._exit(1)  # whoever ran the campaign is no more


def as_line(order: Order) -> str:
    return json.dumps({"fail": asdict(order)}) + "\n"


def load_in_columns() -> None:
    """Every partition, however small, as a large one would be."""
    from muster.server.groups import loading

    assert min(loading.COLUMNS_FROM_BYTES, loading.ROWS_UP_TO_BYTES) > 0
    loading.COLUMNS_FROM_BYTES = loading.ROWS_UP_TO_BYTES = 0


def tell_where_it_is(loop: asyncio.AbstractEventLoop) -> None:
    for task in asyncio.all_tasks(loop):
        task.print_stack()


def can_tell_where_it_is(make_loop: Callable[[], asyncio.AbstractEventLoop]) -> Callable[[], asyncio.AbstractEventLoop]:
    def made() -> asyncio.AbstractEventLoop:
        loop = make_loop()
        loop.add_signal_handler(signal.SIGUSR1, tell_where_it_is, loop)
        return loop

    return made


def main(arguments: list[str]) -> int:
    import muster.server.server as server
    from muster import broker
    from muster.cli.main import main as muster

    if IN_COLUMNS in arguments:
        arguments.remove(IN_COLUMNS)
        load_in_columns()
    files = FailingFiles()
    server.Server = functools.partial(server.Server, files=files)  # type: ignore[misc, assignment]
    broker.new_loop = can_tell_where_it_is(broker.new_loop)
    faulthandler.register(signal.SIGUSR2, all_threads=True)
    threading.Thread(target=obey, args=(files, sys.stdin), daemon=True).start()
    return muster(["serve", *arguments])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
