"""The demonstration: ranks train a small GNN from one hub, while things go wrong on purpose.

`run` plays it: a hub, ranks in processes of their own, a worker that is killed, a rank that pauses.
`model`, `trainer` and the ranks' process need torch and PyG; nothing else here does, so that the
process which watches starts at once.
"""
