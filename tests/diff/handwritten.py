"""The scripts that somebody thought of, kept as text beside this file."""

from pathlib import Path

from tests.diff.script import Script, parse

FOLDER = Path(__file__).with_name("scripts") / "handwritten"


def handwritten() -> list[Script]:
    """All of them, in the order of the files."""
    return [each for path in sorted(FOLDER.glob("*.txt")) for each in parse(path.read_text(encoding="utf-8"))]
