"""Requests about transactions: each becomes an event for the coordinator of its transactional id.

The requests behind one of these wait for its answer, on the same connection.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from muster.codec.error_codes import ErrorCode
from muster.codec.transaction_log import TopicPartition
from muster.core.events import ALL_COMMITTED
from muster.core.transactions.events import (
    AddAnswer,
    AddPartitions,
    Asker,
    EndAnswer,
    EndTxn,
    InitAnswer,
    InitProducerId,
    is_used_up,
)
from muster.core.transactions.states import TransactionState
from muster.core.transactions.transactions import Transaction
from muster.core.transactions.writes import WriteMarkers
from muster.protocol.apis import ApiKey
from muster.server.cluster.cluster import Cluster
from muster.server.cluster.topics import INTERNAL_TOPICS, OFFSETS_TOPIC
from muster.server.connection import PendingReply
from muster.server.dispatch import Handler, Request
from muster.server.groups.requests import GroupRequests
from muster.server.led_partitions import LedGroups, LedTransactions
from muster.server.records.first_batches import has_open
from muster.server.records.produce import Writer
from muster.server.records.producer_ids import NO_ID, ProducerIds
from muster.server.server_log import RateLimitedLog
from muster.server.slices import Slices
from muster.server.transactions import wire
from muster.server.transactions.markers import Markers
from muster.server.transactions.serving import Serving
from muster.server.transactions.steps import Step, Steps
from muster.server.transactions.timeouts import LONGEST_ID
from muster.server.transactions.verification import Verification
from muster.server.waiting_replies import Callback

FIRST_COMMIT_THAT_ADDS = 5


class TransactionRequests:
    """`handlers` is the table of them, by API key. `without_transactions` gives ids to producers that have none."""

    def __init__(
        self,
        cluster: Cluster,
        transactions: LedTransactions,
        groups: LedGroups,
        group_requests: GroupRequests,
        serving: Serving,
        verification: Verification,
        markers: Markers,
        producer_ids: ProducerIds,
        steps: Steps,
        fenced: RateLimitedLog,
        without_transactions: Handler,
    ) -> None:
        self._cluster = cluster
        self._transactions = transactions
        self._groups = groups
        self._verification = verification
        self._markers = markers
        self._producer_ids = producer_ids
        self._steps = steps
        self._fenced = fenced
        self._without_transactions = without_transactions
        self.handlers: dict[int, Handler] = {
            ApiKey.INIT_PRODUCER_ID: self._init_producer_id,
            ApiKey.ADD_PARTITIONS_TO_TXN: serving.handler(
                ApiKey.ADD_PARTITIONS_TO_TXN, wire.decode_add_partitions, self._add_partitions,
                wire.encode_add_partitions,
            ),
            ApiKey.ADD_OFFSETS_TO_TXN: self._add_offsets,
            ApiKey.END_TXN: self._end_txn,
            ApiKey.TXN_OFFSET_COMMIT: serving.handler(
                ApiKey.TXN_OFFSET_COMMIT, partial(wire.decode_txn_offset_commit, group_requests.names),
                self._txn_offset_commit, wire.encode_txn_offset_commit,
            ),
            ApiKey.WRITE_TXN_MARKERS: serving.handler(
                ApiKey.WRITE_TXN_MARKERS, wire.decode_write_markers, self._write_markers, wire.encode_write_markers
            ),
        }  # fmt: skip

    # Producers.

    def _init_producer_id(self, request: Request, data: bytes, start: int, end: int) -> PendingReply | None:
        event = wire.decode_init_producer_id(request.version, data, start, end)
        if event is None:
            return self._without_transactions(request, data, start, end)
        reply = request.reply(ApiKey.INIT_PRODUCER_ID, wire.encode_init_producer_id)
        if self._needs_fresh_id(event):
            self._producer_ids.take(partial(self._init_with, event, reply))
        else:
            self._init(event, reply)
        return reply

    def _needs_fresh_id(self, event: InitProducerId) -> bool:
        """Whether the transactional id is new, or its epoch used up; False where its partition is not served here."""
        known = self._known(event)
        if known is None:
            return False
        found = known.get(event.transactional_id)
        return found is None or found.is_used_up

    def _known(self, event: InitProducerId) -> Mapping[str, Transaction] | None:
        """The transactions of the event's partition; None where that is not served here."""
        led = self._transactions.by_number.get(self._transactions.router.partition_of(event))
        return None if led is None or led.coordinator is None else led.coordinator.transactions

    def _init(self, event: InitProducerId, reply: PendingReply) -> None:
        was_open = self._is_open(event)
        self._transactions.submit(event, reply)
        if was_open and not self._is_open(event):
            shown_id = event.transactional_id[:LONGEST_ID]
            self._fenced.say(
                f"transactional id {shown_id!r}: its transaction was open when another producer began, and is aborted",
                transactional_id=shown_id,
            )

    def _is_open(self, event: InitProducerId) -> bool:
        found = (self._known(event) or {}).get(event.transactional_id)
        return found is not None and found.state is TransactionState.ONGOING

    def _init_with(self, event: InitProducerId, reply: PendingReply, fresh_producer_id: int) -> None:
        if fresh_producer_id == NO_ID:
            reply.answer(InitAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        event.fresh_producer_id = fresh_producer_id
        try:
            self._init(event, reply)
        except Exception as error:
            reply.fail(error)

    # Partitions.

    def _add_partitions(self, request: Request, asked: list[wire.ToAdd], reply: PendingReply) -> Slices[None]:
        gathered = _Gathered(len(asked), reply.answer)
        for number, one in enumerate(asked):
            refused = yield from self._refused(one.partitions)
            if refused is not None:
                gathered.put(number, refused)
                continue
            event = AddPartitions(
                None, one.transactional_id, one.producer_id, one.producer_epoch, one.partitions, Asker.ADD_PARTITIONS,
                request.version, verify_only=one.verify_only,
            )  # fmt: skip
            self._transactions.submit(event, Callback(partial(_put_added, gathered, number, event), reply.fail))
            yield

    def _refused(self, partitions: Sequence[TopicPartition]) -> Slices[dict[TopicPartition, ErrorCode] | None]:
        """Errors for each, if there is one that cannot be added: then none is."""
        errors: dict[TopicPartition, ErrorCode] = {}
        for partition in partitions:
            errors[partition] = self._partition_error(*partition)
            yield
        if all(error is ErrorCode.NONE for error in errors.values()):
            return None
        return {
            partition: ErrorCode.OPERATION_NOT_ATTEMPTED if error is ErrorCode.NONE else error
            for partition, error in errors.items()
        }

    def _partition_error(self, name: str, number: int) -> ErrorCode:
        if name in INTERNAL_TOPICS:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        topic = self._cluster.topics.get(name)
        is_there = topic is not None and 0 <= number < topic.partitions
        return ErrorCode.NONE if is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _add_offsets(self, request: Request, data: bytes, start: int, end: int) -> PendingReply:
        asked = wire.decode_add_offsets(request.version, data, start, end)
        reply = request.reply(ApiKey.ADD_OFFSETS_TO_TXN, wire.encode_add_offsets)
        event = AddPartitions(
            None, asked.transactional_id, asked.producer_id, asked.producer_epoch,
            (self._partition_of_group(asked),), Asker.ADD_OFFSETS, request.version,
        )  # fmt: skip
        self._transactions.submit(event, Callback(lambda answer: reply.answer(answer.error), reply.fail))
        return reply

    def _partition_of_group(self, about: Any) -> TopicPartition:
        """Of anything that has a group id."""
        return OFFSETS_TOPIC, self._groups.router.partition_of(about)

    # Offsets.

    def _txn_offset_commit(self, request: Request, asked: wire.CommitRequest, reply: PendingReply) -> Slices[None]:
        event = asked.event
        reply.group_id = event.group_id
        yield
        if not event.partitions:
            reply.answer(ALL_COMMITTED)
            return
        to_add = AddPartitions(
            None, asked.transactional_id, event.producer_id, event.producer_epoch, (self._partition_of_group(event),),
            Asker.TXN_OFFSET_COMMIT, request.version, verify_only=request.version < FIRST_COMMIT_THAT_ADDS,
        )  # fmt: skip
        if self._goes_on(to_add):
            self._groups.submit(event, reply)
            return

        def commit(answer: AddAnswer) -> None:
            error = answer.of_each(to_add)[0]
            if error is ErrorCode.NONE:
                error = self._verification.look(to_add).of_each(to_add)[0]
            event.verification_error = error
            try:
                self._groups.submit(event, reply)
            except Exception as problem:
                reply.fail(problem)

        self._verification.prepare(to_add, commit, reply.fail)

    def _goes_on(self, to_add: AddPartitions) -> bool:
        """Whether a producer has offsets open in the partition already: no coordinator is asked, as with batches."""
        ((_, number),) = to_add.partitions
        led = self._groups.by_number.get(number)
        return led is not None and has_open(led.log, Writer(to_add.producer_id, to_add.producer_epoch))

    # Ends.

    def _end_txn(self, request: Request, data: bytes, start: int, end: int) -> PendingReply:
        event = wire.decode_end_txn(request.version, data, start, end)
        reply = request.reply(ApiKey.END_TXN, wire.encode_end_txn)
        self._steps.reached(Step.BEFORE_PREPARE)
        if is_used_up(event.producer_epoch):
            self._producer_ids.take(partial(self._end_with, event, reply))
        else:
            self._transactions.submit(event, reply)
        return reply

    def _end_with(self, event: EndTxn, reply: PendingReply, fresh_producer_id: int) -> None:
        if fresh_producer_id == NO_ID:  # without one the next epoch would be one that no record has room for
            reply.answer(EndAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        event.fresh_producer_id = fresh_producer_id
        try:
            self._transactions.submit(event, reply)
        except Exception as error:
            reply.fail(error)

    def _write_markers(self, request: Request, asked: list[WriteMarkers], reply: PendingReply) -> Slices[None]:
        """Markers that no coordinator of ours has decided: an operator's, for a transaction that hangs."""
        gathered = _Gathered(len(asked), reply.answer)
        for number, one in enumerate(asked):
            of_one = _Gathered(len(one.partitions), partial(gathered.put, number))
            for place, partition in enumerate(one.partitions):
                self._markers.write_one(partition, one, False, partial(of_one.put, place))
                yield


class _Gathered:
    """Calls back when all of so many results are there."""

    def __init__(self, count: int, then: Callable[[list[Any]], None]) -> None:
        self._results: list[Any] = [None] * count
        self._left = count
        self._then = then
        if not count:
            then([])

    def put(self, number: int, result: Any) -> None:
        self._results[number] = result
        self._left -= 1
        if not self._left:
            self._then(self._results)


def _put_added(gathered: _Gathered, number: int, event: AddPartitions, answer: AddAnswer) -> None:
    gathered.put(number, dict(zip(event.partitions, answer.of_each(event), strict=True)))
