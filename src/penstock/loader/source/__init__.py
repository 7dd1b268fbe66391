"""Where a loader's batches come from.

`sources` turns a user's data into a graph (`graph_cache`, `mapped_files`, `changes`); `inputs` and
`anchors` are its inputs; `hubs`, `remote_dataset` and `batch_source` are its hubs, servers and
channels; `adhoc` and `remote_adhoc` make single batches.
"""
