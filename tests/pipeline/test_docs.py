"""docs/pipeline.md against the tables: every column, its type, and which of them are never NULL."""

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from muster.cli.tables import NAMES
from muster.pipeline.rebalances.causes import __doc__ as causes_doc
from muster.tables.about import ABOUT
from muster.tables.reading import NOT_SHOWN
from muster.tables.schemas import GROUP_STATE, OPEN_COMMITS, PUBLISHED, TABLES, published_name
from tests.pipeline.columns_page import SAME_AS, column_lines, type_name, updated
from tests.pipeline.world import rows_of, run_here, unpacked

PAGE = (Path(__file__).parents[2] / "docs" / "pipeline.md").read_text(encoding="utf-8")
SECTIONS = {found[1]: found[2] for found in re.finditer(r"\n### `(\w+)`:[^\n]*\n(.*?)(?=\n##)", PAGE, re.DOTALL)}
OWN = {*NOT_SHOWN, "group_state", "activity"}
"""Tables that the pipeline keeps for itself, described in one paragraph."""
PUBLIC = sorted(TABLES.keys() - OWN)


class Column(NamedTuple):
    name: str
    type: str
    null: str


def columns_of(table: str) -> list[Column]:
    """The columns that the page has for a table, in its order."""
    lines = re.findall(r"^\| (`.*?) \| (.*?) \| .* \| (.*?) \|$", SECTIONS[SAME_AS.get(table, table)], re.MULTILINE)
    found = []
    for names, types, null in lines:
        pairs = zip(names.split(", "), types.split(", "), strict=True)
        found += [Column(name.strip("`"), type_, null) for name, type_ in pairs]
    return found


@pytest.mark.parametrize("table", PUBLIC)
def test_every_column_is_explained_with_its_type(table: str) -> None:
    told = [(column.name, column.type) for column in columns_of(table)]
    assert told == [(field.name, type_name(field.type)) for field in PUBLISHED[table]]


def test_the_page_says_what_the_columns_say() -> None:
    assert updated(PAGE) == PAGE, "python -m tests.pipeline.columns_page docs/pipeline.md"
    for table in PUBLIC:
        assert table in SAME_AS or column_lines(table) in SECTIONS[table], table


def test_tables_are_described_in_one_way() -> None:
    assert ABOUT.keys() == TABLES.keys()
    assert NAMES.keys() == ABOUT.keys() - NOT_SHOWN.keys()


def test_the_tables_that_share_columns_do() -> None:
    assert TABLES["open_commits"] is OPEN_COMMITS == TABLES["commits"]
    assert TABLES["group_state"] is GROUP_STATE == TABLES["group_records"]
    assert "The columns of `commits`" in SECTIONS["open_commits"]


@pytest.mark.parametrize("table", sorted(OWN))
def test_the_pipelines_own_tables_are_named(table: str) -> None:
    own = PAGE.split("### The pipeline's own")[1].split("\n## ")[0]
    assert f"`{table}`" in own


def test_every_cause_is_explained() -> None:
    told = re.findall(r"^\| `([a-z ]+)` \|", SECTIONS["rebalances"].split("| column |")[0], re.MULTILINE)
    listed = (causes_doc or "").split("first that applies:")[1].split("NULL, as are")[0]
    assert told == [re.split(r" {2,}", line.strip())[0] for line in listed.strip().splitlines()]


@pytest.mark.parametrize("corpus", ["k43-all", "mini-snappy-26"])
def test_what_is_never_null_is_not(corpus: str, tmp_path: Path) -> None:
    run_here(tmp_path / "tables", unpacked(corpus, tmp_path), analytics=True)
    found = rows_of(tmp_path / "tables", *PUBLIC)
    for table in PUBLIC:
        assert found[table], f"no row of {table} is looked at"
        never = {column.name for column in columns_of(table) if column.null == "never"}
        for row in found[table]:
            assert all(row[name] is not None for name in row if published_name(name) in never), (table, row)
