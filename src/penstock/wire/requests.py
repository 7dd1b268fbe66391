"""The requests to a `DistServer`, and its descriptions of its data, as plain structs.

Names and fields of the requests are those of the reference design. Arrays in fields are NumPy
arrays; `wire.values` says how they are sent. The structs have no behaviour.
"""

from __future__ import annotations

from typing import Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec

from penstock.core.slices import ServerSlice
from penstock.graph.schema import EdgeType
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
    """

    num_workers: int | None = None
    worker_concurrency: int | None = None
    input_kind: str | None = None  # "node", "link" or "subgraph"; known for every spec but a user's


class InitSamplingBackendRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A way of sampling, with a key on which the ranks that share it agree.

    `sampler_options` are other values for fields of `sampling_config`.
    """

    backend_key: str
    sampling_config: Spec
    worker_options: WorkerOptions = WorkerOptions()
    sampler_options: dict[str, Any] = {}


class SamplerInput(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs of a channel.

    They are `ids` (nodes [n], or the ends of edges [2, n]), the name of a `split`, a `file` that
    the server may read, or, with none of these, all ids of the type. `columns` have a row for each
    input (`time`, `label`, …), `tables` belong to all inputs together.
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

    `sampling_config`, if it is given, must equal that of the backend. `buffer_capacity` is how many
    batches may be ready or in the making, `buffer_size` their size together, in bytes or as "64MB".
    `channel_options` are `batch_size`, `shuffle`, and the fields of `ChannelOptions`.
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
    """Node ids: of a split or all, of a type if the graph has types, and a slice of them."""

    split: str | None = None
    node_type: str | None = None
    server_slice: ServerSlice | None = None


class FetchABLPInputRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Anchors and their labels. For `positive` and `negative` see `server.dist.labels`."""

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
    """A summary of what a server holds. Types are None for a homogeneous graph."""

    num_partitions: int
    partition: int
    node_types: tuple[str, ...] | None
    edge_types: tuple[EdgeType, ...] | None
    num_nodes: tuple[TypeSize, ...]
    num_edges: tuple[TypeSize, ...]
    edge_dir: EdgeDir


class BookParts(msgspec.Struct, frozen=True, kw_only=True):
    """A partition book as it is sent: the bounds of ranges, or the part of every id."""

    num_partitions: int
    bounds: tuple[int, ...] | None = None
    parts: Any = None


class BatchParts(msgspec.Struct, frozen=True, kw_only=True):
    """A batch as it is sent, with the fields of `client.channel.batch.Batch`."""

    arrays: dict[str, Any]
    facts: dict[str, Any]
    epoch: int
    step: int
    index: int
    substitute: bool = False
    cost: float = 0.0
    dtypes: dict[str, str] = {}


class Fetched(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a fetch: a batch, or the end of the epoch."""

    batch: BatchParts | None
    done: bool
