"""Columns of the tables that judge: `status`, `verdicts`, `expiry` and `findings` (see `columns`)."""

import pyarrow as pa

from muster.tables.column_kinds import DOUBLE, INT, LONG, STRING, Column

SEEN_COMMIT = pa.struct([(name, pa.int64()) for name in ("committed_offset", "commit_ms", "lag", "log_offset")])
NOT_TOLD = "as of a moment in the past: not remembered"

STATUS = (
    Column("group_id", STRING, "the group"),
    Column("topic", STRING, "the topic"),
    Column("partition", INT, "its partition"),
    Column("verdict", STRING, "`OK`, `WARN`, `STALLED`, `STOPPED`, `REWIND`, `LOSING` or `EXPIRING`",
           "nothing to judge: none of the last ten runs saw the end, or there was no commit for a week; and the offset "
           "will not be deleted soon"),
    Column("verdict_since_ms", LONG, "the first look at which it held, and without a break since",
           "there is no verdict"),
    Column("at_ms", LONG, "when it was judged: the look of the last run that made this table"),
    Column("committed_offset", LONG, "as in `offsets`"),
    Column("log_end_offset", LONG, "as in `lag`", "not seen"),
    Column("lag", LONG, "as in `lag`", "unknown"),
    Column("lag_ms", LONG, "as in `lag`", "not known"),
    Column("lost_records", LONG, "as in `lag`", "not known"),
    Column("last_commit_ms", LONG, "time of the commit in force, by the client", "it has no time"),
    Column("completeness", DOUBLE, "how much of the window is filled with commits of the last week, 0 to 1",
           f"nothing to judge; {NOT_TOLD}"),
    Column("window", pa.list_(SEEN_COMMIT),
           "the last commits, at most 10, oldest first: each with its time (ms since 1970), its lag when it came, "
           "and its place in `__consumer_offsets`",
           NOT_TOLD),
    Column("ends", pa.list_(pa.int64()), "the ends of the log that the last ten runs saw, oldest first",
           f"none did; {NOT_TOLD}"),
)  # fmt: skip

VERDICTS = (
    Column("group_id", STRING, "the group"),
    Column("topic", STRING, "the topic"),
    Column("partition", INT, "its partition"),
    Column("at_ms", LONG, "the look at which it was another verdict than before"),
    Column("verdict", STRING, "the verdict from then on, as in `status`",
           "the offset is gone, or there was nothing to judge any more"),
    Column("verdict_before", STRING, "the verdict until then", "there was none"),
    Column("committed_offset", LONG, "in force then", "the offset is gone"),
    Column("lag", LONG, "as in `lag`", "unknown, or the offset is gone"),
    Column("lag_ms", LONG, "as in `lag`", "not known, or the offset is gone"),
    Column("run_number", LONG, "the run that looked"),
)  # fmt: skip

EXPIRY = (
    Column("group_id", STRING, "the group"),
    Column("topic", STRING, "the topic", "the row is of the group itself"),
    Column("partition", INT, "its partition", "the row is of the group itself"),
    Column("expires_at_ms", LONG, "when it will be deleted if nothing more happens; the broker looks now and then only",
           "never, as long as nothing changes"),
    Column("rule", STRING, "by which rule of the broker: `since last commit`, `kept: members`, ..."),
    Column("since_ms", LONG, "from when on the time is counted", "not counted: `kept`, or an expiry of its own"),
    Column("retention_ms", LONG, "`offsets.retention.minutes`, as the run was told or has asked the broker"),
    Column("committed_offset", LONG, "as in `offsets`", "the row is of the group itself"),
    Column("at_ms", LONG, "of which moment the forecast is"),
)  # fmt: skip

FINDINGS = (
    Column("kind", STRING, "what was found: `stuck-partition`, `flapping-group`, ..."),
    Column("severity", STRING, "`error`, `warning` or `info`"),
    Column("group_id", STRING, "the group", "not about one"),
    Column("topic", STRING, "the topic", "not about one"),
    Column("partition", INT, "its partition", "not about one"),
    Column("member_id", STRING, "the member", "not about one"),
    Column("since_ms", LONG, "since when", "not known"),
    Column("at_ms", LONG, "of which moment it is"),
    Column("evidence", STRING, "the facts, a JSON object", "there are none"),
    Column("sentence", STRING, "what is the matter, in a sentence"),
    Column("what_to_do", STRING, "what to do about it, in a sentence"),
)  # fmt: skip
