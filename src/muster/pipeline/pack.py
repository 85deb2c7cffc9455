"""The archive for workers: muster and the libraries its tasks import, for machines that have Spark and Python alone.

Spark unpacks it on every machine, in the directory in which a worker's Python starts; PYTHONPATH names it there.
"""

import sys
import tarfile
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import muster
from muster.errors import BadInput

ROOTS = ("numba", "pyarrow", "duckdb", "cramjam", "crc32c", "cryptography")
LEFT_OUT = ("numba/tests/", "numba/cuda/tests/", "pyarrow/tests/", "pyarrow/include/")
"""A quarter of all files, which no task imports."""
FOLDER = "muster-workers"
"""The name under which Spark unpacks the archive, in the directory a worker's Python starts in."""


def spark_conf(archive: str) -> dict[str, str]:
    """Settings that make a cluster use the archive."""
    return {
        "spark.archives": f"{archive}#{FOLDER}",
        "spark.executorEnv.PYTHONPATH": FOLDER,
        "spark.pyspark.python": f"python{sys.version_info.major}.{sys.version_info.minor}",
    }


def pack(target: Path) -> int:
    """Write the archive; how many files it has."""
    count = 0
    draft = target.with_name(target.name + ".part")
    try:
        with tarfile.open(draft, "w:gz", compresslevel=1) as tar:
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
        if path.is_file() and "__pycache__" not in path.parts:
            yield path, f"muster/{path.relative_to(package)}"
    for one in _distributions(ROOTS):
        for file in one.files or ():
            path = Path(str(one.locate_file(file)))
            if str(file).startswith(LEFT_OUT):
                continue
            if ".." not in file.parts and "__pycache__" not in file.parts and path.is_file():
                yield path, str(file)


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
