"""What is Spark's own: sessions, workers, the data source, views."""
