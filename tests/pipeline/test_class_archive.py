"""Spark's classes from an archive: Java takes what was made, and starts without it where it does not fit."""

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from muster.java import find_java
from muster.pipeline.spark.session import archive_of, java_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def java() -> str:
    found = find_java()
    if found is None:
        pytest.skip("needs Java 17 or 21: install one, or run `python -m muster.java --install`")
    return str(found.path)


def memory_map(spark: "SparkSession") -> str:
    java_pid = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr, operator]
    return Path(f"/proc/{java_pid}/maps").read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc what Java has mapped")
def test_spark_maps_the_archive_that_setup_made(spark: "SparkSession", java: str) -> None:
    path = archive_of(java)
    if path is None or not path.exists():
        if os.environ.get("CI"):
            pytest.fail("`make setup` has made no archive")
        pytest.skip("no archive: `python -m muster.pipeline.spark.class_archive` makes one")
    assert str(path) in memory_map(spark)


def test_no_archive_no_options(java: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a cache"))
    assert java_options(java) == ""


def test_an_archive_belongs_to_one_java(java: str, tmp_path: Path) -> None:
    (tmp_path / "release").write_text('JAVA_VERSION="21.0.4"\n')
    of_another = archive_of(str(tmp_path))
    (tmp_path / "release").write_text('JAVA_VERSION="21.0.5"\n')
    assert len({archive_of(java), of_another, archive_of(str(tmp_path))}) == 3


def test_java_starts_quietly_with_an_archive_that_is_none(
    java: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A torn file, in a folder whose name has a space in it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a cache"))
    path = archive_of(java)
    assert path is not None
    path.write_bytes(b"no archive" * 1000)
    ran = subprocess.run(
        [f"{java}/bin/java", *shlex.split(java_options(java)), "--version"], capture_output=True, text=True, timeout=60
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "cds" not in ran.stdout.lower()


@pytest.mark.matrix
@pytest.mark.spark
def test_one_is_made_where_there_is_none(java: str, tmp_path: Path) -> None:
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    for _ in range(2):  # the second finds it
        made = subprocess.run(
            [sys.executable, "-m", "muster.pipeline.spark.class_archive"],
            env=environment,
            capture_output=True,
            text=True,
        )
        assert (made.returncode, made.stderr) == (0, "")
        assert made.stdout.startswith("Spark's classes ready in ")
    (archive,) = (tmp_path / "muster" / "classes").iterdir()
    assert archive.suffix == ".jsa"
