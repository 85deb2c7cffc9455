"""Fetches that wait for more than there is: what they would get is counted, and read once, when they are answered."""

import pytest

from muster.broker import Broker
from muster.protocol.apis import ApiKey
from muster.segments.batches import WINDOW_BYTES
from muster.segments.files import RealFile
from tests.server.raw import Raw
from tests.server.records.talking import FETCH, batch, fetch_body, produce, records_in

WAITING = 5
LARGE = 20
LARGE_BYTES = 100_000
SMALL = 10


class Reads:
    """Bytes of logs that were read, and how often: by everybody in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes = 0
        pread = RealFile.pread

        def counted(file: RealFile, size: int, position: int) -> bytes:
            data = pread(file, size, position)
            if file.path.suffix == ".log":
                self.bytes += len(data)
            return data

        monkeypatch.setattr(RealFile, "pread", counted)

    def taken(self) -> int:
        """Since the last time."""
        taken, self.bytes = self.bytes, 0
        return taken


def test_a_waiting_fetch_reads_records_once_when_it_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    with Broker() as broker, Raw((broker.host, broker.port)) as producer:
        broker.create_topic("orders")
        large = batch("x" * LARGE_BYTES)
        for _ in range(LARGE):
            assert produce(producer, "orders", 0, large)[0] == 0
        small = batch("small")
        there = LARGE * len(large)
        wanted = there + SMALL * len(small)
        body = fetch_body("orders", {0: 0}, maxWaitMs=60_000, minBytes=wanted, maxBytes=2 * wanted)
        body["topics"][0]["partitions"][0]["partitionMaxBytes"] = 2 * wanted
        reads = Reads(monkeypatch)
        waiting = [Raw((broker.host, broker.port)) for _ in range(WAITING)]
        for one in waiting:
            one.send(ApiKey.FETCH, FETCH, **body)
        assert broker._server is not None
        fetches = broker._server.parts.fetches
        while len(fetches) < WAITING:
            producer.ask(ApiKey.API_VERSIONS, 0)
        parked = reads.taken()
        for _ in range(SMALL):
            assert produce(producer, "orders", 0, small)[0] == 0
        answers = [one.hear(ApiKey.FETCH, FETCH)[1]["responses"][0]["partitions"][0] for one in waiting]
        answered = reads.taken()
        for one in waiting:
            one.close()
        for answer in answers:
            assert len(answer["records"]) == wanted
            assert len(records_in(answer["records"])) == LARGE + SMALL
        look = WAITING * WINDOW_BYTES  # headers, to find an offset
        assert parked <= look
        assert (
            WAITING * wanted <= answered <= WAITING * wanted + (SMALL + 1) * look
        )  # with every growth, and for the answer
