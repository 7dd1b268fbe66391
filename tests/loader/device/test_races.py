"""An adversary looks for races: slow models and fast ones, breaks, interrupts, errors, closing.

The stand-in copies when it is worst. A batch is judged by what the model sees when its turn comes
in the stream of the GPU, not by what is there when it is delivered.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from penstock.testing.digests import digest_of
from tests.loader.device.paces import (
    PACES,
    Model,
    PacedGpu,
    Struck,
    stand_in_with,
    torch_pins_with,
)
from tests.loader.device.sources import SOURCES, STEPS, near, source_named, wide_graph
from tests.loader.pools import pools_kept
from tests.processes import until

pytestmark = pytest.mark.usefixtures("no_leaks")

# How batches come to the device, and what rows are there already.
WAYS: dict[str, dict[str, Any]] = {
    "copied": {"device": "cuda"},
    "one ahead": {"device": "cuda", "device_prefetch": 1},
    "all rows there": {"features": "cuda"},
    "some rows there": {"device": "cuda", "feature_cache": 100 * 1214},
    "by the user": {"pin_memory": True},
}
EPOCHS = 3
# Interrupts for each way and pace; `make soak` strikes at every call.
AT_MOST = 12


@pytest.fixture(scope="module")
def graph() -> Iterator[Any]:
    with wide_graph() as made, pools_kept(made):
        yield made


@pytest.fixture(scope="module")
def expected(graph: Any) -> list[list[str]]:
    """Some epochs as they are without a device."""
    with near(graph) as loader:
        return [[digest_of(batch) for batch in loader] for _ in range(EPOCHS)]


@contextmanager
def paced(monkeypatch: pytest.MonkeyPatch, pace: str) -> Iterator[PacedGpu]:
    """A GPU that all loaders find; in the end nothing of theirs is left."""
    gpu = PacedGpu(pace=pace)
    stand_in_with(monkeypatch, lambda: gpu)
    torch_pins_with(monkeypatch, gpu)
    yield gpu
    settled(gpu)


def settled(gpu: PacedGpu) -> None:
    """Wait until all memory of loaders is gone: the thread for connections lets go of it last."""
    gpu.finish()
    until(lambda: gc.collect() >= 0 and not gpu.locked, "all memory is unlocked")
    gpu.check_settled()


def trained(loader: Any, gpu: PacedGpu, way: str, epochs: int = EPOCHS) -> list[list[str]]:
    """What a model saw of some epochs; batches are dropped as soon as they were asked for."""
    model = Model(gpu)
    take = model.move_and_take if way == "by the user" else model.take
    for _ in range(epochs):
        for batch in loader:
            take(batch)
            del batch
        gpu.check_mapped()
    seen = model.seen
    return [seen[at : at + STEPS] for at in range(0, epochs * STEPS, STEPS)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("pace", PACES)
@pytest.mark.parametrize("workers", [0, 2])
def test_a_model_of_any_pace_sees_every_batch_whole(
    graph: Any,
    expected: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
    workers: int,
    pace: str,
    way: str,
) -> None:
    """CONTRACT 75"""
    with paced(monkeypatch, pace) as gpu:
        with near(graph, num_workers=workers, **WAYS[way]) as loader:
            assert trained(loader, gpu, way) == expected
        del loader


@pytest.mark.parametrize("source", SOURCES[2:])
def test_a_slow_model_sees_every_batch_whole_from_every_source(
    graph: Any,
    expected: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    source: str,
) -> None:
    """CONTRACT 75"""
    with source_named(source, graph, tmp_path) as loader_of:
        for way in ("copied", "by the user"):
            with paced(monkeypatch, "late") as gpu:
                with loader_of(**WAYS[way]) as loader:
                    assert trained(loader, gpu, way) == expected
                del loader


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("pace", PACES)
def test_epochs_may_be_left_anywhere_with_copies_under_way(
    graph: Any, expected: list[list[str]], monkeypatch: pytest.MonkeyPatch, pace: str, way: str
) -> None:
    """CONTRACT 75"""
    with paced(monkeypatch, pace) as gpu:
        with near(graph, num_workers=1, **WAYS[way]) as loader:
            for taken in range(5):
                loader.load_state_dict({**loader.state_dict(), "epoch": 1, "delivered": 0})
                model = Model(gpu)
                take = model.move_and_take if way == "by the user" else model.take
                for batch in islice(loader, taken):
                    take(batch)
                    del batch
                assert model.seen == expected[1][:taken]
            loader.set_epoch(2)
            assert trained(loader, gpu, way, 1) == expected[2:]
        del loader


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("pace", PACES)
def test_loaders_may_be_closed_or_dropped_with_copies_under_way(
    graph: Any, expected: list[list[str]], monkeypatch: pytest.MonkeyPatch, pace: str, way: str
) -> None:
    """CONTRACT 75"""
    with paced(monkeypatch, pace) as gpu:
        for ends in ("closed", "dropped", "dropped while it is read"):
            model = Model(gpu)
            take = model.move_and_take if way == "by the user" else model.take
            loader = near(graph, num_workers=1, **WAYS[way])
            iterator = iter(loader)
            for _ in range(3):
                take(next(iterator))
            if ends == "closed":
                loader.close()
            elif ends == "dropped":
                del iterator
                gc.collect()
            del loader
            iterator = None
            gc.collect()
            assert model.seen == expected[0][:3]


class Interrupting:
    """Interrupts at one of the calls of a GPU, once."""

    def __init__(self, at: int) -> None:
        self._at = at
        self.struck = ""

    def __call__(self, number: int, name: str) -> None:
        if number == self._at:
            self.struck = name
            raise KeyboardInterrupt


def struck(monkeypatch: pytest.MonkeyPatch, gpu: PacedGpu, strikes: Callable[..., None]) -> Struck:
    """Let loaders find this GPU, with strikes at its calls."""
    one = Struck(gpu, strikes)
    stand_in_with(monkeypatch, lambda: one)
    torch_pins_with(monkeypatch, one)
    return one


def read_on(graph: Any, gpu: PacedGpu, way: str) -> list[str]:
    """What a model saw of one epoch, read on after each interrupt; the loader is closed again."""
    model, loader = Model(gpu), near(graph, num_workers=0, **WAYS[way])
    take = model.move_and_take if way == "by the user" else model.take
    while len(model) < STEPS:
        try:
            for batch in loader:
                take(batch)
                batch = None
        except KeyboardInterrupt:
            state = loader.state_dict()
            if state["epoch"]:  # all of the first one were delivered
                break
            # A batch that was delivered when the interrupt came is the user's loss or gain.
            model.forget_all_but(state["delivered"])
            loader.load_state_dict({**state, "delivered": len(model)})
    try:
        loader.close()
    except KeyboardInterrupt:
        loader.close()
    return model.seen


def _ignore_interrupts(hook: Callable[[Any], None]) -> Callable[[Any], None]:
    """Return a hook that keeps nothing of interrupts in finalizers, which Python only prints."""
    return lambda seen: None if seen.exc_type is KeyboardInterrupt else hook(seen)


def interrupted(
    graph: Any, monkeypatch: pytest.MonkeyPatch, pace: str, way: str, most: int
) -> Iterator[tuple[str, list[str]]]:
    """Yield what models saw that were interrupted at one of so many calls of the GPU, and which."""
    monkeypatch.setattr(sys, "unraisablehook", _ignore_interrupts(sys.unraisablehook))
    counting = struck(monkeypatch, PacedGpu(pace=pace), lambda number, name: None)
    yield "nothing", read_on(graph, counting.gpu, way)
    gc.collect()
    for at in range(1, counting.points, max(1, counting.points // most)):
        gpu = PacedGpu(pace=pace)
        strikes = Interrupting(at)
        struck(monkeypatch, gpu, strikes)
        seen = read_on(graph, gpu, way)
        yield strikes.struck, seen
        settled(gpu)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("pace", ["late", "by chance"])
def test_an_interrupt_at_any_call_of_the_gpu_loses_nothing(
    graph: Any, expected: list[list[str]], monkeypatch: pytest.MonkeyPatch, pace: str, way: str
) -> None:
    """CONTRACT 76"""
    names = set()
    for name, seen in interrupted(graph, monkeypatch, pace, way, AT_MOST):
        assert seen == expected[0], f"after an interrupt at {name}"
        names.add(name)
    assert len(names) > 3


@pytest.mark.soak
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("pace", ["late", "by chance"])
def test_an_interrupt_at_every_call_of_the_gpu_loses_nothing(
    graph: Any, expected: list[list[str]], monkeypatch: pytest.MonkeyPatch, pace: str, way: str
) -> None:
    """CONTRACT 76"""
    for name, seen in interrupted(graph, monkeypatch, pace, way, 1 << 30):
        assert seen == expected[0], f"after an interrupt at {name}"
