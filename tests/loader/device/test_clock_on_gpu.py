"""What a real GPU waits for, told by its own marks: only where there is one."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import penstock as ps
from tests.loader.device.sources import near, wide_graph
from tests.loader.epochs import small_data, torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
]
STEPS, SAMPLING = 25, 0.04
LONG = 100_000_000  # cycles of the GPU, about 50 ms: longer than a batch takes to be made


class Slow:
    """A sampler that takes its time."""

    input_kind = "node"

    def __init__(self, graph: ps.Graph) -> None:
        pass

    def sample(self, seeds: Any, **_: Any) -> dict[str, Any]:
        time.sleep(SAMPLING)
        none = np.empty((2, 0), np.int64)
        return {"n_id": seeds, "edge_index": none, "e_id": none[0]}


def test_a_gpu_with_a_slow_model_waits_for_nothing() -> None:
    with wide_graph(400) as graph, near(graph, num_workers=2, device="cuda") as loader:
        for batch in loader:
            torch.cuda._sleep(LONG)
            batch.x.sum()
        torch.cuda.synchronize()
        numbers = loader.statistics()
    assert numbers.verdict == "the GPU waits for nothing: your model is the bottleneck"
    assert numbers.device.waited_for_batches < 0.05 * numbers.seconds


def test_a_gpu_waits_for_batches_that_take_long_to_make() -> None:
    options: Any = {"input_nodes": np.arange(2 * STEPS), "batch_size": 2, "num_workers": 0}
    with ps.Graph.from_pyg(small_data()) as graph:
        with ps.CustomLoader(graph, Slow, device="cuda", device_prefetch=1, **options) as loader:
            for batch in loader:
                batch.n_id.sum()
            torch.cuda.synchronize()
            numbers = loader.statistics()
    assert numbers.verdict.startswith("the GPU waits for batches ")
    # All batches but those made before the first is delivered; the GPU has nothing else to do.
    assert numbers.device.waited_for_batches > (STEPS - 5) * SAMPLING
    assert numbers.device.waited_for_copies < 0.1 * numbers.device.waited_for_batches
