"""Settings: properties files, Kafka's types and names of settings, the broker's own, and those of clients."""
