"""Running commands: in this process for speed, as a process of its own where that matters."""

import io
import os
import re
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

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
    master, terminal = os.openpty()
    environment = os.environ | {"COLUMNS": str(columns), "LINES": "50", "TERM": "xterm-256color"}
    for name in ("NO_COLOR", "CI", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        environment.pop(name, None)
    process = subprocess.Popen(command(*arguments), stdout=terminal, stderr=terminal, env=environment)
    os.close(terminal)
    pieces = []
    while True:
        try:
            piece = os.read(master, 65536)
        except OSError:  # how a terminal says that the other side is gone
            break
        if not piece:
            break
        pieces.append(piece)
    os.close(master)
    return Ran(process.wait(), b"".join(pieces).decode().replace("\r\n", "\n"), "")
