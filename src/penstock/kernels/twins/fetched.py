"""Rows that are fetched as they are read, in plain Python."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from penstock.kernels.arrays import Array, Ids

Row = list[tuple[int, int]]  # (neighbour, edge id)


@dataclass
class FetchedRows:
    """Rows by node, and the nodes whose rows were read in vain, in the order of reading."""

    rows: dict[int, Row] = field(default_factory=dict)
    missing: dict[int, None] = field(default_factory=dict)

    def row(self, node: int) -> Row:
        """Return the row of a node; one that is not here is empty, and noted."""
        if node not in self.rows:
            self.missing[node] = None
            return []
        return self.rows[node]

    def add(self, nodes: Array, counts: Array, neighbors: Array, edge_ids: Array) -> None:
        if len(set(nodes.tolist()) - self.rows.keys()) < len(nodes):
            raise ValueError("a node has a row already")
        ends = np.cumsum(counts).tolist()
        edges = list(zip(neighbors.tolist(), edge_ids.tolist(), strict=True))
        for node, count, end in zip(nodes.tolist(), counts.tolist(), ends, strict=True):
            self.rows[node] = edges[end - count : end]

    def take_missing(self) -> Ids:
        taken = [node for node in self.missing if node not in self.rows]
        self.missing.clear()
        return np.array(taken, np.int64)
