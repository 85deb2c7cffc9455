"""The examples in the help of questions, run as they stand there."""

import re
import shlex
from pathlib import Path

import pytest

from muster.cli.main import app
from muster.cli.status import Status
from tests.answers.world import publish
from tests.cli import run

NOT_HERE = ("dump", "serve", "table", "exporter", "dashboard", "report")
COMMANDS = {
    name: f"{info.callback.__doc__} {info.epilog}"
    for info in app.registered_commands
    if info.callback is not None
    if (name := info.name or info.callback.__name__.replace("_", "-")) not in NOT_HERE
}
"""The questions."""
EXAMPLES = [
    (name, example) for name, text in COMMANDS.items() for example in re.findall(r"\[cyan\](.*?)\[/cyan\]", text, re.S)
]
DONE = (Status.OK, Status.WARNING, Status.ERROR)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("help")
    publish(folder / "tables")
    return folder


def test_every_question_has_an_example() -> None:
    assert {name for name, _ in EXAMPLES} == set(COMMANDS)


@pytest.mark.parametrize(("name", "example"), EXAMPLES, ids=[example for _, example in EXAMPLES])
def test_an_example_works(name: str, example: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    program, command, *arguments = shlex.split(example.replace("\\\\", "\\"))
    assert (program, command) == ("muster", name)
    arguments = [_known_moment(word) for word in arguments]
    status, out, err = run(command, *arguments)
    assert status in DONE, err
    assert out


def _known_moment(word: str) -> str:
    """The tables of the examples are of a day that is long gone."""
    return "2026-11-17T08:00" if re.fullmatch(r"(yesterday )?\d+:\d\d", word) else word
