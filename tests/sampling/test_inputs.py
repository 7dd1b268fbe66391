"""The inputs of a batch: every input in one batch, and the same for everybody."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.plan import num_batches
from penstock.graph import Graph
from penstock.kernels import permutation
from penstock.kernels.random import grouped_seed
from penstock.sampling.inputs import ChannelInputs, check_feed, positions_of, seeds_at
from penstock.sampling.spec import Feed
from tests.sampling.graphs import library


@given(
    st.integers(0, 60), st.integers(1, 9), st.booleans(), st.integers(0, 2**32), st.integers(0, 9)
)
def test_the_batches_of_an_epoch_are_slices_of_its_order(
    size: int, batch_size: int, shuffle: bool, seed: int, epoch: int
) -> None:
    """CONTRACT 2: consecutive slices of one permutation; every input in exactly one batch."""
    feed = Feed(num_inputs=size, batch_size=batch_size, shuffle=shuffle, seed=seed)
    batches = [
        positions_of(feed, epoch, index) for index in range(num_batches(size, batch_size, False))
    ]
    order = permutation(seed, epoch, size) if shuffle else np.arange(size)
    assert [place for batch in batches for place in batch] == order.tolist()
    assert all(len(batch) == batch_size for batch in batches[:-1])


@given(
    st.lists(st.integers(0, 20), min_size=1, max_size=6).map(tuple),
    st.integers(1, 9),
    st.booleans(),
    st.booleans(),
    st.integers(0, 2**64 - 1),
    st.integers(0, 9),
)
def test_no_batch_has_inputs_of_two_groups(
    groups: tuple[int, ...],
    batch_size: int,
    shuffle: bool,
    drop_last: bool,
    seed: int,
    epoch: int,
) -> None:
    """Every input of a group is in one batch of it; only the last may be short, or is dropped."""
    feed = Feed(
        num_inputs=sum(groups),
        batch_size=batch_size,
        shuffle=shuffle,
        drop_last=drop_last,
        seed=seed,
        groups=groups,
    )
    total = sum(num_batches(size, batch_size, drop_last) for size in groups)
    owner = np.repeat(np.arange(len(groups)), groups)
    found: list[list[list[int]]] = [[] for _ in groups]
    for index in range(total):
        places = positions_of(feed, epoch, index)
        (group,) = set(owner[places])
        found[group].append(places.tolist())
        assert positions_of(feed, epoch, index, most=2).tolist() == places[:2].tolist()
    for group, (size, batches) in enumerate(zip(groups, found, strict=True)):
        sizes = sorted((len(batch) for batch in batches), reverse=True)
        whole, rest = divmod(size, batch_size)
        assert sizes == [batch_size] * whole + ([] if drop_last or not rest else [rest])
        taken = sorted(place for batch in batches for place in batch)
        there = np.flatnonzero(owner == group).tolist()
        assert set(taken) <= set(there)
        assert len(taken) == len(set(taken))
        assert drop_last or taken == there


def test_groups_are_shuffled_within_and_among_each_other() -> None:
    """By permutations of the batches and of each group, which no other list has."""
    feed = Feed(num_inputs=64, batch_size=4, shuffle=True, seed=3, groups=(32, 32))
    batches = [positions_of(feed, 1, index) for index in range(16)]
    order = permutation(grouped_seed(3), 1, 16)
    for index, place in enumerate(order.tolist()):
        group, at = divmod(place, 8)
        within = permutation(grouped_seed(3, group), 1, 32, 4 * at, 4 * at + 4)
        assert batches[index].tolist() == (32 * group + within).tolist()
    groups = [int(batch[0]) // 32 for batch in batches]
    assert groups != sorted(groups)


def test_groups_in_order_are_read_in_order() -> None:
    feed = Feed(num_inputs=7, batch_size=2, groups=(3, 0, 4))
    batches = [positions_of(feed, 0, index).tolist() for index in range(4)]
    assert batches == [[0, 1], [2], [3, 4], [5, 6]]


def test_seeds_are_the_inputs_at_these_places() -> None:
    assert seeds_at(np.array([2, 0]), np.array([7, 8, 9], np.int32)).tolist() == [9, 7]
    assert seeds_at(np.array([2, 0]), np.array([7, 8, 9], np.int32)).dtype == np.int64
    assert seeds_at(np.array([2, 0]), None).tolist() == [2, 0]


def test_a_batch_beyond_the_last_is_refused() -> None:
    with pytest.raises(ValueError, match="index"):
        positions_of(Feed(num_inputs=5, batch_size=2, drop_last=True), 0, 2)


@pytest.mark.parametrize(
    ("options", "ids", "message"),
    [
        ({"node_type": None}, None, "node_type is missing; this graph has 'paper', 'author'"),
        ({"node_type": "shop"}, None, "node_type is 'shop'"),
        ({"num_inputs": 61}, None, "num_inputs is 61; there are 60 nodes"),
        ({"batch_size": 0}, None, "batch_size must be at least 1"),
        ({"groups": (9, 9)}, None, "groups have 18 inputs; expected all 60 of them"),
        ({"seed": -1}, None, "seed is -1; expected an integer"),
        ({"seed": 2**64}, None, "seed is 18446744073709551616; expected an integer"),
        ({"num_inputs": 3}, np.arange(4), "num_inputs is 3; 4 ids are given"),
        ({"num_inputs": 3}, np.zeros(3), "ids must be a list of integers, not float64"),
        ({"num_inputs": 3}, np.zeros((3, 1), int), "ids must be a list of integers"),
    ],
)
def test_a_feed_that_makes_no_sense_is_refused(
    options: dict[str, Any], ids: Any, message: str
) -> None:
    usual: dict[str, Any] = {"num_inputs": 60, "batch_size": 8, "node_type": "paper"}
    feed = Feed(**usual | options)
    with pytest.raises(ValueError, match=message):
        check_feed(feed, library(), ChannelInputs(ids))


def test_more_inputs_than_nodes_are_fine_where_they_are_listed() -> None:
    graph = Graph.from_coo([[0], [1]])
    check_feed(Feed(num_inputs=5, batch_size=2), graph, ChannelInputs(np.array([0, 1, 0, 1, 0])))
