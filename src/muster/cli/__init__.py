"""The command line: what people who run Kafka type, and what they read."""
