"""Every release of Spark that is supported: the same tables, and Delta's own reader on them where there is one."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyspark
import pytest

from muster.errors import BadInput
from muster.pipeline.spark.session import check_supported, spark_session
from muster.tables.storage.store import TableStore
from tests.kit.kafka import REPOSITORY
from tests.kit.spark import DELTA, delta_conf, require_delta, require_environment
from tests.pipeline.test_cluster import digests
from tests.pipeline.world import GrowingLog, run_here, unpacked

VERSIONS = ("4.0.5", "4.1.4", "4.2.1", "4.3.0")
READ = """
import json, sys
import pyarrow.parquet as pq
from muster.pipeline.spark.session import spark_session
conf, statements = json.loads(sys.argv[1]), json.loads(sys.argv[2])
spark = spark_session("local[2]", conf)
for file, statement in statements.items():
    pq.write_table(spark.sql(statement).toArrow(), file)
spark.stop()
"""


def in_environment(python: Path, *arguments: str, folder: Path | None = None) -> str:
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY / "src")}
    environment.pop("SPARK_HOME", None)
    ended = subprocess.run(
        [str(python), *arguments], capture_output=True, text=True, timeout=1800, env=environment, cwd=folder
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def digest(files: list[str]) -> Any:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.read_parquet(files).create_view("rows")
        return connection.execute("SELECT count(*), sum(hash(r)::HUGEINT) FROM rows r").fetchone()


@pytest.mark.matrix
@pytest.mark.spark
@pytest.mark.parametrize("version", VERSIONS)
def test_a_release_of_spark_gives_the_same_tables_and_delta_reads_them(version: str, tmp_path: Path) -> None:
    python = require_environment(version)
    assert in_environment(python, "-c", "import pyspark; print(pyspark.__version__)").strip() == version
    log, tables = GrowingLog(unpacked("k43-all", tmp_path), tmp_path / "log", Random(4)), tmp_path / "tables"
    published = []
    for is_last in (False, True):
        log.grow(is_last)
        arguments = ("--source", str(log.target), "--out", str(tables), "--master", "local[2]", "--json")
        in_environment(python, "-m", "muster", "pipeline", "run", *arguments)
        manifest = TableStore(tables).manifest()
        assert manifest is not None
        published.append(manifest)
        run_here(tmp_path / "here", log.target, analytics=True)
    assert digests(tables) == digests(tmp_path / "here")
    if version.rsplit(".", 1)[0] not in DELTA:
        return
    statements, expected = {}, {}
    for number, manifest in enumerate(published):
        for table, at in manifest.tables.items():
            file = str(tmp_path / f"{table}-{number}.parquet")
            files = TableStore(tables).files(table, at)
            if files:
                statements[file] = f"SELECT * FROM delta.`{tables / table}` VERSION AS OF {at}"
                expected[file] = digest(files)
    conf = delta_conf(require_delta(version))
    in_environment(python, "-c", READ, json.dumps(conf), json.dumps(statements), folder=tmp_path)
    assert {file: digest([file]) for file in statements} == expected
    assert len(expected) > 10


@pytest.mark.matrix
@pytest.mark.spark
def test_the_example_for_spark_with_delta_runs_on_the_spark_that_is_locked(tmp_path: Path) -> None:
    jars = require_delta(pyspark.__version__)
    run_here(tmp_path / "tables", unpacked("k43-all", tmp_path), analytics=True)
    manifest = TableStore(tmp_path / "tables").manifest()
    assert manifest is not None
    page = (REPOSITORY / "docs" / "tables.md").read_text()
    [example] = re.findall(r"```sql\n-- Spark with Delta.*?\n(.*?)```", page, re.DOTALL)
    here = example.replace("/data/tables/", f"{tmp_path}/tables/")
    names_version, reads_offsets = (line for line in here.split(";\n") if line.strip())
    reads_offsets = re.sub(r"AS OF \d+", f"AS OF {manifest.tables['offsets']}", reads_offsets)
    statements = {str(tmp_path / "a.parquet"): names_version, str(tmp_path / "b.parquet"): reads_offsets}
    in_environment(
        Path(sys.executable), "-c", READ, json.dumps(delta_conf(jars)), json.dumps(statements), folder=tmp_path
    )
    with duckdb.connect() as connection:
        told = connection.read_parquet(str(tmp_path / "a.parquet")).fetchall()
    assert told == [(manifest.tables["offsets"],)]
    assert digest([str(tmp_path / "b.parquet")]) == digest(
        TableStore(tmp_path / "tables").files("offsets", manifest.tables["offsets"])
    )


@pytest.mark.parametrize("version", ["4.0.0", "4.1.4", "4.2.0", "4.3.0", "4.3.0.dev1", "4.4.0"])
def test_spark_4_is_supported(version: str) -> None:
    check_supported(version)


@pytest.mark.parametrize("version", ["3.5.9", "2.4.8", "5.0.0"])
def test_another_spark_is_refused_with_a_way_out(version: str) -> None:
    with pytest.raises(BadInput, match=f"Spark {version} is not supported: .* pip install 'pyspark>=4.0,<5'"):
        check_supported(version)


def test_another_spark_is_refused_before_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", "3.5.9")
    with pytest.raises(BadInput, match=r"Spark 3\.5\.9 is not supported: "):
        spark_session("local[1]")
