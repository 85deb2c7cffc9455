"""The records of the corpora in tests/corpus, with what Kafka's own tools printed for them."""

import gzip
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

CORPORA = Path(__file__).parent.parent / "corpus"
NAMES = sorted(path.parent.name for path in CORPORA.glob("*/expected"))

_DUMP_LINE = re.compile(r"\| offset: (\d+) .*? key: (.*) payload: (.*)\n")


class CorpusRecord(NamedTuple):
    partition: int
    offset: int
    key: bytes
    value: bytes | None
    line: str
    """The line of records.jsonl as text, so that the order and spelling of the JSON can be compared too."""


@cache
def records(name: str) -> tuple[CorpusRecord, ...]:
    with gzip.open(CORPORA / name / "expected" / "records.jsonl.gz", "rt", encoding="utf-8", newline="\n") as lines:
        return tuple(_record(line, json.loads(line)) for line in lines if '"keyHex"' in line)


def _record(line: str, fields: dict[str, Any]) -> CorpusRecord:
    value = fields["valueHex"]
    return CorpusRecord(
        fields["partition"],
        fields["offset"],
        bytes.fromhex(fields["keyHex"]),
        None if value is None else bytes.fromhex(value),
        line,
    )


def dumped(name: str) -> Iterator[tuple[int, int, str, str]]:
    """Partition, offset, key text and payload text of every record that kafka-dump-log printed."""
    for path in sorted((CORPORA / name / "expected").glob("dump-*.txt.gz")):
        partition = int(path.name.removeprefix("dump-").removesuffix(".txt.gz"))
        with gzip.open(path, "rt", encoding="utf-8", newline="\n") as lines:
            for line in lines:
                match = _DUMP_LINE.fullmatch(line)
                if match:
                    yield partition, int(match[1]), match[2], match[3]


@cache
def one_of_each_kind() -> dict[tuple[int, int], CorpusRecord]:
    """The longest reasonable record of every type and value version in the corpora."""
    found: dict[tuple[int, int], CorpusRecord] = {}
    for name in NAMES:
        for record in records(name):
            if record.value is None or len(record.value) > 1000:
                continue
            kind = int.from_bytes(record.key[:2], "big"), int.from_bytes(record.value[:2], "big")
            if kind not in found or len(record.value) > len(found[kind].value or b""):
                found[kind] = record
    return found
