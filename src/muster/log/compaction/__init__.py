"""Compaction and retention of our own logs, by the rules of Kafka's cleaner."""
