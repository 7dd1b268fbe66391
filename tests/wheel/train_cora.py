"""Trains one epoch through a worker process, with whatever `penstock` is installed.

    python train_cora.py [cora.npz]

Without the file it trains on a graph like Cora. To run it needs `first_batches.py` and a copy of
`examples/graphs.py` beside it. Prints as JSON what was loaded from where and what came of it.
"""

from __future__ import annotations

import json
import math
import os
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from first_batches import modules_of
from graphs import citations, planetoid
from torch_geometric.nn import GraphSAGE

import penstock as ps
from penstock.kernels import _native

BATCH_SIZE = 20


def train(model: Any, loader: Any) -> list[float]:
    """One epoch; each batch's loss."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for batch in loader:
        out = model(batch.x, batch.edge_index)[: batch.batch_size]
        loss = F.cross_entropy(out, batch.y[: batch.batch_size])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    data = planetoid(Path(sys.argv[1])) if sys.argv[1:] else citations()
    options = {"batch_size": BATCH_SIZE, "shuffle": True, "seed": 0, "num_workers": 1}
    model = GraphSAGE(data.num_features, 64, 2, int(data.y.max()) + 1)
    with ps.NeighborLoader(data, [10, 10], data.train_mask, **options) as loader:
        losses = train(model, loader)
        hub = loader._batches_from.hub().statistics()
        workers = [worker["pid"] for worker in hub["pool"]["workers"]]
        modules = [module for pid in workers for module in modules_of(pid)]
    said = {
        "version": metadata.version("penstock-gnn"),
        "nodes": data.num_nodes,
        "batches": math.ceil(int(data.train_mask.sum()) / BATCH_SIZE),
        "package": ps.__file__,
        "module": _native.__file__,
        "losses": losses,
        "pid": os.getpid(),
        "workers": workers,
        "modules of workers": modules,
        "made by workers": sum(group["done"] for group in hub["scheduler"]["groups"]),
    }
    print(json.dumps(said))


if __name__ == "__main__":
    main()
