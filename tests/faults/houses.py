"""A hub with a backend that behaves and others that do not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from penstock import Batch, CustomSpec, HubProcess, PenstockError, SharedDistSamplingBackend
from tests.faults.samplers import Moody
from tests.faults.twins import PATIENCE_S, PATIENT, SPEC, Twins, small_graph

MOODY = f"{Moody.__module__}:{Moody.__name__}"


@contextmanager
def house(**options: Any) -> Iterator[Twins]:
    """A hub, and a backend of built-in samplers in it with a channel "good"."""
    with small_graph() as graph:
        with HubProcess(graph, 1, **{**PATIENT, **options}) as hub:
            with SharedDistSamplingBackend(hub, SPEC) as backend, Twins(backend) as pair:
                pair.register("good")
                yield pair


def moody(pair: Twins, *acts: tuple[int, str], **options: Any) -> SharedDistSamplingBackend:
    """A backend in the same hub whose sampler has moods; it has not been started."""
    hub = pair.backend.hub
    assert hub is not None
    told = {"acts": {str(index): act for index, act in acts}, **options}
    spec = CustomSpec(sampler=MOODY, options=told)
    return SharedDistSamplingBackend(hub, spec, num_workers=1)


def group_name(pair: Twins) -> str:
    """What the one group of a user's sampler is called."""
    found = pair.backend.statistics().hub["scheduler"]["groups"]
    [name] = [group["group"] for group in found if group["group"]]
    return str(name)


def outcomes(
    backend: SharedDistSamplingBackend, batches: int = 8, epoch: int = 0, **channel_options: Any
) -> list[Batch | PenstockError]:
    """An epoch of a channel of its own: of each batch itself, or what became of it."""
    channel_options = {"batch_size": 4, "slots": 2, "max_attempts": 1, **channel_options}
    backend.register_input("bad", np.arange(4 * batches), **channel_options)
    backend.start_new_epoch_sampling("bad", epoch)
    found: list[Batch | PenstockError] = []
    while (outcome := _next(backend)) is not None:
        assert len(found) < batches
        found.append(outcome)
    backend.unregister_input("bad")
    assert len(found) == batches
    return found


def _next(backend: SharedDistSamplingBackend) -> Batch | PenstockError | None:
    try:
        return backend.next_batch("bad", PATIENCE_S)
    except PenstockError as error:
        return error


def errors_of(found: list[Batch | PenstockError]) -> dict[int, PenstockError]:
    """What went wrong, by index; whatever went well must be what `Moody` makes on a good day."""
    for index, outcome in enumerate(found):
        if isinstance(outcome, Batch):
            assert outcome.index == index
            assert outcome["mark"].tolist() == [index]
            assert outcome["n_id"].tolist() == list(range(4 * index, 4 * index + 4))
    return {index: found for index, found in enumerate(found) if isinstance(found, PenstockError)}
