"""Kafka's files on disk: finding the segments of a topic and reading them."""
