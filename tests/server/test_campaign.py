"""A fault campaign (`tests.server.campaign`): a few rounds every day, a thousand under `long`."""

import itertools
import random
from pathlib import Path

import pytest

from tests.server.campaign.plan import world
from tests.server.campaign.rounds import ROUNDS_A_WORLD, Totals, run

LONG_ROUNDS = 1_000


def rounds(seed: int, count: int, folder: Path) -> Totals:
    """pytest keeps the folder, and what was printed, if anything goes wrong."""
    totals = Totals()
    print(f"python -m tests.server.campaign --seed {seed} --rounds {count}")
    run(seed, count, totals, folder=folder)
    print(totals)
    assert totals.rounds == count
    assert totals.restarts >= count
    assert totals.commits >= 200 * count
    assert totals.checks >= 8 * count
    assert totals.records >= 20 * count
    return totals


def any_seed() -> int:
    """Of a server that starts quickly."""
    first = random.randrange(1_000, 1 << 30)
    return next(seed for seed in itertools.count(first) if not world(seed).in_columns)


@pytest.mark.parametrize(
    "seed", [pytest.param(9, id="stop-and-kill", marks=pytest.mark.matrix), pytest.param(any_seed(), id="random")]
)
def test_nothing_is_lost_and_nobody_hangs(tmp_path: Path, seed: int) -> None:
    rounds(seed, 2, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10_000, 10_000 + LONG_ROUNDS // ROUNDS_A_WORLD))
def test_nothing_is_lost_and_nobody_hangs_in_a_thousand_rounds(tmp_path: Path, seed: int) -> None:
    rounds(seed, ROUNDS_A_WORLD, tmp_path)
