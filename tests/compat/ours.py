"""The batches of our specs for the cases that PyG's loaders get, and what batches mean.

A batch is a mapping by name, with arrays and, beside them, counts by hop.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock import Graph, SharedDistSamplingBackend
from penstock.sampling.names import parsed, parsed_type, qualified
from penstock.sampling.spec import LinkSpec, NeighborSpec, Spec
from tests.compat.cases import BATCH, LONE, PLANS, Array, Case, Plan

Batch = dict[str, Any]
EDGE = ("", "", "")
COUNTS = ("num_sampled_nodes", "num_sampled_edges")


def graph_of(plan: Plan) -> Graph:
    """The same graph in our memory."""
    if "" in plan.sizes:
        return Graph.from_coo(
            plan.edges[EDGE],
            plan.sizes[""],
            node_attrs=plan.node_attrs[""],
            edge_attrs=plan.edge_attrs[EDGE],
        )
    return Graph.from_coo(
        plan.edges,
        plan.sizes,
        node_attrs=plan.node_attrs,
        edge_attrs=plan.edge_attrs,
    )


def spec_of(case: Case) -> Spec:
    neighbors = NeighborSpec(num_neighbors=case.num_neighbors, **case.options)
    if not case.of_links:
        return neighbors
    mode, amount = ("none", 1.0) if case.against is None else case.against[:2]
    return LinkSpec(neighbors=neighbors, negatives=mode, amount=amount)


def batches_of(graph: Graph, case: Case) -> list[Batch]:
    """All batches of a case, sampled in this process."""
    inputs = case.inputs if case.of is None else (case.of, case.inputs)
    columns = {"time": case.times, "label": case.labels}
    given = {name: np.array(column) for name, column in columns.items() if column is not None}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", LONE)
        with SharedDistSamplingBackend(graph, spec_of(case), num_workers=0) as backend:
            backend.register_input(
                "a", inputs, columns=given, tables=_tables(graph, case), batch_size=BATCH
            )
            backend.start_new_epoch_sampling("a", 0)
            return [_plain(batch) for batch in backend.batches("a")]


def _tables(graph: Graph, case: Case) -> dict[str, Array]:
    if case.against is None:
        return {}
    tables: dict[str, Array] = {}
    ends = (case.of[0], case.of[2]) if case.is_hetero else ("", "")
    for name, only, end in zip(("src_weight", "dst_weight"), case.against[2:], ends, strict=True):
        if only is not None:
            tables[name] = (np.arange(graph.num_nodes(end)) == only).astype(np.float32)
    return tables


def _plain(batch: Any) -> Batch:
    found: Batch = dict(batch.arrays)
    facts = dict(batch.facts)
    of = parsed_type(facts.pop("input_type", ""))
    found[qualified(of, "batch_size")] = facts.pop("batch_size")
    for name in COUNTS:
        counts = facts.pop(name, None)
        if isinstance(counts, dict):
            found |= {qualified(parsed_type(kind), name): hops for kind, hops in counts.items()}
        elif counts is not None:
            found[name] = counts
    return found


# --- what a batch means --------------------------------------------------------------------------


@dataclass(frozen=True)
class Meaning:
    """A batch in global ids, whatever order its lists have."""

    batch: Batch

    def nodes(self, owner: str) -> Counter[Any]:
        """(tree, node) of every row."""
        return Counter(zip(self.trees(owner), self.ids(owner).tolist(), strict=True))

    def edges(self, kind: tuple[str, str, str], *, with_ids: bool = True) -> Counter[Any]:
        """(tree, source, destination, edge id)."""
        ends = self.batch[qualified(kind, "edge_index")]
        name = qualified(kind, "e_id")
        ids = self.batch[name].tolist() if with_ids and name in self.batch else [-1] * len(ends[0])
        trees = np.array(self.trees(kind[0]))[ends[0]].tolist()
        found = [self.ids(kind[end])[row].tolist() for end, row in ((0, ends[0]), (2, ends[1]))]
        return Counter(zip(trees, *found, ids, strict=True))

    def ids(self, owner: str) -> Array:
        ids: Array = self.batch[qualified(owner, "n_id")]
        return ids

    def trees(self, owner: str) -> list[int]:
        name = qualified(owner, "batch")
        return self.batch[name].tolist() if name in self.batch else [0] * len(self.ids(owner))

    def labels(self, kind: tuple[str, str, str]) -> dict[str, Any]:
        """What is said of links: labels and times as they are, ends in global ids."""
        found: dict[str, Any] = {}
        for name, owner in (
            ("edge_label", kind),
            ("edge_label_time", kind),
            ("input_id", kind),
            ("seed_time", kind[0]),
        ):
            if (full := qualified(owner, name)) in self.batch:
                found[name] = self.batch[full].tolist()
        if (full := qualified(kind, "edge_label_index")) in self.batch:
            ends = self.batch[full]
            found["ends"] = [
                self.ids(kind[end])[ends[row]].tolist() for row, end in ((0, 0), (1, 2))
            ]
        for name, owner in (("src_index", 0), ("dst_pos_index", 2), ("dst_neg_index", 2)):
            if (full := qualified(kind[owner], name)) in self.batch:
                found[name] = self.ids(kind[owner])[self.batch[full]].tolist()
        return found


def types_of(batch: Batch) -> tuple[list[str], list[tuple[str, str, str]]]:
    """The node and edge types that a batch speaks of."""
    owners = dict.fromkeys(parsed(name)[0] for name in batch)
    nodes = [owner for owner in owners if isinstance(owner, str)]
    edges = [owner for owner in owners if not isinstance(owner, str)]
    return nodes, edges or [EDGE]


def kind_of(case: Case) -> tuple[str, str, str]:
    return case.of if case.is_hetero and case.of_links else EDGE


def num_negatives(case: Case, given: int) -> int:
    return 0 if case.against is None else math.ceil(given * case.against[1])


def plan_of(case: Case) -> Plan:
    return PLANS[case.graph]()
