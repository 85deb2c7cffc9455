"""muster: Kafka's group coordinator and its `__consumer_offsets` topic, in Python."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from muster.broker import Broker

__version__ = "0.1.0"
__all__ = ["Broker", "__version__"]


def __getattr__(name: str) -> object:
    """`muster.Broker` without loading a server for those who only read logs."""
    if name == "Broker":
        from muster.broker import Broker

        return Broker
    raise AttributeError(f"module 'muster' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
