"""The graph a hub hosts: mapped once, handed on with its descriptors, supplemented once."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest

from penstock.errors import GraphFormatError
from penstock.graph import Graph
from penstock.graph.sharing import GraphHandle, descriptors_of, handle_of
from penstock.hub.hosted import HostedGraph
from tests.hub.raw import small_graph

pytestmark = pytest.mark.usefixtures("no_leaks")


def duplicates(fds: Sequence[int]) -> list[int]:
    return [os.dup(fd) for fd in fds]


def hosted(graph: Graph) -> HostedGraph:
    return HostedGraph(graph.handle(), duplicates(graph.descriptors))


def out_edges(graph: Graph) -> tuple[GraphHandle, list[int]]:
    """The csr alone, as a supplement."""
    graph.csr()
    news = {key: array for key, array in graph.arrays.items() if key.group == "csr"}
    return handle_of(graph.schema, news, None), duplicates(descriptors_of(news))


def attached(host: HostedGraph) -> Graph:
    """As another process would attach it, from what the host hands on."""
    handle = host.handle
    return Graph.attach(handle, duplicates(host.descriptors(handle)))


def test_what_is_hosted_can_be_handed_on_when_its_creator_has_gone() -> None:
    with small_graph() as graph:
        edges = graph.edge_index()
        host = hosted(graph)
    with attached(host) as copy:
        assert (copy.edge_index() == edges).all()
    host.close()


def test_a_supplement_becomes_part_of_the_graph() -> None:
    """CONTRACT 60."""
    with small_graph() as graph:
        host = hosted(graph)
        host.supplement(*out_edges(graph))
        with attached(host) as copy:
            keys = set(copy.arrays)
            assert keys == set(graph.arrays)
            assert (copy.csr().indptr == graph.csr().indptr).all()
        assert len(host.supplements) == 1
        host.close()


def test_the_same_supplement_is_taken_once() -> None:
    with small_graph() as graph:
        host = hosted(graph)
        host.supplement(*out_edges(graph))
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(3):
            host.supplement(*out_edges(graph))
        assert len(os.listdir("/proc/self/fd")) == before
        assert len(host.supplements) == 1
        host.close()


def test_what_is_there_is_not_replaced_by_a_supplement() -> None:
    with small_graph(seed=0) as graph, small_graph(seed=1) as other:
        host = hosted(graph)
        other.csr()
        host.supplement(other.handle(), duplicates(other.descriptors))
        with attached(host) as copy:
            assert (copy.edge_index() == graph.edge_index()).all()
        host.close()


def test_a_supplement_of_another_graph_is_refused_and_closed() -> None:
    with small_graph() as graph, small_graph(num_nodes=50) as other:
        host = hosted(graph)
        with pytest.raises(ValueError, match="another graph"):
            host.supplement(*out_edges(other))
        assert not host.supplements
        host.close()


def test_a_supplement_that_lies_is_refused_and_closed() -> None:
    with small_graph() as graph:
        host = hosted(graph)
        handle, fds = out_edges(graph)
        arrays = tuple(
            type(placed)(placed.key, placed.segment, placed.dtype, (3,), placed.offset)
            for placed in handle.arrays
        )
        lie = GraphHandle(handle.schema, handle.segments, arrays)
        with pytest.raises(GraphFormatError):
            host.supplement(lie, fds)
        assert not host.supplements
        host.close()


def test_a_graph_without_its_descriptors_is_refused() -> None:
    with small_graph() as graph:
        with pytest.raises(ValueError, match="descriptors"):
            HostedGraph(graph.handle(), [])
