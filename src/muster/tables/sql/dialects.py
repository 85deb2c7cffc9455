"""The few words that Spark and duckdb do not share."""

from collections.abc import Mapping
from typing import NamedTuple

from muster.tables.sql.hours import DUCKDB_SIZE, SPARK_SIZE
from muster.tables.sql.queries import DUCKDB_EXPLODE, SPARK_EXPLODE


class Dialect(NamedTuple):
    """How one of them says it."""

    explode: str
    size: str
    with_commas: str
    """A number as text, in groups of three digits."""
    quoted: str
    """Text as a JSON string."""
    first: str
    """The first element of a list."""
    is_spark: bool

    def struct(self, fields: Mapping[str, str]) -> str:
        """A struct of expressions by name."""
        if self.is_spark:
            return "named_struct(" + ", ".join(f"'{name}', {value}" for name, value in fields.items()) + ")"
        return "struct_pack(" + ", ".join(f"{name} := {value}" for name, value in fields.items()) + ")"

    def in_order(self, value: str, order: str) -> str:
        """An aggregate: the list of all values, in the order of another expression, which is never NULL."""
        if self.is_spark:
            return f"array_sort(collect_list(named_struct('place', {order}, 'value', {value}))).value"
        return f"list({value} ORDER BY {order})"

    def number(self, number: str) -> str:
        """A number of things: 4,210."""
        return self.with_commas.format(f"CAST({number} AS BIGINT)")

    def counted(self, number: str, thing: str, things: str | None = None) -> str:
        """A number with what it counts: 1 record, 4,210 records."""
        return f"{self.number(number)} || CASE WHEN {number} = 1 THEN ' {thing}' ELSE ' {things or thing + 's'}' END"

    def times(self, number: str) -> str:
        """How often: once, 42 times."""
        return f"CASE WHEN {number} = 1 THEN 'once' ELSE {self.number(number)} || ' times' END"

    def json_text(self, expression: str) -> str:
        """Any text as a JSON string."""
        return self.quoted.format(expression)


SPARK = Dialect(
    SPARK_EXPLODE,
    SPARK_SIZE,
    "format_number({0}, 0)",
    "substring(to_json(array({0})), 2, length(to_json(array({0}))) - 2)",  # it takes no text alone
    "try_element_at({0}, 1)",
    is_spark=True,
)
DUCKDB = Dialect(
    DUCKDB_EXPLODE,
    DUCKDB_SIZE,
    "format('{{:,}}', {0})",
    "CAST(to_json({0}) AS STRING)",
    "list_extract({0}, 1)",
    is_spark=False,
)
