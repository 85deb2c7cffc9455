"""The numbered behaviours, and which tests carry their numbers.

A test says in its name what it tests: `test_073_074_...`, `test_s217_s218_...`, `test_a07_...` (the letter is for the
reader), and `test_192_to_196_...` for all that are between. Numbers have two digits at least.
"""

import ast
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
TESTS = FOLDER.parent
_CARRIED = re.compile(r"test((?:_(?:[as]?\d{2,3}|to))+)_")


@dataclass(frozen=True, slots=True)
class Scenario:
    number: int
    title: str
    section: str
    not_applicable: str = ""
    """Why there is no test; empty where there has to be one."""
    as_in_4: str = ""
    """What the newest Kafka does, where that is not what older ones did."""


def read_scenarios(folder: Path = FOLDER) -> dict[int, Scenario]:
    """All of them by number, in order."""
    exceptions = tomllib.loads((folder / "exceptions.toml").read_text(encoding="utf-8"))
    not_applicable, as_in_4 = exceptions["not_applicable"], exceptions["as_in_4"]
    scenarios: dict[int, Scenario] = {}
    section = ""
    for line in (folder / "titles.txt").read_text(encoding="utf-8").splitlines():
        first, _, title = line.partition(" ")
        if first.isdigit():
            number = int(first)
            scenarios[number] = Scenario(number, title, section, not_applicable.get(first, ""), as_in_4.get(first, ""))
        elif first not in ("", "#"):
            section = line
    unknown = {*not_applicable, *as_in_4} - {str(number) for number in scenarios}
    assert not unknown, f"exceptions.toml names {sorted(unknown)}, which titles.txt does not"
    return scenarios


def numbers_in(name: str, known: dict[int, Scenario]) -> list[int]:
    """The numbers that a test's name carries; those of a range must be known, single ones need not."""
    carried = _CARRIED.match(name)
    if carried is None:
        return []
    numbers: list[int] = []
    words = carried[1].removeprefix("_").split("_")
    for place, word in enumerate(words):
        if word != "to":
            numbers.append(int(word.lstrip("as")))
        elif 0 < place < len(words) - 1:
            last = int(words[place + 1].lstrip("as"))
            numbers.extend(number for number in known if numbers[-1] < number < last)
    return numbers


def names_of_tests(folder: Path = TESTS) -> Iterator[tuple[Path, str]]:
    """Every test function there is, without importing any of them."""
    for path in sorted(folder.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                yield path, node.name
