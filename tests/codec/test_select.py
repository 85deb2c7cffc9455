"""Which rows a selection keeps, against the same question asked of decoded records in Python."""

import fnmatch
import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.codec.batches import encode_batch, encode_marker
from muster.codec.columns.arrow import markers_in
from muster.codec.columns.chunks import Chunk, Scratch, decode_chunk, with_slack
from muster.codec.columns.latest import LatestTable
from muster.codec.columns.scan import B_OUTCOME, R_BATCH, R_OFFSET
from muster.codec.columns.select import CONTROL_TYPE, Selection, in_force
from muster.codec.records import TRANSACTIONAL, Record
from muster.codec.transaction_outcomes import Markers
from tests.segments import START_MS, commit, tombstone


def chunk_of(data: bytes, markers: Markers | None = None) -> Chunk:
    return decode_chunk(with_slack(data), 0, len(data), Scratch(), markers)


RECORDS = [
    commit(0, "orders-app", "orders"),
    commit(1, "orders-app", "payments"),
    commit(2, "billing", "orders"),
    tombstone(3, "billing", "orders"),
    Record(4, START_MS + 4000, b"\x00\x02\x00\x07billing", None),  # a group's tombstone
    Record(5, START_MS + 5000, b"\x00\x03\x00\x07billing", b"\x00\x00" + b"\x00" * 6),
    commit(6, "", "orders"),
    commit(7, "größe", "orders"),
    commit(8, "billing", "orders")._replace(value=b"\x00\x03bad"),
    Record(9, -1, b"\x00", None),
]
DATA = encode_batch(RECORDS) + encode_marker(10, START_MS + 10_000, 1, 0, commit=True, coordinator_epoch=0)


@pytest.mark.parametrize(
    ("selection", "offsets"),
    [
        (Selection(groups=("orders-app",)), [0, 1]),
        (Selection(groups=("orders-*",)), [0, 1]),
        (Selection(groups=("*",)), [0, 1, 2, 3, 4, 5, 6, 7, 8]),
        (Selection(groups=("?*",)), [0, 1, 2, 3, 4, 5, 7, 8]),
        (Selection(groups=("",)), [6]),
        (Selection(groups=("billin",)), []),
        (Selection(groups=("billin?",)), [2, 3, 4, 5, 8]),
        (Selection(groups=("gr??e",)), [7]),  # characters, not bytes
        (Selection(groups=("none", "größe", "b*g")), [2, 3, 4, 5, 7, 8]),
        (Selection(topics=("orders",)), [0, 2, 3, 6, 7, 8]),
        (Selection(topics=("*ments",)), [1]),
        (Selection(groups=("billing",), topics=("orders",)), [2, 3, 8]),
        (Selection(record_types=frozenset({2})), [4]),
        (Selection(record_types=frozenset({2, 3})), [4, 5]),
        (Selection(record_types=frozenset({CONTROL_TYPE})), [10]),
        (Selection(record_types=frozenset({1, CONTROL_TYPE})), [0, 1, 2, 3, 6, 7, 8, 10]),
        (Selection(from_offset=9), [9, 10]),
        (Selection(to_offset=1), [0, 1]),
        (Selection(from_offset=2, to_offset=3), [2, 3]),
        (Selection(since_ms=START_MS + 7000), [7, 8, 10]),
        (Selection(until_ms=START_MS + 1000), [0, 1]),  # and not the one without a time
        (Selection(since_ms=0), [0, 1, 2, 3, 4, 5, 6, 7, 8, 10]),
        (Selection(tombstones=True), [3, 4, 9]),
        (Selection(tombstones=False), [0, 1, 2, 5, 6, 7, 8, 10]),
        (Selection(groups=("billing",), tombstones=False, from_offset=3), [5, 8]),
    ],
    ids=str,
)
def test_rows(selection: Selection, offsets: list[int]) -> None:
    chunk = chunk_of(DATA)
    rows = selection.rows(chunk)
    assert rows is not None
    assert chunk.records[rows, 0].tolist() == offsets


def test_no_selection_is_everything() -> None:
    assert Selection().rows(chunk_of(DATA)) is None


@given(
    st.lists(st.text("ab-é*?", max_size=8), min_size=1, max_size=6),
    st.lists(st.text("ab-é*?", max_size=6), min_size=1, max_size=3),
)
def test_wildcards_match_as_fnmatch_does(names: list[str], patterns: list[str]) -> None:
    chunk = chunk_of(encode_batch([commit(offset, name) for offset, name in enumerate(names)]))
    regexes = [re.compile(fnmatch.translate(pattern)) for pattern in patterns]
    expected = [number for number, name in enumerate(names) if any(regex.match(name) for regex in regexes)]
    rows = Selection(groups=tuple(patterns)).rows(chunk)
    assert rows is not None
    assert rows.tolist() == expected


def test_a_backslash_takes_a_wildcard_literally() -> None:
    chunk = chunk_of(encode_batch([commit(0, "a*"), commit(1, "ab"), commit(2, "a?"), commit(3, "a\\")]))
    for pattern, expected in ((r"a\*", [0]), (r"a\?", [2]), (r"a\\", [3]), ("a\\", [3]), ("a?", [0, 1, 2, 3])):
        rows = Selection(groups=(pattern,)).rows(chunk)
        assert rows is not None
        assert rows.tolist() == expected, pattern


class TestInForce:
    """What the newest-per-key table is fed with."""

    @staticmethod
    def kept(chunks: Iterator[Chunk]) -> list[tuple[int, int]]:
        """Offset and outcome of what is left."""
        return [
            (int(record[R_OFFSET]), int(chunk.batches[record[R_BATCH], B_OUTCOME]))
            for chunk in chunks
            for record in chunk.records
        ]

    def test_committed_transactions_count_and_the_others_do_not(self) -> None:
        def transactional(offset: int, producer_id: int) -> bytes:
            return encode_batch([commit(offset)], attributes=TRANSACTIONAL, producer_id=producer_id, producer_epoch=0)

        data = encode_batch([commit(0)]) + transactional(1, 1) + transactional(2, 2) + transactional(3, 3)
        data += encode_marker(4, 1, 1, 0, commit=True, coordinator_epoch=0)
        data += encode_marker(5, 1, 2, 0, commit=False, coordinator_epoch=0)
        table = LatestTable()
        buffer = with_slack(data)
        chunk = decode_chunk(buffer, 0, len(data), Scratch(), markers_in(buffer, len(data)))
        table.update(in_force(chunk, None))
        assert self.kept(table.survivors()) == [(1, 1)]  # committed, and newer than the plain one
        assert chunk.classes[:, 0].tolist() == [0, 0, 0, 0, 6, 6]  # the chunk itself is as it was

    def test_rows_that_are_not_wanted_do_not_hide_others(self) -> None:
        chunk = chunk_of(encode_batch([commit(0), commit(1), commit(2, "other"), commit(3)]))
        table = LatestTable()
        table.update(in_force(chunk, Selection(to_offset=2).rows(chunk)))
        assert [offset for offset, _ in self.kept(table.survivors())] == [1, 2]
