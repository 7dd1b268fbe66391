"""HGT sampling, layers with a budget for each node type: the interface of the kernel.

Checks arguments and turns the kernel's results into errors. Knows types and relations by number and
name, and nothing about their meaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from penstock.errors import GraphFormatError
from penstock.kernels import _native
from penstock.kernels.arrays import MOST_NEIGHBORS, Array, Ids, as_ids, check_integer, check_word
from penstock.kernels.khop import Relation
from penstock.kernels.random import name_hash

MAX_NEIGHBORS: Final = 50
_DAMAGED: Final = 2
_DAMAGE: Final = (
    "damaged topology: an offset or neighbour points outside the graph; run its validate()"
)


@dataclass(frozen=True, slots=True)
class Layers:
    """A sampled batch. `nodes[t]` are global ids, seeds first, then layer by layer.

    `rows[r]` and `cols[r]` are positions in the node lists of the types that relation r finds and
    expands. `num_sampled_nodes[t]` has layers + 1 entries.
    """

    nodes: list[Ids]
    rows: list[Ids]
    cols: list[Ids]
    edge_ids: list[Ids]
    num_sampled_nodes: list[list[int]]


class HGT:
    """Samples layers with budgets; for one thread at a time.

    `num_samples[t]` has the number of nodes of type t that each layer draws; `names` are the types'
    names, which their draws depend on. Relations need no fan-outs: if a row has more edges than
    `max_neighbors`, that many are chosen, once for the whole batch.
    """

    def __init__(
        self,
        num_nodes: Sequence[int],
        relations: Sequence[Relation],
        num_samples: Sequence[Sequence[int]],
        *,
        names: Sequence[str],
        max_neighbors: int = MAX_NEIGHBORS,
    ) -> None:
        if not len(num_nodes) == len(num_samples) == len(names):
            raise ValueError("num_nodes, num_samples and names must have one entry for each type")
        if len({len(layers) for layers in num_samples}) > 1:
            raise ValueError("Number of layers must be the same across all node types")
        self.num_nodes = [
            check_integer(n, f"num_nodes[{number}]", 0, 2**63) for number, n in enumerate(num_nodes)
        ]
        _check_relations(relations, self.num_nodes)
        self._native = _native.HGTSampler(
            self.num_nodes,
            [name_hash((name,)) for name in names],
            [relation.adjacency.native for relation in relations],
            [relation.expands for relation in relations],
            [relation.finds for relation in relations],
            [name_hash(relation.name) for relation in relations],
            [
                _checked(layers, f"num_samples[{number}]")
                for number, layers in enumerate(num_samples)
            ],
            max(map(len, num_samples), default=0),
            check_integer(max_neighbors, "max_neighbors", 1, 2**31 + 1),
        )

    def sample(self, key: int, seeds: Sequence[Array]) -> Layers:
        """Sample the batch of this key; `seeds` are by node type."""
        if len(seeds) != len(self.num_nodes):
            raise ValueError(f"seeds must have one array for each of {len(self.num_nodes)} types")
        checked = [self._check_seeds(ids, type_) for type_, ids in enumerate(seeds)]
        answer = self._native.sample(check_word(key, "key"), checked)
        code, nodes, rows, cols, edge_ids, layers = answer
        if code == _DAMAGED:
            raise GraphFormatError(_DAMAGE)
        return Layers(nodes, rows, cols, edge_ids, layers)

    def _check_seeds(self, seeds: Array, type_: int) -> Ids:
        ids = as_ids(seeds, f"seeds[{type_}]")
        bad = _native.first_outside(ids, self.num_nodes[type_])
        if bad >= 0:
            raise ValueError(
                f"seeds[{type_}][{bad}] is {ids[bad]}; expected 0 <= id < {self.num_nodes[type_]}"
            )
        return ids


def _checked(layers: Sequence[int], name: str) -> list[int]:
    return [
        check_integer(count, f"{name}[{layer}]", 0, MOST_NEIGHBORS + 1)
        for layer, count in enumerate(layers)
    ]


def _check_relations(relations: Sequence[Relation], num_nodes: Sequence[int]) -> None:
    for number, relation in enumerate(relations):
        for side in (relation.expands, relation.finds):
            if not 0 <= side < len(num_nodes):
                raise ValueError(f"relation {number} names node type {side}, which is not there")
