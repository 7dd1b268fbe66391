"""Batches that are sampled first and written afterwards.

Kinds whose size is not known before sampling return their results in their own arrays. These are
small compared to the rows of attributes, which are gathered straight to where they are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Protocol

from penstock.graph import Graph
from penstock.graph.dtypes import dtype_name
from penstock.graph.layout import layout
from penstock.kernels.arrays import Array, Ids
from penstock.sampling.attributes import Chosen, EdgeEnds, Ends, columns_of, gather
from penstock.sampling.batches import Awaited, Batches, Reached
from penstock.sampling.buffer import BatchBuffer, BatchMemory, SlotTooSmall
from penstock.sampling.names import Owner, qualified
from penstock.sampling.request import Request
from penstock.sampling.spec import WithAttributes


@dataclass(frozen=True, slots=True, eq=False)
class Sampled:
    """One batch: its arrays by name, in order, and the ids whose attributes are gathered.

    `nodes` and `edge_ids` are by number of the type; None where no attributes are wanted.
    """

    arrays: dict[str, Array]
    nodes: list[Ids | None]
    edge_ids: list[Ids | None]
    facts: dict[str, Any] = field(default_factory=dict)


class BufferedSampler(Protocol):
    """Samples into its own memory; for one thread at a time. `of` is the type of the inputs.

    `own` are the names of the arrays it makes, beyond those of every batch.
    """

    @property
    def own(self) -> Set[str]: ...

    def cut(self, request: Request) -> Sampled:
        """Sample a batch."""

    def likely_bytes(self, inputs: int, of: Owner) -> int:
        """Return room in which the arrays of nearly any batch fit, without attributes."""

    def likely_nodes(self, inputs: int, of: Owner) -> Sequence[int]:
        """Return, by node type, how many nodes nearly any batch has at most."""

    def likely_edges(self, inputs: int, of: Owner) -> Sequence[int]:
        """Return, by edge type, how many edges with attributes nearly any batch has at most."""


class BufferedBatches(Batches):
    """The batches of a sampler, with the attributes of a spec; for one thread at a time."""

    def __init__(self, graph: Graph, spec: WithAttributes, sampler: BufferedSampler) -> None:
        self._sampler = sampler
        self._edge_types = graph.edge_types
        self._ends = EdgeEnds(graph, getattr(spec, "direction", "in"))
        self.node_columns, self.edge_columns = columns_of(graph, spec, sampler.own)
        self._awaited: Awaited[Sampled] = Awaited()

    def make(self, request: Request, memory: BatchMemory, reached: Reached) -> dict[str, Any]:
        """Sample a batch, and write it if it fits."""
        cut = self._awaited.take(request) or self.cut(request)
        needed = self.nbytes(cut)
        if needed > memory.room:
            self._awaited.keep(request, cut)
            raise SlotTooSmall(needed, memory.room)
        reached("writing")
        self.write(cut, memory)
        return cut.facts

    @property
    def own(self) -> Set[str]:
        """The names of arrays that the sampler makes, beyond those of every batch."""
        return self._sampler.own

    def drop(self) -> None:
        """Forget a batch that did not fit."""
        self._awaited.drop()

    def likely_bytes(self, inputs: int, of: Owner) -> int:
        """Return room in which nearly any batch fits."""
        nodes, edges = (
            self._sampler.likely_nodes(inputs, of),
            self._sampler.likely_edges(inputs, of),
        )
        rows = [
            *((c.dtype, c.shape(nodes[c.owner])) for c in self.node_columns),
            *((c.dtype, c.shape(edges[c.owner])) for c in self.edge_columns),
        ]
        return self._sampler.likely_bytes(inputs, of) + layout(rows).nbytes

    def cut(self, request: Request) -> Sampled:
        """Sample a batch, without attributes."""
        return self._sampler.cut(request)

    def nbytes(self, cut: Sampled) -> int:
        """Return the bytes of a batch with its attributes."""
        arrays = [(array.dtype, array.shape) for array in cut.arrays.values()]
        rows = [(each.column.dtype, each.column.shape(len(each.ids))) for each in self._chosen(cut)]
        return layout([*arrays, *rows]).nbytes

    def write(self, cut: Sampled, buffer: BatchBuffer) -> None:
        """Write a batch and gather its attributes."""
        for name, array in cut.arrays.items():
            buffer.array(name, dtype_name(array.dtype), array.shape)[...] = array
        gather(self._chosen(cut), buffer)

    def _chosen(self, cut: Sampled) -> Iterator[Chosen]:
        for column in self.node_columns:
            if (ids := cut.nodes[column.owner]) is not None:
                yield Chosen(column, ids)
        for column in self.edge_columns:
            if (ids := cut.edge_ids[column.owner]) is not None:
                yield Chosen(column, ids, self._ends_of(cut, column.owner, len(ids)))

    def _ends_of(self, cut: Sampled, kind: int, count: int) -> Ends | None:
        """Return the ends of a batch's edges, if it has an edge index of them."""
        index = cut.arrays.get(qualified(self._edge_types[kind], "edge_index"))
        if index is None or index.shape != (2, count):
            return None
        return self._ends.of(kind, index, cut.nodes)
