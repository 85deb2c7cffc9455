"""Measurements of muster beside Kafka, in one run on one machine: `make bench`, `make bench BENCH=full`."""
