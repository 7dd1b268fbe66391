"""Channels of a pool, each with a twin in this process that nothing ever happens to.

Batch i is a pure function, so whatever befalls workers, hub or ranks, what a channel delivers must
be what its twin makes: the same batches, in the same order, each once, byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import numpy as np

from penstock import Batch, Graph, NeighborSpec, SharedDistSamplingBackend
from penstock.sampling.digest import batch_digest
from penstock.sampling.spec import Spec

# Bounds for liveness only: a test that is well never comes near them.
PATIENCE_S = 60.0
SPEC = NeighborSpec(num_neighbors=(3, 2))
# Nobody that is well is ever taken for dead, however busy the machine: deaths can be counted.
PATIENT: dict[str, Any] = {"beat_every": 0.1, "silence": 600.0}
# A stopped or deaf worker is noticed soon. On a machine that is busy one that is well may be taken
# for it now and then, which costs nothing but its replacement: such deaths cannot be counted.
WATCHFUL: dict[str, Any] = {"beat_every": 0.1, "silence": 1.5}


def small_graph(num_nodes: int = 200, degree: int = 5) -> Graph:
    """A graph in shared memory, with features and labels."""
    random = np.random.default_rng(0)
    edges = random.integers(0, num_nodes, (2, num_nodes * degree))
    features = random.standard_normal((num_nodes, 4)).astype(np.float32)
    return Graph.from_coo(edges, num_nodes, x=features, y=np.arange(num_nodes))


class Twins:
    """A backend beside one that samples inline; every batch of the first is compared."""

    def __init__(self, backend: SharedDistSamplingBackend) -> None:
        self.backend = backend
        self.inline = SharedDistSamplingBackend(
            backend.graph, backend.sampling_config, num_workers=0
        )
        self.inline.init_backend()

    def register(self, name: str, num_inputs: int = 64, **channel_options: Any) -> None:
        """Opens a channel for the first nodes, four to a batch; it may lose many workers."""
        channel_options = {"batch_size": 4, "shuffle": True, "max_attempts": 20, **channel_options}
        self.backend.register_input(name, np.arange(num_inputs), **channel_options)
        self.inline.register_input(name, np.arange(num_inputs), **channel_options)

    def start(self, name: str, epoch: int) -> None:
        """Starts an epoch of both."""
        self.backend.start_new_epoch_sampling(name, epoch)
        self.inline.start_new_epoch_sampling(name, epoch)

    def next(self, name: str) -> Batch | None:
        """The next batch, which must be what its twin's is; None at the end of both."""
        expected = self.inline.next_batch(name)
        batch = self.backend.next_batch(name, PATIENCE_S)
        assert summary(batch) == summary(expected), f"channel {name!r}"
        return batch

    def finish(self, name: str) -> int:
        """Reads the epoch to its end; how many batches that were."""
        count = 0
        while self.next(name) is not None:
            count += 1
        assert self.backend.is_channel_epoch_done(name, self.backend.describe_channel(name).epoch)
        return count

    def read(self, name: str, epoch: int) -> int:
        """A whole epoch; how many batches it had."""
        self.start(name, epoch)
        return self.finish(name)

    def close(self) -> None:
        self.inline.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def summary(batch: Batch | None) -> tuple[int, int, int, str] | None:
    """What a batch is called and what it holds."""
    if batch is None:
        return None
    return batch.epoch, batch.step, batch.index, batch_digest(batch.arrays)


@contextmanager
def twins(spec: Spec = SPEC, workers: int = 2, **options: Any) -> Iterator[Twins]:
    """A pool of its own on a small graph, with its twin."""
    with small_graph() as graph:
        options = {**PATIENT, **options}
        backend = SharedDistSamplingBackend(graph, spec, num_workers=workers, **options)
        with backend, Twins(backend) as pair:
            yield pair
