"""The group coordinator: what happened goes in, work for the shell comes out. No I/O, no clock, no randomness."""
