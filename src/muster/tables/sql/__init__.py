"""SQL that derives tables from tables, in the dialect that Spark and duckdb share; each query defines one table."""
