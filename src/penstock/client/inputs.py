"""Where an epoch's inputs come from: given ids, a split by its name, or all nodes.

The ids lie in shared memory, so that workers can map them. A split of the graph lies there already,
and is not copied where this process can hand its memory on.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.graph import Graph
from penstock.graph.handles import MemfdHandle
from penstock.graph.shared import SharedArray


class InputKind(Enum):
    """What an input is, on which sampling depends."""

    NODE = "node"
    LINK = "link"
    SUBGRAPH = "subgraph"

    @classmethod
    def known(cls, kind: str | InputKind) -> InputKind:
        """The kind that is meant, if it can be sampled."""
        name = kind.value if isinstance(kind, cls) else str(kind).lower()
        if name not in (there := [member.value for member in cls]):
            raise ValueError(f"input_kind is {kind!r}; expected one of {', '.join(there)}")
        if name != cls.NODE.value:
            raise ValueError(f"input_kind is {name!r}, which is not implemented yet; use 'node'")
        return cls.NODE


@dataclass(frozen=True)
class Inputs:
    """`num` ids of nodes of a type (None: of the only one); `ids` None: all of them, in order.

    `copied`: the ids were put into memory for this purpose; else they are the graph's own.
    """

    num: int
    node_type: str | None
    ids: SharedArray | None
    copied: bool = False

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What must travel with the handle of the ids."""
        return () if self.ids is None else self.ids.segment.descriptors

    def close(self) -> None:
        """Lets go of ids that were copied for this purpose."""
        if self.ids is not None and self.copied:
            self.ids.close()


def inputs_of(graph: Graph, given: Any) -> Inputs:
    """Ids, the name of a split, None for all nodes; or (node type, any of these)."""
    node_type, wanted = _apart(given)
    size = graph.num_nodes(_named(graph, node_type))
    if wanted is None:
        return Inputs(size, node_type, None)
    if isinstance(wanted, str):
        graph.split(wanted, node_type)  # complains of one that is not there
        split = graph.splits(node_type)[wanted]
        if _can_be_handed_on(split):
            return Inputs(split.shape[0], node_type, split)
        wanted = split.array
    ids = SharedArray.from_array(_checked(wanted, size))
    return Inputs(ids.shape[0], node_type, ids, copied=True)


def _apart(given: Any) -> tuple[str | None, Any]:
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str):
        return given
    return None, given


def _named(graph: Graph, node_type: str | None) -> str | None:
    if node_type is None and graph.is_hetero:
        there = ", ".join(map(repr, graph.node_types))
        raise ValueError(f"sampler_input lacks a node type, as in (type, ids); there are {there}")
    return node_type


def _can_be_handed_on(split: SharedArray) -> bool:
    """Whether others can map it too: of one that was attached, we have no descriptor."""
    segment = split.segment
    return not isinstance(segment.handle, MemfdHandle) or bool(segment.descriptors)


def _checked(given: Any, size: int) -> npt.NDArray[np.int64]:
    """Ids as they are kept; a mask of bool becomes the ids it marks."""
    ids = np.asarray(given)
    if ids.ndim != 1:
        raise ValueError(f"sampler_input has shape {ids.shape}; expected a list of ids")
    if ids.dtype == np.bool_:
        if len(ids) != size:
            raise ValueError(f"sampler_input is a mask of {len(ids)}; there are {size} nodes")
        return np.flatnonzero(ids)
    if len(ids) and not np.issubdtype(ids.dtype, np.integer):
        raise ValueError(f"sampler_input has dtype {ids.dtype}; expected integers")
    if len(ids) and not 0 <= ids.min() <= ids.max() < size:
        wrong = ids.min() if ids.min() < 0 else ids.max()
        raise ValueError(f"sampler_input has the id {wrong}; there are {size} nodes")
    return np.ascontiguousarray(ids, np.int64)
