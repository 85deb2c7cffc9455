"""What confluent-kafka, aiokafka and kafka-python do in the `records` stage, each call in a process of its own.

`python -m bench.records_client WORK JSON` does one work and prints one line of JSON. A process of its own keeps the
client's threads and its memory out of the measurement of the next one, and makes "a fresh process" mean what it says.
"""

import asyncio
import json
import statistics
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

POLL_S = 0.2
IDLE_S = 30.0
"""So long without a record is an error, not a figure."""
WINDOW = 50_000
"""Records that a producer may be ahead of the consumer that follows it."""


def produce(bootstrap: str, topic: str, records: int, size: int, **config: Any) -> dict[str, Any]:
    """As fast as the client can; the time is from the first record to the last acknowledgement."""
    from confluent_kafka import Producer

    failed: list[str] = []
    producer = Producer({"bootstrap.servers": bootstrap, "queue.buffering.max.kbytes": 65_536, **config})
    payload = bytes(range(256)) * (size // 256 + 1)
    producer.list_topics(topic, timeout=30)  # connected, and knows the leader
    begun = time.perf_counter()
    _send(producer, topic, payload[:size], records, failed, lambda: None)
    return _rates(records, size, time.perf_counter() - begun) | {"failed": failed[:1]}


def _send(
    producer: Any, topic: str, payload: bytes, records: int, failed: list[str], before_each: Callable[[], None]
) -> None:
    def delivered(error: Any, _message: Any) -> None:
        if error is not None:
            failed.append(str(error))

    for _ in range(records):
        before_each()
        while True:
            try:
                producer.produce(topic, payload, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    if producer.flush(60):
        failed.append("not everything was sent within a minute")


def consume(bootstrap: str, topic: str, records: int, size: int, **config: Any) -> dict[str, Any]:
    """From the first record to the last; joining a group is not in it."""
    consumer = _assigned(bootstrap, topic, 0, **config)
    first = consumer.consume(1, IDLE_S)
    begun, got, last = time.perf_counter(), len(first), time.perf_counter()
    while got < records:
        some = consumer.consume(1_000, POLL_S)
        now = time.perf_counter()
        got, last = got + len(some), now if some else last
        if now - last > IDLE_S:
            return {"failed": [f"{got} of {records} records came"]}
    seconds = time.perf_counter() - begun
    consumer.close()
    return _rates(records, size, seconds) | {"failed": []}


def _assigned(bootstrap: str, topic: str, offset: int, **config: Any) -> Any:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "check.crcs": False,
            **config,
        }
    )
    consumer.assign([TopicPartition(topic, 0, offset)])
    return consumer


def _rates(records: int, size: int, seconds: float) -> dict[str, Any]:
    return {"mb_s": records * size / 1e6 / seconds, "records_s": records / seconds}


def latency(bootstrap: str, topic: str, rate: int, seconds: float, warmup: float, size: int) -> dict[str, Any]:
    """One producer at a steady rate, one consumer: from `produce` to the record in the consumer's hand."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    consumer = _assigned(bootstrap, topic, 0)
    total, settled = round(rate * (warmup + seconds)), round(rate * warmup)
    failed: list[str] = []
    took_us: list[float] = []

    def receive() -> None:
        got, last = 0, time.monotonic()
        while got < total and time.monotonic() - last < IDLE_S:
            message = consumer.poll(POLL_S)
            if message is None or message.error():
                continue
            now_ns, last = time.perf_counter_ns(), time.monotonic()
            if got >= settled:
                took_us.append((now_ns - int(message.value()[:20])) / 1000)
            got += 1
        if got < total:
            failed.append(f"{got} of {total} records came")

    receiver = threading.Thread(target=receive)
    receiver.start()
    begun, filler = time.perf_counter(), b"x" * (size - 20)
    for number in range(total):
        wait = begun + number / rate - time.perf_counter()
        if wait > 0:
            time.sleep(wait)
        producer.produce(topic, b"%020d" % time.perf_counter_ns() + filler)
        producer.poll(0)
    producer.flush(60)
    receiver.join()
    consumer.close()
    if failed:
        return {"failed": failed}
    cuts = statistics.quantiles(took_us, n=100)
    return {"p50_us": cuts[49], "p99_us": cuts[98], "max_us": max(took_us), "failed": []}


def through(bootstrap: str, topic: str, records: int, size: int) -> dict[str, Any]:
    """Everything is produced and consumed, the consumer close behind, so that retention takes nothing unread."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "queue.buffering.max.kbytes": 32_768})
    consumer = _assigned(bootstrap, topic, 0)
    failed: list[str] = []
    consumed = 0
    begun = time.perf_counter()

    def receive() -> None:
        nonlocal consumed
        last = time.monotonic()
        while consumed < records and not failed:
            some = consumer.consume(1_000, POLL_S)
            consumed += sum(message.error() is None for message in some)
            last = time.monotonic() if some else last
            if time.monotonic() - last > IDLE_S:
                failed.append(f"{consumed} of {records} records came")

    receiver = threading.Thread(target=receive)
    receiver.start()
    sent = 0

    def not_too_far() -> None:
        nonlocal sent
        sent += 1
        while sent - consumed > WINDOW and not failed:
            producer.poll(0.001)

    _send(producer, topic, b"x" * size, records, failed, not_too_far)
    receiver.join()
    consumer.close()
    return _rates(records, size, time.perf_counter() - begun) | {"failed": failed[:1]}


# `with Broker()` to the first record.


def first_record(client: str, brokers: int) -> dict[str, Any]:
    """Milliseconds for each of some brokers, one after another; the first one has muster's imports in it."""
    work = {"confluent-kafka": _with_confluent, "kafka-python": _with_kafka_python, "aiokafka": _with_aiokafka}[client]
    __import__({"confluent-kafka": "confluent_kafka", "kafka-python": "kafka"}.get(client, client))
    took_ms = []
    for _ in range(brokers):
        begun = time.perf_counter()
        from muster import Broker

        with Broker() as broker:
            work(broker.bootstrap_servers)
            took_ms.append((time.perf_counter() - begun) * 1000)
    return {"took_ms": took_ms, "failed": []}


def _with_confluent(bootstrap: str) -> None:
    from confluent_kafka import Consumer, Producer

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    producer.produce("orders", b"one")
    producer.flush(IDLE_S)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "billing", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    message = consumer.poll(IDLE_S)
    assert message is not None
    assert message.value() == b"one"


def _with_kafka_python(bootstrap: str) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    producer = KafkaProducer(bootstrap_servers=bootstrap)
    producer.send("orders", b"one").get(IDLE_S)
    consumer = KafkaConsumer(
        "orders", bootstrap_servers=bootstrap, group_id="billing", auto_offset_reset="earliest",
        consumer_timeout_ms=IDLE_S * 1000,
    )  # fmt: skip
    assert next(consumer).value == b"one"


def _with_aiokafka(bootstrap: str) -> None:
    asyncio.run(_produced_and_consumed(bootstrap))


async def _produced_and_consumed(bootstrap: str) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    await producer.send_and_wait("orders", b"one")
    consumer = AIOKafkaConsumer("orders", bootstrap_servers=bootstrap, group_id="billing", auto_offset_reset="earliest")
    await consumer.start()
    message = await asyncio.wait_for(consumer.getone(), IDLE_S)
    assert message.value == b"one"
    await consumer.stop()
    await producer.stop()


WORKS = {work.__name__: work for work in (produce, consume, latency, through, first_record)}

if __name__ == "__main__":
    result = WORKS[sys.argv[1]](**json.loads(sys.argv[2]))
    print(json.dumps(result), flush=True)
