"""The arrows between modules are those of docs/architecture.md."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "muster"
MODULES = sorted(SOURCE.rglob("*.py"))
IO_MODULES = {"asyncio", "io", "os", "pathlib.Path", "shutil", "socket", "subprocess", "tempfile", "time", "urllib"}
MAY_TOUCH_FILES = {"codec/columns/kernels.py", "codec/columns/warm.py"}


def documented_layers() -> dict[str, set[str]]:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = text.split("## Layers")[1].split("##")[0]
    rows = re.findall(r"^\| `(\w+)` \|([^|]*)\|$", section, re.MULTILINE)
    return {layer: set(re.findall(r"`(\w+)`", below)) for layer, below in rows}


def layer_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module or ""
            yield from (f"{node.module}.{name.name}" for name in node.names)


def test_imports_point_downwards() -> None:
    layers = documented_layers()
    upwards = []
    for path in MODULES:
        layer = layer_of(path)
        if layer in ("__init__", "__main__"):
            continue
        assert layer in layers, f"docs/architecture.md does not name the layer of {path}"
        for name in imports(path):
            parts = name.split(".")
            if parts[0] == "muster" and len(parts) > 1 and parts[1] in layers:
                upwards += [f"{path} imports {name}"] if parts[1] not in layers[layer] | {layer} else []
    assert not upwards


def test_the_codec_has_no_io() -> None:
    for path in sorted((SOURCE / "codec").rglob("*.py")):
        if str(path.relative_to(SOURCE)) in MAY_TOUCH_FILES:
            continue
        names = set(imports(path))
        touched = (names | {name.split(".")[0] for name in names}) & IO_MODULES
        assert not touched, path
        calls = {node.func.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)
                 and isinstance(node.func, ast.Name)}  # fmt: skip
        assert "open" not in calls, path


def test_the_table_has_no_circles() -> None:
    layers = documented_layers()
    seen: set[str] = set()
    while left := [layer for layer in layers if layer not in seen]:
        ready = [layer for layer in left if layers[layer] <= seen]
        assert ready, f"circle among {left}"
        seen.update(ready)
