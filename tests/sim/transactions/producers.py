"""Made-up transactional producers, of the older flow and of the newer: they do what Kafka's own do, and some die.

A producer sends one request at a time. A request is on its way until the world lets the server have it, and its answer
may be lost. Then the producer asks for the same again, is restarted, or gives the transaction up and aborts it while
what it sent before is still on its way. After that one of the newer flow begins the next transaction: that is what the
bump of the epoch at every end is for. One of the older flow has to ask for another epoch first. A restarted producer is
a new one under the same transactional id; what its earlier self sent may still arrive.
"""

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from muster.codec.error_codes import ErrorCode
from muster.codec.transaction_log import TopicPartition
from tests.sim.transactions.logs import DATA, OFFSETS, Intent

NONE = ErrorCode.NONE
RETRIABLE = frozenset({
    ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
})  # fmt: skip
INIT, ADD, WRITE, END = "init", "add", "write", "end"


@dataclass(slots=True, eq=False)
class Sent:
    """A request. `intent` is the transaction that it is meant for."""

    producer: "Producer"
    life: int
    kind: str
    producer_id: int
    producer_epoch: int
    intent: Intent | None = None
    partition: TopicPartition = DATA[0]
    others: tuple[TopicPartition, ...] = ()
    """Those that are added with it."""
    value: int = 0
    commit: bool = False
    is_known: bool = False
    is_slow: bool = False
    """It is on its way for long: its producer has given it up when it arrives."""

    def __str__(self) -> str:
        end = "commit" if self.commit else "abort"
        about = {ADD: self.partition, WRITE: f"{self.value} to {self.partition}", END: end}
        return (
            f"{self.producer.name} {self.kind} {about.get(self.kind, '')} as {self.producer_id}/{self.producer_epoch}"
        )


@dataclass(slots=True)
class Story:
    """What a producer knows of one of its transactions."""

    intent: Intent
    acknowledged: list[tuple[TopicPartition, int]] = field(default_factory=list)
    ends_sent: list[bool] = field(default_factory=list)
    ended: bool | None = None
    """How the transaction ended, by an answer without an error."""
    failed: bool = False
    """An end was refused for good."""


class Producer:
    """One producer. `life` grows with every restart, so that answers to an earlier self are not heard."""

    def __init__(self, name: str, transactional_id: str, is_newer: bool, rng: Random) -> None:
        self.name = name
        self.transactional_id = transactional_id
        self.is_newer = is_newer
        self.rng = rng
        self.life = 0
        self.stories: list[Story] = []
        self.commits = 0
        self._begin()

    def _begin(self) -> None:
        self.producer_id, self.producer_epoch = -1, -1
        self.waits_for: Sent | None = None
        self.again: Sent | None = None
        self.story: Story | None = None
        self.added: set[TopicPartition] = set()
        self.must_init = True
        self.must_abort = False

    def restart(self) -> None:
        self.life += 1
        self._begin()

    def next_request(self, next_value: int) -> Sent:
        """What it sends when it waits for nothing."""
        if self.again is not None:
            sent, self.again = self.again, None
            return self._send_again(sent)
        if self.must_init:
            return self._sent(INIT, is_known=self.producer_id != -1)
        if self.story is None:
            self.story = Story(Intent(self.name, len(self.stories)))
            self.stories.append(self.story)
            self.added.clear()
        if self.must_abort or (self.added and self.rng.random() < 0.22):
            commit = not self.must_abort and self.rng.random() < 0.7
            self.story.ends_sent.append(commit)
            return self._sent(END, commit=commit)
        partition = self.rng.choice((*DATA, OFFSETS))
        if not self.is_newer and partition not in self.added:
            others = self.rng.sample((*DATA, OFFSETS), self.rng.randint(0, 3))
            return self._sent(ADD, partition=partition, others=tuple(others))
        return self._sent(WRITE, partition=partition, value=next_value)

    def _sent(self, kind: str, **fields: Any) -> Sent:
        intent = None if self.story is None else self.story.intent
        self.waits_for = Sent(self, self.life, kind, self.producer_id, self.producer_epoch, intent, **fields)
        return self.waits_for

    def loses_patience(self) -> Sent | None:
        """No answer comes: the same once more, or what it does instead. None if it was restarted."""
        waited = self.waits_for
        assert waited is not None
        if self.rng.random() < 0.3:
            self.restart()
            return None
        if waited.kind == WRITE and self.rng.random() < 0.6:
            self.waits_for, self.must_abort = None, True
            return self.next_request(0)
        return self._send_again(waited)

    def _send_again(self, sent: Sent) -> Sent:
        if sent.kind == END and self.story is not None:
            self.story.ends_sent.append(sent.commit)
        self.waits_for = replace(sent)  # an answer to the first is not heard any more
        return self.waits_for

    def hear(self, sent: Sent, error: ErrorCode, producer_id: int = -1, producer_epoch: int = -1) -> None:
        """An answer; one to what it does not wait for is nobody's."""
        if self.waits_for is not sent:
            return
        self.waits_for = None
        if error is NONE:
            self._go_on(sent, producer_id, producer_epoch)
        elif error in RETRIABLE or (error is ErrorCode.UNKNOWN_SERVER_ERROR and sent.kind != INIT):
            self.again = sent
        elif sent.kind == INIT:
            self.restart()
        else:
            self._is_over(sent)

    def _go_on(self, sent: Sent, producer_id: int, producer_epoch: int) -> None:
        if sent.kind == INIT:
            self.producer_id, self.producer_epoch = producer_id, producer_epoch
            self.must_init = self.must_abort = False
            self.story = None
        elif sent.kind == ADD:
            self.added |= {sent.partition, *sent.others}
        elif sent.kind == WRITE:
            assert self.story is not None
            self.added.add(sent.partition)
            self.story.acknowledged.append((sent.partition, sent.value))
        else:
            self._ended(sent, producer_id, producer_epoch)

    def _ended(self, sent: Sent, producer_id: int, producer_epoch: int) -> None:
        assert self.story is not None
        self.story.ended = sent.commit
        self.commits += sent.commit
        self.must_init = self.must_abort and not self.is_newer
        self.story, self.must_abort = None, False
        if producer_id != -1:
            self.producer_id, self.producer_epoch = producer_id, producer_epoch

    def _is_over(self, sent: Sent) -> None:
        """An error that ends the transaction: the producer begins anew, or goes on as the one it is."""
        assert self.story is not None
        self.story.failed = sent.kind == END
        if self.is_newer and sent.kind == WRITE and self.rng.random() < 0.5:
            self.must_abort = True
        elif self.rng.random() < 0.5:
            self.must_init = True
            self.story = None
        else:
            self.restart()
