"""Recommend items by anchors and labels: users and items with one tower for each.

    python examples/ablp_two_tower.py [--epochs 5] [--workers 2]

Anchors are users. Their labels are purchases set aside as edges `buys_positive`, which come as
pairs in every batch and are never sampled. A user's items should score above all others there.
"""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
from graphs import shop
from torch import Tensor, nn
from torch_geometric.data import HeteroData
from torch_geometric.nn import SAGEConv

import penstock as ps

BUYS = ("user", "buys", "item")


class TwoTowers(nn.Module):
    """Represents users by what they bought, items by their features and by who bought them."""

    def __init__(self, users: int, items: int, width: int = 32) -> None:
        super().__init__()
        self.item = nn.Linear(items, width)
        self.user_tower = SAGEConv((width, users), width)
        self.item_tower = SAGEConv((width, width), width)

    def forward(self, batch: HeteroData) -> tuple[Tensor, Tensor]:
        items, edges = self.item(batch["item"].x).relu(), batch.edge_index_dict
        users = self.user_tower((items, batch["user"].x), edges["item", "bought_by", "user"])
        return users, self.item_tower((users.relu(), items), edges[BUYS])


def scores(model: TwoTowers, batch: HeteroData) -> tuple[Tensor, Tensor]:
    """Return, for each (anchor, label), the anchor's scores of all labels, and the right one."""
    users, items = model(batch)
    anchor, label = batch[BUYS].y_positive
    candidates, place = label.unique(return_inverse=True)  # each candidate once
    return users[anchor] @ items[candidates].T, place


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2, help="0: sample in this process")
    args = parser.parse_args()
    torch.set_num_threads(1)  # the other cores are for the workers
    torch.manual_seed(0)
    data = shop()

    def loader(anchors: Tensor, **options: object) -> ps.ABLPLoader:
        # No purchase that is to be predicted is sampled, in neither direction.
        options |= {"batch_size": 32, "num_workers": args.workers, "exclude": "reverse"}
        back = ("item", "bought_by", "user")
        return ps.ABLPLoader(
            data, [8, 8], anchors, supervision=BUYS, rev_edge_types=back, **options
        )

    model = TwoTowers(data["user"].num_features, data["item"].num_features)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    train, test = data["user"].train_mask, data["user"].test_mask
    with loader(train, shuffle=True, seed=0) as seen, loader(test) as unseen:
        for epoch in range(args.epochs):
            for batch in seen:
                optimizer.zero_grad()
                loss = F.cross_entropy(*scores(model, batch))
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss.item():.3f}", flush=True)
        with torch.no_grad():
            told = [scores(model, batch) for batch in unseen]
    hits = torch.cat([(top.topk(20).indices == at[:, None]).any(1) for top, at in told])
    print(f"hit rate at 20: {hits.float().mean():.1%}")


if __name__ == "__main__":
    main()
