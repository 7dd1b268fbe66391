"""What a GPU waits for: batches that are not there yet, copies that take long, or nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import penstock as ps
from tests.loader.device.standin import StandIn, StandInMark, stand_in_for_cuda
from tests.loader.epochs import small_data

STEPS, SAMPLING, COPYING = 20, 10.0, 1.0


@dataclass(eq=False)
class Clocked(StandIn):
    """A GPU that does all it is told at once, but for what the test says takes it longer."""

    now: float = 0.0
    busy_until: float = 0.0  # of the stream that the model is in

    def mark_in(self, stream: str) -> StandInMark:
        at = self.now if stream == "copies" else max(self.now, self.busy_until)
        return StandInMark(self, stream, at)

    def follow(self, mark: StandInMark) -> None:
        assert mark.at is not None
        self.busy_until = max(self.now, self.busy_until, mark.at)

    def compute(self, seconds: float) -> None:
        """Ask for work that takes so long; do not wait for it."""
        self.busy_until = max(self.now, self.busy_until) + seconds

    def copy_into(self, out: Any, tensor: Any) -> None:
        super().copy_into(out, tensor)
        self.finish()

    def finish(self) -> None:
        for queue in self._streams.values():
            while queue:
                self._do(queue.popleft())


class Slow:
    """A sampler that takes its time."""

    input_kind = "node"
    clock: Any = None

    def __init__(self, graph: ps.Graph) -> None:
        pass

    def sample(self, seeds: Any, **_: Any) -> dict[str, Any]:
        Slow.clock.now += SAMPLING
        none = np.empty((2, 0), np.int64)
        return {"n_id": seeds, "edge_index": none, "e_id": none[0]}


def waited(gpu: Clocked, model: float) -> tuple[float, float]:
    """Seconds that the GPU waited for batches and for copies, beside a model of so many a batch."""
    graph = ps.Graph.from_pyg(small_data())
    options: Any = {"input_nodes": np.arange(2 * STEPS), "batch_size": 2, "num_workers": 0}
    with graph, ps.CustomLoader(graph, Slow, device="cuda", device_prefetch=1, **options) as loader:
        for _ in loader:
            gpu.compute(model)
        found = loader.statistics().device
    assert found is not None
    return found.waited_for_batches, found.waited_for_copies


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Clocked:
    gpu = Clocked()
    stand_in_for_cuda(monkeypatch, gpu)
    monkeypatch.setattr(Slow, "clock", gpu)
    return gpu


def test_a_gpu_waits_for_batches_while_the_program_does(gpu: Clocked) -> None:
    """Two are made before the first is delivered; of the others, none is made beside the model."""
    batches, copies = waited(gpu, model=2.0)
    assert batches == pytest.approx((STEPS - 2) * (SAMPLING - 2.0))
    assert copies == 0.0


def test_a_gpu_that_has_enough_to_do_waits_for_nothing(gpu: Clocked) -> None:
    assert waited(gpu, model=2 * SAMPLING) == (0.0, 0.0)
