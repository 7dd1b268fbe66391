"""A whole graph in another process: by one descriptor, by name, or by its files."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.testing as npt
import pytest

from penstock.errors import GraphFormatError
from penstock.graph import Graph, sharing
from penstock.graph.handles import FileHandle, MemfdHandle
from penstock.graph.sharing import GraphHandle
from tests.graph.shared_children import kinds, open_descriptors, run_child

pytestmark = pytest.mark.usefixtures("no_leaks")

EDGES = np.array([[0, 1, 2, 0, 3], [1, 2, 0, 2, 2]])
CITES = ("paper", "cites", "paper")

ATTACH = """
from penstock.graph import Graph
from penstock.graph.sharing import GraphHandle
handle = msgspec.json.decode(sys.argv[1], type=GraphHandle)
graph = Graph.attach(handle, [int(fd) for fd in sys.argv[2:]])
"""


def papers(kind: str | None = None) -> Graph:
    return Graph.from_coo(
        {CITES: EDGES},
        x={"paper": np.arange(8.0).reshape(4, 2)},
        train={"paper": [3, 1]},
        graph_attrs={"title": "papers", "prior": np.ones(2)},
        kind=kind,
    )


def copies(graph: Graph) -> list[int]:
    """Descriptors to give away."""
    return [os.dup(fd) for fd in graph.descriptors]


@kinds
def test_a_fresh_interpreter_maps_the_whole_graph(kind: str) -> None:
    program = """
graph.validate()
name = ("paper", "cites", "paper")
say([
    graph.edge_index(name).tolist(),
    graph.node_attribute("x", "paper").tolist(),
    graph.split("train", "paper").tolist(),
    graph.graph_attributes()["title"],
    graph.graph_attributes()["prior"].tolist(),
])
"""
    with papers(kind) as graph:
        fds = graph.descriptors
        said = run_child(ATTACH + program, graph.handle(), *fds, pass_fds=fds)
    x = [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0], [6.0, 7.0]]
    assert said == [EDGES.tolist(), x, [3, 1], "papers", [1.0, 1.0]]


def test_one_descriptor_is_enough_and_is_closed_once_mapped() -> None:
    with papers("memfd") as graph:
        fds = graph.descriptors
        assert len(fds) == 1
        program = f"{ATTACH}say(int(sys.argv[2]) in open_descriptors())"
        assert run_child(program, graph.handle(), *fds, pass_fds=fds) is False


def test_named_memory_needs_no_descriptor() -> None:
    with papers("named") as graph:
        assert graph.descriptors == ()


@kinds
def test_a_csr_made_before_is_shared_too(kind: str) -> None:
    program = """
say([len(graph.arrays), graph.csr(("paper", "cites", "paper")).edge_ids.tolist()])
"""
    with papers(kind) as graph:
        ids = graph.csr(CITES).edge_ids.tolist()
        fds = graph.descriptors
        said = run_child(ATTACH + program, graph.handle(), *fds, pass_fds=fds)
        assert said == [len(graph.arrays), ids]


def test_a_handle_is_small_whatever_the_graph() -> None:
    with Graph.from_coo(np.zeros((2, 10**6), np.int64), x=np.zeros((10, 1000))) as graph:
        assert len(msgspec.msgpack.encode(graph.handle())) < 1000


def test_a_version_that_is_known_travels_along() -> None:
    with papers() as graph:
        assert graph.handle().version is None
        version = graph.version
        with Graph.attach(graph.handle(), copies(graph)) as attached:
            assert attached.handle().version == version


def test_only_the_creator_can_hand_the_graph_on() -> None:
    with papers("memfd") as graph, Graph.attach(graph.handle(), copies(graph)) as attached:
        with pytest.raises(ValueError, match="only the creator keeps one"):
            _ = attached.descriptors


@pytest.mark.parametrize("number", [0, 2])
def test_a_wrong_number_of_descriptors_is_refused_and_they_are_closed(number: int) -> None:
    with papers("memfd") as graph:
        before = open_descriptors()
        fds = [os.dup(graph.descriptors[0]) for _ in range(number)]
        expected = f"^fds has {number} descriptors; this graph needs 1$"
        with pytest.raises(ValueError, match=expected):
            Graph.attach(graph.handle(), fds)
        assert open_descriptors() == before


def test_swapped_descriptors_are_refused_and_closed() -> None:
    with papers("memfd") as graph:
        graph.csr(CITES)
        before = open_descriptors()
        with pytest.raises(ValueError, match="the descriptor is not that of the shared memory"):
            Graph.attach(graph.handle(), copies(graph)[::-1])
        assert open_descriptors() == before


def test_a_descriptor_that_is_none_does_not_keep_the_others_open() -> None:
    with papers("memfd") as graph:
        before = open_descriptors()
        none = os.dup(graph.descriptors[0])
        good = copies(graph)
        os.close(none)
        with pytest.raises(ValueError, match=r"^fds has 2 descriptors; this graph needs 1$"):
            Graph.attach(graph.handle(), [none, *good])
        assert open_descriptors() == before


def edited(handle: GraphHandle, **changes: Any) -> GraphHandle:
    """A handle of which the first array is another."""
    first = msgspec.structs.replace(handle.arrays[0], **changes)
    return msgspec.structs.replace(handle, arrays=(first, *handle.arrays[1:]))


def test_a_handle_that_reaches_beyond_its_memory_is_refused() -> None:
    with papers("memfd") as graph:
        before = open_descriptors()
        for changes, message in (
            ({"shape": (10**9,)}, "is too short"),
            ({"segment": 3}, "the handle speaks of segment 3, there are 1"),
            ({"segment": -1}, "the handle speaks of segment -1, there are 1"),
        ):
            with pytest.raises(ValueError, match=message):
                Graph.attach(edited(graph.handle(), **changes), copies(graph))
        assert open_descriptors() == before


def test_a_handle_whose_arrays_are_not_those_of_its_types_is_refused() -> None:
    with papers("memfd") as graph:
        before = open_descriptors()
        with pytest.raises(GraphFormatError, match=r"indptr is int64\[2\]: int64\[5\] is needed"):
            Graph.attach(edited(graph.handle(), shape=(2,)), copies(graph))
        assert open_descriptors() == before


def test_a_segment_that_is_gone_leaves_nothing_open() -> None:
    with papers("named") as graph:
        handle = graph.handle()
    with papers("memfd") as other:
        before = open_descriptors()
        both = msgspec.structs.replace(handle, segments=(*handle.segments, MemfdHandle(8, 0, 0)))
        with pytest.raises(FileNotFoundError):
            Graph.attach(both, copies(other))
        assert open_descriptors() == before


@kinds
def test_a_pickled_graph_maps_the_same_memory_in_a_fresh_interpreter(kind: str) -> None:
    program = """
import pickle
graph = pickle.loads(bytes.fromhex(sys.argv[1]))
name = ("paper", "cites", "paper")
placed = (place for place in graph.handle().segments)
say([graph.edge_index(name).tolist(), [(s.nbytes, os.stat(s.path).st_ino) for s in placed]])
"""
    with papers(kind) as graph:
        graph.csr(CITES)  # derived arrays come along
        pickled = pickle.dumps(graph)
        memory = [
            (segment.nbytes, os.stat(segment.path).st_ino)
            for segment in sharing.path_handle_of(graph.handle(), graph.arrays).segments
            if not isinstance(segment, FileHandle | MemfdHandle)
        ]
        said: Any = run_child(program, pickled.hex())
    assert len(pickled) < 3000
    assert said == [EDGES.tolist(), [list(one) for one in memory]]


@kinds
def test_a_pickled_graph_can_be_pickled_on(kind: str) -> None:
    with (
        papers(kind) as graph,
        pickle.loads(pickle.dumps(graph)) as second,
        pickle.loads(pickle.dumps(second)) as third,
    ):
        npt.assert_array_equal(third.edge_index(CITES), graph.edge_index(CITES))
        assert third.descriptors == ()


@kinds
def test_the_pickle_of_a_graph_that_is_gone_says_so(kind: str) -> None:
    with papers(kind) as graph:
        pickled = pickle.dumps(graph)
    with pytest.raises(FileNotFoundError, match="shared memory is gone: the process that made it"):
        pickle.loads(pickled)


def test_the_path_of_a_descriptor_that_is_another_s_by_now_is_refused() -> None:
    with papers("memfd") as graph:
        pickled, number = pickle.dumps(graph), graph.descriptors[0]
    other = os.open(os.devnull, os.O_RDONLY)
    os.dup2(other, number)
    try:
        with pytest.raises(FileNotFoundError, match="shared memory is gone"):
            pickle.loads(pickled)
    finally:
        for fd in {other, number}:
            os.close(fd)


def test_a_graph_that_was_attached_by_a_descriptor_says_what_to_do_instead_of_pickling() -> None:
    with papers("memfd") as graph, Graph.attach(graph.handle(), copies(graph)) as attached:
        with pytest.raises(TypeError, match=r"belongs to another process.*save\(\) the graph"):
            pickle.dumps(attached)


def test_a_graph_of_files_pickles_small(tmp_path: Path) -> None:
    with papers() as graph:
        graph.save(tmp_path / "papers")
    with Graph.open(tmp_path / "papers") as graph:
        pickled = pickle.dumps(graph)
        with pickle.loads(pickled) as again:
            npt.assert_array_equal(again.edge_index(CITES), EDGES)
            assert again.version == graph.version


def test_a_graph_of_files_pickles_without_the_csr_that_was_made_of_it(tmp_path: Path) -> None:
    with papers() as graph:
        graph.save(tmp_path / "papers")
    with Graph.open(tmp_path / "papers") as graph:
        ids = graph.csr(CITES).edge_ids.tolist()
        with pickle.loads(pickle.dumps(graph)) as again:
            assert again.schema == graph.schema
            assert again.arrays.keys() == {key for key in graph.arrays if key.group != "csr"}
            assert again.csr(CITES).edge_ids.tolist() == ids


def test_a_graph_of_files_pickles_with_the_csr_that_was_saved(tmp_path: Path) -> None:
    with papers() as graph:
        graph.csr(CITES)
        graph.save(tmp_path / "papers")
    with Graph.open(tmp_path / "papers") as graph, pickle.loads(pickle.dumps(graph)) as again:
        assert again.arrays.keys() == graph.arrays.keys()


def test_a_graph_of_files_is_attached_by_its_handle_alone(tmp_path: Path) -> None:
    with papers() as graph:
        graph.save(tmp_path / "papers")
    with Graph.open(tmp_path / "papers") as graph:
        program = f"{ATTACH}graph.validate(); say(graph.num_edges())"
        assert graph.descriptors == ()
        assert run_child(program, graph.handle()) == 5
