"""Any graph at all: what goes in comes out, and topology is what NumPy's stable sort says."""

from __future__ import annotations

import numpy as np
import numpy.testing as npt
from hypothesis import given
from hypothesis import strategies as st

from penstock.graph import Graph, Topology
from tests.graph.shapes import Array, Typed, features, heterogeneous, homogeneous, sorted_by


def assert_topology(topology: Topology, keys: Array, others: Array, size: int) -> None:
    indptr, neighbors, edge_ids = sorted_by(keys, others, size)
    npt.assert_array_equal(topology.indptr, indptr)
    npt.assert_array_equal(topology.indices, neighbors)
    npt.assert_array_equal(topology.edge_ids, edge_ids)
    npt.assert_array_equal(topology.degrees, np.bincount(keys, minlength=size))


@given(homogeneous())
def test_edges_come_back_as_they_were_given(drawn: tuple[int, Array]) -> None:
    num_nodes, edges = drawn
    with Graph.from_coo(edges, num_nodes) as graph:
        assert (graph.num_nodes(), graph.num_edges()) == (num_nodes, edges.shape[1])
        npt.assert_array_equal(graph.edge_index(), edges)


@given(homogeneous())
def test_the_csc_is_the_stable_sort_by_destination(drawn: tuple[int, Array]) -> None:
    num_nodes, (sources, destinations) = drawn
    with Graph.from_coo((sources, destinations), num_nodes) as graph:
        assert_topology(graph.csc(), destinations, sources, num_nodes)


@given(homogeneous())
def test_the_csr_is_the_stable_sort_by_source(drawn: tuple[int, Array]) -> None:
    num_nodes, edges = drawn
    with Graph.from_coo(edges, num_nodes) as graph:
        assert_topology(graph.csr(), edges[0], edges[1], num_nodes)


@given(homogeneous())
def test_a_graph_that_was_built_is_sound(drawn: tuple[int, Array]) -> None:
    num_nodes, edges = drawn
    with Graph.from_coo(edges, num_nodes) as graph:
        graph.csr()
        graph.validate()


@given(heterogeneous())
def test_every_type_has_its_own_topology(drawn: Typed) -> None:
    with Graph.from_coo(drawn.edge_index, drawn.num_nodes) as graph:
        assert graph.node_types == tuple(drawn.num_nodes)
        assert graph.edge_types == tuple(drawn.edge_index)
        for name, edges in drawn.edge_index.items():
            npt.assert_array_equal(graph.edge_index(name), edges)
            source, _, destination = name
            assert_topology(graph.csc(name), edges[1], edges[0], drawn.num_nodes[destination])
            assert_topology(graph.csr(name), edges[0], edges[1], drawn.num_nodes[source])


@given(heterogeneous())
def test_a_heterogeneous_graph_that_was_built_is_sound(drawn: Typed) -> None:
    with Graph.from_coo(drawn.edge_index, drawn.num_nodes) as graph:
        for name in graph.edge_types:
            graph.csr(name)
        graph.validate()
        assert graph.num_nodes() == sum(drawn.num_nodes.values())
        assert graph.num_edges() == sum(edges.shape[1] for edges in drawn.edge_index.values())


@given(st.data())
def test_attributes_of_any_type_and_width_come_back_as_they_were_given(data: st.DataObject) -> None:
    num_nodes, edges = data.draw(homogeneous())
    of_nodes = data.draw(features(num_nodes))
    of_edges = data.draw(features(edges.shape[1]))
    with Graph.from_coo(edges, num_nodes, x=of_nodes, edge_attr=of_edges) as graph:
        for given_, found in (
            (of_nodes, graph.node_attribute("x")),
            (of_edges, graph.edge_attribute("edge_attr")),
        ):
            assert found.dtype == given_.dtype
            npt.assert_array_equal(found, given_)


@given(st.data())
def test_a_mask_and_its_ids_are_the_same_split(data: st.DataObject) -> None:
    num_nodes, edges = data.draw(homogeneous())
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=num_nodes, max_size=num_nodes)))
    mask = mask.astype(np.bool_)
    with (
        Graph.from_coo(edges, num_nodes, train=mask) as by_mask,
        Graph.from_coo(edges, num_nodes, train=np.flatnonzero(mask)) as by_id,
    ):
        npt.assert_array_equal(by_mask.split("train"), by_id.split("train"))
