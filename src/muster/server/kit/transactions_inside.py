"""Transactions, for a test that looks inside, and how they are forgotten when a server goes back to nothing."""

import asyncio
from collections.abc import Iterator
from typing import Any

from muster.codec.error_codes import ErrorCode
from muster.core.transactions.states import AT_REST
from muster.core.transactions.transactions import Transaction
from muster.core.transactions.writes import WriteMarkers
from muster.server.assembly import Parts
from muster.server.cluster.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, Happened, Plan, TopicChange


class TransactionsInside:
    """Everything here runs in the thread of the event loop."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._loop = asyncio.get_running_loop()

    def _all(self) -> Iterator[Transaction]:
        for led in self._parts.transactions.led.by_number.values():
            if led.coordinator is not None:
                yield from led.coordinator.transactions.values()

    def transactions(self) -> list[dict[str, Any]]:
        """The last transaction of every transactional id."""
        return [_described(each) for each in sorted(self._all(), key=lambda each: each.transactional_id)]

    async def forget(self) -> None:
        """No transactional id is known any more; offsets of open transactions are gone."""
        parts = self._parts.transactions
        for each in list(self._all()):
            if each.state not in AT_REST:
                await self._abort_offsets(each)
        if parts.topic.is_there:
            parts.leadership.let_all_go()
            await self._parts.topic_changes.carry_out(self._without_topic)

    async def _abort_offsets(self, transaction: Transaction) -> None:
        partitions = [partition for partition in transaction.partitions if partition[0] == OFFSETS_TOPIC]
        markers = WriteMarkers(
            transaction.transactional_id, transaction.producer_id, transaction.producer_epoch, False, 0, (), 0
        )
        for partition in partitions:
            settled: asyncio.Future[ErrorCode] = self._loop.create_future()
            self._parts.transactions.markers.write_one(partition, markers, True, settled.set_result)
            await settled

    def _without_topic(self) -> Plan:
        topic = self._parts.cluster.topics.get(TRANSACTIONS_TOPIC)
        changes = [] if topic is None else [TopicChange(Happened.DELETED, topic)]
        return Plan(changes, lambda outcomes: None)


def _described(transaction: Transaction) -> dict[str, Any]:
    record = transaction.record
    return {
        "transactional_id": transaction.transactional_id,
        "state": transaction.state.kafka_name,
        "producer_id": record.producer_id,
        "epoch": record.producer_epoch,
        "timeout_ms": record.timeout_ms,
        "started_ms": record.start_ms,
        "partitions": [list(partition) for partition in record.partitions],
    }
