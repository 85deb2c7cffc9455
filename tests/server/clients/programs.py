"""The clients of the matrix: what each can do by itself, and how its program is started and told what to do.

A program is a process that reads orders and writes answers, a line of JSON each (python_program.py). All know the
same orders, so that a behaviour is written once, in test_clients.py, and means the same for everybody. What is not in
`cannot` is tested; what is has no way to be asked for in that client, whatever broker it talks to.

    python -m tests.server.clients.programs             the table of docs/clients.md
    python -m tests.server.clients.programs prepare     build the programs ahead of the tests, and say what is missing
"""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from tests.kit.java.compiled import compiled
from tests.kit.kafka import DEFAULT_VERSION, REPOSITORY, cache_root, require_kafka
from tests.server.clients.kcat import Kcat

FOLDER = Path(__file__).parent
PREPARE_TIMEOUT_S = 400
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
EVERYTHING = {
    "members come and go": "two members join and leave; five in `make real`",
    "static member": "a static member comes back to its partitions without a rebalance",
    "commit with metadata": "an offset is committed with metadata, read back, and the next member begins there",
    "seek": "a consumer goes back to the beginning",
    "a member dies": "a member is killed, and another has its partitions",
    "a member stalls": "a member that stalls is removed, and comes back when it goes on",
    "server restart": "an idempotent producer goes on through a restart; each record is there once, in order",
    "groups": "groups are listed and described",
    "alter offsets": "a committed offset is altered",
    "delete offsets": "a committed offset is deleted",
    "delete group": "a group is deleted",
    "delete topic": "a topic is deleted, and what was committed for it",
    "committed transaction": "a transaction is committed; `read_committed` sees it then, `read_uncommitted` before",
    "aborted transaction": "a transaction is aborted; `read_committed` never sees it",
    "fenced producer": "a producer is fenced by its successor, and its transaction aborted",
    "slow transaction": "a transaction that takes longer than its timeout is aborted, and its producer hears so",
    "offsets in a transaction": "offsets sent within a transaction are pending until it ends",
    "exactly once": "consume–process–produce through crashes of the client and of the server: every input once",
}
"""Behaviours beside the codecs and assignors, with what they are."""
KCAT_HAS_NOT = (
    "commit with metadata",
    "seek",
    "groups",
    "alter offsets",
    "delete offsets",
    "delete group",
    "delete topic",
    "committed transaction",
    "aborted transaction",
    "fenced producer",
    "slow transaction",
    "offsets in a transaction",
    "exactly once",
)


class Refused(AssertionError):
    """An order that a client could not carry out."""


class Program:
    """A running program of a client. Orders are its methods by name: `program.ask("join", member="a", ...)`."""

    def __init__(self, command: list[str], bootstrap: str, **more: Any) -> None:
        self._process = subprocess.Popen(
            [*command, bootstrap],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8", cwd=REPOSITORY, **more,
        )  # fmt: skip

    def ask(self, order: str, **about: Any) -> Any:
        self.tell(order, **about)
        return self.hear()

    def tell(self, order: str, **about: Any) -> None:
        assert self._process.stdin is not None
        try:
            print(json.dumps({"do": order, **about}), file=self._process.stdin, flush=True)
        except BrokenPipeError as problem:
            raise Refused(f"the program has ended before it heard of {order}") from problem

    def refusal(self, order: str, **about: Any) -> str:
        """What the client says of an order that it cannot carry out."""
        self.tell(order, **about)
        answer = self._answer()
        assert "error" in answer, f"{order} was carried out: {answer}"
        return str(answer["error"])

    def hear(self) -> Any:
        """`Refused` with what the client said, where it could not carry out the order."""
        answer = self._answer()
        if "error" in answer:
            raise Refused(answer["error"])
        return answer.get("result")

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise Refused("the program has ended; its last words are in what was written to stderr")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """As kill -9: nobody says goodbye. A thread that waits for an answer hears that the program has ended."""
        self._process.kill()
        self._process.wait()


@dataclass(frozen=True, slots=True)
class Client:
    name: str
    version: str
    start: Callable[[str], Program | Kcat]
    codecs: tuple[str, ...]
    assignors: tuple[str, ...]
    cannot: Mapping[str, str] = field(default_factory=dict)
    """Behaviours that the client has not got, with the reason."""
    is_quick: bool = False
    """Tested every day, not only in `make real`."""
    has_poll_interval: bool = True
    """It leaves its group when nobody polls; any other stalls only when its process is stopped."""


def missing(what: str) -> None:
    """Skip, or fail in CI, where `what` says what to install."""
    if os.environ.get("CI") == "true":
        pytest.fail(what, pytrace=False)
    pytest.skip(what)


def _python(module: str) -> Callable[[str], Program]:
    return lambda bootstrap: Program([sys.executable, "-m", f"tests.server.clients.{module}"], bootstrap)


def _java(bootstrap: str) -> Program:
    kafka = require_kafka()
    return Program(kafka.command("Client", classes=(compiled(kafka, "Client", FOLDER),)), bootstrap)


def _franz_go(bootstrap: str) -> Program:
    return Program([str(prepared_franz_go() / "client")], bootstrap)


def prepared_franz_go() -> Path:
    """A folder with the program, built."""
    go = shutil.which("go", path=os.environ.get("PATH", "") + ":/usr/local/go/bin")
    if go is None:
        missing("franz-go needs Go, and there is none here: install it, for instance with your system's package golang")
    return _prepared("franz_go", [str(go), "build", "-o", "client", "."])


def _kafkajs(bootstrap: str) -> Program:
    return Program(["node", str(prepared_kafkajs() / "client.mjs")], bootstrap)


def prepared_kafkajs() -> Path:
    """A folder with its modules."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        missing("KafkaJS needs Node and npm, and they are not here: install your system's packages nodejs and npm")
    return _prepared("kafkajs", [str(npm), "ci"])


def _kcat(bootstrap: str) -> Kcat:
    kcat = shutil.which("kcat")
    if kcat is None:
        missing("kcat is not here: install your system's package kcat")
    return Kcat(str(kcat), bootstrap)


def _prepared(name: str, command: list[str]) -> Path:
    """A copy of the folder `name` in the cache, in which a command was run; once for each state of the sources."""
    sources = sorted(each for each in (FOLDER / name).iterdir() if each.is_file())
    digest = hashlib.sha256(b"".join(each.read_bytes() for each in sources)).hexdigest()[:16]
    copy = cache_root().parent / "clients" / f"{name}-{digest}"
    finished = copy / ".finished"
    if not finished.exists():
        copy.mkdir(parents=True, exist_ok=True)
        for each in sources:
            shutil.copy(each, copy)
        done = subprocess.run(
            command, cwd=copy, capture_output=True, text=True, timeout=PREPARE_TIMEOUT_S, check=False
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        finished.touch()
    return copy


def _pinned(file: str, pattern: str) -> str:
    found = re.search(pattern, (FOLDER / file).read_text(encoding="utf-8"))
    assert found is not None, (file, pattern)
    return found[1]


CLIENTS = {
    client.name: client
    for client in (
        Client(
            "confluent-kafka",
            version("confluent-kafka"),
            _python("confluent_client"),
            CODECS,
            ("range", "roundrobin", "cooperative-sticky"),
            {"delete offsets": "no such call; offsets can be altered"},
            is_quick=True,
        ),
        Client(
            "aiokafka",
            version("aiokafka"),
            _python("aiokafka_client"),
            CODECS,
            ("range", "roundrobin", "sticky"),
            dict.fromkeys(("alter offsets", "delete offsets", "delete group"), "no such call"),
            is_quick=True,
        ),
        Client(
            "kafka-python",
            version("kafka-python"),
            _python("kafka_python_client"),
            ("none", "gzip", "zstd"),  # snappy and lz4 need packages that are not among ours
            ("range", "roundrobin", "sticky", "cooperative-sticky"),
            is_quick=True,
        ),
        Client(
            "Java",
            DEFAULT_VERSION,
            _java,
            CODECS,
            ("range", "roundrobin", "sticky", "cooperative-sticky"),
        ),
        Client(
            "franz-go",
            _pinned("franz_go/go.mod", r"twmb/franz-go v([\d.]+)"),
            _franz_go,
            CODECS,
            ("range", "roundrobin", "sticky", "cooperative-sticky"),
            {"offsets in a transaction": "they are sent with the end of the transaction, in one call"},
            has_poll_interval=False,
        ),
        Client(
            "KafkaJS",
            _pinned("kafkajs/package.json", r'"kafkajs": "([\d.]+)"'),
            _kafkajs,
            ("none", "gzip", "snappy"),  # the last with a plug-in
            ("RoundRobinAssigner",),
            {"static member": "no such setting", "delete offsets": "no such call"},
            has_poll_interval=False,
        ),
        Client(
            "kcat",
            "1.7",  # as the system has it
            _kcat,
            CODECS,
            ("range", "roundrobin", "cooperative-sticky"),
            dict.fromkeys(KCAT_HAS_NOT, "no such command"),
            has_poll_interval=False,
        ),
    )
}


def table() -> str:
    """The table of docs/clients.md: a column for each client."""
    clients = CLIENTS.values()
    rows = [
        ["", *(f"{client.name} {client.version}" for client in clients)],
        ["---", *("---" for _ in clients)],
        ["codecs", *(", ".join(client.codecs) for client in clients)],
        ["assignors", *(", ".join(client.assignors) for client in clients)],
    ]
    for behaviour, meaning in EVERYTHING.items():
        rows.append([meaning, *(_cell(client, behaviour) for client in clients)])
    return "".join("| " + " | ".join(row) + " |\n" for row in rows)


def _cell(client: Client, behaviour: str) -> str:
    reason = client.cannot.get(behaviour)
    return "yes" if reason is None else f"– ({reason})"


def prepare() -> None:
    """Build and bring what the programs need, and say what is missing."""

    def java() -> Path:
        return compiled(require_kafka(), "Client", FOLDER)

    for name, make in (("Java", java), ("franz-go", prepared_franz_go), ("KafkaJS", prepared_kafkajs)):
        try:
            make()
        except (pytest.skip.Exception, pytest.fail.Exception) as problem:
            print(f"  {name}: {problem}")
        else:
            print(f"  {name}: ready")


if __name__ == "__main__":
    if sys.argv[1:] == ["prepare"]:
        prepare()
    else:
        print(table(), end="")
