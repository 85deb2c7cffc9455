"""Kafka's messages: the notation of their layouts, its interpreter, the table of APIs, headers."""
