"""kcat obeys the orders of the client matrix. It is a command: there is a process for each member and each producer.

What its members have been assigned is read off what they tell people; a producer says nothing before it ends.
"""

import re
import signal
import subprocess
import threading
import time
from typing import IO, Any

WAIT_S = 60
FULL_BUFFER = "\n" * 4096
"""kcat reads by the kilobyte, and what is left over waits for more; lines without text are not sent."""
_REBALANCED = re.compile(r"^% Group .* rebalanced")
_PARTITION = re.compile(r"\[(\d+)\]")


class Member:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.assigned: set[int] = set()
        self.values: list[str] = []
        assert process.stdout is not None
        assert process.stderr is not None
        self._threads = [
            threading.Thread(target=self._hear_values, args=(process.stdout,)),
            threading.Thread(target=self._hear_assignments, args=(process.stderr,)),
        ]
        for thread in self._threads:
            thread.start()

    def end(self, how: signal.Signals) -> None:
        self.process.send_signal(how)
        self.process.wait(WAIT_S)
        for thread in self._threads:
            thread.join(WAIT_S)

    def _hear_values(self, lines: IO[str]) -> None:
        with lines:
            self.values.extend(line.rstrip("\n") for line in lines)

    def _hear_assignments(self, lines: IO[str]) -> None:
        with lines:
            for line in lines:
                if _REBALANCED.match(line):
                    self._rebalanced(line)

    def _rebalanced(self, line: str) -> None:
        partitions = {int(number) for number in _PARTITION.findall(line)}
        if "revoke" in line:
            self.assigned = self.assigned - partitions
        else:
            self.assigned = self.assigned | partitions


class Kcat:
    def __init__(self, kcat: str, bootstrap: str) -> None:
        self._kcat, self._bootstrap = kcat, bootstrap
        self._members: dict[str, Member] = {}
        self._producers: dict[str, subprocess.Popen[str]] = {}
        self._told: dict[str, Any] = {}

    def ask(self, order: str, **about: Any) -> Any:
        return getattr(self, f"_{order}")(**about)

    def tell(self, order: str, **about: Any) -> None:
        self._told = about
        self.ask(order, **about)

    def hear(self) -> None:
        """The end of the producer that was told something: what it was given is delivered, or it failed."""
        producer = self._producers.pop(self._told["topic"])
        _, said = producer.communicate(timeout=WAIT_S)
        assert producer.returncode == 0, said

    def kill(self) -> None:
        for member in self._members.values():
            member.end(signal.SIGKILL)
        for producer in self._producers.values():
            producer.kill()
            producer.communicate()

    def pause(self) -> None:
        for member in self._members.values():
            member.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        for member in self._members.values():
            member.process.send_signal(signal.SIGCONT)

    def _start(self, *arguments: str, **settings: Any) -> subprocess.Popen[str]:
        given = [f"-X{name.replace('_', '.')}={value}" for name, value in settings.items() if value is not None]
        return subprocess.Popen(
            [self._kcat, "-E", "-u", "-b", self._bootstrap, *given, *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8",
        )  # fmt: skip

    def _produce(self, topic: str, values: list[str], codec: str) -> None:
        if topic not in self._producers:
            arguments = ["-P", "-t", topic, "-p", "0"]
            self._producers[topic] = self._start(
                *arguments, enable_idempotence="true", compression_codec=codec, linger_ms=20
            )
        pipe = self._producers[topic].stdin
        assert pipe is not None
        pipe.write("\n".join([*values, FULL_BUFFER]))
        pipe.flush()

    def _join(
        self, member: str, group: str, topic: str, session_ms: int, assignor: str | None, instance: str | None
    ) -> None:
        process = self._start(
            "-G", group, topic,
            client_id=member, auto_offset_reset="earliest", enable_auto_commit="false",
            session_timeout_ms=session_ms, heartbeat_interval_ms=200,
            partition_assignment_strategy=assignor, group_instance_id=instance,
        )  # fmt: skip
        self._members[member] = Member(process)

    def _poll(self, members: list[str]) -> dict[str, Any]:
        time.sleep(0.05)
        of = self._members
        return {name: {"assigned": sorted(of[name].assigned), "values": list(of[name].values)} for name in members}

    def _leave(self, member: str) -> None:
        self._members.pop(member).end(signal.SIGTERM)
