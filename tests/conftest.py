"""Fixtures shared by all tests.

    kafka    a real broker of the default version, started when the first test asks for it, one for the whole run.
             Others use it too: choose names of your own for groups and topics. Skips where Kafka cannot be had.
    driven   what `tests.real.drive` did to that broker, once: groups, commits, transactions and deletions by name.
    object_store
             storage options of a stand-in for S3 with one bucket, `bucket`; one for the whole run, too.

A test with a broker of its own (other settings, another version, one to kill) uses `tests.kit.kafka.KafkaBroker`.
"""

from __future__ import annotations

import gc
import os
import signal
import time
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.kit.kafka import KafkaBroker, require_kafka

if TYPE_CHECKING:
    from tests.real.drive import Drive

os.environ["TZ"] = "UTC"  # times are shown by the clock on the wall
time.tzset()

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A script that puts the tests into its background has Ctrl-C ignored, and every process they start would, too.
    signal.signal(signal.SIGINT, signal.default_int_handler)

ON_SPARK = (
    "tests/pipeline/test_datasource.py",
    "tests/pipeline/test_ordinary_cluster.py",
    "tests/pipeline/test_live_truth.py",  # these two for the broker of the file before
    "tests/pipeline/test_lag_history_truth.py",
    "tests/pipeline/test_catalog.py",
    "tests/pipeline/test_class_archive.py",
    "tests/pipeline/test_spark.py",
    "tests/pipeline/test_engine.py",
    "tests/pipeline/test_lost_ground.py",
    "tests/pipeline/test_open_docs.py",
    "tests/pipeline/test_published.py",
    "tests/pipeline/test_stream.py",
    "tests/pipeline/test_frames_spark.py",
)
"""Files that share the session `spark`."""
ON_KAFKA = (
    "tests/answers/test_truth.py",
    "tests/cli/test_groups_real.py",
    "tests/exporter/test_kafka.py",
    "tests/pipeline/test_live.py",
    "tests/real/test_kafka_kit.py",
    "tests/real/test_live_log.py",
    "tests/server/wire/test_broker.py",
)
"""Files that share the broker `kafka`."""
TOGETHER = (
    ON_SPARK,
    ON_KAFKA,
    ("tests/live/test_doors.py", "tests/live/test_kafka.py"),
    ("tests/server/cluster/test_kafka_",),
    ("tests/server/real/test_java_groups.py", "tests/server/real/test_java_tools.py"),
    ("tests/server/wire_diff/",),
    ("tests/tables/test_object_store.py", "tests/pipeline/test_extract_stores.py"),
)
"""How names of files begin that one process takes, so that what they share is started once."""
SHARED = ("kafka", "ordinary", "spark", "guarded", "object_store")
"""Fixtures that those files share."""

LONGEST = (
    *ON_SPARK,
    "tests/cli/test_groups_real.py",
    "tests/test_demo.py",
    "tests/diff/test_diff.py",
    "tests/server/cluster/test_kafka_offsets.py",
    "tests/server/wire_diff/test_delivery.py",
    "tests/pipeline/test_kills.py",
    "tests/tables/test_compact.py",
    "tests/log/disk/test_power_cuts.py",
    "tests/pipeline/test_job.py",
    "tests/server/real/test_java_groups.py",
    "tests/server/real/test_java_tools.py",  # for the brokers of the file before
    "tests/cli/test_dump.py",
    "tests/cli/test_pipeline.py",
    "tests/protocol/test_messages.py",
    "tests/pipeline/test_pieces.py",
    "tests/pipeline/test_frames.py",
    "tests/pipeline/test_extract.py",
    "tests/pipeline/test_life.py",
    "tests/pipeline/test_other_logs.py",
    "tests/codec/test_render.py",
    "tests/server/real/test_moves.py",
    "tests/server/test_stopping.py",
    "tests/diff/test_server.py",
)
"""In order of what they cost. One file of those that go together is enough."""


LIKE_OTHERS = frozenset({"k26", "k26-full", "k39", "k39-full", "k40", "k41"})
"""Corpora of versions between those of the others: tests of every corpus have these in `make real`."""


MINIS = frozenset({"mini-zstd-43", "mini-lz4-39", "mini-snappy-26"})
"""Corpora of one codec of compression each. What is made of decoded records has these in `make real` too."""
OF_DECODED_RECORDS = ("tests/pipeline/", "tests/tables/")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Modules and seven thousand tests are made, and stay: looking for garbage among them is half of the work."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()  # nor is it looked for there while tests run
        gc.enable()


def pytest_sessionfinish() -> None:
    gc.unfreeze()  # libraries in C++ complain of what is never cleared away


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take long come first, so that no core is idle at the end while another is busy with one of them."""
    for item in items:
        callspec = getattr(item, "callspec", None)
        left_out = LIKE_OTHERS | MINIS if item.nodeid.startswith(OF_DECODED_RECORDS) else LIKE_OTHERS
        if callspec is not None and any(isinstance(one, str) and one in left_out for one in callspec.params.values()):
            item.add_marker(pytest.mark.matrix)
    places = {name: place for place, name in reversed(list(enumerate(LONGEST)))}
    first = {_lot_of(name): place for name, place in places.items()}

    def place(item: pytest.Item) -> tuple[int, str, int]:
        lot = _lot_of(item.nodeid)
        return first.get(lot, len(LONGEST)), lot, places.get(_file_of(item.nodeid), len(LONGEST))

    items.sort(key=place)


def _file_of(nodeid: str) -> str:
    return nodeid.split("::", 1)[0]


def _lot_of(nodeid: str) -> str:
    """What one process takes as a whole: a file, or files that share something."""
    file = _file_of(nodeid)
    return next((files[0] for files in TOGETHER if file.startswith(files)), file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file is for one process, and so are files that share a broker or a Spark."""
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _lot_of(nodeid)

    return ByFile(config, log)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """What files share is ended behind the last of them: a broker that nobody uses takes a fiftieth of a core."""
    if nextitem is not None and _lot_of(nextitem.nodeid) == _lot_of(item.nodeid):
        return
    running: Any = item
    for name in SHARED:
        for fixture in running.session._fixturemanager.getfixturedefs(name, item) or ():
            fixture.finish(running._request)


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaBroker]:
    with KafkaBroker(require_kafka()) as broker:
        yield broker


@pytest.fixture(scope="session")
def object_store() -> Iterator[dict[str, str]]:
    from tests.kit.object_store import running_store

    with running_store() as options:
        yield options


@pytest.fixture(scope="session")
def driven(kafka: KafkaBroker) -> Drive:
    from tests.real.drive import drive  # its client library is only needed here

    return drive(kafka)
