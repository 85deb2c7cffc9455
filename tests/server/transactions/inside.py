"""What a test does inside a broker that runs in a thread of it."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from muster.broker import Broker
from muster.segments.checkpoints import TopicPartition
from muster.server.transactions.steps import Step

WITHIN_S = 30


def inside(broker: Broker, work: Callable[[Any], Any]) -> Any:
    """Do something with the parts of the server, in its thread."""
    loop, server = broker._loop, broker._server
    assert loop is not None
    assert server is not None

    async def do() -> Any:
        return work(server.parts)

    return asyncio.run_coroutine_threadsafe(do(), loop).result(WITHIN_S)


@contextlib.contextmanager
def stopped_at(broker: Broker, step: Step) -> Iterator[threading.Event]:
    """The server stands still when a transaction's end comes to a step, and goes on behind the block.

    The event is set when it does.
    """
    is_there, may_go_on = threading.Event(), threading.Event()

    def stand_still() -> None:
        is_there.set()
        may_go_on.wait(WITHIN_S)

    inside(broker, lambda parts: parts.transactions.steps.order(step, stand_still))
    try:
        yield is_there
    finally:
        may_go_on.set()


@contextlib.contextmanager
def loading(broker: Broker, topic: str) -> Iterator[None]:
    """The only partition of a coordinators' topic is loaded anew, which lasts as long as the block."""
    may_go_on = threading.Event()

    def hold(parts: Any) -> None:
        (leadership,) = (one for one in parts.leaderships if one.topic == topic)
        load = leadership._load_log

        def load_later(*about: Any) -> Any:
            may_go_on.wait(WITHIN_S)
            leadership._load_log = load
            return load(*about)

        leadership._load_log = load_later
        leadership.elect(0)

    inside(broker, hold)
    try:
        yield
    finally:
        may_go_on.set()


@contextlib.contextmanager
def one_marker_held(broker: Broker, topic: str) -> Iterator[Callable[[], bool]]:
    """The first marker for a partition of a topic is written behind the block. Says whether all others are safe."""
    held: list[tuple[Any, ...]] = []

    def hold(parts: Any) -> None:
        data = parts.data_partitions
        write = data.end_transaction

        def end_transaction(key: TopicPartition, *about: Any) -> None:
            if key.topic == topic and not held:
                held.append((key, *about))
            else:
                write(key, *about)

        data.end_transaction = end_transaction

    def release(parts: Any) -> None:
        del parts.data_partitions.end_transaction
        for about in held:
            parts.data_partitions.end_transaction(*about)

    inside(broker, hold)
    try:
        yield lambda: bool(held) and inside(broker, lambda parts: len(parts.transactions.markers)) == 1
    finally:
        inside(broker, release)


@contextlib.contextmanager
def syncs_held(broker: Broker, topic: str) -> Iterator[list[Any]]:
    """What is written to the partitions of a topic is synced behind the block. The list has what waits for that."""
    held: list[Any] = []

    def hold(parts: Any) -> None:
        flush = parts.flusher.flush_each

        def flush_each(requests: Any, **how: Any) -> None:
            for log, then in requests:
                if log.directory.name.rpartition("-")[0] == topic:
                    log.write()
                    held.append((log, then))
                else:
                    flush([(log, then)], **how)

        parts.flusher.flush_each = flush_each

    def release(parts: Any) -> None:
        del parts.flusher.flush_each
        parts.flusher.flush_each(held)

    inside(broker, hold)
    try:
        yield held
    finally:
        inside(broker, release)
