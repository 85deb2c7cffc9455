"""What the rebalances of a log cost: `python -m bench.rebalances --generations 200000 --groups 2000`.

Makes group records of classic groups as a merge reads them (Arrow batches by group, in log order), with 3 to 50
members, lets `muster.pipeline.rebalances` tell their rebalances, and prints one JSON line: CPU microseconds a record,
and by how many bytes a record the memory of the process grew after the first batch. A member owns two partitions on
average. Of the generations one third each: a member joins, one leaves, neither. One group in four has static members.
"""

import argparse
import json
import resource
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from muster.pipeline.rebalances.causes import rebalance_batches
from muster.tables.schemas import GROUP_RECORDS

CLASSIC_MEMBER = GROUP_RECORDS.field("members").type.value_type
ASSIGNED = CLASSIC_MEMBER.field("assignment").type.value_type
START_MS = 1_800_000_000_000


def group_records(group: int, generations: int, random: np.random.Generator) -> pa.RecordBatch:
    """All generations of one group."""
    size = int(random.integers(3, 51))
    here, fresh, lists = list(range(size)), size, []
    for step in random.integers(0, 3, generations):
        if step == 0 and len(here) < 50:
            here = [*here, fresh]
            fresh += 1
        elif step == 1 and len(here) > 3:
            gone = int(random.integers(len(here)))
            here = here[:gone] + here[gone + 1 :]
        lists.append(np.array(here, np.int64))
    counts = np.array([len(one) for one in lists])
    members = np.concatenate(lists)
    names = pa.array([f"consumer-app-{group}-{one}-5f0c9d1e-7b1a-4c55-9d5e-{one:012d}" for one in range(fresh)])
    partitions = 2 * size
    owner = np.concatenate([np.arange(partitions) * count // partitions for count in counts])
    starts = np.concatenate([[0], np.cumsum(counts)])
    entry = owner + np.repeat(starts[:-1], partitions)
    owned = pa.ListArray.from_arrays(
        pa.array(np.concatenate([[0], np.cumsum(np.bincount(entry, minlength=len(members)))]), pa.int32()),
        pa.array(np.tile(np.arange(partitions), generations), pa.int32()),
    )
    topic, nothing = pa.array([f"orders-{group % 50}"]), pa.nulls(len(members), pa.string())
    topics = topic.take(pa.array(np.zeros(len(members), np.int64)))
    each = pa.array(np.arange(len(members) + 1), pa.int32())
    assigned = pa.StructArray.from_arrays([topics, nothing, owned], fields=list(ASSIGNED))
    columns = {
        "member_id": names.take(pa.array(members)),
        "instance_id": pa.array([f"pod-{one}" for one in range(fresh)]).take(pa.array(members))
        if group % 4 == 0
        else nothing,
        "client_id": topics,
        "client_host": topics,
        "rebalance_timeout_ms": pa.array(np.full(len(members), 300_000), pa.int32()),
        "session_timeout_ms": pa.array(np.full(len(members), 45_000), pa.int32()),
        "subscribed_topics": pa.ListArray.from_arrays(each, topics),
        "assignment": pa.ListArray.from_arrays(each, assigned),
    }
    listed = pa.ListArray.from_arrays(
        pa.array(starts, pa.int32()), pa.StructArray.from_arrays(list(columns.values()), fields=list(CLASSIC_MEMBER))
    )
    offsets = np.arange(generations)
    made = {
        "offsets_partition": np.zeros(generations, np.int32),
        "log_offset": offsets,
        "timestamp_ms": START_MS + offsets * 60_000,
        "record_type": np.full(generations, 2, np.int16),
        "is_tombstone": np.zeros(generations, np.bool_),
        "group_id": [f"app-{group:06d}"] * generations,
        "epoch": (offsets + 1).astype(np.int32),
        "protocol_type": ["consumer"] * generations,
        "protocol": ["range"] * generations,
        "leader": names.take(pa.array(members[starts[:-1]])),
        "members": listed,
    }
    blank = {field.name: pa.nulls(generations, field.type) for field in GROUP_RECORDS}
    known = {name: pa.array(values, GROUP_RECORDS.field(name).type) for name, values in made.items()}
    return pa.RecordBatch.from_arrays(list((blank | known).values()), schema=GROUP_RECORDS)


def log(generations: int, groups: int, seed: int, rows: int) -> Iterator[pa.RecordBatch]:
    """Batches as duckdb gives them: a group begins and ends anywhere in them."""
    random = np.random.default_rng(seed)
    waiting: list[pa.RecordBatch] = []
    for group in range(groups):
        waiting.append(group_records(group, generations // groups, random))
        while sum(map(len, waiting)) >= rows:
            whole = pa.Table.from_batches(waiting).combine_chunks().to_batches()[0]
            yield whole.slice(0, rows)
            waiting = [whole.slice(rows)]
    yield from pa.Table.from_batches(waiting).combine_chunks().to_batches()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--generations", type=int, default=200_000)
    parser.add_argument("--groups", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batch", type=int, default=4_096)
    asked = parser.parse_args()
    spent_s, records, rows = 0.0, 0, 0
    before_kb = 0

    def timed() -> Iterator[pa.RecordBatch]:
        nonlocal spent_s, records, before_kb
        for batch in log(asked.generations, asked.groups, asked.seed, asked.batch):
            records += len(batch)
            started = time.process_time()
            yield batch
            spent_s += time.process_time() - started
            before_kb = before_kb or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    for found in rebalance_batches(timed(), None, None):
        rows += len(found)
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb
    print(
        json.dumps(
            {
                "records": records,
                "rows": rows,
                "cpu_us_per_record": round(spent_s * 1e6 / records, 1),
                "grown_bytes_per_record": round(grown_kb * 1024 / records, 1),
                "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
            }
        )
    )


if __name__ == "__main__":
    main()
