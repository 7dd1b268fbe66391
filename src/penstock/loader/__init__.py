"""PyG's loaders over a hub. Torch is used from here on; no package below imports it.

`pyg`: arguments, data and batches of the loaders. `epoch`: order, ranks, position, iteration.
`source`: data as graphs, inputs, hubs, servers. `device`: batches on a GPU. `embedding`: embeddings
of all nodes, in files. `watch`: statistics, live. `errors`: their errors.
"""

from __future__ import annotations

import warnings

try:
    # PyG issues warnings of its own when imported, which do not concern our users.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch_geometric  # noqa: F401 - so that it is there for all that follows
except ImportError as error:
    raise ImportError(
        "the loaders need torch and torch_geometric: pip install 'penstock-gnn[pyg]'"
    ) from error
