"""Random walks: the interface of their kernel.

Checks arguments, turns node2vec's `p` and `q` into integers, and the kernel's results into errors.
Knows steps by their rows of neighbours, and nothing about types.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from penstock.errors import GraphFormatError
from penstock.kernels import _native
from penstock.kernels.arrays import Array, as_ids, check_integer, check_word
from penstock.kernels.topology import Adjacency

_DAMAGED: Final = 2
_DAMAGE: Final = (
    "damaged topology: an offset or neighbour points outside the graph; run its validate()"
)
_MOST_STEPS: Final = 2**31
# The weight of the likeliest kind of step. The others are scaled to it, but are never less than 1,
# so that a walk can always continue.
_WHOLE: Final = 2**30


@dataclass(frozen=True, slots=True)
class Step:
    """The rows of a step: its neighbours are ids below `num_found`."""

    adjacency: Adjacency
    num_found: int


@dataclass(frozen=True, slots=True)
class WalkRows:
    """Rows with neighbours ascending, to look up edges in.

    With `is_reversed`, a row holds where edges come from, as seen in the direction of the walk.
    """

    adjacency: Adjacency
    is_reversed: bool = False


def walk(
    path: Sequence[Step],
    starts: Array,
    key: int,
    *,
    length: int,
    rounds: int = 1,
    stays: bool = True,
    p: float = 1.0,
    q: float = 1.0,
    sorted_rows: WalkRows | None = None,
) -> tuple[Array, Array]:
    """Walk `rounds` times from every start.

    Walk `round * len(starts) + i` begins at `starts[i]`. With `p` or `q` other than 1, walks are
    node2vec's: the weight of an edge is 1/p if it leads back to the previous node, 1 if it leads to
    a node with an edge to that one, and 1/q otherwise. This needs a path of one step, and
    `sorted_rows`.

    Args:
        path: The steps, followed cyclically.
        starts: The nodes to start from.
        key: A `batch_key`.
        length: The number of steps.
        rounds: The number of walks from each start.
        stays: Whether a walk stays for good at a node without edges; else it ends, and its further
            nodes are -1.
        p: node2vec's return parameter.
        q: node2vec's in-out parameter.
        sorted_rows: Rows to look up edges in.

    Returns:
        Nodes [walks, length + 1] and edge ids [walks, length]; -1 for a step that was not taken.
    """
    length = check_integer(length, "length", 0, _MOST_STEPS)
    rounds = check_integer(rounds, "rounds", 0, _MOST_STEPS)
    if not path:
        raise ValueError("path must have at least one step")
    ids, num_nodes = as_ids(starts, "starts"), path[0].adjacency.num_nodes
    bad = _native.first_outside(ids, num_nodes)
    if bad >= 0:
        raise ValueError(f"starts[{bad}] is {ids[bad]}; expected 0 <= id < {num_nodes}")
    bias = bias_of(p, q)
    nodes = np.empty((rounds * len(ids), length + 1), np.int64)
    edges = np.empty((rounds * len(ids), length), np.int64)
    lookup = _lookup(path, bias, sorted_rows)
    code = _native.walk(
        [step.adjacency.native for step in path],
        [check_integer(step.num_found, "num_found", 0, 2**63) for step in path],
        ids,
        length,
        rounds,
        stays,
        check_word(key, "key"),
        bias,
        [rows.adjacency.native for rows in lookup],
        any(rows.is_reversed for rows in lookup),
        nodes.reshape(-1),
        edges.reshape(-1),
    )
    if code == _DAMAGED:
        raise GraphFormatError(_DAMAGE)
    return nodes, edges


def bias_of(p: float, q: float) -> list[int]:
    """Return the weights of going back, to a common neighbour, and elsewhere, as integers."""
    back, far = 1 / check_bias(p, "p"), 1 / check_bias(q, "q")
    most = max(back, 1.0, far)
    return [max(1, int(weight / most * _WHOLE)) for weight in (back, 1.0, far)]


def check_bias(value: Any, name: str) -> float:
    """Return `value` as a positive number whose inverse is finite, too."""
    try:
        number = float(value) if not isinstance(value, (bool, str)) else math.nan
    except (TypeError, ValueError):
        number = math.nan
    if not (0 < number < math.inf) or 1 / number == math.inf:
        raise ValueError(f"{name} is {value!r}; expected a number greater than 0")
    return number


def _lookup(path: Sequence[Step], bias: list[int], rows: WalkRows | None) -> list[WalkRows]:
    """Return the rows that biased walks need; nothing for uniform walks."""
    if len(set(bias)) == 1:
        return []
    if rows is None or len(path) != 1:
        raise ValueError("p and q other than 1 need sorted_rows, and a path of one step")
    if rows.adjacency.num_nodes != path[0].adjacency.num_nodes:
        raise ValueError("sorted_rows must have as many rows as the path's step")
    return [rows]
