"""The model of the demonstration: a minimal GraphSAGE. Needs torch and PyG."""

from __future__ import annotations

import warnings
from itertools import pairwise
from typing import Any

import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # PyG issues warnings when imported
    from torch_geometric.nn import SAGEConv


class GraphSage(torch.nn.Module):
    """GraphSAGE with one convolution for each sampled hop."""

    def __init__(self, width: int, hidden: int, classes: int, layers: int) -> None:
        super().__init__()
        sizes = [width, *[hidden] * (layers - 1), classes]
        self.convs = torch.nn.ModuleList(SAGEConv(*pair) for pair in pairwise(sizes))

    def forward(self, batch: Any) -> torch.Tensor:
        """Return the logits of the batch's seeds, which are its first nodes."""
        h: torch.Tensor = batch.x.float()
        for number, conv in enumerate(self.convs):
            h = conv(h, batch.edge_index)
            if number < len(self.convs) - 1:
                h = h.relu()
        return h[: batch.batch_size]


def labels_of(batch: Any) -> torch.Tensor:
    """Return the classes of the batch's seeds."""
    labels: torch.Tensor = batch.y[: batch.batch_size].reshape(-1).long()
    return labels
