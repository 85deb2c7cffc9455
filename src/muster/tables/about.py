"""What each table is about, in a line: for help, which must be quick to import, and for the tables themselves."""

ABOUT = {
    "commits": "every commit and deletion, with the outcome of its transaction",
    "offsets": "what is committed, by group, topic and partition",
    "open_commits": "commits whose transaction has not ended",
    "groups": "groups of every kind, their state and size",
    "members": "members with subscription and assignment",
    "rebalances": "every generation: who joined, who left, why",
    "latest_rebalances": "the newest row of rebalances of each group, which may still change",
    "lag": "how far behind, in records and in time",
    "log_ends": "where topics began and ended, by time",
    "group_records": "every record about groups, as it was written",
    "group_state": "the newest record of each key about groups",
    "markers": "ends of transactions",
    "activity": "when each group first and last committed",
    "lag_history": "how far behind each group was, by interval of five minutes",
    "rates": "consumption and commits, by interval of five minutes",
    "group_hours": "members, rebalances and silence of each group, by hour",
    "status": "how well each group does with each partition, and since when",
    "verdicts": "every change of a verdict of status",
    "expiry": "when offsets and groups will be deleted, and by which rule",
    "findings": "what is wrong, since when, and what to do about it",
}
