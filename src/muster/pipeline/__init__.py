"""The pipeline: any cluster's offsets topic as tables, on Spark. `job` reads like a table of contents.

`views` opens the finished tables in Spark SQL (`docs/open.md`).
"""

from muster.pipeline.sql_views import views

__all__ = ["views"]
