"""A wide view with one layer: each seed, and the nodes that matter most to it.

    python examples/ppr.py [--epochs 5] [--workers 2]

Personalised PageRank finds these nodes, at any distance, and gives their weights; a plain network
predicts from their features (as in PPRGo).
"""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
from graphs import citations
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import MLP
from torch_geometric.utils import scatter

import penstock as ps


def on_seeds(model: MLP, batch: Data) -> Tensor:
    """Sum the predictions of the nodes that matter to each seed, weighted by their scores."""
    seed, node = batch.edge_index
    score, _closeness = batch.edge_attr.T
    said = model(batch.x)[node] * score[:, None]
    return scatter(said, seed, dim_size=batch.batch_size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2, help="0: sample in this process")
    args = parser.parse_args()
    torch.set_num_threads(1)  # the other cores are for the workers
    torch.manual_seed(0)
    data = citations()

    def loader(nodes: Tensor, **options: object) -> ps.PPRLoader:
        options |= {"batch_size": 64, "num_workers": args.workers}
        return ps.PPRLoader(data, nodes, alpha=0.25, eps=1e-4, max_ppr_nodes=32, **options)

    model = MLP([data.num_features, 64, int(data.y.max()) + 1], norm=None)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    with loader(data.train_mask, shuffle=True, seed=0) as seen, loader(data.test_mask) as unseen:
        for epoch in range(args.epochs):
            for batch in seen:
                optimizer.zero_grad()
                loss = F.cross_entropy(on_seeds(model, batch), batch.y[: batch.batch_size])
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss.item():.3f}", flush=True)
        with torch.no_grad():
            told = [(on_seeds(model, batch), batch.y[: batch.batch_size]) for batch in unseen]
    right = torch.cat([out.argmax(1) == y for out, y in told])
    print(f"test accuracy {right.float().mean():.1%}")


if __name__ == "__main__":
    main()
