"""Whether a source is the log that the tables were made of, in sentences. Pure."""

from collections.abc import Mapping, Sequence

from muster.errors import BadInput
from muster.pipeline.plan import Plan
from muster.segments.sources import OFFSETS_TOPIC
from muster.tables.manifest import Manifest

MOST_TOLD = 5


def check_same_cluster(manifest: Manifest, cluster_id: str | None, topic_names: Mapping[str, str], tables: str) -> None:
    """Refuse a source of another cluster, or of another offsets topic, as far as ids tell."""
    known = manifest.source
    if known.get("cluster_id") and cluster_id and known["cluster_id"] != cluster_id:
        raise BadInput(
            f"the tables in {tables} are of cluster {known['cluster_id']}, the source is of {cluster_id}. "
            "Give every cluster a directory of its own."
        )
    ids, known_ids = (
        {topic_id for topic_id, name in names.items() if name == OFFSETS_TOPIC}
        for names in (topic_names, known.get("topic_names") or {})
    )
    if ids and known_ids and not ids & known_ids:
        raise BadInput(
            f"the tables in {tables} are of the {OFFSETS_TOPIC} with the id {min(known_ids)}, the source's has the id "
            f"{min(ids)}: another cluster, or a topic that was created anew. Give it tables of its own."
        )


def check_same_log(planned: Plan, tables: str) -> None:
    """Refuse a log that has other records than were read."""
    if planned.conflicts:
        number, offset = planned.conflicts[0]
        raise BadInput(
            f"the log of partition {number} in the source is not the one that the tables in {tables} were made of: at "
            f"offset {offset} it has another record than was read before, and no newer leader epoch says that it was "
            "cut. It is of another cluster, or of a copy that went on by itself. Nothing was changed. Give every "
            "cluster tables of its own; if this log was set back (a backup was restored), --accept-truncation "
            "withdraws what was read behind the last record known to both."
        )


def left_alone(planned: Plan) -> list[str]:
    """Notes about partitions of which the source has less than the tables."""
    notes = []
    if planned.behind:
        told = [f"{number} ends at offset {end}, read up to {known}" for number, end, known in planned.behind]
        notes.append(
            f"the source has less than what was read of {_partitions(told)}. No newer leader epoch says that the log "
            "was cut (an older copy, a follower that lags, a tail that was lost): left as it was. "
            "--accept-truncation takes the shorter log for the truth."
        )
    if planned.missing:
        told = [str(number) for number in planned.missing]
        notes.append(f"the source does not have {_partitions(told)} any more; what was read of it stays.")
    return notes


def _partitions(told: Sequence[str]) -> str:
    """A list that stays readable however long it is."""
    more = f" and {len(told) - MOST_TOLD} more" if len(told) > MOST_TOLD else ""
    return f"{len(told)} partition{'' if len(told) == 1 else 's'} ({'; '.join(told[:MOST_TOLD])}{more})"
