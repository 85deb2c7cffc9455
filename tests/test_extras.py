"""What is not installed is named with what brings it, and the table of extras is that of pyproject.toml."""

import re
import sys
import tomllib
from pathlib import Path

import pytest

from muster import extras
from muster.cli.main import main
from muster.cli.status import Status
from tests.wheel.trial import NEEDS

PYPROJECT = Path(__file__).parent.parent / "pyproject.toml"
OTHER_NAMES = {"confluent-kafka": "confluent_kafka"}


def declared(extra: str) -> set[str]:
    """The modules that an extra of pyproject.toml brings, those of the extras that it names among them."""
    found: set[str] = set()
    for line in tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"][extra]:
        others = re.fullmatch(r"muster\[(.*)\]", line)
        name = re.split(r"[<>=;\[ ]", line)[0]
        found |= {OTHER_NAMES.get(name, name)} if others is None else set().union(*map(declared, others[1].split(",")))
    return found


@pytest.mark.parametrize("extra", extras.MODULES)
def test_extras_are_those_of_pyproject(extra: str) -> None:
    assert declared(extra) == set(extras.MODULES[extra])


WITHOUT = [
    (command, extra, module)
    for command, extra in NEEDS.items()
    for module in extras.MODULES[extra]
    if module not in extras.RARELY_NEEDED
]


@pytest.mark.parametrize(
    ("command", "extra", "module"), WITHOUT, ids=[f"{' '.join(one)}, {two}" for one, _, two in WITHOUT]
)
def test_a_command_without_its_extra_says_what_to_install(
    command: tuple[str, ...],
    extra: str,
    module: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    assert main(command) == Status.BAD_INPUT
    sentence = rf"muster: .* needs {module}: pip install 'muster\[{extra}\]'\."
    assert re.fullmatch(sentence, capsys.readouterr().err.strip())


def test_what_is_needed_only_on_the_way_is_told_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def log_in(*_: object) -> None:
        import cryptography.hazmat  # noqa: F401

    monkeypatch.setitem(sys.modules, "cryptography", None)
    monkeypatch.setattr("muster.cli.groups.connect._opened", log_in)
    assert main(["groups", "list", "-b", "localhost:1"]) == Status.BAD_INPUT
    told = capsys.readouterr().err
    assert told == "muster: this needs cryptography, which is not installed: pip install 'muster[groups]'.\n"


def test_a_module_that_no_extra_brings_is_a_mistake_of_ours(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "muster.cli.groups.look", None)
    assert main(["groups", "list", "-b", "localhost:1"]) == Status.BUG
    assert "this is a mistake in muster" in capsys.readouterr().err
