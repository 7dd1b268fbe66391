"""What differs from PyG: each row of the table in docs/coming-from/pyg.md that can be run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import penstock as ps
from penstock.compat import pyg_lib
from tests.loader.epochs import Data, HeteroData, pyg, torch

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture(autouse=True)
def kernels() -> Iterator[None]:
    """PyG's own loaders, over our kernels."""
    pyg_lib.install()
    yield
    pyg_lib.uninstall()


def ring() -> Any:
    around = torch.arange(60)
    return Data(x=around.float(), edge_index=torch.stack([around, around.roll(1)]))


def both(**given: Any) -> tuple[Any, Any]:
    common: dict[str, Any] = {"num_neighbors": [2], "batch_size": 20, **given}
    return pyg.loader.NeighborLoader(ring(), **common), ps.NeighborLoader(ring(), **common)


def order(loader: Any) -> list[int]:
    return [node for batch in loader for node in batch.input_id.tolist()]


def test_the_order_follows_from_the_seed_and_not_from_torch_s_generator_then() -> None:
    theirs, ours = both(shuffle=True)
    with ours:
        ours.set_epoch(0)
        torch.manual_seed(1)
        first = order(theirs), order(ours)
        ours.set_epoch(0)
        torch.manual_seed(1)
        again = order(theirs), order(ours)
        torch.manual_seed(2)
        ours.set_epoch(0)
        other = order(theirs), order(ours)
    assert first == again
    assert first[0] != other[0]
    assert first[1] == other[1]


def test_a_dataset_equals_a_range_and_is_none() -> None:
    theirs, ours = both()
    with ours:
        assert isinstance(theirs.dataset, range)
        assert not isinstance(ours.dataset, range)
        assert ours.dataset == theirs.dataset


def test_a_node_sampler_is_a_description_that_does_not_sample() -> None:
    theirs, ours = both()
    with ours:
        assert hasattr(theirs.node_sampler, "sample_from_nodes")
        assert not hasattr(ours.node_sampler, "sample_from_nodes")
        given: dict[str, Any] = {"neighbor_sampler": ours.node_sampler, "batch_size": 20}
        with ps.NeighborLoader(ring(), [9], **given) as another:
            assert another.node_sampler is ours.node_sampler


def test_pyg_s_sampler_is_refused() -> None:
    theirs, ours = both()
    with ours, pytest.raises(ValueError, match="samples with PyG's own code"):
        ps.NeighborLoader(ring(), [2], neighbor_sampler=theirs.node_sampler)


def test_ids_that_do_not_exist_are_refused_when_the_loader_is_made() -> None:
    with pytest.raises(ValueError, match=r"input_nodes\[1\] is 60; expected 0 <= id < 60"):
        ps.NeighborLoader(ring(), [2], [0, 60])


def test_a_worker_s_function_is_not_called() -> None:
    def begin(number: int) -> None:
        raise AssertionError(number)

    with pytest.warns(UserWarning, match="never called"):
        loader = ps.NeighborLoader(ring(), [2], batch_size=20, num_workers=1, worker_init_fn=begin)
    with loader:
        assert order(loader) == list(range(60))


def test_label_edge_types_are_not_walked() -> None:
    data = HeteroData()
    data["a"].num_nodes = data["b"].num_nodes = 20
    for relation in ("to", "to_positive"):
        data["a", relation, "b"].edge_index = torch.arange(20).repeat(2, 1)
    given: dict[str, Any] = {"num_neighbors": [2], "input_nodes": "b", "batch_size": 20}
    theirs = next(iter(pyg.loader.NeighborLoader(data, **given)))
    with ps.NeighborLoader(data, **given) as loader:
        ours = next(iter(loader))
    assert theirs["a", "to_positive", "b"].num_edges == 20
    assert ours["a", "to_positive", "b"].num_edges == 0
    assert ours["a", "to", "b"].num_edges == 20


def test_what_was_used_cannot_be_assigned() -> None:
    theirs, ours = both()
    theirs.data = ring()
    with ours, pytest.raises(ValueError, match="data of this NeighborLoader cannot be set"):
        ours.data = ring()


def test_hgt_and_induced_samples_need_no_torch_sparse() -> None:
    data = HeteroData()
    data["a"].num_nodes = 20
    data["a", "to", "a"].edge_index = torch.arange(20).repeat(2, 1)
    with pytest.raises(ImportError, match="requires 'torch-sparse'"):
        pyg.loader.HGTLoader(data, [2], "a")
    with ps.HGTLoader(data, [2], "a", batch_size=20) as hgt:
        assert next(iter(hgt))["a"].batch_size == 20
    theirs, ours = both(subgraph_type="induced")
    with ours, pytest.raises(ImportError, match="torch-sparse"):
        next(iter(theirs))
    assert order(ps.NeighborLoader(ring(), [2], subgraph_type="induced")) == list(range(60))
