"""`muster dump`: segments as records, and as a summary."""
