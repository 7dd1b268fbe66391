"""What to sample, as plain data: it goes over the wire, and any process can act on it.

A spec with a `Feed` (which inputs, in which order) and a graph says everything a batch depends on
but its epoch and index. This module knows nothing of processes.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from penstock.graph.handles import ArrayHandle
from penstock.graph.schema import EdgeType


class NeighborSpec(msgspec.Struct, frozen=True, kw_only=True, tag="neighbor"):
    """k-hop neighbourhoods: `NeighborSampler`'s options, and which attributes go with them.

    `num_neighbors` has one fan-out per hop, for all edge types; or `by_type` has a list for each.
    Attributes are taken by name; None takes all that the graph has.
    """

    num_neighbors: tuple[int, ...] = ()
    by_type: tuple[tuple[EdgeType, tuple[int, ...]], ...] | None = None
    replace: bool = False
    direction: Literal["in", "out"] = "in"
    node_caps: tuple[int, ...] = ()
    with_edge_ids: bool = True
    node_attributes: tuple[str, ...] | None = None
    edge_attributes: tuple[str, ...] | None = None


class CustomSpec(msgspec.Struct, frozen=True, kw_only=True, tag="custom"):
    """A sampler of the user's own, by name: "module:Class", or "/path/to/file.py:Class"."""

    sampler: str
    options: dict[str, Any] = {}


Spec = NeighborSpec | CustomSpec


class Feed(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs of an epoch and how they are cut: batch i has the same seeds for everybody.

    `ids` are the inputs (None: all nodes of the type, in order); with `shuffle` they are taken in
    the order of `permutation(seed, epoch, num_inputs)`.
    """

    num_inputs: int
    batch_size: int
    node_type: str | None = None
    ids: ArrayHandle | None = None
    shuffle: bool = False
    drop_last: bool = False
    seed: int = 0
