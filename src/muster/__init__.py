"""muster: Kafka's group coordinator and its `__consumer_offsets` topic, in Python."""

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """`muster.Broker` without loading a server for those who only read logs."""
    if name == "Broker":
        from muster.broker import Broker

        return Broker
    raise AttributeError(f"module 'muster' has no attribute '{name}'")
