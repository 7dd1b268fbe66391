"""What users change in their data after a loader was made: batches show it, as PyG's do."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from typing import Any

import pytest

import penstock as ps
from tests.loader.epochs import NODES, everyday, small_data, torch, typed_data
from tests.loader.reading import differences, pyg

pytestmark = pytest.mark.usefixtures("no_leaks")

CITES = ("paper", "cites", "paper")
# What a batch has beside the user's data.
SAID = ("n_id", "e_id", "input_id", "batch_size", "num_sampled_nodes", "num_sampled_edges")


def is_written_to(data: Any) -> None:
    data.x += 1
    data.edge_attr[5:] = 2


def is_replaced(data: Any) -> None:
    data.x = data.x.double() * 2
    data.edge_attr = torch.arange(data.num_edges)
    data.name = "another"


def gets_more(data: Any) -> None:
    data.extra = torch.arange(data.num_nodes)
    data.edge_extra = torch.arange(data.num_edges)
    data.whole = torch.ones(3)


def is_made_ready_for_inference(data: Any) -> None:
    """As in PyG's examples."""
    del data.x, data.edge_attr, data.name
    data.n_id = torch.arange(data.num_nodes)


def wants_gradients(data: Any) -> None:
    data.x.requires_grad_()


CHANGES = [is_written_to, is_replaced, gets_more, is_made_ready_for_inference, wants_gradients]


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_is_shown_as_pyg_shows_it(change: Callable[[Any], None]) -> None:
    data = small_data()
    data.num_nodes = NODES  # which PyG would guess, once there is no x
    with everyday(data) as loader:
        iterator = iter(loader)
        next(iterator)
        change(data)
        for batch in itertools.islice(iterator, 3):
            theirs = pyg.loader.utils.filter_data(data, batch.n_id, *batch.edge_index, batch.e_id)
            for name in SAID:
                theirs[name] = batch[name]
            assert not [*differences(theirs, batch)]
            assert "x" not in data or batch.x.requires_grad == data.x.requires_grad


def test_types_are_told_apart() -> None:
    data = typed_data()
    options = {"num_neighbors": [-1], "input_nodes": "paper", "batch_size": 120}
    with ps.NeighborLoader(data, **options) as loader:
        data["paper"].x.zero_()
        data[CITES].stars = torch.arange(600)
        data["author"].name = "authors"
        data.whole = 7
        del data["topic"].x
        (batch,) = loader
        assert not batch["paper"].x.any()
        assert torch.equal(batch[CITES].stars, batch[CITES].e_id)
        assert torch.equal(batch["author"].x, data["author"].x[batch["author"].n_id])
        assert (batch["author"].name, batch.whole) == ("authors", 7)
        assert "x" not in batch["topic"]


def test_each_change_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    data = small_data()
    with everyday(data) as loader, caplog.at_level(logging.WARNING):
        iterator = iter(loader)
        next(iterator)
        assert not caplog.messages
        for _ in range(3):
            data.x += 1
            batch = next(iterator)
            assert torch.equal(batch.x, data.x[batch.n_id])
    (told,) = caplog.messages
    assert told.startswith("data.x has changed since its loader was made")


def test_edges_that_have_an_id_of_their_own_cannot_be_told_apart_any_more() -> None:
    data = small_data()
    data.e_id = torch.arange(data.num_edges)
    with everyday(data) as loader:
        data.edge_attr += 1
        with pytest.raises(RuntimeError, match=r"edge_attr has changed .* make another"):
            next(iter(loader))
