"""What a run must not lose or tell twice when something around it goes wrong."""

import shutil
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from muster.errors import MusterError, NotThereYet
from muster.pipeline import job
from muster.pipeline.engine import SparkEngine
from muster.pipeline.judge import last_judged
from muster.pipeline.model import Extracted
from muster.pipeline.packets import Packet
from muster.tables.reading import open_tables
from muster.tables.storage import compact as compact_module
from muster.tables.storage.changes import begin_run
from muster.tables.storage.compact import compact
from muster.tables.storage.store import TableStore
from muster.tables.storage.upkeep import Keep
from tests.pipeline.test_life import DAY_MS, Life
from tests.pipeline.test_observations import produce
from tests.pipeline.world import GrowingLog, batch_ends, rows_of, run_here, unpacked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_cut_partition_does_not_tell_the_rebalances_of_others_again(tmp_path: Path) -> None:
    log = unpacked("k43-full", tmp_path)
    run_here(tmp_path / "tables", log)
    segments = sorted((log / "__consumer_offsets-0").glob("*.log"))
    shorter = [each for each in segments if len(batch_ends(each)) > 3][-1]
    for later in segments[segments.index(shorter) + 1 :]:
        later.unlink()
    shorter.write_bytes(shorter.read_bytes()[: batch_ends(shorter)[-3]])
    for index in log.glob("__consumer_offsets-0/*index"):
        index.unlink()
    run_here(tmp_path / "tables", log, accept_truncation=True)
    run_here(tmp_path / "anew", log)
    told, anew = (rows_of(tmp_path / each, "rebalances")["rebalances"] for each in ("tables", "anew"))
    assert Counter(row["offsets_partition"] for row in told) == Counter(row["offsets_partition"] for row in anew)
    assert len({row["offsets_partition"] for row in anew}) > 1


def test_deletions_alone_are_kept_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    life = Life(tmp_path / "log")
    keys = [("app", partition) for partition in range(60)]
    for key in keys:
        life.commit(key, 5)
    run_here(tmp_path / "tables", life.root)
    for key in keys:
        life.delete(key)
    monkeypatch.setattr(job, "task_bytes", lambda works: 1)
    run_here(tmp_path / "tables", life.root)
    kinds = Counter(row["kind"] for row in rows_of(tmp_path / "tables", "commits")["commits"])
    assert kinds["commit"] == 60
    assert kinds["deleted"] + kinds["expired"] == 60


@pytest.mark.long
def test_an_observation_without_a_time_stops_no_later_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compact_module, "ENOUGH", 2)
    log = tmp_path / "log"
    for name in ("__consumer_offsets-0", "orders-0"):
        (log / name).mkdir(parents=True)
        (log / name / f"{0:020}.log").touch()
    run_here(tmp_path / "tables", log)
    assert rows_of(tmp_path / "tables", "log_ends")["log_ends"][0]["observed_at_ms"] is None
    (log / "__consumer_offsets-0" / f"{0:020}.log").unlink()
    (log / "__consumer_offsets-0").rmdir()
    life = Life(log, time.time_ns() // 1_000_000 - DAY_MS)
    for number in range(6):
        life.now_ms += 600_000
        life.commit(("app", 0), number)
        produce(life, "orders", number * 10, *[life.now_ms] * 10)
        run_here(tmp_path / "tables", life.root)
    assert len(rows_of(tmp_path / "tables", "commits")["commits"]) == 6


@pytest.mark.long
def test_joining_by_hand_makes_neither_analytics_nor_verdicts_anew(tmp_path: Path) -> None:
    life = Life(tmp_path / "log", time.time_ns() // 1_000_000 - DAY_MS)
    produce(life, "orders", 0, *[life.now_ms] * 10)
    for number in range(2):
        life.now_ms += 600_000
        life.commit(("app", 0), number)
        run_here(tmp_path / "tables", life.root, analytics=True)
    assert compact(TableStore(tmp_path / "tables"))
    with begin_run(TableStore(tmp_path / "tables")) as next_one:
        assert last_judged(next_one) == next_one.number, "windows would be found in all commits, against thinned ends"
    life.now_ms += 600_000
    life.commit(("app", 0), 9)
    again = run_here(tmp_path / "tables", life.root, analytics=True)
    assert again.new_rows["rates"] <= 2, "the interval that is new, and the one before it"


@pytest.mark.long
def test_a_run_after_one_that_was_cut_short_leaves_readers_their_time(tmp_path: Path) -> None:
    life = Life(tmp_path / "log")
    tables, two_runs = tmp_path / "tables", Keep(runs=2)  # more come below
    for number in range(3):
        life.commit(("app", 0), number)
        run_here(tables, life.root, keep=two_runs)
    with open_tables(tables) as reader:
        held = reader.files("offsets")
        for number in range(4):
            life.commit(("app", 0), 3 + number)
            run_here(tables, life.root, keep=two_runs)
        (tables / "_lock").write_text('{"pid": 1}')  # as a run leaves it that was killed
        life.commit(("app", 0), 99)
        run_here(tables, life.root, keep=two_runs)
        assert all(Path(file).exists() for file in held)
        assert reader.read("offsets").table().num_rows == 1


def test_topics_that_are_gone_keep_their_names_in_assignments(tmp_path: Path) -> None:
    """Newer groups are assigned topics by id, and a record may come to us after its topic is gone."""
    log = GrowingLog(unpacked("k43-all", tmp_path), tmp_path / "log", Random(4))
    log.grow()
    run_here(tmp_path / "tables", log.target)
    log.grow(all_of_it=True)
    run_here(tmp_path / "once", log.target)
    for each in log.target.iterdir():
        if each.is_dir() and not each.name.startswith("__consumer_offsets-"):
            shutil.rmtree(each)
    run_here(tmp_path / "tables", log.target)
    found, expected = (rows_of(tmp_path / each, "members")["members"] for each in ("tables", "once"))
    assert sorted(map(repr, found)) == sorted(map(repr, expected))
    assert any(part["topic_id"] and part["topic"] for row in expected for part in row["assignment"] or ())


def test_a_damaged_file_of_the_tables_is_told_and_nothing_changes(tmp_path: Path) -> None:
    life = Life(tmp_path / "log")
    tables = tmp_path / "tables"
    for number in range(2):
        life.commit(("app", number), 5)
        if number:
            (damaged,) = (tables / "offsets").glob("*.parquet")
            whole = damaged.read_bytes()
            damaged.write_bytes(whole[: len(whole) // 2])
            with pytest.raises(MusterError, match=f"cannot be read or written: .*{damaged.name}.*restore it"):
                run_here(tables, life.root)
            damaged.write_bytes(whole)
        run_here(tables, life.root)
    assert len(rows_of(tables, "offsets")["offsets"]) == 2


class Part:
    def __init__(self, *partitions: int) -> None:
        self.partitions = partitions


def test_packets_that_are_lost_and_cannot_be_read_again_end_the_run(spark: "SparkSession", tmp_path: Path) -> None:
    gone = str(tmp_path / "gone")

    def read(works: list[int]) -> Extracted:
        if Path(gone).exists():
            raise NotThereYet("the broker does not answer")
        return Extracted((), (), (Packet("winners_commits", works[0], 5, b"rows"),))

    def merge(part: Part, packets: list[list[Packet]]) -> int:
        return sum(len(some) for some in packets)

    engine = SparkEngine(spark)
    readings = [engine.read(read, [[0], [1]]), engine.read(read, [])]  # type: ignore[arg-type, list-item]
    try:
        assert engine.merge(merge, [Part(0, 1)], readings) == [2]  # type: ignore[arg-type, list-item, comparison-overlap]
        Path(gone).touch()
        readings[0].packets.unpersist(True)  # type: ignore[union-attr]
        with pytest.raises(NotThereYet, match="does not answer"):
            engine.merge(merge, [Part(0, 1)], readings)  # type: ignore[arg-type, list-item]
    finally:
        engine.forget()
