"""What a run says at its end."""

import pytest

from muster.cli.run_output import show
from muster.pipeline.job import Summary


def test_tables_of_the_pipelines_own_are_not_listed(capfd: pytest.CaptureFixture[str]) -> None:
    rows = {"offsets": 3, "latest_rebalances": 2}
    show(Summary("run", "directory", "cluster", rows=rows, new_rows={"rebalances": 1, "latest_rebalances": 2}))
    err = capfd.readouterr().err
    assert "offsets" in err
    assert "rebalances" in err
    assert "latest_rebalances" not in err
