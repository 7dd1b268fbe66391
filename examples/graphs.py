"""The small graphs that the examples train on; each is made quickly, always the same.

Not an example itself: it makes or reads a graph, and knows nothing of loaders or models.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch_geometric.data import Data, HeteroData


def citations(num_fields: int = 7, papers: int = 200, seed: int = 0) -> Data:
    """Return a graph like Cora: papers cite mostly their field; features tell little of it."""
    random, num_nodes = np.random.default_rng(seed), num_fields * papers
    field = np.arange(num_nodes) % num_fields
    citing, cited = random.integers(0, num_nodes, (2, 3 * num_nodes))
    near = (citing + num_fields * random.integers(0, papers, len(citing))) % num_nodes
    cited = np.where(random.random(len(citing)) < 0.9, near, cited)
    x = random.standard_normal((num_nodes, 32)) + np.eye(32)[field]
    edges = np.stack([np.r_[citing, cited], np.r_[cited, citing]])
    data = Data(torch.tensor(x, dtype=torch.float), torch.tensor(edges), y=torch.tensor(field))
    return _split(data, random.permutation(num_nodes), num_nodes // 5, num_nodes // 4)


def planetoid(path: Path) -> Data:
    """Return Cora or Citeseer with their public split, from an .npz with `x` as CSR arrays."""
    with np.load(path) as file:
        x = np.zeros(file["x_shape"], np.float32)
        words = np.diff(file["x_indptr"])
        x[np.repeat(np.arange(len(x)), words), file["x_indices"]] = file["x_data"]
        x /= np.maximum(x.sum(1, keepdims=True), 1)
        edges, y = torch.tensor(file["edge_index"]), torch.tensor(file["y"])
        data = Data(torch.tensor(x), edges, y=y)
        for split in ("train", "val", "test"):
            data[f"{split}_mask"] = _mask(len(x), file[f"{split}_idx"])
    return data


def shop(users: int = 600, items: int = 300, tastes: int = 6, seed: int = 0) -> HeteroData:
    """Return users who buy items, mostly to their taste, which only the items' features show.

    One purchase in four is set aside, as `buys_positive`: what a recommender is to predict.
    """
    random = np.random.default_rng(seed)
    who = random.integers(0, users, 12 * users)
    to_taste = (who % tastes + tastes * random.integers(0, items // tastes, len(who))) % items
    what = np.where(random.random(len(who)) < 0.85, to_taste, random.integers(0, items, len(who)))
    bought, kept = torch.tensor(np.stack([who, what])), torch.tensor(random.random(len(who)) < 0.75)
    data = HeteroData()
    data["user"].x = torch.tensor(random.standard_normal((users, 8)), dtype=torch.float)
    data["user"].y = torch.arange(users) % tastes
    looks = random.standard_normal((items, 16)) + np.eye(16)[np.arange(items) % tastes]
    data["item"].x = torch.tensor(looks, dtype=torch.float)
    data["user", "buys", "item"].edge_index = bought[:, kept]
    data["item", "bought_by", "user"].edge_index = bought[:, kept].flip(0)
    data["user", "buys_positive", "item"].edge_index = bought[:, ~kept]
    _split(data["user"], random.permutation(users), users // 2, users // 4)
    return data


def _split(store: Data, order: np.ndarray, train: int, test: int) -> Data:
    """Use the first nodes for training, the last for testing."""
    store.train_mask = _mask(len(order), order[:train])
    store.test_mask = _mask(len(order), order[-test:])
    return store


def _mask(num_nodes: int, ids: np.ndarray) -> torch.Tensor:
    mask = torch.zeros(num_nodes, dtype=torch.bool)
    mask[torch.tensor(ids)] = True
    return mask
