"""Samples an epoch by a worker process and in its own; both give the same bytes.

Run with whatever `penstock` is installed, without torch: `python tests/wheel/first_batches.py`.
Prints as JSON which modules were loaded, by itself and by the worker.
"""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np

import penstock as ps
from penstock.kernels import _native, simd


def modules_of(pid: int) -> list[str]:
    """The native modules of ours that a process has loaded."""
    with open(f"/proc/{pid}/maps") as maps:
        return sorted({line.split()[-1] for line in maps if "/kernels/_native" in line})


def epoch(graph: ps.Graph, num_workers: int) -> tuple[list[bytes], dict[str, list[Any]]]:
    """An epoch's batches; the workers, and what they loaded."""
    spec = ps.NeighborSpec(num_neighbors=(5, 3))
    with ps.SharedDistSamplingBackend(graph, spec, num_workers=num_workers) as backend:
        backend.register_input("train", "train", batch_size=100, shuffle=True, seed=0)
        backend.start_new_epoch_sampling("train", 0)
        made = [
            b"".join(batch[name].tobytes() for name in sorted(batch))
            for batch in backend.batches("train")
        ]
        pool = backend.statistics().hub["pool"]["workers"] if num_workers else []
        workers = [worker["pid"] for worker in pool]
        modules = [module for pid in workers for module in modules_of(pid)]
        return made, {"workers": workers, "modules of workers": modules}


def main() -> None:
    random = np.random.default_rng(0)
    x = random.standard_normal((1000, 4), dtype=np.float32)
    edges = random.integers(0, 1000, (2, 8000))
    with ps.Graph.from_coo(edges, num_nodes=1000, x=x, train=np.arange(500)) as graph:
        here, _ = epoch(graph, 0)
        there, workers = epoch(graph, 1)
    assert len(here) == 5
    assert here == there
    said = {"pid": os.getpid(), "package": ps.__file__, "module": _native.__file__}
    print(json.dumps(said | workers | {"simd": str(simd())}))


if __name__ == "__main__":
    main()
