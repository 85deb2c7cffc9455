"""The step of a run that says how groups do: it judges (`judge`), and looks for trouble in all it knows (`finder`).

One task does both, with one duckdb: planning queries and opening tables is most of the work of a small cluster. Of the
largest, whose groups are judged by several tasks, another one looks for trouble when these are done.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from muster.pipeline.engine import Engine
from muster.pipeline.finder import Finding, find_in, finding
from muster.pipeline.interval_task import Place
from muster.pipeline.judge import OPENED, Judging, judge_in, judgings
from muster.tables.scratch import limited_duckdb
from muster.tables.storage.changes import Run
from muster.tables.storage.files import Options, WrittenFile


class ToAssess(NamedTuple):
    """What is judged, and of which moment."""

    at_ms: int
    retention_ms: int
    """`offsets.retention.minutes` of the cluster."""
    is_cut: bool
    """The log was truncated."""
    lists_all_topics: bool
    """As a live cluster does: a topic that `log_ends` lacks is not there."""
    damage: Sequence[Mapping[str, Any]]
    """As `finder.remembered_damage` gives it."""


class Assessing(NamedTuple):
    """What one task does: either, or both."""

    judging: Judging | None
    finding: Finding | None
    memory_mb: int


def assess(run: Run, engine: Engine, asked: ToAssess, options: Options = ()) -> dict[str, int]:
    """Make `expiry`, `status`, `verdicts` and `findings`; gives the rows of each that are new or made anew."""
    place = Place(run.store.address, tuple(options), run.run_id, engine.task_memory_mb)
    works = judgings(run, asked.at_ms, asked.retention_ms, asked.is_cut, place)
    looked_into = (run, asked.at_ms, asked.lists_all_topics, asked.damage, place)
    if len(works) == 1:
        both = Assessing(works[0], finding(*looked_into, but=OPENED), place.memory_mb)
        return _taken(run, engine.each("expiry, status, verdicts, findings", assess_task, [both]))
    alone = [Assessing(work, None, place.memory_mb) for work in works]
    made = _taken(run, engine.each("expiry, status, verdicts", assess_task, alone))
    last = [Assessing(None, finding(*looked_into), place.memory_mb)]
    return made | _taken(run, engine.each("findings", assess_task, last))


def assess_task(work: Assessing) -> dict[str, list[WrittenFile]]:
    """Files by table; run again, it writes others with the same rows."""
    made: dict[str, list[WrittenFile]] = {}
    with limited_duckdb(work.memory_mb) as connection:
        if work.judging is not None:
            made |= judge_in(connection, work.judging)
        if work.finding is not None:
            made["findings"] = find_in(connection, work.finding, OPENED if work.judging is not None else {})
    return made


def _taken(run: Run, answers: Sequence[Mapping[str, Sequence[WrittenFile]]]) -> dict[str, int]:
    made = {table: [file for answer in answers for file in answer[table]] for table in answers[0]}
    for table, files in made.items():
        if table == "verdicts":
            run.append(table, files)
        else:
            run.replace(table, files)
    return {table: sum(file.rows for file in files) for table, files in made.items()}
