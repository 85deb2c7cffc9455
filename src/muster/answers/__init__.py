"""Questions over open tables: typed rows come back. No printing, no HTML, no clock of its own (decision 0018)."""
