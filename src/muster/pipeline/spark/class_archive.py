"""Makes the archive of the classes that Spark loads when it starts, kept as Java maps them into memory.

Spark loads some ten thousand classes from jars before its first task runs, and Java checks each of them. An archive of
them (Java's class data sharing) is made once on a machine, by running the pipeline over one commit: `python -m
muster.pipeline.spark.class_archive`, which `make setup` does. It takes 160 MB of the user's cache. A start without it
is slower, and the same otherwise. `session` names it by its Java and its Spark, and starts Java with it; Java itself
leaves an archive alone that does not match its jars. Those that were not used for a month go when a new one is made
(`caches`).
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from muster.caches import remove_unused
from muster.codec.batches import encode_batch
from muster.codec.offsets_topic import encode_key, encode_plain_commit, offset_key
from muster.codec.records import Record
from muster.errors import MusterError
from muster.java import java_env
from muster.pipeline.engine import SparkEngine
from muster.pipeline.job import Request, run
from muster.pipeline.spark.session import QUIETLY, archive_of, spark_session
from muster.segments.sources import OFFSETS_TOPIC

ENOUGH_S = 600.0


def make(path: Path) -> None:
    """In a process of its own. Two that make it at once make the same; a Java that keeps none leaves none."""
    draft = path.with_name(f"{path.stem}.{os.getpid()}.part")
    try:
        subprocess.run(
            [sys.executable, "-m", "muster.pipeline.spark.class_archive", str(draft)], check=True, timeout=ENOUGH_S
        )
        if draft.exists():
            draft.replace(path)
            remove_unused(each for each in path.parent.iterdir() if each.suffix in (".jsa", ".part"))
    finally:
        draft.unlink(missing_ok=True)


def keep_classes(draft: str) -> None:
    """Run the pipeline over one commit, and have Java write down which classes that took."""
    from pyspark import SparkContext

    spark = spark_session(
        "local[2]", {"spark.driver.defaultJavaOptions": f'{QUIETLY} "-XX:ArchiveClassesAtExit={draft}"'}
    )
    gateway = SparkContext._gateway
    assert gateway is not None
    with tempfile.TemporaryDirectory(prefix="muster-") as folder:
        segment = Path(folder) / f"{OFFSETS_TOPIC}-0" / f"{0:020}.log"
        segment.parent.mkdir()
        key = encode_key(offset_key("group", "topic", 0))
        segment.write_bytes(encode_batch([Record(0, 0, key, encode_plain_commit(0, 0, 0, bytes(16)))]))
        run(SparkEngine(spark), Request([str(segment.parent)], f"{folder}/tables"))
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # which ends it
    gateway.proc.wait(ENOUGH_S)


def main(arguments: list[str]) -> None:
    if arguments:
        keep_classes(arguments[0])
        return
    began = time.perf_counter()
    path = archive_of(java_env()["JAVA_HOME"])
    if path is None:
        raise SystemExit("no folder of this user's to keep classes in: set XDG_CACHE_HOME.")
    if not path.exists():
        try:
            make(path)
        except (MusterError, subprocess.SubprocessError) as error:
            raise SystemExit(f"Spark's classes were not kept: {error}") from None
    if path.exists():
        print(f"Spark's classes ready in {time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
