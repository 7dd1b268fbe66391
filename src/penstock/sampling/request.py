"""Which batch to make: its identity, its inputs, and what was given with them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from penstock.graph.schema import EDGE, EdgeType
from penstock.kernels import batch_key
from penstock.kernels.arrays import Array, Ids


class Request(msgspec.Struct, frozen=True, eq=False):
    """One batch. `seeds` are its inputs, nodes [b] or edges [2, b]; `positions` their positions.

    `columns` have a row for each input of the batch; `tables` belong to the feed as a whole.
    """

    seed: int
    epoch: int
    index: int
    seeds: Ids
    positions: Ids
    node_type: str = ""
    edge_type: EdgeType = EDGE
    columns: Mapping[str, Array] = msgspec.field(default_factory=dict)
    tables: Mapping[str, Array] = msgspec.field(default_factory=dict)

    @property
    def key(self) -> int:
        """The key that all draws of the batch derive from."""
        return batch_key(self.seed, self.epoch, self.index)

    @property
    def num_inputs(self) -> int:
        """The number of inputs of the batch."""
        return len(self.positions)

    def is_same(self, other: Request) -> bool:
        """Return whether this is a request for the same batch, with the same inputs."""
        return (
            self._name == other._name
            and np.array_equal(self.seeds, other.seeds)
            and np.array_equal(self.positions, other.positions)
            and self.columns.keys() == other.columns.keys()
            and all(
                np.array_equal(self.columns[name], other.columns[name]) for name in self.columns
            )
            and self.tables.keys() == other.tables.keys()
            and all(self.tables[name] is other.tables[name] for name in self.tables)
        )

    @property
    def _name(self) -> tuple[int, int, int, str, EdgeType]:
        return self.seed, self.epoch, self.index, self.node_type, self.edge_type
