"""A Spark session that fits the job: few tasks, no console noise, the Java that is there."""

import atexit
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muster.errors import BadInput
from muster.java import java_env
from muster.pipeline.failures import gist

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*]"
_GREETINGS = (
    "WARNING: ",
    "Setting default log level",
    "To adjust logging level",
    "Picked up ",
    "Using Spark's default",
)
QUIET = str(files("muster.pipeline") / "log4j2.properties")


def spark_session(
    master: str | None = None, conf: Mapping[str, str] | None = None, *, name: str = "muster"
) -> "SparkSession":
    """Start Spark, or take the session that runs already. `conf` has the last word over everything set here."""
    _use_java()
    try:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkRuntimeError
        from pyspark.sql import SparkSession
    except ImportError:
        raise BadInput("the pipeline needs Spark: pip install 'muster[pipeline]'.") from None
    if SparkSession.getActiveSession() is None:
        # Local workers are this very Python; elsewhere the cluster says which one it has. Spark itself reads
        # spark.pyspark.python only when spark-submit starts the driver.
        named = (conf or {}).get("spark.pyspark.python")
        if named:
            os.environ["PYSPARK_PYTHON"] = named
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable if _is_local(master) else "python3")
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name).master(master or os.environ.get("SPARK_MASTER", LOCAL))
    for key, value in {**_defaults(master), **(conf or {})}.items():
        builder = builder.config(key, value)
    with _chatter_aside() as chatter, _no_java_left_behind():
        try:
            session = builder.getOrCreate()
        except (PySparkRuntimeError, Py4JError) as error:
            words = complaint(chatter.read_text(errors="replace")) or gist(error)
            raise BadInput(
                f"Spark did not start: {words}. "
                "`python -m muster.java` says which Java it was given; --master and --conf are Spark's own words."
            ) from error
    session.sparkContext.setLogLevel("ERROR")
    return session


def complaint(chatter: str) -> str:
    """The line that matters of what Java printed before it gave up; empty where there is none."""
    lines = [line for line in chatter.splitlines() if line.strip() and not line.startswith((" ", "\t", *_GREETINGS))]
    return lines[0].removeprefix('Exception in thread "main" ').rstrip(". ") if lines else ""


def _is_local(master: str | None) -> bool:
    return (master or os.environ.get("SPARK_MASTER", LOCAL)).startswith("local")


def _defaults(master: str | None) -> dict[str, str]:
    common = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{QUIET} -XX:+UseParallelGC",
        # What reaches Spark's own operators is small: one state row a key. Two hundred shuffle tasks would only wait.
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
        "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
        "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    }
    if not _is_local(master):
        return common
    return common | {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
    }


def _use_java() -> None:
    os.environ["JAVA_HOME"] = java_env()["JAVA_HOME"]


@contextmanager
def _no_java_left_behind() -> Iterator[None]:
    """Where the start is interrupted or fails, end the Java that Spark has begun to start: nobody else would."""
    from pyspark import java_gateway

    gateway: Any = java_gateway
    started: list[Any] = []
    popen = gateway.Popen

    def remembered(*arguments: Any, **settings: Any) -> Any:
        started.append(popen(*arguments, **settings))
        return started[-1]

    gateway.Popen = remembered
    try:
        yield
    except BaseException:
        for process in started:
            process.kill()
            process.wait()
        raise
    finally:
        gateway.Popen = popen


@contextmanager
def _chatter_aside() -> Iterator[Path]:
    """While the JVM starts, what it inherits as its stderr is a file: it greets with four lines nobody asked for.

    The file lives as long as the process, and is what to read when Spark itself goes wrong.
    """
    sys.stderr.flush()
    file = tempfile.NamedTemporaryFile(prefix="muster-spark-", suffix=".log", delete=False)  # noqa: SIM115
    atexit.register(lambda: Path(file.name).unlink(missing_ok=True))
    ours = os.dup(2)
    os.dup2(file.fileno(), 2)
    try:
        yield Path(file.name)
    finally:
        os.dup2(ours, 2)
        os.close(ours)
        file.close()
