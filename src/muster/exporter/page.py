"""The page: metrics as text, made once for each round; what a scrape itself must tell, its ages, is put on top."""

import time
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from typing import NamedTuple

from prometheus_client.core import Metric

from muster.exporter.families import Names, families, health_families
from muster.exporter.health import Health
from muster.exporter.view import View

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def rendered(metrics: Iterable[Metric]) -> bytes:
    """Text of metrics that have values; a family without any has no lines.

    prometheus-client renders them, too, and looks at every name of every label of every line: five times the work.
    """
    escaped = _Escaped()
    return "".join(line for metric in metrics if metric.samples for line in _lines(metric, escaped)).encode()


def _lines(metric: Metric, escaped: "_Escaped") -> Iterator[str]:
    name = f"{metric.name}_total" if metric.type == "counter" else metric.name
    yield f"# HELP {name} {metric.documentation}\n# TYPE {name} {metric.type}\n"
    for sample in metric.samples:
        labels = ",".join([f'{key}="{escaped[value]}"' for key, value in sample.labels.items()])
        yield f"{name}{{{labels}}} {sample.value}\n" if labels else f"{name} {sample.value}\n"


class _Escaped(dict[str, str]):
    """Values of labels as the page has them. Most occur many times."""

    def __missing__(self, value: str) -> str:
        text = value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
        self[value] = text
        return text


class _Shown(NamedTuple):
    body: bytes
    health: Health


class Page:
    """Shared by the thread that asks and those that answer scrapes: replaced whole, never changed."""

    def __init__(
        self, version: str, names: Iterable[Names] = tuple(Names), clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._version, self._names, self._clock = version, tuple(names), clock
        self._shown = _Shown(b"", Health())

    def show(self, health: Health, view: View | None = None) -> None:
        """Without a view the one that is shown stays."""
        body = None if view is None else rendered(families(view, self._names))
        self._shown = _Shown(self._shown.body if body is None else body, deepcopy(health))

    def text(self) -> bytes:
        body, health = self._shown
        return rendered(health_families(health, self._clock(), self._version)) + body
