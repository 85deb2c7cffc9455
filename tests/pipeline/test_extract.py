"""The extract step: on real logs against what the broker said, in any cuts, run again, and on logs that change."""

import json
import os
import random
import tarfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from muster.codec.batches import encode_batch, encode_marker
from muster.codec.offsets_topic import (
    GroupKey,
    GroupValue,
    OffsetValue,
    encode_group_value,
    encode_key,
    encode_offset_value,
)
from muster.codec.records import TRANSACTIONAL, Record
from muster.errors import BadInput
from muster.pipeline.extract import rows as extract_rows
from muster.pipeline.model import PartitionWork
from muster.tables.schemas import ACTIVITY, OFFSETS, published_form
from muster.tables.storage import files as extract_files
from muster.tables.times import published
from tests.codec.corpus_records import CORPORA, NAMES
from tests.pipeline.extracting import DAY_MS, HISTORY, Found, Row, context_in, run, works_of
from tests.pipeline.test_shape import names_of, shaped
from tests.segments import batch, commit, tombstone, write_segment

WHOLE = [name for name in NAMES if not name.startswith("damaged")]
FILLED_IN = ("kind", "previous_commit_timestamp_ms", "last_commit_before_ms", "first_commit_after_ms")


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The log directory of a corpus, with its indexes and checkpoints."""

    @cache
    def unpack(name: str) -> Path:
        folder: Path = tmp_path_factory.mktemp(name)
        with (
            pa.input_stream(str(CORPORA / name / f"{name}.tar.zst"), compression="zstd") as stream,
            tarfile.open(fileobj=stream, mode="r|") as tar,
        ):
            tar.extractall(folder, filter="data")
        return folder

    return unpack


def without(rows: Iterable[Row], *columns: str) -> list[Row]:
    return [{name: value for name, value in row.items() if name not in columns} for row in rows]


def in_order(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["offsets_partition"], row["log_offset"]))


def in_force(rows: Iterable[Row]) -> dict[tuple[str, str, int], Row]:
    """The newest visible commit of each key, of rows in log order."""
    newest: dict[tuple[str, str, int], Row] = {}
    for row in in_order(rows):
        if row["txn_outcome"] in (None, "committed"):
            newest[row["group_id"], row["topic"], row["partition"]] = row
    return {key: row for key, row in newest.items() if row["kind"] == "commit"}


@pytest.mark.parametrize("name", NAMES)
def test_history_of_a_real_log_is_all_of_it(name: str, unpacked: Any, tmp_path: Path) -> None:
    found = run(works_of(unpacked(name)), context_in(tmp_path, topic_names=tuple(names_of(name).items())))
    for table in HISTORY:
        expected = [row for tables in shaped(name).values() for row in getattr(tables, table).to_pylist()]
        rows = in_order(found.tables[table] + (found.tables["open_commits"] if table == "commits" else []))
        assert without(rows, *FILLED_IN) == without(in_order(expected), *FILLED_IN)
    assert all(row["txn_outcome"] != "open" for row in found.tables["commits"])
    assert all(row["txn_outcome"] == "open" for row in found.tables["open_commits"])
    assert sum(report.records for report in found.extracted.reports) == sum(
        len(found.tables[t]) for t in HISTORY
    ) + len(found.tables["open_commits"])


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize(("history", "with_ended"), [(True, False), (False, False), (False, True)])
def test_winners_of_a_real_log_are_what_its_broker_answered(
    name: str, history: bool, with_ended: bool, unpacked: Any, tmp_path: Path
) -> None:
    found = run(works_of(unpacked(name)), context_in(tmp_path, history=history, with_ended=with_ended))
    newest = in_force(found.tables["winners_commits"])
    answers = json.loads((CORPORA / name / "expected" / "groups.json").read_text(encoding="utf-8"))
    expected = {
        (group["groupId"], place): (answer["offset"], answer["metadata"])
        for group in answers["groups"]
        for place, answer in (group.get("committed") or {}).items()
        if answer is not None
    }
    assert {
        (group, f"{topic}-{partition}"): (row["committed_offset"], row["metadata"])
        for (group, topic, partition), row in newest.items()
    } == expected
    if history:
        assert newest == in_force(found.tables["commits"])
        assert len(found.tables["winners_commits"]) < len(found.tables["commits"])
    else:
        assert not any(found.tables[table] for table in HISTORY)
    if with_ended:
        ended = [row for row in found.tables["winners_commits"] if row["txn_outcome"] is not None]
        shaped_rows = [row for tables in shaped(name).values() for row in tables.commits.to_pylist()]
        assert without(ended, *FILLED_IN) == without(
            in_order(row for row in shaped_rows if row["txn_outcome"] in ("committed", "aborted")), *FILLED_IN
        )


@pytest.mark.parametrize("name", WHOLE)
def test_winners_of_groups_are_the_newest_of_each_key(name: str, unpacked: Any, tmp_path: Path) -> None:
    found = run(works_of(unpacked(name)), context_in(tmp_path))
    newest: dict[tuple[Any, ...], Row] = {}
    for row in found.tables["group_records"]:
        newest[row["record_type"], row["group_id"], row["member_id"], key_expression(row)] = row
    assert in_order(newest.values()) == found.tables["winners_groups"]


def key_expression(row: Row) -> str | None:
    return row["regular_expression"] if row["record_type"] == 16 else None


def write_offsets(path: Path, rows: Iterable[Row]) -> str:
    """Rows of commits as a file of the table `offsets`."""
    columns = [{name: row[name] for name in OFFSETS.names} for row in rows]
    pq.write_table(published(pa.Table.from_pylist(columns, OFFSETS), published_form(OFFSETS)), path)
    return str(path)


@pytest.mark.parametrize("name", WHOLE)
def test_ranges_in_random_cuts_equal_one_read(name: str, unpacked: Any, tmp_path: Path) -> None:
    chance = random.Random(name)
    works = works_of(unpacked(name))
    context = context_in(tmp_path, topic_names=tuple(names_of(name).items()))
    whole = run(works, context)
    for work in works:
        assert work.to_offset is not None
        steps = sorted({chance.randint(0, work.to_offset) for _ in range(4)} | {work.to_offset})
        parts, from_offset, previous = [], 0, ()
        for number, to_offset in enumerate(steps):
            part = run([work._replace(from_offset=from_offset, to_offset=to_offset)],
                       context._replace(previous_offsets=previous))  # fmt: skip
            assert from_offset <= part.report.next_offset <= to_offset
            from_offset = part.report.next_offset
            parts.append(part)
            newest = in_force(row for part in parts for row in part.tables["winners_commits"])
            previous = (write_offsets(tmp_path / f"offsets-{work.offsets_partition}-{number}", newest.values()),)
        assert_equal_parts(parts, whole, work)


def assert_equal_parts(parts: list[Found], whole: Found, work: PartitionWork) -> None:
    def of_whole(table: str) -> list[Row]:
        return [row for row in whole.tables[table] if row["offsets_partition"] == work.offsets_partition]

    def of_parts(table: str) -> list[Row]:
        return [row for part in parts for row in part.tables[table]]

    assert of_parts("markers") == of_whole("markers")
    around = ("last_commit_before_ms", "first_commit_after_ms")  # a later range has the commits, and the row does not
    assert without(of_parts("group_records"), *around) == without(of_whole("group_records"), *around)
    # Commits that were open where a range was cut get their outcome from the markers of a later one.
    waited = {row["log_offset"] for row in of_parts("open_commits")} - {
        row["log_offset"] for row in of_whole("open_commits")
    }
    keys = {(row["group_id"], row["topic"], row["partition"]) for row in of_parts("open_commits")}
    expected = [row for row in of_whole("commits") if row["log_offset"] not in waited]
    found = of_parts("commits")
    past = ("kind", "previous_commit_timestamp_ms")
    assert without(found, *past) == without(expected, *past)
    for one, other in zip(found, expected, strict=True):
        if (one["group_id"], one["topic"], one["partition"]) not in keys:
            assert [one[column] for column in past] == [other[column] for column in past]
    still_open = [row for row in of_parts("open_commits") if row["log_offset"] not in waited]
    assert still_open == of_whole("open_commits")
    assert sum(part.report.gaps for part in parts) == sum(
        report.gaps for report in whole.extracted.reports if report.offsets_partition == work.offsets_partition
    )


def test_a_task_that_is_run_again_leaves_orphans_only(tmp_path: Path) -> None:
    write_segment(tmp_path / "log", batch(0, 5))
    works, context = works_of(tmp_path / "log"), context_in(tmp_path)
    first, second = run(works, context), run(works, context)
    assert first.tables == second.tables
    assert first.extracted.reports == second.extracted.reports
    names = [{(file.table, file.path) for file in found.extracted.files} for found in (first, second)]
    assert not names[0] & names[1]
    assert all(path.rsplit("/", 1)[-1].startswith("run-") for _, path in names[0])


class TestRanges:
    def test_records_below_the_range_are_dropped_and_batches_behind_it_are_left(self, tmp_path: Path) -> None:
        write_segment(tmp_path / "log", batch(0, 4) + batch(4, 4) + batch(8, 4))
        (work,) = works_of(tmp_path / "log", from_offset=2, to_offset=10)
        found = run([work], context_in(tmp_path))
        assert found.offsets("commits") == [2, 3, 4, 5, 6, 7]
        assert (found.report.next_offset, found.report.gaps) == (8, 0)
        assert found.offsets("winners_commits") == [7]

    def test_nothing_new(self, tmp_path: Path) -> None:
        write_segment(tmp_path / "log", encode_batch([commit(0)], leader_epoch=3))
        (work,) = works_of(tmp_path / "log", from_offset=1, to_offset=1)
        found = run([work], context_in(tmp_path))
        assert not any(found.tables.values())
        assert found.report._replace(size_bytes=0) == found.report
        assert (found.report.next_offset, found.report.leader_epoch, found.report.records) == (1, 3, 0)

    def test_a_marker_behind_the_range_is_for_the_next_one(self, tmp_path: Path) -> None:
        log = encode_batch([commit(0)], attributes=TRANSACTIONAL, producer_id=7, producer_epoch=0)
        marker = encode_marker(1, 5, 7, 0, commit=True, coordinator_epoch=0)
        write_segment(tmp_path / "log", log + marker)
        (work,) = works_of(tmp_path / "log")
        first = run([work._replace(to_offset=1)], context_in(tmp_path))
        assert (first.offsets("open_commits"), first.offsets("commits"), first.offsets("markers")) == ([0], [], [])
        assert first.tables["winners_commits"] == []
        second = run([work._replace(from_offset=1)], context_in(tmp_path))
        assert (second.offsets("open_commits"), second.offsets("commits"), second.offsets("markers")) == ([], [], [1])

    def test_winners_of_the_whole_log_and_history_of_the_range(self, tmp_path: Path) -> None:
        other = encode_batch([commit(0, topic="payments"), commit(1)])
        write_segment(tmp_path / "log", other + batch(2, 3))
        (work,) = works_of(tmp_path / "log", from_offset=3, state_from_scratch=True)
        found = run([work], context_in(tmp_path))
        assert found.offsets("winners_commits") == [0, 4]
        assert found.offsets("commits") == [3, 4]
        assert (found.report.records, found.report.gaps, found.report.complete_since_offset) == (2, 0, 3)

    def test_gaps_are_counted_and_say_since_when_nothing_is_missing(self, tmp_path: Path) -> None:
        data = batch(2, 2) + encode_batch([commit(4), commit(6)]) + encode_batch([], base_offset=7, last_offset=8)
        write_segment(tmp_path / "log", data + batch(9, 2))
        found = run(works_of(tmp_path / "log"), context_in(tmp_path))
        assert (found.report.next_offset, found.report.gaps) == (11, 2 + 1 + 2)
        assert found.report.complete_since_offset == 9
        assert found.report.complete_since_ms == commit(9).timestamp_ms
        assert found.report.newest_timestamp_ms == commit(10).timestamp_ms

    def test_a_gap_at_the_end(self, tmp_path: Path) -> None:
        write_segment(tmp_path / "log", batch(0, 2) + encode_batch([], base_offset=2, last_offset=5))
        found = run(works_of(tmp_path / "log"), context_in(tmp_path))
        assert (found.report.next_offset, found.report.gaps) == (6, 4)
        assert (found.report.complete_since_offset, found.report.complete_since_ms) == (6, None)

    def test_no_such_partition(self, tmp_path: Path) -> None:
        write_segment(tmp_path / "log", batch(0, 2))
        works = works_of(tmp_path / "log")
        (tmp_path / "log" / "__consumer_offsets-0").rename(tmp_path / "elsewhere")
        with pytest.raises(BadInput, match="is not there any more"):
            run(works, context_in(tmp_path))


class TestDamage:
    @pytest.mark.parametrize(("name", "told"), [
        ("damaged-flip", ["says CRC d5c0a9c9", "batch 37 (base offset 101)"]),
        ("damaged-length", ["says it has 2147483644 bytes"]),
    ])  # fmt: skip
    def test_it_is_told_and_the_rest_is_read(self, name: str, told: list[str], unpacked: Any, tmp_path: Path) -> None:
        found = run(works_of(unpacked(name), to_offset=None), context_in(tmp_path))
        damage = [sentence for report in found.extracted.reports for sentence in report.damage]
        assert len(damage) == len(told)
        for sentence, words in zip(damage, told, strict=True):
            assert words in sentence

    def test_an_unfinished_end_of_the_last_segment_is_none(self, tmp_path: Path) -> None:
        path = write_segment(tmp_path / "log", batch(0, 2) + batch(2, 2)[:-5])
        (work,) = works_of(tmp_path / "log")
        assert work.to_offset == 2
        first = run([work], context_in(tmp_path))
        assert (first.report.next_offset, first.report.damage) == (2, ())
        path.write_bytes(batch(0, 2) + batch(2, 2))
        second = run([work._replace(from_offset=2, to_offset=None)], context_in(tmp_path))
        assert second.offsets("commits") == [2, 3]

    def test_an_unfinished_end_of_another_segment_is_told(self, tmp_path: Path) -> None:
        write_segment(tmp_path / "log", batch(0, 2) + batch(2, 2)[:-5])
        write_segment(tmp_path / "log", batch(4, 2), 4)
        found = run(works_of(tmp_path / "log"), context_in(tmp_path))
        assert found.offsets("commits") == [0, 1, 4, 5]
        assert found.report.gaps == 2
        assert "and the file ends after" in found.report.damage[0]

    def test_a_wild_offset_hides_nothing(self, tmp_path: Path) -> None:
        wild = bytearray(batch(2, 2))
        wild[0:8] = (1 << 40).to_bytes(8, "big")  # no checksum covers it
        write_segment(tmp_path / "log", batch(0, 2) + bytes(wild) + batch(4, 2))
        write_segment(tmp_path / "log", batch(6, 1), 6)
        found = run(works_of(tmp_path / "log"), context_in(tmp_path))
        assert found.offsets("commits") == [0, 1, 4, 5, 6]
        assert (found.report.next_offset, found.report.gaps) == (7, 2)
        assert f"the first {1 << 40}" in found.report.damage[0]

    def test_batches_that_go_back_are_left_out(self, tmp_path: Path) -> None:
        write_segment(tmp_path / "log", batch(0, 4) + batch(2, 3) + batch(5, 1))
        found = run(works_of(tmp_path / "log"), context_in(tmp_path))
        assert found.offsets("commits") == [0, 1, 2, 3, 5]
        assert "stand behind later ones" in found.report.damage[0]

    def test_unreadable_records_are_counted(self, tmp_path: Path) -> None:
        data = encode_batch([commit(0)._replace(value=b"\x00"), Record(1, 5, b"\x00\x63x", None), commit(2)])
        write_segment(tmp_path / "log", data)
        for history in (True, False):
            found = run(works_of(tmp_path / "log"), context_in(tmp_path, history=history))
            assert found.report.unread == 2


class TestDeletions:
    """What a deletion deleted, and whether its time had come."""

    def kinds(self, tmp_path: Path, records: list[Record], **changes: Any) -> list[tuple[str, int | None]]:
        write_segment(tmp_path / "log", encode_batch(records))
        found = run(works_of(tmp_path / "log", from_offset=records[0].offset), context_in(tmp_path, **changes))
        rows = found.tables["commits"]
        winners = {row["log_offset"]: row for row in found.tables["winners_commits"]}
        for row in rows:
            assert winners.get(row["log_offset"], row) == row
        return [(row["kind"], row["previous_commit_timestamp_ms"]) for row in rows]

    def test_deleted_before_and_expired_after_the_retention(self, tmp_path: Path) -> None:
        made = commit(0).timestamp_ms
        early, late = (
            tombstone(1)._replace(timestamp_ms=made + DAY_MS - 1),
            tombstone(3)._replace(timestamp_ms=made + 2000 + DAY_MS),
        )
        records = [commit(0), early, commit(2), late]
        assert self.kinds(tmp_path, records, offsets_retention_ms=DAY_MS) == [
            ("commit", None),
            ("deleted", made),
            ("commit", None),
            ("expired", commit(2).timestamp_ms),
        ]

    def test_a_commit_with_an_expiry_of_its_own(self, tmp_path: Path) -> None:
        made = commit(0).timestamp_ms
        value = encode_offset_value(OffsetValue(5, 0, "", made, made + 500), 1)
        records = [commit(0)._replace(value=value), tombstone(1)._replace(timestamp_ms=made + 500)]
        assert self.kinds(tmp_path, records)[1] == ("expired", made)

    def test_a_second_deletion_deletes_nothing(self, tmp_path: Path) -> None:
        assert self.kinds(tmp_path, [commit(0), tombstone(1), tombstone(2)])[1:] == [
            ("deleted", commit(0).timestamp_ms),
            ("deleted", None),
        ]

    def previous(self, tmp_path: Path) -> str:
        row = dict.fromkeys(OFFSETS.names) | {
            "group_id": "orders-app", "topic": "orders", "partition": 0, "commit_timestamp_ms": 1000,
            "offsets_partition": 0, "log_offset": 3,
        }  # fmt: skip
        return write_offsets(
            tmp_path / "offsets.parquet", [row, row | {"offsets_partition": 1, "commit_timestamp_ms": 2}]
        )

    def test_what_was_committed_before_the_range(self, tmp_path: Path) -> None:
        records = [tombstone(5), tombstone(6, group="nobody")]
        previous = self.previous(tmp_path)
        assert self.kinds(tmp_path, records, previous_offsets=(previous,)) == [("expired", 1000), ("deleted", None)]

    def test_what_stands_behind_a_deletion_is_not_what_it_deleted(self, tmp_path: Path) -> None:
        previous = self.previous(tmp_path)
        assert self.kinds(tmp_path, [tombstone(2)], previous_offsets=(previous,)) == [("deleted", None)]

    def test_an_aborted_commit_is_not_what_was_deleted(self, tmp_path: Path) -> None:
        parts = [
            encode_batch([commit(0)]),
            encode_batch([commit(1)], attributes=TRANSACTIONAL, producer_id=7, producer_epoch=0),
            encode_marker(2, 5, 7, 0, commit=False, coordinator_epoch=0),
            encode_batch([tombstone(3)]),
        ]
        write_segment(tmp_path / "log", b"".join(parts))
        found = run(works_of(tmp_path / "log"), context_in(tmp_path))
        assert found.tables["commits"][-1]["previous_commit_timestamp_ms"] == commit(0).timestamp_ms
        assert found.offsets("winners_commits") == [3]


class TestGroupsCommitting:
    """When a group committed around its records."""

    def group(self, log_offset: int, group_id: str = "orders-app") -> Record:
        value = encode_group_value(GroupValue("consumer", 3, None, None, 5, ()), 3)
        return Record(log_offset, 77, encode_key(GroupKey(group_id)), value)

    def times(self, rows: list[Row]) -> list[tuple[int, int | None, int | None]]:
        return [(row["log_offset"], row["last_commit_before_ms"], row["first_commit_after_ms"]) for row in rows]

    def test_before_and_after(self, tmp_path: Path) -> None:
        ms = [commit(number).timestamp_ms for number in range(10)]
        other = self.group(4, "payments-app")
        records = [self.group(0), commit(1), self.group(2), self.group(3), other, commit(5), commit(6), self.group(7)]
        write_segment(tmp_path / "log", encode_batch(records))
        found = run(works_of(tmp_path / "log"), context_in(tmp_path))
        assert self.times(found.tables["group_records"]) == [
            (0, None, ms[1]),
            (2, ms[1], None),  # its next record came before a commit
            (3, ms[1], ms[5]),
            (4, None, None),
            (7, ms[6], None),
        ]
        assert self.times(found.tables["winners_groups"]) == [(4, None, None), (7, ms[6], None)]

    def test_the_run_before_knows(self, tmp_path: Path) -> None:
        rows = [
            {"group_id": "orders-app", "offsets_partition": 0, "first_commit_ms": None, "last_commit_ms": 2000},
            {"group_id": "orders-app", "offsets_partition": 1, "first_commit_ms": None, "last_commit_ms": 9000},
        ]
        written = published(pa.Table.from_pylist(rows, ACTIVITY), published_form(ACTIVITY))
        pq.write_table(written, tmp_path / "activity.parquet")
        write_segment(tmp_path / "log", encode_batch([self.group(5), commit(6)]))
        works = works_of(tmp_path / "log", from_offset=5)
        found = run(works, context_in(tmp_path, previous_activity=(str(tmp_path / "activity.parquet"),)))
        assert self.times(found.tables["group_records"]) == [(5, 2000, commit(6).timestamp_ms)]
        told = {"group_id": "orders-app", "offsets_partition": 0, "first_commit_ms": None}
        assert found.tables["activity"] == [told | {"last_commit_ms": commit(6).timestamp_ms}]

    def test_group_records_beyond_the_bound_go_without_what_comes_later(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(extract_rows, "GROUP_RECORDS_HELD_BYTES", 0)
        write_segment(tmp_path / "log", encode_batch([self.group(0)]))
        write_segment(tmp_path / "log", encode_batch([commit(1), self.group(2)]), 1)
        write_segment(tmp_path / "log", encode_batch([commit(3)]), 3)
        found = run(works_of(tmp_path / "log"), context_in(tmp_path))
        assert self.times(found.tables["group_records"]) == [(0, None, None), (2, commit(1).timestamp_ms, None)]


def test_files_are_rolled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extract_files, "ROW_GROUP_ROWS", 2)
    monkeypatch.setattr(extract_files, "FILE_BYTES", 1)
    for number in range(4):
        write_segment(tmp_path / "log", batch(2 * number, 2), 2 * number)
    found = run(works_of(tmp_path / "log"), context_in(tmp_path))
    assert found.offsets("commits") == list(range(8))
    assert sum(file.table == "commits" for file in found.extracted.files) == 4


def test_progress_is_written_down(tmp_path: Path) -> None:
    path = write_segment(tmp_path / "log", batch(0, 5))
    (tmp_path / "progress").mkdir()
    run(works_of(tmp_path / "log"), context_in(tmp_path, progress=str(tmp_path / "progress")))
    lines = [line for file in (tmp_path / "progress").iterdir() for line in file.read_text().split()]
    assert sum(map(int, lines)) == os.path.getsize(path)


def test_a_disk_that_fails_names_no_files(tmp_path: Path) -> None:
    write_segment(tmp_path / "log", batch(0, 5))
    (tmp_path / "tables").write_text("in the way")
    with pytest.raises(OSError, match="tables"):
        run(works_of(tmp_path / "log"), context_in(tmp_path))
