"""Conversations about transactions, played to a broker and to muster: `telling` says how one is told."""
