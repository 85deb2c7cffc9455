"""The documents against the code they describe."""

from pathlib import Path

from muster.cli.reference import with_reference
from muster.cli.status import Status

DOCS = Path(__file__).parent.parent / "docs"


def test_the_command_line_reference_is_up_to_date() -> None:
    text = (DOCS / "cli.md").read_text()
    assert text == with_reference(text), "run: python -m muster.cli.reference docs/cli.md"


def test_every_exit_code_has_a_meaning() -> None:
    text = (DOCS / "cli.md").read_text()
    for status in Status:
        assert f"| {status.value} | {status.name} | {status.meaning} |" in text
