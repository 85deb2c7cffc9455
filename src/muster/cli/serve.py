"""`muster serve`: a broker, until it is told to stop; `muster partitions`: what an operator tells it."""

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, Self

import typer

from muster.cli.options import DEBUG, pairs, wants_traceback
from muster.cli.status import Status

if TYPE_CHECKING:
    import asyncio

    from muster.server.kit.control_port import ControlPort
    from muster.server.metrics import MetricsPort
    from muster.server.server import Server
    from muster.server.server_log import ServerLog

EPILOG = """
[bold]Examples[/bold]

  muster serve --data ./muster-data
  muster serve --listen 0.0.0.0:9092 --advertise broker.example:9092 --config server.properties
  muster serve --set group.initial.rebalance.delay.ms=0 --set offsets.topic.num.partitions=8
"""


def serve(
    listen: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT", help="Where clients connect; port 0 takes a free one.", show_default="127.0.0.1:9092"
        ),
    ] = "",
    data: Annotated[
        Path | None,
        typer.Option(
            help="Where the log is kept, made if it is not there; else `log.dirs` of the settings says it.",
            show_default="muster-data",
        ),
    ] = None,
    advertise: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="What clients are told, if not where we listen.")
    ] = "",
    node_id: Annotated[int | None, typer.Option("--node-id", help="The number of this node.", show_default="1")] = None,
    config: Annotated[Path | None, typer.Option(help="Settings in the format of Kafka's server.properties.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting by Kafka's name; repeatable.")
    ] = None,
    metrics_port: Annotated[
        int | None, typer.Option(help="Serve Prometheus metrics on this port; 0: a free one.")
    ] = None,
    control_port: Annotated[
        int | None,
        typer.Option(help="For tests: take the verbs of the test kit over HTTP on this port; 0: a free one."),
    ] = None,
    log_json: Annotated[bool, typer.Option("--log-json", help="Log lines as JSON objects.")] = False,
    must_exist: Annotated[
        bool,
        typer.Option("--must-exist", help="Refuse to start where there is no data yet: the disk may not be mounted."),
    ] = False,
    accept_data_loss: Annotated[
        bool,
        typer.Option("--accept-data-loss", help="Start although durable records are missing, with what is left."),
    ] = False,
    debug: Annotated[bool, DEBUG] = False,
) -> int:
    """Run a Kafka broker in one process: topics, producers and consumers for tests, and a full coordinator for groups.

    Stops in steps on SIGTERM or Ctrl-C (no new connections, answers to waiting requests, flush, close), within five
    seconds; a second one stops at once, unless it is a SIGTERM in the same second.
    """
    started = time.perf_counter()
    wanted = _settings(config, settings or [])
    if listen:
        wanted.append(("listeners", _listener("--listen", f"127.0.0.1:{listen}" if listen.isdigit() else listen)))
    if advertise:
        wanted.append(("advertised.listeners", _listener("--advertise", advertise)))
    if node_id is not None:
        wanted.append(("node.id", str(node_id)))
    if must_exist:
        wanted.append(("muster.data.must.exist", "true"))
    if accept_data_loss:
        wanted.append(("muster.accept.data.loss", "true"))
    import asyncio  # a tenth of a second that no other command should take

    from muster.broker import new_loop
    from muster.server.server_log import ServerLog

    server_log = ServerLog(as_json=log_json, debug=wants_traceback(debug))
    with StopSignals(server_log) as signals:
        try:
            with asyncio.Runner(loop_factory=new_loop) as runner:
                status = runner.run(_serve(wanted, data, metrics_port, control_port, server_log, signals, started))
        finally:
            is_told = server_log.close()
        if status is not Status.OK or not is_told or is_anything_left():
            end_at_once(status, server_log)
    return status


def _settings(config: Path | None, settings: list[str]) -> list[tuple[str, str]]:
    from muster.config.properties import read_properties

    found = [] if config is None else read_properties(config, "It should be a file of NAME=VALUE lines.")
    given = pairs("--set", settings, "num.partitions=4")
    return [*found, *((name, value.strip()) for name, value in given.items())]


def _listener(option: str, address: str) -> str:
    """An address as a setting of Kafka's has it."""
    from muster.server.listeners import is_listener

    listener = f"PLAINTEXT://{address}"
    if not is_listener(listener):
        raise typer.BadParameter(f"'{address}' is not HOST:PORT, like 127.0.0.1:9092", param_hint=option)
    return listener


async def _serve(
    wanted: list[tuple[str, str]],
    named: Path | None,
    metrics_port: int | None,
    control_port: int | None,
    server_log: "ServerLog",
    signals: "StopSignals",
    started: float,
) -> Status:
    import asyncio

    from muster.server import process
    from muster.server.server import Server
    from muster.server.settings import settings_from

    settings = settings_from(wanted)
    process.raise_open_files_limit()
    process.set_aside_survivors()
    process.keep_freed_memory()
    for ignored in settings.ignored:
        server_log.say(str(ignored), event="setting ignored", setting=ignored.name)
    data = _data_directory(named, settings.broker.log_dirs, server_log)
    server = Server(data, settings.groups, settings.broker, server_log, **_for_tests(control_port))
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    await server.start()
    _tell_of_fixed_partitions(settings.broker.offsets_topic_num_partitions, wanted, server)
    try:
        metrics = None if metrics_port is None else _metrics(server, metrics_port)
        control = None if control_port is None else await _control(server, control_port, data)
    except BaseException:
        await server.stop()
        raise
    server_log.close()  # what was said so far comes before the line that it is ready
    signals.serving(lambda: loop.call_soon_threadsafe(stop.set))
    print(
        f"muster is ready at {server.host}:{server.port} after {time.perf_counter() - started:.2f} s; "
        f"data in {data}, {len(server.parts.led_partitions.by_number)} partitions. Ctrl-C stops it.",
        flush=True,
    )
    if ENDS_WITH_STDIN in os.environ:
        threading.Thread(target=_stop_with_stdin, args=(loop, stop), daemon=True).start()
    await stop.wait()
    if control is not None:
        control.stop()
    server_log.say("stopping: no connection is accepted any more, requests that wait are answered", event="stopping")
    status = Status.OK if await server.stop() else Status.DAMAGED
    signals.stopped(status)
    if metrics is not None:
        metrics.close()
    well = status is Status.OK
    server_log.say("stopped" if well else "stopped, but not all logs could be closed well", event="stopped")
    return status


def _metrics(server: "Server", port: int) -> "MetricsPort":
    from muster.server.metrics import MetricsPort

    metrics = MetricsPort(server.parts, port)
    server.parts.server_log.say(f"metrics at {metrics.url}", event="metrics", url=metrics.url)
    return metrics


async def _control(server: "Server", port: int, data: Path) -> "ControlPort":
    """The verbs of the test kit, over HTTP and over the socket of `muster partitions`."""
    from muster.server.kit.control_port import TOKEN_FILE, ControlPort
    from muster.server.kit.verbs import Kit

    kit = Kit(server.parts, crash=lambda: os.kill(os.getpid(), signal.SIGKILL))
    server.parts.control.verbs_for_tests = dict.fromkeys(kit.verbs, kit.answer)
    control = ControlPort(kit, data)
    await control.start(port)
    server.parts.server_log.say(
        f"control at {control.url}, with the token of {data / TOKEN_FILE}: whoever has it can delete everything",
        event="control", url=control.url,
    )  # fmt: skip
    return control


def _data_directory(named: Path | None, log_dirs: tuple[str, ...] | None, server_log: "ServerLog") -> Path:
    """`--data`, else `log.dirs`, else `muster-data`."""
    if log_dirs is None:
        return named or Path("muster-data")
    if named is not None and named.absolute() != Path(log_dirs[0]).absolute():
        server_log.say(
            f"log.dirs is {log_dirs[0]}; it is ignored, because --data {named} counts before it.",
            event="setting ignored", setting="log.dirs",
        )  # fmt: skip
    return named or Path(log_dirs[0])


def _tell_of_fixed_partitions(asked: int, wanted: list[tuple[str, str]], server: "Server") -> None:
    """Which group is in which partition depends on their number, so the first start decides it."""
    setting, there = "offsets.topic.num.partitions", len(server.parts.led_partitions.by_number)
    if setting in dict(wanted) and asked != there:
        server.parts.server_log.say(
            f"{setting} is {asked}; it is ignored, because the data directory has {there} partitions of "
            "__consumer_offsets, and their number decides in which of them a group is. Another number takes a new "
            "data directory.",
            event="setting ignored", setting=setting,
        )  # fmt: skip


def _for_tests(control_port: int | None) -> dict[str, Any]:
    """Real files, which a test can fill up."""
    if control_port is None:
        return {}
    from muster.server.kit.files import KitFiles

    return {"files": KitFiles()}


ENDS_WITH_STDIN = "MUSTER_ENDS_WITH_STDIN"
"""Set by `muster.Broker(process=True)`: its end of the pipe is closed when it ends, however it does."""


def _stop_with_stdin(loop: "asyncio.AbstractEventLoop", stop: "asyncio.Event") -> None:
    with contextlib.suppress(OSError, RuntimeError):  # the loop may be closed by then
        while os.read(0, 1 << 10):
            pass
        loop.call_soon_threadsafe(stop.set)


SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT})
END_WITHIN_S = 4.5
"""From the first signal; `server.STOP_WITHIN_S` is less, so that this is only for a server that is stuck."""
SAME_WISH_WITHIN_S = 1.0
"""A SIGTERM so soon after the first is no second wish: `timeout` sends one to the process and one to its group."""
LAST_LINES_WITHIN_S = 0.3


class StopSignals:
    """In a `with`, in the main thread, best before any other is started: those inherit which signals are not for them.

    One that was started before may be given a signal all the same; the main thread then hands it on.
    """

    def __init__(self, server_log: "ServerLog") -> None:
        self._server_log = server_log
        self._stop: Callable[[], object] | None = None
        self._status = Status.DAMAGED
        self._is_over = False
        self._thread = threading.Thread(target=self._wait, name="muster-signals", daemon=True)

    def __enter__(self) -> Self:
        self._mask_before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        self._thread.start()
        self._handlers_before = {number: signal.signal(number, self._hand_on) for number in SIGNALS}
        return self

    def _hand_on(self, number: int, frame: object) -> None:
        signal.pthread_kill(self._thread.ident or 0, number)

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        if self._thread.is_alive():
            signal.pthread_kill(self._thread.ident or 0, signal.SIGTERM)  # wakes that thread alone
            self._thread.join()
        for number, handler in self._handlers_before.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask_before)

    def serving(self, stop: Callable[[], object]) -> None:
        """From now on there are clients to be answered: the first signal calls `stop`, in a thread of its own."""
        self._stop = stop

    def stopped(self, status: Status) -> None:
        """The server has stopped with this status; what takes longer from here on may be cut off."""
        self._status = status

    def _wait(self) -> None:
        signal.sigwait(SIGNALS)
        if self._is_over:
            return
        if self._stop is None:
            self._end("stopped while starting; no client was served yet", Status.OK)
        self._stop()
        is_second = self._is_asked_again(time.monotonic())
        if self._is_over:
            return
        if is_second:
            self._end("stopped at once, as was asked for", Status.INTERRUPTED)
        self._end(
            f"stopped: the server was not done {END_WITHIN_S} s after it was asked to. What was acknowledged is on the "
            "disk; the next start looks through the logs.",
            self._status,
        )

    def _is_asked_again(self, first_s: float) -> bool:
        """Wait for a second signal; False if none came in time."""
        while (left_s := first_s + END_WITHIN_S - time.monotonic()) > 0:
            found = signal.sigtimedwait(SIGNALS, left_s)
            is_same_wish = time.monotonic() < first_s + SAME_WISH_WITHIN_S
            if self._is_over:
                break
            if found is not None and not (found.si_signo == signal.SIGTERM and is_same_wish):
                return True
        return False

    def _end(self, sentence: str, status: Status) -> NoReturn:
        self._server_log.say(sentence, event="stopped")
        end_at_once(status, self._server_log)


def end_at_once(status: Status, server_log: "ServerLog") -> NoReturn:
    """Without a wait for threads, which may wait for a disk that does not answer."""
    server_log.close(LAST_LINES_WITHIN_S)
    sys.stdout.flush()
    os._exit(status)


def is_anything_left() -> bool:
    """Whether a thread is still at work for which the end of the process would wait."""
    return any(thread is not threading.main_thread() and not thread.daemon for thread in threading.enumerate())


partitions = typer.Typer(
    name="partitions",
    help="Look at, unload and load the partitions of [bold]__consumer_offsets[/bold] of a running `muster serve`.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

DATA = typer.Option(help="The data directory of the running server.")
JSON = typer.Option("--json", help="One JSON object, for other programs.")
PARTITION = typer.Argument(help="Its number.")
HEADINGS = ("partition", "state", "epoch", "groups", "members", "offsets", "records", "bytes", "load_ms")


def _ask(data: Path, request: dict[str, Any]) -> dict[str, Any]:
    import asyncio

    from muster.server.control import ask

    return asyncio.run(ask(data, request))


@partitions.command("list")
def list_partitions(
    data: Annotated[Path, DATA] = Path("muster-data"),
    as_json: Annotated[bool, JSON] = False,
    debug: Annotated[bool, DEBUG] = False,
) -> int:
    """Show every partition: its state, epoch, groups, offsets, records, size on disk, and how long it took to load.

    [bold]Example[/bold]

      [cyan]muster partitions list --data muster-data[/cyan]
    """
    answer = _ask(data, {"do": "list"})
    if as_json:
        print(json.dumps(answer))
        return Status.OK
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in HEADINGS:
        table.add_column(heading.replace("_ms", ", ms"), justify="left" if heading == "state" else "right")
    for each in answer["partitions"]:
        table.add_row(*(f"{each[name]:,}" if isinstance(each[name], int | float) else each[name] for name in HEADINGS))
    Console().print(table)
    return Status.OK


@partitions.command()
def unload(
    partition: Annotated[int, PARTITION],
    data: Annotated[Path, DATA] = Path("muster-data"),
    as_json: Annotated[bool, JSON] = False,
    debug: Annotated[bool, DEBUG] = False,
) -> int:
    """Let a partition go: its groups are told NOT_COORDINATOR until it is loaded again. Nothing is deleted.

    [bold]Example[/bold]

      [cyan]muster partitions unload 7 --data muster-data[/cyan]
    """
    answer = _ask(data, {"do": "unload", "partition": partition})
    let_go = f"partition {partition} unloaded: {answer['groups']} groups and {answer['offsets']} offsets let go"
    print(
        json.dumps(answer) if as_json else let_go if answer["was_loaded"] else f"partition {partition} was not loaded"
    )
    return Status.OK


@partitions.command()
def load(
    partition: Annotated[int, PARTITION],
    data: Annotated[Path, DATA] = Path("muster-data"),
    as_json: Annotated[bool, JSON] = False,
    debug: Annotated[bool, DEBUG] = False,
) -> int:
    """Take a partition over, in a new epoch: read its log, then answer for its groups.

    [bold]Example[/bold]

      [cyan]muster partitions load 7 --data muster-data[/cyan]
    """
    answer = _ask(data, {"do": "load", "partition": partition})
    begun = f"partition {partition} is {answer['state']} in epoch {answer['epoch']}"
    print(json.dumps(answer) if as_json else f"{begun}{' already' if answer['was_loaded'] else ''}")
    return Status.OK
