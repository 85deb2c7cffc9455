"""Where output goes: standard output, or a file that appears whole or not at all; and what is said on stderr."""

import os
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from muster.cli.people import shown, shown_bytes
from muster.errors import BadInput


class PipeClosed(Exception):
    """The reader of our output has closed it."""


def say(sentence: str) -> None:
    """One line on stderr, whatever is in the names it tells of."""
    print(f"muster: {shown(sentence)}", file=sys.stderr)


def missing_group(group_id: str, known: Collection[str], others: str = "`muster groups list` shows all") -> str:
    """No group has that name; a similar one is offered, and the command that shows which there are."""
    from difflib import get_close_matches

    near = get_close_matches(group_id, known, n=1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    return f"no group called '{group_id}'.{hint} {others} {len(known):,}."


def write_to_stdout(data: bytes) -> None:
    """Write bytes behind whatever text is there already; `PipeClosed` when the reader has gone."""
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        forget_stdout()
        raise PipeClosed from None


def write_lines_to_stdout(lines: bytes) -> None:
    """The same for records: what clients wrote must not reach a terminal as it is."""
    write_to_stdout(shown_bytes(lines))


def forget_stdout() -> None:
    """Point stdout at nothing, or Python complains once more when it flushes at the very end."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A name to write to; what is there becomes `path` at the end, and is removed if anything goes wrong."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    if path.is_dir():
        raise BadInput(f"{path} is a directory. Name a file in it.")
    try:
        draft.open("wb").close()
    except FileNotFoundError:
        raise BadInput(f"cannot write {path}: there is no directory {path.parent}. Create it first.") from None
    except PermissionError:
        raise BadInput(f"cannot write {path}: no permission for {path.parent}. Choose another place.") from None
    try:
        yield draft
        with draft.open("rb") as file:
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
