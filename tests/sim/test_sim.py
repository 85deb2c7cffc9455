"""Simulation: made-up clients, made-up clocks and a log with bad days, all from one seed.

A failure names its seed and tells the last steps before it. Seeds that once failed are kept in seeds.txt and played
first. `SIM_SEEDS=10000` asks the long run for that many, `SIM_FIRST_SEED` for where to begin.
"""

import os
from pathlib import Path

import pytest

from muster.core.config import GroupConfig
from muster.core.coordinator import Coordinator
from muster.core.events import CommittedPartition, Instant, OffsetCommit
from muster.core.outcome import Outcome
from tests.sim.world import SimWorld

STEPS = 150
FEW_SEEDS = 400
SEEDS_PER_TEST = 50
ONCE_FAILED = [
    int(line.split()[0]) for line in Path(__file__).with_name("seeds.txt").read_text().splitlines() if line.strip()
]


def play(seed: int, steps: int = STEPS) -> None:
    world = SimWorld(seed)
    try:
        world.run(steps)
    except Exception as error:
        story = "\n".join(world.transcript)
        raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}\nThe last steps:\n{story}") from error


@pytest.mark.parametrize("seed", ONCE_FAILED)
def test_a_seed_that_once_failed(seed: int) -> None:
    play(seed)


@pytest.mark.parametrize("first", range(0, FEW_SEEDS, SEEDS_PER_TEST))
def test_any_seed(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        play(seed)


def test_the_same_seed_tells_the_same_story() -> None:
    stories = []
    for _ in range(2):
        world = SimWorld(7)
        world.run(STEPS)
        stories.append((list(world.transcript), world.log))
    assert stories[0] == stories[1]


def test_decisions_have_to_wait_for_the_log() -> None:
    """Why the shell appends what one event asked for before it handles the next: without that, promises break."""

    def play_with_waiting_writes() -> None:
        for seed in range(50):
            SimWorld(seed, writes_wait=True).run(STEPS)

    with pytest.raises(AssertionError):
        play_with_waiting_writes()


@pytest.mark.parametrize("protocol_version", [None, "2.0", "3.9"])
def test_a_commit_is_the_same_before_and_after_a_restart(protocol_version: str | None) -> None:
    """Versions of the value have no room for a retention and a leader epoch at once, nor older ones for a topic id."""
    config = GroupConfig(inter_broker_protocol_version=protocol_version)
    live, reloaded, out = Coordinator(config), Coordinator(config), Outcome()
    for partition, retention_ms in enumerate((-1, 1_000)):
        committed = CommittedPartition("orders", partition, 5, leader_epoch=3, topic_id=b"x" * 16)
        commit = OffsetCommit(partition, "g", -1, "", (committed,), retention_ms=retention_ms)
        live.handle(commit, Instant(0, 1_000), out)
    for place, write in enumerate(out.writes):
        live.appended(write, place, Outcome())
        for record in write.records:
            reloaded.replay(record, place)
    assert live.hard_state() == reloaded.hard_state()


@pytest.mark.long
def test_many_seeds() -> None:
    first = int(os.environ.get("SIM_FIRST_SEED", "1000000"))
    for seed in range(first, first + int(os.environ.get("SIM_SEEDS", "10000"))):
        play(seed, steps=4 * STEPS if seed % 10 == 0 else STEPS)
