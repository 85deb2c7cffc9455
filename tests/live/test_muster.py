"""muster's own server, asked as any other: it says where its logs end, and hands out no records."""

import re
from pathlib import Path

import pytest

import muster.live.download as module
from muster.errors import ClusterError
from muster.live.cluster import Cluster
from muster.live.download import download
from tests.server.raw import ApiKey, Raw, commit_body, create_topic, running

OFFSETS = "__consumer_offsets"


def test_ends_but_no_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CATCHING_UP_S", 0.3)
    with running(tmp_path / "data") as server:
        create_topic(server.address, "orders", 1)
        with Raw(server.address) as raw:
            raw.ask(ApiKey.OFFSET_COMMIT, 7, **commit_body("shop", "orders", {0: 5}))
        config = {"bootstrap.servers": "{}:{}".format(*server.address)}
        with Cluster(config) as cluster:
            assert "orders" in cluster.topic_names().values()
            ends = cluster.log_ends()
            assert ends["orders", 0].high_watermark == 0
            cluster.check_hands_out("orders")
            with pytest.raises(ClusterError, match=re.escape("point at its data directory")):
                cluster.check_hands_out(OFFSETS)
        written = {where: end for where, end in ends.items() if where[0] == OFFSETS and end.high_watermark}
        ((_, partition),) = written
        with pytest.raises(ClusterError, match=re.escape("point at its data directory")):
            download(config, OFFSETS, partition, 0, None, tmp_path / "out")
