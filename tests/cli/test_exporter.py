"""`muster exporter` as people run it: a page, sentences for what is wrong, an end when it is told to."""

import re
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import muster
from muster.cli.status import Status
from tests.cli import command, run
from tests.exporter.pages import value
from tests.kit.kafka import free_ports


@contextmanager
def exporting(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process, and the address of its page."""
    process = subprocess.Popen(
        command("exporter", "--listen", "127.0.0.1:0", *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        match = re.fullmatch(r"muster exporter serves (http://127\.0\.0\.1:\d+/metrics); a round every 1s\. .*\n", line)
        assert match, (line, process.communicate()[1] if process.poll() is not None else "")
        yield process, match[1]
    finally:
        process.kill()
        process.communicate()


def page_of(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=20) as answer:
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        return bytes(answer.read())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_page_until_it_is_told_to_stop(number: signal.Signals) -> None:
    with (
        muster.Broker() as broker,
        exporting("-b", broker.bootstrap_servers, "--interval", "1s", "--names", "none") as (process, url),
    ):
        while value(page := page_of(url), "muster_exporter_rounds_total") == 0:
            pass
        assert value(page, "muster_exporter_up") == 1
        with pytest.raises(urllib.error.HTTPError, match="404"):
            page_of(url.replace("/metrics", "/other"))
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
        assert (process.returncode, out, err) == (Status.OK, "", "")


def test_a_cluster_that_cannot_be_reached() -> None:
    (port,) = free_ports(1)
    ran = run("exporter", "-b", f"127.0.0.1:{port}")
    assert ran.status == Status.UNREACHABLE
    assert ran.err.startswith(f"muster: cannot connect to 127.0.0.1:{port}: Connection refused.")
    assert ran.out == ""


def test_a_port_that_is_taken() -> None:
    with muster.Broker() as broker, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ran = run("exporter", "-b", broker.bootstrap_servers, "--listen", f"127.0.0.1:{port}")
    assert ran.status == Status.BAD_INPUT
    sentence = f"muster: cannot listen on 127.0.0.1:{port}: Address already in use. Choose another --listen.\n"
    assert ran.err == sentence


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--interval", "10s"), "--bootstrap-server: name a broker of the cluster, for instance localhost:9092"),
        (("-b", "h:1", "--listen", "here"), "--listen: 'here' is not HOST:PORT, like 127.0.0.1:9308"),
        (("-b", "h:1", "--listen", "h:70000"), "--listen: 'h:70000' is not HOST:PORT"),
        (("-b", "h:1", "--interval", "soon"), "--interval: 'soon' is not a length of time"),
        (("-b", "h:1", "--interval", "0s"), "--interval: rounds are 1s to 1h apart"),
        (
            ("-b", "h:1", "--names", "kafka,none"),
            "--names: 'kafka,none' is not some of kafka, kminion, burrow, or none",
        ),
        (("-b", "h:1", "--names", "lag"), "--names: 'lag' is not some of"),
        (("-b", "h:1", "--most-groups", "0"), "--most-groups"),
    ],
)
def test_options_that_cannot_be_are_refused(arguments: tuple[str, ...], sentence: str) -> None:
    ran = run("exporter", *arguments)
    assert ran.status == Status.USAGE
    assert sentence in ran.err
    assert len(ran.err.splitlines()) == 1
