"""Our own log, in Kafka's files: appending, durability, recovery, topics, compaction."""
