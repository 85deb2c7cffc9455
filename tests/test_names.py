"""Names that tests, benchmarks and examples take from other files are there. Many of them run rarely, and types of the
source alone are checked.

By words alone, which is quick: a name is there if the file that should have it has that word.
"""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDERS = ("src", "tests", "bench", "examples")
IMPORT = re.compile(r"^[ \t]*from ([\w.]+) import (?:\(([^)]*)\)|([^\n#]+))", re.MULTILINE)
ALIASED = re.compile(r"^[ \t]*import ([\w.]+) as (\w+)", re.MULTILINE)
ATTRIBUTE = re.compile(r"(?<![\w.\"'])([a-z_]\w*)\.([A-Za-z]\w*)")


@cache
def modules() -> dict[str, str]:
    """The text of all files of ours, by their dotted names."""
    found = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / "src" if folder == "src" else ROOT).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[name] = path.read_text(encoding="utf-8")
    return found


@cache
def words_of(module: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", modules()[module]))


def missing(module: str) -> Iterator[str]:
    """What a module takes from others of ours that do not have it: by import, or as an attribute."""
    text = modules()[module]
    aliases = {alias: name for name, alias in ALIASED.findall(text) if name in modules()}
    for source, several, one in IMPORT.findall(text):
        if source not in modules():
            continue
        for name, alias in re.findall(r"(\w+)(?: as (\w+))?", re.sub(r"#.*", "", several or one)):
            if f"{source}.{name}" in modules():
                aliases[alias or name] = f"{source}.{name}"
            elif name not in words_of(source) and not name.startswith("__"):
                yield f"{module} imports {name} from {source}"
    for alias, attribute in set(ATTRIBUTE.findall(text)):
        source = aliases.get(alias, "")
        has_it = not source or attribute in words_of(source) or f"{source}.{attribute}" in modules()
        if not has_it and not re.search(rf"\b{alias}(?::| =|,.* =| in )", text):  # a variable of the same name
            yield f"{module} names {source}.{attribute}"


def test_names_that_are_taken_from_other_files_are_there() -> None:
    rarely = [module for module in modules() if not module.startswith("muster")]
    assert len(rarely) > 400
    assert [each for module in rarely for each in missing(module)] == []
