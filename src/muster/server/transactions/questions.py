"""Questions about transactions: DescribeTransactions, and ListTransactions with its patterns."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from muster.codec.error_codes import ErrorCode
from muster.core.transactions.events import (
    DescribedTransaction,
    DescribeTransaction,
    ListedTransaction,
    ListTransactionsAnswer,
)
from muster.protocol.apis import ApiKey
from muster.server.connection import PendingReply
from muster.server.dispatch import Handler, Request
from muster.server.groups.requests import CombinedReply, GatheredReply, PartialReply
from muster.server.led_partitions import LedTransactions
from muster.server.long_requests import LONG_REQUEST_BYTES, MANY_PARTITIONS, LongRequests
from muster.server.slices import Slices
from muster.server.transactions import wire
from muster.server.transactions.patterns import BadPattern, Matcher, TooCostly, matcher
from muster.server.transactions.serving import Serving

DESCRIBE_REFUSED = DescribedTransaction(ErrorCode.POLICY_VIOLATION)
LIST_REFUSED = ListTransactionsAnswer(ErrorCode.POLICY_VIOLATION)


class TransactionQuestions:
    """`handlers` is the table of them, by API key. Answers of more than `max_response_bytes` are refused."""

    def __init__(
        self,
        transactions: LedTransactions,
        long_requests: LongRequests,
        serving: Serving,
        max_response_bytes: int,
        report_too_large: Callable[[PendingReply], None],
    ) -> None:
        self._transactions = transactions
        self._long = long_requests
        self._max_response_bytes = max_response_bytes
        self._report_too_large = report_too_large
        self.handlers: dict[int, Handler] = {
            ApiKey.DESCRIBE_TRANSACTIONS: serving.handler(
                ApiKey.DESCRIBE_TRANSACTIONS, wire.decode_describe, self._describe, wire.encode_describe
            ),
            ApiKey.LIST_TRANSACTIONS: self._list,
        }

    def _describe(self, request: Request, events: list[DescribeTransaction], reply: PendingReply) -> Slices[None]:
        if not events:
            reply.answer([])
        combined = CombinedReply(
            reply, len(events), self._max_response_bytes, wire.described_bytes, DESCRIBE_REFUSED,
            self._report_too_large,
        )  # fmt: skip
        for place, event in enumerate(events):
            self._transactions.submit(event, PartialReply(combined, (place,)))
            yield

    def _list(self, request: Request, data: bytes, start: int, end: int) -> PendingReply:
        decode = partial(wire.decode_list, request.version, data, start, end)
        reply = request.reply(ApiKey.LIST_TRANSACTIONS, wire.encode_list)
        asked = None if end - start > LONG_REQUEST_BYTES else decode()
        if asked is None or asked.pattern or self._count() > MANY_PARTITIONS:
            self._long.check_room()
            self._long.begin(reply, end - start, self._list_later(decode, reply))
        else:
            self._transactions.submit(asked.event, reply)
        return reply

    def _count(self) -> int:
        coordinators = (led.coordinator for led in self._transactions.by_number.values())
        return sum(len(one.transactions) for one in coordinators if one is not None)

    async def _list_later(self, decode: Callable[[], wire.ListRequest], reply: PendingReply) -> None:
        asked = await self._long.in_thread(decode)
        try:
            matches = matcher(asked.pattern) if asked.pattern else None
        except BadPattern:
            reply.answer(ListTransactionsAnswer(ErrorCode.INVALID_REGULAR_EXPRESSION))
            return
        gathered = GatheredReply(reply)
        self._transactions.submit(asked.event, gathered)
        answer: Any = await gathered.answers
        if matches is not None:
            try:
                listed = await self._long.in_slices(_matching(matches, answer.transactions))
            except TooCostly:
                reply.answer(LIST_REFUSED)
                return
            answer = answer._replace(transactions=listed)
        if wire.listed_bytes(answer) > self._max_response_bytes:
            self._report_too_large(reply)
            answer = LIST_REFUSED
        await self._long.write(reply, answer)


def _matching(matches: Matcher, listed: Iterable[ListedTransaction]) -> Slices[tuple[ListedTransaction, ...]]:
    found: list[ListedTransaction] = []
    for one in listed:
        if (yield from matches.slices(one.transactional_id)):
            found.append(one)
        yield
    return tuple(found)
