"""Prometheus metrics of any live cluster's groups: `poll` asks, `page` tells, `docs/exporter.md` explains them."""
