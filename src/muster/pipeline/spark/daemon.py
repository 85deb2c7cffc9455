"""The process that Spark on one machine forks its Python workers from, with everything imported that tasks need.

Spark's own (`pyspark.daemon`) imports nothing of ours, so that every worker would do it again: 1.2 CPU seconds each.
What is imported here starts no threads but those that their libraries take care of when a process forks. It is kept
from the garbage collector (`gc.freeze`): Spark's workers collect after every task, which takes 80 ms otherwise.
"""

import gc

import pyarrow.dataset  # noqa: F401
from pyspark.daemon import manager

import muster.pipeline.extract.partition
import muster.pipeline.interval_task
import muster.pipeline.merge  # noqa: F401

if __name__ == "__main__":
    gc.freeze()
    manager()
