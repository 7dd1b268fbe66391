"""Measure what a loader costs compared to inline sampling, and to one written by hand.

The graph and the batches are those of kernels.py: 1024 seeds, fan-outs [15, 10, 5], edge ids, and
the rows of all nodes, as PyG's `Data`. The consumer reads every cache line of every tensor once.
Each ratio is of two things measured in turn, in one run, over the same number of batches; printed
are the median of the pairs and their quartiles.

  one worker    the rate of a loader with one worker over that of the same loader without any
  two workers   the same with two
  by hand       the rate of a loader with two workers over that of torch's own DataLoader with two
                (spawned, persistent), whose collate_fn calls the same kernels
  first batch   seconds from making a loader with two workers to its first batch, over those of the
                one by hand
  memory        what a second loader of the same data adds, read from as the first is, as a share
                of the data: pages of this process and all its descendants, shared ones counted
                once. The slots of its batches are reported separately: they do not depend on the
                data
  growth        private memory after many epochs of a small graph over that after the first few,
                in this process and all its descendants

An epoch is timed from its start to its last batch, so filling the pipeline counts. Absolute times
mean little on a shared machine; the ratios are the result.
"""

from __future__ import annotations

import argparse
import atexit
import gc
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import psutil
import torch
import torch.utils.data

sys.path.insert(0, str(Path(__file__).parent))
from kernels import FANOUTS, SEEDS, SIZES, WIDTH
from pool import pairs, summary, told
from rmat import benchmark_graph, rmat_edges

from penstock import Graph
from penstock.graph.sharing import GraphHandle
from penstock.kernels import gather_rows
from penstock.sampling import NeighborSampler

LINE_BYTES = 64
FEW_EPOCHS, READ = 5, 4
FIGURES = ["one worker", "two workers", "by hand", "first batch", "memory", "growth"]


def loader_of(data: Any, ids: Any, workers: int, **options: Any) -> Any:
    import penstock as ps  # not in the processes of the loader by hand, which do not need it

    wanted = {"num_neighbors": FANOUTS, "batch_size": SEEDS, "shuffle": True, "seed": 7}
    return ps.NeighborLoader(data, input_nodes=ids, num_workers=workers, **(wanted | options))


def ids_for(graph: Graph, batches: int) -> Any:
    return torch.from_numpy(
        np.random.default_rng(7).integers(0, graph.num_nodes(), batches * SEEDS)
    )


def tensors_of(batch: Any) -> Iterator[torch.Tensor]:
    values = batch if isinstance(batch, dict) else batch.to_dict()
    return (value for value in values.values() if isinstance(value, torch.Tensor))


def touch(batch: Any) -> float:
    """Read something of every cache line."""
    return sum(
        float(tensor.reshape(-1)[:: LINE_BYTES // tensor.element_size()].sum())
        for tensor in tensors_of(batch)
    )


class Epochs:
    """A loader's rate, one epoch at a time."""

    def __init__(self, loader: Iterable[Any]) -> None:
        self._loader = loader

    def rate(self, batches: int) -> float:
        start, got = time.perf_counter(), 0
        for batch in self._loader:
            touch(batch)
            got += 1
        assert got == batches, f"{got} batches came; expected {batches}"
        return batches / (time.perf_counter() - start)


# --- what one would write by hand ----------------------------------------------------------------


class ByHand:
    """A collate_fn that samples and joins features, on the same memory as ours."""

    def __init__(self, graph: Graph, ids: torch.Tensor) -> None:
        self._graph = graph
        self._ids = ids.numpy()
        self._calls = 0
        self._sampler: NeighborSampler | None = None

    def __getstate__(self) -> dict[str, Any]:
        handle = msgspec.msgpack.encode(self._graph.handle())
        return {
            "handle": handle,
            "fds": [DupFd(fd) for fd in self._graph.descriptors],
            "ids": self._ids,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        handle = msgspec.msgpack.decode(state["handle"], type=GraphHandle)
        graph = Graph.attach(handle, [fd.detach() for fd in state["fds"]])
        self.__init__(graph, torch.from_numpy(state["ids"]))  # type: ignore[misc]
        # The process keeps its arguments to the end, and nanobind reports objects that are left
        # then.
        atexit.register(self._let_go)

    def _let_go(self) -> None:
        self._sampler = None

    def __call__(self, places: list[int]) -> dict[str, torch.Tensor]:
        if self._sampler is None:
            self._sampler = NeighborSampler(self._graph, FANOUTS)
        self._calls += 1
        seed = int(torch.initial_seed()) % 2**63
        sample = self._sampler.sample(self._ids[places], seed=seed, index=self._calls)
        (nodes,), (rows,), (cols,) = sample.nodes, sample.rows, sample.cols
        assert sample.edge_ids is not None
        return {
            "x": torch.from_numpy(gather_rows(self._graph.node_attribute("x"), nodes)),
            "edge_index": torch.from_numpy(np.stack([rows, cols])),
            "n_id": torch.from_numpy(nodes),
            "e_id": torch.from_numpy(sample.edge_ids[0]),
        }


def by_hand(graph: Graph, ids: torch.Tensor, workers: int) -> Any:
    return torch.utils.data.DataLoader(
        range(len(ids)),  # type: ignore[arg-type]
        batch_size=SEEDS,
        shuffle=True,
        num_workers=workers,
        collate_fn=ByHand(graph, ids),
        multiprocessing_context="spawn",
        persistent_workers=True,
    )


# --- the figures ---------------------------------------------------------------------------------


def against_inline(graph: Graph, workers: int, batches: int, repeats: int) -> dict[str, Any]:
    ids = ids_for(graph, batches)
    with loader_of(graph, ids, workers) as pooled, loader_of(graph, ids, 0) as inline:
        return pairs(Epochs(pooled).rate, Epochs(inline).rate, batches, repeats)


def against_torch(graph: Graph, batches: int, repeats: int) -> dict[str, Any]:
    ids = ids_for(graph, batches)
    theirs = by_hand(graph, ids, 2)
    with loader_of(graph, ids, 2) as ours:
        return pairs(Epochs(ours).rate, Epochs(theirs).rate, batches, repeats)


def first_batch(graph: Graph, repeats: int) -> dict[str, Any]:
    ids = ids_for(graph, READ)

    def first_of(make: Callable[[], Any]) -> float:
        start = time.perf_counter()
        loader = make()
        batches = iter(loader)
        touch(next(batches))
        took = time.perf_counter() - start
        for batch in batches:  # torch's processes must not be left with unread batches
            touch(batch)
        if callable(close := getattr(loader, "close", None)):
            close()
        return took

    def ours() -> float:
        return first_of(lambda: loader_of(graph, ids, 2))

    def theirs() -> float:
        return first_of(lambda: by_hand(graph, ids, 2))

    measured = [(ours(), theirs()) for _ in range(repeats)]
    # Quartiles need at least two values.
    return summary(measured if repeats > 1 else 2 * measured, "seconds")


def memory(graph: Graph, edges: Any) -> dict[str, Any]:
    """Measure with data as users have it: PyG's tensors, which the first loader shares."""
    from torch_geometric.data import Data

    data = Data(x=torch.from_numpy(np.array(graph.node_attribute("x"))), edge_index=edges)
    ids = ids_for(graph, READ)
    size = data.x.nbytes + data.edge_index.nbytes
    with ExitStack() as stack:
        sizes, slots = [], []
        for _ in range(2):
            loader = stack.enter_context(loader_of(data, ids, 2))
            for batch in loader:
                touch(batch)
            del batch
            gc.collect()
            sizes.append(_of_family("Pss"))
            slots.append(loader.statistics().hub["hub"]["arena_resident"])
    added, of_slots = sizes[1] - sizes[0], slots[1] - slots[0]
    return {
        "share_of_the_data": max(0, added - of_slots) / size,
        "share_with_slots": max(0, added) / size,
        "megabytes_of_slots": of_slots / 2**20,
        "megabytes_of_data": size / 2**20,
    }


def growth(epochs: int) -> dict[str, Any]:
    nodes = 20_000
    x = np.random.default_rng(1).random((nodes, 32), dtype=np.float32)
    graph = Graph.from_coo(rmat_edges(nodes, 200_000), num_nodes=nodes, x=x)
    ids = torch.arange(2048)
    with closing(graph), loader_of(graph, ids, 2, batch_size=128) as loader:

        def read(count: int) -> int:
            for _ in range(count):
                for batch in loader:
                    touch(batch)
            gc.collect()
            return _of_family("Anonymous")

        few = read(FEW_EPOCHS)
        many = read(epochs)
    return {"ratio_of_many": many / few, "megabytes": (many - few) / 2**20, "epochs": epochs}


def _of_family(what: str) -> int:
    """Return bytes of a kind, of this process and all its descendants."""
    family = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return sum(_bytes(process.pid, what) for process in family)


def _bytes(pid: int, what: str) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(f"{what}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"the system does not tell the memory of process {pid}")


def figures(
    graph: Graph, edges: Callable[[], Any], arguments: argparse.Namespace
) -> dict[str, Callable[[], dict[str, Any]]]:
    batches, repeats = arguments.batches, arguments.repeats
    return {
        "one worker": lambda: against_inline(graph, 1, batches, repeats),
        "two workers": lambda: against_inline(graph, 2, batches, repeats),
        "by hand": lambda: against_torch(graph, batches, repeats),
        "first batch": lambda: first_batch(graph, arguments.starts),
        "memory": lambda: memory(graph, edges()),
        "growth": lambda: growth(arguments.epochs),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--small", action="store_true", help="a small graph, for a quick look")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    parser.add_argument("--only", action="append", choices=FIGURES, help="this; again for more")
    parser.add_argument("--batches", type=int, default=128, help="batches per measurement")
    parser.add_argument("--repeats", type=int, default=9, help="pairs measured")
    parser.add_argument("--starts", type=int, default=5, help="pairs of first batches")
    parser.add_argument("--epochs", type=int, default=50, help="of the small graph")
    parser.add_argument("--folder", type=Path, default=Path("build/bench"), help="keeps the graph")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # the consumer has one thread in all cases

    def say(text: str) -> None:
        if not arguments.json:
            print(text, flush=True)

    num_nodes, num_edges = SIZES[arguments.small]
    say(f"RMAT graph: {num_nodes:,} nodes, {num_edges:,} edges, {WIDTH} x float32 (made once)")
    graph = benchmark_graph(arguments.folder, num_nodes, num_edges, WIDTH)

    def edges() -> torch.Tensor:
        saved = np.load(arguments.folder / f"rmat-{num_nodes}-{num_edges}.npy")
        return torch.from_numpy(saved).to(torch.int64)

    work = figures(graph, edges, arguments)
    say(f"measuring {arguments.repeats} pairs of {arguments.batches} batches each")
    result = {}
    for name in arguments.only or FIGURES:
        result[name] = work[name]()
        say(f"{name:>12}: {told(result[name])}")
    graph.close()
    if arguments.json:
        print(json.dumps(result, indent=2))


if __name__ == "__main__":
    warnings.filterwarnings("ignore", category=DeprecationWarning)  # PyG's own
    main()
