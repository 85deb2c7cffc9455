"""The load generator: Go source in bench/coordbench, built when it is first needed."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from bench.dump import CACHE

SOURCE = Path(__file__).parent / "coordbench"
BINARY = CACHE / "coordbench"
LIMIT_S = 600.0

# Figures of one repetition, as the generator prints them; `errors` and the like are not numbers.
Result = dict[str, Any]


class ToolUnavailable(Exception):
    """There is no load generator; the text says what to install."""


class ToolFailed(Exception):
    """The load generator gave up; the text has what it said."""


def tool() -> Path:
    """The generator, built anew when its source is younger than it."""
    newest = max(path.stat().st_mtime for path in SOURCE.iterdir())
    if BINARY.exists() and BINARY.stat().st_mtime >= newest:
        return BINARY
    go = shutil.which("go")
    if go is None:
        raise ToolUnavailable("the load generator is written in Go: install Go 1.26 or newer (the command `go`)")
    BINARY.parent.mkdir(parents=True, exist_ok=True)
    built = subprocess.run(
        [go, "build", "-o", str(BINARY), "."], cwd=SOURCE, capture_output=True, text=True, timeout=600, check=False
    )
    if built.returncode != 0:
        raise ToolUnavailable(f"Go could not build the load generator in {SOURCE}: {built.stderr.strip()[-2000:]}")
    BINARY.touch()  # go leaves an unchanged binary as old as it was
    return BINARY


def command(name: str, **flags: object) -> list[str]:
    """The generator's command line: `create_topic=False` becomes `--create-topic=false`."""
    shown = {
        key.replace("_", "-"): str(value).lower() if value in (True, False) else value for key, value in flags.items()
    }
    return [str(tool()), name, *(f"--{key}={value}" for key, value in shown.items())]


def run(name: str, **flags: object) -> list[Result]:
    """Run the generator to its end: one result for each repetition. A wrong answer from the server is an error."""
    asked = command(name, **flags)
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise ToolFailed(f"{' '.join(asked[1:])} took longer than {LIMIT_S:.0f} s") from None
    if done.returncode != 0:
        raise ToolFailed(f"{' '.join(asked[1:])} ended with {done.returncode}: {done.stderr.strip()[:1000]}")
    results: list[Result] = [json.loads(line) for line in done.stdout.splitlines()]
    for result in results:
        if result.get("errors"):
            raise ToolFailed(f"{' '.join(asked[1:])} was answered with errors (code: times): {result['errors']}")
    return results
