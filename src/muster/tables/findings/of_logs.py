"""Findings about `__consumer_offsets` itself: records that cannot be read, and places that are damaged."""

import pyarrow as pa

from muster.tables.findings.finding import ERROR, INFO, WARNING, Asked, Kind, Relations, Threshold, literal, row
from muster.tables.sql.sentences import DAY_MS, said

DAMAGE = pa.schema(
    [
        pa.field("offsets_partition", pa.int32()),
        pa.field("found_at_ms", pa.int64()),
        pa.field("places", pa.int64()),
        pa.field("example", pa.string()),
    ]
)
"""What runs have found damaged, by partition and run; the manifest has it, and no table."""

DAMAGE_KEPT_MS = Threshold(
    7 * DAY_MS,
    "since a run has found it",
    "a run reads what is new, so damage is met once; the log is damaged for longer",
    True,
)
NEWEST_TYPE = 23
"""Of Kafka 4.3. A record of a higher type is of a newer broker; one up to here ought to be readable."""
OF_THE_LOG = "'__consumer_offsets'"


def _unknown(of: Relations, asked: Asked) -> str:
    say = asked.dialect
    kind = "CASE WHEN t.record_type IS NULL THEN 'without a type' ELSE 'of type ' || CAST(t.record_type AS STRING) END"
    told = row(
        f"CASE WHEN t.record_type <= {NEWEST_TYPE} THEN '{WARNING}' ELSE '{INFO}' END",
        {"record_type": "t.record_type", "value_version": "t.value_version", "records": "t.records",
         "problem": say.json_text("t.problem"), "offsets_partition": "t.offsets_partition"},
        said("{} {} cannot be read ({}); their bytes are kept.", say.counted("t.records", "record"), kind, "t.problem"),
        "t.since_ms", topic=OF_THE_LOG,
    )  # fmt: skip
    return f"""
        SELECT {told}
        FROM (
            SELECT r.record_type, r.value_version, count(*) AS records, min(r.problem) AS problem,
                min(r.timestamp_ms) AS since_ms, min(r.offsets_partition) AS offsets_partition
            FROM {of["group_records"]} r WHERE r.problem IS NOT NULL AND r.timestamp_ms > {asked.since_ms}
            GROUP BY r.record_type, r.value_version
        ) t"""


def _damage(of: Relations, asked: Asked) -> str:
    say = asked.dialect
    told = row(
        literal(ERROR),
        {"places": "t.places", "example": say.json_text("t.example"), "last_found_ms": "t.last_ms"},
        said("partition {} of __consumer_offsets is damaged in {}: what stood there is in no table.",
             "CAST(t.offsets_partition AS STRING)", say.counted("t.places", "place")),
        "t.since_ms", topic=OF_THE_LOG, partition="t.offsets_partition",
    )  # fmt: skip
    return f"""
        SELECT {told}
        FROM (
            SELECT d.offsets_partition, sum(d.places) AS places, min(d.example) AS example,
                min(d.found_at_ms) AS since_ms, max(d.found_at_ms) AS last_ms
            FROM {of["damage"]} d
            WHERE d.found_at_ms > {asked.at_ms - DAMAGE_KEPT_MS.value} GROUP BY d.offsets_partition
        ) t"""


UNKNOWN_RECORDS = Kind(
    "unknown-records", (WARNING, INFO),
    "records of the last day could not be read: of a type or version of a newer broker (an info), or of a type that is "
    "known",
    "Use a newer muster if the brokers are newer; `muster dump SOURCE` shows the bytes.",
    ("group_records",), _unknown,
)  # fmt: skip
DAMAGED = Kind(
    "damage", (ERROR,),
    "a run has found places in the log whose bytes are not what a broker wrote",
    "Run `muster dump` on that partition, compare with another replica, and give the pipeline that replica as another "
    "--source.",
    ("damage",), _damage, (DAMAGE_KEPT_MS,),
)  # fmt: skip

OF_LOGS = (UNKNOWN_RECORDS, DAMAGED)
