"""PyG's side of the loaders: their arguments, the data they take, the batches they give."""
