"""Trains GraphSAGE on batches sampled by the kernels, and keeps account of the time.

One process, no loader: the plainest loop there is. Needs torch and PyG.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
from torch_geometric.nn import SAGEConv

from penstock.core.plan import EpochPlan
from penstock.graph import Graph
from penstock.kernels import gather_rows, permutation
from penstock.sampling import NeighborSampler

Ids = npt.NDArray[np.int64]
Tick = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Settings:
    epochs: int = 3
    batch_size: int = 512
    num_neighbors: tuple[int, ...] = (10, 5)
    hidden: int = 64
    learning_rate: float = 0.01
    seed: int = 0
    test_nodes: int = 20_000


@dataclass(slots=True)
class Clock:
    """Seconds spent, by what they were spent on."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def of(self, what: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[what] = self.seconds.get(what, 0.0) + time.perf_counter() - start


@dataclass(frozen=True, slots=True)
class Batch:
    x: torch.Tensor
    y: torch.Tensor
    edge_index: torch.Tensor


class Batches:
    """The batches of a list of nodes; batch i is a pure function of (seed, epoch, i)."""

    def __init__(self, graph: Graph, nodes: Ids, settings: Settings, clock: Clock) -> None:
        self._nodes = nodes
        self._seed = settings.seed
        self._clock = clock
        self._plan = EpochPlan(len(nodes), settings.batch_size)
        self._sampler = NeighborSampler(graph, settings.num_neighbors)
        self._x = graph.node_attribute("x")
        self._y = graph.node_attribute("y")

    def __len__(self) -> int:
        return self._plan.num_batches

    def epoch(self, epoch: int) -> Iterator[Batch]:
        for index in range(len(self)):
            yield self._batch(epoch, index)

    def _batch(self, epoch: int, index: int) -> Batch:
        with self._clock.of("sampling"):
            start, stop = self._plan.input_range(index)
            seeds = self._nodes[permutation(self._seed, epoch, len(self._nodes), start, stop)]
            sample = self._sampler.sample(
                seeds, seed=self._seed, epoch=epoch, index=index, with_edge_ids=False
            )
        with self._clock.of("gathering features"):
            x = gather_rows(self._x, sample.nodes[0])
            y = gather_rows(self._y, seeds)
        with self._clock.of("making tensors"):
            edge_index = torch.from_numpy(np.stack([sample.rows[0], sample.cols[0]]))
            return Batch(torch.from_numpy(x), torch.from_numpy(y), edge_index)


class GraphSage(torch.nn.Module):
    def __init__(self, width: int, hidden: int, classes: int, layers: int) -> None:
        super().__init__()
        sizes = [width, *[hidden] * (layers - 1), classes]
        self.convs = torch.nn.ModuleList(
            SAGEConv(size, next_size) for size, next_size in pairwise(sizes)
        )

    def forward(self, batch: Batch) -> torch.Tensor:
        """The logits of the batch's seeds, which are its first nodes."""
        h = batch.x
        for number, conv in enumerate(self.convs):
            h = conv(h, batch.edge_index)
            if number < len(self.convs) - 1:
                h = h.relu()
        return h[: len(batch.y)]


@dataclass(frozen=True, slots=True)
class Report:
    """What came of it."""

    accuracy: float
    chance: float
    losses: list[float]
    batches: int
    batches_per_second: float
    seconds: dict[str, float]


def train(graph: Graph, settings: Settings, tick: Tick = lambda: None) -> Report:
    """Trains, then tests; calls `tick` after every batch of `num_steps`."""
    torch.manual_seed(settings.seed)
    classes = int(graph.graph_attributes()["num_classes"])
    width = graph.node_attribute("x").shape[1]
    model = GraphSage(width, settings.hidden, classes, len(settings.num_neighbors))
    optimizer = torch.optim.Adam(model.parameters(), lr=settings.learning_rate)
    clock = Clock()
    batches = Batches(graph, graph.split("train"), settings, clock)
    start = time.perf_counter()
    losses = [
        _train_epoch(model, optimizer, batches.epoch(epoch), clock, tick)
        for epoch in range(settings.epochs)
    ]
    elapsed = time.perf_counter() - start
    accuracy = _test(model, graph, settings, tick)
    done = settings.epochs * len(batches)
    clock.seconds["other"] = elapsed - sum(clock.seconds.values())
    return Report(accuracy, 1 / classes, losses, done, done / elapsed, clock.seconds)


def num_steps(graph: Graph, settings: Settings) -> int:
    """How often `train` will tick."""
    per_epoch = EpochPlan(len(graph.split("train")), settings.batch_size).num_batches
    testing = EpochPlan(len(_test_nodes(graph, settings)), settings.batch_size).num_batches
    return settings.epochs * per_epoch + testing


def _train_epoch(
    model: GraphSage,
    optimizer: torch.optim.Optimizer,
    batches: Iterator[Batch],
    clock: Clock,
    tick: Tick,
) -> float:
    """The mean loss of an epoch."""
    losses = []
    model.train()
    for batch in batches:
        with clock.of("training"):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(batch), batch.y)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        losses.append(loss.item())
        tick()
    return float(np.mean(losses))


def _test_nodes(graph: Graph, settings: Settings) -> Ids:
    return graph.split("test")[: settings.test_nodes]


@torch.no_grad()
def _test(model: GraphSage, graph: Graph, settings: Settings, tick: Tick) -> float:
    """The share of test nodes told right."""
    model.eval()
    right = total = 0
    for batch in Batches(graph, _test_nodes(graph, settings), settings, Clock()).epoch(0):
        right += int((model(batch).argmax(dim=-1) == batch.y).sum())
        total += len(batch.y)
        tick()
    return right / total
