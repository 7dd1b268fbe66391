"""The types of loaders' arguments and batches, for type checkers and editors.

PyG's loaders give batches of unknown type. Ours say what a batch is, as far as that is known before
it is made: a `Data` where `data` is one, a `HeteroData` likewise, what `transform` returns where
there is one, and else one of PyG's two. At run time, this module adds nothing to a loader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, overload

import numpy.typing as npt
import torch_geometric.loader
from torch import Tensor
from torch_geometric.data import Data, FeatureStore, GraphStore, HeteroData
from torch_geometric.sampler.base import NumNeighbors
from typing_extensions import TypeVar

from penstock.client.hub.hub import Provider
from penstock.graph import EdgeType
from penstock.graph.user_ids import UserIds
from penstock.graph.view import GraphView
from penstock.loader.source.remote_dataset import RemoteDistDataset

# What a loader takes as `data`.
DataLike: TypeAlias = (
    Data
    | HeteroData
    | tuple[FeatureStore, GraphStore]
    | GraphView
    | Provider
    | RemoteDistDataset
    | str
    | PathLike[str]
)
# Numbers of nodes, ids of users, or a mask over all nodes of a type.
NodeIds: TypeAlias = Tensor | npt.NDArray[Any] | Sequence[int] | Sequence[str] | UserIds
# Nodes to start from: ids, a mask, the name of a split or of a node type; with a type, or without.
InputNodes: TypeAlias = NodeIds | str | tuple[str, NodeIds | str | None] | None
# Links to start from: their ends [2, links] or the name of a split, an edge type, or both.
Links: TypeAlias = Tensor | npt.NDArray[Any] | Sequence[NodeIds] | str
InputEdges: TypeAlias = Links | EdgeType | tuple[EdgeType, Links | None] | None
# How many neighbours to sample in each hop: for all edge types, or for each of them.
FanOuts: TypeAlias = Sequence[int] | Mapping[EdgeType, Sequence[int]] | NumNeighbors
# One value for each input.
Column: TypeAlias = Tensor | npt.NDArray[Any] | None

if TYPE_CHECKING:

    class DataBatch(Data):  # type: ignore[misc]
        """A `Data` that a loader has made.

        PyG says of these attributes that they may be None, or says nothing. In a batch they are
        tensors: `n_id`, `e_id`, `input_id` and `edge_index` always, the others if the data has
        them.
        """

        x: Tensor
        y: Tensor
        edge_index: Tensor
        edge_attr: Tensor
        n_id: Tensor
        e_id: Tensor
        input_id: Tensor
        batch_size: int

else:
    DataBatch = Data


# At run time, our loaders are PyG's. Type checkers are not told: PyG does not say that it is typed,
# so mypy would take PyG's classes for Any, and then know nothing about ours.
if TYPE_CHECKING:

    class PyGNeighborLoader: ...

    class PyGLinkNeighborLoader: ...

    class PyGHGTLoader: ...

else:
    PyGNeighborLoader = torch_geometric.loader.NeighborLoader
    PyGLinkNeighborLoader = torch_geometric.loader.LinkNeighborLoader
    PyGHGTLoader = torch_geometric.loader.HGTLoader


class NoTransform:
    """Stands for what `transform` returns, where there is none. Nothing is of this type."""


DataT = TypeVar("DataT", bound=DataLike, default=Any)
MadeT = TypeVar("MadeT", default=NoTransform)
Transform: TypeAlias = Callable[[Any], MadeT]


class Batches(Generic[DataT, MadeT]):
    """The type of a loader's batches, by that of its `data` and of what its `transform` returns."""

    # Where mypy takes PyG's classes for Any, the first case stands for the next two as well.
    if TYPE_CHECKING:

        @overload
        def __iter__(self: Batches[Data, NoTransform]) -> Iterator[DataBatch]: ...
        @overload
        def __iter__(  # type: ignore[overload-cannot-match]
            self: Batches[HeteroData, NoTransform],
        ) -> Iterator[HeteroData]: ...
        @overload
        def __iter__(  # type: ignore[overload-cannot-match]
            self: Batches[Any, NoTransform],
        ) -> Iterator[DataBatch | HeteroData]: ...
        @overload
        def __iter__(self) -> Iterator[MadeT]: ...
        def __iter__(self) -> Iterator[Any]: ...


class AnchorBatches(Generic[DataT, MadeT]):
    """Likewise, where a `HeteroData` may give `Data`: if it has types for its labels only."""

    if TYPE_CHECKING:

        @overload
        def __iter__(self: AnchorBatches[Data, NoTransform]) -> Iterator[DataBatch]: ...
        @overload
        def __iter__(  # type: ignore[overload-cannot-match]
            self: AnchorBatches[Any, NoTransform],
        ) -> Iterator[DataBatch | HeteroData]: ...
        @overload
        def __iter__(self) -> Iterator[MadeT]: ...
        def __iter__(self) -> Iterator[Any]: ...
