"""The server's own log: its sentences, what clients may not do to it; and what the server does without being asked."""

import asyncio
import errno
import io
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from muster.core.outcome import Notice, NoticeKind
from muster.core.states import Cause
from muster.log.producers import Producer
from muster.segments.checkpoints import TopicPartition
from muster.server.housekeeping import forget_idle_producers
from muster.server.server import Server
from muster.server.server_log import LONGEST_TEXT, ServerLog, sentence
from muster.server.settings import settings_from
from tests.log.disk.faults import FaultyFiles
from tests.server.shared_disk import SharedFiles

WAIT_S = 20
MOST_LINES = 4_000
"""More than a pipe, a buffer and the lines that may wait hold together, at a thousand characters each."""


@pytest.mark.parametrize(
    ("notice", "words"),
    [
        (Notice(NoticeKind.CREATED, "g"), "created"),
        (Notice(NoticeKind.JOINED, "g", member_id="m"), "member m joined"),
        (Notice(NoticeKind.JOINED, "g", member_id="m", reason="new day"), "member m joined, saying: new day"),
        (Notice(NoticeKind.REPLACED, "g", member_id="m"), "a static member restarted as m"),
        (Notice(NoticeKind.LEFT, "g", member_id="m", reason="bye"), "member m left, saying: bye"),
        (Notice(NoticeKind.EXPIRED, "g", Cause.SESSION_EXPIRED, "m"), "member m was removed (session expired)"),
        (
            Notice(NoticeKind.REBALANCING, "g", Cause.MEMBER_LEFT, generation=4),
            "rebalances from generation 4 (member left)",
        ),
        (
            Notice(NoticeKind.STABLE, "g", Cause.MEMBER_JOINED, generation=5, size=1, duration_ms=30),
            "rebalanced in 30 ms to generation 5 with 1 member (member joined)",
        ),
        (Notice(NoticeKind.EMPTY, "g", generation=6), "empty since generation 6"),
        (Notice(NoticeKind.OFFSETS_EXPIRED, "g", Cause.RETENTION, size=1), "1 offset expired (retention passed)"),
        (Notice(NoticeKind.OFFSETS_DELETED, "g", Cause.TOPIC_DELETED, size=3), "3 offsets deleted (topic deleted)"),
        (Notice(NoticeKind.REMOVED, "g", Cause.GROUP_DELETED), "removed (group deleted)"),
        (
            Notice(NoticeKind.MIXED_COMMITS, "g"),
            "commits both in transactions and without; offsets will jump between the two",
        ),
    ],
    ids=lambda value: value.kind.value if isinstance(value, Notice) else "",
)
def test_sentences(notice: Notice, words: str) -> None:
    assert sentence(notice) == words


def test_there_is_a_sentence_for_everything() -> None:
    for what in NoticeKind:
        assert sentence(Notice(what, "g", Cause.MEMBER_LEFT, "m", "because", 1, 2, 3))


def test_text_and_json_say_the_same() -> None:
    notice = Notice(NoticeKind.STABLE, "g", Cause.MEMBER_LEFT, generation=5, size=2, duration_ms=30)
    text, data = io.StringIO(), io.StringIO()
    for server_log in (ServerLog(text, wall=lambda: 1_000.25), ServerLog(data, as_json=True, wall=lambda: 1_000.25)):
        server_log.group(3, notice)
        assert server_log.close(WAIT_S)
    words = "group g: rebalanced in 30 ms to generation 5 with 2 members (member left)"
    assert text.getvalue()[8:] == f".250 {words}\n"
    assert json.loads(data.getvalue()) == {
        "time_ms": 1_000_250, "text": words, "event": "stable", "group": "g", "partition": 3, "cause": "member left",
        "generation": 5, "size": 2, "duration_ms": 30,
    }  # fmt: skip


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize(
    "name", ["a\nb", "a\r\x1b[31mb", "a\u2028b", "a\udcffb", "a\x7fb", "a\x9bb", "\x00", "é漢"], ids=ascii
)
def test_a_name_cannot_forge_a_line(name: str, as_json: bool) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), "utf-8")
    server_log = ServerLog(stream, as_json=as_json)
    server_log.group(0, Notice(NoticeKind.JOINED, name, member_id=name, reason=name))
    assert server_log.close(WAIT_S)
    stream.seek(0)
    (line,) = stream.read().splitlines()
    assert server_log.lost_lines == 0
    assert line.isprintable()
    assert ("é漢" in line) == (name == "é漢" and not as_json)


def test_a_long_name_is_cut() -> None:
    stream = io.StringIO()
    server_log = ServerLog(stream)
    server_log.group(0, Notice(NoticeKind.CREATED, "g" * 30_000))
    assert server_log.close(WAIT_S)
    assert LONGEST_TEXT < len(stream.getvalue()) < LONGEST_TEXT + 100
    assert "(30015 characters)" in stream.getvalue()


@pytest.mark.parametrize("letter", ["g", "\x01", "\U0001f600"], ids=ascii)
@pytest.mark.parametrize("as_json", [False, True])
def test_a_line_is_short_whatever_a_client_says(letter: str, as_json: bool) -> None:
    stream = io.StringIO()
    server_log = ServerLog(stream, as_json=as_json)
    long = letter * 1_000_000
    server_log.group(0, Notice(NoticeKind.LEFT, long, member_id=long, reason=long))
    assert server_log.close(WAIT_S)
    line = stream.getvalue()
    assert len(line) <= 8_001
    if as_json:
        fields = json.loads(line)
        assert fields["event"] == "left"
        for name in ("text", "group", "member", "reason"):
            assert fields[name].endswith(" characters)"), name
            assert len(fields[name]) < 10_000


def test_with_debug_it_says_where_an_error_came_from() -> None:
    plain, debug = io.StringIO(), io.StringIO()
    try:
        raise KeyError("nobody")
    except KeyError as error:
        for server_log in (ServerLog(plain), ServerLog(debug, debug=True)):
            server_log.traceback(error)
            assert server_log.close(WAIT_S)
    assert plain.getvalue() == ""
    assert "test_server_log.py" in debug.getvalue()
    assert all(line[2] == ":" for line in debug.getvalue().splitlines()), "every line has its time"


class Broken(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError(errno.EPIPE, "nobody reads")


def test_a_log_that_nobody_reads_harms_nobody() -> None:
    closed = io.StringIO()
    closed.close()
    for stream in (Broken(), closed):
        server_log = ServerLog(stream)
        server_log.say("lost")
        server_log.group(0, Notice(NoticeKind.CREATED, "g"))
        assert server_log.close(WAIT_S)
        assert server_log.lost_lines == 2


class FullDisk:
    """Fails while it is full."""

    def __init__(self) -> None:
        self.is_full = True
        self.text = ""

    def write(self, text: str) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, "no space left on device")
        self.text += text

    def flush(self) -> None:
        pass


def test_lines_that_could_not_be_written_are_counted_where_they_are_missing() -> None:
    disk: Any = FullDisk()
    server_log = ServerLog(disk)
    for number in range(3):
        server_log.say(f"lost {number}")
    assert server_log.close(WAIT_S)
    disk.is_full = False
    server_log.say("there is room again")
    assert server_log.close(WAIT_S)
    assert [line[13:] for line in disk.text.splitlines()] == [
        "3 lines were lost here: the log could not be written", "there is room again",
    ]  # fmt: skip
    assert server_log.lost_lines == 3


def test_a_pipe_that_nobody_reads_stops_nobody_and_the_lines_that_got_lost_are_counted() -> None:
    """Whoever reads it sleeps, and later goes on reading."""
    reading, writing = os.pipe()
    with open(writing, "w") as pipe, open(reading) as reader:
        server_log = ServerLog(pipe, as_json=True)

        def say_a_lot() -> None:
            for number in range(MOST_LINES):
                server_log.say("x" * 1_000, event="said", number=number)

        speaker = threading.Thread(target=say_a_lot, daemon=True)
        speaker.start()
        speaker.join(WAIT_S)
        assert not speaker.is_alive(), "it waits for whoever reads"
        assert server_log.lost_lines > 0
        assert not server_log.close(0.01)
        gaps: list[int] = []
        expected = 0
        while expected < MOST_LINES:
            line = json.loads(reader.readline())
            if line["event"] == "lines lost":
                gaps.append(line["lines"])
                expected += line["lines"]
            else:
                assert line["number"] == expected, "a line is missing and nothing says so"
                expected += 1
        assert expected == MOST_LINES
        assert sum(gaps) == server_log.lost_lines
        assert len(gaps) <= 2, "lines that follow one another are lost: few gaps, not many"
        server_log.say("flows again")
        assert json.loads(reader.readline())["text"] == "flows again"
        assert server_log.close(WAIT_S)


def test_the_thread_of_a_log_ends_with_it_and_another_line_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "log"
    others = set(threading.enumerate())  # of logs that other tests have not closed
    with path.open("w") as stream:
        server_log = ServerLog(stream)
        for number in range(50):
            server_log.say(f"line {number}")
            assert server_log.close(WAIT_S)
    deadline = time.monotonic() + WAIT_S
    while "muster-log" in [thread.name for thread in set(threading.enumerate()) - others]:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert [line[13:] for line in path.read_text().splitlines()] == [f"line {number}" for number in range(50)]


# NoticeKind the server does without being asked.


def on_a_disk(data: Path, story: str) -> str:
    """Run a server on a disk in memory and let something happen; what it said."""
    data.mkdir()
    said, files = io.StringIO(), SharedFiles(data)
    server_log = ServerLog(said)
    settings = settings_from({"listeners": "PLAINTEXT://127.0.0.1:0", "offsets.topic.num.partitions": "2"})

    async def run() -> None:
        server = Server(data, settings.groups, settings.broker, server_log, files)
        await server.start()
        try:
            await STORIES[story](server, files)
        finally:
            files.fail = lambda operation, path: None
            await server.stop()

    asyncio.run(run())
    assert server_log.close(WAIT_S)
    return said.getvalue()


async def _a_snapshot_fails(server: Server, files: FaultyFiles) -> None:
    log = server.parts.directory.logs[TopicPartition("__consumer_offsets", 0)]
    log.append([(b"\0\x01x", None)], 1)
    files.fail = lambda operation, path: errno.EIO if path.name.endswith(".snapshot") else None
    server.parts.checkpoints.begin()
    async with asyncio.timeout(30):
        while server.parts.checkpoints.is_under_way:
            await asyncio.sleep(0.02)
    server.parts.leadership.give_up_failed_logs()
    assert server.parts.led_partitions.by_number[0].coordinator is not None, "a log does without a snapshot"


async def _a_checkpoint_fails(server: Server, files: FaultyFiles) -> None:
    log = server.parts.directory.logs[TopicPartition("__consumer_offsets", 0)]
    log.append([(b"\0\x01x", None)], 1)
    files.fail = lambda operation, path: errno.EIO if operation == "sync" and path.name.endswith(".log") else None
    server.parts.checkpoints.begin()
    async with asyncio.timeout(30):
        while log.failure is None:
            await asyncio.sleep(0.02)
    files.fail = lambda operation, path: None
    server.parts.leadership.give_up_failed_logs()
    assert server.parts.led_partitions.by_number[0].coordinator is None, "nobody is served from a log that failed"
    async with asyncio.timeout(30):
        while server.parts.led_partitions.by_number[0].coordinator is None:
            await asyncio.sleep(0.02)
    assert (
        server.parts.directory.logs[TopicPartition("__consumer_offsets", 0)]
        is server.parts.led_partitions.by_number[0].log
    )
    assert server.parts.led_partitions.by_number[0].log is not log
    assert server.parts.led_partitions.by_number[0].log.failure is None


async def _producers_fall_silent(server: Server, files: FaultyFiles) -> None:
    states = server.parts.directory.logs[TopicPartition("__consumer_offsets", 1)].producers
    now_ms = server.parts.led_partitions.now().wall_ms
    states.producers[7] = Producer(7, 0, last_timestamp_ms=now_ms - server._config.producer_id_expiration_ms - 1)
    states.producers[8] = Producer(8, 0, last_timestamp_ms=now_ms)
    forget_idle_producers(server.parts.directory, server._config, server.parts.clock)
    assert list(states.producers) == [8]


STORIES = {
    "a snapshot fails": _a_snapshot_fails,
    "a checkpoint fails": _a_checkpoint_fails,
    "producers fall silent": _producers_fall_silent,
}


def test_a_snapshot_that_fails_is_told(tmp_path: Path) -> None:
    said = on_a_disk(tmp_path / "data", "a snapshot fails")
    assert said.count("__consumer_offsets-0: a snapshot could not be written") == 1
    assert "It is read again." not in said


def test_a_log_that_fails_under_a_checkpoint_is_opened_anew(tmp_path: Path) -> None:
    said = on_a_disk(tmp_path / "data", "a checkpoint fails")
    assert said.count("partition 0: a sync failed") == 1, said
    assert "It is read again." in said


def test_silent_producers_are_forgotten(tmp_path: Path) -> None:
    on_a_disk(tmp_path / "data", "producers fall silent")
