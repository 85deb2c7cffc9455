"""Lines that clients can cause: the first ones are told, then how many there were."""

import io
import json

from muster.server.server_log import LINES_IN_A_WINDOW, WINDOW_S, RateLimitedLog, ServerLog


class Told:
    """A log, and a clock to turn."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._stream = io.StringIO()
        self.limited = RateLimitedLog(ServerLog(self._stream, as_json=True), "sent away", lambda: self.now_s)

    def say(self, count: int) -> None:
        for number in range(count):
            self.limited.say(f"client {number} was sent away", peer=str(number))

    @property
    def lines(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self._stream.getvalue().splitlines()]


def test_a_few_lines_are_all_written() -> None:
    told = Told()
    told.say(LINES_IN_A_WINDOW)
    told.now_s = 2 * WINDOW_S
    told.limited.summarize()
    assert [line["peer"] for line in told.lines] == [str(number) for number in range(LINES_IN_A_WINDOW)]
    assert {line["event"] for line in told.lines} == {"sent away"}


def test_a_flood_becomes_its_beginning_and_a_number() -> None:
    told = Told()
    told.say(10_000)
    told.now_s = WINDOW_S - 1
    told.limited.summarize()
    assert len(told.lines) == LINES_IN_A_WINDOW, "its minute is not over"
    told.now_s = WINDOW_S
    told.limited.summarize()
    assert len(told.lines) == LINES_IN_A_WINDOW + 1
    assert told.lines[-1]["untold"] == 10_000 - LINES_IN_A_WINDOW
    assert told.lines[-1]["text"] == "9900 more like this in 60 s, the last: client 9999 was sent away"
    told.say(1)
    assert told.lines[-1]["text"] == "client 0 was sent away", "the next minute has lines of its own"
