"""Tables of a small cluster with three days of history: a group that is well, one that stopped, and hostile names."""

from pathlib import Path
from typing import Any

from muster.tables.storage.changes import begin_run
from muster.tables.storage.manifest import PartitionProgress
from muster.tables.storage.store import TableStore
from tests.tables.made import made

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
NOW_MS = 1_794_960_000_000
"""2026-11-18T00:00:00Z"""
START_MS = NOW_MS - 3 * DAY_MS
INTERVAL_MS = 300_000
STOPPED_MS = NOW_MS - 5 * HOUR_MS
"""Since when `orders` commits nothing."""
RUN_ID = "first"
FORGOTTEN_MS = 6 * DAY_MS + 18 * HOUR_MS
"""How long ago a group committed that expires soon."""

HOSTILE = [
    "<img src=x onerror=\"document.title='pwned'\">",
    "</script><script>document.title='pwned'</script>",
    "javascript:document.title='pwned'",
    "'\"><svg onload=document.title='pwned'>",
    "{{ 7 * 7 }}{% raw %}${document.title='pwned'}",
    "\u202egnp.exe\u0000\u2028\u2029]]><!--",
    "a/../../b?id=c#d&at=1%00%3Cb%3E",
    "constructor",
    "__proto__",
]
GROUPS = {"orders": "clicks", "billing": "clicks", "idle": "quiet", **{name: f"topic {name}" for name in HOSTILE}}
"""Group to its topic."""
PARTITIONS = 2


def lag_at(group_id: str, partition: int, at_ms: int) -> int:
    """How far behind a partition was when an interval ended."""
    if group_id == "orders" and at_ms > STOPPED_MS:
        return (at_ms - STOPPED_MS) // 1000 * (partition + 1)
    return 0 if group_id == "idle" else 10 * partition + at_ms // HOUR_MS % 3


def publish(
    path: Path, run_id: str = RUN_ID, now_ms: int = NOW_MS, cluster_id: str | None = "<b>cluster</b>", **others: Any
) -> TableStore:
    """The tables; `others` are put in place of rows by their table."""
    store = TableStore(path)
    with begin_run(store, run_id=run_id, now_ms=now_ms) as run:
        for table, rows in (tables(now_ms) | others).items():
            run.replace(table, made(table, *rows))
        progress = {0: PartitionProgress(1, 0, 0, 0, None, now_ms)}
        run.publish(progress, {"cluster_id": cluster_id, "observed_at_ms": now_ms}, now_ms=now_ms)
    return store


def publish_forgotten(path: Path) -> None:
    """With one group more, which committed once, as nobody's member, `FORGOTTEN_MS` ago: a week later it is gone."""
    key = {"group_id": "forgotten", "topic": "clicks", "partition": 0}
    at_ms = NOW_MS - FORGOTTEN_MS
    commit = key | {"offsets_partition": 0, "log_offset": 0, "timestamp_ms": at_ms, "commit_timestamp_ms": at_ms,
                    "committed_offset": 5, "kind": "commit"}  # fmt: skip
    publish(path, commits=[commit], lag_history=[*tables()["lag_history"], _interval(key, at_ms)])


def tables(now_ms: int = NOW_MS) -> dict[str, list[dict[str, Any]]]:
    keys = [
        {"group_id": group_id, "topic": topic, "partition": number}
        for group_id, topic in GROUPS.items()
        for number in range(PARTITIONS)
    ]
    return {
        "groups": [_group(group_id) for group_id in GROUPS],
        "members": [],
        "lag": [_lag(key, now_ms) for key in keys],
        "lag_history": [_interval(key, start_ms) for key in keys for start_ms in range(START_MS, now_ms, HOUR_MS)],
        "rates": [
            key | {"interval_start_ms": start_ms, "interval_ms": INTERVAL_MS, "commits": 30, "consumed": 600}
            for key in keys
            for start_ms in range(START_MS, now_ms, HOUR_MS)
            if key["group_id"] != "orders" or start_ms < STOPPED_MS
        ],
        "status": [_status(key, now_ms) for key in keys],
        "verdicts": [
            *(key | {"at_ms": START_MS, "verdict": "OK", "run_number": 0} for key in keys),
            *(key | {"at_ms": STOPPED_MS + HOUR_MS, "verdict": "STOPPED", "verdict_before": "OK", "run_number": 1}
              for key in keys if key["group_id"] == "orders"),
        ],
        "expiry": [
            key | {"expires_at_ms": now_ms + DAY_MS, "rule": "since last commit", "at_ms": now_ms,
                   "retention_ms": 7 * DAY_MS} for key in keys
        ],
        "findings": [_finding(group_id, topic, now_ms) for group_id, topic in GROUPS.items() if group_id != "billing"],
        "log_ends": [
            {"topic": topic, "partition": number, "observed_at_ms": at_ms, "log_start_offset": 5,
             "log_end_offset": 1000 + (at_ms - START_MS) // 1000, "run_number": at_ms}
            for topic in sorted(set(GROUPS.values())) for number in range(PARTITIONS)
            for at_ms in (START_MS, now_ms - 30 * HOUR_MS, now_ms)
        ],
        "group_records": _records(),
        "rebalances": _rebalances(),
    }  # fmt: skip


def _end(at_ms: int) -> int:
    return 1000 + (at_ms - START_MS) // 1000


def _interval(key: dict[str, Any], start_ms: int) -> dict[str, Any]:
    """A row an hour: in between nothing changed."""
    at_ms = start_ms + INTERVAL_MS
    lag = lag_at(key["group_id"], key["partition"], at_ms)
    return key | {
        "interval_start_ms": start_ms, "interval_ms": INTERVAL_MS, "at_ms": at_ms,
        "committed_offset": _end(at_ms) - lag,
        "log_end_offset": _end(at_ms), "log_end_by": "observed", "lag": lag, "lag_ms": lag * 1000, "commits": 30,
        "last_commit_ms": at_ms, "log_offset": 1,
    }  # fmt: skip


def _group(group_id: str) -> dict[str, Any]:
    return {"group_id": group_id, "type": "classic", "state": "Stable", "generation": 3, "protocol": group_id,
            "protocol_type": "consumer", "members": 2, "committed_partitions": PARTITIONS}  # fmt: skip


def _lag(key: dict[str, Any], now_ms: int) -> dict[str, Any]:
    lag, name = lag_at(key["group_id"], key["partition"], now_ms), key["group_id"]
    return key | {
        "committed_offset": _end(now_ms) - lag, "log_end_offset": _end(now_ms), "lag": lag, "offset_lag": lag,
        "lag_ms": lag * 1000, "lag_ms_by": "exact", "observed_at_ms": now_ms, "metadata": name, "member_id": name,
        "client_id": name, "client_host": name, "lost_records": 0, "log_start_offset": 5,
        "commit_timestamp_ms": STOPPED_MS if name == "orders" else now_ms - 2000,
    }  # fmt: skip


def _status(key: dict[str, Any], now_ms: int) -> dict[str, Any]:
    has_stopped = key["group_id"] == "orders"
    lag = lag_at(key["group_id"], key["partition"], now_ms)
    return key | {"verdict": "STOPPED" if has_stopped else "OK", "at_ms": now_ms, "lag": lag, "lag_ms": lag * 1000,
                  "verdict_since_ms": STOPPED_MS + HOUR_MS if has_stopped else START_MS}  # fmt: skip


def _finding(group_id: str, topic: str, now_ms: int) -> dict[str, Any]:
    return {"kind": "stuck-partition", "severity": "error", "group_id": group_id, "topic": topic, "partition": 0,
            "member_id": group_id, "since_ms": STOPPED_MS, "at_ms": now_ms, "evidence": '{"lag": "<i>"}',
            "sentence": f"{group_id} is stuck.", "what_to_do": f"Look at {group_id}."}  # fmt: skip


def _records() -> list[dict[str, Any]]:
    """Two members; the second leaves and comes back."""
    rows = []
    for number, (group_id, topic) in enumerate(GROUPS.items()):
        for place, (at_ms, count) in enumerate(_generations()):
            rows.append({
                "offsets_partition": 0, "log_offset": number * 10 + place, "timestamp_ms": at_ms, "record_type": 2,
                "is_tombstone": False, "group_id": group_id, "epoch": place + 1,
                "members": [_member(group_id, topic, each, count) for each in range(count)],
            })  # fmt: skip
    return rows


def _generations() -> list[tuple[int, int]]:
    return [(START_MS, 2), (NOW_MS - 20 * HOUR_MS, 1), (NOW_MS - 10 * HOUR_MS, 2)]


def _member(group_id: str, topic: str, number: int, count: int) -> dict[str, Any]:
    partitions = [each for each in range(PARTITIONS) if each % count == number]
    return {"member_id": f"{group_id}-{number}", "client_id": f"{group_id} client {number}", "client_host": group_id,
            "assignment": [{"topic": topic, "topic_id": None, "partitions": partitions}]}  # fmt: skip


def _rebalances() -> list[dict[str, Any]]:
    causes = ("first members", "member left", "member joined")
    return [
        {"group_id": group_id, "generation": place + 1, "at_ms": at_ms, "cause": causes[place], "members": count,
         "joined": [group_id] if place == 2 else [], "left": [group_id] if place == 1 else [], "type": "classic",
         "offsets_partition": 0, "log_offset": number * 10 + place, "partitions_moved": 1}
        for number, group_id in enumerate(GROUPS) for place, (at_ms, count) in enumerate(_generations())
    ]  # fmt: skip
