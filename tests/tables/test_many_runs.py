"""Many runs over a log that grows: a run costs what is new, and all of them leave what one run leaves."""

import multiprocessing
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median

import pytest

from muster.pipeline import buckets
from muster.tables.reading import open_tables
from muster.tables.schemas import ANALYTICS, TABLES
from muster.tables.storage import compact
from muster.tables.storage.store import TableStore
from muster.tables.storage.upkeep import Keep
from muster.tables.times import inner
from tests.pipeline.world import rows_of, run_here
from tests.tables.years import Years

NAMES = ("commits", "offsets", "groups", "members", "markers", "rebalances", "open_commits", "group_hours")
TURNS = 50
"""Runs of an old life and of a young one that are measured in turns."""


class Life:
    """Runs over a growing log, each looked at: what it cost, and how many files there are."""

    def __init__(self, folder: Path, rounds: int, records: int, days: float) -> None:
        self.folder, self.tables = folder, folder / "tables"
        folder.mkdir(exist_ok=True)
        self.years = Years(folder, rounds, records, days)
        self.seconds: list[float] = []
        self.most_files: Counter[str] = Counter()
        self.notes: list[str] = []

    def live(self, rounds: int, readers_every: int = 10) -> None:
        """So many runs; now and then with a reader that opened the tables before, and reads after it."""
        for number in range(rounds):
            if number % readers_every < readers_every - 1:
                self.run()
                continue
            with open_tables(self.tables) as reader:
                before = {name: rows_of(self.tables, name)[name] for name in ("offsets", "group_hours")}
                self.run()
                for name, rows in before.items():
                    assert inner(reader.read(name).table(), TABLES[name]).to_pylist() == rows

    def run(self) -> None:
        self.years.grow()
        began = time.process_time()
        summary = run_here(self.tables, self.years.log, keep=Keep(2, 0), analytics=True)
        self.seconds.append(time.process_time() - began)
        self.notes += [note for note in summary.notes if "joined" in note]
        store = TableStore(self.tables)
        manifest = store.manifest()
        assert manifest is not None
        for table, version in manifest.tables.items():
            self.most_files[table] = max(self.most_files[table], len(store.files(table, version)))
            assert len(list((self.tables / table / "_delta_log").glob("*"))) <= 30, table
        if len(self.seconds) % 50 == 0:
            print(len(self.seconds), f"{median(self.seconds[-50:]):.2f} CPU s a run", dict(self.most_files), flush=True)

    def check(self) -> None:
        self.years.close()
        assert not self.notes
        for table, files in self.most_files.items():
            assert files <= (2 * (compact.ENOUGH + 4) if table not in ANALYTICS else 4 * (compact.ENOUGH + 1) + 16), (
                self.most_files
            )
        run_here(self.folder / "once", self.years.log, analytics=True)
        found, expected = (rows_of(each, *NAMES) for each in (self.tables, self.folder / "once"))
        for name in NAMES:
            assert sorted(map(repr, found[name])) == sorted(map(repr, expected[name])), name


def test_many_runs_leave_what_one_run_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compact, "ENOUGH", 2)
    monkeypatch.setattr(buckets, "ROWS_A_BUCKET", 150)
    life = Life(tmp_path, rounds=3, records=700, days=1)
    life.live(3, readers_every=3)
    life.check()


LONG = {"rounds": 1_000, "records": 100_000, "days": 20}


def be_young(folder: Path, asked: Connection) -> None:
    """In a process of its own: a run whenever one is asked for, and what it cost."""
    life = Life(folder, **LONG)
    while asked.recv():
        life.run()
        asked.send(life.seconds[-1])


@contextmanager
def young_life(folder: Path) -> Iterator[Connection]:
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=be_young, args=(folder, there))
    process.start()
    there.close()
    try:
        yield here
    finally:
        with suppress(BrokenPipeError):
            here.send(False)
        process.join(60)


@pytest.mark.long
def test_a_thousand_runs_cost_what_a_few_cost(tmp_path: Path) -> None:
    """The last runs of a thousand, beside those of another life, in turns: a machine's speed changes within the hour,
    by a third and more, and what was measured at the beginning says little at the end.
    """
    old, young = Life(tmp_path / "old", **LONG), []
    old.live(LONG["rounds"] - TURNS)
    with young_life(tmp_path / "young") as another:
        for _ in range(TURNS):
            old.run()
            another.send(True)
            young.append(another.recv())
    then = median(old.seconds[10:30])
    early, late = median(young[10:30]), median(old.seconds[-TURNS:])
    print(f"{early:.2f} CPU s a run around the 20th ({then:.2f} in its own time), {late:.2f} in the last {TURNS}")
    assert late <= 1.3 * early
    old.check()
