"""Measure what a GPU waits for: loaders that feed a model, beside the model alone.

The graph and the batches are those of kernels.py: 1024 seeds, fan-outs [15, 10, 5], edge ids, and
the rows of all nodes. The model is PyG's GraphSAGE of three layers, 256 wide, trained with Adam.
Each ratio is of two rates measured in turn, in one run; printed are the median of the pairs and
their quartiles. A rate counts from the first batch asked for to the end of the last one's work on
the GPU.

  device          device="cuda" over the model alone, with batches that are on the GPU already
  device, bf16    the same under autocast to bfloat16
  new shapes      the model alone with batches that it has not met, over the model alone with the
                  same 100 again and again, under autocast to bfloat16: CUDA's libraries look for
                  a kernel for every new shape, which takes the program a while
  features        features="cuda" over the model alone, under autocast to bfloat16
  features, met   the same, of an epoch that is read again and again, as the batches of the model
                  alone are: what is left is the cost of the loader
  cache           a cache of a tenth of the rows: row bytes moved, as a share of all row bytes; and
                  with the best choice of as many rows for the very batches that were read
  cache, fed      the same cache: the fed model over the model alone, under autocast to bfloat16
  int8            device="cuda" with rows stored as int8, decoded on the GPU, over the model alone,
                  under autocast to bfloat16
  pinned, by hand pin_memory=True and batch.to("cuda", non_blocking=True), over the model alone
  by hand         batch.to("cuda"), over the model alone
  loader          device="cuda" and no model, over a loader whose batches stay on the host
  copies          bytes of a batch that were copied on the host on their way

Absolute times mean little; the ratios are the result.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch_geometric.nn import GraphSAGE

sys.path.insert(0, str(Path(__file__).parent))
from kernels import FANOUTS, SEEDS, SIZES, WIDTH
from pool import pairs, told
from rmat import QUADRANTS

import penstock as ps
from penstock import Graph

HIDDEN, LAYERS, CLASSES = 256, 3, 64
ALONE = 100  # batches that are on the GPU already
CHUNK = 1 << 23


def rmat_edges(num_nodes: int, num_edges: int) -> Any:
    """Return edges like those of the other benchmarks, drawn on the GPU, which takes a moment."""
    draw = torch.Generator("cuda").manual_seed(0)
    levels = (num_nodes - 1).bit_length()
    names = torch.randperm(1 << levels, generator=draw, device="cuda") % num_nodes
    a, b, c = QUADRANTS
    edges = np.empty((2, num_edges), np.int32)
    for start in range(0, num_edges, CHUNK):
        size = min(CHUNK, num_edges - start)
        row = torch.zeros(size, dtype=torch.int64, device="cuda")
        col = torch.zeros_like(row)
        for _ in range(levels):
            toss = torch.rand(size, generator=draw, device="cuda")
            row = 2 * row + (toss >= a + b)
            col = 2 * col + (((toss >= a) & (toss < a + b)) | (toss >= a + b + c))
        edges[0, start : start + size] = names[row].int().cpu().numpy()
        edges[1, start : start + size] = names[col].int().cpu().numpy()
    return edges


def graph_of(edges: Any, num_nodes: int, **options: Any) -> Graph:
    """Return a graph with these edges, and rows of all nodes."""
    x = np.random.default_rng(1).random((num_nodes, WIDTH), dtype=np.float32)
    return Graph.from_coo(edges, num_nodes=num_nodes, x=x, **options)


class Training:
    """A model that is trained on batches, and how many it takes in a second."""

    def __init__(self, *, bf16: bool = False) -> None:
        torch.manual_seed(0)
        self._model = GraphSAGE(WIDTH, HIDDEN, LAYERS, CLASSES).cuda()
        self._optimizer = torch.optim.Adam(self._model.parameters(), lr=1e-3)
        self._bf16 = bf16

    def step(self, batch: Any) -> None:
        with torch.autocast("cuda", torch.bfloat16, enabled=self._bf16):
            out = self._model(batch.x, batch.edge_index)[: batch.batch_size]
            loss = F.cross_entropy(out, batch.n_id[: batch.batch_size] % CLASSES)
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()

    def rate_of(self, source: Iterable[Any], move: Callable[[Any], Any] | None = None) -> Any:
        """Return what measures the rate of training on the batches of a source."""

        def rate(batches: int) -> float:
            torch.cuda.synchronize()
            start, got = time.perf_counter(), 0
            for batch in source:
                self.step(batch if move is None else move(batch))
                got += 1
            torch.cuda.synchronize()
            assert got == batches, f"{got} batches came; expected {batches}"
            return batches / (time.perf_counter() - start)

        return rate


def rate_without_model(source: Iterable[Any]) -> Any:
    def rate(batches: int) -> float:
        start = time.perf_counter()
        for _ in source:
            pass
        torch.cuda.synchronize()
        return batches / (time.perf_counter() - start)

    return rate


class Again:
    """The first epoch of a loader, as often as one asks."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._first = loader.state_dict()

    def __iter__(self) -> Iterator[Any]:
        self._loader.load_state_dict(self._first)
        return iter(self._loader)


class Measuring:
    """The figures, of one graph."""

    def __init__(self, graph: Graph, arguments: argparse.Namespace, say: Any) -> None:
        self._graph = graph
        self._batches = arguments.batches
        self._repeats = arguments.repeats
        self._workers = arguments.workers
        self._say = say
        self._profiles = arguments.profile
        self._ids = torch.from_numpy(
            np.random.default_rng(7).integers(0, graph.num_nodes(), self._batches * SEEDS)
        )
        self._here: list[Any] = []

    def loader(self, data: Graph | None = None, **options: Any) -> Any:
        wanted = {"batch_size": SEEDS, "shuffle": True, "seed": 7, "num_workers": self._workers}
        graph = self._graph if data is None else data
        return ps.NeighborLoader(graph, FANOUTS, self._ids, **(wanted | options))

    def int8(self, edges: Any) -> dict[str, Any]:
        """Return the ratio of a fed model to the model alone, for rows that are stored as int8."""
        features = {"x": ps.quantize("int8")}
        with graph_of(edges, self._graph.num_nodes(), features=features) as graph:
            return self.fed(bf16=True, data=graph, device="cuda")

    def alone(self) -> list[Any]:
        """Batches that are on the GPU already, as many as are measured."""
        if not self._here:
            with self.loader() as loader:
                few = [batch.to("cuda") for batch, _ in zip(loader, range(ALONE), strict=False)]
            self._here = [few[number % len(few)] for number in range(self._batches)]
        return self._here

    def fed(
        self, *, bf16: bool = False, move: Any = None, again: bool = False, **options: Any
    ) -> dict[str, Any]:
        """Return the ratio of a model that a loader feeds to the model alone.

        Args:
            bf16: Whether both are under autocast.
            move: Moves a batch to the GPU.
            again: Whether the loader gives the same batches in every measurement.
            **options: The loader's.
        """
        alone, fed = Training(bf16=bf16), Training(bf16=bf16)
        with self.loader(**options) as loader:
            source = Again(loader) if again else loader
            rate = fed.rate_of(source, move)
            found = pairs(rate, alone.rate_of(self.alone()), self._batches, self._repeats)
            self._tell(loader)
            if self._profiles:
                profiled(rate, self._batches)
        return found

    def new_shapes(self) -> dict[str, Any]:
        """Return the ratio of the model with new batches to itself with batches it has met."""
        alone, new = Training(bf16=True), Training(bf16=True)
        with self.loader(features="cuda", seed=8) as loader:

            def rate(batches: int) -> float:
                here = list(loader)
                return float(new.rate_of(here)(batches))

            return pairs(rate, alone.rate_of(self.alone()), self._batches, self._repeats)

    def _tell(self, loader: Any) -> None:
        numbers = loader.statistics()
        seconds = numbers.seconds
        shares = {
            "batches": numbers.waits.sampling / seconds,
            "transfer": numbers.waits.transfer / seconds,
        }
        if (device := numbers.device) is not None:
            shares["GPU: batches"] = device.waited_for_batches / seconds
            shares["GPU: copies"] = device.waited_for_copies / seconds
        self._say(
            "    waits: " + ", ".join(f"{name} {share:.1%}" for name, share in shares.items())
        )
        if device is not None:
            self._say(f"    {device}")

    @property
    def tenth(self) -> int:
        """The bytes of a tenth of the rows."""
        return self._graph.num_nodes() // 10 * WIDTH * 4

    def cache(self) -> dict[str, Any]:
        """Return which share of row bytes is moved beside a cache of a tenth of the rows."""
        reads = torch.zeros(self._graph.num_nodes(), dtype=torch.int64, device="cuda")
        with self.loader(device="cuda", feature_cache=self.tenth) as loader:
            for batch in loader:
                reads[batch.n_id] += 1  # which are distinct
            device = loader.statistics().device
        best = reads.sort(descending=True).values[: len(reads) // 10].sum() / reads.sum()
        return {
            "share_moved": device.row_bytes_moved / device.row_bytes,
            "share_with_the_best": 1 - float(best),
        }

    def loader_alone(self) -> dict[str, Any]:
        with self.loader(device="cuda") as moved, self.loader() as plain:
            found = pairs(
                rate_without_model(moved), rate_without_model(plain), self._batches, self._repeats
            )
            self._tell(moved)
            return found

    def copies(self) -> dict[str, Any]:
        with self.loader(device="cuda") as loader:
            rate_without_model(loader)(self._batches)
            device = loader.statistics().device
            return {
                "bytes_a_batch": device.staged / self._batches,
                "copied": loader.statistics().copied,
            }


def profiled(rate: Callable[[int], float], batches: int) -> None:
    profile = cProfile.Profile()
    profile.enable()
    rate(batches)
    profile.disable()
    pstats.Stats(profile).sort_stats("tottime").print_stats(25)


def figures(of: Measuring, edges: Any) -> dict[str, Callable[[], dict[str, Any]]]:
    def at_once(batch: Any) -> Any:
        return batch.to("cuda")

    def beside(batch: Any) -> Any:
        return batch.to("cuda", non_blocking=True)

    return {
        "device": lambda: of.fed(device="cuda"),
        "device, bf16": lambda: of.fed(bf16=True, device="cuda"),
        "new shapes": of.new_shapes,
        "features": lambda: of.fed(bf16=True, features="cuda"),
        "features, met": lambda: of.fed(bf16=True, again=True, features="cuda"),
        "cache": of.cache,
        "cache, fed": lambda: of.fed(bf16=True, device="cuda", feature_cache=of.tenth),
        "int8": lambda: of.int8(edges),
        "pinned, by hand": lambda: of.fed(move=beside, pin_memory=True),
        "by hand": lambda: of.fed(move=at_once),
        "loader": of.loader_alone,
        "copies": of.copies,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--small", action="store_true", help="a small graph, for a quick look")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    parser.add_argument("--batches", type=int, default=200, help="batches per measurement")
    parser.add_argument("--repeats", type=int, default=7, help="pairs measured")
    parser.add_argument("--workers", type=int, default=8, help="that make batches")
    parser.add_argument("--only", default="", help="some figures, with semicolons between them")
    parser.add_argument("--profile", action="store_true", help="say where the program's time goes")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("there is no GPU here")

    def say(text: str) -> None:
        if not arguments.json:
            print(text, flush=True)

    num_nodes, num_edges = SIZES[arguments.small]
    say(
        f"{torch.cuda.get_device_name()}, {os.cpu_count()} cores, torch {torch.__version__}; RMAT "
        f"graph: {num_nodes:,} nodes, {num_edges:,} edges, {WIDTH} x float32"
    )
    edges = rmat_edges(num_nodes, num_edges)
    with graph_of(edges, num_nodes) as graph:
        work, result = figures(Measuring(graph, arguments, say), edges), {}
        names = [name.strip() for name in arguments.only.split(";") if name.strip()]
        for name in names or work:
            result[name] = work[name]()
            say(f"{name:>16}: {told(result[name])}")
    if arguments.json:
        print(json.dumps(result, indent=2))


if __name__ == "__main__":
    warnings.filterwarnings("ignore", category=DeprecationWarning)  # PyG's own
    main()
