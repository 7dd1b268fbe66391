"""One loader, ours or a peer's, in a process of its own: reads an epoch whenever it is asked to.

`peers.py` starts this script, each time with the interpreter of the environment that has the
loader. Nothing but NumPy and torch is imported here before the loader is known, since each
environment has its own packages. On standard output there is one JSON object per line: first the
versions in use, or why the loader cannot run here; then, for every line on standard input, the
rate of one epoch.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import sys
import time
import types
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

LINE_BYTES = 64
Loader = Iterable[Any]
Tensors = Callable[[Any], Iterator[torch.Tensor]]


class CannotRun(Exception):
    """The loader does not run in this environment; the message says why."""


def pyg_data(given: argparse.Namespace) -> Any:
    from torch_geometric.data import Data

    edges = torch.from_numpy(np.load(given.edges)).to(torch.int64)
    return Data(x=torch.from_numpy(np.load(given.features)), edge_index=edges)


def pyg_options(given: argparse.Namespace) -> dict[str, Any]:
    return {
        "num_neighbors": given.fanouts,
        "input_nodes": torch.from_numpy(np.load(given.seeds)),
        "batch_size": given.batch_size,
        "shuffle": True,
        "num_workers": given.workers,
        "persistent_workers": given.workers > 0,
    }


def pyg_tensors(batch: Any) -> Iterator[torch.Tensor]:
    return (value for value in batch.to_dict().values() if isinstance(value, torch.Tensor))


def ours(given: argparse.Namespace) -> tuple[Loader, Tensors]:
    import penstock as ps

    return ps.NeighborLoader(pyg_data(given), seed=7, **pyg_options(given)), pyg_tensors


def pyg(given: argparse.Namespace) -> tuple[Loader, Tensors]:
    """Return PyG's loader with whichever sampler it finds; without any it refuses."""
    from torch_geometric.loader import NeighborLoader

    loader = NeighborLoader(pyg_data(given), **pyg_options(given))
    try:
        loader.collate_fn([0])
    except ImportError as error:
        raise CannotRun(f"PyG refuses: {error}") from None
    return loader, pyg_tensors


def torch_sparse(given: argparse.Namespace) -> tuple[Loader, Tensors]:
    """Return PyG's loader with the neighbour sampler of torch_sparse.

    Only that extension of torch_sparse was built (the whole of it takes many times as long), so
    its Python package cannot be imported; PyG needs only the operator that the library registers.
    """
    import torch_geometric.typing

    libraries = [*Path(sys.prefix).glob("torch_sparse/*.so")]
    if not libraries:
        raise CannotRun("torch_sparse was not built")
    torch.ops.load_library(str(libraries[0]))
    torch_geometric.typing.WITH_TORCH_SPARSE = True
    return pyg(given)


def dgl(given: argparse.Namespace) -> tuple[Loader, Tensors]:
    """Return DGL's loader with its NeighborSampler.

    `import dgl` also imports GraphBolt, whose libraries are built for the torch releases of its
    time. An empty module in its place leaves the sampler in DGL's own library as it is.
    """
    without_graphbolt()
    try:
        import dgl
    except (ImportError, OSError) as error:
        raise CannotRun(f"dgl cannot be imported: {error}") from None
    sources, destinations = torch.from_numpy(np.load(given.edges)).to(torch.int64)
    x = torch.from_numpy(np.load(given.features))
    graph = dgl.graph((sources, destinations), num_nodes=len(x))
    graph.ndata["x"] = x
    graph.create_formats_()  # before workers fork, as DGL advises
    sampler = dgl.dataloading.NeighborSampler(given.fanouts[::-1], prefetch_node_feats=["x"])
    loader = dgl.dataloading.DataLoader(
        graph,
        torch.from_numpy(np.load(given.seeds)),
        sampler,
        batch_size=given.batch_size,
        shuffle=True,
        num_workers=given.workers,
        persistent_workers=given.workers > 0,
    )

    def tensors(batch: Any) -> Iterator[torch.Tensor]:
        input_nodes, _, blocks = batch
        yield input_nodes
        yield blocks[0].srcdata["x"]
        for block in blocks:
            yield from block.edges()
            yield block.edata[dgl.EID]

    return loader, tensors


def without_graphbolt() -> None:
    class Missing:
        """Stands for every class of GraphBolt."""

    def missing(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Missing

    module = types.ModuleType("dgl.graphbolt")
    module.__getattr__ = missing  # type: ignore[method-assign]
    sys.modules[module.__name__] = module


LOADERS = {"ours": ours, "pyg": pyg, "torch-sparse": torch_sparse, "dgl": dgl}
PACKAGES = ("torch", "torch_geometric", "dgl", "numpy")


def versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    for path in Path(sys.prefix).glob("torch_sparse/VERSION"):
        found["torch_sparse"] = path.read_text()
    return found


def touch(tensor: torch.Tensor) -> float:
    """Read something of every cache line."""
    return float(tensor.reshape(-1)[:: LINE_BYTES // tensor.element_size()].sum())


def epoch(loader: Loader, tensors: Tensors) -> dict[str, float]:
    """Read one epoch; return its rate, and the bytes of a batch."""
    start, batches, nbytes = time.perf_counter(), 0, 0
    for batch in loader:
        for tensor in tensors(batch):
            touch(tensor)
            nbytes += tensor.nbytes
        batches += 1
    seconds = time.perf_counter() - start
    return {"batches_per_second": batches / seconds, "batch_megabytes": nbytes / batches / 2**20}


def say(message: Any) -> None:
    print(json.dumps(message), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("loader", choices=LOADERS)
    parser.add_argument("--edges", type=Path, required=True)
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument("--seeds", type=Path, required=True)
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--fanouts", type=int, nargs="+", required=True)
    parser.add_argument("--workers", type=int, required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)  # one consumer, one thread, for every loader
    warnings.filterwarnings("ignore")  # peers' own, about torch's newer names
    try:
        loader, tensors = LOADERS[given.loader](given)
    except CannotRun as error:
        say({"cannot": str(error)})
        return
    say({"versions": versions()})
    for _ in sys.stdin:
        say(epoch(loader, tensors))
    if callable(close := getattr(loader, "close", None)):
        close()


if __name__ == "__main__":
    main()
