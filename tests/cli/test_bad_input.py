"""What is said, and with which exit code, when the input or the options are wrong: a sentence and a next step."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from muster import __version__
from muster.cli.dump import run as running
from muster.cli.reference import WIDTH, help_text
from muster.cli.status import Status
from tests.cli import Ran, corpus, run, run_process
from tests.pipeline.world import unpacked
from tests.segments import batch, write_segment

NOBODY = 65534


def refused(*arguments: str | Path, status: Status = Status.BAD_INPUT) -> str:
    """The one sentence of a command that refuses; nothing else may be printed."""
    ran = run(*arguments)
    assert (ran.status, ran.out) == (status, "")
    assert ran.err.startswith("muster: ")
    assert ran.err.count("\n") == 1
    return ran.err.removeprefix("muster: ").rstrip("\n")


def test_a_path_that_is_not_there() -> None:
    assert refused("dump", "/nowhere/at/all") == (
        "/nowhere/at/all does not exist. Point at a broker's log directory (`log.dirs` in its server.properties), "
        "a partition's directory in it, a .log file, or a .tar.zst/.tar.gz of one."
    )


def test_a_directory_without_segments(tmp_path: Path) -> None:
    assert refused("dump", tmp_path) == (
        f"no segments of __consumer_offsets in {tmp_path}: no `__consumer_offsets-N` directory with a .log file, "
        "and no .log file of its own. A broker keeps them in `log.dirs`."
    )


def test_a_data_directory_that_no_server_has_open(tmp_path: Path) -> None:
    next_step = "Give the directory that `muster serve --data` was given."
    assert (
        refused("partitions", "list", "--data", tmp_path / "nix")
        == f"there is no directory {tmp_path}/nix. {next_step}"
    )
    assert refused("partitions", "list", "--data", tmp_path) == f"no server has {tmp_path} open. {next_step}"
    (tmp_path / "muster-control").write_text(str(tmp_path / "killed"))
    assert refused("partitions", "load", "3", "--data", tmp_path) == f"no server has {tmp_path} open. {next_step}"


def test_a_text_file_and_an_index(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    assert "is not a segment: those are named by twenty digits" in refused("dump", tmp_path / "notes.txt")
    (tmp_path / f"{0:020}.index").write_bytes(bytes(64))
    sentence = refused("dump", tmp_path / f"{0:020}.index")
    assert sentence.endswith("is an offset index, not a log. The records are in 00000000000000000000.log beside it.")


@pytest.mark.parametrize("data", [b"2026-11-16 INFO kafka starts\n" * 50, os.urandom(5000)], ids=["text", "garbage"])
def test_a_log_that_is_none(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(b"\x7f" + data)
    assert "does not look like a Kafka segment" in refused("dump", path)
    assert "does not look like a Kafka segment" in refused("dump", "--summary", path)


def test_garbage_among_good_segments_is_damage(tmp_path: Path) -> None:
    write_segment(tmp_path, b"\x7fgarbage" * 100, 0)
    write_segment(tmp_path, batch(5, 2), 5)
    ran = run("dump", "--json", tmp_path)
    assert ran.status == Status.DAMAGED
    assert len(ran.out.splitlines()) == 2
    assert f"__consumer_offsets-0/{0:020}.log at byte 0: batch 1" in ran.err


@pytest.mark.parametrize("arguments", [["--json"], ["-f", "table"], ["--summary"], ["-f", "text"]], ids=" ".join)
def test_an_empty_segment_is_legal(arguments: list[str], tmp_path: Path) -> None:
    ran = run("dump", write_segment(tmp_path, b""), *arguments)
    assert (ran.status, ran.err) == (Status.OK, "")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody may enter, unlike those of pytest."""
    folder = Path(tempfile.mkdtemp(prefix="muster-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def run_as_nobody(*arguments: str | Path) -> Ran:
    """A command in a child without privileges. It is forked, because such a user may not even read our Python."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.getuid() == 0:
                os.setuid(NOBODY)
            with os.fdopen(writer, "w") as pipe:
                json.dump(run(*arguments), pipe)
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    return Ran(*json.loads(told))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no users and no fork here")
@pytest.mark.parametrize("what", ["directory", "partition", "segment", "the segment itself"])
def test_no_permission(what: str, open_folder: Path) -> None:
    segment = write_segment(open_folder / "logs", batch(0))
    given = segment if what == "the segment itself" else open_folder / "logs"
    locked = {"directory": segment.parent.parent, "partition": segment.parent}.get(what, segment)
    locked.chmod(0)
    ran = run_as_nobody("dump", given)
    locked.chmod(0o755)
    expected = f"muster: no permission to read {locked}. Run as the broker's user, or copy the files first.\n"
    assert ran == Ran(Status.BAD_INPUT, "", expected)


def test_where_output_cannot_go(tmp_path: Path) -> None:
    sentence = refused("dump", corpus("k43-kill"), "-f", "parquet", "-o", tmp_path / "missing" / "x.parquet")
    assert sentence == (
        f"cannot write {tmp_path}/missing/x.parquet: there is no directory {tmp_path}/missing. Create it first."
    )
    assert (
        refused("dump", corpus("k43-kill"), "--json", "-o", tmp_path)
        == f"{tmp_path} is a directory. Name a file in it."
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--format", "parquet"], "parquet is not for terminals and pipes. Name a file with --out"),
        (["--format", "arrow"], "arrow is not for terminals and pipes"),
        (["--format", "table", "--out", "x"], "a table is for reading"),
        (["--format", "xml"], "for '--format' / '-f': 'xml' is not one of 'text'"),
        (["--json", "--format", "text"], "it contradicts --format text"),
        (["--latest", "--format", "text"], "text shows batches"),
        (["--latest"], "text shows batches"),  # text is what a pipe gets
        (["--summary", "--group", "x"], "it is about whole logs"),
        (["--summary", "--latest"], "it is about whole logs"),
        (["--summary", "--limit", "5"], "it is about whole logs"),
        (["--summary", "--format", "parquet"], "not written to files"),
        (["--since", "tomorrow"], "'tomorrow' is not a time"),
        (["--type", "offset-comit"], "Did you mean 'offset-commit'"),
        (["--limit", "-1"], "greater than or equal to 0"),
        (["--colour"], "No such option: --colour"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_options_that_do_not_go_together(arguments: list[str], sentence: str) -> None:
    said = refused("dump", corpus("k43-kill"), *arguments, status=Status.USAGE)
    assert sentence in said
    assert said.endswith("`muster dump --help` shows what there is.")


def test_no_path_at_all_shows_help_and_is_a_mistake() -> None:
    for arguments in ([], ["dump"]):
        ran = run(*arguments)
        assert ran.status == Status.USAGE
        assert "Usage: muster" in ran.out
        assert ran.err == ""


def test_an_unknown_command_names_the_near_one() -> None:
    assert "Did you mean 'dump'?" in refused("dmup", status=Status.USAGE)


def test_a_bug_is_a_sentence_too_and_debug_shows_where(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(request: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(running, "dump_records", fail)
    said = refused("dump", corpus("k43-kill"), status=Status.BUG)
    assert re.fullmatch(
        r"this is a mistake in muster: ZeroDivisionError in cli/dump/command\.py, line \d+: division by zero\. "
        r"Run it again with --debug to see how it came to that\.",
        said,
    )
    for arguments in (["--debug", "dump", "x"], ["dump", "x", "--debug"]):
        ran = run(*arguments)
        assert ran.status == Status.BUG
        assert ran.err.startswith("Traceback")
        assert "in fail" in ran.err
    monkeypatch.setenv("MUSTER_DEBUG", "1")
    assert run("dump", "x").err.startswith("Traceback")


COMMANDS = [
    ("dump",), ("serve",), ("table",), ("groups", "list"), ("groups", "describe"), ("groups", "offsets"),
    ("groups", "members"), ("groups", "state"), ("groups", "reset-offsets"), ("groups", "delete"),
    ("groups", "delete-offsets"), ("partitions", "list"), ("partitions", "load"), ("partitions", "unload"),
    ("pipeline", "run"), ("pipeline", "pack"),
]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_debug_and_an_example_and_no_flag_takes_a_value(command: tuple[str, ...]) -> None:
    told = help_text(*command)
    assert "--debug" in told
    assert "Example" in told
    assert f"muster {' '.join(command)}" in told.partition("Usage:")[2].partition("\n")[2]
    assert "<bool>" not in told


def test_the_version_has_a_short_name() -> None:
    assert run("-V") == run("--version") == Ran(Status.OK, f"muster {__version__}\n", "")


def test_the_version_is_asked_for_before_the_command() -> None:
    assert "`muster --version` shows it" in run("serve", "--version").err


def test_a_taken_port_is_a_sentence_with_who_has_it(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ran = run("serve", "--listen", f"127.0.0.1:{port}", "--data", tmp_path / "d")
    assert ran.status == Status.BAD_INPUT
    assert ran.err.startswith(f"muster: port {port} is taken: "), "there is nothing else to say"
    assert not (tmp_path / "d").exists()
    if sys.platform == "linux":
        assert f"(process {os.getpid()}) listens on it already." in ran.err
    assert "--listen HOST:PORT" in ran.err


@pytest.mark.parametrize("option", ["--listen", "--advertise"])
@pytest.mark.parametrize("address", ["here", "127.0.0.1:99999", "PLAINTEXT://127.0.0.1:9092"])
def test_an_address_that_is_none_is_told_in_the_words_of_its_option(option: str, address: str, tmp_path: Path) -> None:
    ran = run("serve", option, address, "--data", tmp_path / "d")
    assert ran.status == Status.USAGE
    assert f"Invalid value for {option}: '{address}' is not HOST:PORT, like 127.0.0.1:9092" in ran.err
    assert not (tmp_path / "d").exists()


def test_settings_that_cannot_be_read_are_a_sentence(tmp_path: Path) -> None:
    ran = run("serve", "--config", tmp_path / "none", "--data", tmp_path / "d")
    assert ran.status == Status.BAD_INPUT
    assert f"{tmp_path / 'none'} cannot be read: No such file or directory. It should be a file" in ran.err


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_paragraph_of_help_breaks_in_the_middle(command: tuple[str, ...]) -> None:
    """A line ends where the next word has no room, the paragraph does, or an example begins."""
    for line, following in pairwise(help_text(*command).partition("╭")[0].splitlines()):
        if line[1:2].strip() and following[1:2].strip():
            assert len(f"{line} {following.split()[0]}") > WIDTH - 1, line


def test_what_clients_wrote_cannot_command_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "evil\x1b[2J\x9b31m\u202e\nmuster: all is well"
    ran = run("dump", tmp_path / "none", "--group", name, "--type", name)
    assert "\\u001B[2J\\u009B31m\\u202E\\u000Amuster" in ran.err
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", ran.err)
    assert ran.err.count("\n") == 1

    def fail(request: object) -> None:
        raise ZeroDivisionError(name)

    monkeypatch.setattr(running, "dump_records", fail)
    assert not re.search("[\x1b\x9b\u202e]", run("dump", "x", "--debug").err)


@pytest.mark.parametrize("format", ["text", "json", "table", "summary"])
def test_no_output_of_records_carries_escape_sequences(format: str, tmp_path: Path) -> None:
    name = "evil\x1b[2J\x7f\x9b31m\u202egroup"
    log = batch(0, group=name)
    write_segment(tmp_path, log)
    arguments = ["--summary"] if format == "summary" else ["-f", format]
    ran = run("dump", tmp_path, *arguments)
    assert ran.status == Status.OK
    assert "evil" in ran.out
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", ran.out)
    if format == "json":
        (line,) = ran.out.splitlines()
        assert json.loads(line)["key"]["data"]["group"] == name


def test_no_traceback_from_the_real_entry_point(tmp_path: Path) -> None:
    ran = run_process("dump", tmp_path / "missing")
    assert (ran.status, ran.out) == (Status.BAD_INPUT, "")
    assert ran.err.startswith(f"muster: {tmp_path}/missing does not exist.")
    assert "Traceback" in run_process("dump", tmp_path / "missing", "--debug").err


def test_a_segment_that_is_written_while_it_is_dumped(tmp_path: Path) -> None:
    path = write_segment(tmp_path, b"".join(batch(offset) for offset in range(100)))
    stop = threading.Event()

    def write() -> None:
        with path.open("ab", buffering=0) as file:
            for offset in range(100, 20_000):
                data = batch(offset)
                file.write(data[:50])
                file.write(data[50:])
                if stop.is_set():
                    return

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(5):
            ran = run("dump", "--json", path)
            assert (ran.status, ran.err) == (Status.OK, "")
            assert len(ran.out.splitlines()) >= 100
    finally:
        stop.set()
        writer.join()


@pytest.mark.parametrize("closed", [(2,), (0, 1, 2)])
def test_a_command_that_was_started_without_some_of_its_streams(closed: tuple[int, ...], tmp_path: Path) -> None:
    words = " ".join(f"{number}{'<' if number == 0 else '>'}&-" for number in closed)
    output = tmp_path / "rows.parquet"
    script = f'exec "$0" -m muster dump "$1" -f parquet -o "$2" {words}'
    ran = subprocess.run(["sh", "-c", script, sys.executable, unpacked("mini-zstd-43", tmp_path), output], check=False)
    assert ran.returncode == Status.OK
    assert pq.ParquetFile(output).metadata.num_rows > 0


def test_an_address_without_its_scheme_is_no_directory() -> None:
    ran = run("dump", "127.0.0.1:9092")
    assert ran.status == Status.BAD_INPUT
    assert "127.0.0.1:9092 is no directory here. A live cluster is written kafka://HOST:PORT." in ran.err
