"""Tasks on Spark and in this process: the same answers, the same errors. The tasks here are small ones of the test."""

import pickle
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from muster.errors import BadInput, MusterError, Unexpected
from muster.pipeline import engine as engines
from muster.pipeline.engine import (
    ANSWER,
    FAILURE,
    PLAIN_PLANS,
    Engine,
    LocalEngine,
    SparkEngine,
    answered,
    answers_in,
    attempts_of,
    keys_by_partition,
    memory_of_a_task,
    mistake_in,
    spark_hash,
)
from muster.pipeline.model import Extracted, WrittenFile
from muster.pipeline.packets import Packet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(params=["local", pytest.param("spark", marks=pytest.mark.spark)])
def engine(request: pytest.FixtureRequest) -> Engine:
    if request.param == "local":
        return LocalEngine()
    return SparkEngine(request.getfixturevalue("spark"))


def found(name: str, *packets: Packet) -> Extracted:
    return Extracted((WrittenFile("commits", name, 1, 1),), (), packets)


class Part:
    """Of a `MergeWork` what an engine looks at."""

    def __init__(self, *partitions: int) -> None:
        self.partitions = partitions


def test_packets_reach_the_task_that_merges_their_partition(engine: Any) -> None:
    def read(works: Sequence[int]) -> Extracted:
        packets = [Packet("activity", partition, 1, b"%d" % partition) for partition in works]
        return found(f"{works}", *packets, Packet("open_commits", works[0], 7, b"more"))

    def merge(part: Part, packets: Sequence[Sequence[Packet]]) -> Any:
        return part.partitions, [sorted(each) for each in packets]

    first, again = engine.read(read, [[0, 1], [4], [1, 6]]), engine.read(read, [])
    again = engine.read(read, [[4]])
    assert [each.files[0].path for each in first.found] == ["[0, 1]", "[4]", "[1, 6]"]
    assert not any(each.packets for each in first.found), "packets do not come to the driver"
    merged = engine.merge(merge, [Part(0, 4), Part(2, 3), Part(1, 6)], [first, again])
    engine.forget()

    def of(partition: int) -> Packet:
        return Packet("activity", partition, 1, b"%d" % partition)

    def more(partition: int) -> Packet:
        return Packet("open_commits", partition, 7, b"more")

    assert merged == [
        ((0, 4), [[of(0), of(4), more(0), more(4)], [of(4), more(4)]]),
        ((2, 3), [[], []]),
        ((1, 6), [[of(1), of(1), of(6), more(1)], []]),
    ]


def test_there_may_be_nothing_to_read(engine: Any) -> None:
    def merge(part: Part, packets: Sequence[Sequence[Packet]]) -> Any:
        return part.partitions, packets

    nothing = engine.read(found, [])
    assert nothing.found == []
    assert engine.merge(merge, [], [nothing]) == []
    assert engine.merge(merge, [Part(3), Part(5)], [nothing, nothing]) == [((3,), [[], []]), ((5,), [[], []])]


def meet(works: Sequence[int]) -> Extracted:
    if works == [1]:
        raise BadInput("the log was moved.")
    if works == [2]:
        raise OSError(28, "No space left on device", "x.parquet")
    return found(str(1 // works[0]))


def merge_nothing(part: Part, packets: Any) -> Any:
    raise BadInput(f"the state of {part.partitions} is gone.")


def test_what_a_task_meets_is_raised_as_what_it_is(engine: Any) -> None:
    with pytest.raises(BadInput, match=r"^the log was moved\.$"):
        engine.read(meet, [[5], [1]])
    with pytest.raises(OSError, match="No space left") as full:
        engine.read(meet, [[2]])
    assert (full.value.errno, full.value.filename) == (28, "x.parquet")
    with pytest.raises(BadInput, match=r"^the state of \(3,\) is gone\.$"):
        engine.merge(merge_nothing, [Part(3)], [engine.read(meet, [])])


@pytest.mark.spark
def test_a_mistake_of_ours_says_where(spark: "SparkSession") -> None:
    with pytest.raises(Unexpected) as broken:
        SparkEngine(spark).read(lambda works: 1 // 0, [[]])
    sentence = str(broken.value)
    assert re.fullmatch(r"ZeroDivisionError: .* \(in a task, pipeline/engine\.py, line \d+\)", sentence), sentence


@pytest.mark.spark
def test_a_job_that_is_cancelled_ends_and_others_do_not(spark: "SparkSession") -> None:
    """From another thread, as Ctrl-C does it: the tasks would sleep for a minute."""

    def sleep(works: Sequence[int]) -> Extracted:
        time.sleep(60)
        return found("never")

    on_spark = SparkEngine(spark)
    timer = threading.Timer(3, on_spark._cancel)
    timer.start()
    began = time.monotonic()
    with pytest.raises(MusterError, match=r"^Spark could not finish the run: .*cancel"):
        on_spark.read(sleep, [[1]])
    assert time.monotonic() - began < 30
    timer.join()
    assert SparkEngine(spark).read(meet, [[5]]).found == [found("0")]


@pytest.mark.spark
def test_a_job_is_cancelled_that_spark_does_not_know_of_yet(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C comes while Spark still plans: there is no job to cancel, and a moment later there is."""

    class Interrupted(ThreadPoolExecutor):
        def submit(self, *work: Any, **more: Any) -> Any:
            doing = super().submit(*work, **more)
            monkeypatch.setattr(doing, "result", self.interrupt)
            return doing

        def interrupt(self) -> None:
            raise KeyboardInterrupt

    def sleep(works: Sequence[int]) -> Extracted:
        time.sleep(60)
        return found("never")

    monkeypatch.setattr(engines, "ThreadPoolExecutor", Interrupted)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        SparkEngine(spark).read(sleep, [[1]])
    assert time.monotonic() - began < 30
    monkeypatch.undo()
    assert SparkEngine(spark).read(meet, [[5]]).found == [found("0")]


@pytest.mark.spark
def test_each_step_has_a_name_in_the_ui(spark: "SparkSession") -> None:
    on_spark = SparkEngine(spark)
    reading = on_spark.read(meet, [[5], [6]])
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup(on_spark._tag)
    assert len(jobs) == 1
    described = spark.sparkContext._jsc.sc().statusStore().job(jobs[0]).description().get()  # type: ignore[union-attr]
    assert described == "muster: read and decode (2 tasks)"
    assert reading.packets is not None
    assert "read_and_decode" in reading.packets._jdf.queryExecution().toString()  # type: ignore[operator]


@pytest.mark.spark
def test_workers_of_this_machine_find_everything_imported(spark: "SparkSession") -> None:
    def where_from(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        names = [str(sys.modules["__main__"].__spec__ and sys.modules["__main__"].__spec__.name), *sys.modules]
        yield from (pa.RecordBatch.from_pydict({"name": names}) for _ in batches)

    names = [row.name for row in spark.range(0, 1, 1, 1).mapInArrow(where_from, "name string").collect()]
    assert names[0] == "muster.pipeline.spark.daemon"
    assert {"muster.pipeline.merge", "duckdb", "numba", "pyarrow.dataset"} <= set(names)


@pytest.mark.spark
def test_every_merge_task_has_a_partition_of_its_own(spark: "SparkSession") -> None:
    from pyspark.sql import functions as F

    values = [*range(-3, 40), 2**31 - 1, -(2**31)]
    frame = spark.createDataFrame([(value,) for value in values], "value int")
    assert [row[0] for row in frame.select(F.hash("value")).collect()] == [spark_hash(value) for value in values]
    for count in (1, 2, 7, 50):
        assert [spark_hash(key) % count for key in keys_by_partition(count)] == list(range(count))


def test_what_spark_itself_cannot_do_is_not_called_our_mistake() -> None:
    lost = (
        "Job aborted due to stage failure: ExecutorLostFailure (executor 1 exited)\n\tat org.apache.spark.X(X.scala:1)"
    )
    assert mistake_in(RuntimeError(lost)) == ""
    text = (
        'org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n  File "/x/muster/'
        'pipeline/extract/ranges.py", line 88, in segments_from\n'
        "ValueError: zip() argument 2 is longer than argument 1\n\n\tat org.apache.spark.X(X.scala:1)"
    )
    assert mistake_in(RuntimeError(text)) == (
        "ValueError: zip() argument 2 is longer than argument 1 (in a task, pipeline/extract/ranges.py, line 88)"
    )


def test_a_disk_that_fails_is_tried_again_where_spark_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(error: Exception) -> Callable[[], None]:
        def fail() -> None:
            raise error

        return fail

    def kinds(error: Exception, attempts: int) -> list[Any]:
        return [kind for batch in answered(0, failing(error), attempts) for kind in batch.column("kind").to_pylist()]

    assert kinds(OSError(5, "Input/output error"), 1) == [FAILURE]
    with pytest.raises(OSError, match="Input/output"):
        kinds(OSError(5, "Input/output error"), 4)
    monkeypatch.setattr(engines, "_attempt", lambda: 3)
    assert kinds(OSError(5, "Input/output error"), 4) == [FAILURE]
    assert kinds(BadInput("no such log."), 4) == [FAILURE]
    assert [attempts_of(*each) for each in (("local[*]", "4"), ("local[2,3]", None), ("local", None))] == [1, 3, 1]
    assert [attempts_of("spark://host:7077", most) for most in (None, "7")] == [4, 7]


def test_the_memory_of_a_task_follows_from_the_executor() -> None:
    def told(**settings: str) -> int:
        return memory_of_a_task(lambda name: settings.get(name.removeprefix("spark.executor.").replace(".", "_")))

    assert told() == 1024
    assert told(memoryOverhead="4g") == 2048
    assert told(memoryOverhead="4096", cores="4") == 512
    assert told(pyspark_memory="6GB", memoryOverhead="1g", cores="3") == 1024
    assert told(memoryOverhead="384m", cores="8") == 128


def test_answers_come_in_the_order_of_their_tasks() -> None:
    assert answers_in((ANSWER, number, pickle.dumps(number * 10)) for number in (2, 0, 1)) == [0, 10, 20]


@pytest.mark.spark
def test_steps_have_plain_plans_and_the_session_keeps_its_own(spark: "SparkSession") -> None:
    """Restored after a step that fails, too; a setting that the user has made comes back as it was."""
    names = list(PLAIN_PLANS)
    spark.conf.set(names[0], "true")
    before = [spark.conf.get(name) for name in names]
    engine = SparkEngine(spark)
    seen: list[str | None] = []

    def failing_step() -> None:
        with engine._plain_plans():
            seen.extend(spark.conf.get(name) for name in names)
            raise BadInput("not today")

    with pytest.raises(BadInput, match="not today"):
        failing_step()
    assert seen == list(PLAIN_PLANS.values())
    assert [spark.conf.get(name) for name in names] == before
    spark.conf.unset(names[0])
