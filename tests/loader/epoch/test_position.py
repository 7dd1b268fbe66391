"""Where a loader stands: saved at any batch, gone on from by any loader of the same list."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pytest

from penstock.core.plan import Position
from penstock.loader.epoch.position import Course, LoaderState, digest_of
from tests.loader.epochs import BATCH, digest, digests, everyday, small_data, through_json, torch

pytestmark = pytest.mark.usefixtures("no_leaks")

COURSE = Course(230, BATCH, False, "shuffled", 7)


def whole(count: int = 3, **options: Any) -> list[list[str]]:
    """Epochs read without a break."""
    with everyday(small_data(), **options) as loader:
        return [digests(loader) for _ in range(count)]


@pytest.mark.parametrize("taken", [0, 1, 7, 14, 15])
def test_a_loader_goes_on_from_any_batch_of_any_epoch(taken: int) -> None:
    """At the start, in the middle and at the end, of the first epoch and of the second."""
    expected = whole()
    for epoch in (0, 1):
        with everyday(small_data()) as loader, everyday(small_data()) as other:
            for _ in range(epoch):
                digests(loader)
            iterator = iter(loader)
            seen = digests(islice(iterator, taken))
            state = through_json(loader.state_dict())
            other.load_state_dict(state)
            assert other.state_dict() == state
            assert seen == expected[epoch][:taken]
            if taken < 15:
                assert digests(other) == expected[epoch][taken:]
            assert digests(other) == expected[epoch + 1]


def test_a_position_holds_whatever_the_number_of_workers() -> None:
    """CONTRACT 5, 6."""
    expected = whole()
    with everyday(small_data(), num_workers=2) as loader:
        assert digests(islice(iter(loader), 4)) == expected[0][:4]
        state = loader.state_dict()
    with everyday(small_data(), num_workers=1) as loader:
        loader.load_state_dict(state)
        assert digests(islice(iter(loader), 4)) == expected[0][4:8]
        state = loader.state_dict()
    with everyday(small_data()) as loader:
        loader.load_state_dict(state)
        assert digests(loader) == expected[0][8:]


def test_a_state_taken_after_an_early_break_is_that_of_the_break() -> None:
    expected = whole(2)
    with everyday(small_data(), num_workers=1) as loader, everyday(small_data()) as other:
        for batch in loader:
            first = digest(batch)
            break
        other.load_state_dict(loader.state_dict())
        assert [first, *digests(other)] == expected[0]
        assert digests(loader) == expected[1]


def test_a_state_is_that_of_what_was_delivered_not_of_what_was_made_ahead() -> None:
    with everyday(small_data(), num_workers=2) as loader:
        iterator = iter(loader)
        for step in range(5):
            assert loader.state_dict()["delivered"] == step
            next(iterator)


def test_after_the_last_batch_the_next_epoch_is_due() -> None:
    with everyday(small_data()) as loader:
        iterator = iter(loader)
        for _ in range(15):
            next(iterator)
        assert loader._state() == LoaderState(Position(1), loader._state().course)
        assert list(iterator) == []
        assert loader._state().position == Position(1)


def test_a_loader_can_be_put_back_while_it_is_read() -> None:
    expected = whole(1)
    with everyday(small_data(), num_workers=1) as loader:
        iterator = iter(loader)
        next(iterator)
        state = loader.state_dict()
        next(iterator)
        next(iterator)
        loader.load_state_dict(state)
        with pytest.raises(RuntimeError, match="gone back to a state"):
            next(iterator)
        assert digests(loader) == expected[0][1:]


def test_a_restored_epoch_is_not_used_up_by_asking_for_an_iterator() -> None:
    expected = whole(1)
    with everyday(small_data()) as loader:
        state = LoaderState(Position(0, 10), loader._state().course).to_dict()
        loader.load_state_dict(state)
        iter(loader)
        iter(loader)
        assert loader.state_dict() == state
        assert digests(loader) == expected[0][10:]


def test_set_epoch_of_a_restored_epoch_goes_on_where_it_was() -> None:
    expected = whole(2)
    with everyday(small_data()) as loader:
        loader.load_state_dict(LoaderState(Position(1, 10), loader._state().course).to_dict())
        loader.set_epoch(1)
        assert digests(loader) == expected[1][10:]
        loader.load_state_dict(LoaderState(Position(1, 10), loader._state().course).to_dict())
        loader.set_epoch(0)
        assert digests(loader) == expected[0]


def test_a_state_holds_on_every_rank_and_for_any_number_of_them() -> None:
    """CONTRACT 6."""
    expected = whole(1)[0]
    data = small_data()
    with (
        everyday(data, rank=0, world_size=2) as first,
        everyday(data, rank=1, world_size=2) as second,
    ):
        for loader in (first, second):
            iterator = iter(loader)
            next(iterator)
            next(iterator)
        state = first.state_dict()
        assert state == second.state_dict()
    left = {}
    for rank in range(3):
        with everyday(data, rank=rank, world_size=3, remainder="drop") as loader:
            loader.load_state_dict(state)
            left[rank] = digests(loader)
    together = [name for step in zip(*left.values(), strict=True) for name in step]
    assert together == expected[4 : 4 + 9]


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    """Become a rank, as torchrun's environment names it."""

    def become(rank: int, world_size: int) -> None:
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", str(world_size))

    return become


def test_a_state_of_a_rank_s_own_ids_is_that_rank_s(ranks: Callable[[int, int], None]) -> None:
    """CONTRACT 6: each has a list of its own; another number of ranks would have other lists."""
    ids, states, rest = small_data().train_mask.nonzero().view(-1)[:96], [], []
    for rank in range(2):
        ranks(rank, 2)
        with everyday(small_data(), input_nodes=ids[rank::2], seed=None) as loader:
            iterator = iter(loader)
            next(iterator)
            states.append(through_json(loader.state_dict()))
            rest.append(digests(iterator))
    assert [(state["rank"], state["world_size"]) for state in states] == [(0, 2), (1, 2)]
    with everyday(small_data(), input_nodes=ids[1::2], seed=None) as loader:
        with pytest.raises(ValueError, match=r"saved by rank 0, and this is rank 1.*give seed"):
            loader.load_state_dict(states[0])
        loader.load_state_dict(states[1])
        assert digests(loader) == rest[1]
    for world_size in (1, 4):
        ranks(0, world_size)
        with (
            everyday(small_data(), input_nodes=ids[::2], seed=None) as loader,
            pytest.raises(ValueError, match=r"inputs of its own for each of 2 ranks"),
        ):
            loader.load_state_dict(states[0])


def test_ranks_with_ids_of_their_own_and_one_seed_go_on_from_the_state_of_one(
    ranks: Callable[[int, int], None],
) -> None:
    """Lightning keeps only the first one's."""
    ids = small_data().train_mask.nonzero().view(-1)[:96]
    ranks(0, 2)
    with everyday(small_data(), input_nodes=ids[::2]) as loader:
        next(iter(loader))
        state = loader.state_dict()
    ranks(1, 2)
    with everyday(small_data(), input_nodes=ids[1::2]) as loader:
        expected = digests(loader)
        loader.load_state_dict(state)
        assert digests(loader) == expected[1:]


def test_a_seed_that_nobody_gave_travels_with_the_state() -> None:
    options: dict[str, Any] = {"seed": None}
    with everyday(small_data(), **options) as loader, everyday(small_data(), **options) as other:
        assert loader.seed != other.seed
        first = digests(islice(iter(loader), 1))
        other.load_state_dict(loader.state_dict())
        assert other.seed == loader.seed
        rest = digests(other)
        loader.set_epoch(0)
        assert [*first, *rest] == digests(loader)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_size": 8}, "batch_size=16.*batch_size=8"),
        ({"shuffle": False}, "'shuffled'.*'given'"),
        ({"drop_last": True}, "drop_last=False.*drop_last=True"),
        ({"seed": 8}, "seed=7.*seed=8"),
        ({"input_nodes": range(10)}, "num_inputs=230.*num_inputs=10"),
    ],
)
def test_a_position_in_another_list_is_refused(change: Any, message: str) -> None:
    with everyday(small_data()) as loader, everyday(small_data(), **change) as other:
        with pytest.raises(ValueError, match=message):
            other.load_state_dict(loader.state_dict())


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (None, "state is None"),
        ({}, "version None"),
        ({"version": 2}, "version 2; this Penstock reads 1"),
        ({"version": 1, "epoch": 0}, "lacks .*delivered"),
        ({**LoaderState(Position(), COURSE).to_dict(), "wrong": 1}, "'wrong', unknown"),
        ({**LoaderState(Position(), COURSE).to_dict(), "epoch": -1}, "epoch must be at least 0"),
        ({**LoaderState(Position(), COURSE).to_dict(), "delivered": "1"}, "delivered must be"),
    ],
)
def test_what_is_no_state_is_refused(state: Any, message: str) -> None:
    with everyday(small_data()) as loader, pytest.raises(ValueError, match=message):
        loader.load_state_dict(state)


def test_a_state_is_a_few_numbers() -> None:
    with everyday(small_data()) as loader:
        state = loader.state_dict()
        assert through_json(state) == state
        assert len(repr(state)) < 300


def test_it_is_stateful_as_torchdata_has_it() -> None:
    @runtime_checkable
    class Stateful(Protocol):
        def state_dict(self) -> dict[str, Any]: ...

        def load_state_dict(self, state_dict: dict[str, Any]) -> None: ...

    with everyday(small_data()) as loader:
        assert isinstance(loader, Stateful)


def test_a_sampler_s_epoch_is_gone_on_with_in_the_same_order() -> None:
    """Drawn from torch's own generator, whatever state that is in."""
    data = small_data()

    def loader_of() -> Any:
        weights = torch.arange(1.0, 231.0)
        sampler = torch.utils.data.WeightedRandomSampler(weights, 100)
        return everyday(data, shuffle=None, sampler=sampler)

    with loader_of() as loader, loader_of() as other:
        expected = digests(loader)
        loader.set_epoch(0)
        seen = digests(islice(iter(loader), 3))
        torch.rand(3)
        other.load_state_dict(through_json(loader.state_dict()))
        assert [*seen, *digests(other)] == expected


def test_a_sampler_that_gives_another_order_cannot_go_on() -> None:
    data = small_data()
    with (
        everyday(data, shuffle=None, sampler=list(range(40))) as loader,
        everyday(data, shuffle=None, sampler=list(range(39, -1, -1))) as other,
    ):
        next(iter(loader))
        other.load_state_dict(loader.state_dict())
        with pytest.raises(ValueError, match="another order"):
            iter(other)


def test_orders_are_told_apart() -> None:
    assert digest_of(np.arange(3)) == digest_of(np.arange(3, dtype=np.int32))
    assert digest_of(np.arange(3)) != digest_of(np.array([0, 2, 1]))
