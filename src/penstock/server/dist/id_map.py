"""Maps between global ids (of the whole graph) and local ids (of the server's partition).

All that ranks send and receive has global ids; all that the hub samples has local ids. For a server
that holds the whole graph both are the same, and nothing is done.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from penstock.graph.schema import EDGE, EdgeType
from penstock.sampling.kinds import kind_of
from penstock.sampling.names import Owner, parsed, parsed_type
from penstock.sampling.spec import Spec
from penstock.server.dist.dataset import Ids, ServedDataset

Array = npt.NDArray[Any]

# Names of arrays in a batch whose elements are ids of nodes, or of edges.
_NODES: Final = "n_id"
_EDGES: Final = ("e_id", "walk_edges")


class IdMap:
    """Maps the ids of seeds that come in, and of batches that go out."""

    def __init__(self, dataset: ServedDataset) -> None:
        self._dataset = dataset

    @property
    def is_identity(self) -> bool:
        """Return whether there is nothing to map."""
        return self._dataset.part is None

    # --- in ---

    def nodes(self, node_type: str, ids: Any) -> Any:
        """Return the local ids of nodes; a mask has no ids and stays as it is."""
        if self.is_identity or np.asarray(ids).dtype == np.bool_:
            return ids
        return self._dataset.local_nodes(node_type, ids)

    def links(self, edge_type: EdgeType, ends: Any) -> Any:
        """Return the ends of edges [2, n] as local ids."""
        given = np.asarray(ends)
        if self.is_identity or given.ndim != 2 or len(given) != 2:
            return ends  # an error where they are registered
        source, destination = edge_type[0], edge_type[2]
        local = self._dataset.local_nodes
        return np.stack([local(source, given[0]), local(destination, given[1])])

    def columns(self, spec: Spec, columns: Mapping[str, Any]) -> dict[str, Any]:
        """Return input columns with node ids (labels, for example) mapped, and others unchanged."""
        if self.is_identity:
            return dict(columns)
        owners = kind_of(spec).node_columns(spec)
        return {
            name: self._labels(owners[name], rows) if name in owners else rows
            for name, rows in columns.items()
        }

    def _labels(self, node_type: str, given: Any) -> Any:
        rows = np.array(given)
        there = rows >= 0
        rows[there] = self._dataset.local_nodes(node_type, rows[there])
        return rows

    # --- out ---

    def to_whole(self, arrays: Mapping[str, Array], facts: Mapping[str, Any]) -> None:
        """Replace the local ids in a batch's arrays by global ids, in place."""
        for name, ids in self.translated(arrays, facts):
            arrays[name][...] = ids

    def translated(
        self, arrays: Mapping[str, Array], facts: Mapping[str, Any]
    ) -> Iterator[tuple[str, Array]]:
        """Yield copies, with global ids, of the arrays that hold ids."""
        if self.is_identity:
            return
        for name, array in arrays.items():
            owner, attribute = parsed(name)
            if attribute == _NODES:
                yield name, self._node_ids(owner)[array]
            elif attribute in _EDGES and array.ndim == 1:
                yield name, self._edge_ids(owner if any(owner) else EDGE)[array]
            elif attribute in _EDGES:
                yield name, self._steps(array, facts)

    def _steps(self, edges: Array, facts: Mapping[str, Any]) -> Array:
        """Return global ids of walks' edges, a column for each step; -1 where a walk stayed."""
        named = facts.get("walk_edge_types")
        kinds = [EDGE] * edges.shape[1] if named is None else map(parsed_type, named)
        ids = np.full_like(edges, -1)
        for step, kind in enumerate(kinds):
            there = edges[:, step] >= 0
            ids[there, step] = self._edge_ids(kind)[edges[there, step]]
        return ids

    def _node_ids(self, owner: Owner) -> Ids:
        assert self._dataset.part is not None
        return self._dataset.part.node_ids[str(owner)]

    def _edge_ids(self, owner: Owner) -> Ids:
        assert self._dataset.part is not None
        return self._dataset.part.edge_ids[owner]  # type: ignore[index]
