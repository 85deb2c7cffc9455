"""The documents against the code they describe."""

import re
from pathlib import Path

from muster.cli.reference import with_reference
from muster.cli.status import Status

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
FOLDERS = (ROOT, ROOT / "src" / "muster", ROOT / "tests", ROOT / "tests" / "server")
"""What files that docs name are looked for in."""


def test_the_command_line_reference_is_up_to_date() -> None:
    text = (DOCS / "cli.md").read_text()
    assert text == with_reference(text), "run: python -m muster.cli.reference docs/cli.md"


def test_every_exit_code_has_a_meaning() -> None:
    text = (DOCS / "cli.md").read_text()
    for status in Status:
        assert f"| {status.value} | {status.name} | {status.meaning} |" in text


ARCHITECTURE = (DOCS / "architecture.md").read_text(encoding="utf-8")


def test_the_files_that_docs_name_are_there() -> None:
    named = {
        (page.name, path)
        for page in DOCS.glob("*.md")
        for path in re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.py)`", page.read_text(encoding="utf-8"))
    }
    assert len(named) > 40
    missing = [name for name in sorted(named) if not any((folder / name[1]).exists() for folder in FOLDERS)]
    assert not missing


def test_what_docs_place_in_a_file_is_defined_there() -> None:
    """`name` (`file.py`) says so."""
    placed = [
        (page.name, name.split(".")[-1], path)
        for page in DOCS.glob("*.md")
        for name, path in re.findall(
            r"`([\w.]+)(?:\([^`]*\))?`\s+\(`((?:[a-z_]+/)+[a-z_]+\.py)`", page.read_text(encoding="utf-8")
        )
    ]
    assert len(placed) > 40
    defines = r"(?m)^\s*(?:(?:async )?def|class) {0}\b|^{0}\b.* = "
    files = {path: _found(path).read_text(encoding="utf-8") for _, _, path in placed}
    assert [each for each in placed if not re.search(defines.format(each[1]), files[each[2]])] == []


def _found(path: str) -> Path:
    """A file as docs name it."""
    return next(folder / path for folder in FOLDERS if (folder / path).exists())


def test_the_methods_that_the_walks_name_are_there() -> None:
    walks = ARCHITECTURE.split("### Kafka's names")[0]
    named = set(re.findall(r"`([A-Z]\w+)\.(\w+)`", walks))
    assert len(named) > 15
    source = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src" / "muster").rglob("*.py"))
    for class_name, method in sorted(named):
        bodies = re.findall(rf"^class {class_name}\b.*?(?=^class |^def |\Z)", source, re.M | re.S)
        is_there = any(re.search(rf"^    (?:async )?def {method}\b", body, re.M) for body in bodies)
        assert is_there, f"{class_name}.{method}"


def test_every_event_of_the_log_is_documented() -> None:
    table = (DOCS / "operating.md").read_text(encoding="utf-8").partition("| event | when |")[2].partition("\n\n")[0]
    source = DOCS.parent / "src" / "muster"
    code = "".join(
        path.read_text(encoding="utf-8") for part in ("server", "cli") for path in (source / part).rglob("*.py")
    )
    events = set(re.findall(r'event="([a-z ]+)"', code))
    assert len(events) > 10
    assert sorted(event for event in events if f"`{event}`" not in table) == []
