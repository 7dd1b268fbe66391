"""The graph a hub hosts: mapped once, handed on with its descriptors, supplemented once."""

from __future__ import annotations

import gc
import os
from collections.abc import Sequence

import msgspec
import numpy as np
import pytest

from penstock.errors import GraphFormatError
from penstock.graph import Graph, SharedArray
from penstock.graph.derived import Coo, DerivedArrays, OutEdges, SortedNeighbors
from penstock.graph.schema import EDGE, ArrayKey
from penstock.graph.sharing import GraphHandle, descriptors_of, handle_of
from penstock.hub.backends import check_spec
from penstock.hub.shared_graph import SharedGraph
from penstock.sampling.inputs import ChannelInputs
from penstock.sampling.kinds import prepare, seconds_of
from penstock.sampling.spec import BuiltInSpec, Feed, LinkSpec, NeighborSpec, PPRSpec, WalkSpec
from penstock.wire.frames import private_memory
from penstock.workers.batch_maker import BatchMaker, slot_bytes_for
from tests.hub.raw import small_graph

pytestmark = pytest.mark.usefixtures("no_leaks")


def duplicates(fds: Sequence[int]) -> list[int]:
    return [os.dup(fd) for fd in fds]


def shared_graph(graph: Graph) -> SharedGraph:
    return SharedGraph(graph.handle(), duplicates(graph.descriptors))


def out_edges(graph: Graph) -> tuple[GraphHandle, list[int]]:
    """The csr alone, as a supplement."""
    graph.csr()
    news = {key: array for key, array in graph.arrays.items() if key.group == "csr"}
    return handle_of(graph.schema, news, None), duplicates(descriptors_of(news))


def attached(host: SharedGraph) -> Graph:
    """As another process would attach it, from what the host hands on."""
    handle = host.handle
    return Graph.attach(handle, duplicates(host.descriptors(handle)))


def test_what_is_hosted_can_be_handed_on_when_its_creator_has_gone() -> None:
    with small_graph() as graph:
        edges = graph.edge_index()
        host = shared_graph(graph)
    with attached(host) as copy:
        assert (copy.edge_index() == edges).all()
    host.close()


def test_a_supplement_becomes_part_of_the_graph() -> None:
    """CONTRACT 60."""
    with small_graph() as graph:
        host = shared_graph(graph)
        host.supplement(*out_edges(graph))
        with attached(host) as copy:
            keys = set(copy.arrays)
            assert keys == set(graph.arrays)
            assert (copy.csr().indptr == graph.csr().indptr).all()
        assert len(host.supplements) == 1
        host.close()


def test_the_same_supplement_is_taken_once() -> None:
    with small_graph() as graph:
        host = shared_graph(graph)
        host.supplement(*out_edges(graph))
        gc.collect()  # what others have left must not go, and be counted, meanwhile
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(3):
            host.supplement(*out_edges(graph))
        assert len(os.listdir("/proc/self/fd")) == before
        assert len(host.supplements) == 1
        host.close()


def test_what_is_there_is_not_replaced_by_a_supplement() -> None:
    with small_graph(seed=0) as graph, small_graph(seed=1) as other:
        host = shared_graph(graph)
        other.csr()
        host.supplement(other.handle(), duplicates(other.descriptors))
        with attached(host) as copy:
            assert (copy.edge_index() == graph.edge_index()).all()
        host.close()


def test_a_supplement_of_another_graph_is_refused_and_closed() -> None:
    with small_graph() as graph, small_graph(num_nodes=50) as other:
        host = shared_graph(graph)
        with pytest.raises(ValueError, match="another graph"):
            host.supplement(*out_edges(other))
        assert not host.supplements
        host.close()


def test_a_supplement_that_lies_is_refused_and_closed() -> None:
    with small_graph() as graph:
        host = shared_graph(graph)
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
            SharedGraph(graph.handle(), [])


# --- what two ranks bring ------------------------------------------------------------------------


def supplement_of(graph: Graph, *derived_arrays: DerivedArrays) -> tuple[GraphHandle, list[int]]:
    """These derived arrays, as a rank sends them."""
    made = {
        key: array
        for derived in derived_arrays
        for key, array in zip(derived.keys, graph.derived(derived), strict=True)
    }
    return handle_of(graph.schema, made, None), duplicates(descriptors_of(made))


def test_of_what_two_ranks_made_each_the_first_is_kept_and_nothing_of_the_other() -> None:
    """CONTRACT 60: one copy of each, however many made one."""
    with small_graph() as graph, small_graph() as same:
        host = shared_graph(graph)
        host.supplement(*supplement_of(graph, OutEdges(EDGE)))
        first = host.graph.arrays[OutEdges(EDGE).keys[0]]
        gc.collect()
        before = len(os.listdir("/proc/self/fd"))
        host.supplement(*supplement_of(same, OutEdges(EDGE), SortedNeighbors(EDGE)))
        assert host.graph.arrays[OutEdges(EDGE).keys[0]] is first
        assert [placed.key for placed in host.supplements[1].arrays] == [
            *SortedNeighbors(EDGE).keys
        ]
        assert len(host.supplements[1].segments) == 1
        # One for the supplement, and the two that its maker still holds.
        assert len(os.listdir("/proc/self/fd")) == before + 3
        with attached(host) as copy:
            assert set(copy.arrays) == set(same.arrays)
            copy.validate()
        host.close()


def test_arrays_that_lie_together_are_taken_together() -> None:
    with small_graph() as graph:
        host = shared_graph(graph)
        host.supplement(
            *supplement_of(graph, SortedNeighbors(EDGE, "out"), OutEdges(EDGE), Coo(EDGE))
        )
        assert len(host.supplements[0].segments) == 3
        with attached(host) as copy:
            before = set(copy.arrays)
            for derived in (SortedNeighbors(EDGE, "out"), OutEdges(EDGE), Coo(EDGE)):
                copy.derived(derived)
            assert set(copy.arrays) == before == set(graph.arrays)
            copy.validate()
        host.close()


def test_a_supplement_adds_nothing_to_the_content() -> None:
    with small_graph() as graph:
        host = shared_graph(graph)
        weights = SharedArray.from_array(np.ones(graph.num_edges()))
        news = {ArrayKey("edge", EDGE, "weight"): weights}
        handle, fds = handle_of(graph.schema, news, None), duplicates(descriptors_of(news))
        with pytest.raises(
            ValueError, match="edge/weight, which this graph has not, and no derived array"
        ):
            host.supplement(handle, fds)
        weights.close()
        host.close()


def test_an_derived_array_without_what_it_is_made_from_is_refused_and_closed() -> None:
    with small_graph() as graph:
        host = shared_graph(graph)
        with pytest.raises(
            GraphFormatError, match=r"aid/out\.sorted is alone: it needs csr/indptr"
        ):
            host.supplement(*supplement_of(graph, SortedNeighbors(EDGE, "out")))
        assert not host.supplements
        host.close()


@pytest.mark.parametrize("count", [0, 2])
def test_a_supplement_with_too_few_or_too_many_descriptors_is_refused(count: int) -> None:
    with small_graph() as graph:
        host = shared_graph(graph)
        handle, (fd,) = supplement_of(graph, SortedNeighbors(EDGE))
        fds = duplicates([fd] * count)
        os.close(fd)
        with pytest.raises(ValueError, match=f"fds has {count} descriptors; this graph needs 1"):
            host.supplement(handle, fds)
        host.close()


def test_a_supplement_that_speaks_of_a_segment_that_is_none_is_refused() -> None:
    with small_graph() as graph:
        host = shared_graph(graph)
        handle, fds = supplement_of(graph, SortedNeighbors(EDGE))
        arrays = tuple(msgspec.structs.replace(placed, segment=5) for placed in handle.arrays)
        with pytest.raises(ValueError, match="speaks of segment 5, there are 1"):
            host.supplement(msgspec.structs.replace(handle, arrays=arrays), fds)
        host.close()


def test_a_graph_that_cannot_be_hosted_is_let_go_of() -> None:
    with small_graph() as graph:
        handle = graph.handle()
        lie = msgspec.structs.replace(handle, arrays=handle.arrays[1:])
        with pytest.raises(GraphFormatError, match="csc/indptr is missing"):
            SharedGraph(lie, duplicates(graph.descriptors))


# --- the hub makes none --------------------------------------------------------------------------

HOPS = NeighborSpec(num_neighbors=(3, 2))
NEEDY: list[BuiltInSpec] = [
    NeighborSpec(num_neighbors=(3,), direction="out"),
    NeighborSpec(num_neighbors=(3,), weight_attr="edge_weight"),
    NeighborSpec(num_neighbors=(3,), time_attr="edge_time"),
    LinkSpec(neighbors=HOPS, negatives="binary", strict=True),
    PPRSpec(direction="out"),
    WalkSpec(walk_length=3, p=0.5),
]


def needy_graph() -> Graph:
    rng = np.random.default_rng(0)
    return Graph.from_coo(
        rng.integers(0, 50, (2, 300)),
        50,
        edge_weight=rng.random(300),
        edge_time=rng.integers(0, 9, 300),
    )


@pytest.mark.parametrize("spec", NEEDY)
def test_checking_a_spec_makes_nothing_and_says_what_is_missing(spec: BuiltInSpec) -> None:
    """CONTRACT 60: the hub's loop must not stand still for it."""
    with needy_graph() as graph:
        before = set(graph.arrays)
        with pytest.raises(
            ValueError,
            match=r"the hub has no (csr|aid)/.*make it with graph\.derived",
        ):
            check_spec(spec, graph)
        assert set(graph.arrays) == before
        prepare(spec, graph)
        made = set(graph.arrays)
        check_spec(spec, graph)
        assert set(graph.arrays) == made > before


@pytest.mark.parametrize("spec", NEEDY)
def test_what_a_hub_reckons_and_a_worker_samples_makes_nothing_more(spec: BuiltInSpec) -> None:
    """CONTRACT 60: what `needs_of` names is all there is to make."""
    with needy_graph() as graph:
        links, time = isinstance(spec, LinkSpec), getattr(spec, "time_attr", None)
        ids = np.arange(20).reshape(2, 10) if links else np.arange(10)
        columns = {} if time is None else {"time": np.full(10, 5)}
        feed = Feed(num_inputs=10, batch_size=5, edge_type=EDGE if links else None)
        prepare(spec, graph)
        made = set(graph.arrays)
        room = slot_bytes_for(spec, graph, feed)
        seconds_of(spec, graph, 10, EDGE if links else "")
        maker = BatchMaker(graph)
        maker.open_backend(1, spec)
        maker.open_channel(1, 1, feed, ChannelInputs(ids, columns))
        maker.sample(1, 0, 0, private_memory(room))
        assert set(graph.arrays) == made
