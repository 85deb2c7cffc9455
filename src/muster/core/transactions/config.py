"""Settings of the transaction coordinator, with Kafka's names and defaults."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """What the coordinator goes by; its limits are checked where an operator sets it (`config/broker.py`)."""

    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 604_800_000
    muster_max_transactional_ids: int = 1_000_000
    """In one partition. Kafka has no limit."""
    max_batch_bytes: int = 1_048_588
    """The largest batch that the log takes: its `max.message.bytes`, or `segment.bytes` if that is less."""
