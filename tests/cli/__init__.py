"""Running commands: in this process for speed, as a process of its own where that matters."""

import io
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from muster.cli.main import main

CORPORA = Path(__file__).parent.parent / "corpus"


def corpus(name: str) -> str:
    return str(CORPORA / name / f"{name}.tar.zst")


class Ran(NamedTuple):
    status: int
    out: str
    err: str


def run(*arguments: str | Path) -> Ran:
    """What a command prints when nobody sits at a terminal."""
    out, err = io.BytesIO(), io.StringIO()
    with io.TextIOWrapper(out, "utf-8", write_through=True) as stdout, redirect_stdout(stdout), redirect_stderr(err):
        status = main([str(argument) for argument in arguments])
        stdout.flush()
        return Ran(status, out.getvalue().decode(), err.getvalue())


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "muster", *map(str, arguments)]


def run_process(*arguments: str | Path, **settings: Any) -> Ran:
    ended = subprocess.run(command(*arguments), capture_output=True, text=True, encoding="utf-8", **settings)
    return Ran(ended.returncode, ended.stdout, ended.stderr)


def plain(text: str) -> str:
    """Without colours."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


def run_on_terminal(*arguments: str | Path, columns: int = 100) -> Ran:
    """The same with stdout and stderr on a terminal of this width; `out` has both, escape codes and all."""
    with _terminal(columns) as (terminal, shown):
        screen = open(terminal, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        with screen, redirect_stdout(screen), redirect_stderr(screen):
            status = main([str(argument) for argument in arguments])
    return Ran(status, shown(), "")


@contextmanager
def _terminal(columns: int) -> Iterator[tuple[int, Callable[[], str]]]:
    """A terminal, to be written to; and what was written, once it is closed."""
    pieces: list[bytes] = []

    def read() -> None:
        with suppress(OSError):  # how a terminal says that the other side is gone
            while piece := os.read(master, 65536):
                pieces.append(piece)

    master, terminal = os.openpty()
    reader = threading.Thread(target=read)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("COLUMNS", str(columns)), ("LINES", "50"), ("TERM", "xterm-256color")):
            patch.setenv(name, value)
        for name in ("NO_COLOR", "CI", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
            patch.delenv(name, raising=False)
        reader.start()
        try:
            yield terminal, lambda: b"".join(pieces).decode().replace("\r\n", "\n")
        finally:
            os.close(terminal)
            reader.join()
            os.close(master)
