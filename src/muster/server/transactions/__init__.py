"""Transactions: requests become events of their coordinators, and decided ends become markers (decision 0017)."""
