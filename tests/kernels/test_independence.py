"""What is chosen in one place says nothing about what is chosen in another."""

from __future__ import annotations

import numpy as np
import pytest

from penstock import kernels
from penstock.kernels import Adjacency, KHop, Relation
from penstock.kernels.arrays import Array, Ids
from tests.kernels.chi_square import assert_independent, choose, hop_key

pytestmark = pytest.mark.statistics

NUM_NODES = 40_000
# Powers of two show correlations of single bits; the others those of whole words.
DEGREES = [2, 5, 8, 32]


def one_each(degree: int, key: int, *, replace: bool = False) -> Ids:
    """The one neighbour that each of many nodes chooses."""
    return choose(degree, 1, key, NUM_NODES, replace=replace)[:, 0]


PAIRS = {
    "neighbouring batches": (hop_key(index=7), hop_key(index=8)),
    "far batches": (hop_key(index=0), hop_key(index=2**32)),
    "neighbouring epochs": (hop_key(epoch=0), hop_key(epoch=1)),
    "neighbouring seeds": (hop_key(seed=0), hop_key(seed=1)),
    "seed and epoch swapped": (hop_key(seed=3, epoch=4), hop_key(seed=4, epoch=3)),
    "epoch and index swapped": (hop_key(epoch=3, index=4), hop_key(epoch=4, index=3)),
    "neighbouring hops": (hop_key(hop=0), hop_key(hop=1)),
    "later hops": (hop_key(hop=1), hop_key(hop=2)),
    "hop of one batch and hop of the next": (hop_key(index=0, hop=1), hop_key(index=1, hop=0)),
    "edge types": (
        hop_key(edge=kernels.name_hash(("a", "to", "b"))),
        hop_key(edge=kernels.name_hash(("b", "to", "a"))),
    ),
}


@pytest.mark.parametrize("degree", DEGREES)
@pytest.mark.parametrize("pair", PAIRS)
def test_the_same_nodes_choose_anew_in(pair: str, degree: int) -> None:
    first, second = PAIRS[pair]
    assert_independent(one_each(degree, first), one_each(degree, second), degree)


@pytest.mark.parametrize("degree", DEGREES)
def test_nodes_with_neighbouring_ids_choose_independently(degree: int) -> None:
    chosen = np.concatenate([one_each(degree, hop_key(index=index)) for index in range(2)])
    assert_independent(chosen[0::2], chosen[1::2], degree)


@pytest.mark.parametrize("degree", DEGREES)
@pytest.mark.parametrize("lag", [1, 2, 5])
def test_draws_of_one_node_are_independent(degree: int, lag: int) -> None:
    drawn = choose(degree, lag + 1, hop_key(), NUM_NODES, replace=True)
    assert_independent(drawn[:, 0], drawn[:, lag], degree)


@pytest.mark.parametrize("degree", [3, 10])
def test_sets_chosen_in_two_batches_are_independent(degree: int) -> None:
    # The offset that is left out is one number that stands for the set.
    left_out = [
        degree * (degree - 1) // 2 - choose(degree, degree - 1, hop_key(index=i), NUM_NODES).sum(1)
        for i in (0, 1)
    ]
    assert_independent(left_out[0], left_out[1], degree)


@pytest.mark.parametrize("what", ["seed", "epoch", "index"])
def test_a_series_of_batches_is_independent_from_one_to_the_next(what: str) -> None:
    chosen = series(what, 16_000)
    for lag in (1, 2, 16):
        # Pairs that share no member: else what they say of each other would count twice.
        blocks = chosen[: len(chosen) // (2 * lag) * 2 * lag].reshape(-1, 2, lag)
        assert_independent(blocks[:, 0].reshape(-1), blocks[:, 1].reshape(-1), 8)


def series(what: str, length: int) -> Ids:
    """What one node chooses as one number of the key counts up."""
    adjacency = Adjacency(np.array([0, 8]), np.zeros(8, np.int32))
    sampler, seeds = KHop([1], [Relation(adjacency, (1,))]), [np.array([0])]
    chosen = []
    for number in range(length):
        key = kernels.batch_key(**{"seed": 0, "epoch": 0, "index": 0, what: number})
        chosen.append(int((sampler.sample(key, seeds).edge_ids or [])[0][0]))
    return np.array(chosen)


def test_edge_types_of_one_batch_choose_independently() -> None:
    indptr = np.arange(NUM_NODES + 1) * 5
    adjacency = Adjacency(indptr, np.zeros(NUM_NODES * 5, np.int32))
    names = ("a", "one", "b"), ("a", "two", "b")
    sampler = KHop([NUM_NODES], [Relation(adjacency, (1,), name=name) for name in names])
    edge_ids = sampler.sample(1, [np.arange(NUM_NODES)]).edge_ids or []
    assert_independent(edge_ids[0] - indptr[:-1], edge_ids[1] - indptr[:-1], 5)


def test_hops_of_one_batch_choose_independently() -> None:
    # Seed i has five parallel edges to node i + n, and that one five to itself.
    count = NUM_NODES // 2
    indptr = np.arange(2 * count + 1) * 5
    entries = np.repeat(np.arange(count, 2 * count), 5)
    sampler = KHop([2 * count], [Relation(Adjacency(indptr, np.tile(entries, 2)), (1, 1))])
    sample = sampler.sample(1, [np.arange(count)])
    assert sample.num_sampled_edges == [[count, count]]
    offsets = (sample.edge_ids or [])[0] % 5
    assert_independent(offsets[:count], offsets[count:], 5)


# --- the check can fail ---------------------------------------------------------------------------


def slightly_copied(first: Array, share: int) -> Array:
    """Independent choices, but for one node in `share`, which repeats itself."""
    second = one_each(5, hop_key(index=99))
    second[::share] = first[::share]
    return second


@pytest.mark.parametrize("share", [1, 10, 20])
def test_dependence_is_found_out(share: int) -> None:
    first = one_each(5, hop_key(index=1))
    with pytest.raises(AssertionError):
        assert_independent(first, slightly_copied(first, share), 5)
