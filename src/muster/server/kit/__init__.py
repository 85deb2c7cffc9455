"""The test kit: what a test asks of a running server besides the requests of its clients. Decision 0016 says more."""
