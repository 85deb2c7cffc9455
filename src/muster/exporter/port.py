"""Answers `GET /metrics`."""

from collections.abc import Callable

from muster.exporter.page import CONTENT_TYPE
from muster.http_port import HttpPort, Reply

METRICS = "metrics"
PATHS = (f"/{METRICS}", "/")
NOT_THERE = Reply(404, "text/plain; charset=utf-8", b"There is /metrics, and nothing else.\n")


class MetricsPort(HttpPort):
    """Serves what `text` says at the time."""

    def __init__(self, host: str, port: int, text: Callable[[], bytes]) -> None:
        super().__init__(host, port, lambda path, *_: _reply(path, text), "--listen")
        self.url += METRICS


def _reply(path: str, text: Callable[[], bytes]) -> Reply:
    return Reply(200, CONTENT_TYPE, text()) if path.partition("?")[0] in PATHS else NOT_THERE
