"""A running cluster as a source: raw record batches of its topics, over connections of our own, leader by leader."""
