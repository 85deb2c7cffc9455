"""A partition into a coordinator that serves: 5 M records with 1 M distinct offsets, and the memory they take."""

import json
import sys
import time
import tracemalloc
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.dump import CACHE
from muster.codec.batches import encode_batch
from muster.codec.offsets_topic import OffsetValue, encode_key, encode_offset_value, offset_key
from muster.codec.records import Record
from muster.core.coordinator import Coordinator
from muster.core.events import Instant, JoinGroup
from muster.core.groups import Group, restore
from muster.core.outcome import Outcome
from muster.log.loading import load_latest
from muster.segments.sources import Sources

GROUPS, PARTITIONS, ROUNDS = 20_000, 50, 5
RECORDS = GROUPS * PARTITIONS * ROUNDS
START_MS = 1_760_000_000_000
SEGMENT_BYTES = 100 << 20


def make_log(folder: Path) -> Path:
    """One partition; every group commits all its partitions in one batch, over and over."""
    partition = folder / "__consumer_offsets-0"
    if (folder / "done").exists():
        return folder
    partition.mkdir(parents=True, exist_ok=True)
    keys = [
        [encode_key(offset_key(f"group-{group:05}", f"topic-{group % 100:03}", each)) for each in range(PARTITIONS)]
        for group in range(GROUPS)
    ]
    offset, file, size = 0, None, 0
    for turn in range(ROUNDS):
        for group in range(GROUPS):
            if file is None or size > SEGMENT_BYTES:
                file, size = (partition / f"{offset:020}.log").open("wb"), 0
            value = encode_offset_value(OffsetValue(turn * 1_000 + group, 0, "", START_MS + turn), 4)
            batch = encode_batch(
                [Record(offset + place, START_MS + turn, key, value) for place, key in enumerate(keys[group])]
            )
            size += file.write(batch)
            offset += PARTITIONS
    (folder / "done").touch()
    return folder


def load(folder: Path) -> tuple[float, float, int]:
    """Seconds to read, seconds to put in place, offsets."""
    with Sources([folder]) as sources:
        started = time.perf_counter()
        loaded = load_latest(sources.partitions[0])
        read = time.perf_counter()
        coordinator = Coordinator()
        report = restore(coordinator.table, loaded)
        coordinator.activate(Instant(0, START_MS), Outcome())
        done = time.perf_counter()
    return read - started, done - read, report.offsets


def memory(folder: Path) -> dict[str, float]:
    """Bytes for each group, member and offset, as Python's allocator counts them."""
    with Sources([folder]) as sources:
        loaded = load_latest(sources.partitions[0])
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        coordinator = Coordinator()
        restore(coordinator.table, loaded)
        del loaded
        # The packed offsets were made by the reader; what is traced is their places.
        placed = tracemalloc.get_traced_memory()[0] - before
    offsets = sum(len(group.offsets) for group in coordinator.groups.values())
    packed = sum(sys.getsizeof(each) for group in coordinator.groups.values() for each in group.offsets.values())
    before = tracemalloc.get_traced_memory()[0]
    groups = [Group(f"group {number}") for number in range(10_000)]
    per_group = (tracemalloc.get_traced_memory()[0] - before) / len(groups)
    joined = Coordinator()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(10_000):
        request = JoinGroup(
            number, 3, "g", "", f"uuid-{number:08}", "client", "/127.0.0.1", 45_000, 300_000, "consumer",
            (("range", b"x" * 40),),
        )  # fmt: skip
        out = Outcome()
        joined.handle(request, Instant(0, 0), out)
        for write in out.writes:  # the record of a new group is taken, and its first join goes on
            joined.appended(write, number, out)
    assert len(joined.groups["g"].seats.members) == 10_000
    per_member = (tracemalloc.get_traced_memory()[0] - before) / 10_000
    tracemalloc.stop()
    return {
        "bytes per offset": (placed + packed) / offsets,
        "bytes per empty group": per_group,
        "bytes per member, its parked join included": per_member,
    }


def main() -> None:
    folder = make_log(CACHE / "distinct")
    load(folder)
    read_s, place_s, offsets = min((load(folder) for _ in range(3)), key=lambda times: times[0] + times[1])
    results = {
        "records": RECORDS,
        "offsets": offsets,
        "read, s": read_s,
        "put in place, s": place_s,
        "M records/s": RECORDS / (read_s + place_s) / 1e6,
        **memory(folder),
    }
    print(json.dumps({name: round(value, 2) for name, value in results.items()}))


if __name__ == "__main__":
    main()
