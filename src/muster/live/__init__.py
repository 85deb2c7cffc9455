"""A live cluster's offsets topic as raw record batches: connections of our own, leader by leader."""
