"""The graph of a demonstration: a generated one, or the user's own, checked before it is used.

Everything that can be wrong with a graph is reported here, before any process is started.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from penstock.demo.sbm import BlockModel, block_model
from penstock.graph import Graph

# The share of generated nodes to train on: enough that training takes a while.
_TRAIN: Final = 0.4
_TEST_NODES: Final = 20_000
_AS_SAVED: Final = "Graph.from_pyg(data).save(path) keeps x, y, train_mask and test_mask"


@dataclass(frozen=True, eq=False)
class Subject:
    """A graph that can be learned from. `test` are the nodes that accuracy is measured on."""

    graph: Graph
    classes: int
    width: int
    test: npt.NDArray[np.int64]

    @property
    def chance(self) -> float:
        """The accuracy of always predicting the most frequent class."""
        labels = _labels(self.graph)[self.test]
        return float(np.bincount(labels).max() / len(labels))


def generated(nodes: int, seed: int) -> Graph:
    """Return a block model with this many nodes."""
    return block_model(BlockModel(num_nodes=nodes, train=_TRAIN, seed=seed))


def subject_of(graph: Graph, what: str | Path) -> Subject:
    """Check that a graph can be learned from; ValueError says what it lacks."""
    if graph.is_hetero:
        raise ValueError(
            f"{what} has several types of nodes or edges; the demo trains on graphs of one type"
        )
    x = _attribute(graph, "x", what, "features")
    if x.ndim != 2 or x.dtype.kind not in "fiu":
        raise ValueError(f"x of {what} is {_form(x)}; expected numbers, [nodes, features]")
    y = _attribute(graph, "y", what, "labels")
    if y.dtype.kind not in "iu" or y.size != graph.num_nodes():
        raise ValueError(f"y of {what} is {_form(y)}; expected one class per node, as an integer")
    train, test = (_split(graph, name, what) for name in ("train", "test"))
    classes = max(_highest(graph, nodes, what) for nodes in (train, test)) + 1
    return Subject(graph, classes, x.shape[1], nodes_to_test(graph))


def nodes_to_test(graph: Graph) -> npt.NDArray[np.int64]:
    """Return the nodes that accuracy is measured on."""
    return graph.split("test")[:_TEST_NODES]


def _attribute(graph: Graph, name: str, what: object, meaning: str) -> npt.NDArray[Any]:
    if name not in (there := graph.node_attributes()):
        have = ", ".join(sorted(there)) or "none"
        raise ValueError(
            f"{what} has no node attribute {name!r}, the {meaning} (it has: {have}); {_AS_SAVED}"
        )
    return graph.node_attribute(name)


def _split(graph: Graph, name: str, what: object) -> npt.NDArray[np.int64]:
    if name not in (there := graph.splits()) or not len(graph.split(name)):
        have = ", ".join(sorted(there)) or "none"
        empty = "an empty" if name in there else "no"
        raise ValueError(f"{what} has {empty} split {name!r} (splits: {have}); {_AS_SAVED}")
    return graph.split(name)


def _labels(graph: Graph) -> npt.NDArray[Any]:
    return graph.node_attribute("y").reshape(-1)


def _highest(graph: Graph, nodes: npt.NDArray[np.int64], what: object) -> int:
    labels = _labels(graph)[nodes]
    if labels.min() < 0:
        node = int(nodes[labels.argmin()])
        raise ValueError(f"y[{node}] of {what} is {labels.min()}; expected a class of 0 or above")
    return int(labels.max())


def _form(array: npt.NDArray[Any]) -> str:
    return f"{array.dtype} {list(array.shape)}"
