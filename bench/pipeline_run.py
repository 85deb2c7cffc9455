"""What a measured process of `bench.pipeline` does. It is started with the source of one side, which may be older.

Spark is started, then every line on stdin is a run (`Request`, as JSON), and every line on stdout says what it did.
"""

import dataclasses
import json
import sys
import time
from importlib import import_module
from typing import Any


def engine() -> Any:
    try:
        from muster.pipeline.engine import SparkEngine
    except ImportError:  # before there were engines
        from muster.pipeline import job

        return vars(job)["OnSpark"]
    return SparkEngine


def session() -> Any:
    try:
        from muster.pipeline.spark.session import spark_session
    except ImportError:  # before Spark had a room of its own
        return import_module("muster.pipeline.session").spark_session()
    return spark_session()


def main() -> None:
    from muster.pipeline.job import Request, run

    began = time.perf_counter()
    make_engine, spark = engine(), session()
    known = {field.name for field in dataclasses.fields(Request)}
    print(json.dumps({"spark_s": time.perf_counter() - began}), flush=True)
    for line in sys.stdin:
        asked = {name: value for name, value in json.loads(line).items() if name in known}
        summary = run(make_engine(spark), Request(**asked))
        print(json.dumps({"records": summary.records, "seconds": summary.seconds}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
