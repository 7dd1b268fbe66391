"""Loaders leave label edge types alone unless their fan-outs are given."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from tests.loader.epochs import pyg, torch

NumNeighbors = pyg.sampler.NumNeighbors

BUYS, LIKED = ("user", "buys", "item"), ("user", "buys_positive", "item")
BACK = ("item", "rev_buys", "user")


@pytest.fixture
def data() -> Any:
    data = pyg.data.HeteroData()
    data["user"].x, data["item"].x = torch.rand(3, 2), torch.rand(4, 2)
    pairs = torch.cartesian_prod(torch.arange(3), torch.arange(4)).T
    data[BUYS].edge_index = data[LIKED].edge_index = pairs
    data[BACK].edge_index = pairs.flip(0)
    return data


@pytest.mark.parametrize(
    ("fanouts", "walked"),
    [
        ([4], False),
        ({BUYS: [4], BACK: [4]}, False),
        (NumNeighbors({BUYS: [4]}, default=[4]), False),
        ({BUYS: [4], BACK: [4], LIKED: [4]}, True),
        (NumNeighbors({LIKED: [4]}, default=[4]), True),
    ],
)
def test_a_label_type_is_walked_if_its_fan_outs_are_given(
    data: Any, fanouts: Any, walked: bool
) -> None:
    with ps.NeighborLoader(data, fanouts, "item", batch_size=2, seed=0) as loader:
        batch = next(iter(loader))
    assert LIKED in batch.edge_types
    assert batch[BUYS].edge_index.shape[1] == 6
    assert (batch[LIKED].edge_index.shape[1] > 0) == walked


def test_layers_walk_labels_if_they_are_told_to(data: Any) -> None:
    sizes = []
    for walk_labels in (False, True):
        with ps.HGTLoader(
            data, [4], "item", batch_size=2, walk_labels=walk_labels, seed=0
        ) as loader:
            sizes.append(next(iter(loader))[LIKED].edge_index.shape[1])
    assert sizes == [0, 6]
