"""Text made by SQL: counts, durations, places and JSON, for Spark and for duckdb.

Each function takes expressions and returns one. Whatever comes from a client is data in it: nothing is formatted by it,
and in JSON it is escaped. No braces stand in what Spark is given, which takes them for names of relations; no text of
ours has an apostrophe or a backslash, which it reads unlike duckdb.
"""

from collections.abc import Mapping

SECOND_MS = 1000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
_UNITS = ((DAY_MS, "d"), (HOUR_MS, "h"), (MINUTE_MS, "min"), (SECOND_MS, "s"))


def said(sentence: str, *parts: str) -> str:
    """A sentence with an expression of text at each `{}`. NULL makes all of it NULL."""
    first, *rest = (f"'{words}'" if words else "" for words in sentence.split("{}"))
    pieces = [first, *(piece for pair in zip(parts, rest, strict=True) for piece in pair)]
    return " || ".join(piece for piece in pieces if piece)


def duration(ms: str) -> str:
    """A length of time in its two largest units: 3 d 4 h, 12 min 28 s, 850 ms; a unit of which there is none is left
    out. `ms` is a column, as it is named often.
    """
    shown = f"CAST({ms} AS STRING) || ' ms'"
    for place, (unit_ms, unit) in reversed(list(enumerate(_UNITS))):
        whole = f"{_times(ms, unit_ms)} || ' {unit}'"
        for next_ms, next_unit in _UNITS[place + 1 : place + 2]:
            left = f"{ms} % {unit_ms}"
            more = f"' ' || {_times(left, next_ms)} || ' {next_unit}'"
            whole += f" || CASE WHEN {left} >= {next_ms} THEN {more} ELSE '' END"
        shown = f"CASE WHEN {ms} >= {unit_ms} THEN {whole} ELSE {shown} END"
    return shown


def _times(ms: str, unit_ms: int) -> str:
    """How often a unit fits in."""
    return f"CAST(CAST(floor({ms} / {unit_ms}) AS BIGINT) AS STRING)"


def group(name: str) -> str:
    """A group by its name, which may be empty."""
    return f"CASE WHEN {name} = '' THEN 'the group with the empty name' ELSE {name} END"


def place(topic: str, partition: str) -> str:
    """A partition as Kafka writes it: orders-3."""
    return f"{topic} || '-' || CAST({partition} AS STRING)"


def json_object(values: Mapping[str, str]) -> str:
    """A JSON object: of names of ours, and expressions that are JSON, a number or NULL."""
    members = [f"'\"{name}\":' || coalesce(CAST({value} AS STRING), 'null')" for name, value in values.items()]
    opened, closed = (f"chr({ord(brace)})" for brace in "{}")
    return " || ".join((opened, " || ',' || ".join(members), closed))
