"""The ids that users gave their nodes: kept, told, looked up, and refused where they are wrong."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.errors import GraphFormatError
from penstock.graph import Graph
from penstock.graph.format import content_version
from penstock.graph.manifest import FORMAT_VERSION
from penstock.graph.schema import ArrayKey, NodeTypeInfo, Schema
from penstock.graph.shared import SharedArray
from penstock.graph.user_ids import are_user_ids, keys_of
from tests.graph.named_graphs import ITEMS, NAMES, NUMBERS, USERS, ring, shop, tells_ids
from tests.graph.shared_children import run_child

pytestmark = pytest.mark.usefixtures("no_leaks")

SLOTS = ArrayKey("ids", "user", "slots")


def test_a_graph_in_memory_keeps_the_ids_of_its_users() -> None:
    """CONTRACT 78: text and numbers of 64 bits, in any order."""
    with shop() as graph:
        tells_ids(graph)
        assert (graph.id_kind("user"), graph.id_kind("item")) == ("text", "int64")
        assert graph.id_kind("shelf") is None
        graph.validate()


@given(
    st.one_of(
        st.lists(st.text(max_size=12), unique=True, min_size=1),
        st.lists(st.integers(-(2**63), 2**63 - 1), unique=True, min_size=1),
    )
)
def test_any_ids_are_kept_as_they_are(ids: list[Any]) -> None:
    """CONTRACT 78: empty strings, zeros within, the smallest and the largest number."""
    with ring(ids) as graph:
        assert graph.ids().tolist() == ids
        assert graph.lookup(ids=ids[::-1]).tolist() == list(range(len(ids)))[::-1]


@pytest.mark.parametrize(
    "ids",
    [
        np.array(["c", "a", "bb"]),
        np.array(["c", "a", "bb"], object),
        ("c", "a", "bb"),
    ],
)
def test_strings_may_come_as_arrays(ids: Any) -> None:
    with ring(ids) as graph:
        assert graph.ids().tolist() == ["c", "a", "bb"]
        assert graph.lookup(None, np.array(["bb", "c"])).tolist() == [2, 0]


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.uint64, np.int64, object])
def test_integers_of_any_width_are_ids_of_64_bits(dtype: Any) -> None:
    with ring(np.array([9, 3, 200], dtype)) as graph:
        assert graph.ids().dtype == np.int64
        assert graph.lookup(None, np.array([200, 9], dtype)).tolist() == [2, 0]


class _Series:
    """As pandas' Series and pyarrow's arrays are: no array, but NumPy makes one of it."""

    def __array__(self, *_: Any, **__: Any) -> Any:
        return np.array(["c", "a", "b"], object)


def test_what_numpy_makes_an_array_of_is_taken() -> None:
    assert are_user_ids(_Series())
    with ring(_Series(), count=3) as graph:
        assert graph.lookup(None, _Series()).tolist() == [0, 1, 2]


def test_the_ids_say_how_many_nodes_there_are() -> None:
    with Graph.from_coo([[0], [1]], node_ids=["a", "b", "c"]) as graph:
        assert graph.num_nodes() == 3


def test_nodes_are_told_by_their_numbers_of_any_shape_of_list() -> None:
    with ring(["a", "b", "c"]) as graph:
        assert graph.ids(index=[2, 2]).tolist() == ["c", "c"]
        assert graph.ids(None, range(2)).tolist() == ["a", "b"]
        with pytest.raises(ValueError, match=r"index\[1\] is 3; expected 0 <= id < 3"):
            graph.ids(index=[0, 3])
        with pytest.raises(ValueError, match="index has dtype float64"):
            graph.ids(index=[0.5])


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        (["a", "b", "a"], r"node_ids\[2\] is 'a', and so is node_ids\[0\]; expected a different"),
        ([5, 5, 6], r"node_ids\[1\] is 5, and so is node_ids\[0\]"),
        (["a", 2, "c"], r"node_ids\[1\] is 2; expected a string"),
        ([1, "b", 3], r"node_ids\[1\] is 'b'; expected strings, or integers of 64 bits"),
        ([1, None, 3], r"node_ids\[1\] is None; expected strings, or integers"),
        (["a", None, "c"], r"node_ids\[1\] is None; expected a string"),
        ([1, 2, 2**63], r"node_ids\[2\] is 9223372036854775808; expected an integer of 64 bits"),
        (np.array([1, 2, 2**63], np.uint64), r"node_ids\[2\] is 9223372036854775808; expected at"),
        ([1.0, 2.0, 3.0], r"node_ids\[0\] is 1.0; expected strings, or integers of 64 bits"),
        ([True, False, True], r"node_ids\[0\] is True; expected strings"),
        (np.array([1.5, 2, 3]), "node_ids has dtype float64; expected strings, or integers"),
        (np.array([b"a", b"b", b"c"]), r"node_ids has dtype \|S1; expected strings"),
        (["a", "b", "\ud800"], r"node_ids\[2\] is '\\ud800', which is no text"),
        (["a", "b"], "node_ids has 2 ids; expected 3, one per node"),
        ("abc", "node_ids is 'abc'; expected strings, or integers of 64 bits, in a list"),
        ([["a", "b", "c"]], "node_ids"),
    ],
)
def test_wrong_ids_are_named_with_their_position(ids: Any, words: str) -> None:
    """CONTRACT 78: duplicates, gaps, other things than ids."""
    with pytest.raises(ValueError, match=words):
        Graph.from_coo([[0, 1, 2], [1, 2, 0]], 3, node_ids=ids)


def test_a_duplicate_of_a_type_is_named_with_the_type() -> None:
    with pytest.raises(ValueError, match=r"node_ids\['item'\]\[29\] is 7, and so is .*\[28\]"):
        shop(node_ids={"item": [*range(100, 128), 7, 7]})


def test_ids_of_a_type_that_is_not_there_are_refused() -> None:
    with pytest.raises(ValueError, match=r"node_ids\['usr'\] is given, but there is no node type"):
        shop(node_ids={"usr": NAMES})


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        (
            ["u1é", "x"],
            r"ids\[1\] is 'x', an id that no 'user' node has \(1 of 2 ids are missing\)",
        ),
        ([NAMES[3], NAMES[3] + "x"], f"did you mean '{NAMES[3]}'"),
        ([17], r"ids\[0\] is 17, and the ids of 'user' nodes are strings"),
        (None, "ids is None; expected strings, or integers"),
        ("u1é", "ids is 'u1é'; expected strings, or integers of 64 bits, in a list"),
        ([["a"]], r"ids\[0\] is \['a'\]"),
    ],
)
def test_unknown_ids_are_named_with_their_position(ids: Any, words: str) -> None:
    """CONTRACT 78: the first of them, how many there are, and what may have been meant."""
    with shop() as graph, pytest.raises(ValueError, match=words):
        graph.lookup("user", ids)


def test_unknown_ids_may_be_skipped_and_are_counted() -> None:
    """CONTRACT 78: a warning says how many."""
    with shop() as graph:
        wanted = [NAMES[5], "x", NAMES[2], "y"]
        with pytest.warns(
            UserWarning, match=r"2 of 4 ids are missing, and left out, .*'x', ids\[1"
        ):
            found = graph.lookup("user", wanted, on_missing="skip")
        assert found.tolist() == [5, 2]
        assert graph.lookup("user", NAMES[:3], on_missing="skip").tolist() == [0, 1, 2]
        with pytest.raises(ValueError, match=r"on_missing is 'skp'.*did you mean 'skip'"):
            graph.lookup("user", wanted, on_missing="skp")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "use",
    [
        lambda graph: graph.ids("shelf"),
        lambda graph: graph.ids("shelf", [0]),
        lambda graph: graph.lookup("shelf", ["a"]),
    ],
)
def test_a_type_without_ids_says_so(use: Callable[[Graph], object]) -> None:
    with (
        shop() as graph,
        pytest.raises(ValueError, match="the 'shelf' nodes of this graph have no ids but their"),
    ):
        use(graph)


def test_a_graph_without_ids_says_so() -> None:
    with Graph.from_coo([[0], [1]]) as graph:
        for use in (graph.ids, lambda: graph.lookup(ids=["a"]), lambda: graph.names(_batch([0]))):
            with pytest.raises(ValueError, match="the nodes of this graph have no ids but their"):
                use()


def test_a_type_that_is_not_there_is_named() -> None:
    with (
        shop() as graph,
        pytest.raises(ValueError, match=r"node_type is 'usr'.*did you mean 'user'"),
    ):
        graph.ids("usr")


# --- batches --------------------------------------------------------------------------------------


def _batch(nodes: list[int]) -> Any:
    return SimpleNamespace(n_id=np.array(nodes))


class _TypedBatch(dict[str, Any]):
    @property
    def node_types(self) -> list[str]:
        return list(self)


def test_a_batch_is_told_in_the_users_ids() -> None:
    """CONTRACT 78."""
    with ring(["a", "b", "c"]) as graph:
        assert graph.names(_batch([2, 0])).tolist() == ["c", "a"]
        with pytest.raises(ValueError, match="batch has no n_id"):
            graph.names(SimpleNamespace())
    with shop() as graph:
        batch = _TypedBatch(user=_batch([3, 1]), item=_batch([0]), shelf=_batch([2]))
        told = graph.names(batch)
        assert {name: ids.tolist() for name, ids in told.items()} == {
            "user": [NAMES[3], NAMES[1]],
            "item": [NUMBERS[0]],
        }
        with pytest.raises(ValueError, match="batch has no node types"):
            graph.names(_batch([0]))


def test_only_strings_and_what_is_marked_are_users_ids() -> None:
    assert are_user_ids(["a"])
    assert are_user_ids(np.array(["a"]))
    assert are_user_ids(np.array(["a"], object))
    assert are_user_ids(ps.ids([1, 2]))
    for numbers in ([1, 2], np.array([1]), [], "train", None, ("user", [1]), range(3)):
        assert not are_user_ids(numbers)
    assert repr(ps.ids([1])) == "ids([1])"
    assert keys_of("ids", ps.ids([1])).tolist() == [1]  # type: ignore[union-attr]


# --- saving and sharing ---------------------------------------------------------------------------


def test_a_saved_graph_has_the_ids(tmp_path: Path) -> None:
    """CONTRACT 78."""
    with shop() as graph:
        graph.save(tmp_path / "shop.graph")
        with Graph.open(tmp_path / "shop.graph") as opened:
            tells_ids(opened)
            opened.validate()
            assert opened.version == graph.version == content_version(graph.schema, graph.arrays)
            opened.save(tmp_path / "again.graph")
    with Graph.open(tmp_path / "again.graph") as again:
        tells_ids(again)


def test_a_saved_graph_with_ids_is_of_a_format_that_older_readers_refuse(tmp_path: Path) -> None:
    with shop() as graph:
        graph.save(tmp_path / "shop.graph")
        (part,) = graph.partition(1, tmp_path / "parts")
    for folder in (tmp_path / "shop.graph", part):
        manifest = json.loads((folder / "manifest.json").read_text())
        assert manifest["format_version"] == 4 <= FORMAT_VERSION


def test_ids_are_part_of_the_version_and_the_table_over_them_is_not() -> None:
    with shop() as graph, shop(node_ids={"user": NAMES[::-1], "item": NUMBERS}) as other:
        assert graph.version != other.version
        arrays = {key: array for key, array in graph.arrays.items() if key.name != "slots"}
        assert content_version(graph.schema, arrays) == graph.version


def test_a_table_that_was_not_saved_is_made_when_it_is_needed() -> None:
    with shop() as graph:
        arrays = {key: array for key, array in graph.arrays.items() if key.name != "slots"}
        bare = Graph(graph.schema, arrays)
        assert SLOTS not in bare.arrays
        bare.validate()
        tells_ids(bare)
        assert bare.arrays[SLOTS].array.tolist() == graph.arrays[SLOTS].array.tolist()
        bare.close()


def test_another_process_maps_the_ids() -> None:
    """CONTRACT 78: by a handle, and pickled."""
    program = """
import pickle
graph = pickle.loads(bytes.fromhex(sys.argv[1]))
say([graph.ids("user").tolist(), graph.lookup("item", graph.ids("item")[::-1]).tolist()])
"""
    with shop() as graph:
        found = run_child(program, pickle.dumps(graph).hex())
        assert found == [NAMES, list(range(ITEMS))[::-1]]
        handle = msgspec.msgpack.decode(
            msgspec.msgpack.encode(graph.handle()), type=type(graph.handle())
        )
        assert handle.schema == graph.schema


def test_what_a_graph_is_told_of_says_that_there_are_ids() -> None:
    with shop() as graph:
        assert "'user': 40 nodes, x=float32[40, 3], train=20, ids=text" in repr(graph)
        described = graph.describe()
        assert [node.ids for node in described.nodes] == ["text", "int64", None]
        held = (array.nbytes for key, array in graph.arrays.items() if key.group == "ids")
        assert described.memory.ids == sum(held) > 0


# --- parts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["range", "hash", "given"])
def test_a_part_has_the_ids_of_its_own_nodes(tmp_path: Path, method: Any) -> None:
    """CONTRACT 78: parts know theirs, and a part alone does."""
    cut: Any = method
    if method == "given":
        sizes = {"user": USERS, "item": ITEMS, "shelf": 5}
        cut = {name: np.arange(size) % 3 for name, size in sizes.items()}
    with shop() as graph:
        parts = graph.partition(3, tmp_path / "parts", cut)
    seen = []
    for path in parts:
        with Graph.open(path) as part:
            part.validate()
            for each in (part, part.within()):
                nodes = each.node_ids("user")
                assert each.ids("user").tolist() == [NAMES[node] for node in nodes.tolist()]
                assert each.lookup("user", each.ids("user")).tolist() == nodes.tolist()
                items = each.node_ids("item")[::-1]
                assert each.ids("item", items).tolist() == [NUMBERS[at] for at in items.tolist()]
            seen += nodes.tolist()
            foreign = next(node for node in range(USERS) if node not in nodes)
            with pytest.raises(ValueError, match=rf"index\[0\] is {foreign}, which is in part"):
                part.ids("user", [foreign])
            with pytest.raises(ValueError, match=r"an id that no 'user' node has in part \d of 3"):
                part.lookup("user", [NAMES[foreign]])
    assert sorted(seen) == list(range(USERS))


def test_long_text_is_cut_a_piece_at_a_time(tmp_path: Path, monkeypatch: Any) -> None:
    """Pieces that end within a text, and several in one."""
    monkeypatch.setattr("penstock.graph.partition.sources._TEXTS_AT_ONCE", 3)
    monkeypatch.setattr("penstock.graph.partition.sources.PIECE_NBYTES", 16)
    monkeypatch.setattr("penstock.graph.checksum.PIECE_NBYTES", 16)
    names = [f"{node}-{'x' * (node * 7 % 50)}" for node in range(50)]
    with ring(names) as graph:
        for path in graph.partition(2, tmp_path / "parts", "hash"):
            with Graph.open(path) as part:
                assert part.ids().tolist() == [names[node] for node in part.node_ids().tolist()]
                part.validate()


# --- damage ---------------------------------------------------------------------------------------


def changed(graph: Graph, name: str, change: Callable[[Any], None], owner: str = "user") -> Graph:
    """The graph with an array of ids that is another one."""
    key = ArrayKey("ids", owner, name)
    array = graph.arrays[key].array.copy()
    change(array)
    return Graph(graph.schema, {**graph.arrays, key: SharedArray.from_array(array)})


def _set(at: Any, value: Any) -> Callable[[Any], None]:
    def change(array: Any) -> None:
        array[at] = value

    return change


@pytest.mark.parametrize(
    ("name", "owner", "change", "words"),
    [
        ("offsets", "user", _set(3, 10**6), r"ids/user/offsets: damaged text: key 2 begins"),
        ("text", "user", _set(1, 0xFF), r"ids/user/text: damaged text: a key is not UTF-8"),
        ("slots", "user", _set(slice(None), -1), r"ids/user/slots does not find id 0"),
        ("slots", "item", _set(slice(None), 5), r"ids/item/slots does not find id 0"),
        ("keys", "item", _set(7, NUMBERS[3]), r"ids/item/"),
    ],
)
def test_validate_names_what_is_damaged(
    name: str, owner: str, change: Callable[[Any], None], words: str
) -> None:
    """CONTRACT 78."""
    with shop() as graph:
        damaged = changed(graph, name, change, owner)
        with pytest.raises(GraphFormatError, match=words):
            damaged.validate()
        damaged.arrays[ArrayKey("ids", owner, name)].close()


def test_validate_names_an_id_that_stands_twice() -> None:
    with shop() as graph:
        damaged = changed(graph, "keys", _set(7, NUMBERS[3]), "item")
        bare = {key: array for key, array in damaged.arrays.items() if key.name != "slots"}
        with pytest.raises(GraphFormatError, match=rf"id 7 is {NUMBERS[3]}, as id 3 is; expected"):
            Graph(graph.schema, bare).validate()
        damaged.arrays[ArrayKey("ids", "item", "keys")].close()


def test_a_damaged_table_finds_the_right_node_or_none() -> None:
    with shop() as graph:
        damaged = changed(graph, "slots", _set(slice(0, 40), 3))
        found = damaged.lookup("user", [NAMES[3]], on_missing="raise")
        assert found.tolist() == [3]
        damaged.arrays[SLOTS].close()


def _without(name: str) -> Callable[[dict[ArrayKey, Any]], None]:
    def change(arrays: dict[ArrayKey, Any]) -> None:
        del arrays[ArrayKey("ids", "user", name)]

    return change


def _with(name: str, array: Any) -> Callable[[dict[ArrayKey, Any]], None]:
    def change(arrays: dict[ArrayKey, Any]) -> None:
        arrays[ArrayKey("ids", "user", name)] = SharedArray.from_array(array)

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_without("text"), "ids/user/offsets is there with slots: ids are keys, or offsets and"),
        (_with("keys", np.zeros(USERS, np.int64)), "ids/user/keys is there with offsets and text"),
        (_with("offsets", np.zeros(USERS, np.int64)), r"int64\[40\]: int64\[41\] is needed"),
        (_with("text", np.zeros((2, 2), np.uint8)), r"uint8\[2, 2\]: uint8, \[bytes\], is needed"),
        (_with("slots", np.zeros(64, np.int32)), r"int32\[64\]: int32\[128\] is needed"),
        (_with("slots", np.zeros(128, np.int64)), r"int64\[128\]: int32\[128\] is needed"),
        (_with("names", np.zeros(1, np.int64)), "there is no type 'user' that could have it"),
        (_with("text", np.zeros(3, np.uint8)), r"ids/user/offsets\[40\] is \d+; expected 3"),
    ],
)
def test_arrays_that_no_graph_has_are_refused(
    change: Callable[[dict[ArrayKey, Any]], None], words: str
) -> None:
    with shop() as graph:
        arrays = dict(graph.arrays)
        change(arrays)
        with pytest.raises(GraphFormatError, match=words):
            Graph(graph.schema, arrays)
        for key, array in arrays.items():
            if array is not graph.arrays.get(key):
                array.close()


def test_ids_of_a_type_that_is_gone_are_refused() -> None:
    with shop() as graph:
        infos = [NodeTypeInfo("usr", USERS), *graph.schema.nodes]
        schema = Schema(True, tuple(infos), graph.schema.edges)
        key = ArrayKey("ids", "nobody", "keys")
        numbers = graph.arrays[ArrayKey("ids", "item", "keys")]
        with pytest.raises(GraphFormatError, match="there is no type 'nobody'"):
            Graph(schema, {**graph.arrays, key: numbers})
