"""muster: Kafka's group coordinator and its `__consumer_offsets` topic, in Python."""

__version__ = "0.1.0"
