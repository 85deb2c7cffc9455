"""Records of data topics: they are produced, kept in their logs, and fetched."""
