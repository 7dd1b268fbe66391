"""Measure how close the kernels come to what the machine allows.

Samples 1024 seeds with fan-outs [15, 10, 5] without replacement, with edge ids, and gathers the
rows, on one thread, into memory that is already mapped. Each figure is a ratio to a floor (a lower
bound) measured in the same run, in turn with it, on the same kind of pages:

  sampling   as many independent, prefetched random 8-byte reads, from an array as large as the
             neighbours are (four bytes each), as edges were sampled, and one from `indptr` per
             expanded node; prefetched as usual, into the first cache level. The ratio to reads
             prefetched into the second, the fastest way we know, is printed beside it.
  gathering  the same rows copied by a bare prefetching loop

Sampling is measured with each of the vector instructions that the kernels have on this machine, one
after the other, each beside a floor of its own.

Times are the thread's CPU times: other load on a shared machine matters less. Absolute times mean
little even so; the ratios are the result.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from rmat import benchmark_graph

from penstock import Graph
from penstock.graph import SharedArray
from penstock.kernels import Buffers, _native, gather_rows, simd
from penstock.kernels.instruction_sets import use_simd
from penstock.sampling import NeighborSampler

SEEDS, FANOUTS, WIDTH = 1024, [15, 10, 5], 100
SIZES = {False: (2_400_000, 62_000_000), True: (100_000, 2_500_000)}


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.thread_time()
    result = work()
    return time.thread_time() - start, result


@dataclass
class Timings:
    """Pairs of a time and the floor's, in alternating order: the second finds warmer caches."""

    kernel: list[float] = field(default_factory=list)
    floor: list[float] = field(default_factory=list)

    def add(self, kernel: Callable[[], Any], floor: Callable[[], Any]) -> Any:
        floor_first = len(self.kernel) % 2 == 1
        if floor_first:
            self.floor.append(seconds(floor)[0])
        elapsed, result = seconds(kernel)
        self.kernel.append(elapsed)
        if not floor_first:
            self.floor.append(seconds(floor)[0])
        return result

    def summary(self, best_floor: float | None = None) -> dict[str, float]:
        ratios = [k / f for k, f in zip(self.kernel, self.floor, strict=True)]
        low, _, high = statistics.quantiles(ratios, n=4)
        median = statistics.median(self.kernel)
        figures = {
            "ratio": median / statistics.median(self.floor),
            "ratio_quartile_low": low,
            "ratio_quartile_high": high,
            "milliseconds": 1e3 * median,
            "floor_milliseconds": 1e3 * statistics.median(self.floor),
        }
        if best_floor is None:
            return figures
        best = {"ratio_to_best_floor": median / best_floor}
        return figures | best | {"best_floor_milliseconds": 1e3 * best_floor}


def mapped(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    """Return shared memory with every page touched."""
    array = SharedArray.create(shape, dtype).array
    array.fill(1)
    return array


class Bench:
    """The graph, the memory batches are written to, and the seeds of one batch after another."""

    def __init__(self, graph: Graph) -> None:
        bound = SEEDS * (1 + 15 + 15 * 10 + 15 * 10 * 5)
        self.graph = graph
        self.out = Buffers(*([mapped((bound,), "int64")] for _ in range(4)))
        self.rows = mapped((bound, WIDTH), "float32")
        self.sampler = NeighborSampler(graph, FANOUTS)
        self.sizes: dict[str, int] = {}
        self._rng = np.random.default_rng(2)

    def seeds(self) -> Any:
        return self._rng.integers(0, self.graph.num_nodes(), SEEDS)

    def sampling(self, ways: list[str], repeats: int, warmup: int) -> dict[str, dict[str, float]]:
        """Time each way in turn with the floor, which reads as often as the previous batch did."""
        words = mapped((self.graph.num_edges() * 4 // 8,), "int64").view(np.uint64)
        offsets = self.graph.csc().indptr.view(np.uint64)
        timings, sizes = {way: Timings() for way in ways}, []
        batch, before = self.sampler.sample(self.seeds(), out=self.out), simd().in_use
        for index in range((warmup + repeats) * len(ways)):
            if index == warmup * len(ways):
                timings, sizes = {way: Timings() for way in ways}, []
            way = ways[index % len(ways)]
            places = self._rng.integers(0, len(words), len(batch.rows[0]))
            heads = batch.nodes[0][: sum(batch.num_sampled_nodes[0][:-1])].copy()
            seeds = self.seeds()

            def floor(level: int = 1, places: Any = places, heads: Any = heads) -> None:
                _native.floor_random_reads(words, places, level)
                _native.floor_random_reads(offsets, heads, level)

            def sample(seeds: Any = seeds, index: int = index) -> Any:
                return self.sampler.sample(seeds, index=index, out=self.out)

            use_simd(way)
            batch = timings[way].add(sample, floor)
            sizes.append((len(batch.rows[0]), len(batch.nodes[0]), len(heads)))
        use_simd(before)
        edges, nodes, expanded = (statistics.median(column) for column in zip(*sizes, strict=True))
        self.sizes = {"edges": int(edges), "nodes": int(nodes), "expanded": int(expanded)}
        count = len(batch.rows[0])
        least = statistics.median(
            seconds(lambda places=places: floor(2, places))[0]
            for places in [self._rng.integers(0, len(words), count) for _ in range(repeats)]
        )
        return {way: timing.summary(best_floor=least) for way, timing in timings.items()}

    def gathering(self, repeats: int, warmup: int) -> dict[str, float]:
        """Time gathering the rows of a batch, in turn with the bare copying loop."""
        x = self.graph.node_attribute("x")
        timings = Timings()
        for index in range(warmup + repeats):
            if index == warmup:
                timings = Timings()
            ids = self.sampler.sample(self.seeds(), index=index, out=self.out).nodes[0]
            rows = self.rows[: len(ids)]

            def gather(ids: Any = ids, rows: Any = rows) -> None:
                gather_rows(x, ids, rows)

            def floor(ids: Any = ids, rows: Any = rows) -> None:
                source, target = (array.reshape(-1).view(np.uint8) for array in (x, rows))
                _native.floor_copy_rows(source, 4 * WIDTH, ids, target)

            timings.add(gather, floor)
        return timings.summary()


def measure(graph: Graph, ways: list[str], repeats: int, warmup: int) -> dict[str, Any]:
    bench = Bench(graph)
    result: dict[str, Any] = {
        "sampling": bench.sampling(ways, repeats, warmup),
        "gathering": bench.gathering(repeats, warmup),
    }
    return result | {f"{name}_per_batch": size for name, size in bench.sizes.items()}


COLD = """
import time
start = time.perf_counter()
import numpy
after_numpy = time.perf_counter()
from penstock import Graph
from penstock.kernels import gather_rows
from penstock.sampling import NeighborSampler
graph = Graph.open({path!r})
seeds = numpy.random.default_rng(3).integers(0, graph.num_nodes(), 1024)
batch = NeighborSampler(graph, [15, 10, 5]).sample(seeds)
gather_rows(graph.node_attribute("x"), batch.nodes[0])
print(after_numpy - start, time.perf_counter() - after_numpy)
"""


def cold_start(path: Path, repeats: int = 5) -> dict[str, float]:
    """Return seconds from `import numpy` to the first batch with features, in a fresh process."""
    pairs = []
    for _ in range(repeats):
        done = subprocess.run(
            [sys.executable, "-c", COLD.format(path=str(path))],
            capture_output=True,
            text=True,
            check=True,
        )
        pairs.append([float(word) for word in done.stdout.split()])
    return {
        "import_numpy_seconds": statistics.median(pair[0] for pair in pairs),
        "open_and_first_batch_seconds": statistics.median(pair[1] for pair in pairs),
    }


def against_floor(figures: dict[str, float]) -> str:
    return (
        f"{figures['ratio']:.2f} x the floor (quartiles {figures['ratio_quartile_low']:.2f} to "
        f"{figures['ratio_quartile_high']:.2f}; {figures['milliseconds']:.2f} ms over "
        f"{figures['floor_milliseconds']:.2f} ms)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--small", action="store_true", help="a small graph, for a quick look")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    parser.add_argument("--repeats", type=int, default=40, help="batches measured (default 40)")
    parser.add_argument(
        "--simd",
        default="all",
        choices=["all", "auto", *simd().available],
        help="which vector instructions to sample with (default: all, one after the other)",
    )
    parser.add_argument("--folder", type=Path, default=Path("build/bench"), help="keeps the graph")
    arguments = parser.parse_args()

    def say(text: str) -> None:
        if not arguments.json:
            print(text, flush=True)

    num_nodes, num_edges = SIZES[arguments.small]
    say(f"RMAT graph: {num_nodes:,} nodes, {num_edges:,} edges, {WIDTH} x float32 (made once)")
    start = time.perf_counter()
    graph = benchmark_graph(arguments.folder, num_nodes, num_edges, WIDTH)
    saved = arguments.folder / f"rmat-{num_nodes}-{num_edges}.graph"
    if not saved.exists():
        graph.save(saved)
    say(f"ready in {time.perf_counter() - start:.1f} s; measuring {arguments.repeats} batches")
    ways = {"all": list(simd().available), "auto": [simd().in_use]}.get(
        arguments.simd, [arguments.simd]
    )
    result = measure(graph, ways, arguments.repeats, warmup=10)
    graph.close()
    result["cold"] = cold_start(saved)
    if arguments.json:
        print(json.dumps(result, indent=2))
        return
    say(
        f"a batch: {result['edges_per_batch']:,} edges, {result['nodes_per_batch']:,} nodes, "
        f"{result['expanded_per_batch']:,} of them expanded"
    )
    for way, figures in result["sampling"].items():
        say(
            f" sampling: {against_floor(figures)}, with {way}\n"
            f"           {figures['ratio_to_best_floor']:.2f} x the best floor "
            f"({figures['best_floor_milliseconds']:.2f} ms)"
        )
    say(f"gathering: {against_floor(result['gathering'])}")
    cold = result["cold"]
    say(
        f"     cold: opened and first batch {cold['open_and_first_batch_seconds']:.3f} s after "
        f"`import numpy` ({cold['import_numpy_seconds']:.3f} s)"
    )


if __name__ == "__main__":
    main()
