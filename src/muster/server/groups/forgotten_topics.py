"""Offsets of deleted topics: every partition of the offsets topic forgets them, those that are not served included."""

from collections.abc import Callable, Iterable
from functools import partial

from muster.core.events import TopicsDeleted
from muster.server.led_partitions import LedGroup, LedGroups


class ForgottenTopics:
    """Everything here runs in the thread of the event loop."""

    def __init__(self, led_partitions: LedGroups) -> None:
        self._led_partitions = led_partitions
        self._missed: dict[int, list[TopicsDeleted]] = {}
        """Topics deleted while a partition was not served: it forgets their offsets before it answers again."""

    def deleted(self, partitions: Iterable[tuple[str, int]], then: Callable[[], None]) -> None:
        """Forget the offsets of deleted topics' partitions; `then` is called when that is durable.

        A partition of ours that is not served is not waited for: it forgets them when it is served again.
        """
        gone = TopicsDeleted(tuple(partitions))
        all_led = list(self._led_partitions.by_number.values())
        left = len(all_led)

        def one_has() -> None:
            nonlocal left
            left -= 1
            if not left:
                then()

        for led in all_led:
            self._forget(led, gone, one_has)

    def serving(self, led: LedGroup) -> None:
        """A partition is served again."""
        for gone in self._missed.pop(led.partition, ()):
            self._forget(led, gone, lambda: None)

    def _forget(self, led: LedGroup, gone: TopicsDeleted, then: Callable[[], None]) -> None:
        self._led_partitions.apply(led, gone)
        self._led_partitions.when_safe(led, then, partial(self._not_now, led, gone, then))

    def _not_now(self, led: LedGroup, gone: TopicsDeleted, then: Callable[[], None]) -> None:
        self._missed.setdefault(led.partition, []).append(gone)
        then()
