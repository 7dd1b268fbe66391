"""The requests to a `DistServer`, and its descriptions of its data, as plain structs.

Names and fields of the requests are those of the reference design. Arrays in fields are NumPy
arrays; `wire.values` says how they are sent. The structs have no behaviour, but that `ExternalIds`
are checked where they are put together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec
import numpy as np

from penstock.core.slices import ServerSlice
from penstock.graph.schema import EdgeType
from penstock.kernels.arrays import as_ids
from penstock.kernels.id_table import Keys, Text
from penstock.sampling.spec import Spec

EdgeDir: TypeAlias = Literal["in", "out"]

# The types of arrays and their shapes for the caller: NumPy's or torch's.
ArrayT = TypeVar("ArrayT")
ShapeT = TypeVar("ShapeT")


# --- sampling --------------------------------------------------------------------------------


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a backend expects of the workers.

    The pool belongs to the server and is shared by other backends, so it must already have that
    many workers. Only a user's sampler gets its own group of this size.

    Attributes:
        num_workers: How many workers. None: as many as there are.
        worker_concurrency: How many batches a worker holds at once. None: as the pool has it.
        input_kind: "node", "link" or "subgraph"; known for every spec but a user's.

    Examples:
        >>> import penstock as ps
        >>> request = ps.InitSamplingBackendRequest(
        ...     backend_key="train",
        ...     sampling_config=ps.NeighborSpec(num_neighbors=(15, 10)),
        ...     worker_options=ps.WorkerOptions(num_workers=2),
        ... )
        >>> request.worker_options.num_workers
        2
    """

    num_workers: int | None = None
    worker_concurrency: int | None = None
    input_kind: str | None = None  # "node", "link" or "subgraph"; known for every spec but a user's


class InitSamplingBackendRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A way of sampling, with a key on which the ranks that share it agree.

    Attributes:
        backend_key: The key.
        sampling_config: The spec.
        worker_options: What the backend expects of the workers.
        sampler_options: Other values for fields of `sampling_config`; `edge_dir` is `direction`,
            also of the neighbourhoods of links and anchors.

    Examples:
        >>> import penstock as ps
        >>> graph = ps.Graph.from_coo([[0, 1, 2], [1, 2, 0]], num_nodes=3, train=[0, 2])
        >>> server = ps.DistServer(graph, num_workers=0)
        >>> number = server.init_sampling_backend(
        ...     ps.InitSamplingBackendRequest(
        ...         backend_key="train", sampling_config=ps.NeighborSpec(num_neighbors=(2,))
        ...     )
        ... )
        >>> isinstance(number, int)
        True
        >>> left = server.close()
    """

    backend_key: str
    sampling_config: Spec
    worker_options: WorkerOptions = WorkerOptions()
    sampler_options: dict[str, Any] = {}


class SamplerInput(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs of a channel.

    They are `ids`, a `split`, a `file`, or, with none of these, all ids of the type.

    Attributes:
        ids: Nodes [n], or the ends of edges [2, n].
        split: The name of a split.
        file: A file that the server may read.
        node_type: The type of the nodes, if the graph has types.
        edge_type: The type of the edges, if the graph has types.
        columns: Arrays with a row for each input (`time`, `label`, …), by name.
        tables: Arrays that belong to all inputs together, by name.

    Examples:
        >>> import penstock as ps
        >>> ps.SamplerInput(split="train").split
        'train'
    """

    ids: Any = None
    split: str | None = None
    file: str | None = None
    node_type: str | None = None
    edge_type: EdgeType | None = None
    columns: dict[str, Any] = {}
    tables: dict[str, Any] = {}


class RegisterBackendRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A channel of a backend.

    Attributes:
        backend_id: The number that `init_sampling_backend` returned.
        worker_key: A name for the channel, in errors and logs.
        sampler_input: The inputs.
        sampling_config: If given, it must equal that of the backend.
        buffer_capacity: How many batches may be ready or in the making.
        buffer_size: Their size together, in bytes or as "64MB".
        channel_options: `batch_size`, `shuffle`, and the other options of channels.

    Examples:
        >>> import penstock as ps
        >>> graph = ps.Graph.from_coo([[0, 1, 2], [1, 2, 0]], num_nodes=3, train=[0, 2])
        >>> server = ps.DistServer(graph, num_workers=0)
        >>> number = server.init_sampling_backend(
        ...     ps.InitSamplingBackendRequest(
        ...         backend_key="train", sampling_config=ps.NeighborSpec(num_neighbors=(2,))
        ...     )
        ... )
        >>> channel = server.register_sampling_input(
        ...     ps.RegisterBackendRequest(
        ...         backend_id=number,
        ...         sampler_input=ps.SamplerInput(split="train"),
        ...         channel_options={"batch_size": 2},
        ...     )
        ... )
        >>> server.start_new_epoch_sampling(channel, 0)
        >>> batch, done = server.fetch_one_sampled_message(channel)
        >>> batch["n_id"].tolist()
        [0, 2, 1]
        >>> left = server.close()
    """

    backend_id: int
    worker_key: str = ""
    sampler_input: SamplerInput = SamplerInput()
    sampling_config: Spec | None = None
    buffer_capacity: int | None = None
    buffer_size: int | str | None = None
    channel_options: dict[str, Any] = {}


# --- data ------------------------------------------------------------------------------------


class FetchNodesRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Ask for node ids: of a split or all, of a type if the graph has types, and a slice of them.

    Attributes:
        split: The name of the split. None: all nodes.
        node_type: The type of the nodes, if the graph has types.
        server_slice: The part of them to return; it is taken last.

    Examples:
        >>> import penstock as ps
        >>> graph = ps.Graph.from_coo([[0, 1, 2], [1, 2, 0]], num_nodes=3, train=[0, 2])
        >>> server = ps.DistServer(graph, num_workers=0)
        >>> server.get_node_ids(ps.FetchNodesRequest(split="train")).tolist()
        [0, 2]
        >>> left = server.close()
    """

    split: str | None = None
    node_type: str | None = None
    server_slice: ServerSlice | None = None


class FetchABLPInputRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Ask for anchors and their labels.

    Attributes:
        split: The split of the anchors. None: all nodes.
        node_type: The type of the anchors, if the graph has types.
        supervision_edge_type: The edge type to predict, if the graph has types.
        server_slice: The part of the anchors to return; it is taken last.
        positive: The edge type that positive labels are read from. None: found by name.
        negative: Likewise for negative labels.
        max_labels: How many labels of each anchor are kept, the first ones. None: all.

    Examples:
        >>> import penstock as ps
        >>> buys, liked = ("user", "buys", "item"), ("user", "buys_positive", "item")
        >>> edges = {buys: [[0, 1], [1, 0]], liked: [[0, 1], [0, 1]]}
        >>> graph = ps.Graph.from_coo(edges, num_nodes={"user": 2, "item": 2})
        >>> server = ps.DistServer(graph, num_workers=0)
        >>> request = ps.FetchABLPInputRequest(node_type="user", supervision_edge_type=buys)
        >>> found = server.get_ablp_input(request)
        >>> found.anchors.tolist(), found.positive.tolist()
        ([0, 1], [[0], [1]])
        >>> left = server.close()
    """

    split: str | None = None
    node_type: str | None = None
    supervision_edge_type: EdgeType | None = None
    server_slice: ServerSlice | None = None
    positive: EdgeType | None = None
    negative: EdgeType | None = None
    max_labels: int | None = None


class ABLPInput(NamedTuple, Generic[ArrayT]):
    """Anchors [N], and the labels of each, [N, M] and [N, K], padded with -1."""

    anchors: ArrayT
    positive: ArrayT
    negative: ArrayT | None


class FeatureInfo(NamedTuple):
    """The features of a type: the length of a row, and its dtype."""

    dim: int
    dtype: str


class TypeSize(msgspec.Struct, frozen=True):
    """How many nodes or edges of a type a server holds; a homogeneous graph's has no name."""

    name: str | EdgeType
    num: int


class DatasetMeta(msgspec.Struct, frozen=True, kw_only=True):
    """A summary of what a server holds. Types are None for a homogeneous graph.

    Its first four fields can be unpacked, as a tuple.
    """

    num_partitions: int
    partition_idx: int
    node_types: tuple[str, ...] | None
    edge_types: tuple[EdgeType, ...] | None
    num_nodes: tuple[TypeSize, ...]
    num_edges: tuple[TypeSize, ...]
    edge_dir: EdgeDir

    def __iter__(self) -> Iterator[Any]:
        yield from (self.num_partitions, self.partition_idx, self.node_types, self.edge_types)


class BookParts(msgspec.Struct, frozen=True, kw_only=True):
    """A partition book as it is sent: the bounds of ranges, the part of every id, or neither.

    Without either it is a book by hashes, of `size` ids.
    """

    num_partitions: int
    bounds: tuple[int, ...] | None = None
    parts: Any = None
    size: int = 0


class ExternalIds(msgspec.Struct, frozen=True, kw_only=True):
    """The users' ids of some nodes, as they are sent: numbers, or text in UTF-8.

    Attributes:
        keys: int64 [n]; None for text.
        offsets: int64 [n + 1]: id i is the bytes from `offsets[i]` to `offsets[i + 1]`.
        text: uint8 [bytes].
    """

    keys: Any = None
    offsets: Any = None
    text: Any = None

    @classmethod
    def of(cls, keys: Keys) -> ExternalIds:
        """Return keys as they are sent."""
        if isinstance(keys, Text):
            return cls(offsets=keys.offsets, text=keys.data)
        return cls(keys=keys)

    def together(self) -> Keys:
        """Return the keys, which may have come from anywhere.

        Raises:
            ValueError: They are neither numbers nor text.
            GraphFormatError: Offsets lead outside of the text.
        """
        if (self.keys is None) == (self.offsets is None) or (self.keys is None) != (
            self.text is not None
        ):
            raise ValueError("ids are keys, or offsets and text: expected either of the two")
        if self.keys is not None:
            return as_ids(self.keys, "keys")
        found = Text(
            np.require(self.offsets, requirements=["C", "A"]),
            np.require(self.text, requirements=["C", "A"]),
        )
        found.check()
        return found


class BatchParts(msgspec.Struct, frozen=True, kw_only=True):
    """A batch as it is sent, with the fields of `client.channel.batch.Batch`."""

    arrays: dict[str, Any]
    facts: dict[str, Any]
    epoch: int
    step: int
    index: int
    substitute: bool = False
    retries: int = 0
    cost: float = 0.0
    dtypes: dict[str, str] = {}


class Fetched(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a fetch: a batch, or the end of the epoch."""

    batch: BatchParts | None
    done: bool
