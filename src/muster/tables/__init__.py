"""Tables that remember: their schemas, where they are kept, and how they are asked. No Spark in here.

`schemas` says what every table holds, `store` keeps them (Delta tables and one manifest), `queries` is the SQL that
derives state from history in the words Spark and duckdb share, `reading` asks it with duckdb.
"""
