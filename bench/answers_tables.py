"""Published tables of a cluster that never was: groups of every kind of trouble, with days of history.

Rows go to files through the store, sorted as a run that joins small files leaves them: tables like any others.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from muster.tables.schemas import PUBLISHED, TABLES
from muster.tables.storage.changes import begin_run
from muster.tables.storage.files import TableWriter
from muster.tables.storage.manifest import PartitionProgress
from muster.tables.storage.store import TableStore

DAY_MS, MINUTE_MS = 86_400_000, 60_000
NOW_MS = 1_794_960_000_000
"""2026-11-18T00:00:00Z, so days are whole."""
TROUBLES = ("OK",) * 90 + ("WARN",) * 4 + ("STOPPED",) * 2 + ("STALLED", "REWIND", "LOSING", "EXPIRING")
"""Of a hundred groups."""
GROUPS_A_TOPIC = 4
TEAMS = ("orders", "billing", "search", "fraud", "mail", "ledger", "stock", "audit")
MEMBERS = 3
SILENT_MS = {"STOPPED": 3 * 3_600_000, "EXPIRING": 7 * DAY_MS - 5 * 3_600_000}
"""How long ago a group committed last, where that is no matter of seconds."""


class World(NamedTuple):
    groups: int = 1000
    partitions: int = 10
    days: int = 2
    step_ms: int = 10 * MINUTE_MS

    @property
    def start_ms(self) -> int:
        return NOW_MS - self.days * DAY_MS

    def group(self, number: int) -> str:
        return f"{TEAMS[number % len(TEAMS)]}-{number:05d}"

    def topic(self, number: int) -> str:
        return f"topic-{number // GROUPS_A_TOPIC:04d}"

    def trouble(self, number: int) -> str:
        return TROUBLES[number * 37 % len(TROUBLES)]


def make(folder: Path, world: World) -> None:
    """Tables in a folder, as one run."""
    store = TableStore(folder)
    with begin_run(store, run_id=f"run-{world.groups}-{world.days}", now_ms=NOW_MS) as run:
        for table in ("lag_history", "rates"):
            writer = TableWriter(table, TABLES[table], f"{store.address}/{table}", (), run.run_id)
            for day in range(world.days):
                for rows in (_lag_history if table == "lag_history" else _rates)(world, day):
                    writer.append(rows)
            writer.close()
            run.append(table, writer.files)
        for table, rows in _state(world).items():
            run.replace(table, rows)
        for table, rows in _history(world).items():
            run.append_rows(table, rows)
        progress = {0: PartitionProgress(1, 0, 0, 0, None, NOW_MS)}
        run.publish(progress, {"cluster_id": "bench", "observed_at_ms": NOW_MS}, now_ms=NOW_MS)


# Lags: of a key at a moment, by what troubles its group


def lags(world: World, group: np.ndarray, partition: np.ndarray, at_ms: np.ndarray) -> np.ndarray:
    """How far behind, in records; one is written every 100 ms."""
    seed = group * 7919 + partition * 104_729
    noise = (seed * 2_654_435_761 + at_ms // world.step_ms * 40_503) % 997 % 50
    troubles = np.array([world.trouble(number) for number in range(world.groups)])[group]
    since = np.maximum(at_ms - (NOW_MS - 3 * 3_600_000 - seed % (5 * 3_600_000)), 0)
    grows = np.isin(troubles, ["STOPPED", "STALLED", "LOSING"]) * since // 100
    swells = (troubles == "WARN") * since // 1000
    back = (troubles == "REWIND") * (since > 0) * 50_000
    return (noise + grows + swells + back).astype(np.int64)


def _ends(at_ms: np.ndarray, world: World) -> np.ndarray:
    return (at_ms - world.start_ms) // 100 + 1_000_000


def _keys_and_times(world: World, day: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Group, partition and start of interval of some rows at a time, in order."""
    starts = np.arange(world.start_ms + day * DAY_MS, world.start_ms + (day + 1) * DAY_MS, world.step_ms)
    order = np.argsort([world.group(number) for number in range(world.groups)])
    lot = max(200_000 // (len(starts) * world.partitions), 1)
    for first in range(0, world.groups, lot):
        some = order[first : first + lot]
        group = np.repeat(some, world.partitions * len(starts))
        partition = np.tile(np.repeat(np.arange(world.partitions), len(starts)), len(some))
        yield group, partition, np.tile(starts, len(some) * world.partitions)


def _names(world: World, group: np.ndarray) -> tuple[pa.Array, pa.Array]:
    groups = pa.array([world.group(number) for number in range(world.groups)])
    topics = pa.array([world.topic(number) for number in range(world.groups)])
    return groups.take(pa.array(group)), topics.take(pa.array(group))


def _table(name: str, columns: dict[str, Any], count: int) -> pa.Table:
    """Rows with these columns; others are empty, or 0 where they may not be."""
    arrays = []
    for field, published in zip(TABLES[name], PUBLISHED[name], strict=True):
        given = columns.get(field.name)
        if given is not None:
            arrays.append(pa.array(given, field.type) if not isinstance(given, pa.Array) else given.cast(field.type))
        elif published.nullable:
            arrays.append(pa.nulls(count, field.type))
        else:
            arrays.append(pa.array(np.zeros(count)).cast(field.type))
    return pa.Table.from_arrays(arrays, schema=TABLES[name])


def _lag_history(world: World, day: int) -> Iterator[pa.Table]:
    for group, partition, start in _keys_and_times(world, day):
        at = start + world.step_ms
        lag, end = lags(world, group, partition, at), _ends(at, world)
        names, topics = _names(world, group)
        yield _table("lag_history", {
            "group_id": names, "topic": topics, "partition": partition, "interval_start_ms": start,
            "interval_ms": np.full(len(start), world.step_ms), "at_ms": at, "committed_offset": end - lag,
            "log_end_offset": end, "log_end_by": pa.repeat("observed", len(start)), "lag": lag, "lag_ms": lag * 100,
            "commits": np.where(lag > 100_000, 0, 10), "last_commit_ms": at - lag * 100 // 2, "log_offset": end,
        }, len(start))  # fmt: skip


def _rates(world: World, day: int) -> Iterator[pa.Table]:
    for group, partition, start in _keys_and_times(world, day):
        kept = start // world.step_ms % (6 if world.groups > 1000 else 1) == 0  # what is measured is not its size
        group, partition, start = group[kept], partition[kept], start[kept]
        names, topics = _names(world, group)
        yield _table("rates", {
            "group_id": names, "topic": topics, "partition": partition, "interval_start_ms": start,
            "interval_ms": np.full(len(start), world.step_ms), "commits": np.full(len(start), 10),
            "consumed": 5000 + (group * 31 + start // world.step_ms * 17) % 900, "rewinds": np.zeros(len(start)),
        }, len(start))  # fmt: skip


# State of now, and the other histories


def _state(world: World) -> dict[str, pa.Table]:
    group = np.repeat(np.arange(world.groups), world.partitions)
    partition = np.tile(np.arange(world.partitions), world.groups)
    now = np.full(len(group), NOW_MS)
    lag, end = lags(world, group, partition, now), _ends(now, world)
    names, topics = _names(world, group)
    troubles = [world.trouble(number) for number in range(world.groups)]
    owner = [f"client-{number}-{place % MEMBERS}" for number, place in zip(group, partition, strict=True)]
    keys = {"group_id": names, "topic": topics, "partition": partition, "committed_offset": end - lag}
    of_groups = pa.array([world.group(number) for number in range(world.groups)])
    expires = np.where(np.array(troubles)[group] == "EXPIRING", NOW_MS + 5 * 3_600_000, 0)
    expires_at = pa.array(expires, mask=expires == 0)
    last_commit = now - np.array([SILENT_MS.get(word, 4_000) for word in troubles])[group] - partition * 100
    since = pa.array(now - np.array([0 if word == "OK" else 3 * 3_600_000 for word in troubles])[group])
    return {
        "groups": _table("groups", {
            "group_id": of_groups, "type": ["classic"] * world.groups,
            "state": ["Empty" if word == "EXPIRING" else "Stable" for word in troubles],
            "generation": np.arange(world.groups) % 50 + 1, "protocol_type": ["consumer"] * world.groups,
            "protocol": ["range"] * world.groups,
            "members": [0 if word == "EXPIRING" else MEMBERS for word in troubles],
            "committed_partitions": np.full(world.groups, world.partitions),
        }, world.groups),
        "members": _members(world),
        "offsets": _table("offsets", keys | {
            "metadata": pa.repeat("", len(group)), "commit_timestamp_ms": last_commit, "timestamp_ms": last_commit,
        }, len(group)),
        "lag": _table("lag", keys | {
            "log_end_offset": end, "lag": lag, "offset_lag": lag, "lag_ms": lag * 100, "observed_at_ms": now,
            "lag_ms_by": pa.repeat("exact", len(group)), "commit_timestamp_ms": last_commit, "member_id": owner,
            "client_id": owner, "client_host": pa.repeat("/10.0.0.7", len(group)),
            "lost_records": np.where(np.array(troubles)[group] == "LOSING", 1000, 0), "log_start_offset": end * 0,
        }, len(group)),
        "status": _table("status", keys | {
            "verdict": np.array(troubles)[group].tolist(), "verdict_since_ms": since, "at_ms": now, "lag": lag,
            "log_end_offset": end, "lag_ms": lag * 100, "last_commit_ms": last_commit,
        }, len(group)),
        "expiry": _table("expiry", keys | {
            "expires_at_ms": expires_at, "at_ms": now, "retention_ms": np.full(len(group), 7 * DAY_MS),
            "rule": ["since group became empty" if each else "kept: active subscription" for each in expires],
        }, len(group)),
        "findings": _findings(world, troubles),
    }  # fmt: skip


def _members(world: World) -> pa.Table:
    rows = [
        {"group_id": world.group(number), "type": "classic", "member_id": f"client-{number}-{place}", "generation": 1,
         "client_id": f"client-{number}-{place}", "client_host": "/10.0.0.7", "offsets_partition": 0,
         "assignment": [_assigned(world, number, place)]}
        for number in range(world.groups) for place in range(MEMBERS) if world.trouble(number) != "EXPIRING"
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=TABLES["members"])


def _assigned(world: World, group: int, place: int) -> dict[str, Any]:
    return {"topic": world.topic(group), "partitions": list(range(place, world.partitions, MEMBERS))}


def _findings(world: World, troubles: list[str]) -> pa.Table:
    kinds = {"STALLED": "stuck-partition", "REWIND": "rewound-partition", "EXPIRING": "about-to-expire"}
    rows = [
        {"kind": kinds[word], "severity": "warning" if word == "EXPIRING" else "error", "group_id": world.group(number),
         "topic": world.topic(number), "partition": 0, "since_ms": NOW_MS - 3 * 3_600_000, "at_ms": NOW_MS,
         "evidence": json.dumps({"lag": number}),
         "sentence": f"Partition 0 of {world.group(number)} is {word.lower()}.",
         "what_to_do": "Look at the consumer that has it."}
        for number, word in enumerate(troubles) if word in kinds
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=TABLES["findings"])


def _history(world: World) -> dict[str, pa.Table]:
    names = [world.group(number) for number in range(world.groups)]
    group = np.repeat(np.arange(world.groups), world.partitions)
    partition = np.tile(np.arange(world.partitions), world.groups)
    ids, topics = _names(world, group)
    first = {"group_id": ids, "topic": topics, "partition": partition, "at_ms": np.full(len(group), world.start_ms),
             "verdict": pa.repeat("OK", len(group)), "run_number": np.zeros(len(group))}  # fmt: skip
    troubles = np.array([world.trouble(number) for number in range(world.groups)])[group]
    ill = troubles != "OK"
    then = {"group_id": ids.filter(pa.array(ill)), "topic": topics.filter(pa.array(ill)), "partition": partition[ill],
            "at_ms": np.full(ill.sum(), NOW_MS - 3 * 3_600_000), "verdict": troubles[ill].tolist(),
            "verdict_before": pa.repeat("OK", ill.sum()), "run_number": np.ones(ill.sum())}  # fmt: skip
    return {
        "verdicts": pa.concat_tables([_table("verdicts", first, len(group)), _table("verdicts", then, int(ill.sum()))]),
        "rebalances": _rebalances(world, names),
        "group_records": _group_records(world, names),
        "log_ends": _log_ends(world),
    }


def _times(world: World, number: int) -> list[int]:
    """When a group rebalanced: some do so more often."""
    count = 40 if number % 50 == 7 else 4
    return [world.start_ms + (place + 1) * world.days * DAY_MS // (count + 1) for place in range(count)]


def _rebalances(world: World, names: list[str]) -> pa.Table:
    rows = [
        {"group_id": name, "generation": place + 1, "at_ms": at_ms,
         "cause": ("member left", "member joined")[place % 2],
         "members": MEMBERS - 1 + place % 2, "joined": [f"client-{number}-2"] if place % 2 else [],
         "left": [] if place % 2 else [f"client-{number}-2"], "type": "classic", "offsets_partition": 0,
         "log_offset": number * 100 + place, "partitions_moved": 3, "commit_gap_ms": 2500}
        for number, name in enumerate(names) for place, at_ms in enumerate(_times(world, number))
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=TABLES["rebalances"])


def _group_records(world: World, names: list[str]) -> pa.Table:
    def members(number: int, count: int) -> list[dict[str, Any]]:
        return [
            {"member_id": f"client-{number}-{place}", "client_id": f"client-{number}-{place}",
             "client_host": "/10.0.0.7", "assignment": [_assigned(world, number, place)]}
            for place in range(count)
        ]  # fmt: skip

    rows = [
        {"offsets_partition": 0, "log_offset": number * 100 + place, "timestamp_ms": at_ms, "record_type": 2,
         "is_tombstone": False, "group_id": name, "epoch": place + 1,
         "members": members(number, MEMBERS - 1 + place % 2)}
        for number, name in enumerate(names) for place, at_ms in enumerate(_times(world, number))
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=TABLES["group_records"])


def _log_ends(world: World) -> pa.Table:
    topics = sorted({world.topic(number) for number in range(world.groups)})
    hours = np.arange(world.start_ms, NOW_MS + 1, 3_600_000)
    count = len(topics) * world.partitions * len(hours)
    topic = pa.array(topics).take(pa.array(np.repeat(np.arange(len(topics)), world.partitions * len(hours))))
    observed = np.tile(hours, len(topics) * world.partitions)
    return _table("log_ends", {
        "topic": topic, "partition": np.tile(np.repeat(np.arange(world.partitions), len(hours)), len(topics)),
        "observed_at_ms": observed, "log_start_offset": np.zeros(count), "log_end_offset": _ends(observed, world),
        "run_number": (observed - world.start_ms) // 3_600_000,
    }, count)  # fmt: skip
