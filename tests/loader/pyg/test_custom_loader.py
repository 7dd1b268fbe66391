"""Samplers of the user's own, read by a loader: what goes in, and what batches look like."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import SamplingError
from penstock.graph.handles import DescriptorHandle
from tests.client.samplers import Dropped
from tests.loader.epochs import NODES, small_data, torch, typed_data
from tests.loader.pyg.own_samplers import Degrees, FirstEdges, Pairs, Papers, Placed

pytestmark = pytest.mark.usefixtures("no_leaks")

PAPERS = 120
OURS = "tests.loader.pyg.own_samplers"
ALL = {"batch_size": 32, "shuffle": True, "seed": 3}
workers = pytest.mark.parametrize("num_workers", [0, 1])


def values(batch: Any) -> dict[str, Any]:
    """All of a batch, as plain data."""
    return {
        f"{store._key}/{name}": value.tolist() if isinstance(value, torch.Tensor) else value
        for store in batch.stores
        for name, value in store.items()
    }


def seeds_of(batch: dict[str, Any]) -> list[int]:
    seeds: list[int] = batch["None/n_id"][: batch["None/batch_size"]]
    return seeds


def epoch_of(loader: Any) -> list[dict[str, Any]]:
    with loader:
        return [values(batch) for batch in loader]


def test_batches_are_data_with_the_features_of_what_was_sampled() -> None:
    data = small_data()
    with ps.CustomLoader(data, FirstEdges, torch.arange(50), batch_size=20) as loader:
        batches = list(loader)
    assert [batch.batch_size for batch in batches] == [20, 20, 10]
    batch = batches[1]
    assert type(batch) is type(data)
    assert batch.input_id.tolist() == list(range(20, 40))
    assert batch.n_id[:20].tolist() == list(range(20, 40))
    assert torch.equal(batch.x, data.x[batch.n_id])
    assert torch.equal(batch.edge_attr, data.edge_attr[batch.e_id])
    assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
    assert batch.noise.shape == (20,)
    assert batch.num_nodes == len(batch.n_id)


def test_workers_make_the_same_batches_by_class_or_by_name() -> None:
    data, table = small_data(), torch.arange(NODES) * 2
    options = {"table": table, "factor": 3}
    here = epoch_of(ps.CustomLoader(data, FirstEdges, options=options, **ALL))
    name = f"{OURS}:FirstEdges"
    pooled = epoch_of(ps.CustomLoader(data, name, options=options, num_workers=1, **ALL))
    assert here == pooled
    for batch in here:
        assert batch["None/looked_up"] == [6 * node for node in seeds_of(batch)]


@pytest.mark.parametrize("source", ["graph", "pair", "hub"])
def test_the_source_may_be_any_that_a_loader_takes(source: str) -> None:
    data = small_data()
    expected = epoch_of(ps.CustomLoader(data, FirstEdges, **ALL))
    if source == "pair":
        found = epoch_of(ps.CustomLoader((data, data), FirstEdges, **ALL))
        names = ["n_id", "edge_index", "e_id", "noise"]
    else:
        with ps.Graph.from_pyg(data) as graph:
            if source == "graph":
                found = epoch_of(ps.CustomLoader(graph, FirstEdges, **ALL))
            else:
                with ps.HubProcess(graph, 1) as hub:
                    found = epoch_of(ps.CustomLoader(hub.address, FirstEdges, **ALL))
        names = ["n_id", "edge_index", "e_id", "noise", "x", "edge_attr"]
    for name in names:
        key = f"None/{name}"
        assert [batch[key] for batch in found] == [batch[key] for batch in expected]


@workers
def test_arrays_among_the_options_are_shared_and_read_only(num_workers: int) -> None:
    data, table = small_data(), np.arange(100_000)
    options = {"table": table}
    with ps.CustomLoader(
        data, Placed, options=options, batch_size=NODES, num_workers=num_workers
    ) as loader:
        (batch,) = loader
        handle = loader._spec.arrays[0].segment
        assert isinstance(handle, DescriptorHandle)
        assert batch.inode.item() == handle.inode
        assert batch.frozen.item()
        assert "num_nodes" not in batch  # it returned no nodes
    table[0] = 7  # the caller's own array is untouched, and stays writable


def test_a_shared_array_is_taken_as_it_is() -> None:
    with ps.SharedArray.from_array(np.arange(10)) as table:
        options = {"table": table}
        with ps.CustomLoader(small_data(), Placed, options=options, batch_size=NODES) as loader:
            (batch,) = loader
        assert batch.inode.item() == table.handle.segment.inode  # type: ignore[union-attr]


@workers
def test_an_instance_is_made_again_with_its_attributes_and_the_graph(num_workers: int) -> None:
    data = small_data()
    sampler = Degrees(10, torch.arange(NODES))
    with ps.CustomLoader(data, sampler, batch_size=NODES, num_workers=num_workers) as loader:
        (batch,) = loader
    degrees = torch.bincount(data.edge_index[1], minlength=NODES)
    assert torch.equal(batch.degrees, degrees * 10 + torch.arange(NODES))
    assert not hasattr(sampler, "graph")


def test_what_an_instance_cannot_take_along_is_named() -> None:
    data, sampler = small_data(), Degrees(10, torch.arange(NODES))
    with pytest.raises(ValueError, match=r"options are given, but the sampler is a Degrees that"):
        ps.CustomLoader(data, sampler, options={"factor": 3})
    sampler.more = {"tables": [object()]}
    with pytest.raises(
        ValueError, match=r"^the Degrees's state\['more'\] is .*lists, mappings, arr"
    ):
        ps.CustomLoader(data, sampler)
    with ps.Graph.from_pyg(data) as graph:
        sampler.more = graph  # type: ignore[assignment]
        with pytest.raises(ValueError, match=r"'more' of the Degrees is a Graph: .*'graph'"):
            ps.CustomLoader(graph, sampler)
    with pytest.raises(ValueError, match=r"^options\['table'\] is an array of objects"):
        ps.CustomLoader(data, FirstEdges, options={"table": np.array([object()])})


def test_a_class_inside_a_function_is_enough_where_there_are_no_workers() -> None:
    def made(factor: int) -> Any:
        class Local(FirstEdges):
            def sample(self, seeds: Any, **batch: Any) -> dict[str, Any]:
                return {"n_id": seeds, "times": seeds * factor}

        return Local

    data, first, second = small_data(), made(2), made(3)
    loaders = [ps.CustomLoader(data, each, batch_size=4) for each in (first, second)]
    for loader, factor in zip(loaders, (2, 3), strict=True):
        with loader:
            assert next(iter(loader)).times.tolist() == [0, factor, 2 * factor, 3 * factor]
    with pytest.raises(ValueError, match=r"move it to the top level .*, or use num_workers=0"):
        ps.CustomLoader(data, first, num_workers=1)


@workers
def test_links_come_with_their_columns(num_workers: int) -> None:
    data = small_data()
    links, times = data.edge_index[:, :30], torch.arange(30) * 100
    with ps.CustomLoader(
        data,
        Pairs,
        edge_label_index=links,
        columns={"time": times},
        batch_size=8,
        num_workers=num_workers,
    ) as loader:
        batch = list(loader)[1]
        again = loader([8, 9])
    assert torch.equal(batch.n_id[batch.pairs], links[:, 8:16])
    assert batch.when.tolist() == times[8:16].tolist()
    assert again.when.tolist() == [800, 900]
    assert torch.equal(batch.x, data.x[batch.n_id])
    assert "y" not in batch  # the class names the attributes that it wants


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"input_nodes": [0]}, r"^input_nodes is given, but the input_kind of .*:Pairs is 'link'"),
        ({}, r"^columns has no 'time', which .*:Pairs reads"),
        ({"columns": {"time": [1], "z": [1]}}, r"^columns has 'z', which nobody reads; .*'time'"),
        (
            {"columns": {"time": [1]}},
            r"^columns\['time'\] has shape \[1\]; expected a row for each",
        ),
        ({"options": [3]}, r"^options is \[3\]; expected names and values"),
    ],
)
def test_arguments_that_do_not_fit_are_named(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ps.CustomLoader(small_data(), Pairs, **given)


def test_edges_for_a_sampler_of_nodes_and_specs_that_are_built_in_are_refused() -> None:
    data = small_data()
    with pytest.raises(
        ValueError, match=r"^edge_label_index is given, but .* 'node': give input_n"
    ):
        ps.CustomLoader(data, FirstEdges, edge_label_index=data.edge_index)
    with pytest.raises(ValueError, match=r"^custom_sampler is a NeighborSpec, which is built in"):
        ps.CustomLoader(data, ps.NeighborSpec(num_neighbors=(2,)))  # type: ignore[arg-type]
    with pytest.raises(SamplingError, match="importing no_such_module:Walks failed"):
        ps.CustomLoader(data, "no_such_module:Walks")


def test_types_that_a_sampler_leaves_out_are_empty() -> None:
    data = typed_data()
    with ps.CustomLoader(data, Papers, "paper", batch_size=PAPERS) as loader:
        (batch,) = loader
    assert batch.node_types == data.node_types
    assert batch.edge_types == data.edge_types
    assert batch["paper"].double.tolist() == [2 * node for node in range(PAPERS)]
    assert torch.equal(batch["paper"].x, data["paper"].x)
    for kind in data.edge_types:
        assert batch[kind].edge_index.shape == (2, 0)
    for name in set(data.node_types) - {"paper"}:
        assert batch[name].num_nodes == 0


def test_a_saved_position_goes_on_with_the_next_batch() -> None:
    data = small_data()

    def loader(num_workers: int) -> Any:
        return ps.CustomLoader(data, FirstEdges, num_workers=num_workers, **ALL)

    expected = epoch_of(loader(0))
    with loader(1) as first:
        batches = iter(first)
        assert [values(next(batches)) for _ in range(2)] == expected[:2]
        state = first.state_dict()
        assert first.statistics().batches == 2
    with loader(0) as second:
        second.load_state_dict(state)
        assert [values(batch) for batch in second] == expected[2:]


def test_a_pickled_loader_is_made_anew_and_its_arguments_are_used_up() -> None:
    options = {"table": torch.arange(NODES)}
    with ps.CustomLoader(small_data(), FirstEdges, options=options, **ALL) as loader:
        again = pickle.loads(pickle.dumps(loader))
        assert epoch_of(again) == [values(batch) for batch in loader]
        for name in ("options", "columns", "custom_sampler"):
            with pytest.raises(ValueError, match=f"^{name} of this CustomLoader cannot be set"):
                setattr(loader, name, {})


def test_a_transform_makes_of_a_batch_what_it_likes() -> None:
    with ps.CustomLoader(
        small_data(), FirstEdges, batch_size=NODES, transform=lambda batch: batch.num_nodes
    ) as loader:
        assert list(loader) == [2 * NODES]


@pytest.fixture
def served() -> Iterator[Any]:
    """A server with some samplers, as another host sees it."""
    graph = ps.Graph.from_pyg(small_data())
    with graph, ps.serve(graph, num_workers=1, samplers=[FirstEdges, Pairs]) as server:
        with ps.connect(server.address, same_host=False) as found:
            yield found


def test_a_loader_tries_again_and_counts_it(tmp_path: Path) -> None:
    """Here, in a worker, and over TCP from a server: with the same bytes."""
    name = "tests.client.samplers:Flaky"
    with ps.Graph.from_pyg(small_data()) as graph:
        with ps.serve(graph, num_workers=1, samplers=[name]) as server:
            found = []
            for number, source in enumerate((graph, graph, server.address)):
                folder = tmp_path / str(number)
                folder.mkdir()
                given = {"folder": str(folder), "error": "Dropped"}
                retried: Any = {"retry_errors": 2, "retry_on": Dropped, "num_workers": number}
                if source is server.address:
                    del retried["num_workers"]
                with ps.CustomLoader(source, name, options=given, **ALL, **retried) as loader:
                    found.append([batch.n_id.tolist() for batch in loader])
                    assert loader.statistics().retries == 2
    assert found[0] == found[1] == found[2]


def test_a_server_runs_the_samplers_that_it_was_started_with(served: Any) -> None:
    expected = epoch_of(ps.CustomLoader(small_data(), FirstEdges, **ALL))
    for sampler in (FirstEdges, f"{OURS}:FirstEdges"):
        found = epoch_of(ps.CustomLoader(served, sampler, **ALL))
        assert [batch.pop("None/num_nodes") for batch in found] == [64] * 12 + [32]
        assert found == expected
    with ps.CustomLoader(served, Papers, **ALL) as loader:
        with pytest.raises(ValueError, match=r"Papers', which this server was not started with"):
            next(iter(loader))


def test_a_server_gets_no_arrays_and_maps_no_memory_that_a_rank_names(served: Any) -> None:
    with pytest.raises(ValueError, match=r"arrays, which workers of a server cannot map"):
        ps.CustomLoader(served, FirstEdges, options={"table": np.arange(3)})
    with (
        ps.CustomLoader(served, FirstEdges, **ALL) as loader,
        ps.SharedArray.from_array(np.arange(3)) as table,
    ):
        loader._batches_from._spec = ps.CustomSpec(
            sampler=f"{OURS}:FirstEdges",
            options={"table": {"$array": 0}},
            arrays=(table.path_handle(),),
        )
        with pytest.raises(ValueError, match="workers of a server cannot map"):
            next(iter(loader))
