"""`Graph`: topology, attributes and splits, in shared memory or in files; read-only.

A graph is a `Schema` and its arrays; this module gives them their meaning and combines the ways to
make, save and share one, each of which has its own module. Arrays are NumPy's, never torch's;
bfloat16 comes as 16-bit integers, and their `SharedArray` knows the true type.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from penstock.errors import suggestion
from penstock.graph import format as on_disk
from penstock.graph import sharing
from penstock.graph.build import build
from penstock.graph.coo import CooArguments, draft_from_coo
from penstock.graph.derived import (
    ByTime,
    Coo,
    DerivedArrays,
    OutEdges,
    SortedNeighbors,
    WeightSums,
    keys_of,
    own_rows_of,
)
from penstock.graph.describe import Description, describe, summary
from penstock.graph.draft import Draft
from penstock.graph.features import FeatureSource, LocalFeatures, PartFeatures, rows_here
from penstock.graph.handles import DescriptorHandle, MemfdHandle, NamedHandle
from penstock.graph.inventory import key_text
from penstock.graph.lookup import pick
from penstock.graph.matrices import matrix_arguments, with_values
from penstock.graph.networkx import coo_arguments
from penstock.graph.ogb import draft_from_ogb
from penstock.graph.partition.book import ArrayBook, HashBook, PartitionBook, RangeBook
from penstock.graph.partition.partition import (
    Edges,
    Layout,
    Method,
    Parts,
    assigned,
    check_place,
    write_parts,
)
from penstock.graph.partition.within import arrays_within
from penstock.graph.progress import Progress, Report, shown
from penstock.graph.pyg import draft_from_pyg
from penstock.graph.quantization import Quantization
from penstock.graph.schema import (
    BOOK,
    MEMBERS,
    SLOTS,
    TOPOLOGIES,
    ArrayKey,
    Arrays,
    EdgeType,
    PartNote,
    Schema,
    Side,
    owner_of,
    positions_name,
)
from penstock.graph.shared import SharedArray
from penstock.graph.sharing import GraphHandle
from penstock.graph.topology import Topology, coo
from penstock.graph.user_ids import keys_among, taken
from penstock.graph.validate import check_structure, topology_of, validate
from penstock.graph.view import GraphView, OwnIds, named
from penstock.kernels import Adjacency
from penstock.kernels.id_table import Keys, Text, fill_slots, look_up, slot_dtype, slots_needed
from penstock.kernels.members import Members

StrPath = str | os.PathLike[str]

# Among more ids, looking for one that was meant takes longer than anybody waits for an error.
_FEW_IDS: Final = 10_000

Ids = npt.NDArray[Any]
# How attributes are stored, by name or by (type, name).
Features = Mapping[str | tuple[str | EdgeType, str], Quantization] | None


class Graph(GraphView):
    """A graph, homogeneous or heterogeneous, or a part of one.

    Made by `from_coo`, `from_pyg`, `from_networkx`, `from_scipy`, `from_ogb`, `open` or `attach`.
    Methods that take a type need it only for a heterogeneous graph. Arrays are read-only views;
    they stay valid after `close()`.

    A part (`part` is not None) speaks the ids of the whole graph and has its types and sizes.
    Attributes are those of the part's own nodes and edges, in the order of their ids; `node_ids`
    says which nodes these are, and `rows` has their edges.

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
        self._books: dict[str, PartitionBook] = {}
        self._members: dict[str | EdgeType, Members] = {}
        self._own_ids: dict[str, SharedArray] = {}
        # The part alone, while somebody has it; it keeps the part, which closes what both use.
        self._alone: Callable[[], Graph | None] = lambda: None
        self._lender: Graph | None = None
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
        node_ids: Any = None,
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
        features: Features = None,
        kind: str | None = None,
        progress: Progress = None,
    ) -> Self:
        """Make a graph from edge lists. Arrays are NumPy arrays, torch tensors or lists.

        For a heterogeneous graph every argument is a mapping by type, or a list of (type, value);
        an edge type is (source, relation, destination). Types keep the order of first mention: node
        types first those of `num_nodes`, or without it those of `node_ids`, `x` and the other
        attributes, then those that only edges name. Any other type is an error.

        Attributes are kept under PyG's names (`node_time` as `time`). By whichever argument they
        are given, weights (`edge_weight`) must be finite and not negative, and times (`time`,
        `edge_time`) must not be NaN. Dates become nanoseconds since 1970, in UTC: NumPy's, pandas',
        and lists of Python's, which have a time zone each, or none (then they are in UTC).

        Args:
            edge_index: [2, edges], sources above destinations; or a sparse matrix of SciPy or torch
                whose entry [i, j] is an edge from i to j (the transpose of PyG's `adj_t`). Values
                other than 1 become `edge_weight`, if that is not given.
            num_nodes: If None, taken from `node_ids`, node attributes, masks or the largest id, in
                this order.
            node_ids: The ids by which you know the nodes, in the order of their numbers: strings,
                or integers of 64 bits, each once. `ids`, `lookup` and `names` translate. All other
                arguments have numbers, from 0.
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
            features: Which attributes are stored in fewer bytes (`penstock.quantize`), by name,
                which means all that are called so, or by (type, name).
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
            >>> named = ps.Graph.from_coo([[0, 1], [1, 2]], node_ids=["ann", "bob", "cho"])
            >>> named.lookup(ids=["cho", "ann"]).tolist(), named.ids(index=[1]).tolist()
            ([2, 0], ['bob'])
        """
        given = CooArguments(
            edge_index=edge_index,
            num_nodes=num_nodes,
            node_ids=node_ids,
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
            return cls._from_draft(draft_from_coo(given), features, kind, report)

    @classmethod
    def from_pyg(
        cls,
        data: Any,
        *,
        features: Features = None,
        kind: str | None = None,
        progress: Progress = None,
    ) -> Self:
        """Make a graph from PyG's `Data` or `HeteroData`, with all attributes under their names.

        One-dimensional `train_mask`, `val_mask` and `test_mask` also become the splits. Attributes
        of the whole graph may be arrays or JSON values, such as lists of words of any length; an
        error names what a graph cannot keep. `edge_weight` must be finite; negative weights, which
        PyG allows, are kept, but cannot be sampled by.

        Args:
            data: The data.
            features: Which attributes are stored in fewer bytes, as for `from_coo`.
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
            return cls._from_draft(draft_from_pyg(data), features, kind, report)

    @classmethod
    def from_networkx(
        cls,
        graph: Any,
        *,
        node_attrs: Any = None,
        edge_attrs: Any = None,
        weight: str | None = "weight",
        features: Features = None,
        kind: str | None = None,
        progress: Progress = None,
    ) -> Self:
        """Make a graph from one of networkx.

        Nodes are numbered in the order of `graph.nodes`. If they are strings or integers, these are
        kept as the users' ids (see `ids`), unless they are these numbers. An edge of an undirected
        graph leads both ways: first come all edges as networkx lists them, then their reverses in
        the same order; a loop is one edge. Parallel edges of a multigraph are edges of their own.

        Args:
            graph: A `Graph`, `DiGraph`, `MultiGraph` or `MultiDiGraph`.
            node_attrs: Attributes of nodes to keep: names, or a mapping from a name here to one
                there, or to several, which become one array side by side (`{"x": ["age",
                "size"]}`). None: all that every node has as a number or as numbers; a warning names
                the others. `train_mask`, `val_mask` and `test_mask` also become the splits.
            edge_attrs: Likewise of edges.
            weight: The attribute of edges that is kept as `edge_weight`, if they have it. None:
                attributes keep their names.
            features: Which attributes are stored in fewer bytes, as for `from_coo`.
            kind: The kind of shared memory, as for `from_coo`.
            progress: Whether to show how far it is, as for `from_coo`.

        Returns:
            The graph, in shared memory.

        Raises:
            ValueError: An attribute that is wanted is no number, or missing somewhere; the error
                names the node or the edge.

        Examples:
            >>> import networkx
            >>> import penstock as ps
            >>> friends = networkx.Graph([("ann", "bob", {"weight": 2.0})])
            >>> friends.add_node("ann", age=41); friends.add_node("bob", age=39)
            >>> graph = ps.Graph.from_networkx(friends, node_attrs={"x": ["age"]})
            >>> graph.edge_index().tolist(), graph.edge_attribute("edge_weight").tolist()
            ([[0, 1], [1, 0]], [2.0, 2.0])
            >>> graph.ids().tolist()
            ['ann', 'bob']
        """
        with shown("building a graph", progress) as report:
            given = coo_arguments(graph, node_attrs, edge_attrs, weight)
            return cls._from_draft(draft_from_coo(given), features, kind, report)

    @classmethod
    def from_scipy(
        cls,
        matrix: Any,
        *,
        edge_type: EdgeType | None = None,
        reverse: bool = False,
        values: str | None = "edge_weight",
        **arguments: Any,
    ) -> Self:
        """Make a graph from a sparse matrix of SciPy, or from several by edge type.

        Entry [i, j] is an edge from i to j; explicit zeros and repeated entries are edges, too.
        Edges are numbered in the order in which the matrix stores its entries.

        Args:
            matrix: The matrix, of any format; or a mapping from edge type to matrix.
            edge_type: Source, relation and destination, if rows and columns are nodes of two types,
                such as `("user", "buys", "item")`. None: they are the same nodes.
            reverse: Whether every entry is an edge back, too: of the type `("item", "rev_buys",
                "user")`, or behind the other edges if there is one node type, where a loop is one
                edge. A symmetric matrix has both directions already.
            values: The name under which values are kept as an attribute of edges, unless all are 1.
                None: they are not kept.
            **arguments: `x`, `y`, `train` and all others of `from_coo`.

        Returns:
            The graph, in shared memory.

        Raises:
            ValueError: An argument is not valid; the error names it.

        Examples:
            >>> import penstock as ps
            >>> from scipy.sparse import csr_array
            >>> ps.Graph.from_scipy(csr_array([[0, 2, 0], [0, 0, 3], [0, 0, 0]]))
            Graph(num_nodes=3, num_edges=2, edge_weight=int64[2])
            >>> ratings = csr_array([[5, 0, 3], [0, 4, 0]])
            >>> shop = ps.Graph.from_scipy(
            ...     ratings, edge_type=("user", "rates", "item"), values="stars", reverse=True)
            >>> shop.num_nodes("user"), shop.num_nodes("item"), shop.edge_types[1]
            (2, 3, ('item', 'rev_rates', 'user'))
        """
        found = matrix_arguments(matrix, edge_type, reverse)
        given = {"num_nodes": found.num_nodes, **arguments}
        if values is not None and found.values is not None:
            given = with_values(given, values, found.values)
        return cls.from_coo(found.edge_index, **given)

    @classmethod
    def from_ogb(
        cls,
        path: StrPath,
        *,
        split: str | None = None,
        reverse: bool | None = None,
        features: Features = None,
        kind: str | None = None,
        progress: Progress = None,
    ) -> Self:
        """Make a graph from a folder of the Open Graph Benchmark, as `ogb` leaves it on disk.

        Datasets for nodes (`ogbn_…`) and for links (`ogbl_…`) are read, with types or without, as
        CSV or as `.npz`; the package `ogb` is not needed. Features are `x`, labels `y` and features
        of edges `edge_attr`; others keep their names (`node_year`, `edge_weight`). A single column
        becomes a vector. Nodes to train on are the splits "train", "val" and "test". Links to
        predict are splits of links, which `LinkNeighborLoader` takes by name; what else is told of
        them is among the `graph_attributes` of the edge type, or of the graph if it has no types:
        `train_links_weight`, `val_links_neg`.

        Args:
            path: The dataset's folder, such as `dataset/ogbn_arxiv`, with `raw` and `split` in it.
            split: The folder in `split` that is read. None: the only one.
            reverse: Whether every edge leads back, too, right behind it. None: as `ogb` does, which
                adds reverses for the undirected graphs (products, proteins, ppa, collab, ddi).
            features: Which attributes are stored in fewer bytes, as for `from_coo`.
            kind: The kind of shared memory, as for `from_coo`.
            progress: Whether to show how far it is, as for `from_coo`.

        Returns:
            The graph, in shared memory.

        Raises:
            FileNotFoundError: There is no such dataset.
            ValueError: A file is not what it should be; the error names it.

        Examples:
            >>> import gzip
            >>> from pathlib import Path
            >>> import penstock as ps
            >>> raw = Path("dataset/ogbn_tiny/raw")
            >>> raw.mkdir(parents=True)
            >>> for name, text in {"edge": "0,1\\n1,2\\n", "num-node-list": "3\\n"}.items():
            ...     with gzip.open(raw / f"{name}.csv.gz", "wt") as file:
            ...         _ = file.write(text)
            >>> ps.Graph.from_ogb("dataset/ogbn_tiny")
            Graph(num_nodes=3, num_edges=2)
        """
        folder = Path(path)
        with shown(f"reading {folder}", progress) as report:
            draft = draft_from_ogb(folder, split, reverse, report or (lambda done, total: None))
        with shown("building a graph", progress) as report:
            try:
                return cls._from_draft(draft, features, kind, report)
            except ValueError as error:
                raise ValueError(f"{folder}: {error}") from None

    @classmethod
    def _from_draft(
        cls, draft: Draft, features: Features, kind: str | None, report: Report | None
    ) -> Self:
        draft.quantize(features)
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
        edges: Edges = "destination",
        topology: Layout = "parts",
        progress: Progress = None,
        passes: int | None = None,
    ) -> Parts:
        """Write `n` parts of the graph into the folder `path`, one for each server to hold.

        A part is a saved graph: `Graph.open` opens it, and `penstock serve` serves it. A node's
        attributes and its place in splits are in its part; edges go with one of their ends, or with
        both.

        Args:
            n: The number of parts.
            path: The folder for the parts. Parts that are there are replaced when all new ones are
                on disk.
            method: How nodes are assigned: by "range" of ids, by "hash", or so that few edges lead
                from one part to another: by "locality", in memory, with KaMinPar (`pip install
                'penstock-gnn[locality]'`), or by "streaming", for graphs larger than memory. Or as
                given: the part of each node as an array, for a heterogeneous graph by node type.
            edges: Whether edges go with their "destination" or their "source": a part serves the
                in-edges or the out-edges of its nodes. With "both" it serves both, and attributes
                of edges go with the destination.
            topology: "parts": a part has the edges of its own nodes. "whole": every part has all
                edges, and only attributes are in parts.
            progress: Whether to show how far it is, as for `from_coo`. A function is told of
                "streaming" first, and then of writing.
            passes: How often "streaming" goes through all edges at most (20). More find a better
                cut; it ends when nodes hardly move.

        Returns:
            The folders of the parts, as a list; `edges_cut` of it says how many edges of each type
            lead from one part to another, `num_edges` how many there are, and `balance` how many
            nodes and edges of each type the largest part has, over the mean.

        Raises:
            ValueError: An argument is not valid, or the graph is a part itself.
            GraphFormatError: The folder has something else than parts.
            PenstockError: KaMinPar is needed, and is not installed or failed.

        Examples:
            >>> import penstock as ps
            >>> graph = ps.Graph.from_coo([[0, 1, 2, 3], [1, 2, 3, 0]], num_nodes=4)
            >>> parts = graph.partition(2, "parts")
            >>> [part.name for part in parts], parts.edges_cut
            (['part-0', 'part-1'], {('', '', ''): 2})
            >>> with ps.Graph.open(parts[1]) as part:
            ...     print(part.part.number, part.node_ids().tolist(), part.num_nodes())
            1 [2, 3] 4
        """
        check_place(path)
        with shown("assigning nodes to parts", progress) as report:
            cutter = assigned(self, n, method, edges, topology, passes, report, path)
        with shown(f"cutting into {os.fspath(path)}", progress) as report:
            return write_parts(cutter, path, report)

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
            return cls(handle.schema, arrays, handle.version)
        except BaseException:
            for segment in sharing.segments_of(arrays):
                segment.close()
            raise

    def handle(self) -> GraphHandle:
        """Return what another process needs to attach, together with `descriptors`.

        It includes the derived arrays (out-edges, sums of weights, …) that exist when it is called:
        to share one, compute it first.
        """
        return sharing.handle_of(self._schema, self._arrays, self._version)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptors to send with the handle: one per memfd; only the creator has any."""
        return sharing.descriptors_of(self._arrays)

    def with_arrays(self, arrays: Arrays) -> Graph:
        """Return this graph with these arrays, which are its own and derived ones.

        Args:
            arrays: All arrays, by key.
        """
        return Graph(self._schema, arrays, self._version)

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
    def arrays(self) -> Arrays:
        """All arrays that exist now, for code that moves a graph as a whole."""
        return MappingProxyType(self._arrays)

    def node_ids(self, node_type: str | None = None) -> Ids:
        """Return the ids of all nodes of a type; of a part, those of its own nodes, rising.

        Args:
            node_type: The node type; None for a homogeneous graph.
        """
        if self.part is None:
            return super().node_ids(node_type)
        return self._own_nodes(self._node_type(node_type)).array

    def own_nodes(self, node_type: str | None = None) -> OwnIds:
        """Return all nodes of a type, which need no list of ids, or those of a part."""
        if self.part is None:
            return OwnIds(self.num_nodes(node_type))
        ids = self._own_nodes(self._node_type(node_type))
        return OwnIds(ids.shape[0], ids)

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

        Raises:
            ValueError: This is a part, which has rows of its own nodes only: see `rows`.
        """
        self._check_all_rows()
        return self.topology(edge_type, "in")

    def csr(self, edge_type: EdgeType | None = None) -> Topology:
        """Return the out-edges of every node. Computed at first use, and kept.

        Args:
            edge_type: The edge type; None for a homogeneous graph.

        Raises:
            ValueError: This is a part, which has rows of its own nodes only: see `rows`.
        """
        self._check_all_rows()
        return self.topology(edge_type, "out")

    def topology(self, edge_type: EdgeType | None = None, side: Side = "in") -> Topology:
        """Return the rows that are here: of every node, or of the nodes of a part, as `node_ids`.

        Args:
            edge_type: The edge type; None for a homogeneous graph.
            side: In-edges ("in"), or out-edges ("out").

        Raises:
            ValueError: The part was cut by the other end of edges, and lacks these rows.
        """
        name, part = self._edge_type(edge_type), self.part
        if part is not None and part.is_compact:
            if side not in part.sides:
                raise ValueError(_lacking_side(part, side))
        elif side == "out":
            self.derived(OutEdges(name))
        return topology_of(self._arrays, name, TOPOLOGIES[side])

    def rows(self, edge_type: EdgeType | None = None, side: Side = "in") -> Adjacency:
        """Return the edges of each node for kernels; in a part, with the members that have rows.

        Args:
            edge_type: The edge type; None for a homogeneous graph.
            side: In-edges ("in"), or out-edges ("out").

        Raises:
            ValueError: The part was cut by the other end of edges, and lacks these rows.
        """
        name = self._edge_type(edge_type)
        found, part = self.topology(name, side), self.part
        members = self.members(owner_of(name, side)) if part and part.is_compact else None
        return found.rows_of(members)

    def own_rows(self, edge_type: EdgeType | None = None, side: Side = "in") -> Adjacency:
        """Return the rows that sums of weights and times of edges belong to.

        They are `rows`, but for a part that has the whole topology: there, those of its own nodes.

        Args:
            edge_type: The edge type; None for a homogeneous graph.
            side: In-edges ("in"), or out-edges ("out").
        """
        name, part = self._edge_type(edge_type), self.part
        if part is None or part.topology == "parts" or part.alone:
            return self.rows(name, side)
        found = own_rows_of(self, name, side)
        return found.rows_of(self.members(owner_of(name, side)))

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
        return Topology(own_rows_of(self, name, side).indptr, entries.array), times.array

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
            if isinstance(derived, WeightSums | ByTime):
                self._check_exact(derived.sources[0])
            made = derived.make(self, self._kind_of_memory())
            # A new dict replaces the old one, because another thread may be iterating over that.
            self._arrays = {**self._arrays, **dict(zip(derived.keys, made, strict=True))}

    def _check_exact(self, key: ArrayKey) -> None:
        if (codec := self._codecs.get(key)) is not None:
            raise ValueError(
                f"{key_text(key)} is stored as {codec.stored} (quantize): weights and times are "
                "read as they are stored"
            )

    def edge_index(self, edge_type: EdgeType | None = None) -> npt.NDArray[np.int64]:
        """Return the edges as given, [2, edges], sources above destinations. Not cached.

        Of a part these are the edges that belong to it, in the order of their ids.

        Args:
            edge_type: The edge type; None for a homogeneous graph.
        """
        if self.part is not None:
            return self.coo(edge_type).astype(np.int64)
        return coo(self.csc(edge_type))

    def in_degrees(self, edge_type: EdgeType | None = None) -> npt.NDArray[np.int64]:
        """Return the number of in-edges of each node that has a row here. Not cached.

        Args:
            edge_type: The edge type; None for a homogeneous graph.
        """
        return self.topology(edge_type, "in").degrees

    # --- attributes --------------------------------------------------------------------------

    def node_attributes(self, node_type: str | None = None) -> dict[str, SharedArray]:
        """Return the attributes with a row per node, by name: `x`, `y`, `time` and any other.

        One that is stored in a smaller type is here as it is stored; `node_codec` says how to read
        it, and `node_attribute` and `node_features` give it as it is read.

        Args:
            node_type: The node type; None for a homogeneous graph.
        """
        return named(self._arrays, "node", self._node_type(node_type))

    def edge_attributes(self, edge_type: EdgeType | None = None) -> dict[str, SharedArray]:
        """Return the attributes with a row per edge, in the order of `edge_index`, by name.

        As `node_attributes`, with `edge_codec`.

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

    def split_positions(self, name: str, node_type: str | None = None) -> Ids:
        """Return at which positions of the whole graph's split the nodes of `split(name)` stand.

        Args:
            name: The name of the split, such as "train".
            node_type: The node type; None for a homogeneous graph.
        """
        owner = self._node_type(node_type)
        ids = pick("split", name, node_type, self.splits(owner))
        if self.part is None:
            return np.arange(ids.shape[0])
        return self._arrays[ArrayKey("part", owner, positions_name(name))].array

    # --- users' ids --------------------------------------------------------------------------

    def id_keys(self, node_type: str, nodes: npt.NDArray[np.int64] | None = None) -> Keys:
        """Return the users' ids of nodes, of a type that has some; see `ids`.

        Args:
            node_type: The node type.
            nodes: Which nodes; None for all, or those of a part.
        """
        found = keys_among(self._arrays, node_type)
        return found if nodes is None else taken(found, self._id_rows(node_type, nodes))

    def id_nbytes(self, node_type: str, nodes: npt.NDArray[np.int64] | None = None) -> Ids:
        """Return how many bytes each of the ids has that `id_keys` returns.

        Args:
            node_type: The node type.
            nodes: Which nodes; None for all, or those of a part.
        """
        found = keys_among(self._arrays, node_type)
        rows = np.arange(len(found)) if nodes is None else self._id_rows(node_type, nodes)
        if not isinstance(found, Text):
            return np.full(len(rows), found.itemsize)
        return found.offsets[rows + 1] - found.offsets[rows]

    def _id_rows(self, node_type: str, nodes: npt.NDArray[np.int64]) -> Ids:
        members = self.members(node_type or None)
        if members is None:
            return nodes
        return rows_here(members, nodes, partial(self._where, node_type), "index")

    def nodes_of_keys(self, node_type: str, keys: Keys) -> npt.NDArray[np.int64]:
        """Return the nodes with these ids, of a type that has some; -1 where there is none.

        Args:
            node_type: The node type.
            keys: The ids.
        """
        found = look_up(keys_among(self._arrays, node_type), self._slots(node_type), keys)
        if self.part is None:
            return found
        here = found >= 0
        found[here] = self._own_nodes(node_type).array[found[here]]
        return found

    def _near(self, name: str, wanted: Any) -> str:
        keys = keys_among(self._arrays, name)
        if not isinstance(keys, Text) or len(keys) > _FEW_IDS:
            return super()._near(name, wanted)
        return suggestion(wanted, keys.strings()) + super()._near(name, wanted)

    def _slots(self, node_type: str) -> Ids:
        """Return the table over the ids, which was saved with them, or is made now and kept."""
        key = ArrayKey("ids", node_type, SLOTS)
        with self._making:
            if key not in self._arrays:
                keys = keys_among(self._arrays, node_type)
                slots = np.empty(slots_needed(len(keys)), slot_dtype(len(keys)))
                fill_slots(keys, slots)
                made = SharedArray.from_array(slots, kind=self._kind_of_memory())
                self._arrays = {**self._arrays, key: made}
            return self._arrays[key].array

    # --- parts -------------------------------------------------------------------------------

    def members(self, node_type: str | None = None) -> Members | None:
        """Return which nodes of a type are in the part, and in which row; None for a whole graph.

        Args:
            node_type: The node type; None for a homogeneous graph.
        """
        name = self._node_type(node_type)
        return self._members_of(name, self._num_nodes[name])

    def edge_members(self, edge_type: EdgeType | None = None) -> Members | None:
        """Return which edges have their attributes in the part, and in which row.

        None for a whole graph, and for edges without attributes.

        Args:
            edge_type: The edge type; None for a homogeneous graph.
        """
        name = self._edge_type(edge_type)
        return self._members_of(name, self._num_edges[name])

    def check_nodes(self, node_type: str | None, ids: Ids, label: str = "ids") -> None:
        """Raise `ValueError` for the first node that is in another part than this one.

        Args:
            node_type: The node type; None for a homogeneous graph.
            ids: The nodes, which are in range.
            label: The argument's name.
        """
        if self.part is not None:
            name = self._node_type(node_type)
            members = self.members(name)
            assert members is not None
            rows_here(members, ids, partial(self._where, name), label)

    def node_book(self, node_type: str | None = None) -> PartitionBook:
        """Return the book that says which part has a node; a whole graph is one part.

        Args:
            node_type: The node type; None for a homogeneous graph.
        """
        name = self._node_type(node_type)
        if name not in self._books:
            self._books[name] = self._book(name)
        return self._books[name]

    def within(self) -> Graph:
        """Return the part alone: its nodes, and the edges with both ends among them.

        Neighbours in other parts are left out, so this is another graph than the whole one; ids
        stay those of the whole graph. It is made in shared memory, once for all who have it, and
        closed with the part.

        Raises:
            ValueError: This is a whole graph.
        """
        if self.part is None:
            raise ValueError("this is a whole graph: within() is for a part of one")
        if self.part.alone:
            return self
        with self._making:
            alone = self._alone()
            if alone is None:
                schema, arrays = arrays_within(self, self._kind_of_memory())
                alone = Graph(schema, arrays, on_disk.version_within(self.version))
                alone._lender = self
                self._alone = weakref.ref(alone)
            return alone

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
        if (alone := self._alone()) is not None:
            alone.close()
        lent = sharing.segments_of(self._lender._arrays) if self._lender is not None else []
        for segment in sharing.segments_of(self._arrays):
            if segment not in lent:
                segment.close()
        for ids in self._own_ids.values():
            ids.close()

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
        if self.part is None:
            return LocalFeatures(self._arrays[key])
        name = key.type
        is_node = isinstance(name, str)
        members = self.members(name) if is_node else self.edge_members(name)  # type: ignore[arg-type]
        assert members is not None
        return PartFeatures(self._arrays[key], members, partial(self._where, name))

    def _where(self, name: str | EdgeType, number: int) -> str:
        """Return where a node or an edge is that is not in this part, in words."""
        if isinstance(name, str):
            (part,) = self.node_book(name).partition_of([number])
            return f"which is in part {part}; this is {self.part}"
        return f"an edge that belongs to another part; this is {self.part}"

    def _members_of(self, name: str | EdgeType, size: int) -> Members | None:
        found, words = self._members.get(name), self._arrays.get(ArrayKey("part", name, MEMBERS))
        if found is None and words is not None:
            found = self._members[name] = Members(words.array.view(np.uint64), size)
        return found

    def _book(self, name: str) -> PartitionBook:
        part, size = self.part, self._num_nodes[name]
        if part is None:
            return RangeBook((0, size))
        if part.method == "range":
            return RangeBook(part.bounds[name])
        if part.method == "hash":
            return HashBook(size, part.of)
        return ArrayBook(self._arrays[ArrayKey("part", name, BOOK)].array, part.of)

    def _own_nodes(self, name: str) -> SharedArray:
        """Return the ids of a part's nodes, in shared memory, so that they can be passed on."""
        with self._making:
            if name not in self._own_ids:
                members = self.members(name)
                assert members is not None
                ids = SharedArray.from_array(members.ids(), kind=self._kind_of_memory())
                self._own_ids[name] = ids
            return self._own_ids[name]

    def _check_all_rows(self) -> None:
        if self.part is not None and self.part.is_compact:
            raise ValueError(
                f"this is {self.part}, which has rows of its own nodes only: rows(edge_type, side) "
                "are those, with the nodes they belong to"
            )

    def _kind_of_memory(self) -> str | None:
        """Return this graph's kind of memory; None for files, so that the environment decides."""
        kinds: dict[type, str] = {
            MemfdHandle: "memfd",
            DescriptorHandle: "memfd",
            NamedHandle: "named",
        }
        handles = (type(segment.handle) for segment in sharing.segments_of(self._arrays))
        return next((kinds[handle] for handle in handles if handle in kinds), None)


def _lacking_side(part: PartNote, side: Side) -> str:
    end = "source" if side == "in" else "destination"
    (there,) = part.sides
    return (
        f"this is {part}, which was cut by {end}: it has the {there}-edges of its nodes and not "
        f"all {side}-edges; expected {there!r}"
    )
