"""What a run says at its end."""

import pytest

from muster.cli.run_output import show, show_damage
from muster.pipeline.job import Summary


def test_tables_of_the_pipelines_own_are_not_listed(capfd: pytest.CaptureFixture[str]) -> None:
    rows = {"offsets": 3, "latest_rebalances": 2}
    show(Summary("run", "directory", "cluster", rows=rows, new_rows={"rebalances": 1, "latest_rebalances": 2}))
    err = capfd.readouterr().err
    assert "offsets" in err
    assert "rebalances" in err
    assert "latest_rebalances" not in err


def test_damage_is_told_though_nothing_else_is(capfd: pytest.CaptureFixture[str]) -> None:
    damaged = Summary(
        "run", "directory", "cluster", damaged=True, incomplete_partitions=2, notes=["partition 0 is damaged."]
    )
    show_damage(damaged)
    assert capfd.readouterr().err == "muster: partition 0 is damaged.\n"
    show_damage(Summary("run", "directory", "cluster", notes=["small files were not joined."]))
    assert capfd.readouterr().err == ""
    show(damaged)
    assert (
        "the log had been compacted or damaged before it was first read (2 of its partitions)" in capfd.readouterr().err
    )
