"""`muster table`: the pipeline's tables, read without Spark."""
