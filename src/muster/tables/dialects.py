"""The few words that Spark and duckdb do not share."""

from collections.abc import Mapping
from typing import NamedTuple

from muster.tables.queries import DUCKDB_EXPLODE, SPARK_EXPLODE


class Dialect(NamedTuple):
    """How one of them says it."""

    explode: str
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


SPARK = Dialect(SPARK_EXPLODE, is_spark=True)
DUCKDB = Dialect(DUCKDB_EXPLODE, is_spark=False)
