"""Pages over the tables: served by `muster dashboard`, and written into one file by `muster report` (decision 0019)."""
