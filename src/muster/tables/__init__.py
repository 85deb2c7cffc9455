"""Tables that remember: what they hold, where they are kept, and how they are asked. No Spark in here.

`schemas` and `columns` say what every table holds. `storage` keeps them: Delta tables and one manifest, what a run does
to them (`storage.changes`), and what keeps them small. `sql` and `findings` derive tables from history, in words that
Spark and duckdb share. `reading` asks with duckdb.
"""
