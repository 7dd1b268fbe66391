"""The inputs of a loader: which nodes or edges, and what is given with each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from penstock.graph import EdgeType
from penstock.loader.sources import Source

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class NodeInputs:
    """`num` nodes of a type; `ids` None: all of them, in order.

    `input_id`: what a batch shows for the input at a place; None: the place itself.
    """

    num: int
    ids: Ids | None
    node_type: str | None
    input_id: torch.Tensor | None = None
    time: Ids | None = None

    @property
    def sampler_input(self) -> Any:
        """What `SharedDistSamplingBackend.register_input` takes."""
        raise NotImplementedError

    @property
    def columns(self) -> Mapping[str, npt.NDArray[Any]]:
        """What goes along, a row for each input: register_input's `columns`."""
        raise NotImplementedError

    @property
    def tables(self) -> Mapping[str, npt.NDArray[Any]]:
        """register_input's `tables`."""
        return {}

    def at(self, index: Any) -> NodeInputs:
        """Those at these places (ad hoc, or an epoch in a sampler's order); they keep their input_id."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class LinkInputs:
    """`num` edges of a type; `ends` [2, num], None: all of the graph, in order of their ids."""

    num: int
    ends: Ids | None
    edge_type: EdgeType | None
    input_id: torch.Tensor | None = None
    label: npt.NDArray[Any] | None = None
    time: Ids | None = None
    tables: Mapping[str, Any] | None = None  # src_weight, dst_weight, label_shift

    @property
    def sampler_input(self) -> Any:
        raise NotImplementedError

    @property
    def columns(self) -> Mapping[str, npt.NDArray[Any]]:
        raise NotImplementedError

    def at(self, index: Any) -> LinkInputs:
        raise NotImplementedError


Inputs = NodeInputs | LinkInputs


def node_inputs(
    source: Source,
    input_nodes: Any = None,
    input_time: Any = None,
    input_id: Any = None,
    *,
    time_attr: str | None = None,
) -> NodeInputs:
    raise NotImplementedError


def link_inputs(
    source: Source,
    edge_label_index: Any = None,
    edge_label: Any = None,
    edge_label_time: Any = None,
    input_id: Any = None,
    *,
    neg_sampling: Any = None,
    neg_sampling_ratio: float | None = None,
    time_attr: str | None = None,
) -> LinkInputs:
    raise NotImplementedError
