"""What is Spark's own: the session, its workers, readers of logs and published tables, streams, SQL views."""
