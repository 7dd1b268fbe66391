"""`Graph`: topology, attributes and splits, in shared memory or in files; read-only.

A graph is a `Schema` and its arrays; this module gives them their meaning and combines the ways to
make, save and share one, each of which has its own module. Arrays are NumPy's, never torch's;
bfloat16 comes as 16-bit integers, and their `SharedArray` knows the true type.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Self

import msgspec
import numpy as np
import numpy.typing as npt

from penstock.graph import format as on_disk
from penstock.graph import sharing
from penstock.graph.build import build
from penstock.graph.coo import CooArguments, draft_from_coo
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
from penstock.graph.handles import DescriptorHandle, MemfdHandle, NamedHandle
from penstock.graph.lookup import pick
from penstock.graph.partition.cutter import Method
from penstock.graph.partition.cutter import Side as EdgeSide
from penstock.graph.partition.partition import partition
from penstock.graph.progress import Progress, Report, shown
from penstock.graph.pyg import draft_from_pyg
from penstock.graph.schema import ArrayKey, Arrays, EdgeType, Schema
from penstock.graph.shared import SharedArray
from penstock.graph.sharing import GraphHandle
from penstock.graph.topology import Topology, coo
from penstock.graph.validate import check_structure, topology_of, validate
from penstock.graph.view import GraphView, OwnIds, named
from penstock.kernels import Adjacency

StrPath = str | os.PathLike[str]

Ids = npt.NDArray[Any]


class Graph(GraphView):
    """A graph, homogeneous or heterogeneous.

    Made by `from_coo`, `from_pyg`, `open` or `attach`. Methods that take a type need it only for a
    heterogeneous graph. Arrays are read-only views; they stay valid after `close()`.

    Args:
        schema: The types, and which arrays there are.
        arrays: The arrays, by key.
        version: The digest of the content, if it is known.

    Examples:
        >>> import penstock as ps
        >>> graph = ps.Graph.from_coo([[0, 1, 2], [1, 2, 0]], num_nodes=3, train=[0, 2])
        >>> graph
        Graph(num_nodes=3, num_edges=3, train=2)
        >>> graph.save("ring.graph")
        >>> with ps.Graph.open("ring.graph") as opened:
        ...     print(opened.split("train").tolist())
        [0, 2]
    """

    def __init__(self, schema: Schema, arrays: Arrays, version: str | None = None) -> None:
        check_structure(schema, arrays)
        super().__init__(schema)
        self._arrays = dict(arrays)
        self._version = version
        self._edge_dir_of_part: Literal["in", "out"] | None = None
        # Guards what is computed once, on demand: derived arrays and the version. Reentrant,
        # because one derived array may need another.
        self._making = threading.RLock()

    # --- making, saving, sharing -------------------------------------------------------------

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
        progress: Progress = None,
    ) -> Self:
        """Make a graph from edge lists. Arrays are NumPy arrays, torch tensors or lists.

        For a heterogeneous graph every argument is a mapping by type, or a list of (type, value);
        an edge type is (source, relation, destination). Types keep the order of first mention: node
        types first those of `num_nodes`, or without it those of `x` and the other attributes, then
        those that only edges name. Any other type is an error.

        Attributes are kept under PyG's names (`node_time` as `time`). By whichever argument they
        are given, weights (`edge_weight`) must be finite and not negative, and times (`time`,
        `edge_time`) must not be NaN. Dates become nanoseconds since 1970, in UTC: NumPy's, pandas',
        and lists of Python's, which have a time zone each, or none (then they are in UTC).

        Args:
            edge_index: [2, edges], sources above destinations; or a sparse matrix of SciPy or torch
                whose entry [i, j] is an edge from i to j (the transpose of PyG's `adj_t`). Values
                other than 1 become `edge_weight`, if that is not given.
            num_nodes: If None, taken from node attributes, masks or the largest id, in this order.
            x: Features of nodes, a row for each.
            y: Labels of nodes.
            train: The nodes of this split, as ids or a bool mask.
            val: Likewise.
            test: Likewise.
            node_time: Times of nodes.
            edge_attr: Features of edges, a row for each.
            edge_weight: Weights of edges.
            edge_time: Times of edges.
            node_attrs: Further attributes of nodes, by name.
            edge_attrs: Further attributes of edges, by name.
            graph_attrs: Arrays and JSON values that belong to the whole graph.
            kind: The kind of shared memory, "memfd" or "named". None: PENSTOCK_SHARED_MEMORY
                decides.
            progress: Whether to show on standard error how far it is. None: in a terminal, after a
                second. Or called as `progress(done, total)` with bytes, now and then.

        Returns:
            The graph, in shared memory.

        Raises:
            ValueError: An argument is not valid; the error names it, the position and the value.

        Examples:
            >>> import numpy as np
            >>> import penstock as ps
            >>> ps.Graph.from_coo(np.array([[0, 1], [1, 2]]), x=np.ones((3, 4), np.float32))
            Graph(num_nodes=3, num_edges=2, x=float32[3, 4])
            >>> edges = {("user", "buys", "item"): [[0, 1], [2, 0]]}
            >>> shop = ps.Graph.from_coo(edges, num_nodes={"user": 2, "item": 3})
            >>> shop.node_types, shop.edge_types
            (('user', 'item'), (('user', 'buys', 'item'),))
        """
        given = CooArguments(
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
        with shown("building a graph", progress) as report:
            return cls._from_draft(draft_from_coo(given), kind, report)

    @classmethod
    def from_pyg(cls, data: Any, *, kind: str | None = None, progress: Progress = None) -> Self:
        """Make a graph from PyG's `Data` or `HeteroData`, with all attributes under their names.

        One-dimensional `train_mask`, `val_mask` and `test_mask` also become the splits. Attributes
        of the whole graph may be arrays or JSON values, such as lists of words of any length; an
        error names what a graph cannot keep. `edge_weight` must be finite; negative weights, which
        PyG allows, are kept, but cannot be sampled by.

        Args:
            data: The data.
            kind: The kind of shared memory, as for `from_coo`.
            progress: Whether to show how far it is, as for `from_coo`.

        Returns:
            The graph, in shared memory.

        Raises:
            ValueError: Something in the data cannot be kept; the error names it.

        Examples:
            >>> import torch
            >>> from torch_geometric.data import Data
            >>> import penstock as ps
            >>> data = Data(x=torch.ones(3, 4), edge_index=torch.tensor([[0, 1], [1, 2]]))
            >>> ps.Graph.from_pyg(data)
            Graph(num_nodes=3, num_edges=2, x=float32[3, 4])
        """
        with shown("building a graph", progress) as report:
            return cls._from_draft(draft_from_pyg(data), kind, report)

    @classmethod
    def _from_draft(cls, draft: Draft, kind: str | None, report: Report | None) -> Self:
        return cls(*build(draft, kind=kind, report=report))

    @classmethod
    def open(cls, path: StrPath) -> Self:
        """Open the graph saved in the folder `path`. Files are mapped, which takes milliseconds.

        Args:
            path: The folder.

        Raises:
            FileNotFoundError: There is no graph.
            GraphFormatError: The folder is damaged, or of a version that is not known here.
        """
        opened = on_disk.read(path)
        return cls(opened.schema, opened.arrays, opened.version)

    def save(self, path: StrPath, progress: Progress = None) -> None:
        """Save the graph in the folder `path`, replacing one that may be there.

        A crash at any instant leaves the old graph or the new one. Derived arrays that exist are
        saved with the graph.

        Args:
            path: The folder.
            progress: Whether to show how far it is, as for `from_coo`.
        """
        with shown(f"saving {os.fspath(path)}", progress) as report:
            self._version = on_disk.write(path, self._schema, self._arrays, report)

    def partition(
        self,
        n: int,
        path: StrPath,
        method: Method = "range",
        edges: EdgeSide = "destination",
        progress: Callable[[int, int], object] | None = None,
    ) -> list[Path]:
        """Write `n` parts of the graph into the folder `path`, one for each server to hold.

        `Partition.open` opens a part.

        Args:
            n: The number of parts.
            path: The folder for the parts.
            method: How nodes are assigned: by "range" of ids, or by "hash".
            edges: Whether edges go with their "destination" or their "source".
            progress: Called as `progress(done, parts)`.

        Returns:
            The folders of the parts.

        Examples:
            >>> import penstock as ps
            >>> graph = ps.Graph.from_coo([[0, 1, 2], [1, 2, 0]], num_nodes=3)
            >>> [part.name for part in graph.partition(2, "parts")]
            ['part-0', 'part-1']
        """
        return partition(self, path, n, method, edges, progress)

    @classmethod
    def attach(cls, handle: GraphHandle, fds: Sequence[int] = ()) -> Self:
        """Map the graph that another process described.

        Args:
            handle: The other process's `handle()`.
            fds: Its `descriptors`, as they arrived here; they are taken over and closed.

        Returns:
            The same graph, without a copy.
        """
        arrays = sharing.attach(handle, fds)
        try:
            graph = cls(handle.schema, arrays, handle.version)
            return graph if handle.edge_dir is None else graph.as_part(handle.edge_dir)
        except BaseException:
            for segment in sharing.segments_of(arrays):
                segment.close()
            raise

    def handle(self) -> GraphHandle:
        """Return what another process needs to attach, together with `descriptors`.

        It includes the derived arrays (out-edges, sums of weights, …) that exist when it is called:
        to share one, compute it first.
        """
        handle = sharing.handle_of(self._schema, self._arrays, self._version)
        return msgspec.structs.replace(handle, edge_dir=self._edge_dir_of_part)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptors to send with the handle: one per memfd; only the creator has any."""
        return sharing.descriptors_of(self._arrays)

    @property
    def version(self) -> str:
        """A digest of the content. Computed at first use, at memory speed, and kept."""
        with self._making:
            if self._version is None:
                self._version = on_disk.content_version(self._schema, self._arrays)
            return self._version

    # --- GraphView ---------------------------------------------------------------------------

    @property
    def address(self) -> None:
        """None: this process has the graph."""
        return None

    def here(self, complaint: str) -> Graph:
        """Return this graph."""
        return self

    @property
    def edge_dir_of_part(self) -> Literal["in", "out"] | None:
        """Which edges of its nodes the part has whose graph this is; None for a whole graph."""
        return self._edge_dir_of_part

    def as_part(self, edge_dir: Literal["in", "out"]) -> Self:
        """Return this graph, which from now on knows that it is a part cut by that direction.

        Args:
            edge_dir: Which edges of its nodes the part has.
        """
        self._edge_dir_of_part = edge_dir
        return self

    @property
    def arrays(self) -> Arrays:
        """All arrays that exist now, for code that moves a graph as a whole."""
        return MappingProxyType(self._arrays)

    def own_nodes(self, node_type: str | None = None) -> OwnIds:
        """Return all nodes of a type; they need no list of ids."""
        return OwnIds(self.num_nodes(node_type))

    def own_split(self, name: str, node_type: str | None = None) -> OwnIds:
        """Return the nodes of a split, as the graph's own array."""
        found = pick("split", name, node_type, self.splits(node_type))
        return OwnIds(found.shape[0], found)

    def own_edges(self, edge_type: EdgeType | None = None) -> OwnIds:
        """Return all edges of a type by their ends. Computed at first use, and kept."""
        (whole,) = self.derived(Coo(self._edge_type(edge_type)))
        return OwnIds(whole.shape[1], whole)

    def prepare(self, needs: Sequence[DerivedArrays]) -> Arrays:
        """Compute those of the needed derived arrays that do not exist; return all needed ones."""
        for each in needs:
            self.derived(each)
        return {key: self._arrays[key] for key in keys_of(needs)}

    def lacking(self, needs: Sequence[DerivedArrays]) -> list[ArrayKey]:
        """Return the keys of needed derived arrays that do not exist yet."""
        return [key for key in keys_of(needs) if key not in self._arrays]

    # --- topology ----------------------------------------------------------------------------

    def csc(self, edge_type: EdgeType | None = None) -> Topology:
        """Return the in-edges of every node.

        Args:
            edge_type: The edge type; None for a homogeneous graph.
        """
        return topology_of(self._arrays, self._edge_type(edge_type), "csc")

    def csr(self, edge_type: EdgeType | None = None) -> Topology:
        """Return the out-edges of every node. Computed at first use, and kept.

        Args:
            edge_type: The edge type; None for a homogeneous graph.
        """
        name = self._edge_type(edge_type)
        self.derived(OutEdges(name))
        return topology_of(self._arrays, name, "csr")

    def rows(self, edge_type: EdgeType | None, side: Side) -> Adjacency:
        """Return in-edges ("in") or out-edges ("out") as kernels read them.

        Args:
            edge_type: The edge type; None for a homogeneous graph.
            side: In-edges ("in"), or out-edges ("out").
        """
        found = rows_of(self, self._edge_type(edge_type), side)
        return Adjacency(found.indptr, found.adjacency)

    def by_time(
        self,
        edge_type: EdgeType | None,
        attribute: str,
        *,
        of_nodes: bool,
        side: Side = "in",
    ) -> tuple[Topology, npt.NDArray[np.int64]]:
        """Return in- or out-edges with every row in order of time, and the times in that order.

        Args:
            edge_type: The edge type; None for a homogeneous graph.
            attribute: The attribute that has the times.
            of_nodes: Whether it is an attribute of the neighbours, not of the edges.
            side: In-edges ("in"), or out-edges ("out").
        """
        name = self._edge_type(edge_type)
        entries, times = self.derived(ByTime(name, attribute, of_nodes, side))
        return Topology(rows_of(self, name, side).indptr, entries.array), times.array

    def weight_sums(
        self, edge_type: EdgeType | None, attribute: str, side: Side = "in"
    ) -> npt.NDArray[np.int64]:
        """Return running sums of an edge attribute within each row, as weighted draws use them.

        Args:
            edge_type: The edge type; None for a homogeneous graph.
            attribute: The attribute that has the weights.
            side: In-edges ("in"), or out-edges ("out").
        """
        return self.derived(WeightSums(self._edge_type(edge_type), attribute, side))[0].array

    def sorted_rows(self, edge_type: EdgeType | None = None, side: Side = "in") -> Ids:
        """Return the neighbours of each row of the csc (or csr) in rising order.

        Args:
            edge_type: The edge type; None for a homogeneous graph.
            side: In-edges ("in"), or out-edges ("out").
        """
        return self.derived(SortedNeighbors(self._edge_type(edge_type), side))[0].array

    def coo(self, edge_type: EdgeType | None = None) -> Ids:
        """Return the edges in order of their ids, [2, edges]. Computed at first use, and kept.

        Args:
            edge_type: The edge type; None for a homogeneous graph.
        """
        return self.derived(Coo(self._edge_type(edge_type)))[0].array

    def derived(self, derived: DerivedArrays) -> tuple[SharedArray, ...]:
        """Return derived arrays. Computed at first use, then kept, saved and shared with the graph.

        The methods above call this one. Thread-safe.
        """
        if derived.keys[0] not in self._arrays:  # no lock for those that exist
            with self._making:
                self._make(derived)
        return tuple(self._arrays[key] for key in derived.keys)

    def _make(self, derived: DerivedArrays) -> None:
        if derived.keys[0] not in self._arrays:
            made = derived.make(self, self._kind_of_memory())
            # A new dict replaces the old one, because another thread may be iterating over that.
            self._arrays = {**self._arrays, **dict(zip(derived.keys, made, strict=True))}

    def edge_index(self, edge_type: EdgeType | None = None) -> npt.NDArray[np.int64]:
        """Return the edges as given, [2, edges], sources above destinations. Not cached.

        Args:
            edge_type: The edge type; None for a homogeneous graph.
        """
        return coo(self.csc(edge_type))

    def in_degrees(self, edge_type: EdgeType | None = None) -> npt.NDArray[np.int64]:
        """Return the number of in-edges of each node. Not cached.

        Args:
            edge_type: The edge type; None for a homogeneous graph.
        """
        return self.csc(edge_type).degrees

    # --- attributes --------------------------------------------------------------------------

    def node_attributes(self, node_type: str | None = None) -> dict[str, SharedArray]:
        """Return the attributes with a row per node, by name: `x`, `y`, `time` and any other.

        Args:
            node_type: The node type; None for a homogeneous graph.
        """
        return named(self._arrays, "node", self._node_type(node_type))

    def edge_attributes(self, edge_type: EdgeType | None = None) -> dict[str, SharedArray]:
        """Return the attributes with a row per edge, in the order of `edge_index`, by name.

        Args:
            edge_type: The edge type; None for a homogeneous graph.
        """
        return named(self._arrays, "edge", self._edge_type(edge_type))

    def splits(self, node_type: str | None = None) -> dict[str, SharedArray]:
        """Return the splits, by name.

        Args:
            node_type: The node type; None for a homogeneous graph.
        """
        return named(self._arrays, "split", self._node_type(node_type))

    # --- the graph as a whole ----------------------------------------------------------------

    def describe(self) -> Description:
        """Return types, sizes, attributes, in-degrees and memory, as plain data."""
        return describe(self._schema, self._arrays, self._version)

    def validate(self) -> None:
        """Read topology, splits and derived arrays, and check that they are sound.

        Raises:
            GraphFormatError: Names the first thing that is not sound.
        """
        validate(self._schema, self._arrays)

    def close(self) -> None:
        """Release the memory. Existing views stay valid; no new ones can be made."""
        for segment in sharing.segments_of(self._arrays):
            segment.close()

    def __reduce__(self) -> tuple[Any, ...]:
        # By its handle, however large it is: processes of this user and host map the same memory
        # while this process keeps it, or the same files.
        try:
            handle = sharing.path_handle_of(self.handle(), self._arrays)
        except TypeError as error:
            raise TypeError(
                f"{error}; or save() the graph, and pickle the one you open()"
            ) from None
        return type(self).attach, (handle,)

    def __repr__(self) -> str:
        return summary(self._schema, self._arrays)

    def _features(self, key: ArrayKey) -> FeatureSource:
        return LocalFeatures(self._arrays[key])

    def _kind_of_memory(self) -> str | None:
        """Return this graph's kind of memory; None for files, so that the environment decides."""
        kinds: dict[type, str] = {
            MemfdHandle: "memfd",
            DescriptorHandle: "memfd",
            NamedHandle: "named",
        }
        handles = (type(segment.handle) for segment in sharing.segments_of(self._arrays))
        return next((kinds[handle] for handle in handles if handle in kinds), None)
