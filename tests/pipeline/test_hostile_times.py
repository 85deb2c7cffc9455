"""Times that no calendar has, offsets that no log has, and records with bytes written over: what is published holds of
them too.
"""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from muster.answers.compare import group_changes
from muster.answers.lag import group_lags
from muster.answers.status import group_status
from muster.codec import OffsetValue, encode_key, encode_offset_value, offset_key
from muster.codec.batches import encode_batch, encode_marker
from muster.codec.offsets_topic import GroupKey, GroupValue, MemberValue, encode_group_value
from muster.codec.records import CONTROL, Record
from muster.tables.reading import open_tables
from muster.tables.schemas import TABLES
from muster.tables.sql.queries import FARTHEST, MOST
from muster.tables.times import LAST_MS
from tests.pipeline.test_job import sorted_rows
from tests.pipeline.world import rows_of, run_here

NOW_MS = 1_794_904_384_123
HOSTILE = (NOW_MS * 1000, 2**62, LAST_MS + 1, -2)
SHOWN = sorted(set(TABLES) - {"latest_rebalances", "log_ends", "activity"})


def group_record(offset: int, time_ms: int, generation: int) -> Record:
    member = MemberValue(f"m{generation}", None, "client", "/127.0.0.1", 1000, 1000, b"", b"")
    value = GroupValue("consumer", generation, "range", member.member_id, time_ms, (member,))
    return Record(offset, time_ms, encode_key(GroupKey("app")), encode_group_value(value, 3))


def commit_record(offset: int, time_ms: int) -> Record:
    value = encode_offset_value(OffsetValue(offset, 7, "", time_ms, time_ms + 5), 1)
    return Record(offset, NOW_MS + offset, encode_key(offset_key("app", "orders", 0)), value)


def deletion(offset: int, time_ms: int) -> Record:
    return Record(offset, time_ms, encode_key(offset_key("app", "orders", 0)), None)


def hostile_records() -> Iterator[Record]:
    offset = 0
    for time_ms in HOSTILE:
        for make in (commit_record, commit_record, deletion, commit_record):
            for stamp in (time_ms, NOW_MS + offset):
                yield make(offset, stamp)
                offset += 1
        for stamp in (time_ms, NOW_MS + offset):
            yield group_record(offset, stamp, offset)
            offset += 1


def test_runs_say_the_same_however_the_log_is_cut(tmp_path: Path) -> None:
    folder = tmp_path / "log" / "__consumer_offsets-0"
    folder.mkdir(parents=True)
    segment = folder / f"{0:020}.log"
    records = list(hostile_records())
    for end in (5, 10, 20, 29, len(records)):
        segment.write_bytes(b"".join(encode_batch([record]) for record in records[:end]))
        run_here(tmp_path / "often", tmp_path / "log")
    run_here(tmp_path / "once", tmp_path / "log")
    often, once = (rows_of(tmp_path / each, *SHOWN) for each in ("often", "once"))
    for row in [*often["group_records"], *once["group_records"], *often["group_state"], *once["group_state"]]:
        del row["first_commit_after_ms"]  # as far as the run that read the record had read
    for table in SHOWN:
        assert sorted_rows(often[table]) == sorted_rows(once[table]), table
    times = {row["commit_timestamp_ms"] for row in once["commits"]}
    assert LAST_MS in times
    assert max(time for time in times if time is not None) == LAST_MS
    for table in ("commits", "group_records", "rebalances"):
        found = DeltaTable(tmp_path / "once" / table).to_pyarrow_table()
        for column, field in zip(found.columns, found.schema, strict=True):
            if pa.types.is_timestamp(field.type):
                column.cast(pa.timestamp("ns", "UTC"))  # what pandas would do


def test_offsets_of_any_64_bits_stop_nobody_else(tmp_path: Path) -> None:
    folder, data = tmp_path / "log" / "__consumer_offsets-0", tmp_path / "log" / "orders-0"
    for each in (folder, data):
        each.mkdir(parents=True)
    (data / f"{0:020}.log").write_bytes(encode_batch([Record(n, NOW_MS, b"key", b"value") for n in range(5)]))
    hostile = (0, 2**63 - 1, -1, -(2**63), 2**63 - 1, 0, 2**63 - 1, -(2**62))
    batches = []
    for number, committed in enumerate(hostile):
        for place, (group, offset) in enumerate((("rude", committed), ("calm", number % 3))):
            value = encode_offset_value(OffsetValue(offset, 7, "", NOW_MS + number, -1), 1)
            key = encode_key(offset_key(group, "orders", 0))
            batches.append(encode_batch([Record(2 * number + place, NOW_MS + number, key, value)]))
    for end in (9, len(batches)):
        (folder / f"{0:020}.log").write_bytes(b"".join(batches[:end]))
        run_here(tmp_path / "tables", tmp_path / "log", analytics=True)
    with open_tables(tmp_path / "tables") as tables:
        lags = {each.group_id: each for each in group_lags(tables)}
        changes = {each.group_id: each for each in group_changes(tables, NOW_MS + 1, None)}
        assert group_status(tables)
    assert (lags["calm"].lag, lags["rude"].lag, lags["rude"].lost_records) == (4, 5, FARTHEST)
    assert (changes["calm"].consumed, changes["rude"].consumed, changes["rude"].rewound) == (0, 0, MOST)
    rows = rows_of(tmp_path / "tables", "rates", "lag_history", "offsets")
    consumed = {row["group_id"]: (row["consumed"], row["rewound"]) for row in rows["rates"]}
    assert consumed == {"calm": (5, 4), "rude": (MOST, MOST)}
    assert {row["committed_offset"] for row in rows["offsets"]} == {-(2**62), 1}
    assert {row["lag"] for row in rows["lag_history"]} == {4, FARTHEST + 5}


def broken(record: Record) -> Iterator[Record]:
    """The same record with one byte after the other of its key and value written over: lengths among them."""
    assert record.key is not None
    assert record.value is not None
    for place in range(len(record.key)):
        yield record._replace(key=record.key[:place] + b"\xff" + record.key[place + 1 :])
    for place in range(len(record.value)):
        yield record._replace(value=record.value[:place] + b"\xff" + record.value[place + 1 :])


def test_what_is_never_null_is_not_in_broken_records_either(tmp_path: Path) -> None:
    """NOT NULL is promised of columns whatever the log holds: a run would fail where one is NULL."""
    folder = tmp_path / "log" / "__consumer_offsets-0"
    folder.mkdir(parents=True)
    written = [*broken(commit_record(0, NOW_MS)), *broken(group_record(0, NOW_MS, 1))]
    batches = [encode_batch([record._replace(offset=offset)]) for offset, record in enumerate(written)]
    batches.append(encode_marker(len(batches), NOW_MS, 7, 0, commit=True, coordinator_epoch=1))
    for control_type in (b"\0\0\0\5", b"\xff\xff\0\1", b"\0"):  # kinds of control records that no release has
        record = Record(len(batches), NOW_MS, control_type, b"")
        batches.append(encode_batch([record], attributes=CONTROL))
    (folder / f"{0:020}.log").write_bytes(b"".join(batches))
    summary = run_here(tmp_path / "tables", tmp_path / "log")
    assert summary.records == len(batches)
    rows = rows_of(tmp_path / "tables", "commits", "group_records", "markers")
    assert sum(map(len, rows.values())) == len(batches)
    assert {row["type"] for row in rows["markers"]} > {"COMMIT"}
