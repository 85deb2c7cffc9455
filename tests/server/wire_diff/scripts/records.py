"""Scripts about records: Produce, Fetch and its sessions, ListOffsets, ids of producers, ends of epochs, deletion."""

import struct
import time
import zlib
from collections.abc import Iterable
from typing import Any

from crc32c import crc32c

from muster.codec.batches import encode_batch
from muster.codec.records import Record
from tests.server.wire_diff.scripts import HERE, ID, SESSION, TOPIC, Run, Script, Step, Value, ask, at
from tests.server.wire_diff.talk import Message

PRODUCE, FETCH, LIST_OFFSETS = range(3, 14), range(4, 19), range(1, 12)
NOW_MS = int(time.time() * 1000)
"""The same for both."""
LIKE_TRANSACTION = 1 << 28
"""Of the time in a message of magic 1 the bit that lies where a batch says that it is part of a transaction."""
NOBODYS_ID, NO_ID = b"\x07" * 16, bytes(16)
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4


# What is written


def batch(*values: str, **more: Any) -> bytes:
    """A batch as a client makes it: offsets from 0 on."""
    return encode_batch([Record(n, NOW_MS, b"key", value.encode()) for n, value in enumerate(values)], **more)


def timed(*times_ms: int, key: bytes | None = b"k", **more: Any) -> bytes:
    """A record for each of these times."""
    return encode_batch([Record(n, time_ms, key, b"v") for n, time_ms in enumerate(times_ms)], **more)


def keyed(*keys: bytes | None) -> bytes:
    return encode_batch([Record(n, NOW_MS, key, b"v") for n, key in enumerate(keys)])


def patched(data: bytes, position: int, form: str, value: int, is_summed: bool = True) -> bytes:
    """A field of the batch's header changed, with the right checksum again unless said otherwise."""
    changed = bytearray(data)
    struct.pack_into(form, changed, position, value)
    if is_summed:
        struct.pack_into(">I", changed, 17, crc32c(bytes(changed[21:])))
    return bytes(changed)


def cut(data: bytes, size: int) -> bytes:
    """A batch whose records end too early, and which knows its size."""
    return patched(data[:-size], 8, ">i", len(data) - size - 12)


def message_set(magic: int, *values: bytes, time_ms: int = NOW_MS, is_summed: bool = True) -> bytes:
    """Messages as clients made them before 0.11."""
    told = b""
    for number, value in enumerate(values):
        covered = struct.pack(">bb", magic, 0) + (struct.pack(">q", time_ms) if magic else b"")
        covered += struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
        crc = zlib.crc32(covered) if is_summed else 7
        told += struct.pack(">qiI", number, len(covered) + 4, crc) + covered
    return told


def row(sequence: int, epoch: int = 0, count: int = 1, producer: int = 0) -> Value:
    """A batch of an idempotent producer, which is another one in every version."""

    def made(run: Run) -> bytes:
        values = [f"{sequence}"] * count
        return batch(*values, producer_id=run.producer(producer), producer_epoch=epoch, base_sequence=sequence)

    return made


# Requests


def produce(records: Any, acks: int = -1, *, topic: Any = TOPIC, topic_id: Any = ID, partition: Any = HERE) -> Message:
    return several_produced((topic, topic_id, partition, records), acks=acks)


def several_produced(*parts: tuple[Any, Any, Any, Any], acks: int = -1, **more: Any) -> Message:
    topics = [
        {"Name": topic, "TopicId": topic_id, "PartitionData": [{"Index": partition, "Records": records}]}
        for topic, topic_id, partition, records in parts
    ]
    return {"TransactionalId": None, "Acks": acks, "TimeoutMs": 10_000, "TopicData": topics, **more}


def wanted(offset: Any, partition: Any = HERE, max_bytes: int = 1 << 20, **more: Any) -> Message:
    return {
        "Partition": partition, "CurrentLeaderEpoch": -1, "FetchOffset": offset, "LastFetchedEpoch": -1,
        "LogStartOffset": -1, "PartitionMaxBytes": max_bytes, **more,
    }  # fmt: skip


def of_topic(*partitions: Message, topic: Any = TOPIC, topic_id: Any = ID) -> Message:
    return {"Topic": topic, "TopicId": topic_id, "Partitions": list(partitions)}


def fetch(*topics: Message, **more: Any) -> Message:
    return {
        "ReplicaId": -1, "MaxWaitMs": 0, "MinBytes": 1, "MaxBytes": 1 << 24, "IsolationLevel": 0, "SessionId": 0,
        "SessionEpoch": -1, "Topics": list(topics), "ForgottenTopicsData": [], "RackId": "", **more,
    }  # fmt: skip


def look(offset: Any = None, **more: Any) -> Message:
    return fetch(of_topic(wanted(at(0) if offset is None else offset)), **more)


def in_session(epoch: int, *topics: Message, session: Any = SESSION, **more: Any) -> Message:
    return fetch(*topics, SessionId=session, SessionEpoch=epoch, **more)


def forget(*partitions: Any) -> dict[str, Any]:
    return {"ForgottenTopicsData": [{"Topic": TOPIC, "TopicId": ID, "Partitions": list(partitions)}]}


def offsets(*times: int, topic: Any = TOPIC, partition: Any = HERE, epoch: int = -1, **more: Any) -> list[Step]:
    """A ListOffsets for each of these times."""
    steps = []
    for time_ms in times:
        asked = {"PartitionIndex": partition, "CurrentLeaderEpoch": epoch, "Timestamp": time_ms}
        topics = [{"Name": topic, "Partitions": [asked]}]
        steps.append(ask("ListOffsets", {"ReplicaId": -1, "IsolationLevel": 0, "Topics": topics, **more}))
    return steps


def written(*batches: Any, version: int = 11) -> list[Step]:
    return [ask("Produce", produce(data), version) for data in batches]


def deleted(offset: Any, version: int = 2) -> Step:
    partitions = [{"PartitionIndex": HERE, "Offset": offset}]
    return ask("DeleteRecords", {"Topics": [{"Name": TOPIC, "Partitions": partitions}], "TimeoutMs": 10_000}, version)


READ_BACK = ask("Fetch", look(), 12)
ENDS = [
    ask("ListOffsets", {"ReplicaId": -1, "Topics": [{"Name": TOPIC, "Partitions": [
        {"PartitionIndex": HERE, "CurrentLeaderEpoch": -1, "Timestamp": time_ms}]}]}, 7)
    for time_ms in (-2, -1)
]  # fmt: skip


def refusals(name: str, *batches: Any, topic: str = "plain", acks: Iterable[int] = (-1,)) -> Script:
    """Batches one after the other in every version of Produce, and then what is there."""
    steps = [ask("Produce", produce(data, each)) for data in batches for each in acks]
    return Script(f"produce: {name}", [*steps, *ENDS, READ_BACK], PRODUCE, topic)


WRONG = {
    "a checksum": patched(batch("a"), 17, ">I", 7, is_summed=False),
    "magic 1 in a batch": patched(batch("a"), 16, ">b", 1),
    "magic 3": patched(batch("a"), 16, ">b", 3),
    "magic -1": patched(batch("a"), 16, ">b", -1),
    "two batches": batch("a") + batch("b"),
    "cut short": batch("a")[:-1],
    "half a header": batch("a")[:20],
    "no bytes": b"",
    "a byte more": batch("a") + b"x",
    "a header more": batch("a") + batch("b")[:30],
    "counts too many": patched(batch("a", "b"), 57, ">i", 3),
    "counts too few": patched(batch("a", "b"), 57, ">i", 1),
    "counts none": patched(batch("a"), 57, ">i", 0),
    "counts less than none": patched(batch("a"), 57, ">i", -1),
    "an empty batch": encode_batch([], base_offset=0, last_offset=0),
    "another last offset": patched(batch("a", "b"), 23, ">i", 5),
    "a last offset below the first": patched(batch("a"), 23, ">i", -1),
    "another first offset": patched(batch("a"), 0, ">q", 5, is_summed=False),
    "another leader epoch": patched(batch("a"), 12, ">i", 9, is_summed=False),
    "a control batch": patched(batch("a"), 21, ">h", 0x20),
    "log append time of the client's": patched(batch("a"), 21, ">h", 0x08),
    "bits that mean nothing": patched(batch("a"), 21, ">h", 0x80),
    "a delete horizon": patched(batch("a"), 21, ">h", 0x40),
    "an unknown codec": patched(batch("a"), 21, ">h", 5),
    "a producer without a sequence": patched(batch("a"), 43, ">q", 5),
    "a sequence without a producer": patched(batch("a"), 53, ">i", 3),
    "a negative epoch": batch("a", producer_id=5, producer_epoch=-1, base_sequence=0),
    "a negative sequence": batch("a", producer_id=5, producer_epoch=0, base_sequence=-2),
    "a size of nothing": patched(batch("a"), 8, ">i", 0, is_summed=False),
    "a size below nothing": patched(batch("a"), 8, ">i", -5, is_summed=False),
    "a size beyond the end": patched(batch("a"), 8, ">i", 1 << 20, is_summed=False),
    "no timestamp": timed(-1),
    "times that fall": timed(NOW_MS, NOW_MS - 500, NOW_MS - 900),
    "another largest time": patched(batch("a"), 35, ">q", NOW_MS + 5),
    "far in the future": timed(4_000_000_000_000),
    "long ago": timed(1_000),
    "messages of magic 0": message_set(0, b"a"),
    "messages of magic 1": message_set(1, b"a"),
    "messages of magic 1, two": message_set(1, b"a", b"b"),
    "messages of magic 0, a checksum": message_set(0, b"a", is_summed=False),
    "messages of magic 1 at a time that looks like a transaction": message_set(
        1, b"a" * 40, time_ms=NOW_MS | LIKE_TRANSACTION
    ),
    "messages of magic 1 at a time that does not": message_set(1, b"a" * 40, time_ms=NOW_MS & ~LIKE_TRANSACTION),
    "a transaction without an id": patched(batch("a"), 21, ">h", 0x10),
    "a transaction without an id, cut short": patched(batch("a"), 21, ">h", 0x10)[:-1],
    "a transaction of magic 1": patched(patched(batch("a"), 21, ">h", 0x10), 16, ">b", 1),
    "a transaction of magic 3": patched(patched(batch("a"), 21, ">h", 0x10), 16, ">b", 3),
    "a transaction behind another batch": batch("a") + patched(batch("a"), 21, ">h", 0x10),
}

PRODUCES = [
    refusals("every acks", batch("a", "b"), acks=(-1, 1, 7, -2, 2, 32767, -32768)),
    *[refusals(name, data) for name, data in WRONG.items()],
    *[
        refusals(f"codec {codec}", batch("abc" * 100, "def", codec=codec), patched(batch("a"), 21, ">h", codec),
                 cut(batch("abc" * 100, codec=codec), 9), patched(batch("a", "b", codec=codec), 57, ">i", 3),
                 patched(batch("a", "b", codec=codec), 57, ">i", 1))
        for codec in (GZIP, SNAPPY, LZ4, ZSTD)
    ],
    refusals("too large for the server", batch("x" * 1_100_000)),
    refusals("too large for the topic", batch("x" * 131), batch("x" * 132), batch("x" * 133), batch("x" * 5000),
             batch("x" * 5000, codec=GZIP), topic="small"),
    refusals("a compacted topic", keyed(b"a"), keyed(None), keyed(b"a", None, b"b", None), keyed(b""),
             patched(keyed(None), 21, ">h", 0x20), topic="compacted"),
    refusals("time of the log", batch("a", "b"), timed(-1), timed(1), batch("a", codec=GZIP), topic="stamped"),
    refusals("times that are too far off", timed(NOW_MS), timed(NOW_MS - 120_000), timed(NOW_MS + 600_000),
             timed(NOW_MS, NOW_MS + 600_000, NOW_MS, 5), timed(-1), timed(1, codec=GZIP), topic="punctual"),
    refusals("replicas that are not there", batch("a"), topic="lonely", acks=(-1, 1)),
    refusals("headers and nothing", encode_batch([Record(0, NOW_MS, None, None, (("a", b"1"), ("", None)))])),
    refusals("sequences", row(0), row(1), row(2, count=3), row(5)),
    refusals("a sequence that came before", *[row(n) for n in range(7)], *[row(n) for n in (6, 5, 2, 1, 0)]),
    refusals("a sequence that came before, of another length", row(0, count=3), row(0, count=2), row(0, count=4),
             row(1, count=2), row(3)),
    refusals("a gap", row(0), row(2), row(1), row(5), row(2)),
    refusals("a producer that begins late", row(5), row(6), row(5)),
    refusals("a newer epoch", row(0), row(1), row(2, epoch=1), row(0, epoch=1), row(1, epoch=1)),
    refusals("an older epoch", row(0, epoch=3), row(1, epoch=2), row(0, epoch=2), row(1, epoch=3)),
    refusals("sequences that begin again at the end of numbers", row(2**31 - 2), row(2**31 - 1), row(0), row(1)),
    refusals("two producers", row(0), row(0, producer=1), row(1), row(2, producer=1), row(1, producer=1)),
    Script("produce: topics and partitions that are not there", [
        ask("Produce", produce(batch("a"), topic="nowhere", topic_id=NOBODYS_ID)),
        ask("Produce", produce(batch("a"), topic="", topic_id=NO_ID)),
        ask("Produce", produce(batch("a"), topic="a b", topic_id=NOBODYS_ID)),
        ask("Produce", produce(batch("a"), partition=9_999)),
        ask("Produce", produce(batch("a"), partition=-1)),
        ask("Produce", produce(b"", topic="nowhere", topic_id=NOBODYS_ID)),
    ], PRODUCE),
    Script("produce: internal topics", [
        ask("Produce", produce(batch("a"), topic=name, topic_id=NOBODYS_ID, partition=partition), version)
        for version in range(3, 13)
        for name, partition in (("__consumer_offsets", 0), ("__consumer_offsets", 99), ("__transaction_state", 0))
    ]),
    Script("produce: several partitions, some of them wrong", [
        ask("Produce", several_produced((TOPIC, ID, HERE, batch("a")), ("nowhere", NOBODYS_ID, 0, batch("a")))),
        ask("Produce", several_produced((TOPIC, ID, HERE, batch("a")), (TOPIC, ID, 9_999, batch("a")))),
        *ENDS,
    ], PRODUCE),
    Script("produce: nothing", [ask("Produce", several_produced()), *ENDS], PRODUCE),
    Script("produce: no time to wait", [
        ask("Produce", {**produce(batch("a"), 1), "TimeoutMs": timeout}) for timeout in (0, -1, 1)
    ], PRODUCE),
    Script("produce: nobody waits for an answer", [
        ask("Produce", produce(batch("a"), 0), is_answered=False), *ENDS, READ_BACK,
    ], PRODUCE),
    Script("produce: nobody waits for an answer, and it is refused", [
        ask("Produce", produce(WRONG["a checksum"], 0)), *ENDS,
    ], PRODUCE),
    Script("produce: versions that are advertised and not there", [ask("Produce", produce(batch("a")))], range(3)),
]  # fmt: skip

SIX = [batch("abc" * n, "def", codec=n % 5) for n in range(6)]

FETCHES = [
    Script("fetch: from every offset", [
        *written(*SIX), *[ask("Fetch", look(at(n))) for n in range(13)],
    ], FETCH),
    Script("fetch: where nothing is", [
        *written(*SIX[:1]), *[ask("Fetch", look(n)) for n in (at(3), at(99), -1, -5, 2**62)],
    ], FETCH),
    Script("fetch: few bytes", [
        *written(*SIX), *[ask("Fetch", fetch(of_topic(wanted(at(n), max_bytes=size))))
                          for n in (0, 1, 10) for size in (0, 1, 70, 150, 200)],
    ], FETCH),
    Script("fetch: few bytes in all", [
        *written(*SIX), *[ask("Fetch", look(at(n), MaxBytes=size)) for n in (0, 3) for size in (0, 1, 70, 150)],
    ], FETCH),
    Script("fetch: how long and how much", [
        *written(batch("a")), *[ask("Fetch", look(at(n), MaxWaitMs=wait, MinBytes=least))
                                for n in (0, 1) for wait in (0, -1, 1) for least in (0, -1, 1)],
    ], FETCH),
    Script("fetch: isolation", [
        *written(batch("a"), row(0)), *[ask("Fetch", look(at(n), IsolationLevel=level))
                                        for n in (0, 1, 2) for level in (0, 1)],
    ], FETCH),
    Script("fetch: isolation that there is not", [ask("Fetch", look(IsolationLevel=level)) for level in (2, -1)],
           FETCH),
    Script("fetch: topics that are not there", [
        ask("Fetch", fetch(of_topic(wanted(0), topic=name, topic_id=topic_id)))
        for name, topic_id in (("nowhere", NOBODYS_ID), ("", NO_ID), ("a b", NOBODYS_ID))
    ], FETCH),
    Script("fetch: partitions that are not there", [
        ask("Fetch", fetch(of_topic(wanted(0, partition)))) for partition in (9_999, -1)
    ], FETCH),
    Script("fetch: one is there and one is not", [
        *written(batch("a")),
        ask("Fetch", fetch(of_topic(wanted(at(0))), of_topic(wanted(0), topic="nowhere", topic_id=NOBODYS_ID))),
        ask("Fetch", fetch(of_topic(wanted(0), topic="nowhere", topic_id=NOBODYS_ID), of_topic(wanted(at(0))))),
        ask("Fetch", fetch(of_topic(wanted(at(0)), wanted(0, 9_999)))),
    ], FETCH),
    Script("fetch: the same twice", [
        *written(batch("a"), batch("b")),
        ask("Fetch", fetch(of_topic(wanted(at(0)), wanted(at(1))))),
        ask("Fetch", fetch(of_topic(wanted(at(1))), of_topic(wanted(at(0))))),
    ], FETCH),
    Script("fetch: nothing", [ask("Fetch", fetch()), ask("Fetch", fetch(of_topic()))], FETCH),
    Script("fetch: the leader's epoch", [
        *written(batch("a")), *[ask("Fetch", fetch(of_topic(wanted(at(0), CurrentLeaderEpoch=epoch))))
                                for epoch in (-2, -1, 0, 1, 7)],
    ], FETCH),
    Script("fetch: the epoch of what was fetched last", [
        *written(batch("a")), *[ask("Fetch", fetch(of_topic(wanted(at(n), LastFetchedEpoch=epoch))))
                                for n in (0, 1, 5) for epoch in (-2, -1, 0, 1, 7)],
    ], FETCH),
    Script("fetch: a client that names its rack and where its log starts", [
        *written(batch("a")), ask("Fetch", look(RackId="here")),
        ask("Fetch", fetch(of_topic(wanted(at(0), LogStartOffset=3)))),
    ], FETCH),
    Script("fetch: records that were deleted", [
        *written(batch("a", "b"), batch("c"), batch("d")), deleted(at(3)),
        *[ask("Fetch", look(at(n))) for n in (0, 1, 2, 3, 4)],
    ], FETCH),
    Script("fetch: every record was deleted", [
        *written(batch("a", "b")), deleted(-1), *[ask("Fetch", look(at(n))) for n in (0, 2, 3)],
        *written(batch("c")), ask("Fetch", look(at(2))),
    ], FETCH),
    Script("fetch: zstd is only for those who know it", [
        *written(batch("abc" * 50, codec=ZSTD)), ask("Fetch", look()),
    ], FETCH),
    Script("fetch: internal topics", [
        ask("Fetch", fetch(of_topic(wanted(0, 0), topic=name, topic_id=NOBODYS_ID)), version)
        for version in range(4, 13) for name in ("__transaction_state", "__share_group_state")
    ]),
    Script("fetch: a session", [
        ask("Fetch", in_session(0, of_topic(wanted(at(0))), session=0)), ask("Fetch", in_session(1)),
        *written(batch("news")), ask("Fetch", in_session(2)), ask("Fetch", in_session(3)),
        ask("Fetch", in_session(4, of_topic(wanted(at(1))))), ask("Fetch", in_session(5)),
    ], range(7, 19)),
    Script("fetch: a session is ended", [
        ask("Fetch", in_session(0, of_topic(wanted(at(0))), session=0)), ask("Fetch", in_session(-1)),
        ask("Fetch", in_session(1)),
    ], range(7, 19)),
    Script("fetch: a session is ended with a last look", [
        *written(batch("a")), ask("Fetch", in_session(0, of_topic(wanted(at(0))), session=0)),
        ask("Fetch", in_session(-1, of_topic(wanted(at(0))))), ask("Fetch", in_session(1)),
    ], range(7, 19)),
    Script("fetch: a session begins in the place of another", [
        ask("Fetch", in_session(0, of_topic(wanted(at(0))), session=0)),
        ask("Fetch", in_session(0, of_topic(wanted(at(0))))), ask("Fetch", in_session(1)),
    ], range(7, 19)),
    Script("fetch: a session that nobody knows", [
        ask("Fetch", in_session(epoch, session=12345)) for epoch in (1, 2, 0, -1)
    ], range(7, 19)),
    Script("fetch: another epoch than that of the session", [
        ask("Fetch", in_session(0, of_topic(wanted(at(0))), session=0)),
        *[ask("Fetch", in_session(epoch)) for epoch in (2, 5, 1, 1, 2, -5)],
    ], range(7, 19)),
    Script("fetch: a session without a topic", [
        ask("Fetch", in_session(0, session=0)), ask("Fetch", in_session(1)),
    ], range(7, 19)),
    Script("fetch: a session forgets", [
        ask("Fetch", in_session(0, of_topic(wanted(at(0))), session=0)),
        ask("Fetch", in_session(1, **forget(9_999))), ask("Fetch", in_session(2, **forget(HERE))),
        ask("Fetch", in_session(3)),
    ], range(7, 19)),
    Script("fetch: a session forgets what it is told anew", [
        ask("Fetch", in_session(0, of_topic(wanted(at(0))), session=0)), *written(batch("a")),
        ask("Fetch", in_session(1, of_topic(wanted(at(0))), **forget(HERE))), ask("Fetch", in_session(2)),
    ], range(7, 19)),
    Script("fetch: a session with what is not there", [
        ask("Fetch", in_session(0, of_topic(wanted(0), topic="nowhere", topic_id=NOBODYS_ID), session=0)),
        ask("Fetch", in_session(1)), ask("Fetch", in_session(2, of_topic(wanted(0, 9_999)))),
        ask("Fetch", in_session(3)),
    ], range(7, 19)),
    Script("fetch: a session out of range", [
        ask("Fetch", in_session(0, of_topic(wanted(at(7))), session=0)), ask("Fetch", in_session(1)),
        ask("Fetch", in_session(2, of_topic(wanted(at(0))))), ask("Fetch", in_session(3)),
    ], range(7, 19)),
    Script("fetch: a session hears of deleted records", [
        *written(batch("a"), batch("b")), ask("Fetch", in_session(0, of_topic(wanted(at(2))), session=0)),
        ask("Fetch", in_session(1)), deleted(at(1)), ask("Fetch", in_session(2)), ask("Fetch", in_session(3)),
        deleted(at(2)), ask("Fetch", in_session(4, of_topic(wanted(at(1))))),
    ], range(7, 19)),
    Script("fetch: a session from names to ids", [
        ask("Fetch", in_session(0, of_topic(wanted(at(0))), session=0), 12), ask("Fetch", in_session(1), 13),
        ask("Fetch", in_session(1), 12), ask("Fetch", in_session(0, of_topic(wanted(at(0))), session=0), 13),
        ask("Fetch", in_session(1), 12), ask("Fetch", in_session(1), 18),
    ]),
]  # fmt: skip

SPECIAL = (-1, -2, -3, -4, -5, -6, -7, -100)
WITHOUT_LARGEST = (-1, -2, -4, -5, -6, 0, NOW_MS, NOW_MS + 10)
"""Kafka tells of the record with the largest time of all though it is deleted, or has none."""
TIMES = (0, 1, NOW_MS - 1, NOW_MS, NOW_MS + 1, NOW_MS + 10, NOW_MS + 25, 2**62)


def listed(name: str, *steps: Step, topic: str = "plain", more: Iterable[int] = (*SPECIAL, *TIMES)) -> Script:
    return Script(f"offsets: {name}", [*steps, *offsets(*more)], LIST_OFFSETS, topic)


LISTED = [
    listed("of a partition with nothing in it"),
    listed("of records", *written(timed(NOW_MS), timed(NOW_MS + 10, NOW_MS + 20), timed(NOW_MS + 30))),
    listed("of times that fall", *written(timed(NOW_MS + 30), timed(NOW_MS + 20, NOW_MS + 10), timed(NOW_MS))),
    listed("of equal times", *written(timed(NOW_MS, NOW_MS), timed(NOW_MS), timed(NOW_MS, NOW_MS))),
    listed("of packed batches",
           *written(*[timed(NOW_MS + n, NOW_MS + n + 7, codec=n) for n in range(5)])),
    listed("of records without a time", *written(timed(-1), timed(-1, -1)), more=WITHOUT_LARGEST),
    listed("after records were deleted", *written(timed(NOW_MS), timed(NOW_MS + 10, NOW_MS + 20), timed(NOW_MS + 5)),
           deleted(at(2)), more=WITHOUT_LARGEST),
    listed("after all records were deleted", *written(timed(NOW_MS), timed(NOW_MS + 10)), deleted(-1),
           more=WITHOUT_LARGEST),
    listed("of a producer's", *written(row(0), row(1), row(1))),
    listed("of a compacted topic", *written(timed(NOW_MS), timed(NOW_MS + 10)), topic="compacted"),
    Script("offsets: isolation", [
        *written(timed(NOW_MS)),
        *[step for level in (0, 1) for step in offsets(-1, -2, -3, NOW_MS, IsolationLevel=level)],
    ], range(2, 12)),
    Script("offsets: isolation that there is not", offsets(-1, IsolationLevel=2) + offsets(-1, IsolationLevel=-1),
           range(2, 12)),
    Script("offsets: the leader's epoch", [
        *written(timed(NOW_MS)), *[step for epoch in (-2, -1, 0, 1, 9) for step in offsets(-1, NOW_MS, epoch=epoch)],
    ], LIST_OFFSETS),
    Script("offsets: of what is not there", [
        *offsets(*SPECIAL, NOW_MS, topic="nowhere"), *offsets(*SPECIAL, NOW_MS, partition=9_999),
        *offsets(-1, partition=-1), *offsets(-1, topic=""), *offsets(-1, topic="a b"),
    ], LIST_OFFSETS),
    Script("offsets: of replicas and debuggers", [
        *written(timed(NOW_MS)), *[step for replica in (-2, -3) for step in offsets(-1, -2, NOW_MS, ReplicaId=replica)],
    ], LIST_OFFSETS),
    Script("offsets: twice, and of nothing", [
        ask("ListOffsets", {"ReplicaId": -1, "Topics": [{"Name": TOPIC, "Partitions": [
            {"PartitionIndex": HERE, "CurrentLeaderEpoch": -1, "Timestamp": -1}] * 2}]}),
        ask("ListOffsets", {"ReplicaId": -1, "Topics": []}),
        ask("ListOffsets", {"ReplicaId": -1, "Topics": [{"Name": TOPIC, "Partitions": []}]}),
    ], LIST_OFFSETS),
    Script("offsets: with a time limit", [
        *offsets(-1, NOW_MS, TimeoutMs=0), *offsets(-1, TimeoutMs=-1), *offsets(-1, TimeoutMs=1),
    ], range(10, 12)),
]  # fmt: skip


def epoch_ends(replica: int, *epochs: int, current: int = -1, topic: Any = TOPIC, partition: Any = HERE) -> list[Step]:
    return [
        ask("OffsetForLeaderEpoch", {"ReplicaId": replica, "Topics": [{"Topic": topic, "Partitions": [
            {"Partition": partition, "CurrentLeaderEpoch": current, "LeaderEpoch": epoch}]}]})
        for epoch in epochs
    ]  # fmt: skip


EPOCHS = [
    Script("epochs: of nothing", epoch_ends(-1, -2, -1, 0, 1, 9), range(2, 5)),
    Script("epochs: of records", [*written(batch("a", "b")), *epoch_ends(-1, -2, -1, 0, 1, 9)], range(2, 5)),
    Script("epochs: the leader's", [
        step for current in (-2, -1, 0, 1, 9) for step in epoch_ends(-1, 0, current=current)
    ], range(2, 5)),
    Script("epochs: of what is not there", [
        *epoch_ends(-1, 0, topic="nowhere"), *epoch_ends(-1, 0, topic=""), *epoch_ends(-1, 0, partition=9_999),
        *epoch_ends(-1, 0, partition=-1),
    ], range(2, 5)),
    Script("epochs: of replicas and debuggers", [
        *written(batch("a")), *epoch_ends(-2, 0, 1), *epoch_ends(-3, 0),
    ], range(2, 5)),
    Script("epochs: after records were deleted", [
        *written(batch("a", "b")), deleted(-1), *epoch_ends(-1, -1, 0, 1),
    ], range(2, 5)),
]  # fmt: skip


def described(*partitions: Any, topic: Any = TOPIC) -> Step:
    return ask("DescribeProducers", {"Topics": [{"Name": topic, "PartitionIndexes": list(partitions)}]})


PRODUCERS = [
    Script("producers: none", [described(HERE)]),
    Script("producers: of one partition", [
        *written(row(0), row(0, producer=1), row(1)), described(HERE), described(HERE, HERE),
    ]),
    Script("producers: of a newer epoch", [
        *written(row(0, epoch=2)), described(HERE), *written(row(0, epoch=3)), described(HERE),
    ]),
    Script("producers: after a refusal", [*written(row(0), row(7)), described(HERE)]),
    Script("producers: after records were deleted", [*written(row(0), row(1)), deleted(-1), described(HERE)]),
    Script("producers: of what is not there", [
        described(9_999), described(-1), described(0, topic="nowhere"), described(0, topic=""), described(),
        ask("DescribeProducers", {"Topics": []}),
    ]),
]  # fmt: skip


def new_producer(**more: Any) -> Step:
    asked = {"TransactionalId": None, "TransactionTimeoutMs": 1000, "ProducerId": -1, "ProducerEpoch": -1}
    return ask("InitProducerId", {**asked, **more})


PRODUCER_IDS = [
    Script("ids: new ones", [new_producer(), new_producer()], range(6)),
    Script("ids: of somebody who has one", [new_producer(ProducerId=5, ProducerEpoch=3), new_producer(ProducerId=5)],
           range(6)),
    Script("ids: without a transaction its time does not matter", [
        new_producer(TransactionTimeoutMs=timeout) for timeout in (0, -1, 2**31 - 1)
    ], range(6)),
    Script("ids: an empty transactional id", [new_producer(TransactionalId="")], range(6)),
    Script("ids: a version that is not stable", [new_producer()], (6,)),
]  # fmt: skip


def deletion(*offsets: tuple[Any, Any], topic: Any = TOPIC, timeout: int = 10_000) -> Step:
    partitions = [{"PartitionIndex": partition, "Offset": offset} for partition, offset in offsets]
    return ask("DeleteRecords", {"Topics": [{"Name": topic, "Partitions": partitions}], "TimeoutMs": timeout})


def deletions(name: str, *steps: Step, topic: str = "plain") -> Script:
    filled = written(batch("a", "b"), batch("c", "d", "e"), batch("f"))
    return Script(f"delete records: {name}", [*filled, *steps, *ENDS], range(3), topic)


DELETIONS = [
    deletions("from the middle of a batch", deletion((HERE, at(1))), ask("Fetch", look(at(1)), 12), READ_BACK),
    deletions("what is gone already", deletion((HERE, at(2))), deletion((HERE, at(1))), deletion((HERE, at(2)))),
    deletions("all", deletion((HERE, -1)), deletion((HERE, -1))),
    deletions("behind the end", deletion((HERE, at(7))), deletion((HERE, 2**62))),
    deletions("an offset below nothing", deletion((HERE, -2)), deletion((HERE, -100))),
    deletions("of what is not there", deletion((9_999, 0)), deletion((-1, 0)), deletion((0, 0), topic="nowhere"),
              deletion((0, 0), topic="")),
    deletions("nothing", deletion(), ask("DeleteRecords", {"Topics": [], "TimeoutMs": 10_000})),
    deletions("no time to wait", deletion((HERE, at(1)), timeout=0), deletion((HERE, at(2)), timeout=-1)),
    deletions("of a compacted topic", deletion((HERE, at(1))), deletion((HERE, -1)), topic="compacted"),
]  # fmt: skip

SCRIPTS = [*PRODUCES, *FETCHES, *LISTED, *EPOCHS, *PRODUCERS, *PRODUCER_IDS, *DELETIONS]
