"""Dumps as text and as JSON: against Kafka's own of the same files, and against the row-wise codec.

`expected/dump-P.txt.gz` is what kafka-dump-log printed and `expected/records.jsonl.gz` what the console formatters did.
"""

import gzip
import json
import struct
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.codec import compression
from muster.codec.batches import decode_control, encode_batch, encode_marker, iter_batches
from muster.codec.columns import dump_json, dump_text
from muster.codec.columns.chunks import Chunk, Scratch, decode_chunk, with_slack
from muster.codec.columns.commits import C_KIND, K_BAD, K_COMMIT, K_COMMIT_TOMBSTONE, K_GROUP
from muster.codec.columns.dump_text import ConsecutiveOffsets, invalid_bytes_line
from muster.codec.columns.kernels import SLACK
from muster.codec.columns.rowwise import record_at
from muster.codec.kafka_json import Flavour, key_json, value_json
from muster.codec.offsets_topic import (
    GroupKey,
    GroupValue,
    OffsetKey,
    OffsetValue,
    decode_key,
    decode_value,
    encode_group_value,
    encode_key,
    encode_offset_value,
)
from muster.codec.records import CONTROL, DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL, BatchHeader, Record
from muster.segments.reader import read_markers, read_segment
from muster.segments.sources import Sources
from tests.codec.corpus_records import CORPORA, NAMES
from tests.codec.strategies import INT32, INT64, TEXT, UUIDS, bounded
from tests.codec.whole_chunks import render_json, render_text
from tests.protocol.strategies import more_at_length

Json = dict[str, Any]


class Dumped(NamedTuple):
    """A corpus as we dump it: text by partition, trailers apart, and all lines of JSON."""

    text: dict[int, list[str]]
    gaps: dict[int, list[str]]
    json: list[Json]


@cache
def dumped(name: str) -> Dumped:
    text: dict[int, list[str]] = {}
    gaps: dict[int, list[str]] = {}
    objects: list[Json] = []
    scratch = Scratch()
    with Sources([CORPORA / name / f"{name}.tar.zst"]) as sources:
        for partition in sources.partitions:
            assert partition.partition is not None
            markers, shown, consecutive = read_markers(partition.segments), b"", ConsecutiveOffsets()
            for segment in partition.segments:
                end = 0
                for found in read_segment(segment, scratch, [], markers, forgiving=True):
                    shown += render_text(
                        found.chunk,
                        segment_name=segment.name,
                        is_first=found.is_first,
                        file_position=found.file_position,
                    )
                    consecutive.add(segment.name, found.chunk)
                    end = found.file_position + found.chunk.next_position
                if end < segment.size_bytes:
                    shown += invalid_bytes_line(segment.path.name, segment.size_bytes - end)
                for found in read_segment(segment, scratch, [], markers):
                    lines = render_json(found.chunk, partition=partition.partition, segment_file=segment.path.name)
                    objects += map(json.loads, lines.splitlines())
            text[partition.partition] = shown.decode().split("\n")[:-1]
            gaps[partition.partition] = [block.decode() for block in consecutive.blocks()]
    return Dumped(text, gaps, objects)


def expected_dump(name: str, partition: int) -> tuple[list[str], list[str]]:
    """The lines of Kafka's dump, and the blocks of its trailer."""
    path = CORPORA / name / "expected" / f"dump-{partition}.txt.gz"
    lines, *blocks = gzip.decompress(path.read_bytes()).decode().split("Non-consecutive offsets in ")
    return lines.split("\n")[:-1], ["Non-consecutive offsets in " + block for block in blocks]


@pytest.mark.parametrize("name", NAMES)
def test_text_is_what_dump_log_prints(name: str) -> None:
    found = dumped(name)
    assert sorted(path.name for path in (CORPORA / name / "expected").glob("dump-*")) == [
        f"dump-{partition}.txt.gz" for partition in sorted(found.text)
    ]
    for partition, lines in found.text.items():
        expected, trailer = expected_dump(name, partition)
        if expected[-1].startswith("dump-log ended with"):
            # Kafka's tool died of the damage here, and we go on behind it.
            assert lines[: len(expected) - 1] == expected[:-1]
            continue
        assert lines == expected
        if name == "k40":
            # The 4.0.0 tool, which made this one, does not call the begin of a segment a gap.
            assert all(block.count("\n") == 2 and "  -1 is followed by" in block for block in found.gaps[partition])
            assert trailer == []
            continue
        # Kafka takes the blocks out of a hash map, in no order; ours are in the order of the segments.
        assert sorted(found.gaps[partition]) == sorted(trailer)
        assert found.gaps[partition] == sorted(found.gaps[partition])


def test_a_segment_of_zeros_is_invalid_bytes_and_ends_nothing() -> None:
    assert dumped("damaged-length").text[2][-1] == "Found 4096 invalid bytes at the end of 00000000000000001124.log"


def test_a_damaged_batch_shows_the_records_before_the_damage_and_the_batches_behind_it() -> None:
    lines = dumped("damaged-flip").text[1]
    damaged = next(number for number, line in enumerate(lines) if line.endswith("isvalid: false"))
    assert lines[damaged + 2].startswith("| offset: 102 ")
    assert lines[damaged + 3].startswith("baseOffset: 104 ")


@pytest.mark.parametrize("name", NAMES)
def test_json_is_what_the_formatters_print(name: str) -> None:
    with gzip.open(CORPORA / name / "expected" / "records.jsonl.gz", "rt", encoding="utf-8") as lines:
        # "corrupt" is where Kafka's reader gives up a segment: no batch, so no line of ours.
        expected = [line for line in map(json.loads, lines) if "corrupt" not in line]
    outcomes = expected_outcomes(expected)
    found = dumped(name).json
    assert len(found) == len(expected)
    for ours, kafkas, outcome in zip(found, expected, outcomes, strict=True):
        for only_theirs in ("by", "keyHex", "valueHex"):
            kafkas.pop(only_theirs, None)
        assert ("problem" in ours) == ("corruptBatch" in kafkas)
        assert list(ours) == [*[key for key in ours if key in kafkas or key == "problem"], "transactionOutcome"]
        assert ours["transactionOutcome"] == outcome
        assert {key: ours[key] for key in ours if key not in ("problem", "transactionOutcome")} == kafkas


def expected_outcomes(records: list[Json]) -> list[str | None]:
    """How each record's transaction ended, read backwards from the markers."""
    outcomes: list[str | None] = []
    last_marker: dict[tuple[int, int], str] = {}
    for record in reversed(records):
        producer = record["partition"], record["batch"]["producerId"]
        if "control" in record:
            last_marker[producer] = {"COMMIT": "committed", "ABORT": "aborted"}[record["control"]]
        transactional = record["batch"]["isTransactional"] and "corruptBatch" not in record
        outcomes.append(last_marker.get(producer, "open") if transactional else None)
    return outcomes[::-1]


# The row-wise oracle: whole lines, written the plain way.


def text_by_row(data: bytes) -> Iterator[str]:
    for position, header, records, problem in iter_batches(data):
        assert problem is None
        horizon = header.delete_horizon_ms
        yield (
            f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.record_count} "
            f"baseSequence: {header.base_sequence} lastSequence: {header.last_sequence} "
            f"producerId: {header.producer_id} producerEpoch: {header.producer_epoch} "
            f"partitionLeaderEpoch: {header.leader_epoch} "
            f"isTransactional: {str(header.is_transactional).lower()} isControl: {str(header.is_control).lower()} "
            f"deleteHorizonMs: OptionalLong{'.empty' if horizon is None else f'[{horizon}]'} position: {position} "
            f"{header.timestamp_type}: {header.max_timestamp_ms} size: {header.size_bytes} magic: 2 "
            f"compresscodec: {compression.codec_name(header.codec)} crc: {header.crc} isvalid: true"
        )
        for record in records:
            sequence = -1
            if header.base_sequence >= 0:
                sequence = (header.base_sequence + record.offset - header.base_offset) % 2**31
            yield (
                f"| offset: {record.offset} {header.timestamp_type}: {record.timestamp_ms} "
                f"keySize: {len(record.key or b'')} valueSize: {-1 if record.value is None else len(record.value)} "
                f"sequence: {sequence} headerKeys: [{','.join(name for name, _ in record.headers)}]"
                f"{contents_by_row(header, record)}"
            )


def contents_by_row(header: BatchHeader, record: Record) -> str:
    if header.is_control:
        control = decode_control(record)
        return f" endTxnMarker: {control.name} coordinatorEpoch: {control.coordinator_epoch}"
    key, value = rendered_by_row(record, Flavour.DUMP_LOG)
    if key.startswith('{"type":"0"') and not value.startswith(('{"version":"0"', "<")):
        version = json.loads(value)["version"]
        return f" key: Error at offset {record.offset}, skipping. Found an unknown record version {version} for 0 type"
    return f" key: {key} payload: {value}"


def rendered_by_row(record: Record, flavour: Flavour) -> tuple[str, str]:
    assert record.key is not None
    key = decode_key(record.key)
    version, value = (-1, None) if record.value is None else decode_value(key.record_type, record.value)
    return key_json(key, flavour), value_json(key.record_type, version, value, flavour)


def json_by_row(data: bytes) -> Iterator[str]:
    for _, header, records, problem in iter_batches(data):
        assert problem is None
        batch = {
            "baseOffset": header.base_offset,
            "lastOffset": header.last_offset,
            "magic": 2,
            "compression": compression.codec_name(header.codec),
            "timestampType": header.timestamp_type,
            "maxTimestamp": header.max_timestamp_ms,
            "partitionLeaderEpoch": header.leader_epoch,
            "producerId": header.producer_id,
            "producerEpoch": header.producer_epoch,
            "baseSequence": header.base_sequence,
            "isTransactional": header.is_transactional,
            "isControl": header.is_control,
            "deleteHorizonMs": -1 if header.delete_horizon_ms is None else header.delete_horizon_ms,
            "sizeInBytes": header.size_bytes,
            "count": header.record_count,
            "crcValid": True,
        }
        outcome = "open" if header.is_transactional else None
        rest = f'"batch":{compact(batch)},"transactionOutcome":{compact(outcome)}}}'
        if not records:
            yield f'{{"partition":7,"segment":"5.log","emptyBatch":true,{rest}'
        for record in records:
            start = f'{{"partition":7,"offset":{record.offset},"timestamp":{record.timestamp_ms},"segment":"5.log"'
            if header.is_control:
                control = decode_control(record)
                yield f'{start},"control":"{control.name}","coordinatorEpoch":{control.coordinator_epoch},{rest}'
            else:
                key, value = rendered_by_row(record, Flavour.FORMATTER)
                yield f'{start},"key":{key},"value":{value},{rest}'


def compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


# Made-up logs.

INT16 = st.integers(-(2**15), 2**15 - 1)
EVENTS = st.tuples(
    st.builds(OffsetKey, TEXT, TEXT, INT32, st.sampled_from([1, 1, 1, 0])).map(encode_key),
    st.one_of(
        st.none(),
        st.builds(
            encode_offset_value,
            st.builds(
                OffsetValue,
                committed_offset=INT64,
                leader_epoch=INT32,
                metadata=TEXT,
                commit_timestamp_ms=INT64,
                expire_timestamp_ms=INT64,
                topic_id=st.one_of(st.just(bytes(16)), UUIDS),
                unknown_tags=st.one_of(st.just(()), st.binary(max_size=9).map(lambda data: ((1, data), (300, b"")))),
            ),
            st.integers(0, 4),
        ),
    ),
)
GROUPS = st.tuples(
    TEXT.map(lambda name: encode_key(GroupKey(name))),
    st.one_of(st.none(), TEXT.map(lambda name: encode_group_value(GroupValue(name, 3, None, name, 5), 3))),
)
HEADERS = st.sampled_from([(), (), (), (("h1", b"x"), ("ü", None))])


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    """One batch of anything that both codecs can read."""
    base_offset = draw(st.integers(0, 2**62))
    timestamp_ms = draw(st.integers(-1, 2**53))
    producer = {
        "producer_id": draw(st.one_of(st.just(-1), INT64)),
        "producer_epoch": draw(INT16),
        "leader_epoch": draw(INT32),
    }
    if draw(st.integers(0, 9)) == 0:
        return encode_marker(
            base_offset, timestamp_ms, **producer, commit=draw(st.booleans()), coordinator_epoch=draw(INT32)
        )
    contents = draw(st.lists(st.tuples(st.one_of(EVENTS, EVENTS, EVENTS, GROUPS), HEADERS), max_size=6))
    offsets = [base_offset + 3 * number for number in range(len(contents))]
    return encode_batch(
        [
            Record(offset, timestamp_ms + number, key, value, headers)
            for number, (offset, ((key, value), headers)) in enumerate(zip(offsets, contents, strict=True))
        ],
        base_offset=base_offset,
        last_offset=base_offset + 20,
        codec=draw(st.sampled_from([0, 0, 0, 1, 2, 3, 4])),
        attributes=draw(st.sampled_from([0, 0, TRANSACTIONAL, DELETE_HORIZON, LOG_APPEND_TIME])),
        base_sequence=draw(st.one_of(st.just(-1), st.integers(0, 2**31 - 1))),
        **producer,
    )


LOGS = st.lists(batches(), min_size=1, max_size=4).map(b"".join)


SCRATCH = Scratch()


def decoded(data: bytes, *, forgiving: bool = False) -> Chunk:
    """A chunk, to be used before the next is decoded."""
    chunk = decode_chunk(with_slack(data), 0, len(data), SCRATCH, forgiving=forgiving)
    assert chunk.next_position == len(data)
    return chunk


def text_of(chunk: Chunk, rows: Any = None) -> list[str]:
    text = render_text(chunk, segment_name="x-7/5.log", is_first=False, file_position=0, rows=rows)
    assert not text or text.endswith(b"\n")
    return text.decode().split("\n")[:-1]


def json_of(chunk: Chunk, rows: Any = None) -> list[str]:
    return render_json(chunk, partition=7, segment_file="5.log", rows=rows).decode().split("\n")[:-1]


@bounded
@given(data=LOGS)
def test_columns_say_what_the_row_wise_codec_says(data: bytes) -> None:
    chunk = decoded(data)
    assert text_of(chunk) == list(text_by_row(data))
    assert json_of(chunk) == list(json_by_row(data))


@bounded
@given(data=LOGS, chosen=st.sets(st.integers(0, 23)))
def test_chosen_records_give_their_lines_alone(data: bytes, chosen: set[int]) -> None:
    chunk = decoded(data)
    rows = np.array(sorted(row for row in chosen if row < len(chunk.records)), np.int64)
    shown: list[str] = []
    batch_line, row = "", -1
    for line in text_by_row(data):
        if not line.startswith("|"):
            batch_line = line
            continue
        row += 1
        if row in chosen:
            shown += [batch_line, line] if batch_line else [line]
            batch_line = ""
    assert text_of(chunk, rows) == shown
    records = [line for line in json_by_row(data) if '"emptyBatch"' not in line]
    assert json_of(chunk, rows) == [records[row] for row in rows.tolist()]


@settings(bounded, max_examples=20)
@given(data=LOGS, stretch_bytes=st.sampled_from([1, 1500, 3000]))
@more_at_length
def test_little_room_changes_nothing(again: int, data: bytes, stretch_bytes: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("muster.codec.columns.lines.STRETCH_BYTES", stretch_bytes)
        chunk = decoded(data * 3)
        assert json_of(chunk) == list(json_by_row(data * 3))
        stretches = list(dump_json.json_pieces(chunk, partition=7, segment_file="5.log"))
    assert all(stretch.endswith(b"\n") for stretch in stretches)
    assert "\n".join(text_of(decoded(data * 3))) == "\n".join(text_by_row(data * 3))


@bounded
@given(numbers=st.lists(st.one_of(INT64, st.integers(0, 19).map(lambda power: 10**power % 2**63 - 1)), min_size=1))
def test_numbers_of_every_length(numbers: list[int]) -> None:
    tried = [*numbers, *(-number for number in numbers if number > -(2**63)), -(2**63), 2**63 - 1, 0, 10**16]
    values = [encode_offset_value(OffsetValue(number, 0, "", 0), 3) for number in tried]
    batches = [encode_batch([Record(offset, 0, COMMIT_KEY, value)]) for offset, value in enumerate(values)]
    lines = json_of(decoded(b"".join(batches)))
    assert [json.loads(line)["value"]["data"]["offset"] for line in lines] == tried


@bounded
@given(metadata=st.binary(max_size=40))
def test_strings_of_any_bytes(metadata: bytes) -> None:
    value = struct.pack(">hqih", 3, 42, 7, len(metadata)) + metadata + bytes(8)
    data = encode_batch([Record(0, 0, COMMIT_KEY, value)])
    assert text_of(decoded(data)) == list(text_by_row(data))


COMMIT_KEY = bytes.fromhex("0001000267310002743100000003")
COMMIT = bytes.fromhex("0003000000000000002a0000000700016d00000174876e8000")
SHOWN_KEY = '{"type":"1","data":{"group":"g1","topic":"t1","partition":3}}'
SHOWN = '{"version":"3","data":{"offset":42,"leaderEpoch":7,"metadata":"m","commitTimestamp":1600000000000}}'
GROUP_KEY = bytes.fromhex("000200026731")
ERROR = "key: Error at offset 5, skipping."


@pytest.mark.parametrize("character", [b"\x00", b"\xff", b'"'])
def test_long_strings_that_grow_stay_in_their_room(character: bytes) -> None:
    """Twice as long as the room for text, once escaped."""
    metadata = character * 32_000
    value = struct.pack(">hqih", 3, 42, 7, len(metadata)) + metadata + bytes(8)
    data = encode_batch([Record(number, 0, COMMIT_KEY, value) for number in range(12)])
    assert text_of(decoded(data)) == list(text_by_row(data))


# What kafka-dump-log 4.3.0 prints behind `headerKeys: [] ` for such a record.
@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        (COMMIT_KEY, COMMIT, f"key: {SHOWN_KEY} payload: {SHOWN}"),
        (COMMIT_KEY + b"xy", COMMIT + b"\1\2\3", f"key: {SHOWN_KEY} payload: {SHOWN}"),
        (bytes.fromhex("001200026731"), COMMIT, "key: Unknown record type 18 at offset 5, skipping."),
        (bytes.fromhex("0012"), None, "key: Unknown record type 18 at offset 5, skipping."),
        (bytes.fromhex("ffff00026731"), COMMIT, "key: Unknown record type -1 at offset 5, skipping."),
        (b"", COMMIT, f"{ERROR} Could not read version from key's buffer."),
        (b"\0", None, f"{ERROR} Could not read version from key's buffer."),
        (COMMIT_KEY, b"", f"{ERROR} Could not read version from value's buffer."),
        (COMMIT_KEY, b"\0", f"{ERROR} Could not read version from value's buffer."),
        (COMMIT_KEY, b"\0\x09" + COMMIT[2:], f"{ERROR} Found an unknown record version 9 for 1 type"),
        (COMMIT_KEY, b"\xff\xff" + COMMIT[2:], f"{ERROR} Found an unknown record version -1 for 1 type"),
        (GROUP_KEY, b"\0\x05" + COMMIT, f"{ERROR} Found an unknown record version 5 for 2 type"),
        (b"\0\x03" + GROUP_KEY[2:], b"\0\x09" + COMMIT, f"{ERROR} Found an unknown record version 9 for 3 type"),
        (b"\0\0" + COMMIT_KEY[2:], COMMIT, f"{ERROR} Found an unknown record version 3 for 0 type"),
        (b"\0\0" + COMMIT_KEY[2:], None, "key: " + SHOWN_KEY.replace('"1"', '"0"', 1) + " payload: <DELETE>"),
        (
            COMMIT_KEY,
            COMMIT[:14] + bytes.fromhex("0012 71225c0a09001f0c0820c3a9f09f98802f7f") + COMMIT[-8:],
            f"key: {SHOWN_KEY} payload: " + SHOWN.replace('"m"', r'"q\"\\\n\t\u0000\u001F\f\b é😀/' + '\x7f"'),
        ),
        # A character over 0xFFFF in two encoded halves, as Java's own older encoders made them.
        (
            COMMIT_KEY,
            COMMIT[:14] + bytes.fromhex("0005 61 eda080 62") + COMMIT[-8:],
            f"key: {SHOWN_KEY} payload: " + SHOWN.replace('"m"', '"a\ufffdb"'),
        ),
    ],
)
def test_odd_records_read_as_in_dump_log(key: bytes, value: bytes | None, shown: str) -> None:
    (_, line) = text_of(decoded(encode_batch([Record(5, 0, key, value)])))
    assert line.partition("headerKeys: [] ")[2] == shown


@pytest.mark.parametrize(
    ("key", "value", "begins"),
    [
        (COMMIT_KEY[:-2], COMMIT, f"{ERROR} Could not read record with version 1 from key's buffer due to: "),
        (COMMIT_KEY, COMMIT[:12], f"{ERROR} Could not read record with version 3 from value's buffer due to: "),
        (GROUP_KEY, bytes.fromhex("0003ffff"), f"{ERROR} Could not read record with version 3 from value's buffer"),
        (None, COMMIT, f"{ERROR} The record has no key."),  # of this Kafka's tool dies
    ],
)
def test_unreadable_records_have_a_reason(key: bytes | None, value: bytes, begins: str) -> None:
    chunk = decoded(encode_batch([Record(5, 0, key, value), Record(6, 0, COMMIT_KEY, COMMIT)]))
    assert chunk.classes[:, C_KIND].tolist() == [K_BAD, K_COMMIT]
    _, bad, good = text_of(chunk)
    assert bad.partition("headerKeys: [] ")[2].startswith(begins)
    assert good.endswith(SHOWN)
    line, _ = map(json.loads, json_of(chunk))
    assert line["value"] is None
    assert (line["key"] is None) == (key is None or key == COMMIT_KEY[:-2])
    assert line["keyHex"] == (None if key is None else key.hex())
    assert line["valueHex"] == value.hex()
    assert isinstance(line["problem"], str)


def test_a_record_of_an_unknown_type_keeps_its_bytes_in_json() -> None:
    (line,) = map(json.loads, json_of(decoded(encode_batch([Record(5, 0, bytes.fromhex("001200026731"), None)]))))
    assert line["key"] == {"type": 18, "data": "unknown"}
    assert (line["value"], line["keyHex"], line["valueHex"]) == (None, "001200026731", None)
    assert line["problem"] == "record type 18 is not known"


@pytest.mark.parametrize(
    ("key", "value", "shown", "control"),
    [
        ("00000001", "000000000009", "endTxnMarker: COMMIT coordinatorEpoch: 9", "COMMIT"),
        ("00050000", "000000000003", "endTxnMarker: ABORT coordinatorEpoch: 3", "ABORT"),
        ("00000007", "000000000009", "controlType: UNKNOWN(7)", "UNKNOWN"),
        ("0000ffff", "000000000009", "controlType: UNKNOWN(-1)", "UNKNOWN"),
        # Kafka's tool dies of these two.
        ("00000001", "0000", "endTxnMarker: COMMIT coordinatorEpoch: unreadable", "COMMIT"),
        ("0000", "000000000009", "controlType: unreadable (a control record with a key of 2 bytes)", None),
    ],
)
def test_control_records(key: str, value: str, shown: str, control: str | None) -> None:
    record = Record(5, 0, bytes.fromhex(key), bytes.fromhex(value))
    chunk = decoded(encode_batch([record], attributes=TRANSACTIONAL | CONTROL, producer_id=1))
    (_, line) = text_of(chunk)
    assert line.partition("headerKeys: [] ")[2] == shown
    (told,) = map(json.loads, json_of(chunk))
    assert told["control"] == control
    assert ("problem" in told) == (control is None)


def test_a_batch_that_cannot_be_trusted_is_one_line_of_json_and_dump_logs_lines_of_text() -> None:
    good, bad = (bytearray(encode_batch([Record(offset, 0, COMMIT_KEY, COMMIT)])) for offset in (0, 1))
    bad[20] ^= 1
    data = bytes(good + bad + encode_batch([Record(2, 0, COMMIT_KEY, COMMIT)]))
    first, corrupt, last = map(json.loads, json_of(decoded(data)))
    assert (first["offset"], last["offset"]) == (0, 2)
    assert corrupt["corruptBatch"] is True
    assert corrupt["problem"].startswith("says CRC ")
    assert corrupt["batch"]["crcValid"] is False
    assert "offset" not in corrupt
    assert json_of(decoded(data), np.array([1])) == json_of(decoded(data))[2:]
    lines = text_of(decoded(data, forgiving=True))
    assert [line.rpartition(" ")[2] for line in lines[::2]] == ["true", "false", "true"]
    assert lines[3].endswith(SHOWN)


def test_a_packed_batch_with_a_bad_checksum_that_does_not_unpack_is_not_valid() -> None:
    data = bytearray(encode_batch([Record(0, 0, COMMIT_KEY, COMMIT)], codec=compression.GZIP))
    data[61:63] = b"no"
    (line,) = text_of(decoded(bytes(data), forgiving=True))
    assert line.endswith("compresscodec: gzip " + line.partition("gzip ")[2].replace("true", "false"))
    assert line.endswith("isvalid: false")


def test_a_segment_begins_with_its_name() -> None:
    chunk = decoded(encode_batch([Record(12, 0, COMMIT_KEY, COMMIT)]))
    name = "x-7/00000000000000000012.log"
    text = render_text(chunk, segment_name=name, is_first=True, file_position=1000).decode()
    assert text.startswith(f"Dumping {name}\nLog starting offset: 12\nbaseOffset: 12 ")
    assert " position: 1000 " in text


def test_partition_may_be_unknown() -> None:
    chunk = decoded(encode_batch([Record(0, 0, COMMIT_KEY, COMMIT)]))
    line = json.loads(render_json(chunk, partition=None, segment_file="x.log"))
    assert (line["partition"], line["segment"]) == (None, "x.log")


def test_nothing_gives_nothing() -> None:
    chunk = decoded(b"")
    assert (text_of(chunk), json_of(chunk)) == ([], [])
    chunk = decoded(encode_batch([Record(0, 0, COMMIT_KEY, COMMIT)]))
    nothing = np.empty(0, np.int64)
    assert (text_of(chunk, nothing), json_of(chunk, nothing)) == ([], [])


def offsets(*records: int) -> Chunk:
    return decoded(b"".join(encode_batch([Record(offset, 0, COMMIT_KEY, None)]) for offset in records))


def test_gaps_are_found_across_chunks_and_begin_anew_with_each_segment() -> None:
    gaps = ConsecutiveOffsets()
    gaps.add("a", offsets(0, 1, 5))
    gaps.add("a", offsets())
    gaps.add("a", offsets(6, 4, 4))
    gaps.add("b", offsets(7, 8))
    gaps.add("c", offsets(0, 1))
    assert [block.decode() for block in gaps.blocks()] == [
        "Non-consecutive offsets in a\n  1 is followed by 5\n  6 is followed by 4\n  4 is followed by 4\n",
        "Non-consecutive offsets in b\n  -1 is followed by 7\n",
    ]


def test_gaps_beyond_a_number_are_counted_only() -> None:
    gaps = ConsecutiveOffsets(most_gaps=2, most_gaps_in_all=3)
    gaps.add("a", offsets(1, 3, 5))
    gaps.add("a", offsets(7))
    gaps.add("b", offsets(1, 3))
    assert [block.decode() for block in gaps.blocks()] == [
        "Non-consecutive offsets in a\n  -1 is followed by 1\n  1 is followed by 3\n  and 2 more\n",
        "Non-consecutive offsets in b\n  -1 is followed by 1\n  and 1 more\n",
    ]


def test_columns_make_the_commits_and_python_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the speed is gone without any other test failing."""
    group = encode_group_value(GroupValue("", 0, None, None), 3)
    records = [
        Record(0, 0, COMMIT_KEY, COMMIT),
        Record(1, 0, COMMIT_KEY, None),
        Record(2, 0, GROUP_KEY, group),
    ]
    chunk = decoded(encode_batch(records))
    assert chunk.classes[:, C_KIND].tolist() == [K_COMMIT, K_COMMIT_TOMBSTONE, K_GROUP]
    read: list[int] = []

    def noted(chunk: Chunk, row: int) -> Record:
        read.append(row)
        return record_at(chunk, row)

    monkeypatch.setattr(dump_text, "record_at", noted)
    monkeypatch.setattr(dump_json, "record_at", noted)
    text_of(chunk)
    json_of(chunk)
    assert read == [2, 2]


def test_the_slack_is_enough_for_a_copy() -> None:
    assert SLACK >= 32
