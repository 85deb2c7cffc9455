"""What a bare `pip install muster` must be able to do. Run by the Python of such an environment, which has no pytest:

    python -m tests.wheel.trial CORPUS...

A broker in this process and a server in one of its own are produced to, consumed from, killed and started again. Logs
of real brokers are loaded and compacted row by row, and the committed offsets are those that the brokers told.
Commands that need more say what to install.
"""

import contextlib
import io
import json
import re
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import cramjam

from muster import Broker, extras
from muster.cli.main import main as muster
from muster.cli.status import Status
from muster.protocol.apis import ApiKey
from muster.server.groups import loading
from tests.server.raw import Raw, ServerProcess, commit_body, create_topic, fetch_offsets
from tests.server.records.talking import all_values, batch, produce

CORPORA = Path(__file__).parent.parent / "corpus"
LEFT_OUT = sorted({name for names in extras.MODULES.values() for name in names})
LEFT_TO_COMPACT = ("k26-full", "k39-full", "k43-full")
"""Logs that their brokers had not compacted."""
LONGEST_WAIT_S = 60.0
MANY = 5_000
"""Records of a batch: more than are checked one by one where there is compiled code for it."""

NEEDS = {
    ("dump", "."): extras.COLUMNS,
    ("dump", ".", "--summary"): extras.COLUMNS,
    ("table", "--tables", "."): extras.TABLES,
    ("table", "offsets", "--tables", "."): extras.TABLES,
    ("exporter", "-b", "localhost:1"): extras.COLUMNS,
    ("dashboard", "--tables", "."): extras.WEB,
    ("report", "--tables", ".", "--html", "report.html"): extras.WEB,
    ("groups", "list", "-b", "localhost:1"): extras.GROUPS,
    ("groups", "delete", "-g", "g", "-b", "localhost:1"): extras.GROUPS,
    ("pipeline", "run", "--source", ".", "--out", "out"): extras.PIPELINE,
    ("pipeline", "pack"): extras.PIPELINE,
    ("pipeline", "compact", "--tables", "."): extras.TABLES,
    ("pipeline", "migrate", "--tables", "."): extras.TABLES,
}
"""Commands, and what they do not work without."""


def nothing_else_is_installed() -> None:
    there = [name for name in LEFT_OUT if find_spec(name) is not None]
    assert not there, f"this environment is not bare: it has {there}"


def a_broker_for_tests() -> None:
    """Records in and out, commits, the clock, a power cut."""
    with Broker(muster_flush="always") as broker:
        broker.create_topic("orders", partitions=2)
        with Raw((broker.host, broker.port)) as raw:
            assert produce(raw, "orders", 0, batch("two apples", "one pear", codec=4)) == (0, 0)
            assert produce(raw, "orders", 1, batch(*map(str, range(MANY)))) == (0, 0)
            assert all_values(raw, "orders", 0) == ["two apples", "one pear"]
            commit(raw, "shipping", "orders", {0: 2})
        broker.kill_and_restart()
        assert broker.committed("shipping") == {("orders", 0): 2}
        assert [record.value for record in broker.records("orders", 0)] == [b"two apples", b"one pear"]
        with Raw((broker.host, broker.port)) as raw:
            assert len(all_values(raw, "orders", 1)) == MANY
        broker.clock.advance("8 days")
        assert broker.committed("shipping") == {}


def commit(raw: Raw, group: str, topic: str, offsets: dict[int, int]) -> None:
    answer = raw.ask(ApiKey.OFFSET_COMMIT, 8, **commit_body(group, topic, offsets))
    assert all(each["errorCode"] == 0 for each in answer["topics"][0]["partitions"]), answer


def a_server(folder: Path) -> None:
    """`muster serve`: stopped, started again, killed, started again."""
    server = ServerProcess(folder / "data")
    with server:
        create_topic(server.address, "orders", 1)
        for number, end in enumerate((server.stop, server.kill)):
            with Raw(server.address) as raw:
                assert produce(raw, "orders", 0, batch(f"record {number}")) == (0, number)
                commit(raw, "shipping", "orders", {0: number + 1})
            end()
            assert server.process is not None
            assert server.process.stdout is not None
            server.process.stdout.close()
            server.start()
            with Raw(server.address) as raw:
                assert fetch_offsets(raw, "shipping") == (0, {("orders", 0): number + 1})
                assert len(all_values(raw, "orders", 0)) == number + 1
        assert server.stop() == Status.OK


def a_real_log(name: str, folder: Path) -> tuple[int, int]:
    """Bytes of a broker's offsets topic before and after compaction; its commits are what the broker told all along."""
    archive = cramjam.zstd.decompress((CORPORA / name / f"{name}.tar.zst").read_bytes())
    with tarfile.open(fileobj=io.BytesIO(bytes(archive))) as tar:
        tar.extractall(folder, filter="data")
    told = json.loads((CORPORA / name / "expected" / "groups.json").read_text(encoding="utf-8"))
    theirs = {
        group["groupId"]: {partition: commit["offset"] for partition, commit in (group.get("committed") or {}).items()}
        for group in told["groups"]
    }
    settings = {
        "offsets.topic.num.partitions": len(told["offsetsTopicEnd"]),
        "offsets.retention.minutes": 2_000_000_000,
        "log.cleaner.backoff.ms": 20,
        "log.cleaner.min.cleanable.ratio": 0.01,
        "muster.accept.data.loss": True,  # the archives have no __transaction_state, of which checkpoints tell
    }
    before = size_bytes(folder)
    with Broker(data=folder / "logs", settings=settings) as broker:
        for group in theirs:
            assert committed(broker, group) == theirs[group], f"{name}: {group}, as loaded"
        if name in LEFT_TO_COMPACT:
            wait_until_compacted(broker, folder)
        for group in theirs:
            assert committed(broker, group) == theirs[group], f"{name}: {group}, compacted"
    with Broker(data=folder / "logs", settings=settings) as broker:
        for group in theirs:
            assert committed(broker, group) == theirs[group], f"{name}: {group}, loaded again"
    return before, size_bytes(folder)


def wait_until_compacted(broker: Broker, folder: Path) -> None:
    """All partitions; each has segments that are closed and dirty."""
    names = [path.name for path in folder.glob("logs/__consumer_offsets-*")]
    deadline = time.monotonic() + LONGEST_WAIT_S
    while not all(f"{name} compacted in" in broker.log_text for name in names):
        assert time.monotonic() < deadline, broker.log_text
        time.sleep(0.02)


def committed(broker: Broker, group: str) -> dict[str, int]:
    return {f"{topic}-{partition}": offset for (topic, partition), offset in broker.committed(group).items()}


def size_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("logs/__consumer_offsets-*/*.log"))


def commands() -> None:
    """Help is there, and what needs more says so."""
    program = Path(sysconfig.get_path("scripts")) / "muster"
    command = [str(program)] if program.exists() else [sys.executable, "-m", "muster"]
    shown = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True)
    assert " serve " in shown.stdout, shown
    for arguments, extra in NEEDS.items():
        with contextlib.redirect_stderr(io.StringIO()) as said:
            status = muster(arguments)
        sentence = rf"muster: .* needs .*: pip install 'muster\[{extra}\]'\.\n"
        assert (status, bool(re.fullmatch(sentence, said.getvalue()))) == (Status.BAD_INPUT, True), said.getvalue()


@contextlib.contextmanager
def step(words: str) -> Iterator[None]:
    yield
    print(f"ok: {words}", flush=True)


def main(corpora: list[str]) -> None:
    assert min(loading.COLUMNS_FROM_BYTES, loading.ROWS_UP_TO_BYTES) > 0
    loading.COLUMNS_FROM_BYTES = loading.ROWS_UP_TO_BYTES = 0  # as if every log were a large one
    with tempfile.TemporaryDirectory(prefix="muster-trial-") as folder:
        with step("no library is there that belongs to an extra"):
            nothing_else_is_installed()
        with step("a broker for tests: produce, consume, commit, a power cut, eight days"):
            a_broker_for_tests()
        with step("a server: produce, consume, commit, stopped and killed"):
            a_server(Path(folder))
        for name in corpora:
            with step(f"the log {name}, loaded row by row{' and compacted' if name in LEFT_TO_COMPACT else ''}"):
                before, after = a_real_log(name, Path(folder) / name)
                if name in LEFT_TO_COMPACT:
                    assert after < before // 2, f"{before} bytes became {after}"
        with step("commands: help, and what to install for the rest"):
            commands()
    assert not [name for name in LEFT_OUT if sys.modules.get(name) is not None]


if __name__ == "__main__":
    main(sys.argv[1:])
