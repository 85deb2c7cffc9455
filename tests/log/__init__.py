"""Our own log: on a disk that fails, through crashes and power cuts, and compacted."""
