"""What is asked of a `DistServer`, and what it tells about its data: plain structs.

Those who know the reference design know the requests by their names and fields. Arrays among the
fields are NumPy's; how they travel is told in `wire.values`. Nothing here has behaviour.
"""

from __future__ import annotations

from typing import Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec

from penstock.core.slices import ServerSlice
from penstock.graph.schema import EdgeType
from penstock.sampling.spec import Spec

EdgeDir: TypeAlias = Literal["in", "out"]

# What arrays and their shapes are to those who ask: NumPy's or torch's.
ArrayT = TypeVar("ArrayT")
ShapeT = TypeVar("ShapeT")


# --- sampling --------------------------------------------------------------------------------


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Wishes about the workers. The pool is the server's, and other backends use it too: it has to
    have as many already, but for a sampler of the user's own, which gets a group of this size."""

    num_workers: int | None = None
    worker_concurrency: int | None = None
    input_kind: str | None = None  # "node", "link" or "subgraph"; known of every spec but a user's


class InitSamplingBackendRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A way of sampling, under a key that those who share it agree on.

    `sampler_options` are fields of `sampling_config` that are to have other values.
    """

    backend_key: str
    sampling_config: Spec
    worker_options: WorkerOptions = WorkerOptions()
    sampler_options: dict[str, Any] = {}


class SamplerInput(msgspec.Struct, frozen=True, kw_only=True):
    """What to sample from: `ids` (nodes [n], or the ends of edges [2, n]), the name of a `split`, a
    `file` that the server may read, or, with none of them, all there is of the type.

    `columns` have a row for each input (`time`, `label`, …), `tables` belong to all of them.
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

    `sampling_config`, if it is given, must be the backend's. `buffer_capacity` is how many batches
    may be ready or in the making, `buffer_size` what they take together, in bytes or as "64MB".
    `channel_options`: `batch_size`, `shuffle`, and the others that `ChannelOptions` has.
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
    """Ids of nodes: of a split, or all; of a type, where there are types; a slice of them."""

    split: str | None = None
    node_type: str | None = None
    server_slice: ServerSlice | None = None


class FetchABLPInputRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Anchors and their labels; for `positive` and `negative` see `server.dist.labels`."""

    split: str | None = None
    node_type: str | None = None
    supervision_edge_type: EdgeType | None = None
    server_slice: ServerSlice | None = None
    positive: EdgeType | None = None
    negative: EdgeType | None = None
    max_labels: int | None = None


class ABLPInput(NamedTuple, Generic[ArrayT]):
    """Anchors [N], the labels of each [N, M] and [N, K], padded with -1."""

    anchors: ArrayT
    positive: ArrayT
    negative: ArrayT | None


class FeatureInfo(NamedTuple):
    """The features of a type: how many numbers a row has, and of which kind."""

    dim: int
    dtype: str


class TypeSize(msgspec.Struct, frozen=True):
    """How many nodes or edges of a type a server holds; of a homogeneous graph it has no name."""

    name: str | EdgeType
    num: int


class DatasetMeta(msgspec.Struct, frozen=True, kw_only=True):
    """What a server holds, in short. Types are None for a homogeneous graph."""

    num_partitions: int
    partition: int
    node_types: tuple[str, ...] | None
    edge_types: tuple[EdgeType, ...] | None
    num_nodes: tuple[TypeSize, ...]
    num_edges: tuple[TypeSize, ...]
    edge_dir: EdgeDir


class BookParts(msgspec.Struct, frozen=True, kw_only=True):
    """A partition book on its way: the bounds of ranges, or the part of every id."""

    num_partitions: int
    bounds: tuple[int, ...] | None = None
    parts: Any = None


class BatchParts(msgspec.Struct, frozen=True, kw_only=True):
    """A batch on its way, as `client.batch.Batch` has it."""

    arrays: dict[str, Any]
    facts: dict[str, Any]
    epoch: int
    step: int
    index: int
    substitute: bool = False
    cost: float = 0.0
    dtypes: dict[str, str] = {}


class Fetched(msgspec.Struct, frozen=True, kw_only=True):
    """What a fetch came to: a batch, or the end of the epoch."""

    batch: BatchParts | None
    done: bool
