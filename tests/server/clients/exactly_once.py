"""A service that reads topics and writes others, in transactions, and what looks after it."""

import threading
import time
from typing import Any, Self

from tests.server.clients.places import WAIT_S, Place, is_resolved, until, values
from tests.server.clients.programs import Client, Program, Refused

PARTITIONS = 3
SILENT_S = 4.0


class ExactlyOnce:
    """A program that reads a topic and writes another, in transactions; whoever starts it again has the same id."""

    def __init__(
        self, client: Client, place: Place, about: str, session_ms: int = 1_000, silent_s: float = SILENT_S
    ) -> None:
        self._client, self._place, self._session_ms, self._silent_s = client, place, session_ms, silent_s
        self._program: Program | None = None
        self._name = self.id = self.group = self.inputs = f"{client.name}-{about}"
        self.output = f"{self.inputs}-output"
        for topic in (self.inputs, self.output):
            place.create_topic(topic, partitions=PARTITIONS)

    @property
    def program(self) -> Program:
        assert self._program is not None
        return self._program

    def __enter__(self) -> Self:
        return self.restart()

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        if self._program is not None:
            self._program.kill()
            self._program = None

    def restart(self) -> Self:
        """As whatever looks after a service does: a new process in place of one that has ended, or has to."""
        self.kill()
        self._program = self._client.start(self._place.bootstrap_servers)
        about = {"member": "worker", "group": self._name, "topic": self.inputs, "id": self._name}
        self._ask_within(WAIT_S, "worker", session_ms=self._session_ms, **about)
        return self

    def _ask_within(self, seconds: float, order: str, **about: Any) -> Any:
        """Ask a program that is ended when it is silent for so long."""
        watchdog = threading.Timer(seconds, self.program.kill)
        watchdog.start()
        try:
            return self.program.ask(order, **about)
        finally:
            watchdog.cancel()

    def give(self, inputs: list[str]) -> None:
        self.program.ask("transactional", producer="giver", id=f"{self._name}-giver", timeout_ms=60_000)
        self.program.ask("begin", producer="giver")
        self.program.ask("send", producer="giver", topic=self.inputs, values=inputs, partitions=PARTITIONS)
        self.program.ask("commit_transaction", producer="giver")

    def process(self) -> int:
        """Everything of a transaction but its end, with the inputs that are there; returns how many.

        A program that is silent for long is ended: confluent-kafka 2.16.1 waits for ever in
        send_offsets_to_transaction once its broker was away, with Kafka 4.3.0 too.
        """
        return int(self._ask_within(self._silent_s, "process", member="worker", output=self.output))

    def process_some(self) -> None:
        """The same, when some are there, and started again if it cannot."""
        deadline = time.monotonic() + WAIT_S
        while not self._processed():
            assert time.monotonic() < deadline, "no inputs come"

    def _processed(self) -> int:
        try:
            return self.process()
        except Refused:
            self.restart()
            return 0

    def end(self) -> None:
        self._ask_within(WAIT_S, "commit_transaction", producer="worker")

    def is_told_of_the_end(self) -> None:
        """Hear that the transaction is committed; what does not know that is started again."""
        try:
            self.program.hear()
        except Refused:
            self.restart()

    def done(self) -> list[str]:
        return values(self._place, self.output, PARTITIONS)

    def finish(self, inputs: list[str]) -> None:
        """Go on to the end; every input must be in the output once."""
        deadline = time.monotonic() + WAIT_S
        wanted = sorted(f"done {value}" for value in inputs)
        while True:
            if self._processed():
                self.program.tell("commit_transaction", producer="worker")
                self.is_told_of_the_end()
            elif len(self.done()) >= len(wanted):
                break
            assert time.monotonic() < deadline, self.done()
        until(lambda: is_resolved(self._place, self.output, PARTITIONS))
        assert self.done() == wanted
