"""Graphs as the format sees them, made by hand: a schema and its arrays."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.graph import format as graph_format
from penstock.graph.schema import (
    EDGE,
    NODE,
    ArrayKey,
    Arrays,
    EdgeTypeInfo,
    NodeTypeInfo,
    Schema,
)
from penstock.graph.shared import SharedArray

WRITES = ("author", "writes", "paper")
CITES = ("paper", "cites", "paper")


class Parts(NamedTuple):
    """What `write` takes."""

    schema: Schema
    arrays: dict[ArrayKey, SharedArray]


def shared(arrays: Mapping[ArrayKey, npt.NDArray[Any]]) -> dict[ArrayKey, SharedArray]:
    """Copies in shared memory; 16-bit unsigned integers are taken to be bfloat16."""
    return {
        key: SharedArray.from_array(array, "bfloat16" if array.dtype == np.uint16 else None)
        for key, array in arrays.items()
    }


def topology(
    edge_type: tuple[str, str, str], num_src: int, num_dst: int, num_edges: int, seed: int
) -> dict[ArrayKey, npt.NDArray[Any]]:
    """A random CSC with paired adjacency."""
    rng = np.random.default_rng(seed)
    degrees = np.bincount(rng.integers(0, num_dst, num_edges), minlength=num_dst)
    neighbours, edge_ids = rng.integers(0, num_src, num_edges), rng.permutation(num_edges)
    return {
        ArrayKey("csc", edge_type, "indptr"): np.concatenate([[0], np.cumsum(degrees)]),
        ArrayKey("csc", edge_type, "adjacency"): np.stack([neighbours, edge_ids], 1).astype("i4"),
    }


def tiny(seed: int = 0) -> Parts:
    """A homogeneous graph of three arrays."""
    schema = Schema(False, (NodeTypeInfo(NODE, 5),), (EdgeTypeInfo(EDGE, 12),))
    x = np.random.default_rng(seed).random((5, 3), np.float32)
    arrays = {**topology(EDGE, 5, 5, 12, seed), ArrayKey("node", NODE, "x"): x}
    return Parts(schema, shared(arrays))


def library(seed: int = 0) -> Parts:
    """A heterogeneous graph with an array of every group, empty ones, and most dtypes."""
    rng = np.random.default_rng(seed)
    arrays = {
        **topology(WRITES, 7, 9, 20, seed),
        **topology(CITES, 9, 9, 0, seed),
        ArrayKey("csr", WRITES, "indptr"): np.array([0, 0, 5, 9, 12, 15, 18, 20]),
        ArrayKey("csr", WRITES, "adjacency"): rng.integers(0, 9, (20, 2)),
        ArrayKey("node", "author", "x"): rng.random((7, 4), np.float32),
        ArrayKey("node", "paper", "x"): rng.integers(0, 2**16, (9, 2), np.uint16),
        ArrayKey("node", "paper", "half"): rng.random((9, 2)).astype(np.float16),
        ArrayKey("node", "paper", "y"): rng.integers(0, 3, 9),
        ArrayKey("node", "paper", "wide/name of …"): rng.integers(0, 9, (9, 2, 2), np.int8),
        ArrayKey("edge", WRITES, "weight"): rng.random(20),
        ArrayKey("edge", CITES, "time"): np.empty(0, np.int64),
        ArrayKey("split", "paper", "train"): np.array([3, 1, 2]),
        ArrayKey("split", "paper", "val"): np.empty(0, np.int64),
        ArrayKey("graph", "", "mean"): np.array(1.5),
        ArrayKey("graph", "", "known"): np.array([True, False]),
        ArrayKey("graph", "paper", "held out"): np.zeros((0, 2**20), np.float32),
        ArrayKey("graph", WRITES, "held out"): np.zeros((2, 3), np.int16),
    }
    schema = Schema(
        is_hetero=True,
        nodes=(NodeTypeInfo("paper", 9, {"kind": "text"}), NodeTypeInfo("author", 7)),
        edges=(EdgeTypeInfo(WRITES, 20, {"since": 1450}), EdgeTypeInfo(CITES, 0)),
        attributes={"name": "library", "nested": {"b": [1, 2.5, None], "a": True}},
    )
    return Parts(schema, shared(arrays))


def as_data(schema: Schema, arrays: Arrays) -> object:
    """Everything there is to a graph, comparable."""
    contents = {
        key: (array.dtype, array.shape, array.array.tobytes()) for key, array in arrays.items()
    }
    return schema, contents


def saved_data(path: Path) -> object:
    """The same of a saved graph, having verified it."""
    opened = graph_format.read(path)
    assert graph_format.verify(path) == opened.version
    return as_data(opened.schema, opened.arrays)


def data_files(path: Path) -> list[Path]:
    """The files of a saved graph besides its manifest."""
    return sorted(path.glob("data-*/*"))


def entries(path: Path) -> list[str]:
    """What lies in the folder, generations being alike."""
    return sorted(entry.name.split("-")[0] for entry in path.iterdir())
