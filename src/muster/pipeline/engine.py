"""Where tasks run: on Spark, or in this process.

    works      spark.range(n)            a row is one task
      | mapInArrow(read_and_decode)
      v
    rows       one `answer` for the driver from each task, and its packets              kept until the run ends
      | repartition(by merge task)       packets alone, and a `turn` for each task
      | mapInArrow(merge_state)
      v
    rows       one `answer` for the driver from each task

`each` is the first of these steps alone: tables by interval, verdicts and findings, small files to be joined.

Only what DataFrames offer is used, since Spark Connect has no `sparkContext`: what needs one (the name of a job, its
cancelling) is asked for where there is one.
A merge task reads the state before the run from the files of the tables itself. Spark could bring it as rows, but it
would need the object store's settings and jars a second time, and rows of state in the JVM cost more than the merge
(decision 0014).

An error with a meaning (`MusterError`, a disk that fails) comes back as a row too, and is raised here: Spark hands on
an exception of a task as the text of a Java exception, and a full disk should be one sentence.
"""

import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count as counted
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar
from uuid import uuid4

import pyarrow as pa

from muster.errors import BadInput, MusterError, Unexpected
from muster.pipeline.merge import MergeAnswer, MergeWork
from muster.pipeline.model import Extracted, PartitionWork
from muster.pipeline.packets import Packet
from muster.pipeline.spark.pack import worker_trouble
from muster.pipeline.spark.session import JAVA_STACK, in_one_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Answer = TypeVar("Answer")
ReadTask = Callable[[Sequence[PartitionWork]], Extracted]
MergeTask = Callable[[MergeWork, Sequence[Sequence[Packet]]], MergeAnswer]
"""It is given the packets of its partitions, of each reading in turn."""

TASK_MEMORY_MB, LEAST_TASK_MEMORY_MB = 1024, 128
CANCEL_EVERY_S = 0.2
ANSWER, FAILURE, TURN = "answer", "failure", "turn"
ROWS = pa.schema([
    ("kind", pa.string()), ("task", pa.int32()), ("offsets_partition", pa.int32()), ("rows", pa.int64()),
    ("payload", pa.binary()),
])  # fmt: skip
_SPARK_ROWS = "kind string, task int, offsets_partition int, rows long, payload binary"
PLAIN_PLANS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4",
}
"""For steps whose work is in Python: few rows pass through Java, packed already, and compiling code for them costs more
than they do. A row may be a packet of some megabytes: as many as Spark would put into a batch are more than Arrow can
hold."""
_OUR_LINE = re.compile(r'File "[^"]*[/\\\\]muster[/\\\\]([^"]+)", line (\d+)')


class Reading(NamedTuple):
    """What some read tasks gave: their answers are here, their packets may be anywhere."""

    found: list[Extracted]
    """In the order of the works; without packets."""
    packets: Any
    """The engine's own: a DataFrame with the rows of all tasks (None without any), or a list."""


class Engine(Protocol):
    is_local: bool
    """Whether tasks run on this machine, and find here what they are told to look up."""
    task_memory_mb: int
    """What duckdb may use in a task; by itself it would take most of a machine, beside all other tasks."""

    def read(self, task: ReadTask, works: Sequence[Sequence[PartitionWork]]) -> Reading:
        """Do all of these works, any of them perhaps more than once."""

    def merge(self, task: MergeTask, works: Sequence[MergeWork], readings: Sequence[Reading]) -> list[MergeAnswer]:
        """The answer to each of these works, in their order; any of them may be done more than once."""

    def each(self, step: str, task: Callable[[Any], Answer], works: Sequence[Any]) -> list[Answer]:
        """The answer to each of these works, in their order, under a name; any of them may be done more than once."""

    def forget(self) -> None:
        """Let go of what readings keep."""


# Rows, the same for both engines.


def _rows(values: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = zip(*values, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, ROWS, strict=True)], schema=ROWS
    )


def answered(number: int, task: Callable[[], Any], attempts: int = 1) -> Iterator[pa.RecordBatch]:
    """The rows that a task gives: its answer, or its failure where there is no point in another attempt.

    Disks and networks have bad moments, so an `OSError` is told by the last attempt only.
    """
    packets: Sequence[Packet] = ()
    try:
        answer = task()
        if isinstance(answer, Extracted):
            packets = answer.packets
            answer = answer._replace(packets=(), packet_rows=sum(packet.rows for packet in packets))
        kind = ANSWER
    except MusterError as error:
        kind, answer = FAILURE, error
    except OSError as error:
        if attempts > 1 and _attempt() + 1 < attempts:
            raise
        kind, answer = FAILURE, error
    yield _rows([(kind, number, None, None, pickle.dumps(answer))])
    for packet in packets:
        yield _rows([(packet.kind, number, packet.offsets_partition, packet.rows, packet.payload)])


def _attempt() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else int(context.attemptNumber())


def answers_in(rows: Iterable[tuple[str, int, bytes]]) -> list[Any]:
    """The answers of rows (kind, task, payload) in the order of their tasks; raises the first failure among them."""
    found = {}
    for kind, number, payload in rows:
        value = pickle.loads(payload)
        if kind == FAILURE:
            raise value
        found[number] = value
    return [found[number] for number in sorted(found)]


def packets_in(batch: pa.RecordBatch) -> Iterator[Packet]:
    columns = (batch.column(name).to_pylist() for name in Packet._fields)
    return (Packet(*values) for values in zip(*columns, strict=True) if values[0] not in (ANSWER, FAILURE, TURN))


class LocalEngine:
    """Tasks one after the other in this process. Works and answers go through pickle, as on the way to a worker."""

    is_local = True
    task_memory_mb = TASK_MEMORY_MB

    def read(self, task: ReadTask, works: Sequence[Sequence[PartitionWork]]) -> Reading:
        batches: list[pa.RecordBatch] = []
        for number, work in enumerate(works):
            batches += answered(number, partial(task, _copied(work)))
        return Reading(self._answers(batches), [packet for batch in batches for packet in packets_in(batch)])

    def merge(self, task: MergeTask, works: Sequence[MergeWork], readings: Sequence[Reading]) -> list[MergeAnswer]:
        batches: list[pa.RecordBatch] = []
        for number, work in enumerate(works):
            given = [[each for each in one.packets if each.offsets_partition in work.partitions] for one in readings]
            batches += answered(number, partial(task, _copied(work), given))
        return self._answers(batches)

    def each(self, step: str, task: Callable[[Any], Answer], works: Sequence[Any]) -> list[Answer]:
        batches: list[pa.RecordBatch] = []
        for number, work in enumerate(works):
            batches += answered(number, partial(task, _copied(work)))
        return self._answers(batches)

    def forget(self) -> None:
        pass

    @staticmethod
    def _answers(batches: Sequence[pa.RecordBatch]) -> list[Any]:
        rows = [batch.select(["kind", "task", "payload"]).to_pylist()[0] for batch in batches]
        return answers_in(tuple(row.values()) for row in rows if row["kind"] in (ANSWER, FAILURE))


def _copied(work: Any) -> Any:
    return pickle.loads(pickle.dumps(work))


class SparkEngine:
    """Tasks on a Spark cluster, or on the cores of this machine."""

    def __init__(self, spark: "SparkSession") -> None:
        self._spark = spark
        self._on_connect = type(spark).__module__.startswith("pyspark.sql.connect")
        master = spark.conf.get("spark.master", "") or ""
        self.is_local = master.startswith("local") and not self._on_connect
        self._attempts = attempts_of(master, spark.conf.get("spark.task.maxFailures", None))
        self.task_memory_mb = memory_of_a_task(lambda name: spark.conf.get(name, None))
        self._tag = f"muster-{uuid4()}"
        self._kept: list[DataFrame] = []

    def read(self, task: ReadTask, works: Sequence[Sequence[PartitionWork]]) -> Reading:
        attempts = self._attempts

        def read_and_decode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for number in _numbers(batches):
                yield from answered(number, partial(task, works[number]), attempts)

        if not works:
            return Reading([], None)
        return self._waited_for(
            f"read and decode ({len(works)} tasks)", lambda: self._read(read_and_decode, len(works))
        )

    def _read(self, read_and_decode: Any, tasks: int) -> Reading:
        with self._plain_plans():
            rows = self._spark.range(0, tasks, 1, tasks).mapInArrow(read_and_decode, _SPARK_ROWS).persist()
            self._kept.append(rows)
            return Reading(_collected(rows.where(rows.kind.isin(ANSWER, FAILURE))), rows)

    def merge(self, task: MergeTask, works: Sequence[MergeWork], readings: Sequence[Reading]) -> list[MergeAnswer]:
        attempts, count = self._attempts, len(readings)

        def merge_state(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            given: dict[int, list[list[Packet]]] = {}
            failed: dict[int, bytes] = {}
            for batch in batches:
                columns = (batch.column(name).to_pylist() for name in ("task", "reading", *Packet._fields))
                for number, reading, *values in zip(*columns, strict=True):
                    packets = given.setdefault(number, [[] for _ in range(count)])
                    if values[0] == FAILURE:  # packets that were lost were read again, in vain
                        failed[number] = values[-1]
                    elif values[0] != TURN:
                        packets[reading].append(Packet(*values))
            for number, packets in given.items():
                if number in failed:
                    yield _rows([(FAILURE, number, None, None, failed[number])])
                    continue
                yield from answered(number, partial(task, works[number], packets), attempts)

        if not works:
            return []
        return self._waited_for(f"merge state ({len(works)} tasks)", lambda: self._merge(merge_state, works, readings))

    def _merge(self, merge_state: Any, works: Sequence[MergeWork], readings: Sequence[Reading]) -> list[MergeAnswer]:
        with self._plain_plans():
            return _collected(self._shuffled(works, readings).mapInArrow(merge_state, _SPARK_ROWS))

    def _shuffled(self, works: Sequence[MergeWork], readings: Sequence[Reading]) -> "DataFrame":
        """A turn for each merge task, and the packets of its partitions, in a partition of its own."""
        from pyspark.sql import functions as F

        count = len(works)
        tasks = {partition: number for number, work in enumerate(works) for partition in work.partitions}
        task_of_partition = F.lit([tasks.get(partition, 0) for partition in range(max(tasks) + 1)])
        turns = self._spark.range(0, count, 1, 1).select(
            F.lit(TURN).alias("kind"), F.col("id").cast("int").alias("task"), F.lit(None).cast("int").alias("reading"),
            F.lit(None).cast("int").alias("offsets_partition"), F.lit(None).cast("long").alias("rows"),
            F.lit(None).cast("binary").alias("payload"),
        )  # fmt: skip
        for reading, (_, rows) in enumerate(readings):
            if rows is not None:
                task = F.element_at(task_of_partition, F.coalesce(F.col("offsets_partition"), F.lit(0)) + 1)
                packets = rows.where(rows.kind != ANSWER).select(
                    "kind", F.when(rows.kind == FAILURE, F.lit(0)).otherwise(task).alias("task"),
                    F.lit(reading).alias("reading"), "offsets_partition", "rows", "payload",
                )  # fmt: skip
                turns = turns.union(packets)
        key = F.element_at(F.lit(keys_by_partition(count)), F.col("task") + 1)
        return turns.withColumn("key", key).repartition(count, "key")

    def each(self, step: str, task: Callable[[Any], Answer], works: Sequence[Any]) -> list[Answer]:
        attempts = self._attempts

        def do(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for number in _numbers(batches):
                yield from answered(number, partial(task, works[number]), attempts)

        if not works:
            return []
        return self._waited_for(f"{step} ({len(works)} tasks)", lambda: self._each(do, len(works)))

    def _each(self, do: Any, tasks: int) -> list[Any]:
        with self._plain_plans():
            return _collected(self._spark.range(0, tasks, 1, tasks).mapInArrow(do, _SPARK_ROWS))

    def forget(self) -> None:
        for rows in self._kept:
            with suppress(Exception):  # a session that is gone keeps nothing
                rows.unpersist()
        self._kept = []

    @contextmanager
    def _plain_plans(self) -> Iterator[None]:
        conf = self._spark.conf
        before = {name: conf.get(name, None) for name in PLAIN_PLANS}
        for name, value in PLAIN_PLANS.items():
            conf.set(name, value)
        try:
            yield
        finally:
            for name, own in before.items():
                with suppress(Exception):  # of a session that is gone
                    conf.unset(name) if own is None else conf.set(name, own)

    def _waited_for(self, step: str, work: Callable[[], Answer]) -> Answer:
        """Wait for Spark in a thread of its own: a Ctrl-C in the middle of a call to Java breaks the connection to it,
        and all that would be left is tracebacks.
        """
        from pyspark.errors import PySparkException

        try:
            from py4j.protocol import Py4JError
        except ImportError:  # the client of Spark Connect alone talks to no Java
            Py4JError = PySparkException

        with ThreadPoolExecutor(1, thread_name_prefix="muster-spark") as pool:
            doing: Future[Answer] | None = None
            try:
                doing = pool.submit(self._named, step, work)
                return doing.result()
            except KeyboardInterrupt:
                self._cancel()
                while doing and not wait([doing], CANCEL_EVERY_S).done:  # Spark knows of no job that it still plans
                    with suppress(Py4JError, PySparkException, OSError):
                        self._cancel()
                raise
            except (Py4JError, PySparkException) as error:
                trouble = worker_trouble(str(error))
                if trouble:
                    raise BadInput(trouble) from error
                mistake = mistake_in(error)
                if mistake:
                    raise Unexpected(mistake) from error
                sentence = (
                    f"Spark could not finish the run: {in_one_line(error)}. What was published before is untouched."
                )
                raise MusterError(sentence) from error

    def _named(self, step: str, work: Callable[[], Answer]) -> Answer:
        """Do it under a name for Spark's UI and for `_cancel`. Both are of this thread, which ends with the work."""
        if self._on_connect:
            self._spark.addTag(self._tag)
        else:
            self._spark.sparkContext.setJobGroup(self._tag, f"muster: {step}")
        return work()

    def _cancel(self) -> None:
        """From another thread: there only Spark Connect finds a tag, and everything else a group."""
        if self._on_connect:
            self._spark.interruptTag(self._tag)
        else:
            self._spark.sparkContext.cancelJobGroup(self._tag)


def _collected(rows: "DataFrame") -> list[Any]:
    """By `collect`: what goes wrong under `toArrow` is told by Spark as a wait that failed."""
    return answers_in(tuple(row) for row in rows.select("kind", "task", "payload").collect())


def _numbers(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column("id").to_pylist()


def attempts_of(master: str, most_failures: str | None) -> int:
    """How often a task is tried under this master: once on one machine, unless it is written local[N,F]."""
    if master.startswith("local[") and "," in master:
        return int(master.rstrip("]").split(",")[1])
    if master == "local" or master.startswith("local["):
        return 1
    return int(most_failures or 4)


def memory_of_a_task(setting: Callable[[str], str | None]) -> int:
    """In MB, half of what an executor's settings leave to each of its Python tasks; the other half is for rows."""
    told = setting("spark.executor.pyspark.memory") or setting("spark.executor.memoryOverhead")
    size = re.fullmatch(r"(\d+)([kmgt]?)b?", (told or "").strip().lower())
    if size is None:
        return TASK_MEMORY_MB
    megabytes = int(size[1]) * {"k": 1 / 1024, "": 1, "m": 1, "g": 1024, "t": 1024**2}[size[2]]
    return max(int(megabytes / int(setting("spark.executor.cores") or 1) / 2), LEAST_TASK_MEMORY_MB)


def mistake_in(error: BaseException) -> str:
    """The unexpected exception of a task, and where in muster it was raised. Empty where it is Spark's own trouble."""
    before_java = JAVA_STACK.split(str(error), maxsplit=1)[0]
    places = _OUR_LINE.findall(before_java)
    if "Traceback (most recent" not in before_java or not places:
        return ""
    file, line = places[-1]
    return f"{in_one_line(error)} (in a task, {file}, line {line})"


def keys_by_partition(count: int) -> list[int]:
    """For each partition of `repartition(count, key)` a key that Spark's hash puts there.

    Numbers as keys would meet: of two tasks both would be in one partition half of the time.
    """
    found: dict[int, int] = {}
    for key in counted():
        found.setdefault(spark_hash(key) % count, key)
        if len(found) == count:
            return [found[partition] for partition in range(count)]
    raise AssertionError


def spark_hash(value: int) -> int:
    """`hash(value)` of Spark SQL for an int: Murmur3 with the seed 42."""

    def rotated(bits: int, left: int) -> int:
        return (bits << left | bits >> 32 - left) & 0xFFFFFFFF

    mixed = rotated(value * 0xCC9E2D51 & 0xFFFFFFFF, 15) * 0x1B873593 & 0xFFFFFFFF
    bits = (rotated(42 ^ mixed, 13) * 5 + 0xE6546B64) & 0xFFFFFFFF ^ 4
    bits = (bits ^ bits >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    bits = (bits ^ bits >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    bits ^= bits >> 16
    return bits - (1 << 32) if bits >> 31 else bits
