"""`Graph`: topology, attributes and splits, in shared memory or in files; read-only.

A graph is a `Schema` and its arrays; this module gives them their meaning and puts the ways in and
out together, each of which lives in a module of its own. It speaks NumPy, never torch; bfloat16
comes as 16-bit integers, and the `SharedArray` they lie in knows what they are.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from penstock.graph import format as on_disk
from penstock.graph import sharing
from penstock.graph.build import build
from penstock.graph.coo import Arguments, draft_from_coo
from penstock.graph.derived import (
    ByTime,
    Coo,
    DerivedArrays,
    OutEdges,
    Side,
    SortedNeighbors,
    WeightSums,
    keys_of,
    rows_of,
)
from penstock.graph.describe import Description, describe, summary
from penstock.graph.draft import Draft
from penstock.graph.features import FeatureSource, LocalFeatures
from penstock.graph.handles import FileHandle, MemfdHandle, NamedHandle
from penstock.graph.lookup import pick
from penstock.graph.partition.partition import partition
from penstock.graph.pyg import draft_from_pyg
from penstock.graph.schema import ArrayKey, Arrays, EdgeType, Schema
from penstock.graph.shared import SharedArray
from penstock.graph.sharing import GraphHandle
from penstock.graph.topology import Topology, coo
from penstock.graph.validate import check_structure, topology_of, validate
from penstock.graph.view import GraphView, OwnIds, named

StrPath = str | os.PathLike[str]

Ids = npt.NDArray[Any]


class Graph(GraphView):
    """A graph, homogeneous or heterogeneous.

    Made by `from_coo`, `from_pyg`, `open` or `attach`. Methods that take a type need it only for a
    heterogeneous graph. Arrays are read-only views; they stay valid after `close()`.
    """

    def __init__(self, schema: Schema, arrays: Arrays, version: str | None = None) -> None:
        check_structure(schema, arrays)
        super().__init__(schema)
        self._arrays = dict(arrays)
        self._version = version
        # Guards what is made on demand, once: derived arrays (one of which may need another) and
        # the version.
        self._making = threading.RLock()

    # --- ways in and out ---------------------------------------------------------------------

    @classmethod
    def from_coo(
        cls,
        edge_index: Any,
        num_nodes: Any = None,
        *,
        x: Any = None,
        y: Any = None,
        train: Any = None,
        val: Any = None,
        test: Any = None,
        node_time: Any = None,
        edge_attr: Any = None,
        edge_weight: Any = None,
        edge_time: Any = None,
        node_attrs: Any = None,
        edge_attrs: Any = None,
        graph_attrs: Mapping[str, Any] | None = None,
        kind: str | None = None,
    ) -> Self:
        """A graph from lists of edges: `edge_index` is [2, edges], sources above destinations.

        NumPy arrays, torch tensors or lists. `num_nodes` may be left out: then node attributes
        tell, or masks, or the largest id. Splits are ids, or masks of bool. `node_attrs` and
        `edge_attrs` hold further attributes by name, `graph_attrs` arrays and JSON values that
        belong to the whole. The attributes are kept under PyG's names (`node_time` as `time`).
        Dates (datetime64) become nanoseconds since 1970.

        Weights (`edge_weight`) must be finite and not negative, times (`time`, `edge_time`) not
        NaN, by whichever argument they come.

        Heterogeneous: every argument is a mapping by type, or a list of (type, value); an edge
        type is (source, relation, destination). Types stand in the order of first mention: node
        types those of `num_nodes`, or where it is left out those of `x` and so on, then those only
        edges name. Any other is an error.

        `kind` is the kind of shared memory: see `Segment.create`.
        """
        given = Arguments(
            edge_index=edge_index,
            num_nodes=num_nodes,
            node_columns={"x": x, "y": y, "node_time": node_time},
            splits={"train": train, "val": val, "test": test},
            edge_columns={
                "edge_attr": edge_attr,
                "edge_weight": edge_weight,
                "edge_time": edge_time,
            },
            node_attrs=node_attrs,
            edge_attrs=edge_attrs,
            graph_attrs=graph_attrs,
        )
        return cls._from_draft(draft_from_coo(given), kind)

    @classmethod
    def from_pyg(cls, data: Any, *, kind: str | None = None) -> Self:
        """A graph from PyG's `Data` or `HeteroData`, with all attributes under their names.

        One-dimensional `train_mask`, `val_mask` and `test_mask` are also the splits. Attributes of
        the whole may be arrays or JSON values, as lists of words are, however long; of what a graph
        cannot keep, it complains by name. `edge_weight` must be finite; negative weights, which PyG
        allows, are kept, though nothing can be sampled by them.
        """
        return cls._from_draft(draft_from_pyg(data), kind)

    @classmethod
    def _from_draft(cls, draft: Draft, kind: str | None) -> Self:
        return cls(*build(draft, kind=kind))

    @classmethod
    def open(cls, path: StrPath) -> Self:
        """The graph saved in the folder `path`, mapped: milliseconds, whatever its size."""
        opened = on_disk.read(path)
        return cls(opened.schema, opened.arrays, opened.version)

    def save(self, path: StrPath, progress: on_disk.Progress | None = None) -> None:
        """Saves the graph in the folder `path`, in place of the one that may be there.

        A crash at any instant leaves the old one or the new one. `progress(done, total)` is called
        with bytes now and then. The derived arrays that were made are saved with it, and are there
        when it is opened.
        """
        self._version = on_disk.write(path, self._schema, self._arrays, progress)

    def partition(self, n: int, path: StrPath, **options: Any) -> list[Path]:
        """Writes `n` parts of the graph into the folder `path`, one for each server to hold.

        `method`: "range" (of ids, the default) or "hash"; `edges`: they go with their "destination"
        (the default) or "source"; `progress(done, parts)`. `Partition.open` opens one of them.
        """
        return partition(self, path, n, **options)

    @classmethod
    def attach(cls, handle: GraphHandle, fds: Sequence[int] = ()) -> Self:
        """The graph that another process described. Takes `fds` over and closes them."""
        arrays = sharing.attach(handle, fds)
        try:
            return cls(handle.schema, arrays, handle.version)
        except BaseException:
            for segment in sharing.segments_of(arrays):
                segment.close()
            raise

    def handle(self) -> GraphHandle:
        """What another process needs to attach, together with `descriptors`.

        It includes the derived arrays (out-edges, sums of weights, …) that were made: make one
        first, and it is shared.
        """
        return sharing.handle_of(self._schema, self._arrays, self._version)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What must travel with the handle: one per memfd, of which only the creator has any."""
        return sharing.descriptors_of(self._arrays)

    @property
    def version(self) -> str:
        """A digest of the content: computed when first asked for, at memory speed, and kept."""
        with self._making:
            if self._version is None:
                self._version = on_disk.content_version(self._schema, self._arrays)
            return self._version

    # --- as a view ---------------------------------------------------------------------------

    @property
    def address(self) -> None:
        """Nobody else has to be asked."""
        return None

    def here(self, complaint: str) -> Graph:
        """This graph."""
        return self

    @property
    def arrays(self) -> Arrays:
        """All arrays there are now, for those who move a graph as a whole."""
        return MappingProxyType(self._arrays)

    def own_nodes(self, node_type: str | None = None) -> OwnIds:
        """All nodes of a type: they need no list."""
        return OwnIds(self.num_nodes(node_type))

    def own_split(self, name: str, node_type: str | None = None) -> OwnIds:
        """The nodes of a split, where they lie."""
        found = pick("split", name, node_type, self.splits(node_type))
        return OwnIds(found.shape[0], found)

    def own_edges(self, edge_type: EdgeType | None = None) -> OwnIds:
        """All edges of a type by their ends: made when first asked for, and kept."""
        (whole,) = self.derived(Coo(self._edge_type(edge_type)))
        return OwnIds(whole.shape[1], whole)

    def prepare(self, needs: Sequence[DerivedArrays]) -> Arrays:
        """Makes derived arrays that are not there yet; all that are needed, and no others."""
        for each in needs:
            self.derived(each)
        return {key: self._arrays[key] for key in keys_of(needs)}

    def lacking(self, needs: Sequence[DerivedArrays]) -> list[ArrayKey]:
        """The derived arrays that were not made yet."""
        return [key for key in keys_of(needs) if key not in self._arrays]

    # --- topology ----------------------------------------------------------------------------

    def csc(self, edge_type: EdgeType | None = None) -> Topology:
        """The in-edges of every node."""
        return topology_of(self._arrays, self._edge_type(edge_type), "csc")

    def csr(self, edge_type: EdgeType | None = None) -> Topology:
        """The out-edges of every node: made when first asked for, and kept."""
        name = self._edge_type(edge_type)
        self.derived(OutEdges(name))
        return topology_of(self._arrays, name, "csr")

    def by_time(
        self,
        edge_type: EdgeType | None,
        attribute: str,
        *,
        of_nodes: bool,
        side: Side = "in",
    ) -> tuple[Topology, npt.NDArray[np.int64]]:
        """In- or out-edges with every row in the order of time, and the times in that order."""
        name = self._edge_type(edge_type)
        entries, times = self.derived(ByTime(name, attribute, of_nodes, side))
        return Topology(rows_of(self, name, side).indptr, entries.array), times.array

    def weight_sums(
        self, edge_type: EdgeType | None, attribute: str, side: Side = "in"
    ) -> npt.NDArray[np.int64]:
        """Running sums of an edge attribute within each row: what weighted draws are made by."""
        return self.derived(WeightSums(self._edge_type(edge_type), attribute, side))[0].array

    def sorted_rows(self, edge_type: EdgeType | None = None, side: Side = "in") -> Ids:
        """The neighbours of each row of the csc (or csr) in rising order."""
        return self.derived(SortedNeighbors(self._edge_type(edge_type), side))[0].array

    def coo(self, edge_type: EdgeType | None = None) -> Ids:
        """The edges in the order of their ids, [2, edges]: made when first asked for, and kept."""
        return self.derived(Coo(self._edge_type(edge_type)))[0].array

    def derived(self, derived: DerivedArrays) -> tuple[SharedArray, ...]:
        """What follows from the graph's arrays: made when first asked for, kept and shared.

        The methods above ask for it; it is saved and handed on with the graph from then on.
        """
        if derived.keys[0] not in self._arrays:  # those that are there wait for nobody
            with self._making:
                self._make(derived)
        return tuple(self._arrays[key] for key in derived.keys)

    def _make(self, derived: DerivedArrays) -> None:
        if derived.keys[0] not in self._arrays:
            made = derived.make(self, self._kind_of_memory())
            # Replaced, not changed: somebody may be going through the old one.
            self._arrays = {**self._arrays, **dict(zip(derived.keys, made, strict=True))}

    def edge_index(self, edge_type: EdgeType | None = None) -> npt.NDArray[np.int64]:
        """The edges as they were given, [2, edges], sources above destinations. Made anew."""
        return coo(self.csc(edge_type))

    def in_degrees(self, edge_type: EdgeType | None = None) -> npt.NDArray[np.int64]:
        """How many in-edges each node has. Made anew."""
        return self.csc(edge_type).degrees

    # --- attributes --------------------------------------------------------------------------

    def node_attributes(self, node_type: str | None = None) -> dict[str, SharedArray]:
        """The attributes with a row per node, by name: `x`, `y`, `time` and any other."""
        return named(self._arrays, "node", self._node_type(node_type))

    def edge_attributes(self, edge_type: EdgeType | None = None) -> dict[str, SharedArray]:
        """The attributes with a row per edge, in the order of `edge_index`, by name."""
        return named(self._arrays, "edge", self._edge_type(edge_type))

    def splits(self, node_type: str | None = None) -> dict[str, SharedArray]:
        """The splits, by name."""
        return named(self._arrays, "split", self._node_type(node_type))

    # --- the whole ---------------------------------------------------------------------------

    def describe(self) -> Description:
        """Types, sizes, attributes, in-degrees and memory, as plain data."""
        return describe(self._schema, self._arrays, self._version)

    def validate(self) -> None:
        """Reads topology, splits, derived arrays; `GraphFormatError` names what is not sound."""
        validate(self._schema, self._arrays)

    def close(self) -> None:
        """Lets go of the memory. Views that live stay valid; no new ones can be made."""
        for segment in sharing.segments_of(self._arrays):
            segment.close()

    def __reduce__(self) -> tuple[Any, ...]:
        # Derived arrays made in memory can be made again over there; what was opened need not
        # suffer by it.
        handle = sharing.without_made(self.handle())
        if all(isinstance(segment, FileHandle) for segment in handle.segments):
            return type(self).attach, (handle,)
        raise TypeError(
            "a Graph in shared memory cannot be pickled: send its handle(), and its descriptors by "
            "subprocess's pass_fds or socket.send_fds, and call Graph.attach over there; or save() "
            "it and pickle the one you open"
        )

    def __repr__(self) -> str:
        return summary(self._schema, self._arrays)

    def _features(self, key: ArrayKey) -> FeatureSource:
        return LocalFeatures(self._arrays[key])

    def _kind_of_memory(self) -> str | None:
        """The kind this graph lies in; None for files, so that the environment decides."""
        kinds: dict[type, str] = {MemfdHandle: "memfd", NamedHandle: "named"}
        handles = (type(segment.handle) for segment in sharing.segments_of(self._arrays))
        return next((kinds[handle] for handle in handles if handle in kinds), None)
