"""From arrays in a slot to PyG's batches: whose memory they are, and what is on which store."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.sampling.spec import HGTSpec, PPRSpec
from tests.client.graphs import channel_of
from tests.loader.reading import (
    Collate,
    Data,
    HeteroData,
    batches,
    differences,
    link_inputs,
    link_spec,
    neighbor_spec,
    node_batches,
    node_inputs,
    pyg,
    reading,
    source_of,
    torch,
)

pytestmark = pytest.mark.usefixtures("no_leaks")

NODES = 60
CITES, WRITES = ("paper", "cites", "paper"), ("author", "writes", "paper")


def edges(sources: int, destinations: int, count: int) -> Any:
    random = np.random.default_rng([sources, destinations])
    return torch.from_numpy(
        np.stack([random.integers(0, sources, count), random.integers(0, destinations, count)])
    )


def homogeneous() -> Any:
    return Data(
        x=torch.rand(NODES, 3),
        half=torch.rand(NODES, 2).bfloat16(),
        y=torch.arange(NODES),
        edge_index=edges(NODES, NODES, 300),
        edge_attr=torch.rand(300, 2),
        whole=torch.arange(3),
        name="whole",
    )


def typed() -> Any:
    data = HeteroData(name="whole")
    data["paper"].x = torch.rand(40, 3)
    data["author"].x = torch.rand(20, 4).bfloat16()
    data["venue"].x = torch.rand(5, 2, 7).half()
    data[CITES].edge_index, data[CITES].edge_attr = edges(40, 40, 200), torch.rand(200)
    data[WRITES].edge_index = edges(20, 40, 90)
    data["paper", "in", "venue"].edge_index = edges(40, 5, 40)
    return data


def parts(data: Any, *, of: Any = None, fanouts: Any = (3, 2), **options: Any) -> Any:
    """A source, a spec and inputs; of nodes."""
    source = source_of(data)
    return source, neighbor_spec(source, fanouts, **options), node_inputs(source, of)


def first(source: Any, spec: Any, inputs: Any, size: int = 6, workers: int = 0) -> Any:
    """The first batch, as it comes; nothing else is held."""
    with reading(source, spec, inputs, workers, batch_size=size) as backend:
        return backend.next_batch("all", timeout=60)


class TestMemory:
    @pytest.mark.parametrize("workers", [0, 1])
    def test_tensors_lie_where_the_batch_lies(self, workers: int) -> None:
        source, spec, inputs = parts(homogeneous())
        batch = first(source, spec, inputs, workers=workers)
        data = Collate(source, spec, inputs).data(batch)
        for name in ("x", "half", "y", "edge_attr", "n_id", "e_id", "edge_index", "input_id"):
            assert data[name].data_ptr() == batch[name].ctypes.data, name

    def test_a_slot_is_the_users_until_the_last_tensor_goes(self) -> None:
        """CONTRACT 23: however few of them are kept, and in whatever form."""
        source, spec, inputs = parts(homogeneous())
        collate = Collate(source, spec, inputs)
        with reading(source, spec, inputs, 1, batch_size=6) as backend:
            channel = channel_of(backend, "all")
            for keep in ("x", "half", "input_id"):
                data = collate.data(backend.next_batch("all", timeout=60))
                kept, before = data[keep][1:].t(), data[keep].clone()
                del data
                gc.collect()
                assert channel.statistics().held == 1
                backend.next_batch("all", timeout=60)  # which would lie there, were it free
                assert torch.equal(kept, before[1:].t())
                del kept
                gc.collect()
                assert channel.statistics().held == 0

    def test_what_is_kept_outlives_the_hub(self) -> None:
        source, spec, inputs = parts(homogeneous())
        data = Collate(source, spec, inputs).data(first(source, spec, inputs, workers=1))
        assert torch.equal(data.x, source.template.blank().x[data.n_id])

    @pytest.mark.parametrize("workers", [0, 1])
    def test_a_batch_may_be_changed_and_the_next_are_as_ever(self, workers: int) -> None:
        source, spec, inputs = parts(homogeneous())
        untouched = list(batches(source, spec, inputs, batch_size=6))
        for index, data in enumerate(batches(source, spec, inputs, workers, batch_size=6)):
            assert not list(differences(untouched[index], data))
            for name in ("x", "half", "y", "edge_attr", "n_id", "e_id", "edge_index", "input_id"):
                data[name].zero_()
            data.x += torch.nn.functional.relu(data.x - 1)
        assert torch.equal(
            torch.from_numpy(source.graph.node_attribute("y").copy()), torch.arange(NODES)
        )


class TestBesidePyG:
    """PyG's own loaders, given what our samplers put out, make the same of it."""

    @pytest.mark.parametrize("subgraph_type", ["directional", "bidirectional", "induced"])
    @pytest.mark.parametrize(("make", "of"), [(homogeneous, None), (typed, "paper")])
    @pytest.mark.filterwarnings("ignore:Cannot convert to bidirectional")
    def test_nodes(self, make: Any, of: Any, subgraph_type: str) -> None:
        given = make()
        source, spec, inputs = parts(given, of=of, subgraph_type=subgraph_type)
        batch = first(source, spec, inputs)
        collate = Collate(source, spec, inputs)
        theirs = theirs_of(pyg.loader.NodeLoader, given, input_nodes=of)
        expected = theirs.filter_fn(collate.sampler_output(batch))
        assert not list(differences(expected, collate.data(batch)))
        assert not list(differences(expected, collate.join(collate.sampler_output(batch))))

    @pytest.mark.parametrize("mode", [None, "binary", "triplet"])
    @pytest.mark.parametrize("disjoint", [False, True])
    @pytest.mark.parametrize(("make", "of"), [(homogeneous, None), (typed, WRITES), (typed, CITES)])
    def test_links(self, make: Any, of: Any, mode: Any, disjoint: bool) -> None:
        given, against = make(), None if mode is None else (mode, 2)
        source = source_of(given)
        spec = link_spec(
            source, neighbor_spec(source, [3, 2], disjoint=disjoint), neg_sampling=against
        )
        inputs = link_inputs(source, of, neg_sampling=against)
        batch = first(source, spec, inputs)
        collate = Collate(source, spec, inputs)
        theirs = theirs_of(pyg.loader.LinkLoader, given, edge_label_index=of, neg_sampling=against)
        expected = theirs.filter_fn(collate.sampler_output(batch))
        assert not list(differences(expected, collate.data(batch)))
        assert not list(differences(expected, collate.join(collate.sampler_output(batch))))

    @pytest.mark.parametrize("mode", [None, "triplet"])
    def test_times_of_links(self, mode: Any) -> None:
        given, against = typed(), None if mode is None else (mode, 1)
        given["paper"].time, given["author"].time = torch.arange(40), torch.arange(20)
        source = source_of(given)
        neighbors = neighbor_spec(source, [3, 2], time_attr="time")
        spec = link_spec(source, neighbors, neg_sampling=against)
        times = torch.arange(40, 130, dtype=torch.int32)
        inputs = link_inputs(source, WRITES, None, times, neg_sampling=against, time_attr="time")
        batch = first(source, spec, inputs)
        collate = Collate(source, spec, inputs)
        theirs = theirs_of(
            pyg.loader.LinkLoader, given, edge_label_index=WRITES, neg_sampling=against
        )
        expected = theirs.filter_fn(collate.sampler_output(batch))
        assert not list(differences(expected, collate.data(batch)))
        assert not list(differences(expected, collate.join(collate.sampler_output(batch))))
        said = expected[WRITES].edge_label_time if mode is None else expected["paper"].seed_time
        assert torch.equal(said, times[:6])
        assert said.dtype == torch.int32


def theirs_of(loader: Any, data: Any, **inputs: Any) -> Any:
    """A loader of PyG's that has no sampler, and joins what others have sampled."""

    class Nobody(pyg.sampler.BaseSampler):  # type: ignore[misc, name-defined]
        def sample_from_nodes(self, *_: Any, **__: Any) -> Any: ...
        def sample_from_edges(self, *_: Any, **__: Any) -> Any: ...

    return loader(data, Nobody(), **inputs)


class TestOutputs:
    def test_what_a_user_leaves_out_is_left_out(self) -> None:
        source, spec, inputs = parts(homogeneous())
        collate = Collate(source, spec, inputs)
        out = collate.sampler_output(first(source, spec, inputs))
        out.row, out.col, out.edge = out.row[::2], out.col[::2], out.edge[::2]
        data = collate.join(out)
        assert torch.equal(data.edge_attr, source.template.blank().edge_attr[data.e_id])
        assert data.edge_index.size(1) == data.e_id.numel() == out.edge.numel()

    def test_without_ids_edges_have_no_attributes(self) -> None:
        source, spec, inputs = parts(homogeneous())
        collate = Collate(source, spec, inputs)
        out = collate.sampler_output(first(source, spec, inputs))
        out.edge = None
        assert not {"edge_attr", "e_id"} & set(collate.join(out).keys())

    def test_types_that_are_not_mentioned_have_no_rows(self) -> None:
        source, spec, inputs = parts(typed(), of="paper")
        collate = Collate(source, spec, inputs)
        out = collate.sampler_output(first(source, spec, inputs))
        del out.node["author"], out.row[WRITES], out.col[WRITES], out.edge[WRITES]
        data = collate.join(out)
        assert data["author"].x.shape == (0, 4)
        assert data["author"].n_id.shape == (0,)
        assert data[WRITES].edge_index.shape == (2, 0)

    def test_anything_else_is_refused(self) -> None:
        source, spec, inputs = parts(homogeneous())
        with pytest.raises(TypeError, match="found invalid type: '<class 'dict'>'"):
            Collate(source, spec, inputs).join({})


class TestBatches:
    def test_rows_are_those_of_their_ids(self) -> None:
        """CONTRACT 43: x[i] is the feature of n_id[i], and edges are edges of the graph."""
        given = homogeneous()
        for data in node_batches(given, [3, 2], batch_size=7):
            for name in ("x", "half", "y"):
                assert torch.equal(data[name], given[name][data.n_id])
            assert torch.equal(data.edge_attr, given.edge_attr[data.e_id])
            assert torch.equal(data.n_id[data.edge_index], given.edge_index[:, data.e_id])

    def test_types_not_reached_have_no_rows_of_their_shape(self) -> None:
        """CONTRACT 44: an empty tensor of the right dtype and trailing shape, not None."""
        for data in node_batches(typed(), [2], input_nodes="author", batch_size=5):
            assert (data["venue"].x.shape, data["venue"].x.dtype) == ((0, 2, 7), torch.half)
            assert data[CITES].edge_attr.shape == (0,)
            assert data[CITES].edge_index.shape == (2, 0)
            assert data["venue"].num_sampled_nodes == [0, 0]
            assert data[CITES].num_sampled_edges == [0]

    def test_a_seed_given_twice_has_two_rows_and_edges_at_the_first(self) -> None:
        given = Data(x=torch.arange(3), edge_index=torch.tensor([[1, 2], [0, 0]]))
        (data,) = node_batches(given, [-1], input_nodes=[0, 0], batch_size=2)
        assert data.n_id.tolist() == data.x.tolist() == [0, 0, 1, 2]
        assert data.edge_index.tolist() == [[2, 3], [0, 0]]
        assert data.batch_size == 2

    def test_inputs_by_place_show_their_ids(self) -> None:
        source, spec, inputs = parts(homogeneous(), of=torch.arange(NODES) % 2 == 0)
        some = inputs.at([5, 2])
        data = Collate(source, spec, inputs).data(first(source, spec, some), some)
        assert data.input_id.tolist() == data.n_id[:2].tolist() == [10, 4]

    def test_what_belongs_to_the_whole_comes_as_it_is(self) -> None:
        given = homogeneous()
        (data,) = node_batches(given, [1], batch_size=NODES)
        assert data.name == "whole"
        assert data.whole is given.whole

    def test_edges_have_the_dtype_they_were_given_in(self) -> None:
        given = homogeneous()
        given.edge_index = given.edge_index.int()
        (data,) = node_batches(given, [-1], batch_size=NODES)
        assert data.edge_index.dtype == data.n_id.dtype == torch.int32
        assert data.e_id.dtype == torch.int64
        assert torch.equal(
            data.n_id[data.edge_index.long()].long(), given.edge_index[:, data.e_id].long()
        )

    def test_what_came_from_another_device_goes_back_there(self) -> None:
        source, spec, inputs = parts(homogeneous())
        meta = torch.device("meta")
        template = replace(
            source.template,
            rows=tuple(replace(row, device=meta) for row in source.template.rows),
            ends={kind: replace(ends, device=meta) for kind, ends in source.template.ends.items()},
        )
        elsewhere = replace(source, template=template)
        data = Collate(elsewhere, spec, inputs).data(first(source, spec, inputs))
        for name in ("x", "half", "edge_attr", "edge_index"):
            assert data[name].device == meta, name
        assert data.n_id.device.type == data.input_id.device.type == "cpu"

    @pytest.mark.parametrize("make", [homogeneous, typed])
    def test_a_graph_gives_what_data_gives(self, make: Any) -> None:
        given, options = make(), {"batch_size": 6}
        if make is typed:
            options["input_nodes"] = "paper"
        with ps.Graph.from_pyg(given) as graph:
            pairs = zip(
                node_batches(given, [3, 2], **options),
                node_batches(graph, [3, 2], **options),
                strict=True,
            )
            for theirs, ours in pairs:
                for store in ours.node_stores:
                    assert store.pop("num_nodes") == store.n_id.numel()
                assert not list(differences(theirs, ours))


class TestOtherKinds:
    """Whatever a spec puts into a batch is on the store of its type."""

    def test_budgets_by_type(self) -> None:
        source = source_of(typed())
        spec, inputs = HGTSpec(num_samples=(3, 3)), node_inputs(source, "paper")
        data = Collate(source, spec, inputs).data(first(source, spec, inputs))
        assert data["paper"].batch_size == 6
        assert torch.equal(data["paper"].x, source.template.blank()["paper"].x[data["paper"].n_id])

    def test_attributes_of_the_graphs_edges_are_not_those_of_others(self) -> None:
        """CONTRACT 48: PPR's edges have attributes of their own, and no ids."""
        source = source_of(homogeneous())
        spec, inputs = PPRSpec(max_ppr_nodes=5), node_inputs(source)
        data = Collate(source, spec, inputs).data(first(source, spec, inputs))
        assert data.edge_attr.shape == (data.edge_index.size(1), 2)
        assert torch.equal(data.x, source.template.blank().x[data.n_id])
