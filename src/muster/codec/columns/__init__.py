"""The columnar door: segment bytes to Arrow columns, text or JSON, thousands of records in a millisecond.

Read in this order: `scan` (where the batches and records are), `commits` (what each record is), `chunks` (the two
together, with decompression), then any of the three things made of a chunk: `arrow` (columns, schema in `schema`),
`dump_text` and `dump_json` (what people read, with `lines`), `latest` (the newest record of each key).
"""
