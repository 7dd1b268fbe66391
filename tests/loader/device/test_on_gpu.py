"""Batches on a real GPU, and in page-locked memory for it: only where there is one."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import psutil
import pytest

from tests.loader.epochs import NODES, Data, digests, everyday, small_data, torch, typed_data

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
]
# Longer than it takes to make the next batches: the copies wait on the GPU while slots and pinned
# memory are asked for again.
CYCLES = 4_000_000
MIB = 1 << 20


@pytest.fixture(scope="module")
def wide_data() -> Any:
    """Batches of it are of some megabytes, which take a GPU a moment to copy."""
    data = small_data()
    make = torch.Generator().manual_seed(8)
    return Data(
        x=torch.randn(NODES, 4000, generator=make),
        edge_index=data.edge_index,
        train_mask=data.train_mask,
    )


def tensors(batch: Any) -> dict[tuple[Any, str], Any]:
    """Every tensor of a batch, by store and name."""
    return {
        (store._key, name): value
        for store in batch.stores
        for name, value in store.items()
        if isinstance(value, torch.Tensor)
    }


def checksum(batch: Any) -> Any:
    """All bytes of a batch in one number, computed where the batch lies and not waited for."""
    total = 0
    for _, tensor in sorted(tensors(batch).items(), key=lambda entry: str(entry[0])):
        word = torch.int32 if tensor.element_size() >= 4 else torch.uint8
        words = tensor.contiguous().view(-1).view(word).to(torch.int64)
        places = torch.arange(1, len(words) + 1, device=words.device)
        total = 31 * total + (words * places).sum()
    return total


def on_gpu(loader: Any, epochs: int) -> list[int]:
    """The sum of each batch, moved at once and dropped at once, behind a GPU that is busy."""
    sums = []
    for _ in range(epochs):
        for batch in loader:
            torch.cuda._sleep(CYCLES)
            moved = batch.to("cuda", non_blocking=True)
            del batch
            sums.append(checksum(moved))
    return torch.stack(sums).tolist()


def here(loader: Any, epochs: int) -> list[int]:
    """The sum of each batch, as it is in memory."""
    return [int(checksum(batch)) for _ in range(epochs) for batch in loader]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("data", [small_data, typed_data])
def test_every_tensor_of_a_batch_is_pinned(data: Callable[[], Any], workers: int) -> None:
    options = {"num_workers": workers, "pin_memory": True}
    made = data()
    nodes = made.train_mask if isinstance(made, Data) else ("paper", made["paper"].train_mask)
    with everyday(made, input_nodes=nodes, **options) as loader:
        for batch in loader:
            # What is empty has no memory that could be pinned.
            found = {place: value for place, value in tensors(batch).items() if value.numel()}
            assert len(found) >= 5
            assert [place for place, value in found.items() if not value.is_pinned()] == []


@pytest.mark.parametrize("workers", [0, 2])
def test_pinned_batches_are_the_same_as_others(workers: int) -> None:
    options = {"num_workers": workers}
    with everyday(small_data(), **options) as plain:
        expected = [digests(plain) for _ in range(3)]
    with everyday(small_data(), pin_memory=True, **options) as loader:
        assert [digests(loader) for _ in range(3)] == expected
    with everyday(small_data(), pin_memory=True, **options) as loader:
        assert [digests(batch.to("cuda").cpu() for batch in loader) for _ in range(3)] == expected


@pytest.mark.parametrize("pin_memory", [True, False])
def test_a_batch_may_be_dropped_while_it_is_copied(wide_data: Any, pin_memory: bool) -> None:
    """The next ones lie elsewhere until the GPU has what it was told to copy."""
    options = {"num_workers": 2, "batch_size": 8, "prefetch": 4}
    epochs = 20
    with everyday(wide_data, **options) as plain:
        expected = here(plain, epochs)
    assert len(set(expected)) == len(expected)
    with everyday(wide_data, pin_memory=pin_memory, **options) as loader:
        assert on_gpu(loader, epochs) == expected
        assert loader.statistics().copied == 0  # not even one had to be copied aside


def test_a_batch_may_be_kept(wide_data: Any) -> None:
    with everyday(wide_data, num_workers=1, pin_memory=True, prefetch=4) as loader:
        kept = list(loader)
        sums = [int(checksum(batch)) for batch in kept]
    with everyday(wide_data) as plain:
        assert sums == here(plain, 1)


def test_memory_does_not_grow_with_the_epochs(wide_data: Any) -> None:
    me = psutil.Process()
    with everyday(wide_data, num_workers=1, pin_memory=True) as loader:
        on_gpu(loader, 5)
        gc.collect()
        before, on_device = me.memory_info().rss, torch.cuda.memory_allocated()
        on_gpu(loader, 20)
        gc.collect()
        assert torch.cuda.memory_allocated() <= on_device
        assert me.memory_info().rss - before < 64 * MIB


def test_what_a_transform_makes_of_a_batch_is_pinned() -> None:
    def transform(batch: Any) -> Any:
        return batch.x, {"label": batch.y, "name": "small"}, None

    with everyday(small_data(), pin_memory=True, transform=transform) as loader:
        for x, others, nothing in loader:
            assert x.is_pinned()
            assert others["label"].is_pinned()
            assert (others["name"], nothing) == ("small", None)


def test_what_lies_on_the_gpu_stays_there() -> None:
    data = small_data()
    data.x = data.x.cuda()
    with everyday(data, pin_memory=True) as loader:
        batch = next(iter(loader))
        assert batch.x.is_cuda
        assert torch.equal(batch.x.cpu(), data.x.cpu()[batch.n_id])
        assert batch.edge_index.is_pinned()


def test_an_epoch_can_be_left_and_gone_on_with() -> None:
    with everyday(small_data()) as plain:
        expected = digests(plain)
    with everyday(small_data(), num_workers=1, pin_memory=True) as loader:
        begun = digests(islice(loader, 4))
        state = loader.state_dict()
    with everyday(small_data(), num_workers=1, pin_memory=True) as loader:
        loader.load_state_dict(state)
        assert begun + digests(loader) == expected


@pytest.fixture(autouse=True)
def _nothing_is_under_way() -> Iterator[None]:
    yield
    torch.cuda.synchronize()
