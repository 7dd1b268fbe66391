"""Predict which papers cite each other: edges, as many negatives, and their neighbourhoods.

    python examples/link_prediction.py [--epochs 5] [--workers 2]

An encoder puts linked nodes close to each other. The edges that a batch is to predict, and their
reverses, are not sampled in it; the workers draw new negatives for every batch.
"""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
from graphs import citations
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import GraphSAGE
from torch_geometric.transforms import RandomLinkSplit

import penstock as ps


def scores(model: GraphSAGE, batch: Data) -> Tensor:
    """Return how close the ends of a batch's pairs are to each other."""
    z = model(batch.x, batch.edge_index)
    source, target = z[batch.edge_label_index]
    return (source * target).sum(1)


def area_under_curve(scored: Tensor, label: Tensor) -> float:
    """Return how often an edge is scored above a negative pair."""
    above = scored[label == 1][:, None] > scored[label == 0][None]
    return above.float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2, help="0: sample in this process")
    args = parser.parse_args()
    torch.set_num_threads(1)  # the other cores are for the workers
    torch.manual_seed(0)
    # The edges of the test are in neither graph; those of training are sampled by other batches.
    split = RandomLinkSplit(0.0, 0.1, is_undirected=True, add_negative_train_samples=False)
    known, _, hidden = split(citations())
    options = {"batch_size": 64, "num_workers": args.workers, "seed": 0}
    train = ps.LinkNeighborLoader(
        known,
        [8, 8],
        known.edge_label_index,
        neg_sampling="binary",
        exclude="reverse",
        shuffle=True,
        **options,
    )
    # Its negatives are given, with labels of 0: the same ones for every model.
    test = ps.LinkNeighborLoader(
        hidden, [8, 8], hidden.edge_label_index, hidden.edge_label, **options
    )
    model = GraphSAGE(known.num_features, 64, 2, 32)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    with train, test:
        for epoch in range(args.epochs):
            for batch in train:
                optimizer.zero_grad()
                loss = F.binary_cross_entropy_with_logits(scores(model, batch), batch.edge_label)
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss.item():.3f}", flush=True)
        with torch.no_grad():
            told = [(scores(model, batch), batch.edge_label) for batch in test]
    print(f"test AUC {area_under_curve(*map(torch.cat, zip(*told, strict=True))):.3f}")


if __name__ == "__main__":
    main()
