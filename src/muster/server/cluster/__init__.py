"""What a client needs to know of a cluster besides its groups: nodes, topics, their settings, and where logs end.

A module has one API, or a few that are alike, all of one form: `decode_…` turns the bytes of a request into a small
type of our own; a function answers it, or makes the plan of what it changes; `encode_…` turns the answer into a frame.
The table `APIS` at the end of the module lists them. They do no I/O, ask no clock and make no ids up. The answers are
those of Apache Kafka 4.3.0, down to its sentences; `tests/server/cluster` asks both and compares. Where muster differs
on purpose, the module says so.
"""
