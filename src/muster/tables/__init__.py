"""Tables that remember: their schemas, where they are kept, and how they are asked. No Spark in here.

`schemas` and `columns` say what every table holds, `store` keeps them (Delta tables and one manifest), `changes` is
what a run does to them, `queries`, `intervals` and `hours` are the SQL that derives tables from history in words
that Spark and duckdb share, `reading` asks with duckdb. `compact`, `retention` and `upkeep` keep them small.
"""
