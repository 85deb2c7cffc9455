"""muster's own server, asked as any other cluster: it hands out its offsets topic and its records."""

from pathlib import Path

from muster.live.cluster import Cluster
from muster.live.download import download
from tests.server.raw import ApiKey, Raw, commit_body, create_topic, running
from tests.server.records.talking import batch, produce

OFFSETS = "__consumer_offsets"


def test_logs_come_as_they_are(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running(data) as server:
        create_topic(server.address, "orders", 1)
        with Raw(server.address) as raw:
            raw.ask(ApiKey.OFFSET_COMMIT, 7, **commit_body("shop", "orders", {0: 5}))
            assert produce(raw, "orders", 0, batch("a", "b")) == (0, 0)
        config = {"bootstrap.servers": "{}:{}".format(*server.address)}
        with Cluster(config) as cluster:
            assert "orders" in cluster.topic_names().values()
            ends = cluster.log_ends()
            assert ends["orders", 0].high_watermark == 2
            cluster.check_hands_out("orders")
            cluster.check_hands_out(OFFSETS)
        written = {where for where, end in ends.items() if end.high_watermark}
        assert sorted(topic for topic, _ in written) == [OFFSETS, "orders"]
        for topic, partition in written:
            download(config, topic, partition, 0, None, tmp_path / "out" / topic)
            (copied,) = (tmp_path / "out" / topic).glob("*.log")
            (kept,) = (data / f"{topic}-{partition}").glob("*.log")
            assert copied.read_bytes() == kept.read_bytes()
