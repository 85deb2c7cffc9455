"""The lines that docs/open.md has to copy, run over real tables."""

import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from muster.cli.status import Status
from tests.cli import run
from tests.pipeline.world import run_here, unpacked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = (Path(__file__).parents[2] / "docs" / "open.md").read_text(encoding="utf-8")
SECTIONS = {found[1]: found[2] for found in re.finditer(r"\n## ([^\n]+)\n(.*?)(?=\n## |\Z)", PAGE, re.DOTALL)}


def snippets(section: str, language: str = "python") -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", SECTIONS[section], re.DOTALL)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("open")
    run_here(folder / "tables", unpacked("k43-full", folder), analytics=True)
    return folder


def executed(text: str, here: Path, **names: Any) -> dict[str, Any]:
    before = Path.cwd()
    os.chdir(here)
    try:
        exec(compile(text, "docs/open.md", "exec"), names)
    finally:
        os.chdir(before)
    return names


@pytest.mark.parametrize(
    ("section", "names"), [("pandas and notebooks", ["behind"]), ("duckdb", ["busiest", "newest"])]
)
def test_without_spark(here: Path, section: str, names: list[str]) -> None:
    found: dict[str, Any] = {}
    for text in snippets(section):
        found |= executed(text, here)
    for name in names:
        assert len(found[name]) > 0, name


def test_deltalake(here: Path) -> None:
    found = executed(snippets("Delta")[1], here)
    assert found["offsets"].num_rows > 0


def test_the_commands(here: Path) -> None:
    before = Path.cwd()
    os.chdir(here)
    try:
        for text in snippets("polars, R, a spreadsheet", "sh"):
            for line in text.strip().splitlines():
                asked = [
                    each for each in shlex.split(line)[1:] if each not in ("--as-of", "2h ago")
                ]  # real logs are old
                assert run(*asked).status in (Status.OK, Status.NOTHING_MATCHED), line
    finally:
        os.chdir(before)
    assert (here / "lag.parquet").stat().st_size > 0


@pytest.mark.spark
def test_spark(spark: "SparkSession", here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = snippets("Spark")
    assert len(texts) == 4
    found: dict[str, Any] = {}
    for text in texts:
        found |= executed(text.replace('"tables"', repr(str(here / "tables"))), here, spark=spark)
    assert found["small"].columns == ["group_id", "lag"]
    assert found["small"].count() == found["lag"].count() > 0
    assert found["then"].count() > 0
    assert "behind" in capsys.readouterr().out
