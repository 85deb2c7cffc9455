"""A fault campaign (`tests.server.campaign`): a thousand rounds."""

from pathlib import Path

import pytest

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
    return totals


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10_000, 10_000 + LONG_ROUNDS // ROUNDS_A_WORLD))
def test_nothing_is_lost_and_nobody_hangs_in_a_thousand_rounds(tmp_path: Path, seed: int) -> None:
    rounds(seed, ROUNDS_A_WORLD, tmp_path)
