"""A channel from the reader's end.

`inputs`, `channel_options` and `registration` say what to ask for, `session` holds one
registration, `reorder_buffer` and `reader` give batches in order of steps. `channel` reads from a
hub or server; `inline` samples in this process.
"""
