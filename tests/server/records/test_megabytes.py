"""A megabyte of records: it comes in pieces, and the memory that one took is there for the next."""

import ctypes
import time
from itertools import accumulate, pairwise
from pathlib import Path

import pytest

from muster.broker import Broker
from muster.protocol.apis import ApiKey
from muster.protocol.messages import encode_request
from tests.server.raw import Raw
from tests.server.records.talking import FETCH, PRODUCE, all_values, batch, fetch_body, produce, produce_body

MEGABYTES = 20


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="a C library that cannot be told what to keep")
def test_pages_are_not_asked_for_again_with_every_megabyte() -> None:
    with Broker(process=True) as broker, Raw((broker.host, broker.port)) as raw:
        broker.create_topic("orders")
        for _ in range(100):  # small ones: nothing is loaded meanwhile to walk them quickly
            assert produce(raw, "orders", 0, batch("x" * 10_000))[0] == 0

        def read(times: int) -> None:
            for _ in range(times):
                told = raw.ask(ApiKey.FETCH, FETCH, **fetch_body("orders", {0: 0}))
                assert len(told["responses"][0]["partitions"][0]["records"]) > 1_000_000

        read(5)
        before = page_faults(broker)
        read(MEGABYTES)
        each = (page_faults(broker) - before) / MEGABYTES
    assert each < 100, "there are 244 pages in a megabyte, and it is copied more than once"


def test_pieces_of_every_size_are_put_together_in_their_order() -> None:
    value = "".join(f"{number:07}" for number in range(100_000))
    with Broker() as broker, Raw((broker.host, broker.port)) as raw:
        broker.create_topic("orders")
        request = encode_request(ApiKey.PRODUCE, PRODUCE, 1, "pieces", produce_body("orders", {0: batch(value)}))
        sizes = [3, 5, 40_000, 1, 2, 100_000, 200_000, 7, 20_000]
        for start, end in pairwise([0, *accumulate(sizes), len(request)]):
            raw.socket.sendall(request[start:end])
            time.sleep(0.005)  # or the next one would come with it
        raw.hear(ApiKey.PRODUCE, PRODUCE)
        assert all_values(raw, "orders", 0) == [value]


def page_faults(broker: Broker) -> int:
    """Of its process until now: memory that the system had to give it."""
    pid = broker._running._process.pid  # type: ignore[union-attr]
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[7])
