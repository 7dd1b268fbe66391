"""An adversary looks for races on a real GPU, where there is one: what `test_races` does here.

A model sums all bytes of each batch when its turn comes in the GPU's stream. The sums are read in
the end: nothing else waits for the GPU.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests.loader.device.sources import SOURCES, STEPS, near, source_named, wide_graph
from tests.loader.device.test_on_gpu import checksum
from tests.loader.device.test_races import WAYS
from tests.loader.epochs import torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
]
# What a model adds to the time of each batch, in cycles of the GPU: none, and about 5 and 50 ms.
CYCLES = {"no time": 0, "some time": 10_000_000, "long": 100_000_000}


class Model:
    """Sums each batch behind so many cycles of work."""

    def __init__(self, cycles: int, *, moves: bool) -> None:
        self._cycles = cycles
        self._moves = moves
        self._sums: list[Any] = []

    def take(self, batch: Any) -> None:
        """Ask for its sum, and do not wait; the caller drops the batch at once."""
        if self._moves:
            batch = batch.to("cuda", non_blocking=True)
        assert batch.x.is_cuda
        if self._cycles:
            torch.cuda._sleep(self._cycles)
        self._sums.append(checksum(batch))

    def sums(self) -> list[int]:
        """The sums of all batches, once they are there."""
        return [int(each) for each in torch.stack(self._sums).tolist()] if self._sums else []


def model_of(way: str, pace: str) -> Model:
    return Model(CYCLES[pace], moves=way == "by the user")


@pytest.fixture(scope="module")
def graph() -> Iterator[Any]:
    # Batches of some megabytes, which take a moment to copy.
    with wide_graph(4000) as made:
        yield made


@pytest.fixture(scope="module")
def expected(graph: Any) -> list[list[int]]:
    """Some epochs, as they are in memory."""
    with near(graph) as loader:
        return [[int(checksum(batch)) for batch in loader] for _ in range(4)]


@pytest.fixture(autouse=True)
def _nothing_is_under_way() -> Iterator[None]:
    yield
    gc.collect()
    torch.cuda.synchronize()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("pace", CYCLES)
@pytest.mark.parametrize("workers", [0, 2])
def test_a_model_of_any_pace_sees_every_batch_whole(
    graph: Any, expected: list[list[int]], workers: int, pace: str, way: str
) -> None:
    """CONTRACT 75"""
    with near(graph, num_workers=workers, **WAYS[way]) as loader:
        for sums in expected[: 1 if pace == "long" else 4]:
            model = model_of(way, pace)
            for batch in loader:
                model.take(batch)
                del batch
            assert model.sums() == sums


@pytest.mark.parametrize("source", SOURCES[2:])
@pytest.mark.parametrize("way", ["copied", "by the user"])
def test_a_slow_model_sees_every_batch_whole_from_every_source(
    graph: Any, expected: list[list[int]], tmp_path: Path, way: str, source: str
) -> None:
    """CONTRACT 75"""
    with source_named(source, graph, tmp_path) as loader_of, loader_of(**WAYS[way]) as loader:
        for sums in expected[:2]:
            model = model_of(way, "some time")
            for batch in loader:
                model.take(batch)
                del batch
            assert model.sums() == sums


@pytest.mark.parametrize("way", WAYS)
def test_epochs_may_be_left_anywhere_with_copies_under_way(
    graph: Any, expected: list[list[int]], way: str
) -> None:
    """CONTRACT 75"""
    with near(graph, num_workers=2, **WAYS[way]) as loader:
        for taken in range(STEPS):
            loader.load_state_dict({**loader.state_dict(), "epoch": 1, "delivered": 0})
            model = model_of(way, "some time")
            for batch in islice(loader, taken):
                model.take(batch)
                del batch
            assert model.sums() == expected[1][:taken]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("ends", ["closed", "dropped"])
def test_loaders_may_be_closed_or_dropped_with_copies_under_way(
    graph: Any, expected: list[list[int]], ends: str, way: str
) -> None:
    """CONTRACT 75"""
    for _ in range(5):
        model = model_of(way, "some time")
        loader = near(graph, num_workers=2, **WAYS[way])
        iterator = iter(loader)
        for _ in range(4):
            model.take(next(iterator))
        if ends == "closed":
            loader.close()
        del loader, iterator
        gc.collect()
        assert model.sums() == expected[0][:4]


@pytest.mark.parametrize("way", WAYS)
def test_ten_thousand_batches_are_what_they_should_be(way: str) -> None:
    """CONTRACT 75"""
    epochs = -(-10_000 // STEPS)
    with wide_graph() as graph:
        with near(graph, num_workers=8) as loader:
            expected = [int(checksum(batch)) for _ in range(epochs) for batch in loader]
        with near(graph, num_workers=8, **WAYS[way]) as loader:
            model = model_of(way, "no time")
            for _ in range(epochs):
                for batch in loader:
                    model.take(batch)
                    del batch
    assert len(expected) >= 10_000
    assert model.sums() == expected
