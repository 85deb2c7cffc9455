"""Logs that grow, and runs over them without Spark: the same tasks, in this process."""

import shutil
import struct
import tarfile
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from muster.pipeline.engine import LocalEngine
from muster.pipeline.job import Request, Summary, run
from muster.segments.sources import OFFSETS_TOPIC
from muster.tables.reading import open_tables
from muster.tables.schemas import TABLES
from muster.tables.times import inner
from tests.codec.corpus_records import CORPORA

Row = dict[str, Any]
Rows = list[Row]


def unpacked(name: str, folder: Path) -> Path:
    """The log directory of a corpus."""
    with (
        pa.input_stream(str(CORPORA / name / f"{name}.tar.zst"), compression="zstd") as stream,
        tarfile.open(fileobj=stream, mode="r|") as tar,
    ):
        tar.extractall(folder, filter="data")
    return folder / "logs"


def run_here(tables: Path, *logs: Path | str, analytics: bool = False, **more: Any) -> Summary:
    return run(LocalEngine(), Request([str(log) for log in logs], str(tables), analytics=analytics, **more))


def rows_of(tables: Path, *names: str, as_of_ms: int | None = None) -> dict[str, Rows]:
    """Rows as they are inside: moments are milliseconds."""
    with open_tables(tables) as opened:
        return {name: inner(opened.read(name, as_of_ms).table(), TABLES[name]).to_pylist() for name in names}


def batch_ends(segment: Path) -> list[int]:
    """Byte positions behind each whole batch."""
    data, position, ends = segment.read_bytes(), 0, []
    while position + 12 <= len(data):
        size = 12 + struct.unpack_from(">i", data, position + 8)[0]
        if size <= 12 or position + size > len(data):
            break
        position += size
        ends.append(position)
    return ends


class GrowingLog:
    """A copy of an offsets topic that reveals itself batch by batch."""

    def __init__(self, source: Path, target: Path, random: Random) -> None:
        self._source, self.target, self._random = source, target, random
        shutil.copytree(
            source, target, ignore=lambda _, names: [name for name in names if name.startswith(OFFSETS_TOPIC)]
        )
        self._batches = {
            directory.name: [
                (segment, end)
                for segment in sorted(directory.glob("*.log"))
                for end in (batch_ends(segment) or [0])
            ]
            for directory in sorted(source.glob("__consumer_offsets-*"))
        }  # fmt: skip
        self._shown = dict.fromkeys(self._batches, 0)

    @property
    def partitions(self) -> list[int]:
        return [int(name.rsplit("-", 1)[1]) for name in self._batches]

    def grow(self, all_of_it: bool = False, only: int | None = None) -> None:
        """Some more batches of every partition, or of one; or all that are left."""
        for name, batches in self._batches.items():
            if only is not None and name != f"{OFFSETS_TOPIC}-{only}":
                continue
            left = len(batches) - self._shown[name]
            self._shown[name] += left if all_of_it else self._random.randint(0, left)
            self._show(name, batches[: self._shown[name]])

    def grow_a_little(self, share: float) -> None:
        """A share of what is left of every partition."""
        for name, batches in self._batches.items():
            self._shown[name] += round((len(batches) - self._shown[name]) * share)
            self._show(name, batches[: self._shown[name]])

    def _show(self, name: str, batches: list[tuple[Path, int]]) -> None:
        folder = self.target / name
        folder.mkdir(exist_ok=True)
        for file in ("leader-epoch-checkpoint", "partition.metadata"):
            if (self._source / name / file).exists():
                shutil.copy(self._source / name / file, folder)
        ends = dict(batches)  # of each segment the last end
        first = next(iter(self._batches[name]))[0]
        for segment, end in (ends or {first: 0}).items():
            shown = folder / segment.name
            if not shown.exists() or shown.stat().st_size != end:
                shown.write_bytes(segment.read_bytes()[:end])
