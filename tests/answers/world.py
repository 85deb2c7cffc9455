"""Tables made by hand in which every number is known: four groups at 08:33:04 of a day in November.

orders-app   orders-0 stalled, 100 behind since 08:00; orders-1 at the end; two members; one came at 08:10
billing      bills-0 falls behind, 7 records; lost 3 of them
audit        orders-0 at the end; nobody is there; will be deleted tomorrow
new          an offset that nobody can judge: the end of its topic is not known
"""

from pathlib import Path
from typing import Any

from muster.tables.storage.changes import begin_run
from muster.tables.storage.manifest import PartitionProgress
from muster.tables.storage.store import TableStore
from tests.tables.made import made

NOW_MS = 1_794_904_384_000  # 2026-11-17 08:33:04 UTC
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
EIGHT_MS = NOW_MS - 33 * MINUTE_MS - 4000

Rows = dict[str, list[dict[str, Any]]]


def at(group_id: str, topic: str, partition: int, **more: Any) -> dict[str, Any]:
    return {"group_id": group_id, "topic": topic, "partition": partition, **more}


STATE: Rows = {
    "groups": [
        {"group_id": "orders-app", "type": "classic", "state": "Stable", "members": 2, "generation": 3,
         "committed_partitions": 2, "protocol": "range", "last_commit_timestamp_ms": NOW_MS - 4000},
        {"group_id": "billing", "type": "consumer", "state": "Stable", "members": 1, "generation": 9,
         "committed_partitions": 1, "last_commit_timestamp_ms": NOW_MS - 9000},
        {"group_id": "nightly-audit", "type": "classic", "state": "Empty", "members": 0, "generation": 4,
         "committed_partitions": 1, "last_commit_timestamp_ms": NOW_MS - 6 * DAY_MS},
        {"group_id": "new", "type": "simple", "state": "Empty", "members": 0, "committed_partitions": 1,
         "last_commit_timestamp_ms": NOW_MS},
    ],
    "members": [
        {"group_id": "orders-app", "type": "classic", "member_id": f"shop-{one}", "client_id": f"shop-{one}",
         "client_host": "/10.0.0.1", "generation": 3,
         "assignment": [{"topic": "orders", "topic_id": None, "partitions": [one]}]} for one in (0, 1)
    ],
    "lag": [
        at("orders-app", "orders", 0, committed_offset=500, log_end_offset=600, lag=100, lag_ms=748_561,
           observed_at_ms=NOW_MS, lost_records=0, member_id="shop-0", client_id="shop-0", client_host="/10.0.0.1"),
        at("orders-app", "orders", 1, committed_offset=40, log_end_offset=40, lag=0, lag_ms=0, lost_records=0,
           observed_at_ms=NOW_MS, member_id="shop-1", client_id="shop-1", client_host="/10.0.0.1"),
        at("billing", "bills", 0, committed_offset=10, log_end_offset=20, lag=7, lag_ms=90_000, lost_records=3,
           observed_at_ms=NOW_MS),
        at("nightly-audit", "orders", 0, committed_offset=600, log_end_offset=600, lag=0, lag_ms=0, lost_records=0,
           observed_at_ms=NOW_MS),
        at("new", "gone", 5, committed_offset=9, lag_unknown="end not observed"),
    ],
    "status": [
        at("orders-app", "orders", 0, verdict="STALLED", verdict_since_ms=EIGHT_MS, at_ms=NOW_MS, lag=100,
           committed_offset=500, log_end_offset=600, lag_ms=748_561, lost_records=0, last_commit_ms=NOW_MS - 4000),
        at("orders-app", "orders", 1, verdict="OK", verdict_since_ms=NOW_MS - DAY_MS, at_ms=NOW_MS, lag=0, lag_ms=0,
           committed_offset=40, log_end_offset=40, lost_records=0, last_commit_ms=NOW_MS - 60_000),
        at("billing", "bills", 0, verdict="LOSING", verdict_since_ms=EIGHT_MS, at_ms=NOW_MS, lag=7, lag_ms=90_000,
           committed_offset=10, log_end_offset=20, lost_records=3, last_commit_ms=NOW_MS - 9000),
        at("nightly-audit", "orders", 0, verdict="EXPIRING", verdict_since_ms=EIGHT_MS, at_ms=NOW_MS, lag=0, lag_ms=0,
           committed_offset=600, log_end_offset=600, lost_records=0, last_commit_ms=NOW_MS - 6 * DAY_MS),
        at("new", "gone", 5, verdict=None, verdict_since_ms=NOW_MS, at_ms=NOW_MS, committed_offset=9,
           last_commit_ms=NOW_MS),
    ],
    "expiry": [
        at("orders-app", "orders", one, expires_at_ms=None, rule="kept: active subscription", at_ms=NOW_MS,
           retention_ms=7 * DAY_MS, committed_offset=offset) for one, offset in ((0, 500), (1, 40))
    ] + [
        at("nightly-audit", "orders", 0, expires_at_ms=NOW_MS + 20 * HOUR_MS, rule="since group became empty",
           at_ms=NOW_MS, since_ms=NOW_MS + 20 * HOUR_MS - 7 * DAY_MS, retention_ms=7 * DAY_MS, committed_offset=600),
        {"group_id": "nightly-audit", "topic": None, "partition": None, "expires_at_ms": NOW_MS + 20 * HOUR_MS,
         "rule": "since group became empty", "at_ms": NOW_MS, "retention_ms": 7 * DAY_MS,
         "since_ms": NOW_MS + 20 * HOUR_MS - 7 * DAY_MS},
        at("new", "gone", 5, expires_at_ms=NOW_MS + 7 * DAY_MS, rule="since last commit", at_ms=NOW_MS,
           since_ms=NOW_MS, retention_ms=7 * DAY_MS, committed_offset=9),
    ],
    "findings": [
        {"kind": "stuck-partition", "severity": "error", "group_id": "orders-app", "topic": "orders", "partition": 0,
         "since_ms": EIGHT_MS, "at_ms": NOW_MS, "evidence": '{"commits": 12}',
         "sentence": "The group orders-app commits offset 500 of orders-0 again and again, with 100 records to read.",
         "what_to_do": "Look at what its member shop-0 does with the record at offset 500."},
        {"kind": "about-to-expire", "severity": "warning", "group_id": "nightly-audit", "since_ms": NOW_MS - 6 * DAY_MS,
         "at_ms": NOW_MS, "evidence": None, "sentence": "The group nightly-audit will be deleted in 20 h.",
         "what_to_do": "Start one of its members, or let it go."},
        {"kind": "unknown-records", "severity": "info", "since_ms": None, "at_ms": NOW_MS, "evidence": None,
         "sentence": "There are records of a kind that this muster does not know.",
         "what_to_do": "Use a newer muster."},
    ],
}  # fmt: skip

HISTORY: Rows = {
    "lag_history": [
        at("orders-app", "orders", 0, interval_start_ms=EIGHT_MS + (minutes - 5) * MINUTE_MS,
           interval_ms=5 * MINUTE_MS, at_ms=EIGHT_MS + minutes * MINUTE_MS, committed_offset=500,
           log_end_offset=500 + lag, lag=lag)
        for minutes, lag in ((-60, 3), (-30, 0), (0, 10), (15, 50), (30, 100))
    ] + [
        at("billing", "bills", 0, interval_start_ms=EIGHT_MS, interval_ms=5 * MINUTE_MS,
           at_ms=EIGHT_MS + 5 * MINUTE_MS, committed_offset=10, log_end_offset=17, lag=7),
    ],
    "commits": [
        at("orders-app", "orders", 0, kind="commit", log_offset=10 * place, timestamp_ms=EIGHT_MS + minutes * MINUTE_MS,
           commit_timestamp_ms=EIGHT_MS + minutes * MINUTE_MS, committed_offset=offset)
        for place, (minutes, offset) in enumerate(
            ((-120, 300), (-110, 400), (-60, 700), (-50, 450), (-40, 480), (0, 500), (15, 500), (33, 500)), start=1)
    ] + [
        at("orders-app", "orders", 1, kind="commit", log_offset=75, timestamp_ms=EIGHT_MS + 31 * MINUTE_MS,
           commit_timestamp_ms=EIGHT_MS + 31 * MINUTE_MS, committed_offset=40),
        at("orders-app", "old", 0, kind="commit", log_offset=25, timestamp_ms=EIGHT_MS - 100 * MINUTE_MS,
           commit_timestamp_ms=EIGHT_MS - 100 * MINUTE_MS, committed_offset=77),
        at("orders-app", "old", 0, kind="expired", log_offset=55, timestamp_ms=EIGHT_MS - 20 * MINUTE_MS,
           previous_commit_timestamp_ms=EIGHT_MS - 100 * MINUTE_MS),
    ],
    "rebalances": [
        {"group_id": "orders-app", "generation": 1, "at_ms": EIGHT_MS - 125 * MINUTE_MS, "cause": "first members",
         "members": 1, "joined": ["shop-0"], "left": [], "replaced": [], "type": "classic", "partitions_moved": 0,
         "log_offset": 5},
        {"group_id": "orders-app", "generation": 2, "at_ms": EIGHT_MS - 55 * MINUTE_MS, "cause": "group emptied",
         "members": 0, "joined": [], "left": ["shop-0"], "replaced": [], "type": "classic", "partitions_moved": 2,
         "log_offset": 35},
        {"group_id": "orders-app", "generation": 3, "at_ms": EIGHT_MS - 45 * MINUTE_MS, "cause": "member joined",
         "members": 2, "joined": ["shop-0", "shop-1"], "left": [], "replaced": [], "type": "classic",
         "partitions_moved": 1, "commit_gap_ms": 10 * MINUTE_MS, "log_offset": 45},
    ],
    "verdicts": [
        at("orders-app", "orders", 0, at_ms=EIGHT_MS - HOUR_MS, verdict="OK", lag=0, committed_offset=700),
        at("orders-app", "orders", 0, at_ms=EIGHT_MS, verdict="STALLED", verdict_before="OK", lag=10,
           committed_offset=500),
    ],
    "log_ends": [
        {"topic": "orders", "partition": one, "observed_at_ms": ms, "log_start_offset": 0, "log_end_offset": end,
         "run_number": run}
        for run, ms, ends in ((1, EIGHT_MS, (510, 40)), (2, NOW_MS, (600, 40))) for one, end in enumerate(ends)
    ],
}  # fmt: skip


def publish(
    path: Path,
    *left_out: str,
    read_at_ms: int = NOW_MS,
    complete_since_ms: int | None = None,
    **tables: list[dict[str, Any]],
) -> Path:
    """The tables of this world at a path, some left out, some others instead; it may be read later than it was."""
    with begin_run(TableStore(path), run_id="a-run", now_ms=NOW_MS) as run:
        for name, rows in (STATE | HISTORY | tables).items():
            if name not in left_out:
                run.replace(name, made(name, *rows))
        missing = 0 if complete_since_ms is None else 1
        progress = {0: PartitionProgress(100, 0, 0, missing, complete_since_ms, NOW_MS)}
        source = {"cluster_id": "abc", "observed_at_ms": read_at_ms, "moment_ms": NOW_MS}
        run.publish(progress, source, now_ms=read_at_ms)
    return path
