"""PyG's side of the loaders: their arguments, the data they take, the batches they give.

One module per loader (`neighbor_loader`, …) on `base`; `options` and `specs` read arguments,
`pyg_data`, `stores` and `matrix` read data, `template` and `collate` build batches, `torch_shims`
and `mixins` provide what torch's and PyG's loaders have.
"""
