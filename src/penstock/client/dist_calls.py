"""The calls of a `DistServer`: the one list of them, with arguments, results and documentation.

`DistServer` implements these methods. `RemoteDistServer` makes each of them a call over the wire,
and `RemoteDistDataset` has the queries among them with tensors. Both are made from this list, and
so are the structs that arguments are decoded with (`wire.rpc_schema`). A new call is declared here
and implemented in the server, and nowhere else.

An argument called `channel_id` names a channel, which must be the caller's. An argument called
`timeout` is bounded by the server's `request_timeout`. Ids are those of the whole graph.
"""

# The methods have no bodies here. `call` makes them abstract, which mypy must not know, because the
# methods of a mirrored class are made at run time.
# mypy: disable-error-code="empty-body"

from __future__ import annotations

from abc import ABC
from typing import Any, Final, Generic, TypeAlias

import numpy as np
import numpy.typing as npt

from penstock.client.channel.batch import Batch
from penstock.core.slices import ServerSlice
from penstock.graph.partition.book import ArrayBook, HashBook, PartitionBook, RangeBook
from penstock.graph.schema import EdgeType
from penstock.wire.requests import (
    ABLPInput,
    ArrayT,
    BatchParts,
    BookParts,
    DatasetMeta,
    EdgeDir,
    ExternalIds,
    FeatureInfo,
    FetchABLPInputRequest,
    Fetched,
    FetchNodesRequest,
    InitSamplingBackendRequest,
    RegisterBackendRequest,
    ShapeT,
)
from penstock.wire.rpc_schema import Form, IdsLike, Verbs, call, verbs_of

Array: TypeAlias = npt.NDArray[Any]
Shape: TypeAlias = tuple[int, ...]
Message: TypeAlias = tuple[Batch | None, bool]


class DistQueries(ABC, Generic[ArrayT, ShapeT]):
    """Queries about a server and its data.

    `ArrayT` and `ShapeT` are the types of arrays and shapes: NumPy's, or tensors.
    """

    # --- ids ---------------------------------------------------------------------------------

    @call(reads=True, request=FetchNodesRequest)
    def get_node_ids(
        self,
        split: str | FetchNodesRequest | None = None,
        node_type: str | None = None,
        server_slice: ServerSlice | None = None,
    ) -> ArrayT:
        """Return ids of nodes: of a split ("train", "val", "test"), or all.

        The slice is taken last. All arguments may come as one `FetchNodesRequest`.

        Args:
            split: The name of a split; None: all nodes. Or a `FetchNodesRequest`.
            node_type: The node type; None for a homogeneous graph.
            server_slice: The part of them to return; it is taken last.
        """

    @call(reads=True, request=FetchABLPInputRequest)
    def get_ablp_input(
        self,
        split: str | FetchABLPInputRequest | None = None,
        node_type: str | None = None,
        supervision_edge_type: EdgeType | None = None,
        server_slice: ServerSlice | None = None,
        *,
        positive: EdgeType | None = None,
        negative: EdgeType | None = None,
        max_labels: int | None = None,
    ) -> ABLPInput[ArrayT]:
        """Return anchors [N] and their labels, [N, M] and [N, K] or None, padded with -1.

        See `client.dist.labels`. All arguments may come as one `FetchABLPInputRequest`.

        Args:
            split: The split of the anchors; None: all nodes. Or a `FetchABLPInputRequest`.
            node_type: The node type; None for a homogeneous graph.
            supervision_edge_type: The edge type to predict; None for a homogeneous graph.
            server_slice: The part of them to return; it is taken last.
            positive: The edge type that positive labels are read from. None: found by name.
            negative: Likewise for negative labels.
            max_labels: How many labels of each anchor are kept, the first ones. None: as the server
                has it.
        """

    @call(reads=True)
    def get_external_ids(self, node_type: str | None = None, index: IdsLike = None) -> ExternalIds:
        """Return the users' ids of nodes, as they are stored; `graph.ids` returns them as strings.

        Args:
            node_type: The node type; None for a homogeneous graph.
            index: The nodes. None: all that the server has.
        """

    @call(reads=True)
    def look_up_ids(self, node_type: str | None, ids: ExternalIds) -> ArrayT:
        """Return the nodes with these ids of users, -1 where the server has none; `graph.lookup`.

        Args:
            node_type: The node type; None for a homogeneous graph.
            ids: The ids, of the kind that the type has.
        """

    # --- metadata ----------------------------------------------------------------------------

    @call(reads=True)
    def get_dataset_meta(self) -> DatasetMeta:
        """Return a summary of what the server holds; its first four values can be unpacked."""

    @call(reads=True)
    def get_node_types(self) -> list[str] | None:
        """Return the node types; None if the graph is homogeneous."""

    @call(reads=True)
    def get_edge_types(self) -> list[EdgeType] | None:
        """Return the edge types; None if the graph is homogeneous."""

    @call(reads=True)
    def get_edge_dir(self) -> EdgeDir:
        """Return which edges of its nodes the server has and samples along: "in" or "out"."""

    @call(reads=True)
    def get_node_feature_info(self) -> FeatureInfo | dict[str, FeatureInfo] | None:
        """Return width and dtype of `x`, by node type if there are types; None if there is none."""

    @call(reads=True)
    def get_edge_feature_info(self) -> FeatureInfo | dict[EdgeType, FeatureInfo] | None:
        """Return width and dtype of `edge_attr`, likewise by edge type; None if there is none."""

    @call(reads=True)
    def get_node_partition_id(self, node_type: str | None = None, index: IdsLike = None) -> ArrayT:
        """Return the partition that each of the ids belongs to.

        Args:
            node_type: The node type; None for a homogeneous graph.
            index: The ids; they must be given.
        """

    @call(reads=True)
    def get_node_partition_book(self, node_type: str | None = None) -> PartitionBook:
        """Return the book that says which partition each node of a type is in.

        Args:
            node_type: The node type; None for a homogeneous graph.
        """

    @call(reads=True)
    def get_edge_partition_book(self, edge_type: EdgeType | None = None) -> PartitionBook:
        """Return the book that says which partition each edge of a type is in.

        Args:
            edge_type: The edge type; None for a homogeneous graph.
        """

    # --- rows --------------------------------------------------------------------------------

    @call(reads=True)
    def get_node_feature(
        self, node_type: str | None = None, index: IdsLike = None
    ) -> ArrayT | None:
        """Return rows of `x`; without an index, of all nodes that the server has.

        None if nodes of this type have no `x`.

        Args:
            node_type: The node type; None for a homogeneous graph.
            index: The ids. None: all that the server has.
        """

    @call(reads=True)
    def get_node_label(self, node_type: str | None = None, index: IdsLike = None) -> ArrayT:
        """Return rows of `y`; without an index, of all nodes that the server has.

        Args:
            node_type: The node type; None for a homogeneous graph.
            index: The ids. None: all that the server has.
        """

    @call(reads=True)
    def get_tensor_size(self, node_type: str | None = None) -> ShapeT | None:
        """Return the shape of `x` as the server has it; None if there is no `x`.

        Args:
            node_type: The node type; None for a homogeneous graph.
        """

    @call(reads=True)
    def get_node_attribute(
        self,
        name: str,
        node_type: str | None = None,
        index: IdsLike = None,
        *,
        stored: bool = False,
    ) -> ArrayT:
        """Return rows of any attribute of nodes. In NumPy, bfloat16 comes as 16-bit integers.

        Args:
            name: The name of the attribute.
            node_type: The node type; None for a homogeneous graph.
            index: The ids. None: all that the server has.
            stored: Return rows as they are stored, also if they are read as another type.
        """

    @call(reads=True)
    def get_edge_attribute(
        self,
        name: str,
        edge_type: EdgeType | None = None,
        index: IdsLike = None,
        *,
        stored: bool = False,
    ) -> ArrayT:
        """Return rows of any attribute of edges, by ids; without an index, as `get_edge_index`.

        Args:
            name: The name of the attribute.
            edge_type: The edge type; None for a homogeneous graph.
            index: The ids. None: all that the server has.
            stored: Return rows as they are stored, also if they are read as another type.
        """

    @call(reads=True)
    def get_graph_attribute(self, name: str, owner: str | EdgeType | None = None) -> Any:
        """Return an attribute of the whole graph or of a whole type: an array or a JSON value.

        Args:
            name: The name of the attribute.
            owner: The type that it belongs to; None for the whole graph.
        """

    # --- edges -------------------------------------------------------------------------------

    @call(reads=True)
    def get_edge_index(
        self,
        edge_type: EdgeType | None = None,
        layout: str = "coo",
        first: int = 0,
        count: int | None = None,
    ) -> ArrayT:
        """Return the edges that the server has, in order of ids: [2, edges], sources in row 0.

        `first` and `count` choose some of them, so that they can be read in pieces.

        Args:
            edge_type: The edge type; None for a homogeneous graph.
            layout: The form of the answer: "coo" is the only one.
            first: The first edge to return.
            count: How many edges. None: all the rest.
        """

    @call(reads=True)
    def get_edge_size(
        self, edge_type: EdgeType | None = None, layout: str = "coo"
    ) -> tuple[int, int]:
        """Return how many nodes the source and destination types of an edge type have in all.

        Args:
            edge_type: The edge type; None for a homogeneous graph.
            layout: The form of the answer: "coo" is the only one.
        """

    # --- statistics --------------------------------------------------------------------------

    @call(reads=True)
    def statistics(self) -> dict[str, Any]:
        """Return all statistics of the server as plain data; those of its hub are separate."""

    @call(reads=True)
    def hub_statistics(self) -> dict[str, Any]:
        """Return the hub's statistics; empty if there is no hub, or it does not run yet."""

    @call(reads=True)
    def describe(self) -> str:
        """Describe the server in one line, and its scheduler in another."""


class DistCalls(DistQueries[Array, Shape]):
    """All calls of a `DistServer`: the queries, and those that change something.

    `RemoteDistServer`, the `server` of a `RemoteDistDataset`, has the same methods.

    Examples:
        >>> import penstock as ps
        >>> graph = ps.Graph.from_coo([[0, 1, 2], [1, 2, 0]], num_nodes=3, train=[0, 2])
        >>> with ps.serve(graph, num_workers=1) as server:
        ...     with ps.init_compute_process(server.address) as data:
        ...         print(server.store.get_node_ids("train"), data.server.get_node_ids("train"))
        [0 2] [0 2]
    """

    # --- sampling ----------------------------------------------------------------------------

    @call(makes=True)
    def init_sampling_backend(self, request: InitSamplingBackendRequest) -> int:
        """Return the number of the backend with the request's key; the first caller creates it.

        Other callers wait for the first. If it fails, they get an error whose cause is the first
        one's, and the key can be tried again. While a backend is being torn down, its key is an
        error.

        Args:
            request: What is asked for.
        """

    @call(makes=True)
    def register_sampling_input(self, request: RegisterBackendRequest) -> int:
        """Open a channel of a backend, and return its number.

        Args:
            request: What is asked for.

        Raises:
            KeyError: There is no such backend.
        """

    @call()
    def start_new_epoch_sampling(
        self, channel_id: int, epoch: int, *, first: int = 0, first_step: int = 0
    ) -> None:
        """Start an epoch; one that is not newer is ignored, and so is a channel that is gone.

        Args:
            channel_id: The channel.
            epoch: The epoch's number.
            first: Where to begin in the epoch's list of batches for all ranks.
            first_step: The first step to read.
        """

    @call()
    def fetch_one_sampled_message(self, channel_id: int) -> Message:
        """Return (batch, False), or (None, True) once the epoch is over or the channel destroyed.

        If a batch will not come, raises its error; the next call goes on with the batch after it.

        Args:
            channel_id: The channel.
        """

    @call(reads=True)
    def is_channel_epoch_done(self, channel_id: int, epoch: int) -> bool:
        """Return whether every batch of an epoch has ended; True if the channel was destroyed.

        Args:
            channel_id: The channel.
            epoch: The epoch's number.
        """

    @call()
    def destroy_sampling_input(self, channel_id: int) -> None:
        """Close a channel, and with its last channel the backend. An unknown channel is ignored.

        Args:
            channel_id: The channel.
        """

    # --- the server's end --------------------------------------------------------------------

    @call(permission="exit_by_ranks")
    def exit(self) -> bool:
        """Ask the server to end: `wait_for_exit` returns. From then on nothing new is begun."""

    @call()
    def wait_for_exit(self, timeout: float | None = None) -> bool:
        """Wait at most `timeout` seconds until `exit` has been called; return whether it was.

        Over the wire, it waits at most as long as any call may (the server's `request_timeout`).

        Args:
            timeout: Seconds to wait. None: no limit.
        """


class TransportCalls:
    """Calls that the server's event loop answers; they are no methods of a `DistServer`."""

    @call(reads=True)
    def ping(self) -> None:
        """Answer at once, which shows that the server is listening."""

    @call(reads=True)
    def server_statistics(self) -> dict[str, Any]:
        """Return the statistics of sessions, channels and the process."""

    @call(reads=True)
    def get_store_servers(self) -> list[str]:
        """Return the addresses of the store's servers; none if the server belongs to no store."""

    @call(reads=True)
    def announce(self, address: str) -> list[str]:
        """Tell a server of a store where another one is, which it then reaches and checks.

        Returns the addresses of all servers that it knows.

        Args:
            address: Where the other server listens.
        """


# --- results that have another form on the wire ----------------------------------------------


def _book_apart(book: PartitionBook) -> BookParts:
    return BookParts(
        num_partitions=book.num_partitions,
        bounds=book.bounds if isinstance(book, RangeBook) else None,
        parts=book.parts if isinstance(book, ArrayBook) else None,
        size=book.size,
    )


def _book_together(parts: BookParts) -> PartitionBook:
    if parts.bounds is not None:
        return RangeBook(parts.bounds)
    if parts.parts is None:
        return HashBook(parts.size, parts.num_partitions)
    return ArrayBook(parts.parts, parts.num_partitions)


def _message_apart(message: Message) -> Fetched:
    batch, done = message
    if batch is None:
        return Fetched(batch=None, done=done)
    parts = BatchParts(
        arrays=dict(batch.arrays),
        facts=dict(batch.facts),
        epoch=batch.epoch,
        step=batch.step,
        index=batch.index,
        substitute=batch.substitute,
        retries=batch.retries,
        cost=batch.cost,
        dtypes=dict(batch.dtypes),
    )
    return Fetched(batch=parts, done=done)


def _message_together(fetched: Fetched) -> Message:
    parts = fetched.batch
    if parts is None:
        return None, fetched.done
    batch = Batch(
        arrays=parts.arrays,
        facts=parts.facts,
        epoch=parts.epoch,
        step=parts.step,
        index=parts.index,
        substitute=parts.substitute,
        retries=parts.retries,
        copied=True,
        cost=parts.cost,
        dtypes=parts.dtypes,
    )
    return batch, fetched.done


_FORMS: Final = {
    ArrayT: Form(np.ndarray),
    ShapeT: Form(Shape),
    PartitionBook: Form(BookParts, _book_apart, _book_together),
    Message: Form(Fetched, _message_apart, _message_together),
}

QUERIES: Final[Verbs] = verbs_of(DistQueries, _FORMS)
VERBS: Final[Verbs] = verbs_of(DistCalls, _FORMS)
TRANSPORT: Final[Verbs] = verbs_of(TransportCalls)
