"""Measures how fast batches come to a GPU, beside a bare copy. It needs torch and PyG."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import chain, repeat
from typing import Any, Final

import torch

from penstock.client.hub.hub import Hub
from penstock.doctor.figures import Moving
from penstock.doctor.measure import FAN_OUTS, SEEDS, rates
from penstock.doctor.numbers import rounded
from penstock.loader.pyg.neighbor_loader import NeighborLoader

_BARE_BYTES: Final = 64 << 20
# The share of the time that is for bare copies.
_BARE_SHARE: Final = 0.2


def moving(hub: Hub, device: str, seconds: float) -> Moving:
    """Return how fast batches with their rows come to a device, from the workers of a hub."""
    options: dict[str, Any] = {"batch_size": SEEDS, "shuffle": True, "seed": 0, "device": device}
    with NeighborLoader(hub, [*FAN_OUTS], None, **options) as loader:
        epochs = chain.from_iterable(repeat(loader))
        batches, moved = rates(epochs, _bytes_of, (1 - _BARE_SHARE) * seconds)
    return Moving(batches, moved, _bare(torch.device(device), _BARE_SHARE * seconds))


def _bytes_of(batch: Any) -> int:
    """Return the bytes of all tensors of a batch."""
    values = (value for store in batch.stores for value in store.values())
    return sum(value.nbytes for value in values if isinstance(value, torch.Tensor))


def _bare(device: torch.device, seconds: float) -> float:
    """Return how many bytes a second a plain copy from page-locked memory brings there."""
    has_gpu = device.type == "cuda"
    here = torch.ones(_BARE_BYTES, dtype=torch.uint8, pin_memory=has_gpu)
    there = torch.empty(_BARE_BYTES, dtype=torch.uint8, device=device)
    wait: Callable[[], object] = torch.cuda.synchronize if has_gpu else lambda: None
    there.copy_(here, non_blocking=True)  # the first copy sets things up
    wait()
    began, copies = time.perf_counter(), 0
    while copies < 1 or time.perf_counter() - began < seconds:
        there.copy_(here, non_blocking=True)
        wait()
        copies += 1
    return rounded(copies * _BARE_BYTES / (time.perf_counter() - began), 3)
