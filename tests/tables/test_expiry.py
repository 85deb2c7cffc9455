"""`expiry` beside our own coordinator's expiration: what the forecast says goes at its time, and nothing else does."""

from collections.abc import Sequence
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.codec.offsets_topic import GroupKey, OffsetKey
from muster.tables.sql.expiry import expiry
from muster.tables.sql.queries import DUCKDB_EXPLODE
from tests.core.test_offsets import BAR_0, FOO_0, FOO_1, NOW_MS, RETENTION_MS, Bench, a_group
from tests.tables.made import made

CONNECTION = duckdb.connect(config={"threads": 1})
TABLES = ("offsets", "groups", "members", "group_state", "open_commits")
KINDS = ("no record", "empty", "empty, nobody knows since when", "reads foo", "reads both", "connect", "unreadable")
spans_ms = st.sampled_from([0, 1, 5, RETENTION_MS // 2])
offsets = st.dictionaries(
    st.sampled_from([FOO_0, FOO_1, BAR_0]),
    st.tuples(spans_ms, st.none() | spans_ms, st.booleans()),  # committed so long ago; own expiry; a transaction waits
)


def forecast(**tables: Sequence[dict[str, Any]]) -> dict[Any, tuple[int | None, str]]:
    """When, and by which rule: of partitions, and of the group under None."""
    for name in TABLES:
        CONNECTION.register(name, made(name, *tables.get(name, ())))
    rows = CONNECTION.sql(expiry(*TABLES, NOW_MS, RETENTION_MS, DUCKDB_EXPLODE)).to_arrow_table().to_pylist()
    assert all((row["retention_ms"], row["at_ms"]) == (RETENTION_MS, NOW_MS) for row in rows)
    return {
        (row["topic"], row["partition"]) if row["topic"] else None: (row["expires_at_ms"], row["rule"]) for row in rows
    }


def seated(bench: Bench, kind: str) -> dict[str, list[dict[str, Any]]]:
    """A group of a kind in the coordinator, and the rows that tables have of it."""
    topics = {"reads foo": ["foo"], "reads both": ["foo", "bar"]}.get(kind)
    if kind == "no record":
        return {"groups": [{"group_id": "g", "type": "simple"}]}
    if kind.startswith("empty"):
        since = NOW_MS - 3 if kind == "empty" else None
        bench.seat(a_group(empty_since=-1 if since is None else since))
        row = {"group_id": "g", "type": "classic", "protocol_type": "consumer", "state_timestamp_ms": since}
        return {"groups": [row]}
    protocol_type = "connect" if kind == "connect" else "consumer"
    bench.seat(a_group(*topics) if topics else a_group(protocol_type=protocol_type, metadata=b""))
    row = {"group_id": "g", "type": "classic", "protocol_type": protocol_type, "members": 1, "state_timestamp_ms": 0}
    return {"groups": [row], "members": [{"group_id": "g", "type": "classic", "subscribed_topics": topics}]}


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(KINDS), offsets)
def test_our_coordinator_deletes_what_was_forecast_at_its_time(kind: str, offsets: dict[Any, Any]) -> None:
    bench = Bench()
    tables = seated(bench, kind) | {"offsets": [], "open_commits": []}
    for (topic, partition), (ago_ms, own_ms, waits) in offsets.items():
        key = {"group_id": "g", "topic": topic, "partition": partition}
        told = {} if own_ms is None else {"expire_timestamp_ms": NOW_MS + own_ms}
        bench.keep((topic, partition), commit_timestamp_ms=NOW_MS - ago_ms, **told)
        tables["offsets"].append(key | {"commit_timestamp_ms": NOW_MS - ago_ms} | told)
        if waits:
            bench.append(OffsetKey("g", topic, partition), bench.shell.log[-1].record.value, producer=9)
            tables["open_commits"].append(key | {"kind": "commit", "txn_outcome": "open", "log_offset": 1})
    if not bench.groups:
        return
    due = {key: at_ms for key, (at_ms, _) in forecast(**tables).items() if at_ms is not None}
    for moment in sorted({*due.values(), *(at_ms - 1 for at_ms in due.values()), NOW_MS + 2 * RETENTION_MS}):
        if moment < NOW_MS:
            continue
        bench.shell.advance(moment - bench.shell.now.wall_ms)
        gone = {None if isinstance(key, GroupKey) else (key.topic, key.partition) for key, _ in bench.expire()}
        expected = {key for key, at_ms in due.items() if at_ms <= moment}
        assert gone == expected, moment
        due = {key: at_ms for key, at_ms in due.items() if key not in gone}
    assert not due


GROUP = {"group_id": "g", "members": 1, "protocol_type": "consumer"}
OFFSET = {"group_id": "g", "topic": "foo", "partition": 0, "commit_timestamp_ms": NOW_MS}


@pytest.mark.parametrize(
    ("tables", "rules"),
    [
        (  # of newer kinds only the log of a real broker tells; these are its rules
            {
                "groups": [GROUP | {"type": "consumer"}],
                "members": [
                    {"group_id": "g", "type": "consumer", "subscribed_topics": [], "regular_expression": "f.*"}
                ],
                "group_state": [{"group_id": "g", "record_type": 16, "subscribed_topics": ["foo"]}],
            },
            ("kept: active subscription", "kept: members"),
        ),
        ({"groups": [GROUP | {"type": "consumer", "members": 0}]}, ("since last commit", "with its last offset")),
        ({"groups": [GROUP | {"type": "share", "members": 0}]}, ("kept: share group", "kept: share group")),
        (
            {
                "groups": [GROUP | {"type": "streams"}],
                "group_state": [{"group_id": "g", "record_type": 23, "json": '{"sourceTopics":["foo"]}'}],
            },
            ("kept: active subscription", "kept: members"),
        ),
        (
            {
                "groups": [GROUP | {"type": "streams"}],
                "group_state": [{"group_id": "g", "record_type": 23, "json": '{"sourceTopics":["foot"]}'}],
            },
            ("not subscribed any more", "kept: members"),
        ),
    ],
)
def test_groups_of_newer_kinds(tables: dict[str, Any], rules: tuple[str, str]) -> None:
    found = forecast(offsets=[OFFSET], **tables)
    assert (found[FOO_0][1], found[None][1]) == rules
    assert (found[FOO_0][0] is None) == rules[0].startswith("kept: ")
