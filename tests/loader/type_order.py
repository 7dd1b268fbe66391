"""The types of batches from every source, in the order that this process gives them.

    python -m tests.loader.type_order FOLDER UNIX_ADDRESS TCP_ADDRESS

Prints `metadata()` of a batch of each source and loader, and the segments of a graph in files. The
test runs it with several PYTHONHASHSEED.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

import penstock as ps
from tests.loader.reading import HeteroData, MyFeatureStore, MyGraphStore, source_of, torch

# Named so that the order of a set would differ from that of the graph.
NODE_TYPES = ["zebra", "ant", "to", "mole", "crow", "bear", "wolf", "eel"]
EDGE_TYPES = [
    ("zebra", "eats", "ant"),
    ("ant", "wolf", "mole"),  # a relation named like a node type
    ("mole", "to", "to"),
    ("to", "to", "zebra"),
    ("crow", "meets", "bear"),
    ("bear", "meets", "zebra"),
    ("wolf", "hunts", "zebra"),
    ("zebra", "eel", "eel"),
]
SIZE = 6


def hetero_data() -> Any:
    data = HeteroData()
    for name in NODE_TYPES:
        data.get_node_store(name).x = torch.rand(SIZE, 2)
    for kind in EDGE_TYPES:
        ring = torch.arange(SIZE)
        data[kind].edge_index = torch.stack([ring, ring.roll(1)])
    return data


def graph() -> Any:
    """With an attribute of one edge type as a whole, whose store a batch must not make first."""
    data = hetero_data()
    data[EDGE_TYPES[-1]].unit = "m"
    return ps.Graph.from_pyg(data)


def stores() -> Any:
    features, edges = MyFeatureStore(), MyGraphStore()
    for name in NODE_TYPES:
        features.put_tensor(torch.rand(SIZE, 2), group_name=name, attr_name="x", index=None)
    for kind in EDGE_TYPES:
        ends = torch.arange(SIZE), torch.arange(SIZE).roll(1)
        edges.put_edge_index(ends, edge_type=kind, layout="coo", size=(SIZE, SIZE))
    return features, edges


def filed(folder: str) -> Any:
    """With attributes in files, which are mapped."""
    data = hetero_data()
    for name in NODE_TYPES:
        path = Path(folder) / f"{name}.npy"
        rows = np.load(path, mmap_mode="r+") if path.exists() else None
        data.get_node_store(name).table = torch.from_numpy(rows)
    return data


def loaders(source: Any) -> dict[str, Any]:
    edges = ("zebra", "eats", "ant")
    return {
        "neighbors": ps.NeighborLoader(source, [2, 2], "zebra", batch_size=3, seed=0),
        "links": ps.LinkNeighborLoader(source, [2], edges, batch_size=3, seed=0),
        "hgt": ps.HGTLoader(source, [4], "zebra", batch_size=3, seed=0),
    }


def orders(folder: str, unix: str, tcp: str) -> dict[str, Any]:
    whole = ps.Graph.open(Path(folder) / "saved.graph")
    sources = {
        "data": hetero_data(),
        "stores": stores(),
        "graph": whole,
        "path": Path(folder) / "saved.graph",
        "hub": unix,
        "server": tcp,
    }
    found: dict[str, Any] = {"graph itself": whole.metadata()}
    for place, source in sources.items():
        for name, loader in loaders(source).items():
            with loader:
                batch = next(iter(loader))
                for kind in NODE_TYPES:
                    assert {"n_id", "x"} <= {*batch[kind].keys()}, (place, name, kind)
                    assert batch[kind].num_nodes == len(batch[kind].x), (place, name, kind)
                found[f"{place}, {name}"] = batch.metadata()
    mapped = source_of(filed(folder)).graph
    paths = [each.path for each in mapped.handle().segments if hasattr(each, "path")]
    found["files"] = [Path(path).stem for path in paths]
    return found


if __name__ == "__main__":
    print(json.dumps(orders(*sys.argv[1:])))
