"""Kafka's files on disk: their formats, and reading the logs that any broker has written."""
