"""Measure our NeighborLoader beside the loaders that people would use instead.

The same edges, features, seeds, fan-outs and batch size for all: 1024 seeds, fan-outs [15, 10, 5],
the feature rows of all nodes. Each loader is a process in an environment of its own under
build/peers, and reads whole epochs; every cache line of every tensor is read once. The two of a
pair take turns. Each figure is our rate over theirs, the median of the pairs, with quartiles.
Everything runs on one thread per process.

  pyg           PyG's NeighborLoader with the sampler that it finds after a plain installation
                from PyPI
  torch-sparse  PyG's NeighborLoader with the sampler of torch_sparse, which alone is built from its
                source distribution: the whole package takes many times as long
  dgl           DGL's DataLoader with its NeighborSampler, which fetches `x`. In each layer it
                samples anew for all nodes so far, so that its batches have more edges
  inline        without workers, on both sides
  two workers   with two worker processes, on both sides

pyg-lib, the sampler that PyG prefers, is not on PyPI and is not compared with here. Neither is
DGL's GraphBolt, whose libraries on PyPI are built for older releases of torch.

`batch_megabytes` is the mean size of all tensors of a batch. A peer that cannot run here is listed
with the reason. Absolute times mean little on a shared machine; the ratios are the result.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from kernels import FANOUTS, SEEDS, SIZES, WIDTH
from rmat import rmat_edges

PEERS = ("pyg", "torch-sparse", "dgl")
WORKERS = {"inline": 0, "two workers": 2}
SCRIPT = Path(__file__).parent / "peer_loaders.py"


class Loader:
    """A loader in a process of its own, which reads an epoch when it is asked to."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.about = self._answer()

    def epoch(self) -> dict[str, float]:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process of a loader ended: {self._process.wait()}")
        return json.loads(line)


@contextmanager
def started(
    python: Path | str, name: str, workers: int, files: dict[str, Path]
) -> Iterator[Loader]:
    options = [word for key, path in files.items() for word in (f"--{key}", str(path))]
    command = [str(python), str(SCRIPT), name, *options]
    command += ["--batch-size", str(SEEDS), "--workers", str(workers)]
    command += ["--fanouts", *map(str, FANOUTS)]
    # One thread each: peers would otherwise use the second core for one batch, we would not.
    environment = os.environ | {"OMP_NUM_THREADS": "1", "DGLBACKEND": "pytorch"}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            yield Loader(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(timeout=60)


def python_of(folder: Path, peer: str) -> Path | str:
    """Return the peer's interpreter. PyG as it is installed here needs no other environment."""
    return sys.executable if peer == "pyg" else folder / peer / "bin" / "python"


def against(peer: str, workers: int, given: argparse.Namespace, files: dict[str, Path]) -> Any:
    python = python_of(given.peers, peer)
    if not Path(python).exists():
        return {"cannot": f"{python} is missing: make {given.peers / peer}/.made"}
    with ExitStack() as stack:
        theirs = stack.enter_context(started(python, peer, workers, files))
        if "cannot" in theirs.about:
            return theirs.about
        ours = stack.enter_context(started(sys.executable, "ours", workers, files))
        for loader in (ours, theirs):
            loader.epoch()  # starts workers and maps memory
        pairs = [(ours.epoch(), theirs.epoch()) for _ in range(given.repeats)]
    rates = [(a["batches_per_second"], b["batches_per_second"]) for a, b in pairs]
    ratios = [a / b for a, b in rates]
    low, _, high = statistics.quantiles(ratios, n=4)
    return {
        "ratio": statistics.median(ratios),
        "quartiles": [low, high],
        "batches_per_second": statistics.median(a for a, _ in rates),
        "against": statistics.median(b for _, b in rates),
        "batch_megabytes": pairs[-1][0]["batch_megabytes"],
        "their_batch_megabytes": pairs[-1][1]["batch_megabytes"],
        "versions": theirs.about["versions"],
    }


def files_of(given: argparse.Namespace) -> dict[str, Path]:
    """Return the files of the graph and the seeds; make them if an earlier run did not."""
    num_nodes, num_edges = SIZES[given.small]
    names = f"rmat-{num_nodes}-{num_edges}", f"x-{num_nodes}-{WIDTH}"
    files = dict(
        zip(("edges", "features"), (given.folder / f"{n}.npy" for n in names), strict=True)
    )
    files["seeds"] = given.folder / f"seeds-{num_nodes}-{given.batches}.npy"
    rng = np.random.default_rng
    makers = {
        "edges": lambda: rmat_edges(num_nodes, num_edges),
        "features": lambda: rng(1).random((num_nodes, WIDTH), dtype=np.float32),
        "seeds": lambda: rng(7).permutation(num_nodes)[: given.batches * SEEDS],
    }
    given.folder.mkdir(parents=True, exist_ok=True)
    for name, path in files.items():
        if not path.exists():
            part = path.with_suffix(".part.npy")
            np.save(part, makers[name]())
            part.replace(path)
    return files


def shown(figure: dict[str, Any]) -> str:
    if "cannot" in figure:
        return f"not measured: {figure['cannot']}"
    low, high = figure["quartiles"]
    return (
        f"{figure['ratio']:.2f} (quartiles {low:.2f} to {high:.2f}; "
        f"{figure['batches_per_second']:.3g} over {figure['against']:.3g} batches per second, of "
        f"{figure['batch_megabytes']:.3g} and {figure['their_batch_megabytes']:.3g} MB)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--small", action="store_true", help="a small graph, for a quick look")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    parser.add_argument("--only", action="append", choices=PEERS, help="this; again for more")
    parser.add_argument("--batches", type=int, default=32, help="batches of an epoch")
    parser.add_argument("--repeats", type=int, default=7, help="pairs measured")
    parser.add_argument("--folder", type=Path, default=Path("build/bench"), help="keeps the graph")
    parser.add_argument("--peers", type=Path, default=Path("build/peers"), help="environments")
    given = parser.parse_args()
    files = files_of(given)
    result: dict[str, Any] = {}
    for peer in given.only or PEERS:
        for name, workers in WORKERS.items():
            figure = result[f"{peer}, {name}"] = against(peer, workers, given, files)
            if not given.json:
                print(f"{peer + ', ' + name:>26}: {shown(figure)}", flush=True)
    if given.json:
        print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
