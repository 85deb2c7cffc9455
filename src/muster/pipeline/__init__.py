"""The pipeline: any cluster's offsets topic as tables, on Spark. `job` reads like a table of contents.

`views` opens the finished tables in Spark SQL, `register_views` puts them into a catalog (`docs/open.md`).
"""

from muster.pipeline.spark.sql_views import register_views, views

__all__ = ["register_views", "views"]
