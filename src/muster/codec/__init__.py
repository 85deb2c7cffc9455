"""Bytes to values and back, without I/O: record batches, the records of `__consumer_offsets`, and their columns."""
