"""The examples of docs/python.md run, against a real log."""

import re
from pathlib import Path

import pytest

from muster.segments.sources import Sources

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_example(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    with Sources([ROOT / "tests" / "corpus" / "k26" / "k26.tar.zst"]) as sources:
        names = {
            "segment_bytes": sources.segments[0].path.read_bytes(),
            "log_directory": sources.partitions[0].directory.parent,
        }
        exec(compile(EXAMPLES[number], f"docs/python.md example {number}", "exec"), names)
    if "print" in EXAMPLES[number]:
        assert "nightly-report orders" in capsys.readouterr().out
    if "table" in names:
        assert names["table"].num_rows == 1097
        assert names["commits"].num_rows == 1067
        assert names["damage"] == []
    if "newest" in names:
        assert 0 < names["newest"] < 1097


def test_there_are_examples() -> None:
    assert len(EXAMPLES) == 5
