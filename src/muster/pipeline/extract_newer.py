"""What the records of newer groups say about subscriptions and assignments, out of their JSON, as columns.

There are few of them beside the commits, so they are read one by one. `json` stays beside these columns: what is not
made a column here (tasks to be revoked, standby tasks, topologies) can be asked there.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from muster.tables.schemas import ASSIGNED

Array = Any  # pyarrow has no types of its own

_SUBSCRIBED = {5: "subscribedTopicNames", 10: "subscribedTopicNames", 16: "topics"}
"""Types whose value lists topics: a member's own, or those that a group's regular expression matches."""
_ASSIGNED = {
    7: "topicPartitions",
    8: "assignedPartitions",
    13: "topicPartitions",
    14: "assignedPartitions",
    21: "activeTasks",
    22: "activeTasks",
}

_WITH_LISTS = _SUBSCRIBED.keys() | _ASSIGNED.keys()


class NewerColumns(NamedTuple):
    """One row for each record given; NULL where its kind has no such thing, or where it is a tombstone."""

    subscribed_topics: Array
    subscribed_expression: Array
    assignment: Array


def newer_columns(
    record_types: Iterable[int | None], texts: Iterable[str | None], topic_names: Mapping[str, str]
) -> NewerColumns:
    """Columns of these values of types 3 to 23 (any other type, or None for a text, gives NULLs).

    An assignment has topic ids, and names only where `topic_names` knows them. The tasks of a streams group belong to
    subtopologies: the subtopology's id stands in the place of the topic, for active tasks only.
    """
    topics: list[list[str] | None] = []
    expressions: list[str | None] = []
    assignments: list[list[dict[str, Any]] | None] = []
    for record_type, text in zip(record_types, texts, strict=True):
        value = json.loads(text) if text is not None and record_type in _WITH_LISTS else {}
        topics.append(value.get(_SUBSCRIBED.get(record_type or 0)))
        expressions.append(value.get("subscribedTopicRegex") or None)
        assigned = value.get(_ASSIGNED.get(record_type or 0))
        assignments.append(None if assigned is None else [_assigned(one, topic_names) for one in assigned])
    return NewerColumns(
        pa.array(topics, pa.list_(pa.string())),
        pa.array(expressions, pa.string()),
        pa.array(assignments, pa.list_(ASSIGNED)),
    )


def _assigned(one: Mapping[str, Any], topic_names: Mapping[str, str]) -> dict[str, Any]:
    topic_id = one.get("topicId")
    topic = one.get("subtopologyId") if topic_id is None else topic_names.get(topic_id)
    return {"topic": topic, "topic_id": topic_id, "partitions": one["partitions"]}
