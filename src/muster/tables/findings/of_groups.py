"""Findings about groups and their members: who comes and goes, who has what, and rebalances that nothing followed."""

from muster.tables.findings.finding import ERROR, WARNING, Asked, Kind, Relations, Threshold, literal, row
from muster.tables.sql.queries import added_up
from muster.tables.sql.sentences import HOUR_MS, MINUTE_MS, duration, group, said

FLAPPING_REBALANCES = Threshold(
    10, "rebalances in an hour of the clock because members joined or left",
    "each stops the whole group for a while, and this is one every six minutes",
)  # fmt: skip
FLAPPING_TURNS = Threshold(
    3, "times as many of them as there were members",
    "members that are replaced one after the other leave and join once each: that makes two",
)  # fmt: skip
FLAPPING_MEMBERS = Threshold(3, "members that joined, and that left, in that hour", "fewer make no pattern")

SKEWED_RATIO = Threshold(
    2, "times as many partitions for one member as for another",
    "what does not divide evenly makes a difference of 1, and the range assignor one for each topic",
)  # fmt: skip
SKEWED_DIFFERENCE = Threshold(4, "partitions more", "of few partitions twice as many is soon reached")
SETTLED_MS = Threshold(
    5 * MINUTE_MS,
    "since the last rebalance",
    "a cooperative rebalance hands out what was given up in a second one",
    True,
)

KICKED_IN_AN_HOUR = Threshold(
    3, "times that a client left and came back, in an hour of the clock",
    "nobody deploys so often, and max.poll.interval.ms is 5 minutes",
)  # fmt: skip
KICKED_IN_A_DAY = Threshold(10, "times in a day", "the same, of a client that is thrown out more slowly")
KICKED_TURNS = Threshold(
    2, "times as often as there are members of the same client id", "many instances of one program may share a name"
)

UNFINISHED_MS = Threshold(
    10 * MINUTE_MS,
    "since the group changed",
    "members have max.poll.interval.ms, 5 minutes, to rejoin; twice that",
    True,
)
UNFINISHED_TURNS = Threshold(
    2, "times the longest silence of the day before", "some groups commit once an hour, and are well"
)

SHARED_CHANGES = Threshold(
    3, "changes of host under one instance id in a day", "a move, and a move back, are two; this is to and fro"
)

DIGITS = 10
"""Of a number that is compared as text, so that one aggregate gives the most and whose it is."""
UUID = "-________-____-____-____-____________"
"""How the id ends that a broker makes of a client id or an instance id."""


def _flapping(of: Relations, asked: Asked) -> str:
    say = asked.dialect
    silence = said(
        ", and nobody committed for {} of it",
        duration("t.interrupted_ms"),
    )
    interrupted = f"CASE WHEN t.interrupted_ms > 0 THEN {silence} ELSE '' END"
    by_members = "(h.by_joining + h.by_leaving + h.by_both)"
    told = row(
        literal(WARNING),
        {
            "hours": "t.hours",
            "rebalances": "t.rebalances",
            "most_in_an_hour": "t.most",
            "members_joined": "t.joined",
            "members_left": "t.gone",
            "interrupted_ms": "t.interrupted_ms",
        },
        said(
            "{} rebalanced {} in {}: {} joined and {} left{}.",
            group("t.group_id"),
            say.times("t.rebalances"),
            say.counted("t.hours", "hour"),
            say.counted("t.joined", "member"),
            say.number("t.gone"),
            interrupted,
        ),
        "t.since_ms",
        "t.group_id",
    )
    return f"""
        SELECT {told}
        FROM (
            SELECT s.group_id, max(s.start_ms) AS since_ms, count(*) AS hours, sum(s.rebalances) AS rebalances,
                max(s.rebalances) AS most, sum(s.members_joined) AS joined, sum(s.members_left) AS gone,
                sum(s.interrupted_ms) AS interrupted_ms
            FROM (
                SELECT h.*, CASE WHEN h.hour_ms - lag(h.hour_ms) OVER (PARTITION BY h.group_id ORDER BY h.hour_ms)
                    = {HOUR_MS} THEN NULL ELSE h.hour_ms END AS start_ms
                FROM {of["group_hours"]} h
                WHERE h.hour_ms > {asked.since_ms}
                    AND {by_members} >= greatest({FLAPPING_REBALANCES.value}, {FLAPPING_TURNS.value} * h.members_max)
                    AND h.members_joined >= {FLAPPING_MEMBERS.value} AND h.members_left >= {FLAPPING_MEMBERS.value}
            ) s GROUP BY s.group_id
        ) t"""


def _skewed(of: Relations, asked: Asked) -> str:
    """Members with the same subscription are compared, by what they are to have where that is told."""
    say = asked.dialect
    held = f"""
        SELECT e.group_id, e.member_id, sum({say.size}(e.a.partitions)) AS partitions FROM (
            SELECT m.group_id, m.member_id, {say.explode}(coalesce(m.target_assignment, m.assignment)) AS a
            FROM {of["members"]} m
        ) e GROUP BY e.group_id, e.member_id"""
    ranked = f"lpad(CAST(coalesce(h.partitions, 0) AS STRING), {DIGITS}, '0') || m.member_id"
    idle = said(
        "{} leaves {} of {} without a partition while one has {}.",
        group("t.group_id"),
        say.number("t.idle"),
        say.counted("t.members", "member"),
        say.number("t.most"),
    )
    uneven = said(
        "{} gives one member {} and another {}: {} for {}.",
        group("t.group_id"),
        say.counted("t.most", "partition"),
        say.number("t.fewest"),
        say.counted("t.partitions", "partition"),
        say.counted("t.members", "member"),
    )
    told = row(
        literal(WARNING),
        {
            "members": "t.members",
            "partitions": "t.partitions",
            "most": "t.most",
            "fewest": "t.fewest",
            "members_without": "t.idle",
            "busiest_member": say.json_text(f"substring(t.busiest, {DIGITS + 1})"),
        },
        f"CASE WHEN t.fewest = 0 THEN {idle} ELSE {uneven} END",
        "g.state_timestamp_ms",
        "t.group_id",
    )
    return f"""
        SELECT {told}
        FROM (
            SELECT m.group_id, count(*) AS members, sum(coalesce(h.partitions, 0)) AS partitions,
                max(coalesce(h.partitions, 0)) AS most, min(coalesce(h.partitions, 0)) AS fewest,
                sum(CASE WHEN h.partitions > 0 THEN 0 ELSE 1 END) AS idle, max({ranked}) AS busiest
            FROM {of["members"]} m LEFT JOIN ({held}) h ON m.group_id = h.group_id AND m.member_id = h.member_id
            WHERE m.type IN ('classic', 'consumer') AND m.subscribed_topics IS NOT NULL
            GROUP BY m.group_id, array_sort(m.subscribed_topics), m.regular_expression
        ) t JOIN {of["groups"]} g ON t.group_id = g.group_id
        WHERE ((t.fewest = 0 AND t.most >= {SKEWED_RATIO.value}) OR (t.most >= {SKEWED_RATIO.value} * t.fewest
                AND t.most - t.fewest >= {SKEWED_DIFFERENCE.value}))
            AND coalesce(g.state_timestamp_ms, 0) <= {asked.at_ms - SETTLED_MS.value}"""


def _kicked(of: Relations, asked: Asked) -> str:
    say = asked.dialect
    lately = f"FROM {of['rebalances']} r WHERE r.at_ms > {asked.since_ms}"
    names = f"CASE WHEN {{0}} LIKE '%{UUID}' THEN substring({{0}}, 1, length({{0}}) - {len(UUID)}) ELSE {{0}} END"
    turns = f"{KICKED_TURNS.value} * coalesce(s.members, 1)"
    in_a_day = "least(t.gone, t.came)"
    told = row(
        literal(WARNING),
        {
            "client": say.json_text("t.name"),
            "left": "t.gone",
            "came_back": "t.came",
            "most_in_an_hour": "t.most",
            "members_of_that_name": "coalesce(s.members, 0)",
            "last_ms": "t.last_ms",
        },
        said(
            "{} of {} left {} within {} and came back {}.",
            "CASE WHEN t.name = '' THEN 'a client without a name' ELSE t.name END",
            group("t.group_id"),
            say.times("t.gone"),
            duration("t.within_ms"),
            say.times("t.came"),
        ),
        "t.first_ms",
        "t.group_id",
        member_id="CASE WHEN s.members = 1 THEN s.member_id END",
    )
    return f"""
        SELECT {told}
        FROM (
            SELECT h.group_id, h.name, sum(h.gone) AS gone, sum(h.came) AS came, max(least(h.gone, h.came)) AS most,
                min(h.first_ms) AS first_ms, max(h.last_ms) AS last_ms, max(h.last_ms) - min(h.first_ms) AS within_ms
            FROM (
                SELECT n.group_id, n.name, n.hour_ms, sum(n.gone) AS gone, sum(n.came) AS came,
                    min(n.at_ms) AS first_ms, max(n.at_ms) AS last_ms
                FROM (
                    SELECT m.group_id, m.at_ms, m.at_ms - m.at_ms % {HOUR_MS} AS hour_ms, m.gone, m.came,
                        {names.format("m.id")} AS name
                    FROM (
                        SELECT r.group_id, r.at_ms, 1 AS gone, 0 AS came, {say.explode}(r.left) AS id {lately}
                        UNION ALL SELECT r.group_id, r.at_ms, 0, 1, {say.explode}(r.joined) {lately}
                        UNION ALL SELECT r.group_id, r.at_ms, 1, 1, {say.explode}(r.replaced) {lately}
                    ) m
                ) n GROUP BY n.group_id, n.name, n.hour_ms
            ) h GROUP BY h.group_id, h.name
        ) t LEFT JOIN (
            SELECT m.group_id, m.name, count(*) AS members, min(m.member_id) AS member_id FROM (
                SELECT k.group_id, k.member_id, {names.format("k.member_id")} AS name FROM {of["members"]} k
            ) m GROUP BY m.group_id, m.name
        ) s ON t.group_id = s.group_id AND t.name = s.name
        WHERE t.most >= greatest({KICKED_IN_AN_HOUR.value}, {turns})
            OR {in_a_day} >= greatest({KICKED_IN_A_DAY.value}, {turns})"""


def _unfinished(of: Relations, asked: Asked) -> str:
    """Three signs: of newer groups the state, of those with owners a silence behind which records wait, and of both
    that no member has a partition.
    """
    say = asked.dialect
    until_ms = asked.at_ms - UNFINISHED_MS.value
    state = said(
        "{} has been in state {} for {}: its rebalance has not come to an end.",
        group("t.group_id"),
        "t.state",
        duration("t.age_ms"),
    )
    silent = said(
        "{} rebalanced {} ago and has not committed since, while {}.",
        group("t.group_id"),
        duration("t.age_ms"),
        say.counted("t.waiting", "record waits", "records wait"),
    )
    idle = said(
        "{} has {} and has given none a partition for {}.",
        group("t.group_id"),
        say.counted("t.members", "member"),
        duration("t.age_ms"),
    )
    told = row(
        f"CASE WHEN t.sign = 'nobody has partitions' THEN '{WARNING}' ELSE '{ERROR}' END",
        {
            "sign": say.json_text("t.sign"),
            "state": say.json_text("t.state"),
            "generation": "t.generation",
            "members": "t.members",
            "waiting": "t.waiting",
            "last_commit_ms": "t.last_commit_ms",
            "longest_silence_ms": "t.silence_ms",
        },
        f"CASE t.sign WHEN 'state' THEN {state} WHEN 'silence' THEN {silent} ELSE {idle} END",
        "t.changed_ms",
        "t.group_id",
    )
    return f"""
        SELECT {told}
        FROM (
            SELECT f.*, {asked.at_ms} - f.changed_ms AS age_ms,
                CASE WHEN f.state IN ('Assigning', 'Reconciling') THEN 'state'
                    WHEN f.last_commit_ms < f.changed_ms AND f.waiting > 0
                        AND {asked.at_ms} - f.changed_ms > {UNFINISHED_TURNS.value} * coalesce(f.silence_ms, 0)
                        THEN 'silence'
                    WHEN f.subscribed = f.members AND f.held = 0 THEN 'nobody has partitions' END AS sign
            FROM (
                SELECT g.group_id, g.state, g.generation, g.members, g.last_commit_timestamp_ms AS last_commit_ms,
                    greatest(g.state_timestamp_ms, r.at_ms) AS changed_ms, h.silence_ms, m.subscribed, m.held, l.waiting
                FROM {of["groups"]} g
                JOIN (
                    SELECT k.group_id, sum(CASE WHEN k.subscribed_topics IS NOT NULL THEN 1 ELSE 0 END) AS subscribed,
                        sum(coalesce({say.size}(k.assignment), 0)) AS held
                    FROM {of["members"]} k GROUP BY k.group_id
                ) m ON g.group_id = m.group_id
                LEFT JOIN (
                    SELECT k.group_id, {added_up("k.lag")} AS waiting FROM {of["lag"]} k WHERE k.member_id IS NOT NULL
                    GROUP BY k.group_id
                ) l ON g.group_id = l.group_id
                LEFT JOIN (
                    SELECT k.group_id, max(k.longest_silence_ms) AS silence_ms FROM {of["group_hours"]} k
                    WHERE k.hour_ms > {asked.since_ms} GROUP BY k.group_id
                ) h ON g.group_id = h.group_id
                LEFT JOIN (
                    SELECT k.group_id, max(k.at_ms) AS at_ms FROM {of["rebalances"]} k
                    WHERE k.at_ms > {asked.since_ms} GROUP BY k.group_id
                ) r ON g.group_id = r.group_id
                WHERE g.type IN ('classic', 'consumer', 'streams')
            ) f
        ) t WHERE t.sign IS NOT NULL AND t.changed_ms <= {until_ms}"""


def _shared_static_id(of: Relations, asked: Asked) -> str:
    say = asked.dialect
    lately = f"r.timestamp_ms > {asked.since_ms}"
    seats = f"""
        SELECT c.group_id, c.log_offset, c.timestamp_ms, c.m.instance_id AS instance_id,
            c.m.client_host AS client_host, c.m.member_id AS member_id
        FROM (
            SELECT r.group_id, r.log_offset, r.timestamp_ms, {say.explode}(r.members) AS m
            FROM {of["group_records"]} r WHERE {lately} AND r.record_type = 2
        ) c
        UNION ALL SELECT r.group_id, r.log_offset, r.timestamp_ms, r.instance_id, r.client_host, r.member_id
        FROM {of["group_records"]} r WHERE {lately} AND r.record_type IN (5, 19)"""
    over = "PARTITION BY s.group_id, s.instance_id ORDER BY s.log_offset"
    told = row(
        literal(ERROR),
        {
            "instance_id": say.json_text("t.instance_id"),
            "changes": "t.changes",
            "hosts": "t.hosts",
            "one_host": say.json_text("t.one_host"),
            "another_host": say.json_text("t.another_host"),
            "last_ms": "t.last_ms",
        },
        said(
            "the static id {} of {} went to and fro between {} {}: {} and {} are both using it.",
            "t.instance_id",
            group("t.group_id"),
            say.counted("t.hosts", "host"),
            say.times("t.changes"),
            "t.one_host",
            "t.another_host",
        ),
        "t.first_ms",
        "t.group_id",
    )
    return f"""
        SELECT {told}
        FROM (
            SELECT c.group_id, c.instance_id, sum(c.is_change) AS changes, count(DISTINCT c.client_host) AS hosts,
                min(c.client_host) AS one_host, max(c.client_host) AS another_host,
                min(CASE WHEN c.is_change = 1 THEN c.timestamp_ms END) AS first_ms,
                max(CASE WHEN c.is_change = 1 THEN c.timestamp_ms END) AS last_ms
            FROM (
                SELECT s.*, CASE WHEN s.client_host <> lag(s.client_host) OVER ({over}) THEN 1 ELSE 0 END AS is_change
                FROM ({seats}) s JOIN (
                    SELECT w.group_id, w.instance_id FROM ({seats}) w GROUP BY w.group_id, w.instance_id
                    HAVING min(w.client_host) <> max(w.client_host)
                ) o ON s.group_id = o.group_id AND s.instance_id = o.instance_id
                WHERE s.client_host IS NOT NULL
            ) c GROUP BY c.group_id, c.instance_id
        ) t WHERE t.changes >= {SHARED_CHANGES.value} AND t.changes >= t.hosts"""


FLAPPING_GROUP = Kind(
    "flapping-group", (WARNING,),
    "members join and leave a group so often that it hardly gets to work: in an hour of the last day",
    "Find out why members come and go: raise session.timeout.ms or max.poll.interval.ms, or give them a "
    "group.instance.id so that a restart is no rebalance.",
    ("group_hours",), _flapping, (FLAPPING_REBALANCES, FLAPPING_TURNS, FLAPPING_MEMBERS),
)  # fmt: skip
SKEWED_ASSIGNMENT = Kind(
    "skewed-assignment", (WARNING,),
    "of members with the same subscription one has far more partitions than another, or one has none while another has "
    "several",
    "Choose another partition.assignment.strategy: CooperativeStickyAssignor spreads all topics together, the range "
    "assignor each by itself.",
    ("groups", "members"), _skewed, (SKEWED_RATIO, SKEWED_DIFFERENCE, SETTLED_MS),
)  # fmt: skip
KICKED_MEMBER = Kind(
    "kicked-member", (WARNING,),
    "a client, told by the part of its member id that lasts or by its instance id, leaves a group and comes back, and "
    "does so again and again in the last day",
    "Look into the log of that client for a poll that took longer than max.poll.interval.ms, or a crash; lower "
    "max.poll.records if the work of one poll takes too long.",
    ("rebalances", "members"), _kicked, (KICKED_IN_AN_HOUR, KICKED_IN_A_DAY, KICKED_TURNS),
)  # fmt: skip
UNFINISHED_REBALANCE = Kind(
    "unfinished-rebalance", (ERROR, WARNING),
    "a group of a newer kind is Assigning or Reconciling for long; or a group that committed before its last rebalance "
    "has not since, and records wait in partitions that its members have; or (a warning) none of its members has any",
    "Run `kafka-consumer-groups --describe --group GROUP --members --verbose`, look into the log of the member that "
    "does not go on, and restart it.",
    ("groups", "members", "lag", "group_hours", "rebalances"), _unfinished, (UNFINISHED_MS, UNFINISHED_TURNS),
)  # fmt: skip
SHARED_STATIC_ID = Kind(
    "shared-static-id", (ERROR,),
    "one instance id of a group goes to and fro between hosts: two processes are fencing each other",
    "Give every process a group.instance.id of its own, or stop the one that should not be running.",
    ("group_records",), _shared_static_id, (SHARED_CHANGES,),
)  # fmt: skip

OF_GROUPS = (FLAPPING_GROUP, SKEWED_ASSIGNMENT, KICKED_MEMBER, UNFINISHED_REBALANCE, SHARED_STATIC_ID)
