"""The broker: connections, requests, the partitions that are led, and the cluster as clients see it."""
