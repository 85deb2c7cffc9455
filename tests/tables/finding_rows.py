"""Rows that raise each kind of finding, and rows that must not: of tables as they are inside."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from muster.tables.findings.kinds import NEEDED
from muster.tables.findings.of_logs import DAMAGE
from muster.tables.schemas import TABLES

Row = dict[str, Any]
NOW_MS = 1_794_800_000_000
SECOND_MS, MINUTE_MS, HOUR_MS, DAY_MS = 1000, 60_000, 3_600_000, 86_400_000
THIS_HOUR_MS = NOW_MS - NOW_MS % HOUR_MS
LAST_INTERVAL_MS = NOW_MS - NOW_MS % 300_000 - 300_000
ODD = "a \"quoted\" \\ {name} 'of' $1\ttab\x00\x1f ü😀 </script>"

SCHEMAS: Mapping[str, pa.Schema] = {name: DAMAGE if name == "damage" else TABLES[name] for name in NEEDED}


class Case(NamedTuple):
    """Rows by table, and what is found in them: parts of a finding, or None."""

    name: str
    kind: str
    rows: Mapping[str, Sequence[Row]]
    found: Row | None


def tables_of(rows: Mapping[str, Sequence[Row]]) -> dict[str, pa.Table]:
    """Every table that findings are found in; what a row does not say is NULL."""
    return {name: pa.Table.from_pylist(list(rows.get(name, ())), schema) for name, schema in SCHEMAS.items()}


def plain(found: Row) -> Row:
    """A finding with its evidence read: it must be JSON."""
    return {**found, "evidence": json.loads(found["evidence"])}


PLACE = {"group_id": "payments", "topic": "orders", "partition": 3}
STATUS = {**PLACE, "verdict_since_ms": NOW_MS - HOUR_MS, "at_ms": NOW_MS, "committed_offset": 17,
          "log_end_offset": 4227, "lag": 4210, "lag_ms": 5000, "lost_records": 0,
          "last_commit_ms": NOW_MS - 748_000}  # fmt: skip
LAG = {**PLACE, "committed_offset": 17, "log_start_offset": 0, "log_end_offset": 4227, "lag": 4210, "offset_lag": 4210,
       "lost_records": 0, "commit_timestamp_ms": NOW_MS - 748_000, "observed_at_ms": NOW_MS, "member_id": "m-1",
       "client_id": ODD, "client_host": "/10.0.0.7"}  # fmt: skip
RATES = {**PLACE, "interval_start_ms": LAST_INTERVAL_MS, "interval_ms": 300_000, "commits": 60, "consumed": 100,
         "rewinds": 0, "rewound": 0}  # fmt: skip
GROUP = {"group_id": "payments", "type": "classic", "state": "Stable", "generation": 7, "members": 2,
         "committed_partitions": 1, "state_timestamp_ms": NOW_MS - 12 * MINUTE_MS,
         "last_commit_timestamp_ms": NOW_MS - 13 * MINUTE_MS}  # fmt: skip
HOURS = {"group_id": "payments", "hour_ms": THIS_HOUR_MS, "members": 2, "members_min": 1, "members_max": 2,
         "rebalances": 12, "by_joining": 6, "by_leaving": 5, "by_both": 1, "by_change": 0, "static_returns": 0,
         "members_joined": 7, "members_left": 6, "commits": 10, "longest_silence_ms": 5000,
         "interrupted_ms": 90_000}  # fmt: skip
UUID = "6bc85b2e-42bc-466f-921a-2211f4d485f9"


def member(number: int, partitions: int, **more: Any) -> Row:
    assignment = [{"topic": "orders", "topic_id": None, "partitions": list(range(partitions))}] if partitions else []
    return {"group_id": "payments", "type": "classic", "member_id": f"m-{number}", "subscribed_topics": ["orders"],
            "assignment": assignment, **more}  # fmt: skip


def open_commit(age_ms: int, **more: Any) -> Row:
    return {**PLACE, "offsets_partition": 5, "log_offset": 900, "timestamp_ms": NOW_MS - age_ms, "kind": "commit",
            "txn_outcome": "open", "producer_id": 4000, "producer_epoch": 2, **more}  # fmt: skip


def look(topic: str, run: int, **more: Any) -> Row:
    return {"topic": topic, "partition": 0, "observed_at_ms": NOW_MS - (9 - run) * MINUTE_MS, "run_number": run,
            "log_end_offset": 10, **more}  # fmt: skip


def expiry(left_ms: int, retention_ms: int = 7 * DAY_MS, **more: Any) -> Row:
    return {**PLACE, "expires_at_ms": NOW_MS + left_ms, "rule": "since last commit", "retention_ms": retention_ms,
            "since_ms": NOW_MS + left_ms - retention_ms, "at_ms": NOW_MS, **more}  # fmt: skip


def comings_and_goings(times: int, every_ms: int, name: str = "worker-7") -> list[Row]:
    """A client that leaves and comes back, so often, until now."""
    rows = []
    for turn in range(times):
        at_ms = NOW_MS - (times - turn) * every_ms
        here = {"group_id": "payments", "log_offset": turn, "replaced": []}
        rows.append({**here, "at_ms": at_ms, "left": [f"{name}-{UUID}"], "joined": []})
        rows.append({**here, "at_ms": at_ms + 1, "left": [], "joined": [f"{name}-{UUID}"]})
    return rows


def seats(*hosts: str, every_ms: int = 10 * MINUTE_MS, instance_id: str | None = "shelf-1") -> list[Row]:
    """Records of a classic group, in each of which a static member connects from another host."""
    return [
        {"group_id": "payments", "record_type": 2, "log_offset": number,
         "timestamp_ms": NOW_MS - (len(hosts) - number) * every_ms, "is_tombstone": False,
         "members": [{"member_id": f"m-{number}", "instance_id": instance_id, "client_host": host},
                     {"member_id": "other", "instance_id": None, "client_host": f"{host}1"}]}
        for number, host in enumerate(hosts)
    ]  # fmt: skip


def unread(record_type: int, age_ms: int = HOUR_MS) -> Row:
    return {"offsets_partition": 3, "log_offset": 1, "timestamp_ms": NOW_MS - age_ms, "record_type": record_type,
            "value_version": 0, "is_tombstone": False, "problem": f"unknown record type {record_type}"}  # fmt: skip


def damaged(age_ms: int) -> Row:
    return {"offsets_partition": 3, "found_at_ms": NOW_MS - age_ms, "places": 2, "example": "3.log at byte 328: CRC"}


WAITING = {"groups": [GROUP], "members": [member(1, 1), member(2, 1)], "lag": [LAG]}
"""A group that rebalanced 12 minutes ago and has not committed since."""

CASES = [
    # stuck-partition
    Case("stopped", "stuck-partition", {"status": [{**STATUS, "verdict": "STOPPED"}], "lag": [LAG]},
         {**PLACE, "severity": "error", "member_id": "m-1", "since_ms": NOW_MS - 748_000, "evidence":
          {"verdict": "STOPPED", "committed_offset": 17, "lag": 4210, "lag_ms": 5000, "client_id": ODD,
           "last_commit_ms": NOW_MS - 748_000, "member_id": "m-1", "client_host": "/10.0.0.7"},
          "sentence": "payments has been without a commit for 12 min 28 s while 4,210 records wait in orders-3."}),
    Case("stalled", "stuck-partition", {"status": [{**STATUS, "verdict": "STALLED"}]},
         {**PLACE, "severity": "error", "member_id": None, "since_ms": NOW_MS - HOUR_MS, "sentence":
          "payments has committed offset 17 of orders-3 again and again for 1 h while 4,210 records wait."}),
    Case("since its first commit", "stuck-partition",
         {"status": [{**STATUS, "verdict": "STALLED", "verdict_since_ms": NOW_MS, "window": [
             {"committed_offset": 17, "commit_ms": NOW_MS - 2 * HOUR_MS, "lag": 9},
             {"committed_offset": 17, "commit_ms": NOW_MS, "lag": 4210}]}]},
         {"since_ms": NOW_MS - 2 * HOUR_MS}),
    Case("a second ago", "stuck-partition",
         {"status": [{**STATUS, "verdict": "STOPPED", "last_commit_ms": NOW_MS - 1000}], "lag": [LAG]}, None),
    Case("only slow", "stuck-partition", {"status": [{**STATUS, "verdict": "WARN"}], "lag": [LAG]}, None),
    Case("not judged", "stuck-partition", {"status": [{**STATUS, "verdict": None}], "lag": [LAG]}, None),
    # rewound-partition
    Case("behind", "rewound-partition",
         {"status": [{**STATUS, "verdict": "REWIND"}], "rates": [{**RATES, "rewinds": 2, "rewound": 1200}]},
         {**PLACE, "severity": "error", "since_ms": LAST_INTERVAL_MS, "sentence":
          "payments went back in orders-3 and has not made up for it: 4,210 records wait."}),
    Case("made up for", "rewound-partition",
         {"rates": [{**RATES, "rewinds": 1, "rewound": 1200},
                    {**RATES, "rewinds": 1, "rewound": 5, "interval_start_ms": NOW_MS - HOUR_MS}]},
         {**PLACE, "severity": "info", "since_ms": LAST_INTERVAL_MS, "sentence":
          "payments went back 2 times in orders-3 within the last day, 1,205 records in all."}),
    Case("two days ago", "rewound-partition",
         {"rates": [{**RATES, "rewinds": 1, "rewound": 9, "interval_start_ms": NOW_MS - 2 * DAY_MS}]}, None),
    Case("onwards", "rewound-partition", {"rates": [RATES], "status": [{**STATUS, "verdict": "STALLED"}]}, None),
    # commit-storm
    Case("each record", "commit-storm",
         {"rates": [{**RATES, "commits": 9000, "consumed": 9100},
                    {**RATES, "commits": 6000, "consumed": 6100, "interval_start_ms": LAST_INTERVAL_MS - 300_000},
                    {**RATES, "commits": 6000, "consumed": 6100, "interval_start_ms": LAST_INTERVAL_MS - HOUR_MS},
                    {**RATES, "partition": 4}]},
         {"group_id": "payments", "topic": None, "severity": "warning", "since_ms": LAST_INTERVAL_MS - 300_000,
          "sentence": "payments committed 21,000 times within 15 min, up to 30 times a second for one partition, and "
                      "read 21,300 records meanwhile."}),
    Case("exactly-once streams", "commit-storm", {"rates": [{**RATES, "commits": 3100}]}, None),
    Case("storm of yesterday", "commit-storm",
         {"rates": [{**RATES, "commits": 9000, "interval_start_ms": NOW_MS - DAY_MS - HOUR_MS}]}, None),
    # hanging-transaction
    Case("since an hour", "hanging-transaction",
         {"open_commits": [open_commit(HOUR_MS), open_commit(HOUR_MS - 5, partition=4), open_commit(MINUTE_MS)]},
         {"group_id": "payments", "topic": None, "severity": "error", "since_ms": NOW_MS - HOUR_MS,
          "evidence": {"producer_id": 4000, "producer_epoch": 2, "partitions": 2, "offsets_partition": 5,
                       "log_offset": 900},
          "sentence": "a transaction of producer 4000 has held offsets of payments for 2 partitions back for 1 h, and "
                      "none of them counts."}),
    Case("still allowed", "hanging-transaction", {"open_commits": [open_commit(15 * MINUTE_MS)]}, None),
    # beyond-end
    Case("topic made anew", "beyond-end",
         {"lag": [{**LAG, "committed_offset": 1000, "log_end_offset": 400, "lag": 0, "offset_lag": -600}]},
         {**PLACE, "severity": "error", "member_id": "m-1", "since_ms": NOW_MS - 748_000, "sentence":
          "payments has committed offset 1,000 of orders-3, which ends at 400: 600 records beyond it."}),
    Case("at the end", "beyond-end", {"lag": [{**LAG, "committed_offset": 4227, "lag": 0, "offset_lag": 0}]}, None),
    Case("not known", "beyond-end", {"lag": [{**LAG, "lag": None, "offset_lag": None}]}, None),
    # below-log-start
    Case("deleted unread", "below-log-start",
         {"lag": [{**LAG, "log_start_offset": 1017, "lost_records": 1000}],
          "status": [{**STATUS, "verdict": "LOSING"}]},
         {**PLACE, "severity": "error", "member_id": "m-1", "since_ms": NOW_MS - HOUR_MS, "sentence":
          "payments has lost 1,000 records of orders-3: it is to go on at offset 17, and the log begins at 1,017."}),
    Case("never judged", "below-log-start", {"lag": [{**LAG, "log_start_offset": 18, "lost_records": 1}]},
         {**PLACE, "since_ms": None}),
    Case("all there", "below-log-start", {"lag": [LAG], "status": [{**STATUS, "verdict": "STOPPED"}]}, None),
    # orphaned-offsets
    Case("seen, then gone", "orphaned-offsets",
         {"offsets": [PLACE, {**PLACE, "partition": 4}], "log_ends": [look("orders", 7), look("other", 8)]},
         {"group_id": "payments", "topic": "orders", "partition": None, "severity": "warning",
          "since_ms": NOW_MS - 2 * MINUTE_MS, "sentence":
          "payments has offsets of 2 partitions of orders, a topic that the source does not have any more."}),
    Case("made anew", "orphaned-offsets",
         {"offsets": [{**PLACE, "topic_id": "old"}], "log_ends": [look("orders", 8, topic_id="new")]},
         {"topic": "orders", "since_ms": None, "sentence":
          "payments has offsets of 1 partition of a topic orders that was deleted: the topic of this name is another "
          "one."}),
    Case("on another broker", "orphaned-offsets", {"offsets": [PLACE], "log_ends": [look("other", 8)]}, None),
    Case("ends are told of none", "orphaned-offsets", {"offsets": [PLACE]}, None),
    Case("there", "orphaned-offsets",
         {"offsets": [{**PLACE, "topic_id": "same"}], "log_ends": [look("orders", 8, topic_id="same")]}, None),
    Case("without an id", "orphaned-offsets",
         {"offsets": [PLACE], "log_ends": [look("orders", 8, topic_id="new")]}, None),
    # about-to-expire
    Case("in three hours", "about-to-expire",
         {"expiry": [expiry(200 * MINUTE_MS), expiry(5 * HOUR_MS, partition=4), expiry(HOUR_MS, topic=None)],
          "lag": [LAG]},
         {"group_id": "payments", "topic": None, "severity": "warning",
          "since_ms": NOW_MS + 200 * MINUTE_MS - 7 * DAY_MS, "sentence":
          "payments will lose its offsets of 2 partitions in 3 h 20 min, and 4,210 records wait for it."}),
    Case("overdue", "about-to-expire", {"expiry": [expiry(-MINUTE_MS)]},
         {"sentence": "payments will lose its offsets of 1 partition at any moment."}),
    Case("in two days", "about-to-expire", {"expiry": [expiry(2 * DAY_MS)]}, None),
    Case("in two days of thirty", "about-to-expire", {"expiry": [expiry(2 * DAY_MS, 30 * DAY_MS)]}, None),
    Case("never", "about-to-expire", {"expiry": [{**expiry(0), "expires_at_ms": None}]}, None),
    Case("short retention", "about-to-expire", {"expiry": [expiry(30 * MINUTE_MS, HOUR_MS)]}, None),
    # flapping-group
    Case("since two hours", "flapping-group",
         {"group_hours": [HOURS, {**HOURS, "hour_ms": THIS_HOUR_MS - HOUR_MS},
                          {**HOURS, "hour_ms": THIS_HOUR_MS - 9 * HOUR_MS, "interrupted_ms": None}]},
         {"group_id": "payments", "severity": "warning", "since_ms": THIS_HOUR_MS - HOUR_MS, "sentence":
          "payments rebalanced 36 times in 3 hours: 21 members joined and 18 left, and nobody committed for 3 min of "
          "it."}),
    Case("a rollout of twenty", "flapping-group",
         {"group_hours": [{**HOURS, "members_max": 20, "rebalances": 40, "by_joining": 20, "by_leaving": 20,
                           "members_joined": 20, "members_left": 20}]}, None),
    Case("a few times", "flapping-group",
         {"group_hours": [{**HOURS, "rebalances": 9, "by_joining": 5, "by_leaving": 4, "by_both": 0}]}, None),
    Case("a group that grows", "flapping-group",
         {"group_hours": [{**HOURS, "members_max": 3, "by_joining": 12, "by_leaving": 0, "by_both": 0,
                           "members_left": 0}]}, None),
    Case("other causes", "flapping-group",
         {"group_hours": [{**HOURS, "by_joining": 2, "by_leaving": 2, "by_both": 0, "by_change": 8}]}, None),
    Case("flapping of two days ago", "flapping-group",
         {"group_hours": [{**HOURS, "hour_ms": THIS_HOUR_MS - 48 * HOUR_MS}]}, None),
    # skewed-assignment
    Case("one has all", "skewed-assignment",
         {"groups": [GROUP], "members": [member(1, 12), member(2, 4)]},
         {"group_id": "payments", "severity": "warning", "since_ms": NOW_MS - 12 * MINUTE_MS, "evidence":
          {"members": 2, "partitions": 16, "most": 12, "fewest": 4, "members_without": 0, "busiest_member": "m-1"},
          "sentence": "payments gives one member 12 partitions and another 4: 16 partitions for 2 members."}),
    Case("one has none", "skewed-assignment",
         {"groups": [GROUP], "members": [member(1, 2), member(2, 0, assignment=None), member(3, 1)]},
         {"sentence": "payments leaves 1 of 3 members without a partition while one has 2."}),
    Case("what it is to have", "skewed-assignment",
         {"groups": [GROUP], "members": [
             member(1, 8, type="consumer", target_assignment=member(1, 4)["assignment"]),
             member(2, 0, type="consumer", target_assignment=member(2, 4)["assignment"])]}, None),
    Case("more members than partitions", "skewed-assignment",
         {"groups": [GROUP], "members": [member(1, 1), member(2, 0)]}, None),
    Case("as even as can be", "skewed-assignment",
         {"groups": [GROUP], "members": [member(1, 6), member(2, 5)]}, None),
    Case("other subscriptions", "skewed-assignment",
         {"groups": [GROUP], "members": [member(1, 12), member(2, 1, subscribed_topics=["payments"])]}, None),
    Case("in the middle of it", "skewed-assignment",
         {"groups": [{**GROUP, "state_timestamp_ms": NOW_MS - MINUTE_MS}], "members": [member(1, 8), member(2, 0)]},
         None),
    Case("Connect", "skewed-assignment",
         {"groups": [GROUP], "members": [member(1, 0, subscribed_topics=None, assignment=None),
                                         member(2, 5, subscribed_topics=None)]}, None),
    # kicked-member
    Case("every five minutes", "kicked-member",
         {"rebalances": comings_and_goings(8, 5 * MINUTE_MS), "members": [member(1, 1, member_id=f"worker-7-{UUID}")]},
         {"group_id": "payments", "severity": "warning", "member_id": f"worker-7-{UUID}",
          "since_ms": NOW_MS - 40 * MINUTE_MS, "sentence":
          "worker-7 of payments left 8 times within 35 min and came back 8 times."}),
    Case("every hour", "kicked-member", {"rebalances": comings_and_goings(12, HOUR_MS, "")},
         {"member_id": None, "sentence":
          "a client without a name of payments left 12 times within 11 h and came back 12 times."}),
    Case("a static member", "kicked-member",
         {"rebalances": [{"group_id": "payments", "log_offset": turn, "at_ms": THIS_HOUR_MS + turn, "left": [],
                          "joined": [], "replaced": [ODD]} for turn in range(3)]},
         {"evidence": {"client": ODD, "left": 3, "came_back": 3, "most_in_an_hour": 3, "members_of_that_name": 0,
                       "last_ms": THIS_HOUR_MS + 2}}),
    Case("a rollout of ten of one name", "kicked-member",
         {"rebalances": comings_and_goings(10, MINUTE_MS),
          "members": [member(n, 1, member_id=f"worker-7-{UUID[:-1]}{n}") for n in range(10)]}, None),
    Case("two deployments", "kicked-member", {"rebalances": comings_and_goings(2, MINUTE_MS)}, None),
    Case("kicked two days ago", "kicked-member",
         {"rebalances": [{**row, "at_ms": NOW_MS - 2 * DAY_MS} for row in comings_and_goings(8, MINUTE_MS)]}, None),
    Case("left for good", "kicked-member",
         {"rebalances": [{**row, "joined": []} for row in comings_and_goings(8, 5 * MINUTE_MS)]}, None),
    # unfinished-rebalance
    Case("silence", "unfinished-rebalance", WAITING,
         {"group_id": "payments", "severity": "error", "since_ms": NOW_MS - 12 * MINUTE_MS, "sentence":
          "payments rebalanced 12 min ago and has not committed since, while 4,210 records wait."}),
    Case("silence beyond its habits", "unfinished-rebalance", {**WAITING, "group_hours": [HOURS]},
         {"severity": "error", "since_ms": NOW_MS - 12 * MINUTE_MS}),
    Case("state", "unfinished-rebalance",
         {"groups": [{**GROUP, "type": "consumer", "state": "Reconciling", "state_timestamp_ms": NOW_MS - HOUR_MS}],
          "members": [member(1, 1)],
          "rebalances": [{"group_id": "payments", "at_ms": NOW_MS - 30 * MINUTE_MS, "log_offset": 1}]},
         {"severity": "error", "since_ms": NOW_MS - 30 * MINUTE_MS, "sentence":
          "payments has been in state Reconciling for 30 min: its rebalance has not come to an end."}),
    Case("nobody has anything", "unfinished-rebalance", {"groups": [GROUP], "members": [member(1, 0), member(2, 0)]},
         {"severity": "warning", "sentence": "payments has 2 members and has given none a partition for 12 min."}),
    Case("committed since", "unfinished-rebalance",
         {**WAITING, "groups": [{**GROUP, "last_commit_timestamp_ms": NOW_MS - MINUTE_MS}]}, None),
    Case("never committed", "unfinished-rebalance",
         {**WAITING, "groups": [{**GROUP, "last_commit_timestamp_ms": None}]}, None),
    Case("nothing waits", "unfinished-rebalance", {**WAITING, "lag": [{**LAG, "lag": 0}]}, None),
    Case("what waits is nobody's", "unfinished-rebalance", {**WAITING, "lag": [{**LAG, "member_id": None}]}, None),
    Case("commits once an hour", "unfinished-rebalance",
         {**WAITING, "group_hours": [{**HOURS, "longest_silence_ms": HOUR_MS}]}, None),
    Case("just now", "unfinished-rebalance",
         {**WAITING, "groups": [{**GROUP, "state_timestamp_ms": NOW_MS - 9 * MINUTE_MS}]}, None),
    Case("an empty group", "unfinished-rebalance",
         {"groups": [{**GROUP, "state": "Empty", "members": 0}], "lag": [LAG]}, None),
    # shared-static-id
    Case("to and fro", "shared-static-id", {"group_records": seats("/a", "/b", "/a", "/a", "/b")},
         {"group_id": "payments", "severity": "error", "since_ms": NOW_MS - 40 * MINUTE_MS, "sentence":
          "the static id shelf-1 of payments went to and fro between 2 hosts 3 times: /a and /b are both using it."}),
    Case("of a newer group", "shared-static-id",
         {"group_records": [{**row, "record_type": 5, "members": None, "instance_id": "rack", "client_host": host}
                            for row, host in zip(seats(*"aaaa"), "abab", strict=True)]},
         {"since_ms": NOW_MS - 30 * MINUTE_MS}),
    Case("a new address each time", "shared-static-id", {"group_records": seats("/a", "/b", "/c", "/d", "/e")}, None),
    Case("moved and back", "shared-static-id", {"group_records": seats("/a", "/b", "/a")}, None),
    Case("not static", "shared-static-id", {"group_records": seats("/a", "/b", "/a", "/b", instance_id=None)}, None),
    Case("two days ago", "shared-static-id",
         {"group_records": seats("/a", "/b", "/a", "/b", every_ms=2 * DAY_MS)}, None),
    # unknown-records
    Case("of a newer broker", "unknown-records", {"group_records": [unread(99), unread(99)]},
         {"group_id": None, "topic": "__consumer_offsets", "severity": "info", "since_ms": NOW_MS - HOUR_MS,
          "sentence": "2 records of type 99 cannot be read (unknown record type 99); their bytes are kept."}),
    Case("of a known type", "unknown-records", {"group_records": [unread(2)]}, {"severity": "warning", "sentence":
         "1 record of type 2 cannot be read (unknown record type 2); their bytes are kept."}),
    Case("without a type", "unknown-records", {"group_records": [{**unread(0), "record_type": None}]},
         {"severity": "info"}),
    Case("readable", "unknown-records", {"group_records": [{**unread(2), "problem": None}]}, None),
    Case("unread two days ago", "unknown-records", {"group_records": [unread(99, 2 * DAY_MS)]}, None),
    # damage
    Case("in two runs", "damage", {"damage": [damaged(HOUR_MS), damaged(DAY_MS)]},
         {"topic": "__consumer_offsets", "partition": 3, "severity": "error", "since_ms": NOW_MS - DAY_MS, "evidence":
          {"places": 4, "example": "3.log at byte 328: CRC", "last_found_ms": NOW_MS - HOUR_MS}, "sentence":
          "partition 3 of __consumer_offsets is damaged in 4 places: what stood there is in no table."}),
    Case("long ago", "damage", {"damage": [damaged(8 * DAY_MS)]}, None),
    Case("sound", "damage", {}, None),
]  # fmt: skip

HEALTHY: Mapping[str, Sequence[Row]] = {
    "status": [{**STATUS, "verdict": "OK", "lag": 12}],
    "lag": [{**LAG, "lag": 12, "offset_lag": 12}],
    "rates": [RATES],
    "groups": [{**GROUP, "last_commit_timestamp_ms": NOW_MS - 2000}],
    "members": [member(1, 3), member(2, 2)],
    "group_hours": [{**HOURS, "rebalances": 2, "by_joining": 2, "by_leaving": 0, "by_both": 0, "members_left": 0}],
    "rebalances": comings_and_goings(1, HOUR_MS),
    "group_records": seats("/a", "/a", "/b"),
    "offsets": [{**PLACE, "topic_id": "same"}],
    "log_ends": [look("orders", 7, topic_id="same"), look("orders", 8, topic_id="same")],
    "open_commits": [open_commit(MINUTE_MS)],
    "expiry": [{**expiry(0), "expires_at_ms": None, "rule": "kept: active subscription"}],
}
"""A group that does well: in none of its tables is anything to be found."""
