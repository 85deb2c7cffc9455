"""Findings about what groups have committed: standing still, going back, out of the log, about to be deleted."""

from muster.tables.findings.finding import ERROR, INFO, WARNING, Asked, Kind, Relations, Threshold, literal, row
from muster.tables.sql.queries import added_up, difference
from muster.tables.sql.sentences import DAY_MS, MINUTE_MS, SECOND_MS, duration, group, place, said

STUCK_MS = Threshold(
    MINUTE_MS, "without a commit, or with the same one",
    "ten commits may come within a second, and be as much as a second ago, which makes the verdict STOPPED", True,
)  # fmt: skip
STORM_COMMITS = Threshold(
    20, "commits a second for one partition, over five minutes",
    "clients commit every 5 s by themselves, and Kafka Streams every 100 ms with exactly-once: that is 10",
)  # fmt: skip
HANGING_MS = Threshold(
    15 * MINUTE_MS, "since its first commit of offsets",
    "transaction.max.timeout.ms: by then the broker ends a transaction itself", True,
)  # fmt: skip
EXPIRING_MS = Threshold(DAY_MS, "left until the first offset is deleted", "time enough to do something about it", True)
EXPIRING_SHARE = Threshold(
    4, "the retention divided by this, if that is less", "with a retention of an hour all is due within the day"
)
OFFSETS_TOPIC = "__consumer_offsets"
"""The source tells no ends of it."""
WHERE = "{0}.group_id = {1}.group_id AND {0}.topic = {1}.topic AND {0}.partition = {1}.partition"
HERE = place("t.topic", "t.partition")


def _stuck(of: Relations, asked: Asked) -> str:
    say = asked.dialect
    first_ms = f"({say.first.format('s.window')}).commit_ms"
    began = f"CASE WHEN s.verdict = 'STOPPED' THEN s.last_commit_ms ELSE {first_ms} END"
    since = f"coalesce({began}, s.verdict_since_ms)"
    behind = difference("s.log_end_offset", "s.committed_offset")
    lag = f"coalesce(s.lag, greatest({behind}, 0), 0)"
    age, waiting = duration("t.age_ms"), say.counted("t.waiting", "record waits", "records wait")
    owner = {name: say.json_text(f"l.{name}") for name in ("member_id", "client_id", "client_host")}
    stopped = said("{} has been without a commit for {} while {} in {}.", group("t.group_id"), age, waiting, HERE)
    stalled = said(
        "{} has committed offset {} of {} again and again for {} while {}.",
        group("t.group_id"), say.number("t.committed_offset"), HERE, age, waiting,
    )  # fmt: skip
    told = row(
        literal(ERROR),
        {"verdict": say.json_text("t.verdict"), "committed_offset": "t.committed_offset", "lag": "t.lag",
         "lag_ms": "t.lag_ms", "last_commit_ms": "t.last_commit_ms", **owner},
        f"CASE WHEN t.verdict = 'STOPPED' THEN {stopped} ELSE {stalled} END",
        "t.since_ms", "t.group_id", "t.topic", "t.partition", "l.member_id",
    )  # fmt: skip
    return f"""
        SELECT {told}
        FROM (
            SELECT s.*, {since} AS since_ms, {asked.at_ms} - {since} AS age_ms, {lag} AS waiting
            FROM {of["status"]} s WHERE s.verdict IN ('STALLED', 'STOPPED')
        ) t LEFT JOIN {of["lag"]} l ON {WHERE.format("t", "l")}
        WHERE t.age_ms >= {STUCK_MS.value}"""


def _rewound(of: Relations, asked: Asked) -> str:
    say = asked.dialect
    behind = said(
        "{} went back in {} and has not made up for it: {}.",
        group("t.group_id"), HERE, say.counted("coalesce(t.lag, 0)", "record waits", "records wait"),
    )  # fmt: skip
    again = said(
        "{} went back {} in {} within the last day, {} in all.",
        group("t.group_id"), say.times("t.rewinds"), HERE, say.counted("t.rewound", "record"),
    )  # fmt: skip
    told = row(
        f"CASE WHEN t.is_now = 1 THEN '{ERROR}' ELSE '{INFO}' END",
        {"rewinds": "t.rewinds", "rewound": "t.rewound", "committed_offset": "t.committed_offset", "lag": "t.lag",
         "last_interval_ms": "t.last_ms"},
        f"CASE WHEN t.is_now = 1 THEN {behind} ELSE {again} END",
        "t.since_ms", "t.group_id", "t.topic", "t.partition",
    )  # fmt: skip
    return f"""
        SELECT {told}
        FROM (
            SELECT u.group_id, u.topic, u.partition, max(u.is_now) AS is_now, max(u.rewinds) AS rewinds,
                max(u.rewound) AS rewound, max(u.committed_offset) AS committed_offset, max(u.lag) AS lag,
                max(u.last_ms) AS last_ms, max(u.since_ms) AS since_ms
            FROM (
                SELECT s.group_id, s.topic, s.partition, 1 AS is_now, NULL AS rewinds, NULL AS rewound,
                    s.committed_offset, s.lag, NULL AS last_ms, s.verdict_since_ms AS since_ms
                FROM {of["status"]} s WHERE s.verdict = 'REWIND'
                UNION ALL
                SELECT r.group_id, r.topic, r.partition, 0, sum(r.rewinds), {added_up("r.rewound")}, NULL, NULL,
                    max(r.interval_start_ms), max(r.interval_start_ms)
                FROM {of["rates"]} r WHERE r.rewinds > 0 AND r.interval_start_ms > {asked.since_ms}
                GROUP BY r.group_id, r.topic, r.partition
            ) u GROUP BY u.group_id, u.topic, u.partition
        ) t"""


def _storm(of: Relations, asked: Asked) -> str:
    say = asked.dialect
    told = row(
        literal(WARNING),
        {"commits": "t.commits", "in_ms": "t.in_ms", "most_a_second": "t.most", "partitions": "t.partitions",
         "consumed": "t.consumed", "last_interval_ms": "t.last_ms"},
        said(
            "{} committed {} within {}, up to {} a second for one partition, and read {} meanwhile.",
            group("t.group_id"), say.times("t.commits"), duration("t.in_ms"), say.times("t.most"),
            say.counted("t.consumed", "record"),
        ),
        "t.since_ms", "t.group_id",
    )  # fmt: skip
    return f"""
        SELECT {told}
        FROM (
            SELECT s.group_id, max(s.start_ms) AS since_ms, max(s.interval_start_ms) AS last_ms,
                sum(s.interval_ms) AS in_ms, sum(s.commits) AS commits, {added_up("s.consumed")} AS consumed,
                max(s.most) AS most, max(s.partitions) AS partitions
            FROM (
                SELECT i.*, CASE WHEN i.interval_start_ms
                    - lag(i.interval_start_ms) OVER (PARTITION BY i.group_id ORDER BY i.interval_start_ms)
                    = i.interval_ms THEN NULL ELSE i.interval_start_ms END AS start_ms
                FROM (
                    SELECT r.group_id, r.interval_start_ms, max(r.interval_ms) AS interval_ms,
                        sum(r.commits) AS commits, {added_up("coalesce(r.consumed, 0)")} AS consumed,
                        count(*) AS partitions,
                        max(CAST(round(r.commits * {SECOND_MS} / r.interval_ms) AS BIGINT)) AS most
                    FROM {of["rates"]} r
                    WHERE r.interval_start_ms > {asked.since_ms}
                        AND r.commits * {SECOND_MS} >= {STORM_COMMITS.value} * r.interval_ms
                    GROUP BY r.group_id, r.interval_start_ms
                ) i
            ) s GROUP BY s.group_id
        ) t"""


def _hanging(of: Relations, asked: Asked) -> str:
    say = asked.dialect
    began = "coalesce(o.timestamp_ms, o.commit_timestamp_ms)"
    told = row(
        literal(ERROR),
        {"producer_id": "t.producer_id", "producer_epoch": "t.producer_epoch", "partitions": "t.partitions",
         "offsets_partition": "t.offsets_partition", "log_offset": "t.log_offset"},
        said(
            "a transaction of producer {} has held offsets of {} for {} back for {}, and none of them counts.",
            "CAST(t.producer_id AS STRING)", group("t.group_id"), say.counted("t.partitions", "partition"),
            duration("t.age_ms"),
        ),
        "t.since_ms", "t.group_id",
    )  # fmt: skip
    return f"""
        SELECT {told}
        FROM (
            SELECT o.group_id, o.producer_id, max(o.producer_epoch) AS producer_epoch, min({began}) AS since_ms,
                {asked.at_ms} - min({began}) AS age_ms,
                count(DISTINCT {place("o.topic", "o.partition")}) AS partitions, min(o.log_offset) AS log_offset,
                min(o.offsets_partition) AS offsets_partition
            FROM {of["open_commits"]} o GROUP BY o.group_id, o.producer_id
        ) t WHERE t.since_ms < {asked.at_ms - HANGING_MS.value}"""


def _beyond(of: Relations, asked: Asked) -> str:
    say = asked.dialect
    told = row(
        literal(ERROR),
        {"committed_offset": "t.committed_offset", "log_end_offset": "t.log_end_offset", "beyond": "t.beyond",
         "commit_ms": "t.commit_timestamp_ms", "member_id": say.json_text("t.member_id")},
        said(
            "{} has committed offset {} of {}, which ends at {}: {} beyond it.",
            group("t.group_id"), say.number("t.committed_offset"), HERE, say.number("t.log_end_offset"),
            say.counted("t.beyond", "record"),
        ),
        "t.commit_timestamp_ms", "t.group_id", "t.topic", "t.partition", "t.member_id",
    )  # fmt: skip
    return f"""
        SELECT {told}
        FROM (SELECT l.*, -l.offset_lag AS beyond FROM {of["lag"]} l WHERE l.offset_lag < 0) t"""


def _below(of: Relations, asked: Asked) -> str:
    say = asked.dialect
    told = row(
        literal(ERROR),
        {"committed_offset": "t.committed_offset", "log_start_offset": "t.log_start_offset",
         "lost_records": "t.lost_records", "lag": "t.lag", "commit_ms": "t.commit_timestamp_ms",
         "member_id": say.json_text("t.member_id")},
        said(
            "{} has lost {} of {}: it is to go on at offset {}, and the log begins at {}.",
            group("t.group_id"), say.counted("t.lost_records", "record"), HERE, say.number("t.committed_offset"),
            say.number("t.log_start_offset"),
        ),
        "s.verdict_since_ms", "t.group_id", "t.topic", "t.partition", "t.member_id",
    )  # fmt: skip
    return f"""
        SELECT {told}
        FROM (SELECT l.* FROM {of["lag"]} l WHERE l.lost_records > 0) t
        LEFT JOIN {of["status"]} s ON {WHERE.format("t", "s")} AND s.verdict = 'LOSING'"""


def _orphaned(of: Relations, asked: Asked) -> str:
    """The last look is that of the run with the highest number; what it does not know, an earlier one may have seen."""
    say = asked.dialect
    is_missing = "k.topic IS NULL" if asked.lists_all_topics else "k.topic IS NULL AND e.seen_ms IS NOT NULL"
    gone = said("{} has offsets of {} of {}, a topic that the source does not have{}.", group("t.group_id"),
                say.counted("t.partitions", "partition"), "t.topic",
                "CASE WHEN t.seen_ms IS NULL THEN '' ELSE ' any more' END")  # fmt: skip
    anew = said("{} has offsets of {} of a topic {} that was deleted: the topic of this name is another one.",
                group("t.group_id"), say.counted("t.partitions", "partition"), "t.topic")  # fmt: skip
    told = row(
        literal(WARNING),
        {"partitions": "t.partitions", "last_commit_ms": "t.last_commit_ms", "topic_seen_ms": "t.seen_ms",
         "topics_of_the_source": "t.topics"},
        f"CASE WHEN t.is_anew = 1 THEN {anew} ELSE {gone} END",
        "CASE WHEN t.is_anew = 0 THEN t.seen_ms END", "t.group_id", "t.topic",
    )  # fmt: skip
    run = "coalesce({0}.run_number, -1)"
    last = f"SELECT max({run.format('n')}) AS run_number FROM {of['log_ends']} n"
    known = f"""SELECT c.topic, min(c.topic_id) AS first_id, max(c.topic_id) AS last_id FROM {of["log_ends"]} c
        JOIN ({last}) q ON {run.format("c")} = q.run_number GROUP BY c.topic"""
    return f"""
        SELECT {told}
        FROM (
            SELECT o.group_id, o.topic, count(*) AS partitions, max(o.commit_timestamp_ms) AS last_commit_ms,
                max(e.seen_ms) AS seen_ms, max(n.topics) AS topics,
                max(CASE WHEN k.topic IS NULL THEN 0 ELSE 1 END) AS is_anew
            FROM {of["offsets"]} o CROSS JOIN (SELECT count(*) AS topics FROM ({known}) w) n
            LEFT JOIN ({known}) k ON o.topic = k.topic
            LEFT JOIN (
                SELECT s.topic, max(s.observed_at_ms) AS seen_ms FROM {of["log_ends"]} s
                LEFT JOIN ({known}) x ON s.topic = x.topic WHERE x.topic IS NULL GROUP BY s.topic
            ) e ON o.topic = e.topic
            WHERE n.topics > 0 AND o.topic <> '{OFFSETS_TOPIC}'
                AND (({is_missing}) OR (k.first_id <> o.topic_id AND k.last_id <> o.topic_id))
            GROUP BY o.group_id, o.topic
        ) t"""


def _expiring(of: Relations, asked: Asked) -> str:
    say = asked.dialect
    later = said("in {}", duration("t.left_ms"))
    soon = f"CASE WHEN t.left_ms <= 0 THEN 'at any moment' ELSE {later} END"
    waiting = said(", and {} for it", say.counted("t.waiting", "record waits", "records wait"))
    told = row(
        literal(WARNING),
        {"partitions": "t.partitions", "expires_at_ms": "t.first_ms", "rule": say.json_text("t.rule"),
         "retention_ms": "t.retention_ms", "waiting": "t.waiting"},
        said(
            "{} will lose its offsets of {} {}{}.",
            group("t.group_id"), say.counted("t.partitions", "partition"), soon,
            f"CASE WHEN t.waiting > 0 THEN {waiting} ELSE '' END",
        ),
        "t.since_ms", "t.group_id",
    )  # fmt: skip
    return f"""
        SELECT {told}
        FROM (
            SELECT e.group_id, count(*) AS partitions, min(e.expires_at_ms) AS first_ms, min(e.since_ms) AS since_ms,
                min(e.rule) AS rule, min(e.retention_ms) AS retention_ms, {added_up("l.lag")} AS waiting,
                min(e.expires_at_ms) - {asked.at_ms} AS left_ms
            FROM {of["expiry"]} e LEFT JOIN {of["lag"]} l ON {WHERE.format("e", "l")}
            WHERE e.topic IS NOT NULL AND e.expires_at_ms <= {asked.at_ms + EXPIRING_MS.value}
                AND {EXPIRING_SHARE.value} * (e.expires_at_ms - {asked.at_ms}) <= e.retention_ms
            GROUP BY e.group_id
        ) t"""


STUCK_PARTITION = Kind(
    "stuck-partition", (ERROR,),
    "the verdict of `status` is STOPPED or STALLED: records wait, and the committed offset does not move",
    "Look into the log of the consumer that has the partition (`kafka-consumer-groups --describe --group GROUP` names "
    "it), and restart it; if nobody has it, start one.",
    ("status", "lag"), _stuck, (STUCK_MS,),
)  # fmt: skip
REWOUND_PARTITION = Kind(
    "rewound-partition", (ERROR, INFO),
    "the verdict of `status` is REWIND; or (an info) a lower offset was committed in the last day, and made up for",
    "If nobody reset the offsets on purpose, look for two consumers that commit for the same partition, and for "
    "commits that are sent after a rebalance has taken the partition away.",
    ("status", "rates"), _rewound,
)  # fmt: skip
COMMIT_STORM = Kind(
    "commit-storm", (WARNING,),
    "a group commits far more often than a restart could make use of, in an interval of the last day",
    "Commit once a batch or once in some seconds, not after every record; enable.auto.commit with "
    "auto.commit.interval.ms=5000 does so.",
    ("rates",), _storm, (STORM_COMMITS,),
)  # fmt: skip
HANGING_TRANSACTION = Kind(
    "hanging-transaction", (ERROR,),
    "a commit of offsets waits for the end of a transaction that should have ended long ago",
    "Run `kafka-transactions find-hanging --broker-id ID`, then `kafka-transactions abort` with what it shows.",
    ("open_commits",), _hanging, (HANGING_MS,),
)  # fmt: skip
BEYOND_END = Kind(
    "beyond-end", (ERROR,),
    "a committed offset is beyond the end of its log: the topic was made anew or has lost records, and the next start "
    "of the consumer will do what auto.offset.reset says",
    "Stop the group and set its place yourself: `kafka-consumer-groups --reset-offsets --group GROUP --topic TOPIC "
    "--to-earliest --execute` (or --to-datetime).",
    ("lag",), _beyond,
)  # fmt: skip
BELOW_LOG_START = Kind(
    "below-log-start", (ERROR,),
    "a committed offset is before the start of its log: records were deleted that the group had not read",
    "Raise retention.ms or retention.bytes of the topic until the group has caught up, and give it more consumers; "
    "what is lost can be had from the producers alone.",
    ("lag", "status"), _below,
)  # fmt: skip
ORPHANED_OFFSETS = Kind(
    "orphaned-offsets", (WARNING,),
    "offsets are committed for a topic that a live cluster does not list; that an earlier look of the last day has "
    "seen, and the last one has not; or that has another topic id now. Directories of brokers do not tell of topics on "
    "other brokers: from them a topic that was never seen says nothing",
    "If the topic was deleted, run `kafka-consumer-groups --delete-offsets --group GROUP --topic TOPIC`; if it is "
    "there, let the user of the pipeline describe it.",
    ("offsets", "log_ends"), _orphaned,
)  # fmt: skip
ABOUT_TO_EXPIRE = Kind(
    "about-to-expire", (WARNING,),
    "offsets of a group will be deleted soon, by `expiry`",
    "Start a consumer of the group, or raise offsets.retention.minutes; if it is not needed any more, let it go.",
    ("expiry", "lag"), _expiring, (EXPIRING_MS, EXPIRING_SHARE),
)  # fmt: skip

OF_OFFSETS = (
    STUCK_PARTITION, REWOUND_PARTITION, COMMIT_STORM, HANGING_TRANSACTION, BEYOND_END, BELOW_LOG_START,
    ORPHANED_OFFSETS, ABOUT_TO_EXPIRE,
)  # fmt: skip
