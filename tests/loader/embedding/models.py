"""A graph, models of all kinds, and what they say of the whole graph at once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

import numpy as np

import penstock as ps
from tests.loader.epochs import pyg, torch

nn, F = pyg.nn, torch.nn.functional

NODES, EDGES, WIDTH = 300, 1500, 6
WRITES, CITES = ("author", "writes", "paper"), ("paper", "cites", "paper")
BACK = ("paper", "rev_writes", "author")
COUNTS: Final = {"author": 50, "paper": 120}


def plain_graph(**options: Any) -> ps.Graph:
    """With loops, parallel edges, nodes without edges, and weights."""
    random = np.random.default_rng(7)
    edges = random.integers(0, NODES - 20, (2, EDGES))
    edges[:, :40] = edges[0, :40]
    edges[:, 40:60] = edges[:, 60:80]
    given = {
        "x": random.normal(size=(NODES, WIDTH)).astype("float32"),
        "edge_weight": random.random(EDGES).astype("float32"),
        "edge_attr": random.normal(size=(EDGES, 3)).astype("float32"),
    }
    return ps.Graph.from_coo(edges, NODES, **(given | options))


def typed_graph() -> ps.Graph:
    random = np.random.default_rng(8)

    def edges(kind: Any, count: int) -> Any:
        return np.stack([random.integers(0, COUNTS[kind[end]], count) for end in (0, 2)])

    kinds = {kind: edges(kind, 300) for kind in (WRITES, CITES)}
    kinds[BACK] = kinds[WRITES][::-1]
    x = {
        name: random.normal(size=(count, width)).astype("float32")
        for (name, count), width in zip(COUNTS.items(), (3, 5), strict=True)
    }
    return ps.Graph.from_coo(kinds, COUNTS, x=x)


def tensor(array: Any) -> Any:
    return torch.from_numpy(np.array(array))


def whole(model: Any, graph: ps.Graph, **attributes: str) -> Any:
    """What a model says of the whole graph, in one pass."""
    told = {word: tensor(graph.edge_attribute(name)) for word, name in attributes.items()}
    with torch.no_grad():
        x, edges = tensor(graph.node_attribute("x")), tensor(graph.edge_index())
        return model.eval()(x, edges, **told).numpy()


def whole_typed(model: Any, graph: ps.Graph) -> Any:
    x = {name: tensor(graph.node_attribute("x", name)) for name in graph.node_types}
    edges = {kind: tensor(graph.edge_index(kind)) for kind in graph.edge_types}
    with torch.no_grad():
        return {name: rows.numpy() for name, rows in model.eval()(x, edges).items()}


def basic(name: str, **options: Any) -> Any:
    torch.manual_seed(0)
    model = getattr(nn, name)(WIDTH, 8, num_layers=3, out_channels=4, **options)
    for module in model.modules():  # norms that do something
        if isinstance(module, torch.nn.BatchNorm1d):
            module.running_mean.uniform_(-1, 1)
            module.running_var.uniform_(1, 2)
    return model


class Layered(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Says what its layers are, which ask for what they need by name."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.GATConv(WIDTH, 8, edge_dim=3)
        self.second = nn.GraphConv(8, 4)

    def one(self, x: Any, edge_index: Any, edge_attr: Any) -> Any:
        return F.elu(self.first(x, edge_index, edge_attr))

    def two(self, x: Any, edge_index: Any, edge_weight: Any, batch_size: int) -> Any:
        rows = F.normalize(self.second(x, edge_index, edge_weight) + self.first.bias.mean())
        return rows[:batch_size]

    def inference_layers(self) -> Any:
        return [self.one, self.two]

    def forward(self, x: Any, edge_index: Any, edge_weight: Any, edge_attr: Any) -> Any:
        x = self.one(x, edge_index, edge_attr)
        return self.two(x, edge_index, edge_weight, len(x))


class TypedLayers(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Layers of `HeteroConv`s, with a dictionary of convolutions each."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        widths = {"author": 3, "paper": 5}
        self.convs = torch.nn.ModuleList(
            nn.HeteroConv(
                {
                    kind: nn.SAGEConv((sizes[kind[0]], sizes[kind[2]]), out)
                    for kind in (WRITES, CITES, BACK)
                }
            )
            for sizes, out in ((widths, 8), (dict.fromkeys(widths, 8), 4))
        )

    def layer(self, number: int) -> Any:
        def run(x_dict: Any, edge_index_dict: Any) -> Any:
            made = self.convs[number](x_dict, edge_index_dict)
            return {name: F.relu(rows) for name, rows in made.items()}

        return run

    def inference_layers(self) -> Any:
        return [self.layer(0), self.layer(1)]

    def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
        for layer in self.inference_layers():
            x_dict = layer(x_dict, edge_index_dict)
        return x_dict


def told_of(done: int, total: int) -> None:
    """Says how far a process is, and goes on when it is told to."""
    print(done, total, flush=True)
    if done < total:
        sys.stdin.readline()


def main(path: str, out: str, rank: int, world_size: int) -> None:
    """One rank, as a process of its own."""
    torch.set_num_threads(1)
    ps.embed(
        basic("GCN"),
        Path(path),
        out,
        batch_size=16,
        rank=rank,
        world_size=world_size,
        progress=told_of,
    )


if __name__ == "__main__":
    main(*sys.argv[1:3], *map(int, sys.argv[3:]))  # type: ignore[call-arg, arg-type]
