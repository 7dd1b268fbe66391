"""Measure what each kind of sampling costs compared to uniform homogeneous k-hop.

On the graph of kernels.py, one thread, into memory that is already mapped; times are the thread's
CPU times, since nothing here waits. Each figure but the last three is nanoseconds per sampled edge
over those of uniform k-hop (1024 seeds, fan-outs [15, 10, 5], without replacement, with edge ids),
measured in turn with it, in one run; printed are the medians' ratio and the quartiles of the pairs.

  heterogeneous   the same edges between two types of nodes: four edge types, fan-outs [8, 5, 3]
  weighted        without replacement, by a weight of each edge
  temporal        no neighbour later than its seed, by a time of each node; on average, half the
                  graph qualifies
  temporal last   the same, the most recent ones
  disjoint        a tree for each seed
  links           256 edges and as many negative pairs, with the neighbourhoods of their ends
  bidirectional, induced, subgraph, hgt, walks, ablp     for comparison

  hub             fan-out 10 of a node with a million weighted neighbours, over that of one with a
                  thousand: an algorithm that is linear in the degree would be at 1000
  ppr             alpha 0.5, eps 1e-4, 50 nodes: one seed, over adding as many residuals to a bare
                  array of all nodes, at positions listed beforehand. This floor leaves out the
                  graph: it reads no row
  ppr_replayed    the same, over replaying recorded pushes: each pushed row is read again, and its
                  share added to the residual of every neighbour in a bare array of all nodes. This
                  floor leaves out which nodes are reached, which are at their threshold, their
                  scores and which are best; it knows all rows beforehand

For ppr all pages of the graph have been touched before: a process maps each page once, whatever it
samples, and the floor of the list maps none.

Absolute times mean little on a shared machine; the ratios are the result.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from kernels import FANOUTS, SEEDS, SIZES, mapped
from rmat import benchmark_graph

from penstock import Graph
from penstock.kernels import Adjacency, Buffers, _native
from penstock.kernels.ppr import Push, PushRecord, PushRelation
from penstock.sampling import NeighborSampler
from penstock.sampling.kinds import kind_of, prepare
from penstock.sampling.links import LinkSeedBuilder
from penstock.sampling.ppr import options_of
from penstock.sampling.request import Request
from penstock.sampling.spec import (
    ABLPSpec,
    HGTSpec,
    LinkSpec,
    NeighborSpec,
    PPRSpec,
    SubgraphSpec,
    WalkSpec,
)

EDGE = ("", "", "")
SPLIT_FANOUTS = [8, 5, 3]
LINKS, PPR_SEEDS = 256, 64
LEAST_READ, MOST_READ = 4, 1000  # bounds on the degree of nodes in the floor of a push
# The seconds that one batch took, and how many edges it has.
Batch = tuple[float, int]
Run = Callable[[int], Batch]


def clock(work: Callable[[], int]) -> Batch:
    start = time.thread_time()
    edges = work()
    return time.thread_time() - start, edges


class Bench:
    """The graph in its variants, and memory for batches."""

    def __init__(self, graph: Graph, num_edges: int) -> None:
        rng = np.random.default_rng(3)
        nodes = graph.num_nodes()
        self.edges = graph.edge_index()
        self.graph = Graph.from_coo(
            self.edges,
            nodes,
            edge_weight=rng.random(num_edges, dtype=np.float32),
            node_time=rng.integers(0, 1 << 20, nodes),
        )
        self._rng = rng
        bound = SEEDS * (1 + 15 + 15 * 10 + 15 * 10 * 5)
        self.room = [mapped((bound,), "int64") for _ in range(5)]

    def seeds(self) -> Any:
        return self._rng.integers(0, self.graph.num_nodes(), SEEDS)

    def buffers(self, *, trees: bool = False) -> Buffers:
        nodes, rows, cols, ids, batch = ([array] for array in self.room)
        return Buffers(nodes, rows, cols, ids, batch if trees else None)

    def hops(self, times: Any = None, **options: Any) -> Run:
        """Sample k hops of the homogeneous graph."""
        sampler = NeighborSampler(self.graph, FANOUTS, **options)
        disjoint = options.get("disjoint", False) or "time_attr" in options
        out = self.buffers(trees=disjoint)

        def run(index: int) -> Batch:
            seeds = [self.seeds()]
            given = None if times is None else [times()]
            return clock(
                lambda: len(
                    sampler.sample_by_type(seeds, index=index, out=out, times=given).rows[0]
                )
            )

        return run

    def split(self) -> Run:
        """Sample the same edges between two types of nodes, even and odd."""
        half = (self.graph.num_nodes() + 1) // 2
        kinds = {}
        for source in (0, 1):
            for destination in (0, 1):
                chosen = (self.edges[0] % 2 == source) & (self.edges[1] % 2 == destination)
                kinds[f"t{source}", "to", f"t{destination}"] = self.edges[:, chosen] // 2
        graph = Graph.from_coo(kinds, {"t0": half, "t1": half})
        sampler = NeighborSampler(graph, SPLIT_FANOUTS)
        out = split_buffers(2, 4, self.room)

        def run(index: int) -> Batch:
            seeds = [self._rng.integers(0, half - 1, SEEDS // 2) for _ in range(2)]
            return clock(
                lambda: sum(map(len, sampler.sample_by_type(seeds, index=index, out=out).rows))
            )

        return run

    def links(self) -> Run:
        """Sample edges, negatives beside them, and the neighbourhoods of all ends."""
        spec = LinkSpec(neighbors=NeighborSpec(num_neighbors=tuple(FANOUTS)), negatives="binary")
        prepare(spec, self.graph)
        starter, sampler = LinkSeedBuilder(self.graph, spec), NeighborSampler(self.graph, FANOUTS)
        out = self.buffers()

        def run(index: int) -> Batch:
            places = self._rng.integers(0, self.edges.shape[1], LINKS)
            request = Request(0, 0, index, self.edges[:, places], places)

            def work() -> int:
                seeds = starter.start(request).seeds
                return len(sampler.sample_by_type(seeds, index=index, out=out).rows[0])

            return clock(work)

        return run

    def cuts(self, spec: Any, columns: dict[str, Any] | None = None, seeds: int = SEEDS) -> Run:
        """Sample kinds that are buffered, in memory of their own."""
        prepare(spec, self.graph)
        batches: Any = kind_of(spec).batches(spec, self.graph)

        def run(index: int) -> Batch:
            ids = self.seeds()[:seeds]
            request = Request(0, 0, index, ids, np.arange(seeds), columns=columns or {})
            return clock(lambda: count_edges(batches.cut(request).arrays))

        return run

    def anchors(self) -> Run:
        """Sample anchors with four labels each."""
        spec = ABLPSpec(neighbors=NeighborSpec(num_neighbors=tuple(FANOUTS)), supervision=(EDGE,))
        prepare(spec, self.graph)
        batches: Any = kind_of(spec).batches(spec, self.graph)
        sampler, out = NeighborSampler(self.graph, FANOUTS), self.buffers()

        def run(index: int) -> Batch:
            anchors = self.seeds()[: SEEDS // 5]
            labels = self._rng.integers(0, self.graph.num_nodes(), (len(anchors), 4))
            request = Request(
                0, 0, index, anchors, np.arange(len(anchors)), columns={"positive/0": labels}
            )

            def work() -> int:
                seeds = batches.start(request).seeds
                return len(sampler.sample_by_type(seeds, index=index, out=out).rows[0])

            return clock(work)

        return run

    def pagerank(self, repeats: int, warmup: int) -> dict[str, dict[str, Any]]:
        """Measure pushes from seeds, and what bare arrays take.

        Each of the three works on other rows at a time, so that none finds in the caches what
        another left there: the pushes replayed are those of much earlier. Everything is recorded
        before anything is timed, so that nothing else comes between.
        """
        rows = self.graph.csc()
        touch(rows.adjacency)
        adjacency = Adjacency(rows.indptr, rows.adjacency)
        push = Push(
            [self.graph.num_nodes()],
            [PushRelation(adjacency)],
            options_of(PPRSpec(), self.graph),
        )
        count = warmup + repeats
        all_seeds = [self.seeds()[:PPR_SEEDS] for _ in range(count)]
        records = [push.record(number, seeds) for number, seeds in enumerate(all_seeds)]
        lists = [self.places(int(record.counts.sum())) for record in records]
        residuals, measured = np.zeros(self.graph.num_nodes()), []
        for number, seeds in enumerate(all_seeds):
            figures = [
                pushing(push, number, seeds),
                listing(residuals, lists[number]),
                replaying(residuals, adjacency, records[(number + count // 2) % count]),
            ]
            if number >= warmup:
                measured.append(figures)
        bare, replayed = (over_floor(measured, floor) for floor in (1, 2))
        return {**bare, "replayed": replayed}

    def places(self, count: int) -> Any:
        """Return this many positions, as they appear in rows of the graph."""
        return self.neighbors(self.rows(count))[:count]

    def rows(self, count: int) -> Any:
        """Return random nodes whose rows together have this many neighbours, or a few more.

        Only nodes with some neighbours: the rows of a push have 50 on average.
        """
        indptr, found, size = self.graph.csc().indptr, [], 0
        while size < count:
            node = int(self._rng.integers(0, self.graph.num_nodes()))
            degree = int(indptr[node + 1] - indptr[node])
            if degree >= LEAST_READ:
                found.append(node)
                size += min(degree, MOST_READ)
        return np.array(found, np.int64)

    def neighbors(self, nodes: Any) -> Any:
        """Return the neighbours in their rows, one row after the other."""
        rows = self.graph.csc()
        found = [rows.indices[rows.indptr[n] : rows.indptr[n + 1]][:MOST_READ] for n in nodes]
        return np.concatenate(found).astype(np.int64)

    def times(self) -> Any:
        return self._rng.integers(0, 1 << 20, SEEDS)


def pushing(push: Push, key: int, seeds: Any) -> float:
    """Return nanoseconds per push of a batch."""
    before = push.pushes
    seconds, _ = clock(lambda: len(push.sample(key, seeds).nodes))
    return 1e9 * seconds / (push.pushes - before)


def listing(residuals: Any, at: Any) -> float:
    """Return nanoseconds per residual that is added at a position from a list."""
    seconds, _ = clock(lambda: _native.floor_push(residuals, at, 1.0) or 0)
    return 1e9 * seconds / len(at)


def replaying(residuals: Any, adjacency: Adjacency, record: PushRecord) -> float:
    """Return nanoseconds per push that is replayed, over a bare array."""
    begins, counts, shares = record.begins, record.counts, record.shares
    seconds, _ = clock(
        lambda: _native.floor_replay(residuals, adjacency.native, begins, counts, shares) or 0
    )
    return 1e9 * seconds / int(counts.sum())


def touch(array: Any) -> int:
    """Touch every page of an array."""
    return int(array.reshape(-1).view(np.uint8)[::4096].sum())


def split_buffers(types: int, relations: int, room: list[Any]) -> Buffers:
    """Divide the memory of one type among several."""

    def parts(array: Any, count: int) -> list[Any]:
        size = len(array) // count
        return [array[number * size : (number + 1) * size] for number in range(count)]

    nodes, rows, cols, ids = room[:4]
    return Buffers(
        parts(nodes, types), parts(rows, relations), parts(cols, relations), parts(ids, relations)
    )


def count_edges(arrays: dict[str, Any]) -> int:
    """Return the number of edges of a batch; for walks, of their steps."""
    found = sum(array.shape[1] for name, array in arrays.items() if name.endswith("edge_index"))
    return found or sum(array.size for name, array in arrays.items() if name.endswith("walk"))


def over_floor(measured: list[list[float]], floor: int) -> dict[str, Any]:
    """Return nanoseconds per push, in the first column, over those of a floor, in another."""
    low, middle, high = statistics.quantiles([each[0] / each[floor] for each in measured], n=4)
    return {
        "ratio": middle,
        "quartiles": [low, high],
        "nanoseconds_per_push": statistics.median(each[0] for each in measured),
        "floor": statistics.median(each[floor] for each in measured),
    }


def pairs(kind: Run, uniform: Run, repeats: int, warmup: int) -> dict[str, Any]:
    """Return nanoseconds per edge over those of uniform sampling, in alternating order."""
    measured = []
    for number in range(warmup + repeats):
        if number % 2:
            second, first = uniform(number), kind(number)
        else:
            first, second = kind(number), uniform(number)
        if number >= warmup:
            measured.append([1e9 * seconds / max(edges, 1) for seconds, edges in (first, second)])
    low, _, high = statistics.quantiles([ours / theirs for ours, theirs in measured], n=4)
    ours, theirs = (statistics.median(column) for column in zip(*measured, strict=True))
    return {
        "ratio": ours / theirs,
        "quartiles": [low, high],
        "nanoseconds_per_edge": ours,
        "uniform": theirs,
    }


def hub(repeats: int) -> dict[str, Any]:
    """Time fan-out 10 of a node with many weighted neighbours, over that of one with fewer."""

    def run(degree: int) -> Callable[[], float]:
        rng = np.random.default_rng(degree)
        edges = np.stack((np.arange(1, degree + 1), np.zeros(degree, np.int64)))
        graph = Graph.from_coo(edges, degree + 1, edge_weight=rng.random(degree))
        sampler = NeighborSampler(graph, [10], weight_attr="edge_weight")
        seeds, count = np.zeros(1, np.int64), iter(range(10**9))

        def once() -> float:
            start = time.thread_time()
            for _ in range(50):
                sampler.sample(seeds, index=next(count))
            return (time.thread_time() - start) / 50

        return once

    large, small = run(1_000_000), run(1_000)
    measured = [(large(), small()) for _ in range(repeats + 2)][2:]
    low, middle, high = statistics.quantiles([one / other for one, other in measured], n=4)
    return {
        "ratio": middle,
        "quartiles": [low, high],
        "microseconds": 1e6 * statistics.median(one for one, _ in measured),
    }


def report(
    graph: Graph, num_edges: int, repeats: int, warmup: int, only: list[str]
) -> dict[str, Any]:
    bench = Bench(graph, num_edges)
    uniform = bench.hops()
    kinds: dict[str, Callable[[], Run]] = {
        "heterogeneous": bench.split,
        "weighted": lambda: bench.hops(weight_attr="edge_weight"),
        "temporal": lambda: bench.hops(bench.times, time_attr="time"),
        "temporal_last": lambda: bench.hops(
            bench.times, time_attr="time", temporal_strategy="last"
        ),
        "disjoint": lambda: bench.hops(disjoint=True),
        "links": bench.links,
        "ablp": bench.anchors,
        "bidirectional": lambda: bench.cuts(
            NeighborSpec(num_neighbors=tuple(FANOUTS), subgraph_type="bidirectional")
        ),
        "induced": lambda: bench.cuts(
            NeighborSpec(num_neighbors=tuple(FANOUTS), subgraph_type="induced"), seeds=64
        ),
        "subgraph": lambda: bench.cuts(SubgraphSpec(num_hops=1), seeds=64),
        "hgt": lambda: bench.cuts(HGTSpec(num_samples=(4096, 4096))),
        "walks": lambda: bench.cuts(WalkSpec(walk_length=20, direction="in")),
        "node2vec": lambda: bench.cuts(WalkSpec(walk_length=20, direction="in", p=0.5, q=2.0)),
    }
    measures: dict[str, Callable[[], dict[str, Any]]] = {
        name: lambda make=make: pairs(make(), uniform, repeats, warmup)
        for name, make in kinds.items()
    }
    measures["hub"] = lambda: hub(repeats)
    measures["ppr"] = lambda: bench.pagerank(repeats, warmup)
    result = {}
    for name in only or measures:
        say(f"measuring {name}")
        result[name] = measures[name]()
    for name in [name for name in result if "replayed" in result[name]]:
        result[f"{name}_replayed"] = result[name].pop("replayed")
    return result


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--small", action="store_true", help="a small graph, for a quick look")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    parser.add_argument("--repeats", type=int, default=20, help="pairs measured (default 20)")
    parser.add_argument("--only", default="", help="some kinds, with commas between them")
    parser.add_argument("--folder", type=Path, default=Path("build/bench"), help="keeps the graph")
    arguments = parser.parse_args()
    only = [name for name in arguments.only.split(",") if name]
    num_nodes, num_edges = SIZES[arguments.small]
    say(f"RMAT graph: {num_nodes:,} nodes, {num_edges:,} edges (made once)")
    graph = benchmark_graph(arguments.folder, num_nodes, num_edges, 1)
    result = report(graph, num_edges, arguments.repeats, 3, only)
    if arguments.json:
        print(json.dumps(result, indent=2))
        return
    for name, figures in result.items():
        low, high = figures["quartiles"]
        print(f"{name:>14}: {figures['ratio']:6.2f}  (quartiles {low:.2f} to {high:.2f})")


if __name__ == "__main__":
    main()
