"""The tables in two forms, inside and published; `columns` says what each column is.

*Inside*, in code and in SQL (`queries`), a moment is int64: milliseconds since 1970, UTC, under a name that ends in
`_ms`. *Published*, in Parquet and Delta, it is a timestamp (UTC, microseconds) under the name without it. Durations and
timeouts end in `_ms` in both. `MOMENTS` says which is which, and `times` makes one form of the other.

NULL is where the log has -1 or nothing. `log_offset` is a place in `__consumer_offsets`, `committed_offset` one in the
data.
"""

import pyarrow as pa

from muster.tables import columns, judged_columns
from muster.tables.column_kinds import NEVER, Column

MOMENTS = frozenset({
    "timestamp_ms", "commit_timestamp_ms", "expire_timestamp_ms", "previous_commit_timestamp_ms", "state_timestamp_ms",
    "last_commit_before_ms", "first_commit_after_ms", "last_commit_timestamp_ms", "at_ms", "observed_at_ms",
    "newest_timestamp_ms", "first_commit_ms", "last_commit_ms", "interval_start_ms", "behind_since_ms",
    "commit_before_ms", "hour_ms", "verdict_since_ms", "expires_at_ms", "since_ms",
})  # fmt: skip
"""Columns that are moments. Whatever else ends in `_ms` is a length of time."""

TIMESTAMP = pa.timestamp("us", tz="UTC")
MILLISECONDS = "_ms"


def published_name(name: str) -> str:
    """What a column is called in the published table."""
    return name.removesuffix(MILLISECONDS) if name in MOMENTS else name


def published_form(inner: pa.Schema) -> pa.Schema:
    """The columns of an inner schema as they are published; any of them may be NULL."""
    return pa.schema(
        [pa.field(published_name(field.name), TIMESTAMP if field.name in MOMENTS else field.type) for field in inner]
    )


def without_comments(schema: pa.Schema) -> pa.Schema:
    """The same columns: a file need not repeat what the table says."""
    return pa.schema([field.remove_metadata() for field in schema])


def _inner(of_table: tuple[Column, ...]) -> pa.Schema:
    return pa.schema([pa.field(column.name, column.kind) for column in of_table])


def _published(of_table: tuple[Column, ...]) -> pa.Schema:
    """With comments, and NOT NULL where NULL is never: but for moments: any may be written as -1."""
    fields = []
    for column, field in zip(of_table, published_form(_inner(of_table)), strict=True):
        is_always_there = column.null == NEVER and column.name not in MOMENTS
        comment = column.what if column.null == NEVER else f"{column.what}; NULL: {column.null}"
        fields.append(field.with_nullable(not is_always_there).with_metadata({"comment": comment.replace("`", "")}))
    return pa.schema(fields)


COMMITS = _inner(columns.COMMITS)
OPEN_COMMITS = COMMITS
GROUP_RECORDS = _inner(columns.GROUP_RECORDS)
GROUP_STATE = GROUP_RECORDS
MARKERS = _inner(columns.MARKERS)
OFFSETS = _inner(columns.OFFSETS)
GROUPS = _inner(columns.GROUPS)
MEMBERS = _inner(columns.MEMBERS)
REBALANCES = _inner(columns.REBALANCES)
LATEST_REBALANCES = _inner(columns.LATEST_REBALANCES)
LOG_ENDS = _inner(columns.LOG_ENDS)
LAG = _inner(columns.LAG)
ACTIVITY = _inner(columns.ACTIVITY)
LAG_HISTORY = _inner(columns.LAG_HISTORY)
RATES = _inner(columns.RATES)
GROUP_HOURS = _inner(columns.GROUP_HOURS)
STATUS = _inner(judged_columns.STATUS)
VERDICTS = _inner(judged_columns.VERDICTS)
EXPIRY = _inner(judged_columns.EXPIRY)
FINDINGS = _inner(judged_columns.FINDINGS)

TIMES = pa.schema(  # the data's own clock: the timestamp of the first record at or after an offset; in no table
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp_ms", pa.int64()),
    ]
)

HISTORY: dict[str, pa.Schema] = {
    "commits": COMMITS,
    "group_records": GROUP_RECORDS,
    "markers": MARKERS,
    "rebalances": REBALANCES,
    "log_ends": LOG_ENDS,
    "verdicts": VERDICTS,
}
"""Only ever appended to, but for what a truncation of the log withdraws, what `--keep-history` drops, and observations
of ends that are thinned out."""

STATE: dict[str, pa.Schema] = {
    "offsets": OFFSETS,
    "open_commits": OPEN_COMMITS,
    "group_state": GROUP_STATE,
    "groups": GROUPS,
    "members": MEMBERS,
    "latest_rebalances": LATEST_REBALANCES,  # the newest of each group: its row may still change
    "lag": LAG,
    "activity": ACTIVITY,
}
"""Replaced by every run, where something is new."""

ANALYTICS: dict[str, pa.Schema] = {"lag_history": LAG_HISTORY, "rates": RATES, "group_hours": GROUP_HOURS}
"""Made of history, interval by interval; a run replaces the intervals that its new rows touch."""

JUDGED: dict[str, pa.Schema] = {"status": STATUS, "expiry": EXPIRY, "findings": FINDINGS}
"""Judged anew by every run that makes analytics and finds something new; of a live cluster now and then without: the
clock moves."""

TABLES = HISTORY | STATE | ANALYTICS | JUDGED
"""Every table, as it is inside."""

PUBLISHED = {name: _published(columns.TABLES[name]) for name in TABLES}
"""Every table, as it lies in Parquet and Delta."""
