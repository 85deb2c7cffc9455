"""Kafka 4.3's message layouts, as text in the notation of `muster.codec.layouts`; loaded one module at a time."""
