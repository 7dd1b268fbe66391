"""Graphs, configurations and readers that the tests of the rank's side share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np

from penstock.client.backend import ChannelId, SharedDistSamplingBackend
from penstock.client.channel.batch import Batch
from penstock.client.channel.reader import Reader
from penstock.client.hub.hub import Hub
from penstock.client.hub.hub_process import HubProcess
from penstock.graph import Graph
from penstock.sampling.digest import batch_digest
from penstock.sampling.spec import NeighborSpec
from tests.processes import strike

NODES = 400
TRAIN = 240
BATCH = 16
STEPS = TRAIN // BATCH
SPEC = NeighborSpec(num_neighbors=(4, 3))
# Few slots, so that most of an epoch is still to be made when a test interferes.
TERMS: dict[str, Any] = {"batch_size": BATCH, "shuffle": True, "seed": 7, "slots": 4}
# How long a test waits for what must come: a bound for liveness, never a measure.
PATIENCE_S = 60.0


def small_graph(kind: str | None = None) -> Graph:
    """A few hundred nodes with features, labels and a split."""
    random = np.random.default_rng(5)
    return Graph.from_coo(
        random.integers(0, NODES, (2, 8 * NODES)),
        NODES,
        x=random.normal(size=(NODES, 6)).astype("float32"),
        y=random.integers(0, 4, NODES),
        train=random.permutation(NODES)[:TRAIN],
        kind=kind,
    )


def typed_graph() -> Graph:
    """Papers and authors."""
    random = np.random.default_rng(6)
    papers, authors = 120, 40
    return Graph.from_coo(
        {
            ("paper", "cites", "paper"): random.integers(0, papers, (2, 600)),
            ("author", "writes", "paper"): np.stack(
                [random.integers(0, authors, 300), random.integers(0, papers, 300)]
            ),
        },
        num_nodes={"paper": papers, "author": authors},
        x={"paper": random.normal(size=(papers, 4)).astype("float32")},
        train={"paper": np.arange(60)},
    )


@contextmanager
def backend_of(
    source: Graph | Hub, *args: Any, **options: Any
) -> Iterator[SharedDistSamplingBackend]:
    """A backend that is up, and shut down afterwards."""
    backend = SharedDistSamplingBackend(source, *(args or (SPEC,)), **options)
    try:
        backend.init_backend()
        yield backend
    finally:
        backend.shutdown()


def inline_or_of(
    pool: HubProcess, workers: int
) -> AbstractContextManager[SharedDistSamplingBackend]:
    """A backend that samples in this process, or one of the pool if it is to have workers."""
    return backend_of(pool) if workers else backend_of(pool.graph, num_workers=0)


def read(backend: SharedDistSamplingBackend, channel: ChannelId, epoch: int) -> list[Batch]:
    """Starts an epoch and takes all its batches, holding on to every one."""
    backend.start_new_epoch_sampling(channel, epoch)
    return list(rest(backend, channel))


def rest(backend: SharedDistSamplingBackend, channel: ChannelId) -> Iterator[Batch]:
    """What is left of an epoch; a batch that does not come is an error, not a hang."""
    while (batch := backend.next_batch(channel, timeout=PATIENCE_S)) is not None:
        yield batch


def digests(batches: Iterator[Batch] | list[Batch]) -> list[tuple[int, int, str]]:
    """Each batch in a few characters, with its step and its place in the list."""
    return [(batch.step, batch.index, batch_digest(batch.arrays)) for batch in batches]


def expected(
    graph: Graph, epoch: int = 0, spec: Any = SPEC, inputs: Any = "train", **channel_options: Any
) -> list[tuple[int, int, str]]:
    """What an epoch must give: sampled in this process, without any pool."""
    with backend_of(graph, spec, num_workers=0) as backend:
        backend.register_input("expected", inputs, **{**TERMS, **channel_options})
        backend.start_new_epoch_sampling("expected", epoch)
        return digests(rest(backend, "expected"))


def hub_of(backend: SharedDistSamplingBackend) -> HubProcess:
    """The hub a backend started."""
    assert isinstance(backend.hub, HubProcess)
    return backend.hub


def kill_hub(backend: SharedDistSamplingBackend) -> bool:
    """SIGKILL to the hub that a backend started, if one is up; whether it was."""
    return strike(hub_of(backend).pid)


def pids_of_workers(backend: SharedDistSamplingBackend) -> list[int]:
    """The processes of the pool."""
    return [worker["pid"] for worker in backend.statistics().hub["pool"]["workers"]]


def channel_of(backend: SharedDistSamplingBackend, channel: ChannelId) -> Reader:
    """The channel behind an id."""
    return backend._channels[channel]
