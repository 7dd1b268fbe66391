"""Samplers of a user's own. Workers import this module, and without torch they start far sooner."""

from __future__ import annotations

from typing import Any

import numpy as np

import penstock as ps
from penstock.kernels import batch_key


class FirstEdges:
    """The first in-edge of each seed that has one; some numbers, and what it was made with."""

    def __init__(self, graph: ps.Graph, *, table: Any = None, factor: int = 1) -> None:
        self.rows, self.table, self.factor = graph.csc(), table, factor

    def sample(self, seeds: Any, *, seed: int, epoch: int, index: int) -> dict[str, Any]:
        rows = self.rows
        there = rows.degrees[seeds] > 0
        at = rows.indptr[seeds[there]]
        sources, places = rows.indices[at], np.flatnonzero(there)
        nodes = np.concatenate([seeds, sources]).astype(np.int64)
        ends = np.stack([len(seeds) + np.arange(len(sources)), places])
        random = np.random.default_rng(batch_key(seed, epoch, index))
        found = {"n_id": nodes, "edge_index": ends, "e_id": rows.edge_ids[at].astype(np.int64)}
        if self.table is not None:
            found["looked_up"] = self.table[seeds] * self.factor
        return {**found, "noise": random.random(len(seeds))}


class Pairs:
    """The ends of links, with the times that come with them."""

    input_kind = "link"
    columns = ("time",)
    node_attributes = ("x",)

    def __init__(self, graph: ps.Graph) -> None: ...

    def sample(
        self, seeds: Any, *, seed: int, epoch: int, index: int, columns: dict[str, Any]
    ) -> dict[str, Any]:
        nodes, places = np.unique(seeds, return_inverse=True)
        return {"n_id": nodes, "pairs": places.reshape(2, -1), "when": columns["time"]}


class Papers:
    """Papers alone, of a graph that has other types as well."""

    def __init__(self, graph: ps.Graph) -> None: ...

    def sample(self, seeds: Any, *, seed: int, epoch: int, index: int) -> dict[str, Any]:
        return {"paper/n_id": seeds, "paper/double": seeds * 2}


class Degrees:
    """A sampler that is made before there is a graph."""

    def __init__(self, factor: int, table: Any) -> None:
        self.factor, self.more = factor, {"tables": [table]}

    def sample(self, seeds: Any, *, seed: int, epoch: int, index: int) -> dict[str, Any]:
        table = self.more["tables"][0]
        degrees = self.graph.csc().degrees[seeds]  # type: ignore[attr-defined]
        return {"n_id": seeds, "degrees": degrees * self.factor + table[seeds]}


class Placed:
    """Says where its table lies: the inode of the memory that is mapped there."""

    def __init__(self, graph: ps.Graph, *, table: Any) -> None:
        self.table = table

    def sample(self, seeds: Any, *, seed: int, epoch: int, index: int) -> dict[str, Any]:
        address = self.table.__array_interface__["data"][0]
        with open("/proc/self/maps") as maps:
            lines = [line.split() for line in maps]
        ranges = [([int(end, 16) for end in line[0].split("-")], line) for line in lines]
        (inode,) = [int(line[4]) for (first, end), line in ranges if first <= address < end]
        return {"inode": np.array([inode]), "frozen": np.array([not self.table.flags.writeable])}
