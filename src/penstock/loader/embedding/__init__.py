"""Embeddings of all nodes, layer by layer, in files.

`embed` is the public function. `steps` turns a model into steps, each of which makes the states of
all nodes from those before; `norms` lets convolutions see what they would see of the whole graph.
`run` does the steps, a shard of nodes at a time. `workspace` is the folder in which ranks agree who
does which shard, and `output` writes the file that was asked for.
"""
