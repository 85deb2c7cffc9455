"""What a client needs to know of a cluster besides its groups: nodes, topics, their settings, and where logs end.

One module for each API, all of one form: `decode` turns the bytes of a request into a small type of our own, `handle`
answers it, `encode` turns the answer into a frame. `handle` has no I/O but the storage of topics it is given, asks no
clock and makes no ids up. The answers are those of Apache Kafka 4.3.0, down to its sentences; `tests/server/cluster`
asks both and compares. Where muster differs on purpose, the module says so.
"""
