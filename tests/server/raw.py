"""A client that says exactly what it is told to, and a server in a process of its own."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from muster.protocol.apis import ApiKey
from muster.protocol.messages import decode_response, encode_request

TIMEOUT_S = 20.0


class Raw:
    """One connection."""

    def __init__(self, address: tuple[str, int], timeout_s: float = TIMEOUT_S) -> None:
        self.socket = socket.create_connection(address, timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._number = 0

    def send(self, api_key: ApiKey, version: int, **body: Any) -> int:
        self._number += 1
        self.socket.sendall(encode_request(api_key, version, self._number, "raw", body))
        return self._number

    def frame(self) -> bytes:
        """One whole answer, its length included; `EOFError` when the other side hangs up."""
        head = self._exactly(4)
        return head + self._exactly(int.from_bytes(head, "big"))

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise EOFError("the server hung up")
            data += more
        return data

    def hear(self, api_key: ApiKey, version: int) -> tuple[int, Any]:
        return decode_response(api_key, version, self.frame())

    def ask(self, api_key: ApiKey, version: int, **body: Any) -> Any:
        number = self.send(api_key, version, **body)
        heard, answer = self.hear(api_key, version)
        assert heard == number
        return answer

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> "Raw":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ServerProcess:
    """`muster serve`, as users run it."""

    def __init__(self, data: Path, *arguments: str, port: int = 0, files: int | None = None) -> None:
        limited = [] if files is None else ["sh", "-c", f'ulimit -Sn {files}; exec "$@"', "serve"]
        self._command = [
            *limited, sys.executable, "-m", "muster", "serve", "--listen", f"127.0.0.1:{port}", "--data", str(data),
            "--set", "offsets.topic.num.partitions=4", "--set", "group.initial.rebalance.delay.ms=0",
            "--set", "group.min.session.timeout.ms=10", *arguments,
        ]  # fmt: skip
        self.log = data.parent / f"{data.name}.log"
        self.address = ("", 0)
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> "ServerProcess":
        with self.log.open("a") as log:
            self.process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        match = re.match(r"muster is ready at ([\d.]+):(\d+)", line)
        assert match, f"{line!r}; {self.log.read_text()[-2000:]}"
        self.address = match[1], int(match[2])
        return self

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self, number: int = signal.SIGTERM) -> int:
        assert self.process is not None
        os.kill(self.process.pid, number)
        return self.process.wait(30)

    def __enter__(self) -> "ServerProcess":
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()
        if self.process is not None and self.process.stdout is not None:
            self.process.stdout.close()


def create_topic(address: tuple[str, int], name: str, partitions: int) -> None:
    with Raw(address) as raw:
        topic = {"name": name, "numPartitions": partitions, "replicationFactor": 1, "assignments": [], "configs": []}
        answer = raw.ask(ApiKey.CREATE_TOPICS, 5, topics=[topic], timeoutMs=5_000, validateOnly=False)
        assert answer["topics"][0]["errorCode"] in (0, 36), answer


def commit_body(group: str, topic: str, offsets: dict[int, int]) -> dict[str, Any]:
    partitions = [
        {"partitionIndex": partition, "committedOffset": offset, "committedLeaderEpoch": -1, "committedMetadata": ""}
        for partition, offset in offsets.items()
    ]
    return {
        "groupId": group, "generationIdOrMemberEpoch": -1, "memberId": "", "groupInstanceId": None,
        "topics": [{"name": topic, "partitions": partitions}],
    }  # fmt: skip


def fetch_offsets(raw: Raw, group: str) -> tuple[int, dict[tuple[str, int], int]]:
    """The error, and every committed offset."""
    asked = [{"groupId": group, "memberId": None, "memberEpoch": -1, "topics": None}]
    (answer,) = raw.ask(ApiKey.OFFSET_FETCH, 9, groups=asked, requireStable=False)["groups"]
    return answer["errorCode"], {
        (topic["name"], each["partitionIndex"]): each["committedOffset"]
        for topic in answer["topics"]
        for each in topic["partitions"]
    }


def wait_until_loaded(address: tuple[str, int], group: str) -> dict[tuple[str, int], int]:
    deadline = time.monotonic() + TIMEOUT_S
    with Raw(address) as raw:
        while True:
            error, offsets = fetch_offsets(raw, group)
            if not error:
                return offsets
            assert time.monotonic() < deadline, error
            time.sleep(0.02)


@contextlib.contextmanager
def running(data: Path, *arguments: str) -> Iterator[ServerProcess]:
    with ServerProcess(data, *arguments) as server:
        yield server
