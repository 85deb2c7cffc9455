"""The columnar codec: segment bytes to Arrow columns, text or JSON, thousands of records in a millisecond.

Read in this order: `scan` (where the batches and records are), `commits` and `groups` (what each record is), `chunks`
(all together, with decompression), then what is made of a chunk: `arrow` (columns, schema in `schema`), `dump_text` and
`dump_json` (what people read; `lines` for both), `latest` (the newest record of each key), `tally` (a summary),
`activity` (when groups committed). `kernels` is below all of them, `rowwise` for what is rare.
"""
