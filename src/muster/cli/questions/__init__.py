"""Commands that answer a question from the tables, without Spark: `answers/` asks, here it is shown."""
