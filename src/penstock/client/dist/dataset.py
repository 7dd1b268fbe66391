"""What a server holds: a whole graph or one part of it, addressed by the ids of the whole graph.

An id that does not exist, or belongs to another part, is an error that names it.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.graph import Graph
from penstock.graph.lookup import known
from penstock.graph.partition.book import PartitionBook, RangeBook, list_of_ids
from penstock.graph.schema import EDGE, NODE, EdgeType, PartNote
from penstock.wire.messages import PartitionNote
from penstock.wire.requests import EdgeDir

Ids = npt.NDArray[np.int64]


class ServedDataset:
    """The served data.

    Args:
        graph: The graph, or a part of one.
        part_only: Whether a part may be sampled as if it were all: neighbours in other parts are
            left out.

    Raises:
        ValueError: `graph` is none.
    """

    def __init__(self, graph: Graph, *, part_only: bool = False) -> None:
        if not isinstance(graph, Graph):
            raise ValueError(
                f"the data is a {type(graph).__name__}; expected a graph, or a part of one: give "
                "Graph.open(path)"
            )
        self.graph = graph
        self.part_only = part_only

    @property
    def part(self) -> PartNote | None:
        """Return which part this is; None for a whole graph."""
        return self.graph.part

    @property
    def number(self) -> int:
        """Return which partition this is."""
        return 0 if self.part is None else self.part.number

    @property
    def num_partitions(self) -> int:
        """Return how many partitions there are."""
        return 1 if self.part is None else self.part.of

    @property
    def edge_dir(self) -> EdgeDir:
        """Return which edges of its nodes are here: all that lead in, or all that lead out."""
        return "in" if self.part is None else self.part.owning_side

    def note(self, peers: tuple[str, ...] = ()) -> PartitionNote:
        """Return the partition's description for `Welcome`."""
        part = self.part
        if part is None:
            return PartitionNote(version=self.graph.version, peers=peers)
        return PartitionNote(
            number=part.number,
            of=part.of,
            method=part.method,
            ranges={
                name: (bounds[part.number], bounds[part.number + 1])
                for name, bounds in part.bounds.items()
            },
            sizes={name: self.graph.num_nodes(name) for name in self.graph.node_types},
            edge_dir=part.owning_side,
            version=part.version,
            cut=part.cut,
            topology=part.topology,
            peers=peers,
        )

    # --- sampling ---

    @cached_property
    def within(self) -> Graph:
        """The graph, or the part alone: with the edges both ends of which are here."""
        return self.graph if self.part is None else self.graph.within()

    @property
    def sampled(self) -> Graph:
        """The graph that backends sample: a part alone, if that is wanted or all there is."""
        if self.part is None or not (self.part_only or self.part.of == 1):
            return self.graph
        return self.within

    def check_sampling(self) -> None:
        """Raise `ValueError` if this is a part that must not be sampled as if it were all."""
        part = self.part
        if part is not None and part.of > 1 and not (self.part_only or part.alone):
            raise ValueError(
                f"this server has {part}: neighbours in other parts would be missing. Read from "
                "the store of all parts (penstock.connect with the addresses of its servers), or "
                "start the server with part_only=True (--part-only), to sample within the part"
            )

    # --- types ---

    def node_type(self, given: Any) -> str:
        """Return the node type that is meant; `ValueError` names the existing ones."""
        if given is None and not self.graph.is_hetero:
            return NODE
        types = self.graph.node_types
        return known("node_type", given, dict.fromkeys(types, 0))

    def edge_type(self, given: Any) -> EdgeType:
        """Return the edge type that is meant; `ValueError` names the existing ones."""
        if given is None and not self.graph.is_hetero:
            return EDGE
        wanted = tuple(given) if isinstance(given, list) else given
        return known("edge_type", wanted, dict.fromkeys(self.graph.edge_types, 0))

    # --- ids ---

    def node_book(self, node_type: str) -> PartitionBook:
        """Return the partition book of the nodes of a type."""
        return self.graph.node_book(node_type)

    def edge_book(self, edge_type: EdgeType) -> PartitionBook:
        """Return the partition book of the edges of a type.

        Raises:
            ValueError: This is one of several parts, which knows its own edges only.
        """
        if self.num_partitions > 1:
            raise ValueError(
                f"this server has {self.part}, which knows its own edges and not where others "
                "are: ask the store of all parts (penstock.connect with the addresses of its "
                "servers)"
            )
        return RangeBook((0, self.graph.num_edges(edge_type)))

    def check_nodes(self, node_type: str, ids: Any) -> Ids:
        """Return ids of nodes that are here; `ValueError` names one that is not."""
        given = list_of_ids(ids)
        if self.part is None:
            self.node_book(node_type).partition_of(given)  # raises for ids that do not exist
        self.graph.check_nodes(node_type, given)
        return given
