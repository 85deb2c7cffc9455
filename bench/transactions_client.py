"""Transactions with confluent-kafka, one after another, in a process of its own.

`python -m bench.transactions_client JSON` prints one line of JSON.
"""

import json
import statistics
import sys
import time
from typing import Any

WAIT_S = 60


def transactions(
    bootstrap: str, topic: str, records: int, size: int, partitions: int, warmup_s: float, seconds: float
) -> dict[str, Any]:
    """Rate, and how long commits take once the records of a transaction are acknowledged."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"bench-{topic}", "linger.ms": 0})
    producer.init_transactions(WAIT_S)
    payload, took_us, begun = b"x" * size, [], time.perf_counter() + warmup_s
    now = begun - warmup_s
    while now < begun + seconds:
        producer.begin_transaction()
        for number in range(records):
            producer.produce(topic, payload, partition=number % partitions)
        if producer.flush(WAIT_S):
            return {"failed": ["not everything was sent within a minute"]}
        flushed = time.perf_counter()
        producer.commit_transaction(WAIT_S)
        now = time.perf_counter()
        if now >= begun:
            took_us.append((now - flushed) * 1e6)
    cuts = statistics.quantiles(took_us, n=100)
    return {"rate": len(took_us) / (now - begun), "p50_us": cuts[49], "p99_us": cuts[98], "failed": []}


if __name__ == "__main__":
    print(json.dumps(transactions(**json.loads(sys.argv[1]))), flush=True)
