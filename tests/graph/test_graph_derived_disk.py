"""Derived arrays on disk: saved with the graph, mapped when it is opened, and checked."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy.testing as npt
import pytest

from penstock.errors import GraphFormatError
from penstock.graph import Graph, SharedArray
from penstock.graph import format as on_disk
from penstock.graph.derived import (
    ByTime,
    Coo,
    DegreeSizes,
    OutEdges,
    SortedNeighbors,
    WeightSums,
    keys_of,
)
from penstock.graph.describe import ArrayDescription
from penstock.graph.inventory import key_text
from penstock.graph.manifest import Manifest, decode, encode
from penstock.graph.schema import EDGE, ArrayKey
from tests.graph.derived_graphs import EDGES, RATES, WEB, files_of, films, make_all, web

pytestmark = pytest.mark.usefixtures("no_leaks")

SUMS = WeightSums(EDGE, "edge_weight").keys[0]
BY_TIME, TIMES = ByTime(EDGE, "edge_time", False).keys
SORTED = SortedNeighbors(EDGE).keys[0]
SIZES = DegreeSizes(EDGE).keys[0]
COO = Coo(EDGE).keys[0]

Change = Callable[[Any], None]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A graph saved with all its derived arrays."""
    with web() as graph:
        make_all(graph).save(tmp_path / "graph")
    return tmp_path / "graph"


# --- saved and opened ----------------------------------------------------------------------------


@pytest.mark.parametrize("made", [web, films])
def test_derived_arrays_are_saved_with_the_graph_and_mapped_when_it_is_opened(
    made: Callable[[], Graph], tmp_path: Path
) -> None:
    """CONTRACT 60: kept with the graph on disk, and nothing is made again."""
    with made() as graph:
        make_all(graph).save(tmp_path / "graph")
        with Graph.open(tmp_path / "graph") as opened:
            assert set(files_of(opened)) == set(graph.arrays)
            make_all(opened).validate()
            assert set(opened.arrays) == set(graph.arrays)
            for key, array in graph.arrays.items():
                npt.assert_array_equal(opened.arrays[key].array, array.array)
            assert opened.describe().backing == "file"


def test_only_those_that_were_made_are_saved(tmp_path: Path) -> None:
    with web() as graph:
        graph.weight_sums(None, "edge_weight")
        graph.save(tmp_path / "graph")
    with Graph.open(tmp_path / "graph") as opened:
        assert [key for key in opened.arrays if key.group in ("aid", "csr")] == [SUMS]


def test_the_version_is_that_of_the_graph_without_them(path: Path) -> None:
    with web() as graph, Graph.open(path) as opened:
        assert opened.version == graph.version == on_disk.verify(path)


def test_a_folder_from_before_there_were_any_opens_and_can_be_given_some(tmp_path: Path) -> None:
    with web() as graph:
        graph.save(tmp_path / "graph")
    with Graph.open(tmp_path / "graph") as opened:
        version = opened.version
        make_all(opened).save(tmp_path / "graph")  # over the files it lies in
    with Graph.open(tmp_path / "graph") as opened:
        assert set(files_of(opened)) >= set(keys_of(WEB))
        assert opened.version == version
        opened.validate()


def test_an_attribute_of_any_name_can_have_its_sums_saved(tmp_path: Path) -> None:
    for name in ("in.weights.w", "../up", "node.time", "Café 🎬", "a" * 300):
        with Graph.from_coo([[0, 1], [1, 1]], edge_attrs={name: [1, 2]}) as graph:
            graph.weight_sums(None, name)
            graph.by_time(None, name, of_nodes=False)
            graph.save(tmp_path / "graph")
        with Graph.open(tmp_path / "graph") as opened:
            before = list(opened.arrays)
            opened.weight_sums(None, name)
            opened.by_time(None, name, of_nodes=False)
            assert list(opened.arrays) == before
            opened.validate()


# --- not what they should look like --------------------------------------------------------------


def looking(at: ArrayKey, **other: Any) -> Callable[[Manifest], Manifest]:
    """The manifest with another word about one array."""

    def change(manifest: Manifest) -> Manifest:
        arrays = tuple(
            msgspec.structs.replace(entry, **other) if entry.key == at else entry
            for entry in manifest.arrays
        )
        return msgspec.structs.replace(manifest, arrays=arrays)

    return change


def without(*keys: ArrayKey) -> Callable[[Manifest], Manifest]:
    def change(manifest: Manifest) -> Manifest:
        kept = tuple(entry for entry in manifest.arrays if entry.key not in keys)
        return msgspec.structs.replace(manifest, arrays=kept)

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (looking(SUMS, shape=(EDGES - 1,)), f"int64[{EDGES - 1}]: int64, [{EDGES}], is needed"),
        (looking(SUMS, dtype="int32"), f"int32[{EDGES}]: int64, [{EDGES}], is needed"),
        (looking(SUMS, dtype="float64"), f"float64[{EDGES}]: int64, [{EDGES}], is needed"),
        (looking(BY_TIME, shape=(2, EDGES)), f"int32 or int64, [{EDGES}, 2], is needed"),
        (looking(TIMES, dtype="int32"), f"int64, [{EDGES}], is needed"),
        (looking(SORTED, dtype="float32"), f"int32 or int64, [{EDGES}], is needed"),
        (looking(COO, shape=(EDGES, 2)), f"int32 or int64, [2, {EDGES}], is needed"),
        (looking(COO, key=ArrayKey("aid", EDGE, "csr")), "no derived array is called so"),
        (
            without(TIMES),
            "aid/in.by_time.edge.edge_time is alone: it needs aid/in.times.edge.edge_time, "
            "which there is not",
        ),
        (
            without(ArrayKey("edge", EDGE, "edge_weight")),
            "aid/in.weights.edge_weight is alone: it needs edge/edge_weight, which there is not",
        ),
        (
            without(*OutEdges(EDGE).keys),
            "aid/out.sorted is alone: it needs csr/indptr, which there is not",
        ),
        (looking(COO, key=ArrayKey("aid", RATES, "coo")), "there is no type ('user', 'rates'"),
        (looking(COO, key=ArrayKey("aid", "", "coo")), "there is no type ''"),
    ],
)
def test_an_derived_array_that_does_not_look_like_one_is_refused(
    path: Path, change: Callable[[Manifest], Manifest], said: str
) -> None:
    file = path / "manifest.json"
    good = decode(file.read_bytes(), file)
    file.write_bytes(encode(change(good)))
    with pytest.raises(GraphFormatError, match=re.escape(said)) as caught:
        Graph.open(path)
    assert str(caught.value).startswith(f"{file}: aid/")


def test_a_file_of_an_derived_array_that_was_cut_short_is_named(path: Path) -> None:
    with Graph.open(path) as graph:
        file = files_of(graph)[SUMS]
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(
        GraphFormatError, match=rf"^{re.escape(str(file))}: cut short: aid/in\.weig"
    ):
        Graph.open(path)


# --- not what they should hold -------------------------------------------------------------------


def small() -> Graph:
    """Five edges into three nodes: 1 → 0 (id 1), then 0, 2, 2 → 1 (0, 2, 4), then 3 → 2 (3)."""
    return Graph.from_coo(
        [[0, 1, 2, 3, 2], [1, 0, 1, 2, 1]],
        edge_weight=[1.0, 2.0, 0.0, 1.0, 1.0],
        edge_time=[9, 5, 9, 5, 3],
        node_time=[4, 3, 2, 1],
    )


def put(*at: int, value: int) -> Change:
    """Sets one element."""
    return lambda array: array.__setitem__(at, value)


def swap(one: int, other: int) -> Change:
    def change(array: Any) -> None:
        array[[one, other]] = array[[other, one]]

    return change


def found(key: ArrayKey, change: Change) -> str:
    """What `validate()` says of the graph with one array changed, as damage on a disk would."""
    with small() as graph:
        make_all(graph)
        with SharedArray.from_array(graph.arrays[key].array, writable=True) as copy:
            change(copy.array)
            changed = Graph(graph.schema, {**graph.arrays, key: copy})
            with pytest.raises(GraphFormatError) as caught:
                changed.validate()
    return str(caught.value)


def test_sums_that_do_not_rise_with_a_weight() -> None:
    said = found(SUMS, put(3, value=1))
    assert re.fullmatch(
        r"aid/in\.weights\.edge_weight\[3\] is 1; expected more than \d+: edge 4 weighs 1\.0",
        said,
    )


def test_sums_that_rise_without_a_weight() -> None:
    said = found(SUMS, lambda sums: sums.__setitem__(2, sums[1] + 1))
    assert re.fullmatch(
        r"aid/in\.weights\.edge_weight\[2\] is \d+; expected \d+: edge 2 weighs 0\.0",
        said,
    )


def test_sums_that_are_negative() -> None:
    said = found(SUMS, put(0, value=-7))
    expected = "aid/in.weights.edge_weight[0] is -7; expected more than 0: edge 1 weighs 2.0"
    assert said == expected


def test_times_that_are_not_those_of_the_edges() -> None:
    assert found(TIMES, put(1, value=4)) == "aid/in.times.edge.edge_time[1] is 4; expected 3"


def test_times_that_fall() -> None:
    """Both arrays agree, but not with the order."""
    with small() as graph:
        make_all(graph)
        changed = {}
        for key in (BY_TIME, TIMES):
            copy = SharedArray.from_array(graph.arrays[key].array, writable=True)
            swap(1, 2)(copy.array)
            changed[key] = copy
        with pytest.raises(GraphFormatError) as caught:
            Graph(graph.schema, {**graph.arrays, **changed}).validate()
    message = "aid/in.times.edge.edge_time[2] is 3; expected at least 9, as before it in row 1"
    assert str(caught.value) == message


def test_entries_that_stand_in_another_row() -> None:
    """Of equal time, so that only the rows are wrong: edges 1 and 3, at 0 and 4."""
    assert (
        found(BY_TIME, swap(0, 4))
        == "aid/in.by_time.edge.edge_time has other entries than the rows it was made from"
    )


def test_entries_that_are_none() -> None:
    name = "aid/in.by_time.edge.edge_time"
    assert found(BY_TIME, put(2, 0, value=4)) == f"{name}[:, 0][2] is 4; expected 0 <= id < 4"
    assert found(BY_TIME, put(2, 1, value=-1)) == f"{name}[:, 1][2] is -1; expected 0 <= id < 5"


def test_sorted_rows_that_fall() -> None:
    message = "aid/in.sorted[2] is 0; expected at least 2, as before it in row 1"
    assert found(SORTED, swap(1, 2)) == message


def test_sorted_rows_of_other_neighbors() -> None:
    message = "aid/in.sorted has other entries than the rows it was made from"
    assert found(SORTED, put(3, value=3)) == message


def test_sorted_rows_of_neighbors_that_are_none() -> None:
    assert found(SORTED, put(4, value=4)) == "aid/in.sorted[4] is 4; expected 0 <= id < 4"


def test_sizes_that_are_not_those_of_the_degrees() -> None:
    said = found(SIZES, put(1, value=9))
    assert re.fullmatch(r"aid/in\.degree_sizes\[1\] is 9; expected \d, the row has \d edges", said)


@pytest.mark.parametrize(("side", "expected"), [(0, 2), (1, 1)])
def test_edges_that_are_not_those_of_the_csc(side: int, expected: int) -> None:
    message = f"aid/coo[{side}, 4] is 0; expected {expected}, as in the csc"
    assert found(COO, put(side, 4, value=0)) == message


@pytest.mark.parametrize(
    "derived", [derived for derived in WEB if not isinstance(derived, OutEdges)]
)
def test_derived_arrays_of_out_edges_and_of_nodes_are_looked_at_too(derived: Any) -> None:
    for key in derived.keys:
        said = found(key, lambda array: array.__setitem__(..., 3))
        assert said.startswith(tuple(map(key_text, derived.keys)))


# --- told of --------------------------------------------------------------------------------------


def test_derived_arrays_are_described_with_their_edge_type() -> None:
    with films() as graph:
        before = graph.describe()
        graph.weight_sums(RATES, "stars.of.5")
        graph.csr(RATES)
        found = graph.describe()
    assert before.edges[0].derived == ()
    expected = ArrayDescription("in.weights.stars.of.5", "int64", (60,), 480)
    assert found.edges[0].derived == (expected,)
    assert found.memory.derived == 480
    assert found.memory.topology > before.memory.topology  # the csr
    assert sum(getattr(found.memory, name) for name in found.memory.__struct_fields__) == (
        2 * found.memory.total
    )
