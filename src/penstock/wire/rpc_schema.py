"""The verbs of a `Call`: for each, what its arguments are, and what comes of it.

A verb is a method of `DistServer`, and its arguments are that method's, by name. What a method
answers travels as told in `wire.values`, and is read as the type given here; where that is not what
callers get (batches, partition books), both sides translate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import msgspec

from penstock.core.slices import ServerSlice
from penstock.graph.schema import EdgeType
from penstock.wire.requests import (
    BookParts,
    DatasetMeta,
    EdgeDir,
    FeatureInfo,
    Fetched,
    InitSamplingBackendRequest,
    RegisterBackendRequest,
)


class _Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What comes with a verb; with most, nothing does."""


class _Init(_Arguments, frozen=True, kw_only=True):
    request: InitSamplingBackendRequest


class _Register(_Arguments, frozen=True, kw_only=True):
    request: RegisterBackendRequest


class _Channel(_Arguments, frozen=True, kw_only=True):
    channel_id: int


class _Start(_Channel, frozen=True, kw_only=True):
    epoch: int
    first: int = 0
    first_step: int = 0


class _IsDone(_Channel, frozen=True, kw_only=True):
    epoch: int


class _NodeIds(_Arguments, frozen=True, kw_only=True):
    split: str | None = None
    node_type: str | None = None
    server_slice: ServerSlice | None = None


class _ABLP(_NodeIds, frozen=True, kw_only=True):
    supervision_edge_type: EdgeType | None = None
    positive: EdgeType | None = None
    negative: EdgeType | None = None
    max_labels: int | None = None


class _NodeType(_Arguments, frozen=True, kw_only=True):
    node_type: str | None = None


class _EdgeType(_Arguments, frozen=True, kw_only=True):
    edge_type: EdgeType | None = None


class _Nodes(_NodeType, frozen=True, kw_only=True):
    index: Any = None


class _Edges(_EdgeType, frozen=True, kw_only=True):
    layout: str = "coo"


class _EdgeRange(_Edges, frozen=True, kw_only=True):
    first: int = 0
    count: int | None = None


class _NodeAttribute(_Nodes, frozen=True, kw_only=True):
    name: str


class _EdgeAttribute(_EdgeType, frozen=True, kw_only=True):
    name: str
    index: Any = None


class _GraphAttribute(_Arguments, frozen=True, kw_only=True):
    name: str
    owner: str | EdgeType | None = None


class _Wait(_Arguments, frozen=True, kw_only=True):
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class Verb:
    """`takes`: the struct of its arguments. `gives`: what its answer is read as."""

    takes: type[_Arguments]
    gives: Any


_Features = FeatureInfo | dict[str, FeatureInfo] | None
_EdgeFeatures = FeatureInfo | dict[EdgeType, FeatureInfo] | None

VERBS: Final[Mapping[str, Verb]] = MappingProxyType(
    {
        "init_sampling_backend": Verb(_Init, int),
        "register_sampling_input": Verb(_Register, int),
        "start_new_epoch_sampling": Verb(_Start, None),
        "fetch_one_sampled_message": Verb(_Channel, Fetched),
        "is_channel_epoch_done": Verb(_IsDone, bool),
        "destroy_sampling_input": Verb(_Channel, None),
        "get_node_ids": Verb(_NodeIds, Any),
        "get_ablp_input": Verb(_ABLP, tuple[Any, Any, Any]),
        "get_dataset_meta": Verb(_Arguments, DatasetMeta),
        "get_node_types": Verb(_Arguments, list[str] | None),
        "get_edge_types": Verb(_Arguments, list[EdgeType] | None),
        "get_node_partition_id": Verb(_Nodes, Any),
        "get_node_partition_book": Verb(_NodeType, BookParts),
        "get_edge_partition_book": Verb(_EdgeType, BookParts),
        "get_node_feature": Verb(_Nodes, Any),
        "get_tensor_size": Verb(_NodeType, tuple[int, ...]),
        "get_node_label": Verb(_Nodes, Any),
        "get_edge_index": Verb(_EdgeRange, Any),
        "get_edge_size": Verb(_Edges, tuple[int, int]),
        "get_node_feature_info": Verb(_Arguments, _Features),
        "get_edge_feature_info": Verb(_Arguments, _EdgeFeatures),
        "get_edge_dir": Verb(_Arguments, EdgeDir),
        "get_node_attribute": Verb(_NodeAttribute, Any),
        "get_edge_attribute": Verb(_EdgeAttribute, Any),
        "get_graph_attribute": Verb(_GraphAttribute, Any),
        "statistics": Verb(_Arguments, dict[str, Any]),
        "hub_statistics": Verb(_Arguments, dict[str, Any]),
        "describe": Verb(_Arguments, str),
        "exit": Verb(_Arguments, bool),
        "wait_for_exit": Verb(_Wait, bool),
    }
)
