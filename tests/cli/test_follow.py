"""`--follow` through trouble: what is waited for, what ends it, and what people hear of it."""

import errno
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any

import pytest

from muster.cli import follow
from muster.cli.follow import A_FEW_TIMES, AS_LONG_AS_IT_TAKES, NEVER, Rounds, tries_after
from muster.cli.pipeline import run_pipeline
from muster.cli.status import Status
from muster.errors import (
    BadInput,
    ClusterError,
    ClusterRefused,
    ClusterUnreachable,
    ConfigError,
    LogDamaged,
    MusterError,
    NotThereYet,
    SourceMissing,
    SparkGone,
    Unexpected,
)
from muster.pipeline.job import Request, Summary
from muster.tables.storage.changes import begin_run
from muster.tables.storage.store import TableStore
from tests.cli import run
from tests.cli.test_pipeline import FOLLOW, SHORT_OF_SPARK
from tests.live.fake import HANG_UP, FakeBroker
from tests.pipeline.world import unpacked

WAIT_S = 60


def full_disk() -> BadInput:
    told = BadInput("tables cannot be written: No space left on device.")
    told.__cause__ = OSError(errno.ENOSPC, "No space left on device")
    return told


class Answering(BaseHTTPRequestHandler):
    """In the place of an object store that refuses, or is not well: the real ones do so when they like."""

    status = 503

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


def met_at_a_store(status: int | None) -> BadInput:
    """What a run meets where a store answers so; None: where nobody answers."""
    if status is None:
        return met_at("http://127.0.0.1:9")
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Refusing", (Answering,), {"status": status})) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            return met_at(f"http://127.0.0.1:{server.server_port}")
        finally:
            server.shutdown()


def met_at(address: str) -> BadInput:
    options = {
        "AWS_ENDPOINT_URL": address, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "here", "max_retries": "0",
        "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y",
    }  # fmt: skip
    with pytest.raises(BadInput, match="cannot be read or written") as met, begin_run(TableStore("s3://b/t", options)):
        pass
    return met.value


@pytest.mark.parametrize(
    ("error", "at_first", "later"),
    [
        (ClusterUnreachable("no answer."), AS_LONG_AS_IT_TAKES, AS_LONG_AS_IT_TAKES),
        (NotThereYet("no such topic."), AS_LONG_AS_IT_TAKES, AS_LONG_AS_IT_TAKES),
        (ClusterError("a web server."), NEVER, AS_LONG_AS_IT_TAKES),
        (SourceMissing("x does not exist."), NEVER, AS_LONG_AS_IT_TAKES),
        (FileNotFoundError(2, "No such file", "x"), NEVER, AS_LONG_AS_IT_TAKES),
        (full_disk(), NEVER, AS_LONG_AS_IT_TAKES),
        (ClusterRefused("does not let 'me' in."), NEVER, A_FEW_TIMES),
        (MusterError("Spark could not finish."), NEVER, A_FEW_TIMES),
        (LogDamaged("segments are gone."), NEVER, A_FEW_TIMES),
        (BadInput("another cluster."), NEVER, NEVER),
        (ConfigError("cannot be."), NEVER, NEVER),
        (Unexpected("a mistake."), NEVER, NEVER),
        (SparkGone("Java has ended."), NEVER, NEVER),
    ],
)
def test_what_is_tried_again(error: Exception, at_first: int, later: int) -> None:
    assert (tries_after(error, has_run=False), tries_after(error, has_run=True)) == (at_first, later)


@pytest.mark.parametrize(
    ("status", "later"),
    [(None, AS_LONG_AS_IT_TAKES), (503, AS_LONG_AS_IT_TAKES), (403, A_FEW_TIMES), (401, A_FEW_TIMES)],
)
def test_a_store_is_waited_for_unless_it_refuses(status: int | None, later: int) -> None:
    error = met_at_a_store(status)
    assert (tries_after(error, has_run=False), tries_after(error, has_run=True)) == (NEVER, later)


class Scene:
    """Rounds that go as told, on a clock that only pauses move."""

    def __init__(self, *rounds: Summary | Exception) -> None:
        self._rounds = list(rounds)
        self.now = 0.0
        self.pauses: list[float] = []
        self.shown: list[Summary] = []

    def follow(self) -> None:
        follow.follow(self._run_once, self.shown.append, 30.0, self._sleep, lambda: self.now)

    def _run_once(self) -> Summary:
        self.now += 2
        if not self._rounds:
            raise KeyboardInterrupt
        found = self._rounds.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


def summary(records: int = 0, *notes: str, rebalances: int = 0) -> Summary:
    return Summary(
        "run", "live cluster", None, records, seconds=1.5, notes=list(notes), new_rows={"rebalances": rebalances}
    )


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(follow, "tell", lines.append)
    return lines


def test_an_hour_without_the_cluster_is_two_lines(told: list[str]) -> None:
    away = [ClusterUnreachable("cannot connect to b:9092.") for _ in range(65)]
    scene = Scene(summary(5), *away, summary(7))
    with pytest.raises(KeyboardInterrupt):
        scene.follow()
    assert [each.records for each in scene.shown] == [5, 7]
    assert scene.pauses[0] == 28  # the interval is from beginning to beginning
    assert scene.pauses[1:9] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert told[0] == "cannot connect to b:9092. Trying again until it works; Ctrl-C stops."
    assert told[1].startswith("back after 1 h ")
    assert len(told) == 2


def test_credentials_that_stay_refused_end_it(told: list[str]) -> None:
    refused = [ClusterRefused("does not let 'me' in.") for _ in range(5)]
    scene = Scene(summary(), *refused)
    with pytest.raises(ClusterRefused):
        scene.follow()
    assert scene.pauses[1:] == [1, 2, 4]
    assert told == ["does not let 'me' in. Trying again 3 times."]


def test_a_cluster_that_refuses_for_a_moment_after_it_was_away_does_not_end_it(told: list[str]) -> None:
    away = [ClusterUnreachable("cannot connect to b:9092.") for _ in range(5)]
    refused = [ClusterRefused("does not let 'me' in.") for _ in range(3)]
    scene = Scene(summary(), *away, *refused, summary(7), *refused, ClusterRefused("does not let 'me' in."))
    with pytest.raises(ClusterRefused):
        scene.follow()
    assert [each.records for each in scene.shown] == [0, 7]


def test_a_truncation_is_accepted_by_one_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, told: list[str]) -> None:
    accepted: list[bool] = []
    problems = iter([NotThereYet("another run is under way."), None, NotThereYet("another run is."), None])

    def one_run(runner: Any, request: Request, watch: Any) -> Summary:
        accepted.append(request.accept_truncation)
        if (problem := next(problems, KeyboardInterrupt())) is not None:
            raise problem
        return summary()

    monkeypatch.setattr("muster.pipeline.spark.session.spark_session", lambda *arguments: nullcontext())
    monkeypatch.setattr("muster.cli.pipeline._stop", lambda spark: None)
    monkeypatch.setattr("muster.pipeline.engine.SparkEngine", lambda spark: None)
    monkeypatch.setattr("muster.pipeline.job.run", one_run)
    monkeypatch.setattr(follow.follow, "__defaults__", (lambda seconds: None, lambda: 0.0))
    log = str(unpacked("mini-zstd-43", tmp_path))
    with pytest.raises(KeyboardInterrupt):
        run_pipeline([log], str(tmp_path / "t"), follow="30s", accept_truncation=True, quiet=True)
    assert accepted == [True, True, False, False, False]


def test_what_time_does_not_heal_ends_it_at_once(told: list[str]) -> None:
    scene = Scene(summary(), BadInput("the tables are of another cluster."), summary())
    with pytest.raises(BadInput, match="another cluster"):
        scene.follow()
    assert told == []


def test_a_round_is_one_line_and_a_quiet_one_none(told: list[str]) -> None:
    firsts: list[Summary] = []
    rounds = Rounds(firsts.append)
    for one in (summary(9), summary(), summary(3, "a note."), summary(0, "a note."), summary(1, rebalances=2)):
        rounds.show(one)
    assert [each.records for each in firsts] == [9]
    assert told == ["3 new records, in 1.5 s.", "a note.", "1 new record, 2 rebalances, in 1.5 s."]


@pytest.mark.parametrize("interval", ["0s", "500ms", "abc", "5"])
def test_intervals_that_cannot_be(interval: str, tmp_path: Path) -> None:
    ran = run(*SHORT_OF_SPARK, "--out", tmp_path / "t", "--follow", interval)
    assert ran.status == Status.USAGE
    assert "--follow" in ran.err
    assert len(ran.err.splitlines()) == 1


# The command itself.


class Following:
    """The command in a process of its own: lines as they come, from stdout (JSON) and from stderr."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._out: Queue[str] = Queue()
        self._err: Queue[str] = Queue()
        self.said: list[str] = []
        for stream, lines in ((process.stdout, self._out), (process.stderr, self._err)):
            Thread(target=self._pump, args=(stream, lines), daemon=True).start()

    @staticmethod
    def _pump(stream: Any, lines: "Queue[str]") -> None:
        for line in stream:
            lines.put(line)

    def round(self) -> dict[str, Any]:
        """The next round's summary."""
        found: dict[str, Any] = json.loads(self._next(self._out))
        return found

    def line(self) -> str:
        """The next line for people."""
        return self._next(self._err).removeprefix("muster: ").rstrip()

    def _next(self, lines: "Queue[str]") -> str:
        try:
            return lines.get(timeout=WAIT_S)
        except Empty:
            said = [self._err.get() for _ in range(self._err.qsize())]
            raise AssertionError(f"nothing came; it ended with {self._process.poll()} and said {said}") from None

    def interrupt(self) -> tuple[int, list[str]]:
        """Ctrl-C: the exit code, and what was said that nobody has read yet."""
        self._process.send_signal(signal.SIGINT)
        code = self._process.wait(WAIT_S)
        left = []
        while not left or not left[-1].endswith("interrupted.\n"):
            left.append(self._next(self._err))
        return code, left


@contextmanager
def following(source: str, tables: Path) -> Iterator[Following]:
    arguments = ["pipeline", "run", "--source", source, "--out", str(tables), "--follow", "1s", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-c", FOLLOW, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield Following(process)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def test_a_source_that_is_away_for_a_while(tmp_path: Path) -> None:
    log = unpacked("mini-zstd-43", tmp_path)
    with following(str(log), tmp_path / "tables") as going:
        assert going.round()["records"] > 0
        shutil.move(log, tmp_path / "aside")
        assert str(log) in (line := going.line())  # which is gone before a run, or in the middle of one
        assert line.endswith("Trying again until it works; Ctrl-C stops.")
        shutil.move(tmp_path / "aside", log)
        assert "back after " in going.line()
        going.round()
        code, said = going.interrupt()
    assert (code, said) == (Status.INTERRUPTED, ["muster: interrupted.\n"])


def test_a_source_that_was_never_there_is_a_mistake(tmp_path: Path) -> None:
    ran = run("pipeline", "run", "--source", tmp_path / "nothing", "--out", tmp_path / "t", "--follow", "1s")
    assert (ran.status, len(ran.err.splitlines())) == (Status.BAD_INPUT, 1)


def test_a_cluster_that_is_not_up_yet_is_waited_for(tmp_path: Path) -> None:
    """What it answers when it comes is none of Kafka's answers: that ends it, since nothing has worked yet."""
    answers: list[Any] = [HANG_UP]
    with (
        FakeBroker(lambda *_: answers[-1]) as broker,
        following(f"kafka://127.0.0.1:{broker.port}", tmp_path / "tables") as going,
    ):
        assert "Trying again until it works" in going.line()
        answers.append(b"what nobody understands")
        assert "Is it a Kafka broker?" in going.line()
