"""InitProducerId: an id for a producer, which no producer of this data directory has had before.

Ids are handed out from blocks of a thousand. A block is written down, durably, before the first id of it is used, so
after a crash the next block begins, and ids are skipped instead of being handed out twice. Kafka does it the same way.
Logs that a broker left may know producers of their own: the first block begins behind those.

Versions
    0   the first one
    2   flexible
    3   the id and epoch that the producer has had; only those of transactions matter
    4, 5  more errors
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from muster.codec.error_codes import ErrorCode
from muster.codec.primitives import Buffer
from muster.errors import Malformed, described
from muster.protocol.apis import ApiKey
from muster.protocol.messages import decode_request, encode_response
from muster.segments.checkpoints import decode_lines, encode_lines
from muster.segments.files import Files, read_file, replace_file
from muster.server.connection import PendingReply
from muster.server.server_log import ServerLog

FILE = "muster-producer-ids"
BLOCK = 1000
NO_ID, NO_EPOCH = -1, -1
LARGEST_ID = (1 << 63) - 1


class InitProducerId(NamedTuple):
    transactional_id: str | None
    producer_id: int = NO_ID
    epoch: int = NO_EPOCH
    """What the producer says it has had."""


class ProducerIdAnswer(NamedTuple):
    error: ErrorCode
    producer_id: int = NO_ID
    epoch: int = NO_EPOCH


def decode(version: int, data: Buffer, position: int = 0, end: int | None = None) -> InitProducerId:
    body = decode_request(ApiKey.INIT_PRODUCER_ID, version, data, position, end)
    return InitProducerId(body["transactionalId"], body["producerId"], body["producerEpoch"])


def encode(version: int, correlation_id: int, answer: ProducerIdAnswer) -> bytes:
    body: dict[str, Any] = {
        "errorCode": answer.error, "producerId": answer.producer_id, "producerEpoch": answer.epoch,
    }  # fmt: skip
    return encode_response(ApiKey.INIT_PRODUCER_ID, version, correlation_id, body)


class ProducerIds:
    """Hands out ids, in the thread of the event loop; blocks are written down in another."""

    def __init__(self, files: Files, directory: Path, server_log: ServerLog, largest_known: Callable[[], int]) -> None:
        """`largest_known` is the largest id in any log, -1 if there is none."""
        self._files = files
        self._path = directory / FILE
        self._largest_known = largest_known
        self._server_log = server_log
        self._loop = asyncio.get_running_loop()
        self._next, self._end = 0, 0
        self._waiting: deque[Callable[[int], None]] = deque()
        self._reserving: asyncio.Task[None] | None = None

    def hand_out(self, asked: InitProducerId, reply: PendingReply) -> None:
        """Answer with an id, now or when a block of them is written down."""
        if asked.transactional_id == "" or (asked.producer_id == NO_ID) != (asked.epoch == NO_EPOCH):
            reply.answer(ProducerIdAnswer(ErrorCode.INVALID_REQUEST))
            return
        self.take(partial(_hand_to, reply))

    def take(self, taken: Callable[[int], None]) -> None:
        """Call `taken` with an id, now or when a block of them is written down; `NO_ID` where that cannot be."""
        self._waiting.append(taken)
        self._answer()
        if self._waiting and self._reserving is None:
            self._reserving = self._loop.create_task(self._reserve())

    def _answer(self) -> None:
        while self._waiting and self._next < self._end:
            self._next += 1
            self._waiting.popleft()(self._next - 1)

    async def _reserve(self) -> None:
        """Write a block down and answer from it; those who find none are told to try again."""
        try:
            while self._waiting:
                at_least = (self._largest_known() // BLOCK + 1) * BLOCK
                self._next, self._end = await self._loop.run_in_executor(None, self._reserved, at_least)
                self._answer()
        except (OSError, Malformed) as error:
            self._server_log.say(f"no producer id can be handed out: {described(error)}.", event="producer ids")
            while self._waiting:
                self._waiting.popleft()(NO_ID)
        finally:
            self._reserving = None

    def _reserved(self, at_least: int) -> tuple[int, int]:
        """In any thread: the next block, which is ours for good."""
        start = at_least
        if self._files.exists(self._path):  # then the logs were looked at when it was made
            lines = decode_lines(read_file(self._files, self._path), self._path.name)
            if len(lines) != 1 or not lines[0].isdecimal():
                raise Malformed(f"{self._path} does not say which producer ids are left: {lines[:1]}")
            start = int(lines[0])
        if start + BLOCK > LARGEST_ID:
            raise Malformed(f"{self._path} says that all producer ids are used up")
        replace_file(self._files, self._path, encode_lines([str(start + BLOCK)]), "producer-ids")
        return start, start + BLOCK


def _hand_to(reply: PendingReply, producer_id: int) -> None:
    if producer_id == NO_ID:
        reply.answer(ProducerIdAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    else:
        reply.answer(ProducerIdAnswer(ErrorCode.NONE, producer_id, 0))
