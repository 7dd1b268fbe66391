"""Predict a node's class from its neighbourhood: GraphSAGE on a sampled citation graph.

    python examples/node_classification.py [--epochs 5] [--workers 2] [--data cora.npz]

The loop is PyG's own except for the import: workers of a pool sample while the model learns.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import torch.nn.functional as F
from graphs import citations, planetoid
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import GraphSAGE

import penstock as ps


def train(model: GraphSAGE, optimizer: torch.optim.Optimizer, loader: ps.NeighborLoader) -> float:
    """Train one epoch; return its mean loss."""
    model.train()
    losses = []
    for batch in loader:
        optimizer.zero_grad()
        # The seeds come first; the other nodes are their neighbourhoods.
        out = model(batch.x, batch.edge_index)[: batch.batch_size]
        loss = F.cross_entropy(out, batch.y[: batch.batch_size])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return sum(losses) / len(losses)


@torch.no_grad()
def accuracy(model: GraphSAGE, loader: ps.NeighborLoader) -> float:
    """Return the share of seeds that are classified correctly."""
    model.eval()
    right = []
    for batch in loader:
        out = model(batch.x, batch.edge_index)[: batch.batch_size]
        right.append(out.argmax(1) == batch.y[: batch.batch_size])
    return torch.cat(right).float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2, help="0: sample in this process")
    parser.add_argument("--data", type=Path, help="Cora or Citeseer as .npz")
    args = parser.parse_args()
    torch.set_num_threads(1)  # the other cores are for the workers
    torch.manual_seed(0)
    data: Data = citations() if args.data is None else planetoid(args.data)

    def loader(nodes: Tensor, **options: object) -> ps.NeighborLoader:
        options |= {"batch_size": 64, "num_workers": args.workers}
        return ps.NeighborLoader(data, [10, 10], nodes, **options)

    model = GraphSAGE(data.num_features, 64, 2, int(data.y.max()) + 1, dropout=0.5)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    # Both loaders share the graph in memory and the workers.
    with loader(data.train_mask, shuffle=True, seed=0) as seen, loader(data.test_mask) as unseen:
        for epoch in range(args.epochs):
            print(f"epoch {epoch}: loss {train(model, optimizer, seen):.3f}", flush=True)
        print(f"test accuracy {accuracy(model, unseen):.1%}")


if __name__ == "__main__":
    main()
