"""Which records stay, which tombstones and markers, and for how long; both ways of compaction."""

import pytest

from muster.codec.batches import encode_batch, iter_batches, read_header
from muster.codec.compression import CODEC_NAMES, GZIP, LZ4
from muster.codec.records import CONTROL, DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL, Record
from muster.errors import ConfigError, Malformed
from muster.log.compaction.rules import LastRecord
from tests.log.compaction import (
    COMPACTORS,
    DAY_MS,
    START_MS,
    History,
    MakeCompactor,
    compacted,
    memory_for,
    split,
)


@pytest.fixture(params=list(COMPACTORS))
def make(request: pytest.FixtureRequest) -> MakeCompactor:
    return COMPACTORS[request.param]


def offsets_of(history: History, make: MakeCompactor, **rules: int) -> list[int]:
    """Offsets of the data records that stay."""
    return [
        record.offset for record in compacted(history.batches, history.rules(**rules), history.aborted, make).records
    ]


# Keys.


def test_the_newest_record_of_each_key_stays(make: MakeCompactor) -> None:
    history = History().write((b"a", b"1"), (b"b", b"1")).write((b"a", b"2")).write((b"c", b"1"), (b"a", b"3"))
    done = compacted(history.batches, history.rules(), make=make)
    assert done.values == [(1, b"b", b"1"), (3, b"c", b"1"), (4, b"a", b"3")]


def test_batches_keep_their_offsets_and_all_else_that_is_not_counted(make: MakeCompactor) -> None:
    history = History().write((b"a", b"1"), (b"b", b"1"), (b"c", b"1"), producer_id=5, transactional=False, epoch=2)
    history.write((b"a", b"2"), (b"c", b"2"))
    before, after = (
        read_header(history.batches[0]),
        read_header(compacted(history.batches, history.rules(), make=make).data),
    )
    assert (after.base_offset, after.last_offset) == (0, 2)
    assert (after.producer_id, after.producer_epoch, after.base_sequence) == (5, 2, 0)
    assert (after.last_sequence, after.leader_epoch) == (before.last_sequence, 3)
    assert (after.record_count, after.base_timestamp_ms, after.max_timestamp_ms) == (1, START_MS + 1, START_MS + 1)


def test_a_batch_that_loses_nothing_is_the_same_to_the_byte(make: MakeCompactor) -> None:
    record = Record(0, START_MS, b"a", b"1", (("trace", b"7"), ("none", None)))
    batch = bytearray(encode_batch([record], attributes=LOG_APPEND_TIME, codec=GZIP))
    assert compacted([bytes(batch)], History(end=1).rules(), make=make).data == batch


def test_headers_and_timestamps_stay_with_their_records(make: MakeCompactor) -> None:
    kept = Record(1, START_MS - 5, b"b", b"1", (("trace", b"7"), ("none", None)))
    batch = encode_batch([Record(0, START_MS, b"a", b"1"), kept, Record(2, START_MS + 70_000, b"a", b"2")])
    done = compacted([batch], History(end=3).rules(), make=make)
    assert done.records == [kept, Record(2, START_MS + 70_000, b"a", b"2")]
    assert done.facts == [(len(done.data), 2, START_MS + 70_000)]


def test_log_append_time_stays_the_time_of_all(make: MakeCompactor) -> None:
    records = [Record(0, START_MS, b"a", b"1"), Record(1, START_MS + 9, b"b", b"1"), Record(2, START_MS, b"a", b"2")]
    batch = encode_batch(records, attributes=LOG_APPEND_TIME)
    (after,) = compacted([batch], History(end=3).rules(), make=make).batches
    assert after.header.max_timestamp_ms == START_MS + 9
    assert [record.timestamp_ms for record in after.records] == [START_MS + 9, START_MS + 9]


def test_records_without_a_key_go(make: MakeCompactor) -> None:
    history = History().write((None, b"?"), (b"a", b"1")).write((None, None)).write((b"", b"an empty key is one"))
    done = compacted(history.batches, history.rules(), make=make)
    assert done.values == [(1, b"a", b"1"), (3, b"", b"an empty key is one")]
    assert done.compactor.count.keyless_records == 2


def test_a_clean_record_goes_when_the_dirty_part_has_a_newer_one(make: MakeCompactor) -> None:
    history = History().write((b"a", b"1")).write((b"b", b"1")).write((b"a", b"2"))
    assert offsets_of(history, make, first_dirty_offset=2) == [1, 2]


def test_what_is_clean_is_not_compared_with_itself(make: MakeCompactor) -> None:
    """Which is why only what lies behind the first dirty offset costs memory."""
    history = History().write((b"a", b"1")).write((b"a", b"2")).write((b"b", b"1"))
    assert offsets_of(history, make, first_dirty_offset=2) == [0, 1, 2]


@pytest.mark.parametrize("codec", range(5), ids=CODEC_NAMES)
def test_a_compressed_batch_is_compressed_again_with_the_same_codec(make: MakeCompactor, codec: int) -> None:
    history = History().write(*((b"k%d" % number, b"1" * 99) for number in range(20)), codec=codec)
    history.write(*((b"k%d" % number, b"2" * 99) for number in range(0, 20, 2)), codec=codec)
    first, second = compacted(history.batches, history.rules(), make=make).batches
    assert (first.header.codec, second.header.codec) == (codec, codec)
    assert [record.key for record in first.records] == [b"k%d" % number for number in range(1, 20, 2)]


def test_a_full_map_ends_the_round_where_it_was_full(make: MakeCompactor) -> None:
    history = History()
    for number in range(8):
        history.write((b"k%d" % (number % 4), b"%d" % number), (b"x", b"%d" % number))
    done = compacted(history.batches, history.rules(), make=make, memory_bytes=memory_for(make, keys=3))
    assert done.compactor.is_full
    assert (done.compactor.keys, done.compactor.latest_offset) == (3, 3)  # k0, x, k1; the fourth key is at offset 4
    assert [record.offset for record in done.records][:4] == [0, 2, 3, 4]
    again = compacted(split(done.data), history.rules(first_dirty_offset=4), make=make)
    assert [record.offset for record in again.records] == [8, 10, 12, 14, 15]


def test_what_lies_between_the_last_key_and_a_full_map_has_been_looked_at(make: MakeCompactor) -> None:
    history = History().write((b"a", b"1")).write((None, b"?")).write((b"b", b"1")).write((None, b"?"))
    done = compacted(history.batches, history.rules(), make=make, memory_bytes=memory_for(make, keys=1))
    assert done.compactor.latest_offset == 1
    assert [record.offset for record in done.records] == [0, 2, 3]


def test_many_keys(make: MakeCompactor) -> None:
    """More than the table of the kernels begins with."""
    history = History()
    for number in range(0, 9000, 30):
        history.write(*((b"key%d" % (key % 6000), b"%d" % number) for key in range(number, number + 30)))
    done = compacted(history.batches, history.rules(), make=make, memory_bytes=1 << 24)
    assert not done.compactor.is_full
    assert done.compactor.keys == 6000
    assert [record.offset for record in done.records] == list(range(3000, 9000))


def test_a_map_without_room_for_one_key_is_refused(make: MakeCompactor) -> None:
    with pytest.raises(ConfigError, match=r"log\.cleaner\.dedupe\.buffer\.size is 23"):
        make(History().rules(), [], 23)


def test_offset_keys_of_both_types_are_one_key_where_that_is_said(make: MakeCompactor) -> None:
    history = History().write((b"\0\0\0\1g\0\1t\0\0\0\0", b"old")).write((b"\0\1\0\1g\0\1t\0\0\0\0", None))
    history.write((b"\0\2\0\1g", b"old")).write((b"\0\3\0\1g", b"another kind, not another version"))
    assert offsets_of(history, make) == [0, 1, 2, 3]
    merged = compacted(history.batches, history.rules(merges_offset_keys=True), make=make)
    assert [record.offset for record in merged.records] == [1, 2, 3]


# Tombstones.


def test_a_tombstone_lives_a_day_beyond_the_round_that_met_it(make: MakeCompactor) -> None:
    history = History().write((b"a", b"1")).write((b"b", b"1"), (b"a", None)).write((b"c", b"1"))
    first = compacted(history.batches, history.rules(now_ms=START_MS + 5), make=make)
    assert first.values == [(1, b"b", b"1"), (2, b"a", None), (3, b"c", b"1")]
    assert [batch.header.delete_horizon_ms for batch in first.batches] == [START_MS + 5 + DAY_MS, None]
    assert first.batches[0].header.base_timestamp_ms == START_MS + 5 + DAY_MS
    assert [record.timestamp_ms for record in first.batches[0].records] == [START_MS + 1, START_MS + 2]

    before = compacted(split(first.data), history.rules(now_ms=START_MS + 4 + DAY_MS, first_dirty_offset=4), make=make)
    assert before.data == first.data  # the horizon is set once and does not move
    behind = compacted(split(first.data), history.rules(now_ms=START_MS + 5 + DAY_MS, first_dirty_offset=4), make=make)
    assert behind.values == [(1, b"b", b"1"), (3, b"c", b"1")]
    assert behind.batches[0].header.delete_horizon_ms == START_MS + 5 + DAY_MS


def test_a_tombstone_that_is_replaced_goes_at_once(make: MakeCompactor) -> None:
    history = History().write((b"a", None)).write((b"a", b"1"))
    done = compacted(history.batches, history.rules(), make=make)
    assert done.values == [(1, b"a", b"1")]
    assert done.batches[0].header.delete_horizon_ms is None


def test_a_tombstone_behind_the_map_waits_but_its_horizon_begins(make: MakeCompactor) -> None:
    """As in Kafka: whatever stays in a rewritten segment and is a tombstone counts from then on."""
    history = History().write((b"a", b"1")).write((b"b", None)).write((b"b", None))
    done = compacted(history.batches, history.rules(), make=make, memory_bytes=memory_for(make, keys=1))
    assert [record.offset for record in done.records] == [0, 1, 2]
    assert [batch.header.delete_horizon_ms is None for batch in done.batches] == [True, False, False]


# Transactions.


def test_aborted_records_go_and_do_not_replace_anything(make: MakeCompactor) -> None:
    history = History().write((b"a", b"1")).write((b"a", b"2"), (b"b", b"2"), producer_id=7).mark(7, commit=False)
    assert offsets_of(history, make) == [0]


def test_committed_records_replace_and_are_replaced(make: MakeCompactor) -> None:
    history = History().write((b"a", b"1")).write((b"a", b"2"), (b"b", b"2"), producer_id=7).mark(7)
    history.write((b"b", b"3"), producer_id=8).mark(8)
    done = compacted(history.batches, history.rules(), make=make)
    assert done.values == [(1, b"a", b"2"), (4, b"b", b"3")]
    assert done.markers == [3, 5]


def test_what_was_written_twice_in_one_transaction_is_there_once(make: MakeCompactor) -> None:
    history = History().write((b"a", b"1"), producer_id=7).write((b"a", b"2"), producer_id=7).mark(7)
    assert offsets_of(history, make) == [1]


def test_a_producer_may_abort_and_then_commit(make: MakeCompactor) -> None:
    history = History().write((b"a", b"1"), producer_id=7).mark(7, commit=False)
    history.write((b"a", b"2"), producer_id=7).mark(7).write((b"a", b"3"), producer_id=7).mark(7, commit=False)
    assert offsets_of(history, make) == [2]


def test_an_abort_of_the_clean_part_says_nothing_of_the_dirty_one(make: MakeCompactor) -> None:
    history = History().write((b"a", b"1")).write((b"a", b"2"), producer_id=7).mark(7, commit=False)
    history.write((b"a", b"3"), producer_id=7).mark(7)
    assert offsets_of(history, make, first_dirty_offset=3) == [3]


def test_interleaved_producers_each_have_their_own_end(make: MakeCompactor) -> None:
    history = History().write((b"a", b"1"), producer_id=7).write((b"a", b"2"), producer_id=8)
    history.write((b"b", b"1"), producer_id=7).write((b"b", b"2"), producer_id=8).mark(8, commit=False).mark(7)
    assert offsets_of(history, make) == [0, 2]


def test_nothing_behind_an_open_transaction_is_touched(make: MakeCompactor) -> None:
    history = History().write((b"a", b"1")).write((b"a", b"2")).write((b"a", b"3"), producer_id=7).write((b"a", b"4"))
    done = compacted(history.batches, history.rules(), history.aborted, make)
    assert done.values == [(1, b"a", b"2")]  # of what lies below; the rest is not part of the round


def test_a_marker_goes_only_when_its_horizon_has_passed_and_its_data_is_gone(make: MakeCompactor) -> None:
    history = History().write((b"a", b"1"), producer_id=7).mark(7)
    late = START_MS + 10 * DAY_MS
    first = compacted(history.batches, history.rules(now_ms=late, last_records={}), make=make)
    assert first.markers == [1]
    assert first.batches[1].header.delete_horizon_ms is None  # its data is there: nothing has begun, however late

    history.write((b"a", b"2"))
    batches = [*split(first.data), history.batches[-1]]
    second = compacted(batches, history.rules(now_ms=late, first_dirty_offset=2, last_records={}), make=make)
    assert second.values == [(2, b"a", b"2")]
    assert second.batches[0].header.delete_horizon_ms is None  # its data has only just gone

    third = compacted(split(second.data), history.rules(now_ms=late, first_dirty_offset=3, last_records={}), make=make)
    assert third.markers == [1]
    assert third.batches[0].header.attributes == TRANSACTIONAL | CONTROL | DELETE_HORIZON
    assert third.batches[0].header.delete_horizon_ms == late + DAY_MS

    rules = history.rules(now_ms=late + DAY_MS - 1, first_dirty_offset=3, last_records={})
    assert compacted(split(third.data), rules, make=make).markers == [1]
    rules = history.rules(now_ms=late + DAY_MS, first_dirty_offset=3, last_records={})
    assert compacted(split(third.data), rules, make=make).markers == []


def test_a_marker_whose_horizon_has_passed_waits_for_its_data_all_the_same(make: MakeCompactor) -> None:
    """No cleaner writes such a log; a marker that went before its data would leave that pending for ever."""
    history = History().write((b"a", b"1"), producer_id=7).mark(7)
    (marker,) = [batch.records[0] for batch in iter_batches(history.batches[1])]
    history.batches[1] = encode_batch(
        [marker],
        attributes=TRANSACTIONAL | CONTROL | DELETE_HORIZON,
        producer_id=7,
        producer_epoch=0,
        base_timestamp_ms=START_MS,
    )
    rules = history.rules(now_ms=START_MS + DAY_MS, last_records={})
    assert compacted(history.batches, rules, make=make).data == b"".join(history.batches)


def test_an_abort_marker_goes_the_same_way_and_its_index_entry_with_the_data(make: MakeCompactor) -> None:
    history = History().write((b"a", b"1"), producer_id=7).mark(7, commit=False).write((b"b", b"1"))
    first = compacted(history.batches, history.rules(last_records={}), history.aborted, make)
    assert first.aborted == history.aborted  # its data was there when the round began
    second = compacted(split(first.data), history.rules(first_dirty_offset=3, last_records={}), first.aborted, make)
    assert second.aborted == []
    assert second.batches[0].header.delete_horizon_ms == START_MS + DAY_MS
    rules = history.rules(now_ms=START_MS + DAY_MS, first_dirty_offset=3, last_records={})
    assert compacted(split(second.data), rules, second.aborted, make).markers == []


def test_the_last_batch_of_a_producer_stays_though_it_is_empty(make: MakeCompactor) -> None:
    history = History().write((b"a", b"1"), producer_id=7, epoch=3, codec=LZ4).mark(7, epoch=3).write((b"a", b"2"))
    done = compacted(history.batches, history.rules(), make=make)
    empty = done.batches[0].header
    assert (empty.record_count, empty.codec, empty.size_bytes) == (0, 0, 61)
    assert (empty.producer_id, empty.producer_epoch, empty.base_sequence) == (7, 3, 0)
    assert (empty.base_timestamp_ms, empty.max_timestamp_ms, empty.is_transactional) == (-1, START_MS, True)
    # As long as it is there, it is a batch of the transaction, and the marker waits.
    again = compacted(split(done.data), history.rules(first_dirty_offset=3, now_ms=START_MS + 9 * DAY_MS), make=make)
    assert again.data == done.data


def test_so_does_that_of_a_producer_without_transactions(make: MakeCompactor) -> None:
    history = History().write((b"a", b"1"), (b"b", b"1"), producer_id=7, transactional=False).write((b"a", b"2"))
    history.write((b"b", b"2"))
    empty = compacted(history.batches, history.rules(), make=make).batches[0].header
    assert (empty.record_count, empty.producer_id, empty.last_sequence) == (0, 7, 1)


def test_an_empty_batch_goes_with_its_producer(make: MakeCompactor) -> None:
    history = History().write((b"a", b"1"), producer_id=7).mark(7).write((b"a", b"2"))
    done = compacted(history.batches, history.rules(), make=make)
    again = compacted(split(done.data), history.rules(first_dirty_offset=3, last_records={}), make=make)
    assert [batch.header.base_offset for batch in again.batches] == [1, 2]


def test_the_last_marker_of_a_producer_without_data_stays_though_it_is_empty(make: MakeCompactor) -> None:
    """Its epoch keeps a producer out that was fenced."""
    history = History().mark(7, commit=False, epoch=1).mark(7, commit=False, epoch=2).write((b"a", b"1"))
    history.aborted = []  # markers of nothing: no transaction of the index
    late = history.rules(now_ms=START_MS + DAY_MS, first_dirty_offset=3)
    first = compacted(history.batches, history.rules(), make=make)
    done = compacted(split(first.data), late, make=make)
    assert history.last_records[7] == LastRecord(None, 2)
    assert [(batch.header.base_offset, len(batch.records)) for batch in done.batches] == [(1, 0), (2, 1)]
    assert done.batches[0].header.attributes == TRANSACTIONAL | CONTROL


def test_the_last_batch_of_a_round_stays_though_it_is_empty(make: MakeCompactor) -> None:
    """For its offset: whoever reads up to the end of the round must find something there."""
    history = History().write((b"a", b"1")).write((None, b"?"))
    assert [batch.header.base_offset for batch in compacted(history.batches, history.rules(), make=make).batches] == [
        0,
        1,
    ]
    history.write((b"b", b"1"))
    assert [batch.header.base_offset for batch in compacted(history.batches, history.rules(), make=make).batches] == [
        0,
        2,
    ]


def test_an_index_that_does_not_know_of_an_abort_stops_the_round(make: MakeCompactor) -> None:
    history = History().write((b"a", b"1")).write((b"a", b"2"), producer_id=7).mark(7, commit=False)
    with pytest.raises(
        Malformed, match="marker at offset 2 aborts a transaction of producer 7 that the transaction index"
    ):
        compacted(history.batches, history.rules(), [], make)


def test_a_marker_waits_for_an_emptied_batch_though_the_index_has_forgotten_it(make: MakeCompactor) -> None:
    """Without its marker, that batch would be the beginning of an open transaction to whoever loads the log."""
    history = History().write((b"a", b"1"), producer_id=7).mark(7, commit=False).write((b"b", b"1"))
    first = compacted(history.batches, history.rules(), history.aborted, make)
    rules = history.rules(first_dirty_offset=3, now_ms=START_MS + 9 * DAY_MS)
    assert compacted(split(first.data), rules, [], make).data == first.data


def test_an_index_that_calls_a_commit_an_abort_stops_the_round(make: MakeCompactor) -> None:
    history = History().write((b"a", b"2"), producer_id=7).mark(7, commit=False)
    wrong = history.aborted
    right = History().write((b"a", b"2"), producer_id=7).mark(7)
    with pytest.raises(Malformed, match="marker at offset 1 commits a transaction of producer 7"):
        compacted(right.batches, right.rules(), wrong, make)


def test_other_control_records_stay(make: MakeCompactor) -> None:
    leader_change = encode_batch([Record(0, START_MS, b"\0\0\0\2", b"")], attributes=CONTROL)
    rules = History(end=1).rules(now_ms=START_MS + 9 * DAY_MS)
    first = compacted([leader_change], rules, make=make)
    assert compacted(split(first.data), rules, make=make).data == leader_change


# Damage.


def test_a_wrong_checksum_stops_the_round(make: MakeCompactor) -> None:
    history = History().write((b"a", b"1")).write((b"b", b"1"))
    broken = history.batches[1][:-1] + b"?"
    with pytest.raises(Malformed, match="batch 1 says CRC"):
        compacted([history.batches[0], broken], history.rules(), make=make)


def test_bytes_that_are_no_batch_stop_the_round(make: MakeCompactor) -> None:
    history = History().write((b"a", b"1"))
    for odd in (bytes(61), history.batches[0][:16] + b"\x09" + history.batches[0][17:]):
        with pytest.raises(Malformed):
            compacted([*history.batches, odd], History(end=2).rules(), make=make)


def test_what_is_kept_is_counted(make: MakeCompactor) -> None:
    history = History().write((b"a", b"1"), (b"b", b"1")).write((b"a", b"2"))
    done = compacted(history.batches, history.rules(), make=make)
    count = done.compactor.count
    assert (count.records_read, count.records_kept) == (3, 2)
    assert (count.bytes_read, count.bytes_kept) == (sum(map(len, history.batches)), len(done.data))
    assert list(iter_batches(done.data))
