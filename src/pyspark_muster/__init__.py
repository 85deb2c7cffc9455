"""Spark looks for data sources in modules named like this one; the source itself is in `muster.pipeline.datasource`."""

from muster.pipeline.datasource import OffsetsTopic as DefaultSource

__all__ = ["DefaultSource"]
