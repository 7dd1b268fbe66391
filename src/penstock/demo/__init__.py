"""The demonstration: a graph with labels to learn, and a small GNN trained on sampled batches.

`sbm` makes the graph and needs NumPy only; `training` needs torch and PyG.
"""
