"""Records, over the wire: what is taken, what is refused and with which error, what is read back, by both."""

import itertools
import struct
import time
from typing import Any

import pytest
from crc32c import crc32c

from muster.codec.batches import ReadBatch, encode_batch, iter_batches
from muster.codec.records import Record
from tests.server.wire_diff.talk import Both, Link, Message, Side

pytestmark = pytest.mark.kafka

LOADING = 14
NOW_MS = int(time.time() * 1000)
"""The same for both."""


def batch(*values: str, **more: Any) -> bytes:
    """A batch as a client makes it: offsets from 0 on."""
    return encode_batch([Record(n, NOW_MS, b"key", value.encode()) for n, value in enumerate(values)], **more)


def one(timestamp_ms: int = NOW_MS, key: bytes | None = b"k") -> bytes:
    """A batch of one record."""
    return encode_batch([Record(0, timestamp_ms, key, b"v")])


def without_sentences(side: Side) -> None:
    """Kafka's are about its own classes."""
    for topic in side.heard[-1][1]["Responses"]:
        for response in topic["PartitionResponses"]:
            response.pop("ErrorMessage", None)
            for record in response.get("RecordErrors", ()):
                record.pop("BatchIndexErrorMessage", None)


def patched(data: bytes, position: int, form: str, value: int, is_summed: bool = True) -> bytes:
    """A field of the batch's header changed, with the right checksum again unless said otherwise."""
    changed = bytearray(data)
    struct.pack_into(form, changed, position, value)
    if is_summed:
        struct.pack_into(">I", changed, 17, crc32c(bytes(changed[21:])))
    return bytes(changed)


def produced(
    side: Side, topic: str, partition: int, records: bytes | None, version: int = 12, acks: int = -1, **more: Any
) -> Message:
    topics = [
        {
            "Name": topic,
            "TopicId": side.topic_ids.get(topic, b"\x07" * 16),
            "PartitionData": [{"Index": partition, "Records": records}],
        }
    ]
    return {"TransactionalId": None, "Acks": acks, "TimeoutMs": 10_000, "TopicData": topics, **more}


def fetched(
    side: Side, topic: str, partition: int, offset: int, max_bytes: int = 1 << 20, wait_ms: int = 0, **more: Any
) -> Message:
    asked = {
        "Partition": partition, "CurrentLeaderEpoch": -1, "FetchOffset": offset, "LastFetchedEpoch": -1,
        "LogStartOffset": -1, "PartitionMaxBytes": max_bytes,
    }  # fmt: skip
    topics = [{"Topic": topic, "TopicId": side.topic_ids.get(topic, b"\x07" * 16), "Partitions": [asked]}]
    return {
        "ReplicaId": -1, "MaxWaitMs": wait_ms, "MinBytes": 1, "MaxBytes": 1 << 24, "IsolationLevel": 0,
        "SessionId": 0, "SessionEpoch": -1, "Topics": topics, "ForgottenTopicsData": [], "RackId": "", **more,
    }  # fmt: skip


def end_of(link: Link, side: Side, topic: str, partition: int) -> int:
    """Where a log ends; not recorded, since stories before this one wrote to it."""
    asked = {"Name": topic, "Partitions": [{"PartitionIndex": partition, "CurrentLeaderEpoch": -1, "Timestamp": -1}]}
    link.post("ListOffsets", 7, {"ReplicaId": -1, "IsolationLevel": 0, "Topics": [asked]})
    frame = link.read()
    assert isinstance(frame, bytes)
    offset: int = link.decoded("ListOffsets", 7, frame)["Topics"][0]["Partitions"][0]["Offset"]
    return offset


def test_a_batch_in_every_version_and_with_every_acks(both: Both) -> None:
    def story(side: Side) -> None:
        link = side.connect()
        for version in range(3, 14):
            for acks in (-1, 1, 7):
                link.ask("Produce", version, produced(side, "orders", 0, batch("a", "b"), acks=acks))
            link.ask("Produce", version, produced(side, "nowhere", 0, batch("a")))
            link.ask("Produce", version, produced(side, "orders", 9, batch("a")))
            link.ask("Produce", version, produced(side, "orders", -1, batch("a")))
            link.ask("Produce", version, produced(side, "orders", 1, b""))
            without_sentences(side)
            link.ask("Produce", version, produced(side, "__consumer_offsets", 0, batch("a")))
            without_sentences(side)
            link.ask("Produce", version, {**produced(side, "orders", 0, b""), "TopicData": []})

    both.same(story)


def test_every_codec(both: Both) -> None:
    def story(side: Side) -> None:
        link = side.connect()
        for codec in range(5):
            link.ask("Produce", 12, produced(side, "orders", 2, batch("abc" * 100, "def" * 100, codec=codec)))
        link.ask("Produce", 12, produced(side, "orders", 2, patched(batch("a"), 21, ">h", 5)))
        for codec in (1, 2, 3, 4):
            link.ask("Produce", 12, produced(side, "orders", 2, patched(batch("a"), 21, ">h", codec)))
            whole = batch("abc" * 100, codec=codec)
            cut = patched(whole[:-9], 8, ">i", len(whole) - 9 - 12)
            link.ask("Produce", 12, produced(side, "orders", 2, cut))
            without_sentences(side)
            for count in (1, 3):
                counts = patched(batch("a", "b", codec=codec), 57, ">i", count)
                link.ask("Produce", 12, produced(side, "orders", 2, counts))
                without_sentences(side)

    both.same(story)


TARGETS = ("uncompressed", "gzip", "snappy", "lz4", "zstd", "producer")


def test_every_codec_into_topics_that_ask_for_one(both: Both) -> None:
    """The bytes of two compressors differ; what is in them must not, nor what the batch says of itself."""
    late = encode_batch([Record(0, NOW_MS, b"k", b"a" * 200), Record(1, NOW_MS - 5, None, None, (("h", b"v"),))])
    odd = encode_batch(
        [Record(0, NOW_MS, b"k", b"a" * 200), Record(1, NOW_MS + 9, b"k", b"b")], base_timestamp_ms=NOW_MS - 700
    )
    # Large as soon as they are unpacked, and small as soon as they are packed.
    squeezed, plain = batch("x" * 1_500, codec=4), batch("y" * 900)
    by_producer = {"producer_id": 91_000, "producer_epoch": 0}

    def story(side: Side) -> None:
        link = side.connect()
        names = {f"{target}-{times}": target for target in TARGETS for times in ("CreateTime", "LogAppendTime")}
        made = [
            {"Name": name, "NumPartitions": 1, "ReplicationFactor": 1,
             "Configs": [{"Name": "compression.type", "Value": target},
                         {"Name": "message.timestamp.type", "Value": name.partition("-")[2]},
                         {"Name": "max.message.bytes", "Value": "1000"}]}
            for name, target in names.items()
        ]  # fmt: skip
        with side.connect() as admin:
            admin.post("CreateTopics", 7, {"Topics": made, "timeoutMs": 20_000})
            admin.read()
            while any(end_of(admin, side, name, 0) < 0 for name in names):
                time.sleep(0.05)
        for name in names:
            batches = [batch("abc" * 100, "def" * 50, codec=codec) for codec in range(5)]
            batches += [late, odd, squeezed, plain]
            batches += [batch("s" * 300, base_sequence=sequence, codec=3, **by_producer) for sequence in (0, 1, 1, 3)]
            for data in batches:
                told = link.ask("Produce", 12, produced(side, name, 0, data))
                (one,) = told["Responses"][0]["PartitionResponses"]
                side.heard.pop()
                side.note(f"produced to {name}", {key: one[key] for key in ("ErrorCode", "BaseOffset")})
            offset, end = 0, end_of(link, side, name, 0)
            while offset < end:
                link.post("Fetch", 12, fetched(side, name, 0, offset))
                frame = link.read()
                assert isinstance(frame, bytes)
                records = link.decoded("Fetch", 12, frame)["Responses"][0]["Partitions"][0]["Records"]
                for read in iter_batches(records):
                    assert read.problem is None
                    side.note(f"{name} at {offset}", described(read, is_packed=names[name] != "producer"))
                    offset = read.header.last_offset + 1
        with side.connect() as admin:  # other stories look at how large all logs are
            admin.post("DeleteTopics", 5, {"TopicNames": list(names), "TimeoutMs": 20_000})
            admin.read()
            while any(end_of(admin, side, name, 0) >= 0 for name in names):
                time.sleep(0.05)

    both.same(story)


def described(read: ReadBatch, is_packed: bool) -> Message:
    """A batch, but for what depends on how well it was packed."""
    header = read.header._replace(crc=0, size_bytes=0) if is_packed and read.header.codec else read.header
    by_log = header.timestamp_type == "LogAppendTime"
    header = header._replace(crc=0, max_timestamp_ms=0) if by_log else header
    records = [record._replace(timestamp_ms=0) if by_log else record for record in read.records]
    return {"header": repr(header), "records": repr(records)}


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(lambda: patched(batch("a"), 17, ">I", 7, is_summed=False), id="checksum"),
        pytest.param(lambda: patched(batch("a"), 16, ">b", 1), id="magic 1"),
        pytest.param(lambda: patched(batch("a"), 16, ">b", 3), id="magic 3"),
        pytest.param(lambda: batch("a") + batch("b"), id="two batches"),
        pytest.param(lambda: batch("a")[:-1], id="cut short"),
        pytest.param(lambda: batch("a")[:20], id="half a header"),
        pytest.param(lambda: batch("a") + b"x", id="a byte more"),
        pytest.param(lambda: patched(batch("a", "b"), 57, ">i", 3), id="counts too many"),
        pytest.param(lambda: patched(batch("a", "b"), 57, ">i", 1), id="counts too few"),
        pytest.param(lambda: patched(batch("a", "b"), 23, ">i", 5), id="another last offset"),
        pytest.param(lambda: patched(batch("a"), 0, ">q", 5, is_summed=False), id="another first offset"),
        pytest.param(lambda: patched(batch("a"), 21, ">h", 0x20), id="control"),
        pytest.param(lambda: patched(batch("a"), 21, ">h", 0x08), id="log append time"),
        pytest.param(lambda: patched(batch("a"), 21, ">h", 0x10), id="transactional without a producer"),
        pytest.param(lambda: patched(batch("a"), 43, ">q", 5), id="a producer without a sequence"),
        pytest.param(lambda: one(4_000_000_000_000), id="in the future"),
        pytest.param(lambda: one(1_000), id="long ago"),
        pytest.param(lambda: one(key=None), id="without a key"),
        pytest.param(lambda: batch("x" * 2_000_000), id="too large"),
    ],
)
def test_batches_that_are_not_right(both: Both, wrong: Any) -> None:
    data = wrong()

    def story(side: Side) -> None:
        link = side.connect()
        for version in (7, 12):
            link.ask("Produce", version, produced(side, "payments", 0, data))
            without_sentences(side)
        side.note("end", {"end": end_of(link, side, "payments", 0)})

    both.same(story)


def test_a_clients_log_append_time_is_read_back_as_the_time_of_its_making(both: Both) -> None:
    data = patched(batch("a"), 21, ">h", 0x08)

    def story(side: Side) -> None:
        link = side.connect()
        end = end_of(link, side, "payments", 0)
        link.ask("Produce", 12, produced(side, "payments", 0, data))
        link.ask("Fetch", 12, fetched(side, "payments", 0, end))

    both.same(story)


def test_sequences(both: Both) -> None:
    def story(side: Side) -> None:
        link = side.connect()

        def send(sequence: int, epoch: int = 0, count: int = 1, producer: int = 77_000) -> None:
            values = [f"{sequence}" for _ in range(count)]
            data = batch(*values, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
            link.ask("Produce", 12, produced(side, "payments", 1, data))
            without_sentences(side)

        for sequence in range(7):
            send(sequence)
        for sequence in (6, 3, 2, 1, 0, 8, 9, 7):
            send(sequence)
        send(8, count=3)
        send(8, count=3)
        send(8, count=2)
        send(5, epoch=1)
        send(0, epoch=1)
        send(11, epoch=0)
        send(1, epoch=1)
        send(5, producer=77_001)
        send(2**31 - 1, producer=77_002)
        send(0, producer=77_002)

    both.same(story)


def test_an_id_for_a_producer(both: Both) -> None:
    def story(side: Side) -> None:
        link = side.connect()
        ids = []
        for version in range(6):
            for more in ({}, {"ProducerId": 5, "ProducerEpoch": 3}):
                asked = {"TransactionalId": None, "TransactionTimeoutMs": 1000, "ProducerId": -1, "ProducerEpoch": -1}
                while link.ask("InitProducerId", version, {**asked, **more})["ErrorCode"] == LOADING:
                    side.heard.pop()  # a broker asks its controller for ids when it is first asked for one
                    time.sleep(0.05)
                side.heard[-1][1]["CorrelationId"] = None
                ids.append(side.heard[-1][1].pop("ProducerId"))
        side.note("ids", {"all new": len(set(ids)) == len(ids), "rising": ids == sorted(ids)})

    both.same(story)


def test_reading_back(both: Both) -> None:
    data = [batch("abc" * n, "def", codec=n % 5) for n in range(6)]

    def story(side: Side) -> None:
        link = side.connect()
        first = end_of(link, side, "orders", 1)
        for each in data:
            link.ask("Produce", 12, produced(side, "orders", 1, each))
        for version in range(4, 19):
            for offset in range(first, first + 13, 3):
                link.ask("Fetch", version, fetched(side, "orders", 1, offset))
            link.ask("Fetch", version, fetched(side, "orders", 1, first + 99))
            link.ask("Fetch", version, fetched(side, "orders", 1, -5))
            link.ask("Fetch", version, fetched(side, "orders", 1, first, IsolationLevel=1))
            link.ask("Fetch", version, fetched(side, "nowhere", 1, first))
            link.ask("Fetch", version, fetched(side, "orders", 1, first, MaxBytes=1))
            link.ask("Fetch", version, fetched(side, "orders", 1, first, max_bytes=1))

    both.same(story)


def test_a_fetch_waits_for_records(both: Both) -> None:
    def story(side: Side) -> None:
        reader, writer = side.connect(), side.connect()
        end = end_of(reader, side, "orders", 2)
        reader.post("Fetch", 12, fetched(side, "orders", 2, end, wait_ms=15_000))
        reader.is_silent("waits")
        writer.ask("Produce", 12, produced(side, "orders", 2, batch("a")))
        reader.hear("Fetch", 12)
        reader.post("Fetch", 12, fetched(side, "orders", 2, end + 1, wait_ms=400))
        reader.hear("Fetch", 12)
        reader.post("Fetch", 12, fetched(side, "orders", 2, end + 1, wait_ms=15_000, MinBytes=150))
        writer.ask("Produce", 12, produced(side, "orders", 2, batch("a")))
        reader.is_silent("waits for more")
        writer.ask("Produce", 12, produced(side, "orders", 2, batch("b" * 150)))
        reader.hear("Fetch", 12)

    both.same(story)


def test_what_is_enough_is_counted_up_to_the_limit_though_that_is_in_the_midst_of_a_batch(both: Both) -> None:
    def story(side: Side) -> None:
        reader, writer = side.connect(), side.connect()
        end = end_of(reader, side, "orders", 2)
        for _ in range(3):
            writer.ask("Produce", 12, produced(side, "orders", 2, batch("x" * 700)))
        more = {"max_bytes": 1000, "wait_ms": 120_000}
        reader.ask("Fetch", 12, fetched(side, "orders", 2, end, MinBytes=1000, **more))
        (told,) = side.heard[-1][1]["Responses"][0]["Partitions"]
        told["Records"] = len(told["Records"]) > 700  # Kafka's end in the midst, too
        reader.post("Fetch", 12, fetched(side, "orders", 2, end + 2, MinBytes=1000, **more))
        reader.is_silent("one batch is not enough")
        writer.ask("Produce", 12, produced(side, "orders", 2, batch("x" * 700)))
        reader.hear("Fetch", 12)
        (told,) = side.heard[-1][1]["Responses"][0]["Partitions"]
        told["Records"] = len(told["Records"]) > 700

    both.same(story)


def test_records_are_deleted(both: Both) -> None:
    def story(side: Side) -> None:
        link = side.connect()
        made = [
            {"Name": name, "NumPartitions": 2, "ReplicationFactor": 1,
             "Configs": [{"Name": "cleanup.policy", "Value": policy}]}
            for name, policy in (("trimmed", "delete"), ("kept", "compact"), ("both", "compact,delete"))
        ]  # fmt: skip
        with side.connect() as admin:
            admin.post("CreateTopics", 7, {"Topics": made, "timeoutMs": 20_000})
            admin.read()
            while any(end_of(admin, side, topic["Name"], 1) < 0 for topic in made):
                time.sleep(0.05)

        def ask(version: int, topic: str, *offsets: tuple[int, int]) -> None:
            partitions = [{"PartitionIndex": partition, "Offset": offset} for partition, offset in offsets]
            asked = {"Topics": [{"Name": topic, "Partitions": partitions}], "TimeoutMs": 10_000}
            link.ask("DeleteRecords", version, asked)
            for told in side.heard[-1][1].get("Topics", ()):
                told["Partitions"].sort(key=lambda one: one["PartitionIndex"])  # of a hash map

        def look(topic: str) -> None:
            times = [{"PartitionIndex": 0, "CurrentLeaderEpoch": -1, "Timestamp": time_ms} for time_ms in (-2,)]
            asked = {"ReplicaId": -1, "IsolationLevel": 0, "Topics": [{"Name": topic, "Partitions": times}]}
            link.ask("ListOffsets", 7, asked)
            for offset in range(7):
                link.ask("Fetch", 12, fetched(side, topic, 0, offset))

        for topic in ("trimmed", "kept", "both"):
            for data in (batch("a", "b"), batch("c", "d", "e"), batch("f")):
                link.ask("Produce", 12, produced(side, topic, 0, data))
            for version in range(3):
                ask(version, topic, (0, 0))
                ask(version, topic, (0, -2))
                ask(version, topic, (0, 7))
                ask(version, topic, (0, 1 + version))
                look(topic)
                ask(version, topic, (0, 1), (1, 0), (2, 0), (-1, 0))
                ask(version, topic, (0, 4), (0, 1))
                ask(version, topic)
            link.ask("Produce", 12, produced(side, topic, 0, batch("g")))
            ask(2, topic, (0, -1), (1, -1))
            look(topic)
        ask(2, "nowhere", (0, 0))
        ask(2, "__consumer_offsets", (0, 0))
        link.ask("DeleteRecords", 2, {"Topics": [], "TimeoutMs": 10_000})

    both.same(story)


def test_producers_are_described(both: Both) -> None:
    def story(side: Side) -> None:
        link = side.connect()
        for partition, producer, epoch, sequence in (
            (0, 88_000, 0, 0), (0, 88_001, 3, 5), (1, 88_000, 0, 0), (0, 88_001, 4, 0), (0, 88_000, 0, 2)
        ):  # fmt: skip
            data = batch("a", "b", producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
            link.ask("Produce", 12, produced(side, "payments", partition, data))
        asked = [("payments", [0, 1, 0, 7, -1]), ("nowhere", [0]), ("payments", [0]), ("", [0]), ("a b", [0]),
                 ("orders", []), ("__consumer_offsets", [0])]  # fmt: skip
        topics = [{"Name": name, "PartitionIndexes": numbers} for name, numbers in asked]
        for each in (topics, *([topic] for topic in topics), []):
            link.ask("DescribeProducers", 0, {"Topics": each})
            for topic in side.heard[-1][1]["Topics"]:
                for one in topic["Partitions"]:
                    one["ActiveProducers"].sort(key=lambda producer: producer["ProducerId"])  # of a hash map

    both.same(story)


def test_ends_of_leader_epochs(both: Both) -> None:
    def story(side: Side) -> None:
        link = side.connect()
        link.ask("Produce", 12, produced(side, "orders", 0, batch("a", "b")))
        for version in range(2, 5):
            for epoch in (-2, -1, 0, 1, 5):
                for current in (-1, 0, 1):
                    partitions = [
                        {"Partition": number, "CurrentLeaderEpoch": current, "LeaderEpoch": epoch}
                        for number in (0, 1, 0, 9)
                    ]
                    topics = [{"Topic": name, "Partitions": partitions} for name in ("orders", "nowhere")]
                    link.ask("OffsetForLeaderEpoch", version, {"ReplicaId": -1, "Topics": topics})

    both.same(story)


def test_log_directories(both: Both) -> None:
    def story(side: Side) -> None:
        link = side.connect()
        for data in (batch("a" * 100), batch("b", "c", codec=1)):
            link.ask("Produce", 12, produced(side, "orders", 1, data))

        def ask(version: int, *asked: tuple[str, list[int]], everything: bool = False) -> None:
            topics = None if everything else [{"Topic": name, "Partitions": numbers} for name, numbers in asked]
            link.ask("DescribeLogDirs", version, {"Topics": topics})
            for result in side.heard[-1][1]["Results"]:
                assert result.pop("LogDir").startswith("/")
                assert version < 4 or 0 < result.pop("UsableBytes") <= result.pop("TotalBytes")
                # Of a hash map; and topics of the broker's own are not the same.
                result["Topics"] = [topic for topic in result["Topics"] if not topic["Name"].startswith("__")]
                result["Topics"].sort(key=lambda topic: topic["Name"])
                for topic in result["Topics"]:
                    topic["Partitions"].sort(key=lambda one: one["PartitionIndex"])

        for version in range(1, 6):
            ask(version, everything=True)
            ask(version)
            ask(version, ("orders", [1, 0, 1]))
            ask(version, ("orders", [1]), ("payments", [0, 9, -1]), ("nowhere", [0]))
            ask(version, ("nowhere", [0]))
            ask(version, ("orders", []))

    both.same(story)


def test_logs_that_should_move_to_another_directory(both: Both) -> None:
    def story(side: Side) -> None:
        link = side.connect()
        link.post("DescribeLogDirs", 4, {"Topics": None})
        (found,) = link.decoded("DescribeLogDirs", 4, bytes(link.read()))["Results"]
        topics = [{"Name": "orders", "Partitions": [1, 9, -1]}, {"Name": "nowhere", "Partitions": [0]}]
        for version in (1, 2):
            for path in (found["LogDir"], found["LogDir"] + "/", "/nowhere", "nowhere", ""):
                link.ask("AlterReplicaLogDirs", version, {"Dirs": [{"Path": path, "Topics": topics}]})
                for result in side.heard[-1][1]["Results"]:
                    result["Partitions"].sort(key=lambda one: one["PartitionIndex"])
                side.heard[-1][1]["Results"].sort(key=lambda one: one["TopicName"])
            link.ask("AlterReplicaLogDirs", version, {"Dirs": []})

    both.same(story)


ALTERATIONS: list[list[tuple[str, int, str | None]]] = [
    [("retention.ms", 0, "1000"), ("cleanup.policy", 2, "compact")],
    [("cleanup.policy", 2, "compact"), ("retention.ms", 1, None)],
    [("cleanup.policy", 3, "compact,none")],
    [("cleanup.policy", 3, "delete")],
    [("cleanup.policy", 0, "delete"), ("retention.bytes", 1, "7")],
    [("retention.ms", 2, "5")],
    [("retention.ms", 3, "5")],
    [("retention.ms", 0, None)],
    [("retention.ms", 2, None), ("cleanup.policy", 0, None)],
    [("retention.ms", 0, "1"), ("retention.ms", 1, None)],
    [("retention.ms", 0, "soon")],
    [("retention.ms", 0, "-2")],
    [("unheard.of", 0, "1")],
    [("unheard.of", 1, None)],
    [("unheard.of", 2, "1")],
    [("cleanup.policy", 0, "burn")],
    [("min.compaction.lag.ms", 0, "100"), ("max.compaction.lag.ms", 0, "10")],
    [("max.message.bytes", 0, "200")],
    [("retention.ms", 9, "5")],
    [("retention.ms", -1, "5")],
    [("cleanup.policy", 4, "compact")],
    [],
]


def test_settings_of_topics_are_changed(both: Both) -> None:
    def story(side: Side) -> None:
        admin, link = side.connect(), side.connect()
        made = {"Name": "changed", "NumPartitions": 1, "ReplicationFactor": 1}
        admin.post("CreateTopics", 7, {"Topics": [made], "timeoutMs": 20_000})
        admin.read()
        while end_of(admin, side, "changed", 0) < 0:
            time.sleep(0.05)

        def ask(version: int, topics: list[tuple[int, str]], changes: Any, **more: Any) -> None:
            configs = [
                {"Name": name, "ConfigOperation": operation, "Value": value} for name, operation, value in changes
            ]
            resources = [{"ResourceType": kind, "ResourceName": name, "Configs": configs} for kind, name in topics]
            asked = {"Resources": resources, "ValidateOnly": False, **more}
            link.ask("IncrementalAlterConfigs", version, asked)
            side.heard[-1][1].get("Responses", []).sort(
                key=lambda one: (one["ResourceName"], one["ResourceType"])
            )  # of a hash map

        def look(topic: str) -> None:
            settled()
            names = ["cleanup.policy", "retention.ms", "retention.bytes", "max.message.bytes"]
            asked = [{"ResourceType": 2, "ResourceName": topic, "ConfigurationKeys": names}]
            link.ask("DescribeConfigs", 4, {"Resources": asked, "IncludeSynonyms": False})
            for result in side.heard[-1][1]["Results"]:
                result["Configs"].sort(key=lambda one: one["Name"])

        numbers = itertools.count(1)

        def settled() -> None:
            """A broker hears of a change from its controller: it goes by one when it shows the next but one."""
            for number in itertools.islice(numbers, 2):
                configs = [{"Name": "segment.jitter.ms", "ConfigOperation": 0, "Value": str(number)}]
                resource = {"ResourceType": 2, "ResourceName": "changed", "Configs": configs}
                admin.post("IncrementalAlterConfigs", 1, {"Resources": [resource], "ValidateOnly": False})
                admin.read()
                while jitter() != str(number):
                    time.sleep(0.005)

        def jitter() -> str:
            asked = {"ResourceType": 2, "ResourceName": "changed", "ConfigurationKeys": ["segment.jitter.ms"]}
            admin.post("DescribeConfigs", 4, {"Resources": [asked], "IncludeSynonyms": False})
            frame = admin.read()
            assert isinstance(frame, bytes)
            value: str = admin.decoded("DescribeConfigs", 4, frame)["Results"][0]["Configs"][0]["Value"]
            return value

        for version in range(2):
            for changes in ALTERATIONS if version else ALTERATIONS[:1]:
                ask(version, [(2, "changed")], changes)
                look("changed")
            ask(version, [(2, "changed")], [("retention.ms", 0, "77")], ValidateOnly=True)
            ask(version, [(2, "changed"), (2, "nowhere"), (2, "a b"), (2, "")], [("retention.ms", 0, "78")])
            ask(version, [(2, "nowhere"), (2, "nowhere")], [("retention.ms", 0, "78")])
            ask(version, [(0, "changed"), (3, "changed"), (99, "changed")], [("retention.ms", 0, "78")])
            ask(version, [], [])
            look("changed")
            for size in (100, 200):
                link.ask("Produce", 12, produced(side, "changed", 0, batch("x" * size)))
                without_sentences(side)
        given: list[list[tuple[str, str | None]]] = [
            [("retention.ms", "5"), ("cleanup.policy", "compact")], [("retention.ms", "6")], [("retention.ms", None)],
            [("unheard.of", "1")], [("retention.ms", "x")], [],
        ]  # fmt: skip
        for version in range(3):
            for settings in given if version == 2 else given[:1]:
                configs = [{"Name": name, "Value": value} for name, value in settings]
                resources = [{"ResourceType": 2, "ResourceName": "changed", "Configs": configs}]
                link.ask("AlterConfigs", version, {"Resources": resources, "ValidateOnly": False})
                look("changed")

    both.same(story)


def test_fetch_sessions(both: Both) -> None:
    def story(side: Side) -> None:
        link = side.connect()
        ends = {number: end_of(link, side, "orders", number) for number in range(3)}

        def asked(*numbers: int, at: int = 0) -> list[Message]:
            partitions = [
                fetched(side, "orders", number, ends[number] + at)["Topics"][0]["Partitions"][0] for number in numbers
            ]
            topic = {"Topic": "orders", "TopicId": side.topic_ids["orders"], "Partitions": partitions}
            return [topic] if numbers else []

        def forget(*numbers: int) -> list[Message]:
            return [{"Topic": "orders", "TopicId": side.topic_ids["orders"], "Partitions": list(numbers)}]

        def ask(version: int, session_id: int, epoch: int, topics: list[Message], **more: Any) -> int:
            body = {**fetched(side, "orders", 0, 0), "SessionId": session_id, "SessionEpoch": epoch, "Topics": topics}
            found: int = link.ask("Fetch", version, {**body, **more})["SessionId"]
            side.heard[-1][1]["SessionId"] = "a session" if found else found
            return found

        for version in (7, 12, 13, 18):
            session = ask(version, 0, 0, asked(0, 1, 2))
            ask(version, session, 1, [])
            link.ask("Produce", 12, produced(side, "orders", 1, batch("news")))
            ask(version, session, 2, [])
            ask(version, session, 3, [])
            ask(version, session, 4, asked(1, at=1))
            ask(version, session, 4, [])
            ask(version, session, 5, [], ForgottenTopicsData=forget(0))
            ask(version, session, 6, asked(0))
            ask(version, session, 7, asked(2, at=100))
            ask(version, session, 8, [])
            ask(25 - version if version in (12, 13) else version, session, 9, [])
            ask(version, session, 9, [], ForgottenTopicsData=forget(0, 1, 2))
            ask(version, session, 10, [])
            ask(version, 12345, 1, [])
            session = ask(version, 0, 0, asked(0))
            ask(version, session, -1, asked(0))
            ask(version, session, 1, [])
            ends[1] += 1

    both.same(story)
