"""A graph's rows in parts, as owners of nodes have them: for tests of hops across parts."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st

from penstock.kernels import Adjacency, Exclusion, Sample, hop_key, name_hash
from penstock.kernels.arrays import Array, Ids
from penstock.kernels.hops import Drawn, HopAssembly, draw_hop
from penstock.kernels.khop import Buffers
from penstock.kernels.members import Members
from tests.kernels.strategies import Rows
from tests.kernels.tree_jobs import Chosen, TreeJob


@dataclass(frozen=True)
class Part:
    """The rows of some nodes, and what their edges are chosen by."""

    adjacency: Adjacency
    weights: Ids | None
    times: Ids | None


def rows_of_nodes(rows: Rows, nodes: Ids, *columns: Ids | None) -> tuple[Adjacency, list[Array]]:
    """The rows of these nodes alone, and of columns by entry what belongs to them.

    They are paired if the given rows are, or else have the first edge id of each row.
    """
    first, counts = rows.indptr[nodes], np.diff(rows.indptr)[nodes]
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    at = np.repeat(first - indptr[:-1], counts) + np.arange(indptr[-1])
    members, dtype = Members.of(nodes, len(rows.indptr) - 1), rows.entries.dtype
    if rows.entries.ndim == 1:
        first_ids = first.astype(dtype)
        adjacency = Adjacency(indptr, rows.entries[at], members, first_ids)
    else:
        entries = np.stack([rows.neighbors[at], rows.edge_ids[at]], axis=1)
        adjacency = Adjacency(indptr, np.ascontiguousarray(entries.astype(dtype)), members)
    return adjacency, [None if column is None else column[at] for column in columns]


def parts_of(chosen: Chosen, owners: Ids, count: int) -> list[Part]:
    made = []
    for part in range(count):
        nodes = np.flatnonzero(owners == part)
        adjacency, columns = rows_of_nodes(chosen.edges.rows, nodes, chosen.weights, chosen.times)
        made.append(Part(adjacency, *columns))
    return made


@dataclass(frozen=True)
class PartedJob:
    """A batch to sample, and who owns which node of each type."""

    job: TreeJob
    owners: list[Ids]
    count: int
    excluded: list[Exclusion]
    _parts: dict[int, list[Part]] = field(default_factory=dict, repr=False, compare=False)

    def assembly(self) -> HopAssembly:
        job = self.job
        hops = {len(chosen.edges.fanouts) for chosen in job.chosen} or {0}
        return HopAssembly(
            job.num_nodes,
            [(chosen.edges.expands, chosen.edges.finds) for chosen in job.chosen],
            num_hops=max(hops),
            node_caps=job.node_caps,
            disjoint=job.disjoint,
        )

    def draw(self, relation: int, hop: int, nodes: Ids, trees: Ids | None) -> Drawn:
        """What these nodes give, each drawn for by its owner."""
        chosen = self.job.chosen[relation]
        everybody = self.owners[chosen.edges.expands]
        owners = everybody[nodes]
        drawn: list[tuple[Ids, Drawn]] = []
        if relation not in self._parts:
            self._parts[relation] = parts_of(chosen, everybody, self.count)
        for number, part in enumerate(self._parts[relation]):
            mine = np.flatnonzero(owners == number)
            whose = None if trees is None else trees[mine]
            drawn.append((mine, self._draw_one(part, relation, hop, nodes[mine], whose)))
        return put_back(drawn, len(nodes))

    def _draw_one(
        self, part: Part, relation: int, hop: int, nodes: Ids, trees: Ids | None
    ) -> Drawn:
        edges, job = self.job.chosen[relation].edges, self.job
        times = None if job.times is None else np.concatenate(job.times)
        return draw_hop(
            part.adjacency,
            nodes,
            edges.fanouts[hop],
            hop_key(job.key, hop, name_hash(edges.name)),
            replace=job.replace,
            weights=part.weights,
            times=part.times,
            last=job.last,
            trees=trees,
            node_times=None if times is None or trees is None else times[trees],
            excluded=self.excluded[relation] if self.excluded else None,
        )

    def put_together(
        self,
        assembly: HopAssembly,
        out: Buffers | None = None,
        *,
        with_edge_ids: bool = True,
        dtype: str | None = None,
    ) -> Sample:
        """The batch, every hop of it drawn in parts."""
        assembly.begin(self.job.seeds, out, with_edge_ids)
        for hop in range(assembly.num_hops):
            for relation, (expands, _) in enumerate(assembly.ends):
                drawn = self.draw(relation, hop, *assembly.frontier(expands))
                if dtype is not None:
                    drawn = Drawn(*(column.astype(dtype) for column in drawn))
                assembly.take(relation, drawn)
            assembly.end_hop()
        return assembly.finish()


def put_back(drawn: list[tuple[Ids, Drawn]], count: int) -> Drawn:
    """Answers of several owners, each for the nodes at some positions, in the order of nodes."""
    pieces: list[tuple[Array, Array]] = [(np.empty(0, np.int32),) * 2] * count
    counts = np.zeros(count, np.int32)
    for positions, part in drawn:
        ends = np.cumsum(part.counts)
        counts[positions] = part.counts
        for position, begin, end in zip(positions, ends - part.counts, ends, strict=True):
            pieces[position] = part.neighbors[begin:end], part.edge_ids[begin:end]
    empty = drawn[0][1].neighbors[:0] if drawn else np.empty(0, np.int32)
    return Drawn(
        counts,
        np.concatenate([empty, *(neighbors for neighbors, _ in pieces)]).astype(empty.dtype),
        np.concatenate([empty, *(ids for _, ids in pieces)]).astype(empty.dtype),
    )


@st.composite
def splits(draw: st.DrawFn, num_nodes: list[int]) -> tuple[list[Ids], int]:
    """Who owns which node, of up to four owners, some of whom may have none."""
    count = draw(st.integers(1, 4))
    owners = [
        np.array(draw(st.lists(st.integers(0, count - 1), min_size=n, max_size=n)), np.int64)
        for n in num_nodes
    ]
    return owners, count
