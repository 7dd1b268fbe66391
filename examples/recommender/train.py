"""Recommend items: from three Parquet files to the embeddings of all items in another.

python examples/recommender/generate.py shop
python examples/recommender/train.py shop [--epochs 1] [--workers 2]
"""

import argparse
from pathlib import Path

import torch
import torch.nn.functional as F
from torch_geometric.nn import HeteroConv, SAGEConv

import penstock as ps

BUYS, BOUGHT_BY = ("user", "buys", "item"), ("item", "rev_buys", "user")


def build(shop: Path) -> ps.Graph:
    """Build the graph; the latest tenth of purchases is to be predicted."""
    split = {"by": "time", "test": 0.1}
    ends = {"source": "user_id", "target": "sku", "time": "at", "reverse": True, "split": split}
    users = {"id": "user_id", "features": {"x": ["tenure", "activity"]}}
    items = {"id": "sku", "features": {"x": ["log_price", "looks"]}}
    users["files"], items["files"] = str(shop / "users.parquet"), str(shop / "items.parquet")
    edges = {BUYS: {"files": str(shop / "interactions.parquet"), **ends}}
    return ps.build(shop / "shop.graph", nodes={"user": users, "item": items}, edges=edges)


class Recommender(torch.nn.Module):
    """Two layers: items learn from who bought them, users from what they bought."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        convs = [{kind: SAGEConv((-1, -1), width) for kind in (BUYS, BOUGHT_BY)} for _ in range(2)]
        self.first, self.second = map(HeteroConv, convs)

    def hidden(self, x, edges):
        return {name: rows.relu() for name, rows in self.first(x, edges).items()}

    def inference_layers(self):
        return [self.hidden, self.second]

    def forward(self, batch):
        """Return how well each of the batch's users goes with each of its items."""
        x = self.second(self.hidden(batch.x_dict, batch.edge_index_dict), batch.edge_index_dict)
        user, item = batch[BUYS].edge_label_index
        return F.normalize(x["user"][user]) @ F.normalize(x["item"][item]).T / 0.1


parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("shop", type=Path)
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--workers", type=int, default=2, help="0: sample in this process")
args = parser.parse_args()
torch.manual_seed(0)
graph, model = build(args.shop), Recommender()
# A purchase sees what was bought before it, and not itself.
options = {"time_attr": "edge_time", "exclude": "reverse", "num_workers": args.workers}
options |= {"batch_size": 512, "seed": 0}
with ps.LinkNeighborLoader(graph, [8, 4], (BUYS, "train"), shuffle=True, **options) as loader:
    model(next(iter(loader)))  # now its parameters have sizes
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    for epoch in range(args.epochs):
        for batch in loader:
            scores = model(batch)
            loss = F.cross_entropy(scores, torch.arange(len(scores)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.2f}", flush=True)
with ps.LinkNeighborLoader(graph, [8, 4], (BUYS, "test"), **options) as loader, torch.no_grad():
    ranks = torch.cat([(s >= s.diag()[:, None]).sum(1) for s in map(model, loader)])
print(f"hit rate at 50 of 512: {(ranks <= 50).float().mean():.1%}")
out = args.shop / "embeddings.parquet"
ps.embed(model, graph, out, node_type="item", num_workers=args.workers)
print(f"embeddings of {graph.num_nodes('item')} items: {out}")
graph.close()
