"""A real Kafka read through each of its doors, and compared with its own files."""

import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from muster.config.client import read_client_properties
from muster.errors import ClusterError, ClusterRefused, ClusterUnreachable
from muster.live import connection
from muster.live import download as module
from muster.live.cluster import Cluster
from muster.live.download import download
from muster.live.requests import EpochEnd
from muster.live.settings import client_settings
from muster.live.times import data_ends, timestamps_at
from tests.kit.kafka import CLUSTER_ID
from tests.live import life
from tests.live.broker import DATA, HIDDEN, MECHANISMS, PASSWORDS, GuardedBroker
from tests.live.life import FIRST_MS, OFFSETS, OFFSETS_PARTITIONS, QUIET

pytestmark = pytest.mark.kafka

DOORS = [("PLAINTEXT", ""), ("SSL", ""), *[("SASL_PLAINTEXT", one) for one in MECHANISMS], ("SASL_SSL", MECHANISMS[2])]


def segments(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


def original(broker: GuardedBroker, partition: int, topic: str = OFFSETS) -> bytes:
    return segments(broker.log_dir / f"{topic}-{partition}")


@pytest.mark.parametrize(("door", "mechanism"), DOORS)
def test_every_byte_of_the_offsets_topic_through_every_door(
    guarded: GuardedBroker, door: str, mechanism: str, tmp_path: Path
) -> None:
    config = guarded.config(door, mechanism)
    for partition in range(OFFSETS_PARTITIONS):
        directory = tmp_path / f"{OFFSETS}-{partition}"
        next_offset = download(config, OFFSETS, partition, 0, None, directory)
        assert next_offset >= 30
        assert segments(directory) == original(guarded, partition)


def test_kafkas_own_tool_reads_what_was_downloaded(guarded: GuardedBroker, tmp_path: Path) -> None:
    """From the middle on, so that the file is one that no broker has."""
    next_offset = download(guarded.config(), OFFSETS, 1, 10, None, tmp_path)
    (file,) = tmp_path.iterdir()
    assert file.name == f"{10:020}.log"
    dumped = guarded.dump_log([file])
    theirs = guarded.dump_log(sorted((guarded.log_dir / f"{OFFSETS}-1").glob("*.log")))
    records = [line for line in dumped.splitlines() if line.startswith("| offset:")]
    assert len(records) == next_offset - 10
    assert records == [line for line in theirs.splitlines() if line.startswith("| offset:")][10:]


def test_step_by_step_is_the_same_as_at_once(guarded: GuardedBroker, tmp_path: Path) -> None:
    offset = 0
    for step, end in enumerate((7, 8, 20, None)):
        offset = download(guarded.config(), OFFSETS, 2, offset, end, tmp_path / str(step))
        assert end is None or offset == end  # commits are batches of one
    assert b"".join(segments(tmp_path / str(step)) for step in range(4)) == original(guarded, 2)


def test_in_many_small_answers(guarded: GuardedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each but the first names the epoch of what came before, which the leader compares."""
    monkeypatch.setattr(module, "FETCH_BYTES", 1000)
    seen: list[int] = []
    download(guarded.config(), OFFSETS, 3, 0, None, tmp_path, seen.append)
    assert len(seen) > 3
    assert segments(tmp_path) == original(guarded, 3)


def test_a_batch_larger_than_asked_for(guarded: GuardedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FETCH_BYTES", 1000)
    assert download(guarded.config(), DATA, life.LARGE, 0, None, tmp_path) == 1
    assert segments(tmp_path) == original(guarded, life.LARGE, DATA)
    with pytest.raises(ClusterError, match=r"an answer of 30\d{4} bytes, and receive\.message\.max\.bytes is 200000"):
        download(guarded.config() | {"receive.message.max.bytes": "200000"}, DATA, life.LARGE, 0, None, tmp_path)


def test_metadata(guarded: GuardedBroker) -> None:
    with Cluster(guarded.config()) as cluster:
        metadata = cluster.metadata()
        assert metadata.cluster_id == CLUSTER_ID
        assert list(metadata.brokers) == [1]
        assert {OFFSETS, DATA, HIDDEN} <= metadata.topics.keys()
        assert {one.leader_id for one in metadata.topics[OFFSETS].partitions.values()} == {1}
        assert metadata.topics[OFFSETS].is_internal
        (topic_id,) = (topic_id for topic_id, name in cluster.topic_names().items() if name == DATA)
    listed = (guarded.log_dir / f"{DATA}-0" / "partition.metadata").read_text()
    assert f"topic_id: {topic_id}" in listed


def test_a_kafka_hands_out_its_topics(guarded: GuardedBroker) -> None:
    with Cluster(guarded.config()) as cluster:
        for topic in (OFFSETS, DATA, HIDDEN):
            cluster.check_hands_out(topic)
    with Cluster(guarded.config("SASL_PLAINTEXT")) as cluster:
        cluster.check_hands_out(OFFSETS)


def test_log_ends_are_those_that_librdkafka_is_told(guarded: GuardedBroker) -> None:
    with Cluster(guarded.config()) as cluster:
        ends = cluster.log_ends()
    assert len(ends) >= OFFSETS_PARTITIONS + 7 + 1
    for isolation, end_of in (("read_uncommitted", 2), ("read_committed", 1)):
        settings = QUIET | guarded.config() | {"group.id": "ends", "isolation.level": isolation}
        consumer = Consumer(settings)
        for topic in (OFFSETS, DATA):
            for (name, partition), found in ends.items():
                if name == topic:
                    low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=20)
                    assert (found[0], found[end_of]) == (low, high)
        consumer.close()
    assert any(end.last_stable_offset != end.high_watermark for end in ends.values())  # the open transaction
    assert ends[DATA, life.TRIMMED].log_start_offset == 5


def test_where_an_epoch_ended(guarded: GuardedBroker) -> None:
    with Cluster(guarded.config()) as cluster:
        high = cluster.log_ends([(OFFSETS, 1)])[OFFSETS, 1].high_watermark
        assert cluster.epoch_ends({(OFFSETS, 1): 0}) == {(OFFSETS, 1): EpochEnd(0, 0, high)}
        unknown = cluster.epoch_ends({(OFFSETS, 1): 99}, patience_s=0.2)[OFFSETS, 1]
        assert "UNKNOWN_LEADER_EPOCH" in str(unknown)


def test_a_start_that_has_moved(guarded: GuardedBroker, tmp_path: Path) -> None:
    assert download(guarded.config(), DATA, life.TRIMMED, 0, None, tmp_path) == 10
    assert [path.name for path in tmp_path.iterdir()] == [f"{5:020}.log"]


def test_timestamps(guarded: GuardedBroker) -> None:
    wanted = {
        (DATA, life.PLAIN, 0): 0, (DATA, life.PLAIN, 9): 9, (DATA, life.PLAIN, 10): None,
        (DATA, life.PACKED, 0): 0, (DATA, life.PACKED, 63): 63, (DATA, life.PACKED, 99): 99,
        (DATA, life.COMMITTED, 0): 0, (DATA, life.COMMITTED, 1): None,  # its marker
        (DATA, life.ABORTED, 1): 0, (DATA, life.LARGE, 0): 0, (DATA, life.NOTHING, 0): None,
        (DATA, life.TRIMMED, 2): 5,
    }  # fmt: skip
    expected = {one: None if late is None else FIRST_MS + 1000 * late for one, late in wanted.items()}
    assert timestamps_at(guarded.config(), wanted) == expected


def test_where_data_ends(guarded: GuardedBroker) -> None:
    with Cluster(guarded.config()) as cluster:
        ends = cluster.log_ends([(DATA, partition) for partition in range(7)])
    found = data_ends(guarded.config(), ends)
    assert list(found.values()) == [10, 100, 1, 3, 1, 0, 10]


def test_a_wrong_password(guarded: GuardedBroker, tmp_path: Path) -> None:
    for mechanism in MECHANISMS[:2]:
        config = guarded.config("SASL_PLAINTEXT", mechanism) | {"sasl.password": "wrong"}
        with pytest.raises(ClusterRefused, match=r"does not let 'reader' in: authentication failed") as caught:
            download(config, OFFSETS, 0, 0, None, tmp_path)
        assert "Check sasl.username, sasl.password and sasl.mechanism" in str(caught.value)
    config = guarded.config("SASL_PLAINTEXT") | {"sasl.username": "nobody"}
    with pytest.raises(ClusterRefused, match="does not let 'nobody' in"):
        download(config, OFFSETS, 0, 0, None, tmp_path)


def test_a_session_that_is_over_is_begun_anew(guarded: GuardedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker says how long one lasts, here an hour; for this test that is over at once."""
    monkeypatch.setattr(connection, "_SESSION_SHARE", 0.0)
    for door, is_usable in (("PLAINTEXT", True), ("SASL_PLAINTEXT", False)):
        settings = client_settings(guarded.config(door))
        with connection.Connection(settings.bootstrap[0], settings) as opened:
            assert opened.is_usable == is_usable
    with Cluster(guarded.config("SASL_PLAINTEXT")) as cluster:
        assert cluster.log_ends([(OFFSETS, 0)])[OFFSETS, 0].high_watermark


def test_no_rights_on_a_topic(guarded: GuardedBroker, tmp_path: Path) -> None:
    """`reader` may see it, but not read it; `stranger` may not even see one."""
    for user, topic in (("reader", HIDDEN), ("stranger", OFFSETS)):
        config = guarded.config("SASL_PLAINTEXT", user=user)
        with pytest.raises(ClusterRefused, match=rf"no rights on topic {topic}.*kafka-acls"):
            download(config, topic, 0, 0, None, tmp_path)
    assert timestamps_at(guarded.config("SASL_PLAINTEXT"), [(HIDDEN, 0, 0)]) == {(HIDDEN, 0, 0): None}


def test_no_such_topic(guarded: GuardedBroker, tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="has no topic nosuch"):
        download(guarded.config(), "nosuch", 0, 0, None, tmp_path)
    with pytest.raises(ClusterError, match="has no partition 99; it has 7"):
        download(guarded.config(), DATA, 99, 0, None, tmp_path)


def test_wrong_security_settings_are_told_in_a_sentence(guarded: GuardedBroker) -> None:
    def told(door: str, **config: str) -> str:
        given = guarded.config(door) | {name.replace("_", "."): value for name, value in config.items()}
        started = time.monotonic()
        with pytest.raises(ClusterError) as caught, Cluster(given) as cluster:
            cluster.metadata()
        assert time.monotonic() - started < 10
        return str(caught.value)

    plain, secure = guarded.config()["bootstrap.servers"], guarded.config("SASL_SSL")["bootstrap.servers"]
    guarded_port = guarded.config("SASL_PLAINTEXT")["bootstrap.servers"]
    assert "security.protocol=SSL or SASL_SSL" in told("PLAINTEXT", bootstrap_servers=secure)
    assert "does not speak TLS" in told("SSL", bootstrap_servers=plain)
    assert "A port that wants SASL" in told("PLAINTEXT", bootstrap_servers=guarded_port)
    assert "wants no SASL" in told("SASL_PLAINTEXT", bootstrap_servers=plain)
    assert "not trusted" in told("SASL_SSL", ssl_ca_location=str(guarded.data_dir / "client.crt"))
    port = secure.split(":")[1]
    assert "Hostname mismatch" in told("SASL_SSL", bootstrap_servers=f"localhost:{port}")


def test_a_client_certificate_is_missing(guarded: GuardedBroker) -> None:
    config = {name: value for name, value in guarded.config("SSL").items() if "certificate" not in name}
    del config["ssl.key.location"]
    with pytest.raises(ClusterUnreachable, match=r"ssl\.certificate\.location"), Cluster(config) as cluster:
        cluster.metadata()


def test_a_java_clients_file(guarded: GuardedBroker, tmp_path: Path) -> None:
    password = PASSWORDS["reader"].replace("\\", "\\\\").replace('"', '\\"').replace("\\", "\\\\")
    path = tmp_path / "client.properties"
    path.write_text(
        f"bootstrap.servers={guarded.config('SASL_SSL')['bootstrap.servers']}\n"
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-256\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={guarded.data_dir / 'ca.pem'}\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\\n"
        f'  username="reader" password="{password}";\n'
    )
    with Cluster(read_client_properties(path)) as cluster:
        assert cluster.metadata().cluster_id == CLUSTER_ID
