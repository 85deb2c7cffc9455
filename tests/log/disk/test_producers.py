"""Producers and their sequences, snapshots of them, and batches that clients made."""

import struct
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.codec.batches import HEADER_SIZE, encode_batch, encode_marker, iter_batches, read_header
from muster.codec.error_codes import ErrorCode
from muster.codec.records import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL, Record
from muster.errors import Malformed
from muster.log import validation
from muster.log.config import LogConfig
from muster.log.producers import MAX_SEQUENCE, ProducerStates
from muster.log.validation import COMPILED_WALK, AppendRefused, checked_client_batch
from tests.kit.memory_log import MemoryLog

T = 1_800_000_000_000


def client_batch(sequence: int, count: int = 1, producer_id: int = 7, epoch: int = 0, **more: Any) -> bytes:
    records = [Record(number, T + number, b"k", b"v") for number in range(count)]
    return encode_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **more)


def error_of(log: MemoryLog, data: bytes, wall_ms: int = T) -> ErrorCode:
    before = log.end_offset
    with pytest.raises(AppendRefused) as refused:
        log.append_batch(data, wall_ms)
    assert log.end_offset == before
    return refused.value.error


class TestSequences:
    def test_in_order(self) -> None:
        log = MemoryLog()
        assert [log.append_batch(client_batch(sequence, 2), T).base_offset for sequence in (0, 2, 4)] == [0, 2, 4]

    def test_a_gap(self) -> None:
        log = MemoryLog()
        log.append_batch(client_batch(0), T)
        assert error_of(log, client_batch(2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def test_one_of_the_last_five_again(self) -> None:
        log = MemoryLog()
        for number in range(7):
            log.append_batch(client_batch(2 * number, 2), T)
        for number in range(2, 7):
            assert log.append_batch(client_batch(2 * number, 2), T).base_offset == 2 * number
        assert log.end_offset == 14
        assert error_of(log, client_batch(2, 2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER  # too long ago
        assert error_of(log, client_batch(12, 1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER  # another batch

    def test_sequences_wrap(self) -> None:
        log = MemoryLog()
        log.append_batch(client_batch(MAX_SEQUENCE - 1, 2), T)
        assert log.append_batch(client_batch(0, 2), T).base_offset == 2
        assert log.append_batch(client_batch(MAX_SEQUENCE - 1, 2), T).base_offset == 0  # again
        across = MemoryLog()
        across.append_batch(client_batch(MAX_SEQUENCE, 3), T)
        assert across.append_batch(client_batch(MAX_SEQUENCE, 3), T).base_offset == 0
        assert across.append_batch(client_batch(2), T).base_offset == 3

    def test_epochs(self) -> None:
        log = MemoryLog()
        log.append_batch(client_batch(0, epoch=3), T)
        assert error_of(log, client_batch(1, epoch=2)) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert error_of(log, client_batch(1, epoch=4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert log.append_batch(client_batch(0, epoch=4), T).base_offset == 1

    def test_a_producer_nobody_remembers_may_begin_anywhere(self) -> None:
        assert MemoryLog().append_batch(client_batch(1000), T).base_offset == 0

    def test_a_producer_without_an_epoch_is_taken_and_its_batches_once(self) -> None:
        log = MemoryLog()
        assert [log.append_batch(client_batch(0, epoch=-1), T).base_offset for _ in range(2)] == [0, 0]
        assert log.append_batch(client_batch(0, epoch=0), T).base_offset == 1

    def test_outside_an_open_transaction(self) -> None:
        log = MemoryLog()
        log.append_batch(client_batch(0, attributes=TRANSACTIONAL), T)
        assert error_of(log, client_batch(1)) is ErrorCode.INVALID_TXN_STATE
        log.append_marker(7, 0, T, commit=True)
        assert log.append_batch(client_batch(1), T).base_offset == 2

    def test_a_new_epochs_marker_ends_the_old_ones_transaction(self) -> None:
        log = MemoryLog()
        log.append_batch(client_batch(0, attributes=TRANSACTIONAL), T)
        log.append_marker(7, 1, T, commit=False)
        assert log.last_stable_offset == 2
        assert [one[:3] for one in log.aborted_transactions(0, 9)] == [(7, 0, 1)]
        assert error_of(log, client_batch(1)) is ErrorCode.INVALID_PRODUCER_EPOCH


class TestClientBatches:
    def test_it_becomes_the_logs_own(self) -> None:
        log = MemoryLog(leader_epoch=5)
        log.append([(b"x", b"y")], T)
        assert log.append_batch(client_batch(0, 3), T).base_offset == 1
        [batch] = iter_batches(log.read(1, 1))
        assert batch.problem is None
        assert (batch.header.base_offset, batch.header.last_offset, batch.header.leader_epoch) == (1, 3, 5)
        assert [record.offset for record in batch.records] == [1, 2, 3]

    def test_log_append_time(self) -> None:
        log = MemoryLog(config=LogConfig(log_append_time=True))
        log.append_batch(client_batch(0, 3), T + 77)
        [batch] = log.batches()
        assert batch.problem is None
        assert batch.header.timestamp_type == "LogAppendTime"
        assert [record.timestamp_ms for record in batch.records] == [T + 77] * 3

    def test_a_clients_log_append_time_is_not_the_logs(self) -> None:
        log = MemoryLog()
        log.append_batch(client_batch(0, 3, attributes=LOG_APPEND_TIME), T)
        [batch] = log.batches()
        assert batch.problem is None
        assert batch.header.timestamp_type == "CreateTime"
        assert [record.timestamp_ms for record in batch.records] == [T, T + 1, T + 2]

    def test_a_wrong_largest_timestamp_is_put_right(self) -> None:
        data = bytearray(client_batch(0, 3))
        struct.pack_into(">q", data, 35, T + 999)
        log = MemoryLog()
        log.append_batch(with_crc(data), T)
        [batch] = log.batches()
        assert batch.problem is None
        assert batch.header.max_timestamp_ms == T + 2

    @pytest.mark.parametrize("codec", range(5))
    def test_compressed(self, codec: int) -> None:
        log = MemoryLog()
        log.append_batch(client_batch(0, 3, codec=codec), T)
        [batch] = log.batches()
        assert (batch.header.codec, len(batch.records), batch.problem) == (codec, 3, None)

    @pytest.mark.parametrize(
        ("data", "error"),
        [
            (b"", ErrorCode.INVALID_RECORD),
            (b"x" * 10, ErrorCode.CORRUPT_MESSAGE),
            (client_batch(0)[:-1], ErrorCode.CORRUPT_MESSAGE),
            (client_batch(0) + client_batch(1), ErrorCode.INVALID_RECORD),
            (client_batch(0)[:-1] + b"x", ErrorCode.CORRUPT_MESSAGE),
            (client_batch(0, base_offset=-1, last_offset=0), ErrorCode.INVALID_RECORD),
            (client_batch(0, last_offset=5), ErrorCode.INVALID_RECORD),
            (client_batch(0, attributes=CONTROL), ErrorCode.INVALID_RECORD),
            (client_batch(-1), ErrorCode.INVALID_RECORD),
            (client_batch(0, producer_id=-1, epoch=-1, attributes=TRANSACTIONAL), ErrorCode.INVALID_RECORD),
            (client_batch(0, attributes=5), ErrorCode.UNKNOWN_SERVER_ERROR),
            (client_batch(0, attributes=4), ErrorCode.UNKNOWN_SERVER_ERROR),  # says zstd, and is not
            (encode_batch([Record(0, T + 3_600_001, b"k", b"")]), ErrorCode.INVALID_TIMESTAMP),
            (encode_batch([Record(0, T, b"k", bytes(2_000_000))]), ErrorCode.MESSAGE_TOO_LARGE),
            (encode_marker(0, T, 7, 0, commit=True, coordinator_epoch=0), ErrorCode.INVALID_RECORD),
        ],
    )
    def test_what_is_not_taken(self, data: bytes, error: ErrorCode) -> None:
        assert error_of(MemoryLog(), data) is error

    def test_a_compacted_topic_wants_keys(self) -> None:
        data = encode_batch([Record(0, T, b"k", b"v"), Record(1, T, None, b"v")])
        assert error_of(MemoryLog(config=LogConfig(compacted=True)), data) is ErrorCode.INVALID_RECORD
        assert MemoryLog().append_batch(data, T).base_offset == 0

    def test_old_timestamps(self) -> None:
        log = MemoryLog(config=LogConfig(timestamp_before_max_ms=1000))
        assert error_of(log, client_batch(0), wall_ms=T + 1001) is ErrorCode.INVALID_TIMESTAMP
        assert log.append_batch(client_batch(0), T + 1000).base_offset == 0
        assert log.append_batch(encode_batch([Record(0, -1, b"k", b"v")]), T).base_offset == 1  # none at all is not old

    def test_offsets_inside_that_do_not_count_up(self) -> None:
        data = encode_batch([Record(0, T, b"a", b""), Record(2, T, b"b", b"")], last_offset=1)
        assert error_of(MemoryLog(), data) is ErrorCode.INVALID_RECORD

    def test_packed_data_of_very_many_members(self) -> None:
        """Each costs in proportion to all that are behind it."""
        packer = zlib.compressobj(wbits=31)
        member = packer.compress(b"") + packer.flush()
        data = bytearray(client_batch(0, attributes=1)[:HEADER_SIZE] + member * 1_001)
        struct.pack_into(">i", data, 8, len(data) - 12)
        with pytest.raises(AppendRefused, match="members"):
            MemoryLog().append_batch(with_crc(data), T)

    def test_of_very_many_records_at_fault_some_are_told(self) -> None:
        data = encode_batch([Record(number, T + 10**8, b"k", b"v") for number in range(500)])
        with pytest.raises(AppendRefused) as refused:
            MemoryLog().append_batch(data, T)
        assert refused.value.error is ErrorCode.INVALID_TIMESTAMP
        assert [number for number, _ in refused.value.records] == list(range(100))
        keyless = encode_batch([Record(number, T, None, b"v") for number in range(500)])
        with pytest.raises(AppendRefused) as refused:
            MemoryLog(config=LogConfig(compacted=True)).append_batch(keyless, T)
        assert [number for number, _ in refused.value.records] == list(range(100))

    @pytest.mark.parametrize("value_bytes", [10, 20_000])
    def test_times_that_go_round(self, value_bytes: int) -> None:
        """Read row by row and compiled: a clock of 64 bits does not begin anew."""
        data = bytearray(encode_batch([Record(0, T, b"k", bytes(value_bytes)), Record(1, T + 1, b"k", b"v")]))
        struct.pack_into(">qq", data, 27, 2**63 - 1, 2**63 - 1)
        log = MemoryLog(config=LogConfig(timestamp_after_max_ms=2**63 - 1))
        COMPILED_WALK.wait()
        assert error_of(log, with_crc(data)) is ErrorCode.INVALID_RECORD

    def test_millions_of_headers_wait_for_the_compiled_walk(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A few hundred bytes of a client may become that many."""
        plain = client_batch(0)
        data = encode_batch([Record(0, T, b"k", b"v", (("", b""),) * 300)], codec=4)
        walked = []
        walk = COMPILED_WALK.wait()
        assert walk is not None

        def counted(*arguments: Any) -> tuple[int, int, int]:
            walked.append(arguments)
            return walk(*arguments)

        monkeypatch.setattr(validation, "MOST_ROW_BY_ROW", 200)
        monkeypatch.setattr(COMPILED_WALK, "_walk", counted)
        log = MemoryLog()
        log.append_batch(plain, T)
        assert not walked
        log.append_batch(data, T)
        assert len(walked) == 1

    def test_small_batches_are_walked_compiled_when_there_were_many(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """One megabyte in batches of 16 KB is as many records as one in a single batch."""
        fresh = validation._CompiledWalk()
        monkeypatch.setattr(validation, "COMPILED_WALK", fresh)
        monkeypatch.setattr(validation, "WORTH_LOADING", 10)
        log, data = MemoryLog(), encode_batch([Record(number, T + number, b"k", b"v") for number in range(4)])
        log.append_batch(data, T)
        log.append_batch(data, T)
        assert fresh._loading is None, "8 records are not worth a second"
        log.append_batch(data, T)
        assert fresh._loading is not None
        assert fresh.wait() is not None
        monkeypatch.setattr(validation, "_walk_records", lambda *_: pytest.fail("walked row by row"))
        log.append_batch(data, T)
        assert log.end_offset == 16

    def test_a_small_batch_is_refused_with_the_same_words_by_either_walk(self, monkeypatch: pytest.MonkeyPatch) -> None:
        keyless = encode_batch([Record(number, T, None, b"v") for number in range(4)])
        misnumbered = encode_batch([Record(0, T, b"a", b""), Record(2, T, b"b", b"")], last_offset=1)
        told = []
        for walk in (COMPILED_WALK.wait(), None):
            monkeypatch.setattr(COMPILED_WALK, "_walk", walk)
            for data in (keyless, misnumbered):
                with pytest.raises(AppendRefused) as refused:
                    MemoryLog(config=LogConfig(compacted=True)).append_batch(data, T)
                told.append((refused.value.error, refused.value.reason, refused.value.records))
        assert told[:2] == told[2:]
        assert [number for number, _ in told[0][2]] == [0, 1, 2, 3]

    @settings(max_examples=300, deadline=None)
    @given(st.integers(0, 1 << 16), st.integers(0, 255), st.integers(0, 3))
    def test_any_byte_may_be_wrong(self, place: int, byte: int, codec: int) -> None:
        """With the checksum put right, so that only the looking is left: a refusal, or a batch that can be read."""
        records = [Record(number, T + number, b"key", b"value", (("h", b"x"),)) for number in range(4)]
        data = bytearray(encode_batch(records, codec=codec, producer_id=7, producer_epoch=0, base_sequence=0))
        data[21 + place % (len(data) - 21)] = byte
        log = MemoryLog()
        try:
            log.append_batch(with_crc(data), T)
        except AppendRefused:
            assert log.end_offset == 0
            return
        [batch] = log.batches()
        assert batch.problem is None
        assert [record.offset for record in batch.records] == list(range(log.end_offset))

    @settings(max_examples=200, deadline=None)
    @given(st.binary(max_size=200))
    def test_any_bytes(self, data: bytes) -> None:
        with pytest.raises(AppendRefused):
            checked_client_batch(data, LogConfig(), T)


def with_crc(data: bytearray) -> bytes:
    from crc32c import crc32c

    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return bytes(data)


class TestSnapshots:
    def states(self) -> ProducerStates:
        states = ProducerStates()
        offset = 0
        for producer_id in range(4):
            for sequence in range(0, 14, 2):
                attributes = TRANSACTIONAL if producer_id == 2 else 0
                header = read_header(client_batch(sequence, 2, producer_id, epoch=1, attributes=attributes))
                states.append_data(header._replace(base_offset=offset, last_offset=offset + 1))
                offset += 2
        states.append_marker(3, 5, 9, offset, T + 5, commit=True)
        states.end_offset = offset + 1
        return states

    def test_round_trip(self) -> None:
        states = self.states()
        again = ProducerStates.from_snapshot(states.snapshot(), states.end_offset)
        assert again.snapshot() == states.snapshot()
        assert again.first_unstable_offset() == states.first_unstable_offset() == 28
        assert again.producers[3].epoch == 5
        assert again.producers[3].coordinator_epoch == 9
        last = again.producers[0].batches
        assert last == states.producers[0].batches[-1:]  # of five, the newest survives

    def test_the_bytes_are_kafkas(self) -> None:
        """Laid out by hand from ProducerSnapshot.json."""
        states = ProducerStates()
        states.append_data(read_header(client_batch(3, 2, producer_id=0x1122, epoch=4)))
        data = states.snapshot()
        assert data[:2] == bytes.fromhex("0001")
        assert data[6:10] == bytes.fromhex("00000001")
        assert data[10:] == bytes.fromhex(
            "0000000000001122 0004 00000004 0000000000000001 00000001" + f"{T + 1:016x}" + "ffffffff ffffffffffffffff"
        )

    def test_damage(self) -> None:
        data = self.states().snapshot()
        for cut in range(len(data)):
            with pytest.raises(Malformed):
                ProducerStates.from_snapshot(data[:cut], 0)
        for place in range(len(data)):
            damaged = bytearray(data)
            damaged[place] ^= 0x40
            with pytest.raises(Malformed):
                ProducerStates.from_snapshot(bytes(damaged), 0)

    def test_producers_that_are_silent_are_forgotten(self) -> None:
        states = self.states()
        states.forget_idle(T + 1000 + 2, 1000)
        assert sorted(states.producers) == [2, 3]  # one has a transaction open, one has spoken since
