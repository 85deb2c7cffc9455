"""Kafka's messages: their layouts, the table of APIs, headers."""
