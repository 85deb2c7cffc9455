"""A log that is read by columns comes down to the same as one that is read record by record."""

import random
from dataclasses import asdict

import pytest

from muster.codec.batches import computed_crc, decode_records, encode_batch, encode_marker, read_header
from muster.codec.offsets_topic import OffsetValue, encode_key, encode_offset_value, offset_key
from muster.codec.records import TRANSACTIONAL, Record
from muster.exporter import follow
from muster.exporter.follow import Follower
from muster.exporter.groups import OffsetsPartition, Room
from muster.exporter.history import stretches
from muster.exporter.limits import LeftOut, Limits, Wanted
from tests.exporter.test_corpora import logs
from tests.exporter.test_follow import FOREVER, FakeCluster


def made_up_log(seed: int, batches: int) -> list[bytes]:
    """Few keys, many commits of each; some deleted, some in transactions that end one way or the other, or not yet."""
    chance, log, offset = random.Random(seed), list[bytes](), 0
    for _ in range(batches):
        kind, producer_id = chance.random(), chance.randrange(3)
        if kind < 0.1:
            log.append(encode_marker(offset, 0, producer_id, 0, commit=chance.random() < 0.5, coordinator_epoch=0))
            offset += 1
            continue
        records = []
        for _ in range(chance.randint(1, 5)):
            key = encode_key(offset_key(f"g{chance.randrange(3)}", "orders", chance.randrange(2)))
            value = encode_offset_value(OffsetValue(offset, commit_timestamp_ms=offset), 4)
            records.append(Record(offset, offset, key, None if chance.random() < 0.03 else value))
            offset += 1
        is_transactional = kind < 0.3
        log.append(
            encode_batch(
                records,
                attributes=TRANSACTIONAL if is_transactional else 0,
                producer_id=producer_id if is_transactional else -1,
                producer_epoch=0 if is_transactional else -1,
            )
        )
    return log


def partition() -> OffsetsPartition:
    return OffsetsPartition(Room(Limits(), LeftOut()), Wanted(), lambda where: None)


def told(state: OffsetsPartition) -> dict[str, object]:
    for group in state.groups.values():
        if group.rebalances is not None:
            group.rebalances.settle()
    groups = {
        group_id: asdict(group) | {"rebalances": group.rebalances and group.rebalances.by_cause}
        for group_id, group in state.groups.items()
    }
    return {"groups": groups, "open": state._pending}


def row_wise(data: bytes) -> dict[str, object]:
    state, position = partition(), 0
    while position < len(data):
        header = read_header(data, position)
        assert computed_crc(data, position, header) == header.crc
        state.take(header, decode_records(data, position, header))
        position += header.size_bytes
    return told(state)


@pytest.mark.parametrize("seed", range(8))
def test_a_long_stretch(seed: int) -> None:
    log = made_up_log(seed, 400)
    data = b"".join(log)
    state, kept, read, end = partition(), 0, 0, 0
    for found in stretches(memoryview(data + log[0][:-1])):  # the last batch is cut off
        assert found.records is not None
        state.take(found.header, found.records)
        kept, read, end = kept + len(found.records), read + found.read, found.end
    assert told(state) == row_wise(data)
    assert end == len(data)
    assert kept < read / 2


@pytest.mark.parametrize("name", ["k26-full", "k43-all"])
def test_logs_of_real_brokers(name: str) -> None:
    for _, _, data in logs(name):
        state = partition()
        for found in stretches(memoryview(data)):
            state.take(found.header, found.records or [])
        assert told(state) == row_wise(data)


class GivesAll(FakeCluster):
    """The whole rest of a log in one answer."""

    def _fetched(self, number: int, offset: int) -> follow.Fetched:
        return super()._fetched(number, offset)._replace(**self._rest(number, offset))

    def _rest(self, number: int, offset: int) -> dict[str, object]:
        data = b"".join(batch for batch in self.logs[number] if read_header(batch).last_offset >= offset)
        return {"frame": memoryview(data), "start": 0, "end": len(data)}


def test_a_follower_reads_history_by_columns_and_what_comes_then_by_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "LONG_HISTORY", 100)
    log = made_up_log(1, 300)
    damaged = bytearray(log[100])
    damaged[-1] ^= 1
    log[100] = bytes(damaged)
    by_columns, by_rows = Follower(GivesAll(log), partition), Follower(FakeCluster(log), partition)  # type: ignore[arg-type]
    columns = 0
    walk = Follower._walk_columns

    def counted(*arguments: object) -> int:
        nonlocal columns
        columns += 1
        return walk(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Follower, "_walk_columns", counted)
    by_columns.catch_up(FOREVER)
    assert columns == 1
    monkeypatch.setattr(follow, "LONG_HISTORY", 1 << 40)
    by_rows.catch_up(FOREVER)
    assert columns == 1
    assert by_columns.groups() == by_rows.groups()
    assert (by_columns.records, by_columns.unreadable) == (by_rows.records, by_rows.unreadable)
    assert by_columns.unreadable == 1
