"""The seeds of a k-hop batch: the nodes that are expanded, and what goes with them.

Inputs become seeds in different ways: nodes are seeds; edges have two ends, and negatives in
addition; anchors have labels. A `SeedBuilder` does this for one spec; what follows is the same for
all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import Any, Protocol

import msgspec
import numpy as np

from penstock.graph.dtypes import dtype_name
from penstock.graph.view import GraphView
from penstock.kernels import Exclusion
from penstock.kernels.arrays import Array, Ids
from penstock.sampling.names import Owner, qualified
from penstock.sampling.request import Request
from penstock.sampling.spec import NeighborSpec

IDS = "int64"
ArraySpec = tuple[str, tuple[int, ...]]


class Seeds(msgspec.Struct, frozen=True, eq=False):
    """Seeds by number of their node type, and what the batch contains besides the sample.

    `times` are the seeds' (None: nothing is restricted by time, or nodes have their own). `trees`
    has the input that each tree belongs to, where several seeds belong to one. `excluded` are the
    edges that must not be sampled.
    """

    seeds: list[Ids]
    times: list[Ids] | None = None
    arrays: dict[str, Array] = msgspec.field(default_factory=dict)
    facts: dict[str, Any] = msgspec.field(default_factory=dict)
    trees: Ids | None = None
    excluded: list[Exclusion] = msgspec.field(default_factory=list)

    def tell_trees(self, sampled: Iterable[Ids]) -> None:
        """Replace, in the arrays of trees, each tree by the input that it belongs to."""
        if self.trees is None:
            return
        for trees in sampled:
            trees[...] = self.trees[trees]

    @property
    def num_seeds(self) -> tuple[int, ...]:
        """The number of seeds of each type."""
        return tuple(map(len, self.seeds))

    @property
    def array_specs(self) -> tuple[ArraySpec, ...]:
        """Dtypes and shapes of the additional arrays."""
        return tuple((dtype_name(array.dtype), array.shape) for array in self.arrays.values())


class SeedBuilder(Protocol):
    """Turns the inputs of a batch into its seeds. `of` is the type of the inputs.

    `own` are the names of the arrays it adds, which no attribute can have.
    """

    @property
    def own(self) -> Set[str]: ...

    def start(self, request: Request) -> Seeds:
        """Return the seeds of a batch."""

    def most_seeds(self, inputs: int, of: Owner) -> Sequence[int]:
        """Return, by node type, the most seeds of so many inputs, always or nearly always."""

    def most_arrays(self, inputs: int, of: Owner) -> Sequence[ArraySpec]:
        """Return dtypes and shapes of the additional arrays, at most or nearly always."""


class NodeSeedBuilder:
    """Uses inputs, nodes of one type, as seeds. A time given for each is added to the batch."""

    own = frozenset({"seed_time"})

    def __init__(self, graph: GraphView, spec: NeighborSpec | None = None) -> None:
        self._graph = graph
        self._is_temporal = spec is not None and spec.time_attr is not None

    def start(self, request: Request) -> Seeds:
        nobody = np.empty(0, np.int64)
        seeds = [nobody] * len(self._graph.node_types)
        number = self._graph.node_types.index(request.node_type)
        seeds[number] = request.seeds
        arrays: dict[str, Array] = {qualified(request.node_type, "input_id"): request.positions}
        times = None
        if self._is_temporal and "time" in request.columns:
            times = [nobody] * len(seeds)
            times[number] = request.columns["time"].astype(np.int64, copy=False)
            arrays[qualified(request.node_type, "seed_time")] = times[number]
        facts: dict[str, Any] = {"batch_size": len(request.seeds)}
        if self._graph.is_hetero:
            facts["input_type"] = request.node_type
        return Seeds(seeds, times, arrays, facts)

    def most_seeds(self, inputs: int, of: Owner) -> Sequence[int]:
        return [inputs if name == of else 0 for name in self._graph.node_types]

    def most_arrays(self, inputs: int, of: Owner) -> Sequence[ArraySpec]:
        return [(IDS, (inputs,))] * (2 if self._is_temporal else 1)
