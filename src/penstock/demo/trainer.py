"""A rank's work: train, test, and make another rank's batches again. Needs torch and PyG.

The first epoch is plain DDP: gradients are averaged at every step, so all ranks go in step. After
that each rank learns at its own pace, and models are averaged at the end of every epoch
("post-local SGD"): only then is it visible that a rank that pauses delays nobody but itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from penstock.client.hub.hub import Hub
from penstock.demo.model import GraphSage, labels_of
from penstock.demo.plan import Plan
from penstock.demo.subject import nodes_to_test
from penstock.demo.telling import Entered, FromRank, Learned, Proved, Stage, Tested, Trained
from penstock.graph import Graph
from penstock.loader.pyg.neighbor_loader import NeighborLoader
from penstock.sampling.digest import batch_digest

Tell = Callable[[FromRank], None]


class Trainer:
    """One rank of several.

    `hub` gives the batches to train on; `whole` is its graph, from which they are made again.
    `tell` reports to the parent; `pause` returns when the pause is over.
    """

    def __init__(
        self, plan: Plan, rank: int, hub: Hub, whole: Graph, tell: Tell, pause: Callable[[], None]
    ) -> None:
        self._plan = plan
        self._rank = rank
        self._hub = hub
        self._whole = whole
        self._tell = tell
        self._pause = pause
        torch.manual_seed(plan.seed)
        layers = len(plan.num_neighbors)
        self._model = GraphSage(plan.width, plan.hidden, plan.classes, layers)
        self._parallel = DistributedDataParallel(self._model)
        self._optimizer = torch.optim.Adam(self._model.parameters(), lr=plan.learning_rate)
        self._digests: list[str] = []

    def run(self) -> None:
        """Train, test, and make another rank's batches again."""
        self._train()
        self._enter(Stage.TESTING)
        self._test()
        self._enter(Stage.PROVING)
        other = (self._rank + 1) % self._plan.ranks
        self._tell(Proved(read=self._digests, other=other, made=self._made_again(other)))

    def _enter(self, stage: Stage) -> None:
        self._tell(Entered(stage=stage, at=time.monotonic()))

    # --- training ----------------------------------------------------------------------------

    def _train(self) -> None:
        with self._loader(self._hub, self._rank) as loader:
            for epoch in range(self._plan.epochs):
                stage = Stage.TOGETHER if epoch == 0 else Stage.ALONE
                self._enter(stage)
                losses = [
                    self._learn(batch, epoch, waited)
                    for batch, waited in self._paused(_timed(loader), epoch, stage)
                ]
                self._tell(Learned(epoch=epoch, loss=float(np.mean(losses))))
                if stage is Stage.ALONE:
                    self._enter(Stage.MEETING)
                    self._average()

    def _paused(
        self, batches: Iterator[tuple[Any, float]], epoch: int, stage: Stage
    ) -> Iterator[tuple[Any, float]]:
        """Yield the batches, with a pause among them where one is planned."""
        for step in range(self._plan.steps):
            if self._plan.pauses(self._rank, epoch, step):
                self._enter(Stage.PAUSED)
                self._pause()
                self._enter(stage)
            yield next(batches)
        assert next(batches, None) is None, "an epoch has more batches than planned"

    def _learn(self, batch: Any, epoch: int, waited: float) -> float:
        """Train on a batch and return its loss."""
        self._digests.append(digest_of(batch))
        self._optimizer.zero_grad()
        with nullcontext() if epoch == 0 else self._parallel.no_sync():
            loss = torch.nn.functional.cross_entropy(self._parallel(batch), labels_of(batch))
            loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        self._tell(Trained(epoch=epoch, at=time.monotonic(), waited=waited))
        return loss.item()

    def _average(self) -> None:
        """Set every rank's model to the mean of all models."""
        mean = parameters_to_vector(self._model.parameters()).detach()
        dist.all_reduce(mean)
        vector_to_parameters(mean / self._plan.ranks, self._model.parameters())

    def _loader(self, source: Any, rank: int, **options: Any) -> NeighborLoader:
        """Return a loader of a rank's batches; they are the same, whoever makes them."""
        plan = self._plan
        return NeighborLoader(
            source,
            list(plan.num_neighbors),
            input_nodes=self._hub.graph.split("train"),
            batch_size=plan.batch_size,
            shuffle=True,
            seed=plan.seed,
            rank=rank,
            world_size=plan.ranks,
            **options,
        )

    # --- afterwards --------------------------------------------------------------------------

    @torch.no_grad()
    def _test(self) -> None:
        """Report how many of this rank's share of test nodes are classified correctly."""
        self._model.eval()
        nodes = nodes_to_test(self._hub.graph)[self._rank :: self._plan.ranks]
        right = 0
        with NeighborLoader(
            self._hub,
            list(self._plan.num_neighbors),
            input_nodes=nodes,
            batch_size=2 * self._plan.batch_size,
            seed=self._plan.seed,
            rank=0,
            world_size=1,
        ) as loader:
            for batch in loader if len(nodes) else ():
                right += int((self._model(batch).argmax(dim=-1) == labels_of(batch)).sum())
        self._tell(Tested(right=right, total=len(nodes)))

    def _made_again(self, rank: int) -> list[str]:
        """Return digests of a rank's batches of all epochs, made here, without hub or workers."""
        with self._loader(self._whole, rank, num_workers=0) as loader:
            return [digest_of(batch) for _ in range(self._plan.epochs) for batch in loader]


def _timed(batches: Any) -> Iterator[tuple[Any, float]]:
    """Yield batches, and how long each was waited for."""
    iterator = iter(batches)
    while True:
        began = time.perf_counter()
        try:
            batch = next(iterator)
        except StopIteration:
            return
        yield batch, time.perf_counter() - began


def digest_of(batch: Any) -> str:
    """Return a digest of a batch: every tensor, byte for byte, and everything else in it."""
    return batch_digest({name: _bytes_of(value) for name, value in batch.to_dict().items()})


def _bytes_of(value: Any) -> np.ndarray[Any, Any]:
    if not isinstance(value, torch.Tensor):
        return np.frombuffer(repr(value).encode(), np.uint8)
    if value.dtype is torch.bfloat16:
        value = value.view(torch.int16)
    array: np.ndarray[Any, Any] = value.contiguous().numpy()
    return array
