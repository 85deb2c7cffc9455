"""The command `muster`: its subcommands, and exceptions as sentences with exit codes."""

import errno
import os
import re
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

import muster
from muster import __version__
from muster.cli.dump.command import dump
from muster.cli.exporter import EPILOG as EXPORTER_EPILOG
from muster.cli.exporter import exporter
from muster.cli.groups.commands import app as groups
from muster.cli.options import DEBUG, wants_traceback
from muster.cli.output import PipeClosed, forget_stdout, say
from muster.cli.pages import DASHBOARD_EPILOG, REPORT_EPILOG, dashboard, report
from muster.cli.people import shown_lines
from muster.cli.pipeline import app as pipeline
from muster.cli.questions.commands import app as questions
from muster.cli.serve import EPILOG as SERVE_EPILOG
from muster.cli.serve import partitions, serve
from muster.cli.status import Status
from muster.cli.tables.command import EPILOG as TABLE_EPILOG
from muster.cli.tables.command import table
from muster.errors import ClusterRefused, ClusterUnreachable, DataLost, MusterError, Unexpected
from muster.extras import extra_with

HELP_NAMES = ["-h", "--help"]
ABOUT = "A Kafka broker in one process, and any cluster's [bold]__consumer_offsets[/bold]: read it, serve it, ask it."

app = typer.Typer(
    name="muster",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": HELP_NAMES},
)
app.command(no_args_is_help=True)(dump)
app.command(epilog=SERVE_EPILOG)(serve)
app.registered_commands += questions.registered_commands
app.command(epilog=TABLE_EPILOG)(table)
app.command(epilog=EXPORTER_EPILOG, no_args_is_help=True)(exporter)
app.command(epilog=DASHBOARD_EPILOG, no_args_is_help=True)(dashboard)
app.command(epilog=REPORT_EPILOG, no_args_is_help=True)(report)
app.add_typer(groups)
app.add_typer(partitions)
app.add_typer(pipeline)

_BREAK_WITHIN_A_PARAGRAPH = re.compile(r"^(\S.*)\n(?=\S)", re.MULTILINE)
"""Lines that begin with a space are examples, and stay lines."""

# Typer has no public name for the base of what it raises when options are wrong.
UsageError: type[Exception] = typer.BadParameter.__bases__[0]


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"muster {__version__}")
        raise typer.Exit


@app.callback(help=ABOUT)
def top(
    version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", metavar="", callback=_show_version, is_eager=True, help="Show the version and leave."
        ),
    ] = False,
    debug: Annotated[bool, DEBUG] = False,
) -> None:
    """What is true of all commands; `ABOUT` is its help."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    _open_streams()
    try:
        status = _command()(arguments, prog_name="muster", standalone_mode=False)
        sys.stdout.flush()
    except PipeClosed:
        return Status.OK
    except (BrokenPipeError, SystemExit) as error:
        if not _is_pipe_closed(error):
            raise
        forget_stdout()
        return Status.OK
    except (Exception, KeyboardInterrupt) as error:
        if wants_traceback("--debug" in arguments) and not isinstance(error, KeyboardInterrupt):
            sys.stderr.write(shown_lines(traceback.format_exc()))
        status, sentence = _as_sentence(error)
        if sentence:
            say(sentence)
        return status
    if status == Status.INTERRUPTED:  # typer's way to hand on a KeyboardInterrupt
        say("interrupted.")
    return Status(status or Status.OK)


def _open_streams() -> None:
    """A shell can start a command without some of them (`2>&-`); files must not get their numbers."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # which takes the lowest number that is free
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


def _is_pipe_closed(error: BaseException) -> bool:
    """Whether the reader of our output has gone; rich, which writes help, makes a SystemExit of that."""
    return isinstance(error, BrokenPipeError) or isinstance(error.__context__, BrokenPipeError)


def _command() -> Any:
    """The commands. Help shows flags as what they are; typer would write `<bool>` behind them, as if they took one.

    Paragraphs of help are as wide as the terminal; typer would break all but the first where the docstring does.
    """
    command = typer.main.get_command(app)
    waiting: list[Any] = [command]
    while waiting:
        one = waiting.pop()
        waiting += getattr(one, "commands", {}).values()
        one.help = _BREAK_WITHIN_A_PARAGRAPH.sub(r"\1 ", one.help or "")
        help_option = one.get_help_option(one.context_class(one, help_option_names=HELP_NAMES))
        for parameter in (*one.params, help_option):
            if getattr(parameter, "is_flag", False):
                parameter.metavar = ""
    return command


def _as_sentence(error: BaseException) -> tuple[Status, str]:
    """What an exception means to the person at the keyboard. What is not known here is a mistake of ours."""
    if isinstance(error, KeyboardInterrupt):
        return Status.INTERRUPTED, "interrupted."
    if isinstance(error, UsageError):
        return Status.USAGE, _usage_sentence(error)
    if isinstance(error, ClusterUnreachable):
        return Status.UNREACHABLE, str(error)
    if isinstance(error, ClusterRefused):
        return Status.REFUSED, str(error)
    if isinstance(error, DataLost):
        return Status.DAMAGED, str(error)
    if isinstance(error, Unexpected):
        return Status.BUG, _bug_sentence(str(error))
    if isinstance(error, MusterError):
        return Status.BAD_INPUT, str(error)
    if isinstance(error, ModuleNotFoundError) and (extra := extra_with(error.name)):
        library = str(error.name).partition(".")[0]
        return Status.BAD_INPUT, f"this needs {library}, which is not installed: pip install 'muster[{extra}]'."
    if isinstance(error, PermissionError):
        return Status.BAD_INPUT, (
            f"no permission for {error.filename}. Run as a user who has it, or name another place."
        )
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return Status.BAD_INPUT, "no space left on the disk. Nothing was kept of the output."
    if isinstance(error, OSError) and error.filename:
        return Status.BAD_INPUT, f"{error.filename}: {error.strerror}."
    return Status.BUG, _bug_sentence(f"{type(error).__name__}{_place(error)}: {error}")


def _bug_sentence(what: str) -> str:
    return f"this is a mistake in muster: {what.rstrip('.')}. Run it again with --debug to see how it came to that."


def _place(error: BaseException) -> str:
    """Where in muster it happened: the innermost of our own lines."""
    home = Path(muster.__file__).parent
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if Path(frame.filename).is_relative_to(home)]
    return f" in {Path(ours[-1].filename).relative_to(home)}, line {ours[-1].lineno}" if ours else ""


def _usage_sentence(error: Exception) -> str:
    text = getattr(error, "format_message", lambda: str(error))().strip().rstrip(".").replace("Value error, ", "")
    if not text:  # nothing was asked, and help has been shown
        return ""
    if "--version" in text:
        return "the version is not of a command: `muster --version` shows it."
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "muster"
    return f"{text}{'' if text.endswith('?') else '.'} `{command} --help` shows what there is."
