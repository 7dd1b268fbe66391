"""Memory that is not page-locked goes to the device through a few buffers that are."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.loader.device import staging
from penstock.loader.device.staging import BUFFERS, Staging
from tests.loader.device.standin import StandIn
from tests.loader.epochs import torch

SMALL = 1 << 12


@pytest.fixture(autouse=True)
def _small_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "BUFFER", SMALL)


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_what_arrives_is_what_was_there(seed: int | None) -> None:
    gpu = StandIn(seed)
    ring, make = Staging(gpu), torch.Generator().manual_seed(4)
    given: list[Any] = []
    for size in (1, 7, SMALL // 8, SMALL, 3 * SMALL, 20 * SMALL + 3, 5, 0):
        given.append(torch.randint(0, 1 << 40, (size,), generator=make))
        given.append(torch.randn(size, 2, generator=make).t())
        given.append(torch.randint(0, 2, (size,), generator=make) == 1)
    expected = [tensor.clone() for tensor in given]
    copies = []
    for tensor in given:
        copies.append(ring.copy(tensor))
        tensor.zero_()  # it may change as soon as `copy` returns
    gpu.run_until(gpu.mark())
    assert all(torch.equal(*pair) for pair in zip(copies, expected, strict=True))


def test_only_a_few_buffers_are_used_however_much_comes() -> None:
    gpu = StandIn()
    ring = Staging(gpu)
    for _ in range(10):
        ring.copy(torch.zeros(5 * SMALL, dtype=torch.uint8))
    assert len(gpu._own) == BUFFERS
    assert gpu.waits > 0


def test_small_tensors_share_a_buffer() -> None:
    gpu = StandIn()
    ring = Staging(gpu)
    for number in range(SMALL // 64):
        ring.copy(torch.tensor(number))
    assert len(gpu._own) == 1
    assert gpu.waits == 0


def test_rows_that_are_larger_than_a_buffer_come_whole() -> None:
    gpu = StandIn()
    rows = torch.arange(3 * 2 * SMALL, dtype=torch.uint8).view(3, 2 * SMALL)
    out = gpu.empty(rows.shape, rows.dtype)

    def write(room: Any, first: int, last: int) -> None:
        room.numpy()[:] = rows[first:last].view(-1)

    torch.set_default_device("meta")  # as some set "cuda"
    try:
        Staging(gpu).fill(out, write)
    finally:
        torch.set_default_device(None)
    gpu.run_until(gpu.mark())
    assert torch.equal(out, rows)
