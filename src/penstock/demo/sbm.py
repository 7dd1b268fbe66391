"""A stochastic block model: classes show in the edges, and barely in the features.

A node's own features are mostly noise, so a model without neighbourhoods does poorly and one with
them does well: on this graph, learning (or its failure) can be seen in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.graph import Graph


@dataclass(frozen=True, slots=True)
class BlockModel:
    """The size and the difficulty of the graph."""

    num_nodes: int = 200_000
    num_classes: int = 12
    degree: int = 15
    within: float = 0.6  # the share of edges that stay in their class, beyond chance
    width: int = 64
    signal: float = 0.18  # distance of class centres, in units of the noise
    train: float = 0.1
    val: float = 0.05
    seed: int = 0

    def __post_init__(self) -> None:
        if self.num_nodes < 10 * self.num_classes:
            raise ValueError(
                f"num_nodes is {self.num_nodes}; expected at least {10 * self.num_classes}"
            )


def block_model(spec: BlockModel) -> Graph:
    """Return the graph of a block model, with `x`, `y` and splits."""
    rng = np.random.default_rng(spec.seed)
    y = rng.integers(0, spec.num_classes, spec.num_nodes)
    order = rng.permutation(spec.num_nodes)
    train, val = int(spec.train * spec.num_nodes), int(spec.val * spec.num_nodes)
    return Graph.from_coo(
        _edges(spec, y, rng),
        num_nodes=spec.num_nodes,
        x=_features(spec, y, rng),
        y=y,
        train=order[:train],
        val=order[train : train + val],
        test=order[train + val :],
        graph_attrs={"num_classes": spec.num_classes},
    )


def _edges(
    spec: BlockModel, y: npt.NDArray[np.int64], rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Return undirected edges, both directions; targets from the source's class or from all."""
    count = spec.num_nodes * spec.degree // 2
    source = rng.integers(0, spec.num_nodes, count)
    target = rng.integers(0, spec.num_nodes, count)
    members = np.argsort(y, kind="stable")
    first = np.searchsorted(y[members], np.arange(spec.num_classes + 1))
    size = np.diff(first)
    stays = (rng.random(count) < spec.within) & (size[y[source]] > 0)
    home = y[source[stays]]
    target[stays] = members[first[home] + (rng.random(len(home)) * size[home]).astype(np.int64)]
    return np.stack([np.r_[source, target], np.r_[target, source]])


def _features(
    spec: BlockModel, y: npt.NDArray[np.int64], rng: np.random.Generator
) -> npt.NDArray[np.float32]:
    centres = spec.signal * rng.standard_normal((spec.num_classes, spec.width), dtype=np.float32)
    x = rng.standard_normal((spec.num_nodes, spec.width), dtype=np.float32)
    x += centres[y]
    return x
