"""History tables of a corpus, or of any log, made without the pipeline: what its extract step writes to files."""

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from muster.pipeline.extract.shape import Shaped, shape
from muster.segments.reader import read_markers, record_batches
from muster.segments.sources import SourcePartition, Sources
from muster.tables.schemas import COMMITS, GROUP_RECORDS, GROUPS, MARKERS, MEMBERS, OFFSETS
from muster.tables.sql import queries
from muster.tables.sql.queries import DUCKDB_EXPLODE
from muster.tables.storage.changes import begin_run
from muster.tables.storage.manifest import PartitionProgress
from muster.tables.storage.store import TableStore
from tests.codec.corpus_records import CORPORA

History = dict[str, pa.Table]


@cache
def answers(name: str) -> dict[str, Any]:
    """What the live broker of a corpus told just before it stopped."""
    told: dict[str, Any] = json.loads((CORPORA / name / "expected" / "groups.json").read_text(encoding="utf-8"))
    return told


def topic_names(name: str) -> dict[str, str]:
    return {facts["topicId"]: topic for topic, facts in answers(name)["topics"].items() if facts.get("topicId")}


@cache
def history_of(name: str) -> History:
    with Sources([CORPORA / name / f"{name}.tar.zst"]) as sources:
        return history(sources.partitions, topic_names(name))


def history(partitions: Iterable[SourcePartition], names: dict[str, str]) -> History:
    """The history tables of these partitions; commits of transactions without an end are set apart."""
    pieces = [Shaped(COMMITS.empty_table(), GROUP_RECORDS.empty_table(), MARKERS.empty_table())]
    for partition in partitions:
        markers = read_markers(partition.segments)
        pieces += [shape(batch, markers, names) for batch in record_batches(partition.directory)]
    commits, group_records, marker_rows = (pa.concat_tables(some) for some in zip(*pieces, strict=True))
    is_open = pc.fill_null(pc.equal(commits["txn_outcome"], "open"), False)
    return {
        "commits": commits.filter(pc.invert(is_open)),
        "open_commits": commits.filter(is_open),
        "group_records": group_records,
        "markers": marker_rows,
    }


def asked(tables: History, sql: str) -> pa.Table:
    """The answer of duckdb to a query over these tables."""
    with duckdb.connect(config={"threads": 1}) as connection:
        for name, table in tables.items():
            connection.register(name, table)
        return connection.sql(sql).to_arrow_table()


def state_of(tables: History) -> History:
    """The state tables, each made of those before it."""
    tables = dict(tables)
    tables["offsets"] = asked(tables, queries.offsets("commits")).select(OFFSETS.names).cast(OFFSETS)
    tables["group_state"] = asked(tables, queries.group_state("group_records"))
    tables["members"] = asked(tables, queries.members("group_state", DUCKDB_EXPLODE)).select(MEMBERS.names)
    tables["members"] = tables["members"].cast(MEMBERS)
    tables["groups"] = asked(tables, queries.groups("group_state", "members", "offsets", "open_commits"))
    tables["groups"] = tables["groups"].select(GROUPS.names).cast(GROUPS)
    return tables


@cache
def state_at_the_end(name: str) -> History:
    return state_of(history_of(name))


PUBLISHED_AT_MS = 1_794_850_000_000  # some hours after the last record of any corpus


def published(path: Path, tables: History, progress: dict[int, PartitionProgress] | None = None) -> TableStore:
    """These tables in a store, as one run."""
    store = TableStore(path)
    with begin_run(store, run_id="a-run", now_ms=PUBLISHED_AT_MS) as run:
        for name, table in tables.items():
            run.replace(name, table)
        run.publish(progress or {}, {"cluster_id": "abc"}, now_ms=PUBLISHED_AT_MS)
    return store
