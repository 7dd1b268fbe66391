"""The demonstration: ranks train a small GNN from one hub, while faults are injected.

`run` does it all: a hub, ranks in processes of their own, a worker that is killed, a rank that
pauses; with a store, the graph in parts at servers, of which one is killed instead. `model`,
`trainer` and the ranks' process need torch and PyG; nothing else here does, so that the process
that watches starts at once.
"""
