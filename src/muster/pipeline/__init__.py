"""The pipeline: any cluster's offsets topic as tables, on Spark. `job` reads like a table of contents."""
