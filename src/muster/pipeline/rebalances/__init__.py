"""Rebalances of groups, told from their records."""
