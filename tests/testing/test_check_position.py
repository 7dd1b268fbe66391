"""The check that users run on loaders of their own: what it passes, and what it finds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from penstock.testing import NotConforming, check_position
from penstock.testing.digests import digest_of
from tests.loader.epochs import everyday, small_data, torch, typed_data
from tests.testing import positions

pytestmark = pytest.mark.usefixtures("no_leaks")

EVERYTHING: Mapping[str, Any] = {"num_workers": (0, 3), "world_sizes": (2, 3)}


def refused(loader: type[Any], message: str, **options: Any) -> None:
    with pytest.raises(NotConforming, match=message):
        check_position(loader, **options)


# --- what can be gone on with --------------------------------------------------------------------


def test_a_loader_with_an_exact_position_passes() -> None:
    check_position(positions.Counting, **EVERYTHING)


@pytest.mark.parametrize("options", [{}, {"shuffle": False}, {"drop_last": True}])
def test_our_loader_passes(options: Any) -> None:
    """CONTRACT 5, 6: by any number of workers or ranks."""
    data = small_data()
    check_position(
        lambda **others: everyday(data, **options, **others),
        num_workers=(0,) if options else (2,),
        world_sizes=(2, 4),
    )


def test_our_loader_passes_where_nobody_gave_a_seed() -> None:
    data = small_data()
    check_position(lambda **others: everyday(data, seed=None, **others))


def test_our_loader_of_typed_data_passes() -> None:
    data = typed_data()
    check_position(
        lambda **others: everyday(data, input_nodes=("paper", None), **others), world_sizes=(3,)
    )


def test_what_has_a_close_is_closed() -> None:
    made = []

    class Closing(positions.Counting):
        closed = False

        def __init__(self) -> None:
            super().__init__()
            made.append(self)

        def close(self) -> None:
            self.closed = True

    check_position(Closing)
    assert len(made) > 10
    assert all(loader.closed for loader in made)


# --- what cannot ---------------------------------------------------------------------------------


def test_a_position_that_runs_ahead_is_found_out() -> None:
    refused(
        positions.OneTooFar,
        "saved after 1 batches of epoch 0, and restored: batch 1 of epoch 0 was to come, "
        "but what came was batch 2 of epoch 0",
    )


def test_a_position_that_lags_behind_is_found_out() -> None:
    refused(positions.OneBehind, "batch 1 of epoch 0 was to come, .* was batch 0 of epoch 0")


def test_a_second_epoch_that_is_forgotten_is_found_out() -> None:
    refused(positions.FirstEpochOnly, "epoch 0, and restored: batch 0 of epoch 1 was to come")


def test_a_position_that_is_only_exact_the_first_time_is_found_out() -> None:
    refused(positions.NeverTwice, "restored after 3 batches, saved after 5 and restored: batch 5")


def test_batches_that_do_not_follow_from_the_state_are_found_out() -> None:
    refused(positions.Unsettled, "at the very start: .* a batch that none of the epochs has")


def test_batches_that_depend_on_workers_are_found_out() -> None:
    check_position(positions.ByWorkers, num_workers=(0,))
    refused(positions.ByWorkers, "batch that none of the epochs has", num_workers=(0, 2))


def test_a_position_of_one_rank_s_own_is_found_out() -> None:
    refused(positions.OwnShare, "restored where 2 ranks were saved after 2", world_sizes=(2,))


def test_ranks_that_differ_in_their_states_are_found_out() -> None:
    refused(positions.ByRank, "rank 1 of 2 has the state .*'rank': 1", world_sizes=(2,))


def test_a_state_that_json_cannot_hold_is_found_out() -> None:
    refused(positions.Wordless, "not what JSON can hold: .*set")
    check_position(positions.Wordless, plain=False)


def test_a_loader_that_cannot_be_put_back_is_found_out() -> None:
    refused(positions.Deaf, "read on, and put back: batch 3 of epoch 0 was to come")


def test_an_epoch_that_ends_early_is_found_out() -> None:
    refused(positions.Shortened, "saved after 1 .* it ended after 5 batches; 6 were to come")


def test_a_loader_without_the_methods_is_found_out() -> None:
    refused(list, "a list has no method 'state_dict'")


# --- wrong calls ---------------------------------------------------------------------------------


def test_a_check_that_makes_no_sense_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="no batches"):
        check_position(positions.Empty)
    with pytest.raises(ValueError, match="world_sizes is 1"):
        check_position(positions.Counting, world_sizes=[1])
    with pytest.raises(ValueError, match="num_workers is -1"):
        check_position(positions.Counting, num_workers=[-1])


# --- batches in a few characters -----------------------------------------------------------------


@dataclass
class Pair:
    one: Any
    other: Any


# No two of these are the same.
DIFFERENT = [
    None,
    1,
    1.0,
    True,
    "1",
    b"1",
    [1],
    [[1]],
    [1, 2],
    {"a": 1},
    {"b": 1},
    {"a": 1, "b": 2},
    {1, 2},
    np.array([1]),
    np.array([1], np.int32),
    np.array([[1]]),
    np.array([1.0]),
    np.array(["one", None], dtype=object),
    torch.tensor([1.0], dtype=torch.float16),
    torch.tensor([1.0], dtype=torch.bfloat16),
    torch.eye(2).to_sparse(),
    Pair(1, 2),
    Pair(2, 1),
]


def test_batches_that_differ_have_different_digests() -> None:
    assert len({digest_of(batch) for batch in DIFFERENT}) == len(DIFFERENT)


def test_batches_of_the_same_content_have_the_same_digest() -> None:
    wanted = torch.arange(6.0).reshape(2, 3)
    assert digest_of(wanted) == digest_of(wanted.t().contiguous().t())
    assert digest_of(wanted) == digest_of(wanted.clone().requires_grad_())
    assert digest_of({"a": 1, "b": 2}) == digest_of({"b": 2, "a": 1})
    assert digest_of(small_data()) == digest_of(small_data().clone())


def test_every_attribute_of_pyg_s_data_counts() -> None:
    for make in (small_data, typed_data):
        data = make()
        before = digest_of(data)
        store = data.node_stores[0]
        store.x[0, 0] += 1
        changed = digest_of(data)
        store.extra = 1
        assert len({before, changed, digest_of(data)}) == 3
