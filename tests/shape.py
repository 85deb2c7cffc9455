"""`make shape`: the shape of the source in numbers, beside what we want them to be.

Everything is counted from the source as it is; the walk of a JoinGroup is counted while a broker answers one.
"""

import ast
import socket
import struct
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "muster"
ENTRY_POINTS = {
    "muster.__main__",
    "muster.java",
    "muster.pytest_plugin",
    "muster.codec.columns.warm",
    "muster.cli.reference",
    "muster.pipeline.datasource",
    "muster.pipeline.spark.class_archive",
    "muster.pipeline.spark.daemon",
}
"""Started by their names: from a command line, by pytest, by make, by Spark."""
PUBLIC = {"muster.codec", "muster.pipeline.frames"}
"""Documented in docs/python.md and docs/pipeline.md for the programs of others."""

CYCLES, UNREACHED = "import cycles between modules", "modules that only tests import"
INTERPRETERS, LARGEST = "interpreters of layouts", "files in the largest package"
KEPT = (CYCLES, UNREACHED, INTERPRETERS, LARGEST)
"""Lines whose aim was reached, and which a test keeps there."""


class Line(NamedTuple):
    what: str
    value: int
    most: int
    names: tuple[str, ...] = ()

    @property
    def is_reached(self) -> bool:
        return self.value <= self.most


def modules(source: Path = SOURCE) -> dict[str, Path]:
    """Dotted names of all modules, and where they are."""
    found = {}
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def tree_of(path: Path) -> ast.AST:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(tree: ast.AST, known: dict[str, Path]) -> Iterator[str]:
    """The modules of ours that a module imports, at its top or inside a function, by name or as text."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module in known:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            yield from inner & known.keys()
            if inner - known.keys():
                yield node.module
        elif isinstance(node, ast.Constant) and str(node.value) in known and "." in str(node.value):
            yield node.value  # import_module("muster...")
        elif isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
            prefix = str(node.values[0].value)  # import_module(f"muster.package.{name}")
            if prefix.startswith("muster.") and prefix.endswith("."):
                yield from (name for name in known if name.startswith(prefix))


def import_graph(known: dict[str, Path]) -> dict[str, set[str]]:
    return {name: set(imported(tree_of(path), known)) - {name} for name, path in known.items()}


def cycles(graph: dict[str, set[str]]) -> list[tuple[str, ...]]:
    """Modules that import one another, each such knot once."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    knots: list[tuple[str, ...]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(graph[name]):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            place = stack.index(name)
            knot = tuple(sorted(stack[place:]))
            del stack[place:]
            if len(knot) > 1:
                knots.append(knot)

    sys.setrecursionlimit(10_000)
    for name in graph:
        if name not in index:
            visit(name)
    return knots


def interpreters(known: dict[str, Path]) -> tuple[str, ...]:
    """Modules with a table of methods of `Reader` and `Writer` by type: each interprets layouts."""
    found = []
    for name, path in known.items():
        methods: dict[str, set[str]] = {"Reader": set(), "Writer": set()}
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in methods:
                methods[node.value.id].add(node.attr)
        if len(methods["Reader"] & methods["Writer"]) >= 3:
            found.append(name)
    return tuple(found)


def names_in_tests(known: dict[str, Path], asked: Collection[str]) -> set[str]:
    """Those of the modules asked for that tests import. A file that has no part of their names is not parsed."""
    marks = (*(name.rpartition(".")[2] for name in asked), '"muster.', "'muster.")
    found: set[str] = set()
    for path in (ROOT / "tests").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if asked and any(mark in text for mark in marks):
            found |= set(imported(tree_of(path), known))
    return found & set(asked)


def join_request(group_id: str, correlation_id: int) -> bytes:
    """JoinGroup version 3: the last in which a new member has its seat at once."""

    def text(value: str) -> bytes:
        return struct.pack(">h", len(value)) + value.encode()

    body = text(group_id) + struct.pack(">ii", 10_000, 10_000) + text("") + text("consumer")
    metadata = bytes.fromhex("000000000001000174ffffffff")
    body += struct.pack(">i", 1) + text("range") + struct.pack(">i", len(metadata)) + metadata
    frame = struct.pack(">hhi", 11, 3, correlation_id) + text("shape") + body
    return struct.pack(">i", len(frame)) + frame


def walk_of_a_join() -> tuple[str, ...]:
    """The files whose code runs between the bytes of a JoinGroup and the bytes of its answer."""
    from muster import Broker

    seen: set[str] = set()
    is_walking = False

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if is_walking and event == "call":
            seen.add(frame.f_code.co_filename)

    threading.setprofile(profile)
    try:
        with Broker(muster_flush="always") as broker, socket.create_connection((broker.host, broker.port)) as client:
            for number, group_id in enumerate(("first", "measured")):
                is_walking = group_id == "measured"
                client.sendall(join_request(group_id, number))
                answer = b""
                while len(answer) < 4 or len(answer) < 4 + struct.unpack(">i", answer[:4])[0]:
                    answer += client.recv(65_536)
                assert answer[8 + 4 : 8 + 6] == b"\0\0", f"the join was refused: {answer.hex()}"
            is_walking = False
    finally:
        threading.setprofile(None)  # type: ignore[arg-type]
    inside = [Path(name) for name in seen if Path(name).is_relative_to(SOURCE)]
    return tuple(sorted(str(path.relative_to(SOURCE)) for path in inside))


def lines_of_source() -> list[Line]:
    """All that can be counted without a broker."""
    known = modules()
    graph = import_graph(known)
    importers: defaultdict[str, set[str]] = defaultdict(set)
    for name, others in graph.items():
        for other in others:
            importers[other].add(name)
    is_package = {name for name, path in known.items() if path.name == "__init__.py"}
    packages = Counter(str(path.parent.relative_to(SOURCE.parent)) for path in known.values())
    largest, size = packages.most_common(1)[0]
    outside = ENTRY_POINTS | PUBLIC  # they have importers that are not ours to count
    one = sorted(name for name in known.keys() - is_package - outside if len(importers[name]) == 1)
    alone = {name for name in known.keys() - is_package - outside if not importers[name]}
    unreached = sorted(names_in_tests(known, alone))
    return [
        Line("files in src", len(known), 190),
        Line(LARGEST, size, 22, (largest,)),
        Line("modules with one importer", len(one), 50, tuple(one)),
        Line(INTERPRETERS, len(found := interpreters(known)), 1, found),
        Line(UNREACHED, len(unreached), 0, tuple(unreached)),
        Line(CYCLES, len(knots := cycles(graph)), 0, tuple(" <-> ".join(knot) for knot in knots)),
    ]


def lines() -> list[Line]:
    walk = walk_of_a_join()
    return [*lines_of_source(), Line("files on the walk of a JoinGroup", len(walk), 15, walk)]


def main() -> None:
    details = "-v" in sys.argv[1:]
    table = Table("", "now", "aim", "")
    for line in lines():
        table.add_row(
            line.what, str(line.value), f"≤ {line.most}" if line.most else "0", "" if line.is_reached else "not reached"
        )
        if details:
            for name in line.names:
                table.add_row(f"  {name}", "", "", "")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
