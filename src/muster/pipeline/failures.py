"""What goes wrong inside a task, brought back to the driver as what it is.

Spark hands a task's error on as the text of a Java exception. A full disk or a log that was moved away should reach the
person at the keyboard as one sentence, so an error with a meaning comes back as an answer and is raised again here.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from muster.errors import MusterError

MOST_CHARACTERS = 300
_JAVA_STACK = re.compile(r"^\s+at [\w.$]+\(|^Driver stacktrace:|^JVM stacktrace:", re.MULTILINE)
_SAID = re.compile(r"^(?:: )?([A-Za-z_][\w.]*: \S.*)$", re.MULTILINE)
"""Lines like `ValueError: ...`, and `: org.apache.spark.SparkException: ...` as py4j has it."""


_OUR_LINE = re.compile(r'File "[^"]*[/\\\\]muster[/\\\\]([^"]+)", line (\d+)')


class Failure(NamedTuple):
    """Instead of an answer."""

    error: Exception


class Told(NamedTuple):
    """A task that answers `Failure` where there is no point in another attempt. Picklable as the task is."""

    task: Callable[[Any], Any]
    attempts: int
    """How often Spark tries. Only the last attempt's `OSError` is told: disks and networks have bad moments."""

    def __call__(self, work: Any) -> Any:
        try:
            return self.task(work)
        except MusterError as error:
            return Failure(error)
        except OSError as error:
            if _attempt() + 1 < self.attempts:
                raise
            return Failure(error)


def _attempt() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else int(context.attemptNumber())


def all_answers(given: Sequence[Any]) -> list[Any]:
    """The answers, if all are; raises the first failure among them."""
    for each in given:
        if isinstance(each, Failure):
            raise each.error
    return list(given)


def attempts(master: str, most_failures: str | None) -> int:
    """How often a task is tried under this master: once on one machine, unless it is written local[N,F]."""
    if master.startswith("local[") and "," in master:
        return int(master.rstrip("]").split(",")[1])
    if master == "local" or master.startswith("local["):
        return 1
    return int(most_failures or 4)


def ours(error: BaseException) -> str:
    """What a task raised that nobody foresaw, and where in muster: a mistake. Empty where it is Spark's own trouble."""
    before_java = _JAVA_STACK.split(str(error), maxsplit=1)[0]
    places = _OUR_LINE.findall(before_java)
    if "Traceback (most recent" not in before_java or not places:
        return ""
    file, line = places[-1]
    return f"{gist(error)} (in a task, {file}, line {line})"


def gist(error: BaseException) -> str:
    """What Spark's error is about, in one line: the end of a Python traceback inside, or Java's own first words."""
    before_java = _JAVA_STACK.split(str(error), maxsplit=1)[0]
    said = _SAID.findall(before_java)
    if not said:
        return type(error).__name__
    return str(said[-1] if "Traceback (most recent" in before_java else said[0])[:MOST_CHARACTERS].rstrip(". ")
