"""A running server compacts its own topic, and comes back from it."""

import io
import time
from pathlib import Path

from muster.broker import Broker
from muster.codec.error_codes import ErrorCode
from muster.protocol.apis import ApiKey
from tests.server.raw import Raw, commit_body, fetch_offsets

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.segment.bytes": str(1 << 20),
    "log.cleaner.backoff.ms": "50",
    "log.cleaner.min.cleanable.ratio": "0.01",
}


def test_the_offsets_topic_stays_small(tmp_path: Path) -> None:
    server_log = io.StringIO()
    with Broker(data=tmp_path / "data", log=server_log, settings=SETTINGS) as broker:
        broker.create_topic("orders", 4)
        with Raw((broker.host, broker.port)) as raw:
            deadline = time.monotonic() + 60
            number = 0
            while "compacted in" not in server_log.getvalue() or number < 40_000:
                assert time.monotonic() < deadline, server_log.getvalue()[-1_000:]
                for _ in range(500):
                    number += 1
                    raw.send(ApiKey.OFFSET_COMMIT, 8, **commit_body("g", "orders", {number % 4: number}))
                for _ in range(500):
                    raw.frame()
            before = fetch_offsets(raw, "g")
        (log,) = [log for key, log in broker._server.parts.directory.logs.items() if key.topic == "__consumer_offsets"]  # type: ignore[union-attr]
        assert log.size_bytes < 60 * number, "nothing was given back"
    with Broker(data=tmp_path / "data", settings=SETTINGS) as broker, Raw((broker.host, broker.port)) as raw:
        while (after := fetch_offsets(raw, "g"))[0] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            assert time.monotonic() < deadline + 60
            time.sleep(0.01)
        assert after == before
