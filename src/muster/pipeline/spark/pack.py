"""The archive for workers: muster and the libraries its tasks import, for machines that have Spark and Python alone.

Spark unpacks the archive on every machine, beside the directory in which a worker's Python starts. In it is a
`bin/python` that finds the machine's own Python of the right version and puts the archive on its path: one setting
names it, and it is the same setting everywhere. Compiled kernels travel too (`codec.columns.kernels`).

A machine without the archive, or without that Python, fails inside Spark with a traceback: `worker_trouble` knows it.
"""

import io
import re
import sys
import tarfile
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import muster
from muster.errors import BadInput

ROOTS = ("numba", "pyarrow", "pandas", "duckdb", "deltalake", "cramjam", "crc32c", "cryptography")
LEFT_OUT = re.compile(
    r"(^|/)(tests|__pycache__)/|^[^/]+\.dist-info/(licenses/|RECORD$)"
    r"|^pyarrow/(include/|src/|(libarrow_(python_)?|_)flight)"
)
"""A third of all files, which no task imports."""
FOLDER = "muster-workers"
"""The name under which Spark unpacks the archive, in the directory a worker's Python starts in."""
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
STARTER = f"""\
#!/bin/sh
# Python {PYTHON} of this machine, with muster and its libraries on its path.
folder=$(cd "$(dirname "$0")/.." && pwd)
export PYTHONPATH="$folder${{PYTHONPATH:+:$PYTHONPATH}}"
for name in python{PYTHON} python3 python; do
  if "$name" -c 'import sys; sys.exit(sys.version_info[:2] != {sys.version_info[:2]})' 2>/dev/null; then
    exec "$name" "$@"
  fi
done
echo "muster: no Python {PYTHON} on the PATH of this worker ($(hostname)): $PATH" >&2
exit 1
"""


def spark_conf(archive: str) -> dict[str, str]:
    """Settings that make a cluster use the archive, whatever kind it is."""
    return {"spark.archives": f"{archive}#{FOLDER}", "spark.pyspark.python": f"./{FOLDER}/bin/python"}


def ways(archive: str) -> dict[str, str]:
    """For each kind of cluster what to write, as a person pastes it."""
    uploaded = f"s3a://BUCKET/{Path(archive).name}"  # pods have no disk in common with this machine
    image = "--conf spark.kubernetes.container.image=IMAGE --conf spark.driver.host=ADDRESS"
    return {
        "standalone": _command("spark://HOST:7077", archive),
        "yarn": _command("yarn", archive),
        "kubernetes": _command("k8s://https://HOST:6443", uploaded, image),
        "connect": _command("sc://HOST:15002", archive),
    }


def _command(master: str, archive: str, *more: str) -> str:
    settings = [f"--conf {name}={value}" for name, value in spark_conf(archive).items()]
    lines = [f"muster pipeline run --master {master}", *more, *settings, "--source SOURCE --out TABLES"]
    return " \\\n  ".join(lines)


def pack(target: Path) -> int:
    """Write the archive; how many files it has."""
    count = 0
    draft = target.with_name(target.name + ".part")
    try:
        with tarfile.open(draft, "w:gz", compresslevel=1) as tar:
            starter = tarfile.TarInfo("bin/python")
            starter.size, starter.mode = len(STARTER), 0o755
            tar.addfile(starter, io.BytesIO(STARTER.encode()))
            count += 1
            for path, name in _files():
                tar.add(path, arcname=name, recursive=False)
                count += 1
        draft.replace(target)
    except OSError as error:
        raise BadInput(f"{target} cannot be written: {error.strerror}.") from None
    finally:
        draft.unlink(missing_ok=True)
    return count


def _files() -> Iterator[tuple[Path, str]]:
    package = Path(muster.__file__).parent
    for path in sorted(package.rglob("*")):
        name = f"muster/{path.relative_to(package)}"
        if path.is_file() and not LEFT_OUT.search(name):
            yield path, name
    yield from _kernels()
    for one in _distributions(ROOTS):
        for file in one.files or ():
            path = Path(str(one.locate_file(file)))
            if ".." not in file.parts and not LEFT_OUT.search(str(file)) and path.is_file():
                yield path, str(file)


def _kernels() -> Iterator[tuple[Path, str]]:
    """What this machine compiled, where `codec.columns.kernels` looks for it first."""
    from muster.codec.columns import kernels, warm

    warm.compile_all()
    for path in sorted(kernels.FOLDER.glob("*.nb[ic]")) if kernels.FOLDER else ():
        yield path, f"muster/codec/columns/{kernels.TRAVELLED.name}/{kernels.KEY}/{path.name}"


_MISSING = re.compile(r"ModuleNotFoundError: No module named '(\w+)")
_OTHER_PYTHON = re.compile(r"PYTHON_VERSION_MISMATCH\][^:]*: (?:\[?)([\d., ]+)\]? than that in driver")
_OLD_PYTHON = re.compile(r"Error from python worker:[^:]*:\s+File \"[^\"]*/python(\d+\.\d+)/runpy\.py")
_NO_PYTHON = re.compile(r'Cannot run program "([^"]+)"[^:]*: (?:Exec failed, )?error[=:] ?(?:2|13)\b')
_STARTER_SAID = re.compile(r"muster: (no Python [\d.]+ on the PATH of this worker \([^)]*\))")


def worker_trouble(said: str) -> str:
    """What is wrong with a worker's Python, and what to do, if Spark's error tells of that; else empty."""
    archive = "`muster pipeline pack` makes an archive for workers and prints the settings that go with it"
    if starter := _STARTER_SAID.search(said):
        return f"{starter[1]}. Install it there, or pack with the Python that the workers have."
    if program := _NO_PYTHON.search(said):
        missing = f"a worker has no program {program[1]}, which was to be its Python"
        return f"{missing}. Name another with --conf spark.pyspark.python=…; {archive}."
    if other := _OTHER_PYTHON.search(said) or _OLD_PYTHON.search(said):
        worker = other[1].strip(" .").replace(", ", ".")
        return (
            f"a worker runs Python {worker}, and this is Python {PYTHON}: Spark needs the same on both. Name the right "
            f"one with --conf spark.pyspark.python=…; {archive}."
        )
    if module := _MISSING.search(said):
        return f"a worker's Python has no module {module[1]}. Give the workers what they need: {archive}."
    return ""


def _distributions(names: Iterable[str]) -> list[Distribution]:
    """The distributions of these names and all they need."""
    from packaging.requirements import Requirement

    found: dict[str, Distribution] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop().lower().replace("_", "-")
        if name in found:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            raise BadInput(
                f"{name} is not installed here, and workers need it: pip install 'muster[pipeline]'."
            ) from None
        for line in found[name].requires or ():
            needed = Requirement(line)
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                waiting.append(needed.name)
    return [found[name] for name in sorted(found)]
