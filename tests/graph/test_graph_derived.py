"""What samplers need of a graph once: what it is, and that it is made once."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import numpy as np
import numpy.testing as npt
import pytest

from penstock.graph import Graph, SharedArray
from penstock.graph.check import PIECE
from penstock.graph.derived import (
    DegreeSizes,
    DerivedFrom,
    OutEdges,
    Side,
    SortedNeighbors,
    WeightSums,
    derived_among,
    derived_of,
    keys_of,
)
from penstock.graph.handles import MemfdHandle, NamedHandle
from penstock.graph.schema import EDGE, ArrayKey
from penstock.graph.topology import Topology, coo
from tests.graph.derived_graphs import FILMS, RATES, WEB, films, make_all, web
from tests.graph.shared_children import kinds, run_child

pytestmark = pytest.mark.usefixtures("no_leaks")

PATIENCE_S = 60.0
sides = pytest.mark.parametrize("side", ["in", "out"])
orders = pytest.mark.parametrize("in_order", [False, True])


def rows_of(graph: Graph, side: Side) -> Topology:
    return graph.csc() if side == "in" else graph.csr()


def row_ranges(rows: Topology) -> Sequence[slice]:
    return [slice(*ends) for ends in zip(rows.indptr, rows.indptr[1:], strict=False)]


# --- what they are -------------------------------------------------------------------------------


@sides
def test_sizes_of_degrees_are_their_numbers_of_bits(side: Side) -> None:
    """CONTRACT 60: degrees for PPR."""
    with web() as graph:
        (sizes,) = graph.derived(DegreeSizes(EDGE, side))
        degrees = np.diff(rows_of(graph, side).indptr).tolist()
        assert sizes.array.tolist() == [degree.bit_length() for degree in degrees]


@sides
@orders
def test_sorted_rows_have_the_neighbors_of_each_row_ascending(side: Side, in_order: bool) -> None:
    with web(in_order=in_order) as graph:
        rows, found = rows_of(graph, side), graph.sorted_rows(side=side)
        for row in row_ranges(rows):
            assert found[row].tolist() == sorted(rows.indices[row].tolist())


@sides
@orders
def test_sums_rise_by_the_share_of_each_weight(side: Side, in_order: bool) -> None:
    with web(in_order=in_order) as graph:
        rows, found = rows_of(graph, side), graph.weight_sums(None, "edge_weight", side)
        weights = graph.edge_attribute("edge_weight")[rows.edge_ids]
        for row in row_ranges(rows):
            steps = np.diff(found[row], prepend=0)
            shares = weights[row] / (weights[row].sum() or 1)
            npt.assert_allclose(steps / max(found[row][-1:].sum(), 1), shares)
            assert ((steps == 0) == (weights[row] == 0)).all()


@sides
@orders
@pytest.mark.parametrize("of_nodes", [False, True])
def test_rows_by_time_are_sorted_stably(side: Side, in_order: bool, of_nodes: bool) -> None:
    name = "time" if of_nodes else "edge_time"
    with web(in_order=in_order) as graph:
        rows, (found, times) = (
            rows_of(graph, side),
            graph.by_time(None, name, of_nodes=of_nodes, side=side),
        )
        told = (
            graph.node_attribute(name)[rows.indices]
            if of_nodes
            else graph.edge_attribute(name)[rows.edge_ids]
        )
        npt.assert_array_equal(found.indptr, rows.indptr)
        for row in row_ranges(rows):
            order = np.argsort(told[row], kind="stable")
            npt.assert_array_equal(times[row], told[row][order])
            npt.assert_array_equal(found.edge_ids[row], rows.edge_ids[row][order])
            npt.assert_array_equal(found.indices[row], rows.indices[row][order])


@orders
def test_the_edges_stand_in_the_order_they_were_given(in_order: bool) -> None:
    with web(in_order=in_order) as graph:
        assert graph.coo().dtype == np.int32
        npt.assert_array_equal(graph.coo(), graph.edge_index())


def test_edges_between_types_are_told_too() -> None:
    with films() as graph:
        npt.assert_array_equal(graph.coo(RATES), graph.edge_index(RATES))
        for derived in FILMS:
            graph.derived(derived)
        graph.validate()


def test_weights_of_16_bits_are_what_they_were() -> None:
    """NumPy knows no bfloat16: it comes as integers, and must not be taken for them."""
    bits = np.array([0x3F80, 0x4000, 0x0000], np.uint16)  # 1, 2, 0
    with Graph.from_coo([[0, 1, 2], [0, 0, 0]]) as plain:
        with SharedArray.from_array(bits, "bfloat16") as weights:
            graph = Graph(plain.schema, {**plain.arrays, ArrayKey("edge", EDGE, "w"): weights})
            sums = graph.weight_sums(None, "w")
            assert sums[1] == 3 * sums[0] == sums[2]
            graph.validate()
            graph.close()


@pytest.mark.parametrize("num_nodes", [0, 3])
def test_a_graph_without_edges_has_derived_arrays_without_any(num_nodes: int) -> None:
    ends, times = np.empty((2, 0), np.int64), np.empty(0, np.int64)
    with Graph.from_coo(
        ends, num_nodes, edge_weight=[], edge_time=times, node_time=np.arange(num_nodes)
    ) as graph:
        make_all(graph)
        graph.validate()
        assert graph.coo().shape == (2, 0)


def test_a_name_tells_the_derived_array_and_no_other_name_is_one() -> None:
    for derived in [*WEB, *FILMS]:
        if not isinstance(derived, OutEdges):
            assert [derived_of(key) for key in derived.keys] == [derived] * len(derived.keys)
    for name in ("", "coo.x", "in", "up.sorted", "in.weights", "in.by_time.edge", "in.times.web.t"):
        assert derived_of(ArrayKey("aid", EDGE, name)) is None
    assert derived_among(keys_of(WEB)) == [
        derived for derived in WEB if not isinstance(derived, OutEdges)
    ]


# --- made once -----------------------------------------------------------------------------------


@kinds
def test_an_derived_array_is_made_once_in_memory_of_the_graphs_kind_and_read_only(
    kind: str,
) -> None:
    """CONTRACT 60."""
    with web(kind) as graph:
        for derived in WEB:
            made = graph.derived(derived)
            assert all(
                one is other for one, other in zip(made, graph.derived(derived), strict=True)
            )
            for array in made:
                wanted = MemfdHandle if kind == "memfd" else NamedHandle
                assert isinstance(array.segment.handle, wanted)
                assert not array.array.flags.writeable


def test_an_derived_array_is_no_part_of_the_content() -> None:
    with web() as graph, web() as other:
        assert make_all(graph).version == other.version
        assert graph.schema == other.schema


def test_what_goes_through_the_arrays_is_not_disturbed_by_a_new_one() -> None:
    with web() as graph:
        before = graph.arrays
        for number, _ in enumerate(before):
            if number == 1:
                make_all(graph)
        assert len(before) < len(graph.arrays)


class Slow:
    """Rows in order, made when somebody says so."""

    def __init__(self) -> None:
        self.made = 0
        self.begun, self.go_on = threading.Event(), threading.Event()

    @property
    def keys(self) -> tuple[ArrayKey, ...]:
        return SortedNeighbors(EDGE).keys

    def make(self, graph: DerivedFrom, kind: str | None) -> Sequence[SharedArray]:
        self.made += 1
        self.begun.set()
        assert self.go_on.wait(PATIENCE_S)
        return SortedNeighbors(EDGE).make(graph, kind)


def test_two_threads_that_want_the_same_get_the_same() -> None:
    with web() as graph, ThreadPoolExecutor(2) as threads:
        slow, ready = Slow(), threading.Event()

        def second() -> tuple[SharedArray, ...]:
            ready.set()
            return graph.derived(slow)

        first = threads.submit(graph.derived, slow)
        assert slow.begun.wait(PATIENCE_S)
        other = threads.submit(second)
        assert ready.wait(PATIENCE_S)
        slow.go_on.set()
        assert first.result(PATIENCE_S)[0] is other.result(PATIENCE_S)[0]
        assert slow.made == 1


def test_what_is_there_is_had_while_another_is_being_made() -> None:
    with web() as graph, ThreadPoolExecutor(1) as threads:
        expected, slow = graph.coo(), Slow()
        making = threads.submit(graph.derived, slow)
        assert slow.begun.wait(PATIENCE_S)
        assert graph.coo() is not expected  # a view, made anew
        npt.assert_array_equal(graph.coo(), expected)
        assert not making.done()
        slow.go_on.set()
        making.result(PATIENCE_S)


def test_many_threads_make_everything_once() -> None:
    with web() as graph, ThreadPoolExecutor(8) as threads:
        start = threading.Barrier(8)

        def make(turn: int) -> list[int]:
            start.wait(PATIENCE_S)
            derived_arrays = WEB[turn:] + WEB[:turn]
            found = {
                key: array
                for derived in derived_arrays
                for key, array in zip(derived.keys, graph.derived(derived), strict=True)
            }
            return [id(found[key]) for key in keys_of(WEB)]

        first, *others = list(threads.map(make, range(8)))
        assert others == [first] * 7
        graph.validate()


# --- in another process --------------------------------------------------------------------------

LOOK = """
from penstock.graph.graph import Graph
from penstock.graph.sharing import GraphHandle
from tests.graph.derived_graphs import make_all

handle = msgspec.json.decode(sys.argv[1], type=GraphHandle)
with Graph.attach(handle, list(map(int, sys.argv[2:]))) as graph:
    before = list(graph.arrays)
    make_all(graph).validate()
    say(list(graph.arrays) == before)
"""


@kinds
def test_derived_arrays_travel_with_the_handle_and_are_not_made_again(kind: str) -> None:
    """CONTRACT 60."""
    with web(kind) as graph:
        make_all(graph)
        fds = graph.descriptors
        assert run_child(LOOK, graph.handle(), *fds, pass_fds=fds) is True


def test_a_graph_of_files_is_pickled_with_the_derived_arrays_that_lie_in_files(
    tmp_path: Path,
) -> None:
    with web() as graph:
        graph.sorted_rows()
        graph.save(tmp_path / "graph")
    with Graph.open(tmp_path / "graph") as graph:
        graph.weight_sums(None, "edge_weight", "out")
        with pickle.loads(pickle.dumps(graph)) as copy:
            assert set(graph.arrays) - set(copy.arrays) == {
                *OutEdges(EDGE).keys,
                *WeightSums(EDGE, "edge_weight", "out").keys,
            }
            npt.assert_array_equal(copy.sorted_rows(), graph.sorted_rows())
            expected = graph.weight_sums(None, "edge_weight", "out")
            npt.assert_array_equal(copy.weight_sums(None, "edge_weight", "out"), expected)


def test_edges_are_listed_in_pieces_whatever_their_number() -> None:
    """Rows that hold several pieces, and pieces that hold no edge."""
    degrees = np.array([3, 0, 2 * PIECE + 1, *[0] * (PIECE + 5), 7])
    indptr = np.concatenate([[0], np.cumsum(degrees)])
    sources = np.arange(indptr[-1]) % 1000
    found = coo(Topology(indptr, sources))
    npt.assert_array_equal(found[0], sources)
    npt.assert_array_equal(found[1], np.repeat(np.arange(len(degrees)), degrees))


def test_making_them_takes_little_memory_beside_what_they_are() -> None:
    """CONTRACT 60: natively, where they stay; the list of edges in pieces."""
    program = """
import tracemalloc
from penstock.graph import Graph
from tests.graph.derived_graphs import WEB

rng, nodes, edges = np.random.default_rng(0), 50_000, 2_000_000
graph = Graph.from_coo(
    rng.integers(0, nodes, (2, edges)), nodes, edge_weight=rng.random(edges),
    edge_time=rng.integers(0, 99, edges), node_time=rng.integers(0, 99, nodes),
)
peaks = {}
tracemalloc.start()
for derived in WEB:
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    graph.derived(derived)
    peaks[repr(derived)] = (tracemalloc.get_traced_memory()[1] - before) / edges
say(peaks)
"""
    peaks = msgspec.convert(run_child(program), dict[str, float])
    assert len(peaks) == len(WEB)
    assert max(peaks.values()) < 4, peaks  # bytes for each edge; a column of ids would be 8
