"""What `pip install muster` leaves out, and what brings it: the extras of `pyproject.toml`, by the modules they have.

A server, the test kit and the command line need little. The libraries for columns make `muster dump` possible and
loading and compaction many times as fast, and take hundreds of megabytes; so do tables, and Spark. Code that can
do without them asks `is_installed`; code that cannot calls `need` before the first import.
"""

import sys
from importlib.util import find_spec

from muster.errors import BadInput

COLUMNS, GROUPS, TABLES, WEB, PIPELINE = "columns", "groups", "tables", "web", "pipeline"

MODULES: dict[str, tuple[str, ...]] = {
    COLUMNS: ("numpy", "numba", "pyarrow"),
    GROUPS: ("confluent_kafka", "cryptography"),
    TABLES: ("duckdb", "deltalake", "pyarrow"),
    WEB: ("duckdb", "deltalake", "pyarrow", "jinja2", "numpy"),
    PIPELINE: ("numpy", "numba", "pyarrow", "duckdb", "deltalake", "cryptography", "packaging", "pandas", "pyspark"),
}
"""Smallest first: a module is brought by the first that has it."""
RARELY_NEEDED = {"cryptography"}
"""By some ways to log in; those who do without need not have it."""


def is_installed(extra: str) -> bool:
    return not _missing(extra)


def need(extra: str, what: str) -> None:
    """Raise `BadInput` that says what to install, unless `what` can work here."""
    missing = [name for name in _missing(extra) if name not in RARELY_NEEDED]
    if missing:
        raise BadInput(f"{what} needs {_listed(missing)}: pip install 'muster[{extra}]'.")


def extra_with(module: str | None) -> str | None:
    """The extra that brings a module, if any does."""
    top = (module or "").partition(".")[0]
    return next((extra for extra, modules in MODULES.items() if top in modules), None)


def _missing(extra: str) -> list[str]:
    return [name for name in MODULES[extra] if sys.modules.get(name) is None and find_spec(name) is None]


def _listed(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)
