"""Somebody who behaves while others do not, in a process of its own: what it waits for is the server alone.

    python -m tests.server.bystander HOST PORT

commits and reads back, some hundred times a second, until its standard input ends, and then says how long it took.
"""

import json
import subprocess
import sys
import threading
import time
from dataclasses import dataclass

from muster.protocol.apis import ApiKey
from tests.server.raw import Raw, commit_body, fetch_offsets

PAUSE_S = 0.005


@dataclass(frozen=True, slots=True)
class Waited:
    """Times of a commit with a fetch behind it."""

    count: int
    median_ms: float
    p99_ms: float
    most_ms: float

    def __str__(self) -> str:
        return f"{self.count} times, {self.median_ms:.1f} ms (p99 {self.p99_ms:.1f}, most {self.most_ms:.1f})"


class Bystander:
    """Runs while in a `with`; `waited` tells afterwards. Fails if it was answered wrongly even once."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._command = [sys.executable, "-m", "tests.server.bystander", address[0], str(address[1])]
        self.waited: Waited | None = None

    def __enter__(self) -> "Bystander":
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"
        return self

    def __exit__(self, *_: object) -> None:
        said, _nothing = self._process.communicate(timeout=60)
        assert self._process.returncode == 0, said
        self.waited = Waited(**json.loads(said))


def _wait_for_the_end(done: threading.Event) -> None:
    sys.stdin.read()
    done.set()


def main(host: str, port: int) -> None:
    times: list[float] = []
    done = threading.Event()
    with Raw((host, port), timeout_s=60) as raw:
        number = 0
        while not done.is_set():
            number += 1
            started = time.perf_counter()
            answer = raw.ask(ApiKey.OFFSET_COMMIT, 8, **commit_body("bystander", "orders", {0: number}))
            assert answer["topics"][0]["partitions"][0]["errorCode"] == 0, answer
            assert fetch_offsets(raw, "bystander") == (0, {("orders", 0): number})
            times.append((time.perf_counter() - started) * 1000)
            if number == 1:
                times.clear()
                threading.Thread(target=_wait_for_the_end, args=(done,), daemon=True).start()
                print("ready", flush=True)
            time.sleep(PAUSE_S)
    times.sort()
    print(
        json.dumps(
            {
                "count": len(times),
                "median_ms": times[len(times) // 2],
                "p99_ms": times[len(times) * 99 // 100],
                "most_ms": times[-1],
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
