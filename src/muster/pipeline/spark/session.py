"""What the job needs of Spark before it begins: a session, and secrets that tasks look up where they run.

The session has no console noise, and the Java that is there. Spark's UI is on (http://localhost:4040, or the next port
that is free), and what is not in `_defaults` is left to Spark: notebooks use the same session.

On one machine, Java is told to compile once and quickly (`-XX:TieredStopAtLevel=1`). The rows of a run stay out of the
JVM, and what Spark SQL does in its first two steps is run a few times at most: Java's second compiler took 6 of the 19
CPU seconds from the start of Spark to the end of two empty steps (decision 0014). Classes come from an archive
where one was made (`class_archive`). Workers are forked from a process that has imported what tasks need, while Java
started (`early_daemon`).

Secrets do not travel. Settings from a file travel without theirs (`config.client.without_secrets`), references travel
as they are. A secret that a program passes as text is put into a file that only this user may read, for as long as the
run takes; on a cluster it is refused.
"""

import atexit
import hashlib
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from muster.caches import cache_folder, mark_used
from muster.errors import BadInput
from muster.java import java_env
from muster.pipeline.spark.early_daemon import MODULE, started_early
from muster.references import literal_secrets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_CHARACTERS = 300
_starting = threading.Lock()
"""While Java starts, what it prints goes elsewhere, for the whole process."""
JAVA_STACK = re.compile(r"^\s+at [\w.$]+\(|^Driver stacktrace:|^JVM stacktrace:", re.MULTILINE)
_SAID = re.compile(r"^(?:: )?([A-Za-z_][\w.]*: \S.*)$", re.MULTILINE)
"""Lines like `ValueError: ...`, and `: org.apache.spark.SparkException: ...` as py4j has it."""


def in_one_line(error: BaseException) -> str:
    """What Spark's error is about, in one line: the end of a Python traceback inside, or Java's own first words."""
    before_java = JAVA_STACK.split(str(error), maxsplit=1)[0]
    said = _SAID.findall(before_java)
    if not said:
        return (before_java.strip().splitlines() or [type(error).__name__])[0][:MOST_CHARACTERS].rstrip(". ")
    return str(said[-1] if "Traceback (most recent" in before_java else said[0])[:MOST_CHARACTERS].rstrip(". ")


LOCAL = "local[*]"
CONNECT = "sc://"
STANDALONE = "spark://"
CONNECT_PORT = 15002
ANSWER_TIMEOUT_S = 10.0
JUST_NOW_S = 0.5
"""A process whose connections break off may need a moment to be gone."""
_GREETINGS = (
    "WARNING: ",
    "Setting default log level",
    "To adjust logging level",
    "Picked up ",
    "Using Spark's default",
)
OUR_DAEMON = "muster.pipeline.spark.daemon"
NO_LOG = str(files("muster.pipeline.spark") / "log4j2.properties")
QUIETLY = "-Xlog:disable -Xlog:all=error:stderr"
"""Java says on its output which classes it does not keep, and that an archive does not fit."""


def spark_session(
    master: str | None = None, conf: Mapping[str, str] | None = None, *, name: str = "muster"
) -> "SparkSession":
    """Start Spark, or take the session that runs already. `conf` has the last word over everything set here."""
    asked = master or os.environ.get("SPARK_MASTER", LOCAL)
    if asked.startswith(CONNECT):
        return connect_session(asked, conf or {})
    if asked.startswith(STANDALONE):
        _check_masters(asked)
    _use_java()
    try:
        import pyspark
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkRuntimeError
        from pyspark.sql import SparkSession
    except ImportError:
        raise BadInput("the pipeline needs Spark: pip install 'muster[pipeline]'.") from None
    check_supported(pyspark.__version__)
    if SparkSession.getActiveSession() is None:
        # Local workers are this very Python; elsewhere the cluster says which one it has. Spark itself reads
        # spark.pyspark.python only when spark-submit starts the driver.
        named = (conf or {}).get("spark.pyspark.python")
        if named:
            os.environ["PYSPARK_PYTHON"] = named
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable if _is_local(master) else "python3")
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        if _is_local(master):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # where Spark's UI listens, on every address otherwise
    builder = SparkSession.builder.appName(name).master(master or os.environ.get("SPARK_MASTER", LOCAL))
    settings = {**_defaults(master), **(conf or {})}
    for key, value in settings.items():
        builder = builder.config(key, value)
    with _starting, _chatter_aside() as chatter, _no_java_left_behind(), _workers_beside_java(settings):
        try:
            session = builder.getOrCreate()
        except (PySparkRuntimeError, Py4JError) as error:
            words = complaint(chatter.read_text(errors="replace")) or in_one_line(error)
            raise BadInput(
                f"Spark did not start: {words}. "
                "`python -m muster.java` says which Java it was given; --master and --conf are passed on as they are."
            ) from error
    session.sparkContext.setLogLevel("ERROR")
    accumulators: Any = getattr(session.sparkContext, "_accumulatorServer", None)
    if accumulators is not None:  # it would print a stack, where the news is that Java has ended
        accumulators.handle_error = lambda *_: None
    return session


def _check_masters(address: str) -> None:
    """Refuse a cluster that is not there; Spark itself would try for a minute, and say that it was killed."""
    problem: Exception | None = None
    for place in address.removeprefix(STANDALONE).split(","):
        host, _, port = place.rpartition(":")
        try:
            socket.create_connection((host, int(port)), ANSWER_TIMEOUT_S).close()
        except (OSError, ValueError) as error:
            problem = error
        else:
            return
    raise BadInput(
        f"no Spark master answers at {address}: {problem}. The address is spark://HOST:7077, as the master's own page "
        "has it."
    )


def connect_session(address: str, conf: Mapping[str, str]) -> "SparkSession":
    """A session of a Spark Connect server. It needs no Java here.

    What a cluster gets when it starts is the server's. The archive for workers and their Python belong to a session
    too, under other names: they are taken from the settings that every other cluster has them from.
    """
    place = urlsplit(address)
    try:  # the client itself would try for minutes
        socket.create_connection((place.hostname or "", place.port or CONNECT_PORT), ANSWER_TIMEOUT_S).close()
    except (OSError, ValueError) as error:
        raise BadInput(
            f"no Spark Connect server answers at {address}: {error}. The address is sc://HOST:{CONNECT_PORT}, and "
            "Spark's sbin/start-connect-server.sh starts one."
        ) from None
    try:
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession

        session = SparkSession.builder.remote(address).getOrCreate()
    except ImportError:
        raise BadInput("Spark Connect needs its client: pip install 'muster[connect]'.") from None
    settings = dict(conf)
    archives, python = settings.pop("spark.archives", ""), settings.pop("spark.pyspark.python", "")
    if python:
        settings["spark.sql.execution.pyspark.python"] = python.removeprefix("./")
    check_supported(session.version)
    for archive in filter(None, archives.split(",")):
        session.addArtifacts(archive, archive=True)
    for name, value in settings.items():
        try:
            session.conf.set(name, value)
        except PySparkException:
            raise BadInput(
                f"{name} is not a setting of a session: on Spark Connect it is set where the server is started."
            ) from None
    return session


def java_has_ended() -> bool:
    """Whether the Java that this process has started is gone, so that all it is asked for fails."""
    try:
        from pyspark import SparkContext
    except ImportError:  # the client of Spark Connect alone starts none
        return False
    java = getattr(SparkContext._gateway, "proc", None)
    with suppress(subprocess.TimeoutExpired):
        return java is not None and java.wait(JUST_NOW_S) is not None
    return False


def check_supported(version: str) -> None:
    """Raise BadInput where this is not a release of Spark 4."""
    if version.split(".")[0] != "4":
        raise BadInput(
            f"Spark {version} is not supported: muster needs Spark 4.0 to 4.3, here and on the cluster. "
            "pip install 'pyspark>=4.0,<5', of the release that the cluster has."
        )


def complaint(chatter: str) -> str:
    """The line that matters of what Java printed before it gave up; empty where there is none."""
    lines = [line for line in chatter.splitlines() if line.strip() and not line.startswith((" ", "\t", *_GREETINGS))]
    return lines[0].removeprefix('Exception in thread "main" ').rstrip(". ") if lines else ""


def _is_local(master: str | None) -> bool:
    return (master or os.environ.get("SPARK_MASTER", LOCAL)).startswith("local")


def _defaults(master: str | None) -> dict[str, str]:
    java = f"-Dlog4j2.configurationFile=file:{NO_LOG} -XX:+UseParallelGC"
    common = {
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.driver.extraJavaOptions": java,
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    }
    if not _is_local(master):
        return common
    is_this_python = os.environ.get("PYSPARK_PYTHON") == sys.executable  # another one may have no muster
    workers = {MODULE: OUR_DAEMON} if is_this_python else {}
    local = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": f"{java} -XX:TieredStopAtLevel=1{java_options(os.environ['JAVA_HOME'])}",
    }
    return common | workers | local


def _use_java() -> None:
    os.environ["JAVA_HOME"] = java_env()["JAVA_HOME"]


def _workers_beside_java(settings: Mapping[str, str]) -> AbstractContextManager[object]:
    """What workers are forked from, started early; nothing where Java is up already, or would not take it."""
    from pyspark import SparkContext

    is_java_up = SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ
    is_ours = settings.get(MODULE) == OUR_DAEMON and settings.get("spark.python.use.daemon") != "false"
    another_spark = "SPARK_HOME" in os.environ  # whose Python part workers import
    return nullcontext() if is_java_up or not is_ours or another_spark else started_early(settings)


@contextmanager
def _no_java_left_behind() -> Iterator[None]:
    """Where the start is interrupted or fails, end the Java that Spark has begun to start: it would go on."""
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
    """While the JVM starts, what it inherits as its stderr is a file: its first four lines would stand between ours.

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


def archive_of(java_home: str) -> Path | None:
    """Where the archive of this Java and this Spark is, or would be; None where nothing can be kept."""
    folder = cache_folder("classes")
    if folder is None or not str(folder).isprintable() or '"' in str(folder):
        return None
    release = ""
    with suppress(OSError):
        release = (Path(java_home) / "release").read_text()
    import pyspark

    made = 0  # Java leaves an archive alone whose jars were installed anew since
    with suppress(OSError):
        made = (Path(pyspark.__file__).parent / "jars").stat().st_mtime_ns
    digest = hashlib.blake2b(repr((java_home, release, pyspark.__file__, made)).encode(), digest_size=6)
    return folder / f"spark-{version('pyspark')}-{digest.hexdigest()}.jsa"


def java_options(java_home: str) -> str:
    """What makes Java use the archive, if there is one; with a space before it."""
    path = archive_of(java_home)
    if path is None or not path.exists():
        return ""
    mark_used(path)
    return f' {QUIETLY} "-XX:SharedArchiveFile={path}"'


@contextmanager
def secrets_as_references(settings: Mapping[str, str], is_local: bool) -> Iterator[dict[str, str]]:
    """The settings with references for secrets."""
    names = literal_secrets(settings)
    if not names:
        yield dict(settings)
        return
    if not is_local:
        raise BadInput(
            f"{names[0]} is given as text, and would travel to every worker, and lie in Spark's temporary files. Give "
            "it as ${env:NAME} or ${file:PATH}, and have the variable or the file on every worker."
        )
    with tempfile.TemporaryDirectory(prefix="muster-secrets-") as folder:  # only this user may enter
        references = {}
        for number, name in enumerate(names):
            place = Path(folder) / str(number)
            with os.fdopen(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
                file.write(settings[name] + "\n")
            references[name] = f"${{file:{place}}}"
        yield {**settings, **references}
