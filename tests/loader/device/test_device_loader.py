"""Batches on a device, with a stand-in for the GPU that copies as late as it may."""

from __future__ import annotations

import gc
import os
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from typing import Any

import numpy as np
import pytest

import penstock as ps
from tests.loader.device.standin import StandIn, stand_in_for_cuda
from tests.loader.epochs import (
    NODES,
    Data,
    digest,
    digests,
    everyday,
    pyg,
    small_data,
    torch,
    typed_data,
)
from tests.loader.pools import pools_kept

pytestmark = pytest.mark.usefixtures("no_leaks")

both = pytest.mark.parametrize("workers", [0, 2])


@pytest.fixture(params=[None, 1], ids=["late", "by chance"])
def gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    gpu = StandIn(request.param)
    stand_in_for_cuda(monkeypatch, gpu)
    return gpu


def wide_data() -> Any:
    """Batches of it are so large that their slots are used again and again."""
    data = small_data()
    make = torch.Generator().manual_seed(8)
    data.x = torch.randn(NODES, 500, generator=make)
    return data


@pytest.fixture(scope="module", autouse=True)
def _pools() -> Iterator[None]:
    with pools_kept(wide_data(), typed_data()):
        yield


@both
def test_batches_on_a_device_are_the_same_in_the_same_order(gpu: StandIn, workers: int) -> None:
    """CONTRACT 75"""
    with everyday(wide_data()) as plain:
        expected = [digests(plain) for _ in range(4)]
    options = {"num_workers": workers, "batch_size": 16}
    with everyday(wide_data(), device="cuda", **options) as loader:
        assert [digests(loader) for _ in range(4)] == expected
    assert gpu.copied > 0


def test_ranks_of_a_hub_have_their_batches_on_their_devices(gpu: StandIn) -> None:
    """CONTRACT 75"""

    def loaders(stack: ExitStack, **options: Any) -> list[Any]:
        ranks = ({"rank": rank, "world_size": 2, "num_workers": 2} for rank in range(2))
        return [stack.enter_context(everyday(wide_data(), **options, **each)) for each in ranks]

    def in_turn(stack: ExitStack, **options: Any) -> list[str]:
        pairs = zip(*loaders(stack, **options), strict=True)
        return [digest(batch) for pair in pairs for batch in pair]

    with ExitStack() as stack:
        expected = in_turn(stack)
        assert in_turn(stack, device="cuda") == expected
        assert in_turn(stack, features="cuda") == expected
    assert gpu.copied > 0


def test_batches_with_types_are_the_same(gpu: StandIn) -> None:
    options = {"input_nodes": ("paper", None), "num_workers": 1}
    with everyday(typed_data(), **options) as plain:
        expected = digests(plain)
    with everyday(typed_data(), device="cuda", **options) as loader:
        assert digests(loader) == expected


def test_what_is_in_slots_is_not_copied_on_the_host(gpu: StandIn) -> None:
    """CONTRACT 75"""
    options = {"num_workers": 2, "input_nodes": None}
    with everyday(wide_data(), device="cuda", **options) as loader:
        moved = sum(batch.x.nbytes for batch in loader)
        statistics = loader.statistics().device
        assert statistics is not None
        assert statistics.bytes > moved
        assert statistics.staged == 0


def test_ranges_are_page_locked_once(gpu: StandIn) -> None:
    with everyday(wide_data(), device="cuda", num_workers=2, prefetch=4) as loader:
        for _ in range(3):
            digests(loader)
        before = gpu.registered
        for _ in range(5):
            digests(loader)
        # Batches differ in size: now and then one is larger than any in its slot before.
        assert gpu.registered - before <= before
        assert loader.statistics().device.pinned == gpu.nbytes > 0
    del loader
    gc.collect()
    assert gpu.locked == {}


def test_without_room_to_page_lock_batches_come_all_the_same(gpu: StandIn) -> None:
    """CONTRACT 76"""
    gpu.most_bytes = 1 << 20
    with everyday(wide_data()) as plain:
        expected = digests(plain)
    with everyday(wide_data(), device="cuda", num_workers=2) as loader:
        assert digests(loader) == expected
        assert loader.statistics().device.staged > 0


@both
def test_an_epoch_may_be_left_in_the_middle(gpu: StandIn, workers: int) -> None:
    with everyday(wide_data()) as plain:
        epochs = [digests(plain) for _ in range(3)]
    with everyday(wide_data(), device="cuda", num_workers=workers) as loader:
        assert digests(islice(loader, 3)) == epochs[0][:3]
        state = loader.state_dict()
        assert digests(loader) == epochs[1]
        loader.load_state_dict(state)
        assert digests(loader) == epochs[0][3:]
    with everyday(wide_data(), device="cuda", num_workers=workers) as loader:
        iterator = iter(loader)
        next(iterator)
        del iterator
    assert gpu.unread == 0


def test_a_loader_may_be_dropped_while_batches_are_copied(gpu: StandIn) -> None:
    loader = everyday(wide_data(), device="cuda", num_workers=2)
    iterator = iter(loader)
    next(iterator)
    del loader, iterator
    gc.collect()
    assert gpu.unread == 0
    assert gpu.locked == {}


def test_what_is_ahead_was_not_delivered(gpu: StandIn) -> None:
    with everyday(wide_data()) as plain:
        expected = digests(plain)
    with everyday(wide_data(), device="cuda") as loader:
        iterator = iter(loader)
        for step in range(1, 5):
            next(iterator)
            assert loader.state_dict()["delivered"] == step
            assert len(iterator._ahead) >= 1
        state = loader.state_dict()
        loader.load_state_dict(state)
        assert digests(loader) == expected[4:]


def test_as_many_are_ahead_as_the_budget_allows(gpu: StandIn) -> None:
    def ahead(**options: Any) -> int:
        with everyday(wide_data(), device="cuda", **options) as loader:
            iterator = iter(loader)
            next(iterator)
            return len(iterator._ahead)

    assert ahead(device_prefetch=1) == 1
    assert ahead(device_prefetch="1MB") > 1
    assert ahead(device_prefetch="1GB") == 8


def test_all_batches_may_be_kept(gpu: StandIn) -> None:
    with everyday(wide_data()) as plain:
        expected = digests(plain)
    with everyday(wide_data(), device="cuda", num_workers=2, prefetch=4) as loader:
        kept = list(loader)
        assert digests(kept) == expected
        assert loader.statistics().copied == 0  # no slot was held by them


def test_a_transform_sees_a_batch_on_the_device(gpu: StandIn) -> None:
    seen = deque[Any]()

    def transform(batch: Any) -> Any:
        seen.append(batch.x.clone())
        batch.sums = batch.x.sum(1)
        return batch

    with everyday(wide_data()) as plain:
        expected = [batch.x for batch in plain]
    with everyday(wide_data(), device="cuda", transform=transform) as loader:
        for batch, x in zip(loader, expected, strict=True):
            assert torch.equal(batch.sums, x.sum(1))
            assert torch.equal(seen.popleft(), x)


def test_an_error_in_a_transform_names_its_batch_and_the_next_one_comes(gpu: StandIn) -> None:
    def transform(batch: Any) -> Any:
        if int(batch.input_id[0]) == third:
            raise KeyError("no such thing")
        return batch

    with everyday(wide_data(), input_nodes=None, shuffle=False) as plain:
        batches = list(plain)
    third, expected = int(batches[2].input_id[0]), digests(batches)
    options = {"input_nodes": None, "shuffle": False, "transform": transform}
    with everyday(wide_data(), device="cuda", num_workers=2, **options) as loader:
        iterator = iter(loader)
        got = digests(islice(iterator, 2))
        with pytest.raises(KeyError, match="no such thing") as raised:
            next(iterator)
        assert "step 2" in str(raised.value.__notes__)
        assert got + digests(iterator) == expected[:2] + expected[3:]
        assert loader.statistics().failed == 1


def test_tensors_of_a_users_classes_stay_what_they_are(gpu: StandIn) -> None:
    class Marked(torch.Tensor):
        pass

    class Own(ps.NeighborLoader):
        def filter_fn(self, out: Any) -> Any:
            batch = super().filter_fn(out)
            batch.edge_index = pyg.EdgeIndex(batch.edge_index, sparse_size=2 * (batch.num_nodes,))
            batch.marked = torch.arange(3).as_subclass(Marked)
            return batch

    with Own(wide_data(), [4], batch_size=16, device="cuda") as loader:
        batch = next(iter(loader))
        assert type(batch.edge_index) is pyg.EdgeIndex
        assert batch.edge_index.sparse_size() == 2 * (batch.num_nodes,)
        assert type(batch.marked) is Marked


def test_what_a_users_collate_fn_makes_is_not_made_ahead(gpu: StandIn) -> None:
    asked = []

    class Own(ps.NeighborLoader):
        def collate_fn(self, index: Any) -> Any:
            asked.append(index)
            return index

    with Own(small_data(), [4], batch_size=16, device="cuda", num_workers=0) as loader:
        for step, _ in zip(range(1, 4), loader, strict=False):
            assert len(asked) == step


def test_links_and_their_labels_are_moved(gpu: StandIn) -> None:
    data = wide_data()
    options = {"batch_size": 16, "neg_sampling": "binary", "shuffle": True, "seed": 3}
    with ps.LinkNeighborLoader(data, [4, 3], data.edge_index[:, :300], **options) as plain:
        expected = digests(plain)
    with ps.LinkNeighborLoader(
        data, [4, 3], data.edge_index[:, :300], device="cuda", num_workers=1, **options
    ) as loader:
        assert digests(loader) == expected


# --- pin_memory: the user copies ---------------------------------------------------------------


@both
def test_pinned_batches_lie_in_page_locked_memory(gpu: StandIn, workers: int) -> None:
    with everyday(wide_data()) as plain:
        expected = [digests(plain) for _ in range(2)]
    with everyday(
        wide_data(), pin_memory=True, num_workers=workers, transform=_all_pinned(gpu)
    ) as loader:
        assert [digests(loader) for _ in range(2)] == expected


def _all_pinned(gpu: StandIn) -> Any:
    def look(batch: Any) -> Any:
        assert gpu.is_pinned(batch.x)
        assert gpu.is_pinned(batch.edge_index)
        batch.input_id = batch.input_id  # which is not in the slot: the loader makes it of a mask
        return batch

    return look


@pytest.fixture
def pinned_by_torch(monkeypatch: pytest.MonkeyPatch, gpu: StandIn) -> None:
    def pin_memory(tensor: Any) -> Any:
        return gpu.pinned(tensor.nbytes).view(tensor.dtype).view(tensor.shape).copy_(tensor)

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin_memory)


@pytest.fixture(autouse=True)
def _torch_pins(pinned_by_torch: None) -> None:
    """Torch itself has no GPU to page-lock memory for."""


@both
def test_a_dropped_batch_stays_until_the_users_copies_have_read_it(
    gpu: StandIn, workers: int
) -> None:
    """CONTRACT 75"""
    with everyday(wide_data()) as plain:
        expected = [batch.x.clone() for _ in range(4) for batch in plain]
    copies = []
    with everyday(wide_data(), pin_memory=True, num_workers=workers, prefetch=4) as loader:
        for _ in range(4):
            for batch in loader:
                copies.append(gpu.copy(batch.x))
                del batch
        assert loader.statistics().copied == 0
    gpu.run_until(gpu.mark_in("current"))
    assert all(torch.equal(*pair) for pair in zip(copies, expected, strict=True))


def test_a_batch_that_outlives_its_loader_stays_until_it_was_read(gpu: StandIn) -> None:
    with everyday(wide_data()) as plain:
        expected = next(iter(plain)).x.clone()
    loader = everyday(wide_data(), pin_memory=True, num_workers=1)
    batch = next(iter(loader))
    loader.close()
    del loader
    gc.collect()
    copy = gpu.copy(batch.x)
    del batch
    gc.collect()
    assert torch.equal(copy, expected)
    assert gpu.locked == {}


def test_a_batch_that_outlives_its_loader_may_be_dropped_in_a_fork(
    gpu: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CONTRACT 76"""
    parent = os.getpid()

    def user_marks() -> list[Any]:
        if os.getpid() != parent:
            raise RuntimeError("Cannot re-initialize CUDA in forked subprocess")
        return []

    monkeypatch.setattr(gpu, "user_marks", user_marks)
    with everyday(wide_data(), pin_memory=True) as loader:
        batch = next(iter(loader))
    child = os.fork()
    if not child:
        monkeypatch.setattr(sys, "unraisablehook", lambda _: os._exit(1))
        del batch
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("options", [{}, {"device": "cpu"}])
def test_the_hub_is_told_that_slots_are_page_locked(gpu: StandIn, options: Any) -> None:
    """CONTRACT 75"""
    with everyday(wide_data(), pin_memory=True, num_workers=1, **options) as loader:
        next(iter(loader))
        assert gpu.nbytes > 0
        assert loader._batches_from._channel.registration.options.keep_pages


def test_views_of_a_pinned_batch_keep_it(gpu: StandIn) -> None:
    with everyday(wide_data(), pin_memory=True, num_workers=1, prefetch=4) as loader:
        kept = [batch.x[3:5].t() for batch in loader]
        rows = [tensor.clone() for tensor in kept]
        for _ in loader:
            pass
        assert all(torch.equal(*pair) for pair in zip(kept, rows, strict=True))


def test_memory_that_was_dropped_is_waited_for_when_slots_run_short(gpu: StandIn) -> None:
    gpu.seed = None
    with everyday(wide_data(), pin_memory=True, num_workers=1, prefetch=4) as loader:
        for batch in loader:
            gpu.copy(batch.x)
            del batch
        assert loader.statistics().copied == 0
        assert gpu.waits > 0


def test_what_a_batch_holds_may_be_empty(gpu: StandIn) -> None:
    data = Data(x=torch.zeros(5, 0), edge_index=torch.empty(2, 0, dtype=torch.int64), num_nodes=5)
    with pytest.warns(UserWarning, match="no edges"):
        loader = ps.NeighborLoader(data, [2], batch_size=2, device="cuda")
    with loader:
        assert [batch.x.shape for batch in loader] == [(2, 0), (2, 0), (1, 0)]


def test_a_table_of_numpy_is_left_alone(gpu: StandIn) -> None:
    data = small_data()
    data.words = np.array(["a", "b"])  # belongs to the graph as a whole
    with everyday(data, device="cuda") as loader:
        assert next(iter(loader)).words.tolist() == ["a", "b"]
