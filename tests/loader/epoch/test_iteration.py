"""Epoch after epoch, left early or read to the end, interrupted anywhere."""

from __future__ import annotations

import gc
import os
import signal
import sys
from itertools import cycle, islice
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from penstock.errors import ChannelClosed
from penstock.loader.device.transfer import DeviceTransfer
from penstock.loader.epoch import iteration
from tests.loader.device.standin import StandIn
from tests.loader.epochs import digest, digests, everyday, small_data, torch

pytestmark = pytest.mark.usefixtures("no_leaks", "small_pool")

both = pytest.mark.parametrize("workers", [0, 1])


@pytest.fixture(scope="module")
def expected() -> list[list[str]]:
    """Three epochs, read to the end."""
    with everyday(small_data()) as loader:
        return [digests(loader) for _ in range(3)]


@both
def test_iterating_again_gives_the_next_epoch(workers: int, expected: Any) -> None:
    with everyday(small_data(), num_workers=workers) as loader:
        assert [digests(loader) for _ in range(3)] == expected
    assert len({tuple(epoch) for epoch in expected}) == 3


@both
def test_leaving_an_epoch_early_is_fine(workers: int, expected: Any) -> None:
    """CONTRACT 13: nothing of an epoch that was left is seen in the next."""
    with everyday(small_data(), num_workers=workers) as loader:
        for batch in loader:
            assert digest(batch) == expected[0][0]
            break
        assert digests(islice(loader, 2)) == expected[1][:2]
        assert digests(loader) == expected[2]


def test_an_epoch_nothing_was_asked_of_is_not_used_up(expected: Any) -> None:
    with everyday(small_data(), num_workers=1) as loader:
        iter(loader)
        iter(loader)
        assert digests(loader) == expected[0]
        assert digests(loader) == expected[1]


@both
def test_any_epoch_can_be_asked_for(workers: int, expected: Any) -> None:
    with everyday(small_data(), num_workers=workers) as loader:
        loader.set_epoch(2)
        assert digests(loader) == expected[2]
        loader.set_epoch(0)
        assert digests(loader) == expected[0]
        assert digests(loader) == expected[1]
        loader.set_epoch(1)
        assert digests(loader) == expected[1]


def test_set_epoch_does_not_disturb_the_epoch_being_read(expected: Any) -> None:
    with everyday(small_data()) as loader:
        iterator = iter(loader)
        next(iterator)
        loader.set_epoch(2)
        assert digests(iterator) == expected[0][1:]
        assert digests(loader) == expected[2]


def test_an_epoch_below_none_is_refused() -> None:
    with everyday(small_data()) as loader, pytest.raises(ValueError, match="at least 0, got -1"):
        loader.set_epoch(-1)


def test_the_end_of_an_epoch_stays_its_end() -> None:
    with everyday(small_data()) as loader:
        iterator = iter(loader)
        assert len(list(iterator)) == 15
        assert list(iterator) == []
        other = iter(loader)
        next(other)
        assert list(iterator) == []
        assert loader.state_dict()["epoch"] == 1
        assert len(list(other)) == 14


@both
def test_a_batch_may_be_looked_at_within_a_loop_over_the_same_loader(
    workers: int, expected: Any
) -> None:
    """The loop goes on where it was, and its epoch is the loader's."""
    with everyday(small_data(), num_workers=workers) as loader:
        seen = []
        for batch in loader:
            seen.append(digest(batch))
            assert loader.state_dict()["delivered"] == len(seen) % 15
            if len(seen) in (2, 5):
                assert digest(next(iter(loader))) == expected[1][0]
        assert seen == expected[0]
        assert digests(loader) == expected[1]


@both
def test_a_loader_may_be_read_by_two_iterators_at_once(
    workers: int, expected: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Each has an epoch of its own, from when it is first asked on."""
    with everyday(small_data(), num_workers=workers) as loader:
        pairs = [(digest(one), digest(other)) for one, other in zip(loader, loader, strict=True)]
        assert pairs == list(zip(expected[0], expected[1], strict=True))
        (line,) = [record.getMessage() for record in caplog.records]
        assert "epoch 0 is read beside another iterator" in line


def test_the_state_is_that_of_the_iterator_that_was_read_last(expected: Any) -> None:
    with everyday(small_data(), num_workers=1) as loader, everyday(small_data()) as other:
        one, two = iter(loader), iter(loader)
        for iterator in (one, two, two, one, one):
            next(iterator)
        other.load_state_dict(loader.state_dict())
        assert digests(other) == expected[0][3:] == digests(one)
        next(two)
        other.load_state_dict(loader.state_dict())
        assert digests(other) == expected[1][3:] == digests(two)


def test_iterators_end_with_their_loader_whichever_channel_they_have() -> None:
    loader = everyday(small_data(), num_workers=1)
    one, two = iter(loader), iter(loader)
    for iterator in (one, two, one):
        next(iterator)
    loader.reweigh(2.0)
    next(two)
    loader.close()
    for iterator in (one, two):
        with pytest.raises(ChannelClosed, match="was closed"):
            next(iterator)


def test_an_iterator_of_before_a_state_says_so(expected: Any) -> None:
    with everyday(small_data()) as loader:
        old, unread = iter(loader), iter(loader)
        next(old)
        loader.load_state_dict(loader.state_dict())
        with pytest.raises(RuntimeError, match=r"epoch 0 .* gone back to a state since"):
            next(old)
        assert digests(unread) == expected[0][1:]
        with pytest.raises(RuntimeError, match="gone back to a state since"):
            next(old)


def test_two_loaders_of_the_same_data_can_be_read_at_once(expected: Any) -> None:
    data = small_data()
    with everyday(data, num_workers=1) as one, everyday(data, num_workers=1) as other:
        pairs = [(digest(a), digest(b)) for a, b in zip(one, other, strict=True)]
        assert pairs == [(name, name) for name in expected[0]]


def test_an_iterator_keeps_its_loader_alive(expected: Any) -> None:
    assert digests(everyday(small_data())) == expected[0]


# --- samplers of the user's own --------------------------------------------------------------


@both
def test_a_sampler_says_in_which_order_inputs_come(workers: int) -> None:
    order = [5, 3, 229, 3, *range(100, 130)]
    options = {"sampler": order, "shuffle": None, "num_workers": workers}
    data = small_data()
    nodes = data.train_mask.nonzero().view(-1)
    with everyday(data, **options) as loader:
        for _ in range(2):
            seen = [place for batch in loader for place in batch.input_id.tolist()]
            assert seen == nodes[order].tolist()
        assert len(loader) == 3


def test_batches_of_a_sampler_are_the_same_whoever_makes_them() -> None:
    """CONTRACT 5."""
    weights = torch.arange(1.0, 231.0)

    def options() -> dict[str, Any]:
        sampler = torch.utils.data.WeightedRandomSampler(weights, 60)
        return {"sampler": sampler, "shuffle": None}

    with (
        everyday(small_data(), **options()) as inline,
        everyday(small_data(), num_workers=1, **options()) as loader,
    ):
        assert [digests(loader) for _ in range(2)] == [digests(inline) for _ in range(2)]


def test_a_sampler_draws_anew_in_every_epoch() -> None:
    sampler = torch.utils.data.RandomSampler(range(230), replacement=True)
    with everyday(small_data(), sampler=sampler, shuffle=None) as loader:
        first, second = ([b.input_id.tolist() for b in loader] for _ in range(2))
        assert first != second


def test_asking_a_sampler_leaves_torch_s_generator_alone() -> None:
    sampler = torch.utils.data.RandomSampler(range(230), replacement=True)
    with everyday(small_data(), sampler=sampler, shuffle=None) as loader:
        before = torch.get_rng_state()
        iter(loader)
        assert torch.equal(torch.get_rng_state(), before)


def test_a_sampler_that_counts_epochs_is_told_which_one() -> None:
    class Rotating:
        epoch = 0

        def set_epoch(self, epoch: int) -> None:
            self.epoch = epoch

        def __len__(self) -> int:
            return 3

        def __iter__(self) -> Any:
            return iter([self.epoch, self.epoch + 1, self.epoch + 2])

    options = {"sampler": Rotating(), "shuffle": None, "input_nodes": range(50)}
    with everyday(small_data(), **options) as loader:
        loader.set_epoch(4)
        assert [b.input_id.tolist() for b in loader] == [[4, 5, 6]]
        assert [b.input_id.tolist() for b in loader] == [[5, 6, 7]]


def test_a_sampler_that_somebody_else_tells_the_epoch_is_left_alone() -> None:
    sampler = torch.utils.data.distributed.DistributedSampler(range(50), 1, 0)

    def order() -> list[int]:
        return [place for batch in loader for place in batch.input_id.tolist()]

    with everyday(small_data(), sampler=sampler, shuffle=None, input_nodes=range(50)) as loader:
        first, second = order(), order()
        assert first != second
        sampler.set_epoch(0)
        assert order() == first


def test_a_sampler_of_some_inputs_is_not_taken_for_one_of_all() -> None:
    for kind in (torch.utils.data.SequentialSampler, torch.utils.data.RandomSampler):
        with everyday(small_data(), sampler=kind(range(20)), shuffle=None) as loader:
            assert sum(batch.batch_size for batch in loader) == 20


@pytest.mark.parametrize("kind", ["SequentialSampler", "RandomSampler", "DistributedSampler"])
def test_a_sampler_derived_from_torch_s_is_asked_for_its_order(kind: str) -> None:
    samplers = torch.utils.data

    class Backwards(getattr(samplers, kind)):  # type: ignore[misc]
        def __len__(self) -> int:
            return 50

        def __iter__(self) -> Any:
            return iter(range(49, -1, -1))

    ranks = {"num_replicas": 1, "rank": 0} if kind == "DistributedSampler" else {}
    with everyday(small_data(), input_nodes=range(50)) as plain:
        sampler = Backwards(plain.dataset, **ranks)
    with everyday(small_data(), sampler=sampler, shuffle=None, input_nodes=range(50)) as loader:
        assert [place for b in loader for place in b.input_id.tolist()] == [*range(49, -1, -1)]


def test_a_derived_sampler_that_shares_inputs_out_is_heard() -> None:
    """Whatever else it does: each rank has its share, and not all of them everything."""

    class Derived(torch.utils.data.distributed.DistributedSampler):  # type: ignore[misc]
        pass

    seen = []
    for rank in range(2):
        with everyday(small_data(), input_nodes=range(50)) as plain:
            sampler = Derived(plain.dataset, 2, rank, shuffle=False)
        with everyday(small_data(), sampler=sampler, shuffle=None, input_nodes=range(50)) as loader:
            seen.append([place for b in loader for place in b.input_id.tolist()])
    assert seen == [[*range(0, 50, 2)], [*range(1, 50, 2)]]


class Untold:
    """A sampler that does not say how much it gives."""

    def __init__(self, given: Any) -> None:
        self._given = given

    def __iter__(self) -> Any:
        return iter(self._given)


@pytest.mark.parametrize(
    ("name", "given"), [("sampler", cycle([1, 2])), ("batch_sampler", cycle([[1, 2] * 99, []]))]
)
def test_a_sampler_without_an_end_is_refused(name: str, given: Any) -> None:
    options = {name: Untold(given), "shuffle": None, "batch_size": 1}
    with everyday(small_data(), input_nodes=range(50), **options) as loader:
        with pytest.raises(ValueError, match=f"{name} comes to no end.*the 50 inputs.*__len__"):
            iter(loader)


def test_a_sampler_need_not_say_how_much_it_gives() -> None:
    places = [3, 4, 1] * 100
    options = {"sampler": Untold(places), "shuffle": None}
    with everyday(small_data(), input_nodes=range(50), **options) as loader:
        assert [place for b in loader for place in b.input_id.tolist()] == places


@both
def test_even_batches_may_come_from_a_sampler(workers: int) -> None:
    batches = [[1, 2], [3, 4], [5]]
    options = {"batch_sampler": batches, "batch_size": 1, "shuffle": None, "num_workers": workers}
    with everyday(small_data(), input_nodes=range(50), **options) as loader:
        assert len(loader) == 3
        assert [b.input_id.tolist() for b in loader] == batches


@both
def test_uneven_batches_may_come_from_a_sampler(workers: int) -> None:
    batches = [[1], [3, 4, 9], [5, 7], []]
    options = {"batch_sampler": batches, "batch_size": 1, "shuffle": None, "num_workers": workers}
    with everyday(small_data(), input_nodes=range(50), **options) as loader:
        first = list(loader)
        assert [b.input_id.tolist() for b in first] == batches
        iterator = iter(loader)
        next(iterator)
        state = loader.state_dict()
        rest = digests(iterator)
        loader.load_state_dict(state)
        assert digests(loader) == rest


def test_a_sampler_that_names_what_is_not_there_is_an_index_error() -> None:
    with everyday(small_data(), sampler=[230], shuffle=None) as loader:
        with pytest.raises(IndexError, match="sampler gave the index 230; the loader has 230"):
            iter(loader)


def test_files_stay_as_many_whatever_the_order_of_epochs() -> None:
    """CONTRACT 23: each epoch of a sampler, and each that is gone back to, has another channel."""
    sampler = torch.utils.data.RandomSampler(range(230), replacement=True)
    with (
        everyday(small_data(), num_workers=1, sampler=sampler, shuffle=None) as drawn,
        everyday(small_data(), num_workers=1) as plain,
    ):
        counts = []
        gc.collect()  # what others have left must not go, and be counted, meanwhile
        for _ in range(5):
            digests(drawn)
            plain.set_epoch(0)
            digests(plain)
            counts.append(len(os.listdir("/proc/self/fd")))
        assert counts == counts[:1] * 5


# --- consumers -------------------------------------------------------------------------------


def test_layers_can_be_trimmed() -> None:
    from torch_geometric.nn import GraphSAGE

    data = small_data()
    model = GraphSAGE(6, 8, num_layers=2).eval()
    with everyday(data) as loader:
        for batch in islice(loader, 3):
            whole = model(batch.x, batch.edge_index)
            hops = batch.num_sampled_nodes, batch.num_sampled_edges
            trimmed = model(
                batch.x,
                batch.edge_index,
                num_sampled_nodes_per_hop=hops[0],
                num_sampled_edges_per_hop=hops[1],
            )
            assert torch.allclose(whole[: batch.batch_size], trimmed[: batch.batch_size], atol=1e-5)


def test_tqdm_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    tqdm = pytest.importorskip("tqdm")
    monkeypatch.setattr(tqdm.tqdm, "monitor_interval", 0)  # a thread, which it never ends
    with everyday(small_data()) as loader:
        bar = tqdm.tqdm(loader, disable=True)
        assert bar.total == 15
        assert len(list(bar)) == 15


# --- on a device -----------------------------------------------------------------------------


def moved(workers: int, **options: Any) -> Any:
    """A loader whose batches are moved to a device, for which there is a stand-in."""
    loader = everyday(small_data(), num_workers=workers, **options)
    loader._transfer = DeviceTransfer(StandIn, 1 << 20)
    return loader


def test_what_is_being_moved_has_not_been_delivered(expected: Any) -> None:
    with moved(0) as loader, moved(0) as other:
        iterator = iter(loader)
        for step in range(1, 5):
            next(iterator)
            assert loader.state_dict()["delivered"] == step
            assert len(iterator._ahead) > 1
        other.load_state_dict(loader.state_dict())
        assert digests(other) == expected[0][4:]


def test_an_error_comes_in_its_turn_when_batches_are_moved(expected: Any) -> None:
    def transform(batch: Any) -> Any:
        if digest(batch) == expected[0][3]:
            raise ZeroDivisionError
        return batch

    with moved(0, transform=transform) as loader:
        iterator = iter(loader)
        assert digests(islice(iterator, 3)) == expected[0][:3]
        with pytest.raises(ZeroDivisionError):
            next(iterator)
        assert loader.state_dict()["delivered"] == 4
        assert digests(iterator) == expected[0][4:]


# --- interrupts ------------------------------------------------------------------------------


OURS = str(Path(iteration.__file__).parents[1])


def everyday_by(workers: int) -> Any:
    return everyday(small_data(), num_workers=workers)


class Interrupted(BaseException):
    """As Ctrl-C, which is no `Exception` either."""


def interrupt_at(iterator: Any, place: int) -> Any:
    """`next(iterator)`, interrupted in loaders' code at the n-th place where a signal may strike.

    Those are calls, and the returns of what is not Python.
    """
    count = 0

    def strike(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        if event != "return" and frame.f_code.co_filename.startswith(OURS):
            count += 1
            if count == place:
                raise Interrupted

    sys.setprofile(strike)
    try:
        return next(iterator)
    finally:
        sys.setprofile(None)


# Python drops an interrupt that strikes in a finalizer, and says so.
@pytest.mark.filterwarnings("ignore:Exception ignored in. <finalize")
@pytest.mark.parametrize(
    ("workers", "made", "overtaken"),
    [
        (0, everyday_by, False),
        (1, everyday_by, False),
        (1, moved, False),
        (0, everyday_by, True),
        (1, moved, True),
    ],
)
def test_an_interrupt_anywhere_neither_loses_nor_repeats_a_batch(
    workers: int, made: Any, overtaken: bool, expected: Any
) -> None:
    """CONTRACT 17: also where another iterator has begun since."""
    with made(workers) as loader:
        iterator, seen, place, struck = iter(loader), list[str](), 0, 0
        while len(seen) < 15:
            place += 29  # there are more each time, since what was under way is made again
            try:
                batch = interrupt_at(iterator, place)
            except Interrupted:
                struck += 1
                assert loader.state_dict()["delivered"] == len(seen)
            else:
                seen.append(digest(batch))
                place = 2 * len(seen)
                if overtaken and len(seen) in (1, 6):
                    assert digest(next(iter(loader))) == expected[1][0]
        assert struck > 15
        assert seen == expected[0]


def test_after_ctrl_c_in_a_transform_the_batch_comes_again(expected: Any) -> None:
    """As it was made, whatever had been done to it: for notebooks, where a loader lives on."""
    struck = 0

    def transform(batch: Any) -> Any:
        nonlocal struck
        if digest(batch) == expected[0][3] and not struck:
            struck += 1
            batch.x += 1
            signal.raise_signal(signal.SIGINT)
        return batch

    with everyday(small_data(), num_workers=1, transform=transform) as loader:
        iterator = iter(loader)
        seen = digests(islice(iterator, 3))
        with pytest.raises(KeyboardInterrupt):
            next(iterator)
        assert loader.state_dict()["delivered"] == 3
        assert seen + digests(iterator) == expected[0]
