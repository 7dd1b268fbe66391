"""A custom sampler in NumPy: the nodes that random walks from each seed meet most often.

    python examples/custom_sampler.py

makes the batches of an epoch in this process, then in a pool of two workers, and shows that they
are the same. What a sampler must and must not do: docs/guides/custom-samplers.md.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

import penstock as ps
from penstock.kernels import batch_key
from penstock.sampling.digest import batch_digest

Ids = npt.NDArray[np.int64]


class Visited:
    """Each seed, and the `keep` nodes that `walks` walks of `length` steps from it meet most."""

    def __init__(self, graph: ps.Graph, *, walks: int = 8, length: int = 3, keep: int = 4) -> None:
        rows = graph.csc()
        self.first, self.degrees, self.neighbors = rows.indptr[:-1], rows.degrees, rows.indices
        self.walks, self.length, self.keep = walks, length, keep

    def sample(self, seeds: Ids, *, seed: int, epoch: int, index: int) -> dict[str, Ids]:
        # Random draws may depend on the batch's (seed, epoch, index) only.
        random = np.random.default_rng(batch_key(seed, epoch, index))
        here, met = np.repeat(seeds, self.walks), []
        for _ in range(self.length):
            chosen = random.integers(0, np.maximum(self.degrees[here], 1))
            can_go = self.degrees[here] > 0  # the others stay where they are
            here[can_go] = self.neighbors[(self.first[here] + chosen)[can_go]]
            met.append(here.copy())
        visits = np.stack(met).reshape(self.length, len(seeds), self.walks)
        found = [self._most_met(visits[:, place].ravel()) for place in range(len(seeds))]
        edges = [
            (node, at) for at, some in zip(seeds.tolist(), found, strict=True) for node in some
        ]
        # Seeds first, then every other node once, in the order it was found.
        nodes = dict.fromkeys([*seeds.tolist(), *(node for node, _ in edges)])
        places = {node: place for place, node in enumerate(nodes)}
        edge_index = [[places[edge[end]] for edge in edges] for end in (0, 1)]
        return {"n_id": np.array(list(nodes)), "edge_index": np.array(edge_index, np.int64)}

    def _most_met(self, visits: Ids) -> list[int]:
        nodes, times = np.unique(visits, return_counts=True)
        best: list[int] = nodes[np.lexsort((nodes, -times))][: self.keep].tolist()
        return best


def digests(graph: ps.Graph, num_workers: int) -> list[str]:
    """Return a digest of each batch of an epoch."""
    spec = ps.CustomSpec(sampler="__main__:Visited", options={"walks": 16, "keep": 5})
    with ps.SharedDistSamplingBackend(graph, spec, num_workers=num_workers) as backend:
        backend.register_input("train", None, batch_size=64, shuffle=True, seed=1)
        backend.start_new_epoch_sampling("train", 0)
        return [batch_digest(batch.arrays) for batch in backend.batches("train")]


def main() -> None:
    edges = np.random.default_rng(0).integers(0, 1000, (2, 8000))
    with ps.Graph.from_coo(edges, 1000) as graph:
        here, pooled = digests(graph, num_workers=0), digests(graph, num_workers=2)
    for index, pair in enumerate(zip(here, pooled, strict=True)):
        print(f"batch {index:2}:  inline {pair[0][:12]}  pool {pair[1][:12]}")
    if here != pooled:
        raise SystemExit("the digests differ")
    print("the same digests")


if __name__ == "__main__":  # workers import this file
    main()
