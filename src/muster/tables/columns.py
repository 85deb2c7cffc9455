"""Every column of every table: what it is, and what NULL means in it.

The tables of docs/pipeline.md, and the comments that Delta shows (`DESCRIBE` in Spark), are made of this. Names and
types are those inside (`schemas` says how they are published). A column is added at the end, never renamed or reused,
and says what NULL means: rows of an earlier release have nothing there.
"""

from typing import NamedTuple

import pyarrow as pa

NEVER = "never"


class Column(NamedTuple):
    name: str
    kind: pa.DataType
    what: str
    null: str = NEVER
    """What NULL means."""


ASSIGNED = pa.struct(
    [pa.field("topic", pa.string()), pa.field("topic_id", pa.string()), pa.field("partitions", pa.list_(pa.int32()))]
)

CLASSIC_MEMBER = pa.struct(
    [
        pa.field("member_id", pa.string()),
        pa.field("instance_id", pa.string()),
        pa.field("client_id", pa.string()),
        pa.field("client_host", pa.string()),
        pa.field("rebalance_timeout_ms", pa.int32()),
        pa.field("session_timeout_ms", pa.int32()),
        pa.field("subscribed_topics", pa.list_(pa.string())),
        pa.field("assignment", pa.list_(ASSIGNED)),
    ]
)

BYTE, SHORT, INT, LONG = pa.int8(), pa.int16(), pa.int32(), pa.int64()
STRING, BOOL, BINARY = pa.string(), pa.bool_(), pa.binary()
STRINGS, ASSIGNMENT, CLASSIC_MEMBERS = pa.list_(pa.string()), pa.list_(ASSIGNED), pa.list_(CLASSIC_MEMBER)

GONE = "what came before is no longer in the log"
NO_TXN = "not in a transaction"
OTHER_KIND = "another kind, or a tombstone"

COMMITS = (
    Column("offsets_partition", INT, "partition of `__consumer_offsets`"),
    Column("log_offset", LONG, "the record's offset in it; of `vanished`, how far an earlier run had read"),
    Column("timestamp_ms", LONG, "the record's time", "written before 0.10; `vanished`: nobody saw when"),
    Column("kind", STRING, "`commit`, `deleted`, `expired` or `vanished`"),
    Column("group_id", STRING, "the group"),
    Column("topic", STRING, "the topic that was committed for"),
    Column("partition", INT, "its partition"),
    Column("committed_offset", LONG, "the committed offset", "a deletion"),
    Column("leader_epoch", INT, "leader epoch of the last consumed record", "none was given, or a deletion"),
    Column("metadata", STRING, "the consumer's own note; may be empty", "a deletion"),
    Column("commit_timestamp_ms", LONG, "when it was committed, by the broker's clock", "a deletion"),
    Column("expire_timestamp_ms", LONG, "when it expires", "no expiry of its own: the broker's retention decides"),
    Column("topic_id", STRING, "the topic's id, as Kafka prints ids",
           "not written: before 4.1, in a transaction, or a deletion"),
    Column("producer_id", LONG, "the transaction's producer", NO_TXN),
    Column("producer_epoch", SHORT, "the epoch of that producer", NO_TXN),
    Column("txn_outcome", STRING,
           "`committed` or `aborted`; `unknown`: it ended, and the marker was cleaned away unseen", NO_TXN),
    Column("txn_marker_offset", LONG, "where in the log its transaction ended", "not in a transaction, or unknown"),
    Column("previous_commit_timestamp_ms", LONG, "of a deletion: when what it deletes had been committed",
           "a commit, or no commit of the key is known"),
)  # fmt: skip

GROUP_RECORDS = (
    Column("offsets_partition", INT, "partition of `__consumer_offsets`"),
    Column("log_offset", LONG, "the record's offset in it"),
    Column("timestamp_ms", LONG, "the record's time", "written before 0.10"),
    Column("record_type", SHORT, "prefix of the key", "too short to have one"),
    Column("value_version", SHORT, "prefix of the value", "a tombstone, or too short to have one"),
    Column("is_tombstone", BOOL, "the key is deleted"),
    Column("group_id", STRING, "the group", "the key cannot be read, or is of an unknown kind"),
    Column("member_id", STRING, "of the key: kinds with a record per member", "another kind"),
    Column("regular_expression", STRING, "type 16: of the key; types 5 and 19: the member's subscription",
           "there is none"),
    Column("epoch", INT, "generation of a classic group; Kafka's epoch, assignmentEpoch or memberEpoch",
           "the kind has none, or a tombstone"),
    Column("previous_epoch", INT, "types 8, 14, 22: the member's epoch before", OTHER_KIND),
    Column("member_state", BYTE, "types 8, 14, 22: as Kafka numbers states", OTHER_KIND),
    Column("protocol_type", STRING, "of a classic group", OTHER_KIND),
    Column("protocol", STRING, "of a classic group: the assignor", "another kind, a tombstone, or no members"),
    Column("leader", STRING, "of a classic group: its leader's member id", "another kind, a tombstone, or no members"),
    Column("state_timestamp_ms", LONG, "type 2: when its state changed; types 6, 12, 20: when it was assigned",
           "another kind, or not written by that release"),
    Column("members", CLASSIC_MEMBERS, "of a classic group: its members, each with subscription and assignment",
           OTHER_KIND),
    Column("instance_id", STRING, "types 5, 10, 19: name of a static member",
           "another kind, a tombstone, or none given"),
    Column("rack_id", STRING, "types 5, 10, 19: the client's rack", "another kind, a tombstone, or none given"),
    Column("client_id", STRING, "types 5, 10, 19: the client", OTHER_KIND),
    Column("client_host", STRING, "types 5, 10, 19: where it connects from", OTHER_KIND),
    Column("rebalance_timeout_ms", INT, "types 5, 19: how long a rebalance waits for it", OTHER_KIND),
    Column("subscribed_topics", STRINGS, "types 5, 10: the member's; type 16: what the expression matches", OTHER_KIND),
    Column("assignment", ASSIGNMENT, "types 7, 13, 21: target; types 8, 14, 22: current (of streams: active tasks)",
           OTHER_KIND),
    Column("json", STRING, "the whole value of types 3 to 23, as Kafka prints it",
           "type 2, a tombstone, or unreadable"),
    Column("problem", STRING, "why it could not be read", "it could"),
    Column("raw_key", BINARY, "the key's bytes, if it could not be read", "it could"),
    Column("raw_value", BINARY, "the value's bytes, if it could not be read", "it could, or there is no value"),
    Column("last_commit_before_ms", LONG, "type 2: the group's last commit before it",
           "another kind, or there is none"),
    Column("first_commit_after_ms", LONG,
           "type 2: its first commit after it and before its next record, as far as the run that read it had read",
           "another kind, or there is none"),
)  # fmt: skip

MARKERS = (
    Column("offsets_partition", INT, "partition of `__consumer_offsets`"),
    Column("log_offset", LONG, "the marker's offset in it"),
    Column("timestamp_ms", LONG, "the marker's time", "it has none"),
    Column("producer_id", LONG, "whose transaction", "no broker's: a transaction has a producer"),
    Column("producer_epoch", SHORT, "the epoch of that producer", "as `producer_id`"),
    Column("type", STRING, "`COMMIT` or `ABORT`; `UNKNOWN` or another name: a control record that ends nothing"),
    Column("coordinator_epoch", INT, "of the transaction coordinator", "a control record of another kind"),
)

OFFSETS = (
    Column("group_id", STRING, "the group"),
    Column("topic", STRING, "the topic"),
    Column("partition", INT, "its partition"),
    Column("committed_offset", LONG, "the committed offset"),
    Column("leader_epoch", INT, "leader epoch of the last consumed record", "none was given"),
    Column("metadata", STRING, "the consumer's own note; may be empty"),
    Column("commit_timestamp_ms", LONG, "when it was committed, by the broker's clock", "it has no time"),
    Column("expire_timestamp_ms", LONG, "when it expires", "no expiry of its own"),
    Column("topic_id", STRING, "the topic's id", "not written: before 4.1, or in a transaction"),
    Column("producer_id", LONG, "the transaction's producer", NO_TXN),
    Column("offsets_partition", INT, "partition of `__consumer_offsets`"),
    Column("log_offset", LONG, "the record's offset in it"),
    Column("timestamp_ms", LONG, "the record's time", "written before 0.10"),
)

GROUPS = (
    Column("group_id", STRING, "the group"),
    Column("type", STRING, "`classic`, `consumer`, `share`, `streams` or `simple`"),
    Column("state", STRING, "as a coordinator computes it from its log: `Empty`, `Stable`, ..."),
    Column("generation", INT, "generation; of newer kinds the group's epoch",
           "there is no record of the group itself, only commits or members"),
    Column("protocol_type", STRING, "`consumer`, `connect`, ...; of newer kinds their `type`",
           "only commits are known"),
    Column("protocol", STRING, "the assignor that was chosen", "no members, or a newer kind: not in the log"),
    Column("leader", STRING, "member id of the leader", "no members, or a newer kind: it has none"),
    Column("members", INT, "how many"),
    Column("committed_partitions", LONG, "rows of `offsets`"),
    Column("state_timestamp_ms", LONG,
           "when a classic group's state last changed; of newer kinds, when the last assignment was made",
           "not written by that release"),
    Column("last_commit_timestamp_ms", LONG, "newest commit in force", "none is"),
    Column("offsets_partition", INT, "partition of `__consumer_offsets` with the group's records"),
    Column("log_offset", LONG, "the record that says that there is such a group", "only commits are known"),
)  # fmt: skip

MEMBERS = (
    Column("group_id", STRING, "the group"),
    Column("type", STRING, "the group's: `classic`, `consumer`, `share` or `streams`"),
    Column("member_id", STRING, "the member"),
    Column("instance_id", STRING, "name of a static member", "not static"),
    Column("client_id", STRING, "the client", "none was written"),
    Column("client_host", STRING, "where the client connects from", "none was written"),
    Column("rack_id", STRING, "the client's rack", "none given, or a classic group"),
    Column("generation", INT, "of the group; of newer kinds the member's own epoch",
           "newer kinds: nothing assigned yet"),
    Column("rebalance_timeout_ms", INT, "how long a rebalance waits for it", "a share group: it has none"),
    Column("session_timeout_ms", INT, "how long it may be silent", "a newer kind: the broker's setting"),
    Column("subscribed_topics", STRINGS, "topics by name", "not the consumer protocol, unreadable, or a streams group"),
    Column("regular_expression", STRING, "topics by expression (RE2J)", "none"),
    Column("assignment", ASSIGNMENT,
           "`topic`, `topic_id`, `partitions` it has; of a streams group `topic` is a subtopology",
           "not the consumer protocol, unreadable, or nothing yet"),
    Column("target_assignment", ASSIGNMENT, "what it is to have", "a classic group, or nothing yet"),
    Column("offsets_partition", INT, "partition of `__consumer_offsets` with the group's records"),
)  # fmt: skip

REBALANCES = (
    Column("group_id", STRING, "the group"),
    Column("generation", INT, "its generation or epoch from here on", "no longer in the log"),
    Column("at_ms", LONG, "time of the record, so of the end of a classic rebalance", "written before 0.10"),
    Column("cause", STRING, "why, as far as records tell: `member joined`, ...", GONE),
    Column("members", INT, "how many there are now"),
    Column("joined", STRINGS, "member ids that are new", GONE),
    Column("left", STRINGS, "member ids that are gone", GONE),
    Column("replaced", STRINGS, "instance ids that came back under a new member id", GONE),
    Column("leader", STRING, "member id of the leader", "nobody is left, or a newer kind"),
    Column("leader_changed", BOOL, "compared with the row before; a static leader that comes back is the same",
           "there is none to compare with"),
    Column("protocol", STRING, "the assignor", "nobody is left, or a newer kind"),
    Column("protocol_changed", BOOL, "compared with the row before", "there is none to compare with"),
    Column("partitions_assigned", INT, "how many all members have together",
           "not the consumer protocol, or unreadable"),
    Column("partitions_moved", INT, "how many changed their owner; a static member's restart moves none",
           "what came before is unknown, or unreadable"),
    Column("since_last_ms", LONG, "since the rebalance before", "there is none, or it is unknown"),
    Column("last_commit_before_ms", LONG, "the group's last commit before it", "there is none, or a newer kind"),
    Column("first_commit_after_ms", LONG, "its first commit after it and before the group's next record",
           "there is none (yet), or a newer kind"),
    Column("commit_gap_ms", LONG, "between these two: how long nobody of the group committed", "one of them is NULL"),
    Column("previous_generation", INT, "the generation before", "it is unknown, or the first"),
    Column("type", STRING, "`classic`, `consumer`, `share` or `streams`"),
    Column("offsets_partition", INT, "partition of `__consumer_offsets`"),
    Column("log_offset", LONG, "the record's offset in it"),
)  # fmt: skip

LATEST_REBALANCES = (
    REBALANCES[0],
    *(column._replace(null="as yet there is only `carry`") if column.null == NEVER else column
      for column in REBALANCES[1:]),
    Column("carry", STRING, "what a later run must know to go on from here", "nothing"),
)  # fmt: skip

LOG_ENDS = (
    Column("topic", STRING, "the topic"),
    Column("partition", INT, "its partition"),
    Column("observed_at_ms", LONG, "when", "no record with a time anywhere"),
    Column("log_start_offset", LONG, "first offset", "live: not to be had (no leader, no rights)"),
    Column("log_end_offset", LONG, "high watermark; from files the end of the furthest replica", "live: not to be had"),
    Column("last_stable_offset", LONG, "where the first open transaction begins, else the end", "not to be had"),
    Column("data_end_offset", LONG, "behind the last record that is no transaction marker", "not to be had"),
    Column("newest_timestamp_ms", LONG, "the newest record's time", "live, an empty log, or records without times"),
    Column("topic_id", STRING, "the topic's id", "a release without ids"),
    Column("run_number", LONG, "rises from run to run", "a row of an earlier release"),
)

LAG = (
    Column("group_id", STRING, "the group"),
    Column("topic", STRING, "the topic"),
    Column("partition", INT, "its partition"),
    Column("committed_offset", LONG, "as in `offsets`", "assigned, and nothing committed"),
    Column("log_end_offset", LONG, "high watermark; from files the end of the log",
           "the source does not have this topic: deleted, or on other brokers"),
    Column("last_stable_offset", LONG, "the same for readers of committed data", "not known"),
    Column("lag", LONG, "records still there to be read, at least 0; markers at the very end do not count where known",
           "unknown: see `lag_unknown`"),
    Column("offset_lag", LONG,
           "`log_end_offset` minus `committed_offset`, as kafka-consumer-groups prints it; "
           "negative for a commit beyond the end", "as `lag`"),
    Column("stable_lag", LONG, "the same against `last_stable_offset`", "as `lag`, or not known"),
    Column("lag_ms", LONG, "age of the first record not consumed, when the end was observed; 0 if there is none",
           "not known; or its timestamp is more than an hour ahead of the observation, "
           "and nothing to interpolate between"),
    Column("lag_ms_by", STRING,
           "`exact`: from that record's timestamp; `interpolated`: between two observations of the end",
           "`lag_ms` is NULL"),
    Column("commit_timestamp_ms", LONG, "as in `offsets`", "nothing committed"),
    Column("observed_at_ms", LONG, "when the end was observed", "it never was"),
    Column("leader_epoch", INT, "as in `offsets`", "nothing committed, or none given"),
    Column("metadata", STRING, "as in `offsets`", "nothing committed"),
    Column("member_id", STRING, "who has the partition now (classic and consumer groups)", "nobody"),
    Column("client_id", STRING, "that member's client", "nobody has it"),
    Column("client_host", STRING, "where that client connects from", "nobody has it"),
    Column("log_start_offset", LONG, "first offset of the log", "not known; a row of an earlier release"),
    Column("lost_records", LONG, "offsets from `committed_offset` to `log_start_offset`: gone before they were read",
           "as `lag`, or the start is not known"),
    Column("lag_unknown", STRING,
           "why `lag` is NULL: `nothing committed`, `end not observed` or `committed after the end was observed`",
           "`lag` is known"),
)  # fmt: skip

ACTIVITY = (
    Column("group_id", STRING, "the group"),
    Column("offsets_partition", INT, "partition of `__consumer_offsets`"),
    Column("first_commit_ms", LONG, "its first commit of the range that was read last",
           "a record of the group came before it"),
    Column("last_commit_ms", LONG, "its last commit", "it has no time"),
)  # fmt: skip

LAG_HISTORY = (
    Column("group_id", STRING, "the group"),
    Column("topic", STRING, "the topic"),
    Column("partition", INT, "its partition"),
    Column("interval_start_ms", LONG, "where the interval begins"),
    Column("interval_ms", LONG, "how long it is"),
    Column("at_ms", LONG,
           "the moment that the row is of: the interval's end, or that of the newest observation of the log's end"),
    Column("committed_offset", LONG, "in force at the interval's end", "deleted or expired: the series ends here"),
    Column("log_end_offset", LONG, "where the log ended at `at`",
           "unknown: not observed in the day before, or not since; or the topic was made anew"),
    Column("log_end_by", STRING, "`observed`, or `interpolated` between the observations before and after `at`",
           "`log_end_offset` is NULL"),
    Column("lag", LONG, "`log_end_offset` minus `committed_offset`, at least 0", "unknown: see `lag_unknown`"),
    Column("lag_unknown", STRING,
           "why `lag` is NULL: `deleted`, `end not observed` or `committed after the end was observed`",
           "`lag` is known"),
    Column("lag_ms", LONG, "from `behind_since` to `at`; 0 if not behind",
           "not known: no observations around `behind_since`, or it is more than a day before"),
    Column("behind_since_ms", LONG, "when the log's end passed `committed_offset`, by interpolation",
           "not behind, or not known"),
    Column("commits", LONG, "how many commits in the interval"),
    Column("last_commit_ms", LONG, "time of the commit in force", "deleted or expired"),
    Column("log_offset", LONG, "the record in force (or the deletion) in `__consumer_offsets`"),
    Column("committed_before", LONG, "in force at the interval's start", "nothing was"),
    Column("log_offset_before", LONG, "its record", "nothing was in force"),
    Column("commit_before_ms", LONG, "its time", "nothing was in force"),
)  # fmt: skip

NO_STEP = "nothing was committed before that it could be compared with"

RATES = (
    Column("group_id", STRING, "the group"),
    Column("topic", STRING, "the topic"),
    Column("partition", INT, "its partition"),
    Column("interval_start_ms", LONG, "where the interval begins"),
    Column("interval_ms", LONG, "how long it is"),
    Column("commits", LONG, "how many commits in it, at least 1"),
    Column("consumed", LONG, "records from commit to commit, rewinds left out", NO_STEP),
    Column("rewinds", LONG, "commits of a lower offset than the one before", NO_STEP),
    Column("rewound", LONG, "records that these went back", NO_STEP),
    Column("mean_distance_ms", LONG, "mean time from the commit before to each of these", NO_STEP),
    Column("longest_distance_ms", LONG, "the longest of these times", NO_STEP),
    Column("produced", LONG, "by how much the log's end rose in `produced_in_ms`; interpolated between observations",
           "an end is not known, or it fell: the topic was made anew"),
    Column("produced_in_ms", LONG,
           "from the interval's start to its end, or to the newest observation if this comes before",
           "`produced` is NULL"),
)  # fmt: skip

NO_MEMBERS_KNOWN = "no rebalance is known: none was read, or the group was quiet for a week"

GROUP_HOURS = (
    Column("group_id", STRING, "the group"),
    Column("hour_ms", LONG, "where the hour begins"),
    Column("members", INT, "how many at its end", NO_MEMBERS_KNOWN),
    Column("members_min", INT, "the fewest in it, its start included", NO_MEMBERS_KNOWN),
    Column("members_max", INT, "the most in it, its start included", NO_MEMBERS_KNOWN),
    Column("rebalances", LONG, "how many ended in it; what `by_` does not count has another cause"),
    Column("by_joining", LONG, "of these: `first members`, `member joined`"),
    Column("by_leaving", LONG, "of these: `member left`, `group emptied`"),
    Column("by_both", LONG, "of these: `members joined and left`"),
    Column("by_change", LONG, "of these: another protocol, subscription, topology, or number of partitions or topics"),
    Column("static_returns", LONG, "static members that came back under a new member id, with a rebalance or without"),
    Column("members_joined", LONG, "members that were new", "what came before is no longer in the log"),
    Column("members_left", LONG, "members that were gone", "what came before is no longer in the log"),
    Column("commits", LONG, "commits of all partitions"),
    Column("longest_silence_ms", LONG,
           "longest time between two commits (of any partition) of which the second is in this hour",
           "none, or one commit with none in the week before it"),
    Column("interrupted_ms", LONG,
           "time without commits around rebalances, counted in the hour in which the group committed again; "
           "not for a group that was empty before or after", "there were rebalances, and of none is it known"),
    Column("last_commit_ms", LONG, "the group's last commit before the hour's end", "none in the week before"),
)  # fmt: skip

TABLES: dict[str, tuple[Column, ...]] = {
    "commits": COMMITS,
    "group_records": GROUP_RECORDS,
    "markers": MARKERS,
    "rebalances": REBALANCES,
    "log_ends": LOG_ENDS,
    "offsets": OFFSETS,
    "open_commits": COMMITS,
    "group_state": GROUP_RECORDS,
    "groups": GROUPS,
    "members": MEMBERS,
    "latest_rebalances": LATEST_REBALANCES,
    "lag": LAG,
    "activity": ACTIVITY,
    "lag_history": LAG_HISTORY,
    "rates": RATES,
    "group_hours": GROUP_HOURS,
}
