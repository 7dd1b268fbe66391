"""Nodes and edges of several types: predict users' tastes from the items they buy.

    python examples/heterogeneous.py [--epochs 5] [--workers 2] [--hgt]

Batches are `HeteroData`. `--hgt` samples a fixed number of nodes of every type in each layer
(`HGTLoader`) instead of a number of neighbours of every node.
"""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
from graphs import shop
from torch import Tensor
from torch_geometric.data import HeteroData
from torch_geometric.nn import GraphSAGE, to_hetero

import penstock as ps


def on_seeds(model: torch.nn.Module, batch: HeteroData) -> tuple[Tensor, Tensor]:
    """Return the model's predictions for a batch's seeds, and their labels."""
    out = model(batch.x_dict, batch.edge_index_dict)["user"]
    seeds = slice(batch["user"].batch_size)
    return out[seeds], batch["user"].y[seeds]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2, help="0: sample in this process")
    parser.add_argument("--hgt", action="store_true", help="layers with a budget for each type")
    args = parser.parse_args()
    torch.set_num_threads(1)  # the other cores are for the workers
    torch.manual_seed(0)
    data = shop()
    del data["user", "buys_positive", "item"]  # not used here

    def loader(split: str, **options: object) -> ps.NeighborLoader | ps.HGTLoader:
        options |= {"batch_size": 64, "num_workers": args.workers}
        users = ("user", data["user"][f"{split}_mask"])
        if args.hgt:
            return ps.HGTLoader(data, [256, 256], users, **options)
        fan_outs = {kind: [8, 8] for kind in data.edge_types}  # or a list, for all types
        return ps.NeighborLoader(data, fan_outs, users, **options)

    model = to_hetero(GraphSAGE((-1, -1), 32, 2, int(data["user"].y.max()) + 1), data.metadata())
    with loader("train", shuffle=True, seed=0) as seen, loader("test") as unseen:
        on_seeds(model, next(iter(unseen)))  # initialises the lazy layers
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for epoch in range(args.epochs):
            for batch in seen:
                optimizer.zero_grad()
                loss = F.cross_entropy(*on_seeds(model, batch))
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss.item():.3f}", flush=True)
        with torch.no_grad():
            told = [on_seeds(model, batch) for batch in unseen]
        right = torch.cat([out.argmax(1) == y for out, y in told])
        print(f"test accuracy {right.float().mean():.1%}")


if __name__ == "__main__":
    main()
